import sys
import types

import numpy as np
import pytest

from twinpass.encoder.any_model import Model
from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.evaluate import Settings, evaluate, make_jobs


class Rows(list):
    """As much of a data set of the hub as is read."""

    column_names = ("split", "sentence1", "sentence2", "score")

    def select_columns(self, names):
        return [{name: row[name] for name in names} for row in self]


def letters(texts):
    return np.array([[text.count(c) for c in "0123456789"] for text in texts], dtype=np.float32)


@pytest.fixture
def hub(monkeypatch):
    """A hub on which every data set has this many rows in its splits."""
    sizes = {"test": 1500, "validation": 1500}
    asked = []

    def load_dataset(name, config=None):
        asked.append(name)
        return {
            split: Rows(
                {"split": "t", "sentence1": f"a {i}", "sentence2": f"b {i * i}", "score": float(i % 6)}
                for i in range(size)
            )
            for split, size in sizes.items()
        }

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return types.SimpleNamespace(sizes=sizes, asked=asked)


def test_a_year_from_the_hub_has_no_subsets(hub):
    (task,) = evaluate(Model("m", letters), "STS13", data="hub", resamples=100).tasks
    assert hub.asked == ["mteb/sts13-sts"]
    assert {score.over for score in task.scores} == {"all"} and task.scores[0].n == 1500
    assert len(task.files["hf:mteb/sts13-sts:test"]) == 64


def test_the_dev_split_goes_by_another_name_there(hub):
    (job,) = make_jobs("STS-B", Settings(data="hub", split="dev"))
    assert "a 7" in job.texts


def test_counts_are_checked_and_what_differs_is_refused(hub):
    hub.sizes["test"] = 1200
    with pytest.raises(InputError, match="STS13: expected 1500 rows, got 1200"):
        make_jobs("STS13", Settings(data="hub"))
    with pytest.raises(ConfigError, match="SICK-R is not on the hub in the form of its protocol"):
        make_jobs("SICK-R", Settings(data="hub"))

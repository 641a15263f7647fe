import json
import re

import numpy as np
import pytest

from twinpass.encoder.any_model import Model
from twinpass.errors import InputError, ModelError
from twinpass.evaluation.compare import SAME, compare
from twinpass.evaluation.evaluate import evaluate
from twinpass.evaluation.side_by_side import evaluate_models
from twinpass.evaluation.tasks import TASKS
from twinpass.recipes.smoke_data import write_task

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")


@pytest.fixture(scope="module")
def noisy(letter_model):
    def encode(texts):
        rng = np.random.default_rng(0)
        return letter_model.encode(texts) + rng.normal(size=(len(texts), 18)).astype(np.float32) * 2

    return Model("noisy", encode)


def test_a_worse_model_is_told_from_a_better_and_not_from_itself(results, folder, noisy):
    worse = evaluate(noisy, "sts", data=folder, resamples=100)
    found = compare(results, worse, resamples=200)
    average = found.differences[-1]
    assert average.task == "Avg. sts" and average.verdict == "letters is better" and average.p < 0.05
    assert average.low < average.difference < average.high
    same = compare(results, results, resamples=200).differences
    assert {entry.verdict for entry in same} == {SAME} and same[0].p == 1


def test_result_files_compare_as_the_models_do(results, folder, letter_model, noisy, tmp_path):
    path = tmp_path / "r.json"
    results.save(path)
    options = {"tasks": "STS13,STS-B", "data": folder, "resamples": 100}
    worse = evaluate(noisy, **options)
    ways = [compare(first, worse, **options) for first in (results, path, str(path), letter_model)]
    expected = [entry.difference for entry in ways[0].differences]
    assert len(expected) == 2
    assert all([entry.difference for entry in way.differences] == expected for way in ways)
    assert [way.first for way in ways] == ["letters", f"letters ({path})", f"letters ({path})", "letters"]
    assert {entry.verdict for entry in compare(path, results, resamples=100).differences} == {SAME}


def test_a_result_file_with_a_changed_digit_is_refused(results, tmp_path):
    path = tmp_path / "r.json"
    results.save(path)
    text = path.read_text(encoding="utf-8")
    changed = re.sub(r'("scores": "[^"]*?\.)(\d)', lambda found: found[1] + str(9 - int(found[2])), text, count=1)
    assert changed != text and len(changed) == len(text)
    path.write_text(changed, encoding="utf-8")
    with pytest.raises(InputError, match=r'r\.json is not what was written: .* delete its field "checksum"'):
        compare(path, results, resamples=100)
    document = json.loads(changed)
    del document["checksum"]  # edited on purpose, or written by an earlier version
    path.write_text(json.dumps(document), encoding="utf-8")
    assert compare(path, results, resamples=100).differences[0].difference != 0


def test_data_is_read_once_for_two_models(folder, letter_model, noisy, monkeypatch):
    from twinpass.evaluation import evaluate as module

    read, asked = module.read_task, []
    monkeypatch.setattr(module, "read_task", lambda *args, **more: asked.append(args) or read(*args, **more))
    compare(letter_model, noisy, "STS13", data=folder, resamples=100)
    assert len(asked) == 1


@pytest.mark.parametrize("missing", ["./missing", "missing.txt", "missing.parquet"])
def test_every_model_is_looked_for_before_one_is_scored(folder, letter_model, missing):
    asked = []
    with pytest.raises(ModelError, match=r"there is no (model folder|file) .*missing"):
        evaluate_models([lambda texts: asked.append(texts) or letter_model(texts), missing], "STS-B", data=folder)
    assert asked == []


def test_a_comparison_prints_and_converts(results):
    found = compare(results, results, resamples=100, seed=3)
    assert "A = letters, B = letters (x 100, paired bootstrap)" in repr(found) and SAME in repr(found)
    document = found.to_dict()
    assert (document["first"], document["second"], document["seed"]) == ("letters", "letters", 3)
    assert document["versions"]["numpy"] and document["differences"] == found.records()
    assert found.to_csv().startswith("task,metric,first,second,difference,low,high,p,n,verdict\nSTS12,")


def test_models_scored_on_other_pairs_are_not_compared(results, folder, tmp_path, letter_model):
    other = evaluate(letter_model, "STS-B", data=folder, split="dev", resamples=100)
    with pytest.raises(InputError, match=r"STS-B: .* not scored on the same items \(1,379 and 1,500\)"):
        compare(results, other)
    for wrong in ('{"tasks": [{"task": "STS-B"}]}', '{"tasks": [{"task": "STS-B", "items": [1]}]}'):
        (tmp_path / "x.json").write_text(wrong)
        with pytest.raises(InputError, match="not a result file with items"):
            compare(tmp_path / "x.json", results)
    evaluate_models([letter_model, letter_model], "STS-B", data=folder, resamples=0, output=tmp_path / "both.json")
    with pytest.raises(InputError, match=r"both\.json holds the results of several models"):
        compare(tmp_path / "both.json", results)
    mine = tmp_path / "mine.csv"
    mine.write_text("sentence1,sentence2,score\na,b,1\nb,b,2\n")
    with pytest.raises(InputError, match="share no task"):
        compare(results, letter_model, f"scored:{mine}", resamples=100)


def test_transfer_is_compared_by_accuracy(tmp_path, letter_model):
    write_task(TASKS["MRPC"], tmp_path)
    found = evaluate(letter_model, "MRPC", data=tmp_path, protocol="fast", resamples=100)
    (same,) = compare(found, found, resamples=100).differences
    assert (same.metric, same.verdict) == ("accuracy", SAME)

"""Made-up STS tasks in SentEval's layout, and one evaluation on them."""

import warnings

import numpy as np
import pytest

from twinpass.encoder.any_model import Model
from twinpass.evaluation.evaluate import evaluate
from twinpass.evaluation.tasks import GROUPS, TASKS
from twinpass.recipes.made_up_tasks import write_task


def letters(texts):
    return np.array([[text.count(c) for c in "abcdeghilmnorstuwy"] for text in texts], dtype=np.float32)


@pytest.fixture(scope="session")
def letter_model():
    return Model("letters", letters)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("senteval")
    for name in GROUPS["sts"]:
        write_task(TASKS[name], root)
    return root


@pytest.fixture(scope="session")
def results(folder, letter_model):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is not SentEval's copy")
        return evaluate(letter_model, "sts", data=folder, resamples=100, seed=1)

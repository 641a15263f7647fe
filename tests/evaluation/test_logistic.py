"""The batched trainer against SentEval's procedure written out, one model at a time with torch's own parts."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.evaluation.naive import fit_one

from twinpass.evaluation.logistic import fit, make_problem, predict
from twinpass.evaluation.protocols import FAST, FULL
from twinpass.evaluation.transfer import cross_validation, hold_out, stratified_folds


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny products on many threads spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_data(n, dimensions=5, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = rng.normal(size=(n, dimensions)) + 0.7 * rng.normal(size=(classes, dimensions))[y]
    return torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("protocol", [FULL, FAST], ids=["full", "fast"])
@pytest.mark.parametrize(("n", "classes"), [(203, 2), (131, 4)])
def test_together_equals_one_at_a_time(protocol, n, classes):
    x, y = make_data(n, classes=classes)
    protocol = dataclasses.replace(protocol, folds=3, batch_size=32, max_epochs=24)
    folds = cross_validation(np.arange(n), y.numpy(), 3, seed=1111)
    folds.append(hold_out(np.arange(n), 0.05, seed=1111))
    l2 = torch.tensor([protocol.l2] * len(folds), dtype=torch.float64)
    fitted = fit(make_problem(x, y, classes), folds, l2, protocol)
    for i, fold in enumerate(folds):
        for j, value in enumerate(protocol.l2):
            layer, accuracy = fit_one(x, y, fold.train, fold.dev, value, classes, protocol, fold.drawn)
            expected = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()
            torch.testing.assert_close(fitted.weights[i, j], expected, rtol=0, atol=1e-9)
            assert fitted.accuracy[i, j].item() == pytest.approx(accuracy)


def test_predictions_are_those_of_the_linear_layer():
    x, y = make_data(50, classes=3)
    weights = torch.randn(3, 6, dtype=torch.float64)
    rows = np.array([4, 2, 40])
    expected = (x[rows] @ weights[:, :5].T + weights[:, 5]).argmax(1)
    assert (predict(make_problem(x, y, 3), rows, weights) == expected).all()


def test_training_leaves_the_global_seed_alone():
    x, y = make_data(60)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit(make_problem(x, y, 2), [hold_out(np.arange(60), 0.1, seed=1)], torch.full((1, 1), 1e-5), FAST)
    assert (torch.rand(3) == expected).all()


@pytest.mark.parametrize(("n", "classes", "folds"), [(100, 2, 10), (237, 6, 10), (61, 3, 5)])
def test_folds_equal_scikit_learns(n, classes, folds):
    selection = pytest.importorskip("sklearn.model_selection")
    y = np.random.default_rng(n).integers(0, classes, n)
    ours = stratified_folds(y, folds, seed=1111)
    theirs = selection.StratifiedKFold(n_splits=folds, shuffle=True, random_state=1111)
    for k, (_, test) in enumerate(theirs.split(y, y)):
        assert (np.flatnonzero(ours == k) == test).all()


def test_held_out_rows_are_apart():
    rows = np.arange(100, 203)
    fold = hold_out(rows, 0.05, seed=1111)
    assert len(fold.dev) == 5 and sorted([*fold.train, *fold.dev]) == rows.tolist()


def test_chunks_and_threads_do_not_change_the_result(monkeypatch):
    x, y = make_data(90)
    folds = cross_validation(np.arange(90), y.numpy(), 5, seed=1111)
    l2 = torch.tensor([FAST.l2] * 5)
    whole = fit(make_problem(x, y, 2), folds, l2, FAST)
    monkeypatch.setattr("twinpass.evaluation.logistic._BATCH_NUMBERS", 1)
    torch.set_num_threads(2)
    for _ in range(5):  # what threads do to each other they do only sometimes
        torch.testing.assert_close(fit(make_problem(x, y, 2), folds, l2, FAST).weights, whole.weights)
    assert torch.get_num_threads() == 2

import copy
import functools

import numpy as np
import pytest
import torch
from scipy import stats

from twinpass.evaluation.protocols import CELLS, DEFAULT_CELL, PAPERS, Cell, papers_using
from twinpass.evaluation.reading import read_task
from twinpass.evaluation.sts import bin_shares, regress, score_sts
from twinpass.evaluation.tasks import TASKS
from twinpass.recipes.made_up_tasks import write_task

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")


def bag_of_letters(texts):
    return np.array([[text.count(c) for c in "abcdeghilmnorstuwy"] for text in texts], dtype=np.float32)


def test_a_years_subsets_are_scored_apart(tmp_path):
    data = read_task(TASKS["STS13"], write_task(TASKS["STS13"], tmp_path))
    items = score_sts(bag_of_letters, data, regressor=True)
    assert list(items) == ["cosine"]  # no training pairs, so no regressor
    assert items["cosine"].sizes == [189, 750, 561]
    rows = data.parts["OnWN"]
    scores = []
    for a, b in rows.texts:
        u, v = bag_of_letters([a, b]).astype(float)
        scores.append(u @ v / np.sqrt((u @ u) * (v @ v)))
    expected = stats.spearmanr(scores, rows.targets).statistic
    assert items["cosine"].values()["OnWN spearman"] == pytest.approx(expected, abs=1e-9)


def test_the_split_is_scored_and_no_other(tmp_path):
    data = read_task(TASKS["SICK-R"], write_task(TASKS["SICK-R"], tmp_path))
    assert score_sts(bag_of_letters, data)["cosine"].sizes == [4927]
    assert score_sts(bag_of_letters, data, split="dev")["cosine"].sizes == [500]


def test_the_regressor_learns_and_equals_the_procedure_written_out():
    rng = np.random.default_rng(0)
    gold = np.round(1 + 4 * rng.random(300), 1)
    x = (rng.normal(size=(300, 6)) + gold[:, None] * rng.normal(size=6)).astype(np.float32)
    train, dev, test = (x[:200], gold[:200]), (x[200:250], gold[200:250]), x[250:]
    ours = regress(train, dev, test, max_epochs=150)

    torch.manual_seed(1111)
    order = np.random.RandomState(1111)
    layer = torch.nn.Linear(6, 5)
    optimizer = torch.optim.Adam(layer.parameters())
    best, reached, epochs, misses, stop = None, -1, 0, 0, False
    targets = torch.from_numpy(naive_shares(train[1]))

    def expected(model, rows):
        return torch.softmax(model(torch.from_numpy(rows)), -1).detach().numpy() @ np.arange(1, 6)

    while not stop and epochs <= 150:
        for _ in range(50):
            shuffled = order.permutation(200)
            for i in range(0, 200, 64):
                rows = shuffled[i : i + 64]
                optimizer.zero_grad()
                predicted = torch.softmax(layer(torch.from_numpy(train[0][rows])), -1)
                torch.nn.MSELoss()(predicted, targets[rows]).backward()
                optimizer.step()
        epochs += 50
        score = stats.pearsonr(expected(layer, dev[0]), dev[1]).statistic
        if score > reached:
            reached, best = score, copy.deepcopy(layer)
        else:
            stop, misses = misses >= 3, misses + 1
    np.testing.assert_allclose(ours, expected(best, test), atol=1e-5)
    assert stats.spearmanr(ours, gold[250:]).statistic > 0.7


def naive_shares(scores):
    shares = np.zeros((len(scores), 5), dtype=np.float32)
    for j, y in enumerate(scores):
        for i in range(1, 6):
            if i == int(y) + 1:
                shares[j, i - 1] = y - int(y)
            if i == int(y):
                shares[j, i - 1] = int(y) - y + 1
    return shares


def test_scores_are_spread_over_their_two_bins():
    scores = np.array([1.0, 2.25, 5.0, 0.4, 4.999])
    np.testing.assert_allclose(bin_shares(scores), naive_shares(scores))
    np.testing.assert_allclose(bin_shares(scores)[:3] @ np.arange(1, 6), scores[:3])


def test_the_regressor_is_scored_on_test_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr("twinpass.evaluation.sts.regress", functools.partial(regress, max_epochs=0))
    data = read_task(TASKS["SICK-R"], write_task(TASKS["SICK-R"], tmp_path))
    items = score_sts(bag_of_letters, data, regressor=True)
    assert items["regressor"].sizes == [4927]
    assert np.isfinite(items["regressor"].values()["all pearson"])


def test_every_cell_once_and_the_default_first():
    assert len(set(CELLS)) == 12 and CELLS[0] == DEFAULT_CELL == Cell("all", "spearman", False)
    assert DEFAULT_CELL.name == "all, spearman, no regressor"


def test_papers_and_their_cells():
    assert "Gao et al., 2021 (SimCSE)" in papers_using(DEFAULT_CELL)
    assert papers_using(Cell("wmean", "spearman", False)) == (
        "Li et al., 2020 (BERT-flow)",
        "Su et al., 2021 (whitening)",
    )
    assert papers_using(Cell("wmean", "pearson", True)) == ()
    assert len(PAPERS) == 10

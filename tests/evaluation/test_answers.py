import numpy as np
import pytest
from scipy import stats

from twinpass.errors import InputError
from twinpass.evaluation.answers import Labelled, Pairs, Predictions, Queries, answers_from_json
from twinpass.evaluation.statistics import draw_counts, interval, two_sided_p


def make_pairs(seed=0, sizes=(40, 25, 60)):
    rng = np.random.default_rng(seed)
    # Gold in few steps, as people give it: ties in plenty.
    gold = [np.round(rng.random(n) * 5) / 2 for n in sizes]
    return Pairs({f"s{i}": (rng.normal(size=len(g)) + g, g) for i, g in enumerate(gold)})


def test_values_equal_scipy_on_naive_loops():
    pairs = make_pairs()
    values = pairs.values()
    for metric, correlate in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        each = [correlate(scores, gold).statistic for scores, gold in pairs.subsets.values()]
        joined = [np.concatenate(column) for column in zip(*pairs.subsets.values(), strict=True)]
        weighted = sum(n * e for n, e in zip(pairs.sizes, each, strict=True)) / sum(pairs.sizes)
        assert values[f"all {metric}"] == pytest.approx(correlate(*joined).statistic, abs=1e-12)
        assert values[f"mean {metric}"] == pytest.approx(sum(each) / 3, abs=1e-12)
        assert values[f"wmean {metric}"] == pytest.approx(weighted, abs=1e-12)
        assert values[f"s1 {metric}"] == pytest.approx(each[1], abs=1e-12)


def test_resampled_correlations_equal_scipy_on_the_repeated_pairs():
    pairs = make_pairs()
    samples = pairs.samples(resamples=20, seed=3, name="T")
    counts = np.hstack(list(draw_counts(pairs.sizes, resamples=20, seed=3, name="T"))).astype(int)
    edges = np.cumsum(pairs.sizes)[:-1]
    for b in range(20):
        parts = [
            (np.repeat(scores, c), np.repeat(gold, c))
            for c, (scores, gold) in zip(np.split(counts[:, b], edges), pairs.subsets.values(), strict=True)
        ]
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        for metric, correlate in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
            assert samples[f"all {metric}"][b] == pytest.approx(correlate(*joined).statistic, abs=1e-9)
            assert samples[f"s2 {metric}"][b] == pytest.approx(correlate(*parts[2]).statistic, abs=1e-9)


def test_counts_draw_each_stratum_from_itself():
    counts = np.hstack(list(draw_counts([7, 3], resamples=50, seed=0, name="T")))
    assert counts.shape == (10, 50)
    assert (counts[:7].sum(axis=0) == 7).all() and (counts[7:].sum(axis=0) == 3).all()
    again = np.hstack(list(draw_counts([7, 3], resamples=50, seed=0, name="T")))
    other = np.hstack(list(draw_counts([7, 3], resamples=50, seed=0, name="U")))
    assert (counts == again).all() and (counts != other).any()


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered, truth = 0, 0.7
    for trial in range(200):
        right = (rng.random(300) < truth).astype(np.int64)
        items = Predictions(np.ones(300, dtype=np.int64), right)
        low, high = interval(items.samples(resamples=300, seed=trial, name="T")["accuracy"])
        covered += low <= truth <= high
    assert 175 <= covered <= 199


def test_constant_scores_give_nan_values_and_intervals():
    pairs = Pairs({"only": (np.ones(20), np.arange(20.0))})
    assert np.isnan(pairs.values()["all spearman"])
    assert np.isnan(interval(pairs.samples(resamples=10, seed=0, name="T")["all pearson"])).all()


def test_accuracy_and_f1_equal_the_definitions():
    gold, predicted = np.array([1, 1, 0, 0, 1]), np.array([1, 0, 0, 1, 1])
    values = Predictions(gold, predicted).values()
    assert values == pytest.approx({"accuracy": 3 / 5, "f1": 2 * 2 / (3 + 3)})
    assert "f1" not in Predictions(np.array([0, 2]), np.array([0, 1])).values()


def test_p_is_small_only_where_the_difference_is_clear():
    rng = np.random.default_rng(0)
    assert two_sided_p(rng.normal(5, 1, 1000)) < 0.01
    assert two_sided_p(rng.normal(0, 1, 1000)) > 0.5
    assert two_sided_p(np.zeros(1000)) == 1


@pytest.mark.parametrize(
    "items",
    [
        make_pairs(),
        Predictions(np.array([0, 1, 5]), np.array([0, 5, 5])),
        Queries(np.random.rand(6, 5)),
        Labelled(np.array([0.1, 0.5, 0.5, 0.9]), np.array([0, 1, 0, 1])),
    ],
)
def test_items_survive_json(items):
    again = answers_from_json(items.to_json())
    assert type(again) is type(items)
    assert again.values() == items.values()


@pytest.mark.parametrize("document", [{}, {"pairs": {"a": {}}}, {"gold": "01", "predicted": "0x"}])
def test_items_that_cannot_be_read_say_so(document):
    with pytest.raises(InputError, match="the items of a result"):
        answers_from_json(document)


@pytest.mark.parametrize("steps", [4, 1000])  # 4: many tied scores
def test_average_precision_and_best_accuracy_equal_the_definitions(steps):
    rng = np.random.default_rng(steps)
    gold = rng.integers(0, 2, 60)
    scores = np.round((rng.random(60) + 0.4 * gold) * steps) / steps
    items = Labelled(scores, gold)
    cuts = sorted(set(scores), reverse=True)
    precision = [gold[scores >= cut].mean() for cut in cuts]
    recall = [gold[scores >= cut].sum() / gold.sum() for cut in cuts]
    expected = sum(p * (r - before) for p, r, before in zip(precision, recall, [0, *recall], strict=False))
    best = max(np.mean((scores >= cut) == gold) for cut in [np.inf, *cuts])
    assert items.values() == pytest.approx({"ap": expected, "accuracy": best})
    assert np.mean((scores >= items.threshold()) == gold) == pytest.approx(best)


def test_labelled_pairs_are_resampled_as_if_repeated():
    rng = np.random.default_rng(0)
    items = Labelled(rng.random(50).round(1), rng.integers(0, 2, 50))
    samples = items.samples(resamples=10, seed=1, name="T")
    counts = np.hstack(list(draw_counts([50], resamples=10, seed=1, name="T"))).astype(int)
    for b in range(10):
        again = Labelled(np.repeat(items.scores, counts[:, b]), np.repeat(items.gold, counts[:, b])).values()
        assert {name: sample[b] for name, sample in samples.items()} == pytest.approx(again)

import numpy as np
import pytest
from scipy import stats

from twinpass.evaluation.statistics import Sorted, cosine_scores, draw_counts, pearson, resampled_spearman, spearman


def naive_cosines(u, v):
    scores = []
    for a, b in zip(u, v, strict=True):
        norm = np.sqrt(sum(x * x for x in a)) * np.sqrt(sum(x * x for x in b))
        scores.append(sum(x * y for x, y in zip(a, b, strict=True)) / norm if norm else 0.0)
    return np.array(scores)


@pytest.mark.parametrize("levels", [3, 10_000])  # 3: nearly every score is tied
def test_correlations_equal_scipys(levels):
    rng = np.random.default_rng(levels)
    a, b = rng.integers(0, levels, 500) / 7, rng.integers(0, levels, 500) / 7
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    assert pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-12)


def test_cosines_equal_naive_loops():
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, 40, 6)).astype(np.float32)
    np.testing.assert_allclose(cosine_scores(u, v), naive_cosines(u.astype(float), v.astype(float)), atol=1e-12)


def test_a_zero_vector_scores_zero():
    u = np.array([[0.0, 0.0], [1.0, 2.0]], dtype=np.float32)
    assert cosine_scores(u, np.ones((2, 2), dtype=np.float32))[0] == 0


def test_constant_scores_have_no_correlation():
    assert np.isnan(spearman(np.ones(5), np.arange(5)))
    assert np.isnan(pearson(np.arange(5), np.zeros(5)))


def test_correlation_refuses_unequal_lengths_and_nan():
    with pytest.raises(ValueError, match="equally long"):
        spearman([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="finite numbers only"):
        spearman([1, np.nan], [1, 2])


@pytest.mark.parametrize("levels", [(None, 4), (4, None), (5, 3), (None, None)])
def test_resampled_ranks_equal_scipys_with_and_without_ties(levels):
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=30) if level is None else rng.integers(0, level, 30).astype(float) for level in levels)
    (counts,) = draw_counts([30], resamples=20, seed=0, name="t")
    found = resampled_spearman(counts, Sorted.of(x), Sorted.of(y))
    for column, value in zip(counts.astype(int).T, found, strict=True):
        assert value == pytest.approx(stats.spearmanr(np.repeat(x, column), np.repeat(y, column)).statistic)

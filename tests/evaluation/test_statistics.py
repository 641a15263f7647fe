import numpy as np
import pytest
from scipy import stats

from twinpass.errors import ModelError
from twinpass.evaluation.statistics import cosine_scores, pearson, spearman


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


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_returns_nan_is_refused(bad):
    vectors = np.ones((4, 2), dtype=np.float32)
    vectors[2, 1] = bad
    with pytest.raises(ModelError, match=r"NaN or infinity for 1 of 4 texts \(the first is text 2\)"):
        cosine_scores(vectors, np.ones_like(vectors))


def test_correlation_refuses_unequal_lengths_and_nan():
    with pytest.raises(ValueError, match="equally long"):
        spearman([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="finite numbers only"):
        spearman([1, np.nan], [1, 2])

"""The measures against their definitions, written as plain loops."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import trapezoid

from twinpass.analysis.measure import (
    GRID,
    choose_points,
    effective_rank,
    make_map,
    mean_cosine,
    measure,
    measure_densities,
    measure_geometry,
    measure_spectrum,
)
from twinpass.analysis.neighbours import compare_neighbours
from twinpass.analysis.report import Analysis
from twinpass.analysis.sampling import Graded, Sample, Scale, take_sample
from twinpass.encoder.layers import fit_whitening, whiten
from twinpass.errors import ConfigError, InputError
from twinpass.text.corpus import open_corpus

DRAW = np.random.default_rng(7)
VECTORS = (DRAW.normal(size=(40, 6)) + 0.8).astype(np.float32)
PAIRS = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])
GOLD = np.array([0.0, 2.0, 4.5, 5.0])


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def test_geometry_is_what_the_equations_say() -> None:
    v = VECTORS.astype(np.float64)
    graded = Graded(PAIRS, GOLD, Scale(0, 5))
    found = measure_geometry(VECTORS, positives=PAIRS[2:], graded=graded, temperature=0.1)
    assert found.alignment == pytest.approx(np.mean([2 - 2 * cosine(v[a], v[b]) for a, b in PAIRS[2:]]))
    kernels = [math.exp(-2 * (2 - 2 * cosine(a, b))) for a, b in combinations(v, 2)]
    assert found.uniformity == pytest.approx(math.log(np.mean(kernels)), abs=1e-5)
    seconds = [math.log(np.mean([math.exp(cosine(a, b) / 0.1) for b in v])) for a in v]
    assert found.negatives_term == pytest.approx(np.mean(seconds), abs=1e-4)
    assert found.jensen_bound == pytest.approx(np.mean([cosine(a, b) / 0.1 for a in v for b in v]))
    assert found.anisotropy == pytest.approx(np.mean([cosine(a, b) for a, b in combinations(v, 2)]))
    assert found.objective == pytest.approx(found.positives_term + found.negatives_term)
    assert found.negatives_term >= found.jensen_bound
    ranks = np.argsort(np.argsort([cosine(v[a], v[b]) for a, b in PAIRS]))
    assert found.spearman == pytest.approx(100 * np.corrcoef(ranks, range(4))[0, 1])


def test_without_labels_what_needs_them_is_none() -> None:
    found = measure_geometry(VECTORS)
    assert found.alignment is found.positives_term is found.spearman is found.objective is None
    assert found.uniformity < 0


def test_mean_cosine_of_parallel_and_opposite_vectors() -> None:
    assert mean_cosine(np.ones((5, 3), np.float32)) == pytest.approx(1.0)
    assert mean_cosine(np.array([[1, 0], [-2, 0]], np.float32)) == pytest.approx(-1.0)


@pytest.mark.parametrize("shape", [(40, 6), (4, 9)])
def test_spectrum_is_that_of_the_unit_vectors(shape: tuple[int, int]) -> None:
    vectors = DRAW.normal(size=shape).astype(np.float32)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values = np.linalg.svd(units, compute_uv=False)
    found = measure_spectrum(vectors)
    np.testing.assert_allclose(found.normalised, values / values[0], atol=1e-6)
    assert found.largest_eigenvalue == pytest.approx(np.linalg.eigvalsh(units @ units.T)[-1], rel=1e-5)
    assert found.largest_share == pytest.approx(found.largest_eigenvalue / len(vectors), rel=1e-5)


def test_effective_rank_counts_directions() -> None:
    assert effective_rank(np.array([2.0, 2.0, 2.0, 0.0])) == pytest.approx(3)
    assert effective_rank(np.array([5.0, 0.0])) == pytest.approx(1)
    assert measure_spectrum(np.ones((9, 4), np.float32)).effective_rank == pytest.approx(1, abs=1e-3)


def test_densities_in_five_groups() -> None:
    gold = np.repeat([0.0, 1.0, 1.1, 2.5, 4.0, 4.2, 5.0], 30)
    cosines = np.clip(gold / 6 + DRAW.normal(scale=0.05, size=len(gold)), -1, 1)
    groups = measure_densities(cosines, gold, Scale(0, 5))
    assert [group.pairs for group in groups] == [60, 30, 30, 30, 60]  # (low, high]: 1 and 4 belong below
    assert [group.name for group in groups] == ["0–1", "1–2", "2–3", "3–4", "4–5"]
    for group in groups:
        assert trapezoid(group.density, GRID) == pytest.approx(1, abs=0.01)
    medians = [group.quartiles[1] for group in groups]
    assert medians == sorted(medians)
    few = measure_densities(np.array([0.1, 0.9]), np.array([0.0, 5.0]), Scale(0, 5))
    assert few[0].density is None and few[2].quartiles is None and few[4].pairs == 1


def test_neighbours_side_by_side() -> None:
    texts = [f"text {place}" for place in range(40)]
    other = np.roll(VECTORS, 1, axis=1) * DRAW.normal(size=6).astype(np.float32)
    found = compare_neighbours(texts, {"a": VECTORS, "b": other, "c": VECTORS}, k=3, show=4)
    order = [
        sorted((j for j in range(40) if j != i), key=lambda j: -cosine(VECTORS[i], VECTORS[j]))[:3] for i in range(40)
    ]
    for each in found.comparisons:
        wanted = [texts[row] for row in order[texts.index(each.query)]]
        assert [near.text for near in each.by_model["a"]] == wanted
        assert all(near.shared for near in each.by_model["a"])  # "c" has the same
        assert {near.text for near in each.by_model["b"]} != set(wanted)
    assert found.agreement["a", "c"] == 1.0 > found.agreement["a", "b"]
    assert len(found.comparisons) == 4 and found.queries == 40
    asked = compare_neighbours(texts, {"a": VECTORS, "c": VECTORS}, queries=[5, 2], k=2)
    assert [each.query for each in asked.comparisons] == ["text 5", "text 2"]


def test_the_map_is_the_principal_plane_and_always_the_same() -> None:
    vectors = (DRAW.normal(size=(200, 5)) * [5, 3, 0.3, 0.2, 0.1]).astype(np.float32)
    rows = np.arange(200)
    found = make_map(vectors, rows)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values = np.linalg.svd(units - units.mean(axis=0), compute_uv=False) ** 2
    assert found.explained == pytest.approx(values[:2] / values.sum(), rel=1e-4)
    np.testing.assert_allclose(found.points.var(axis=0), values[:2] / 200, rtol=1e-3)
    turned = make_map(vectors[::-1].copy(), rows[::-1])
    np.testing.assert_allclose(turned.points, found.points, atol=1e-6)


def test_map_points_keep_pairs_together() -> None:
    rows = choose_points(5_000, np.array([[10, 4_000], [7, 8]]), most=100)
    assert {10, 4_000, 7, 8} <= set(rows.tolist())
    assert len(rows) == len(set(rows.tolist())) == 100


def test_whitening_gives_the_identity_as_covariance() -> None:
    correlated = (DRAW.normal(size=(500, 6)) @ DRAW.normal(size=(6, 6)) + 3).astype(np.float32)
    white = whiten(correlated, fit_whitening(correlated))
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(6), atol=1e-4)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-4)
    assert whiten(correlated, fit_whitening(correlated, keep=2)).shape == (500, 2)
    flat = np.concatenate([correlated, np.ones((500, 3), np.float32)], axis=1)
    assert whiten(flat, fit_whitening(flat)).shape == (500, 6)
    with pytest.raises(ConfigError, match="between 1 and 6"):
        fit_whitening(correlated, keep=7)


def corpus(folder: Path, rows: list[str]) -> Path:
    path = folder / "rows.tsv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_sample_can_be_drawn_again_and_says_its_size(tmp_path: Path) -> None:
    path = corpus(tmp_path, [f"left {i}\tright {i}\t{i % 6}.0" for i in range(300)])
    whole = take_sample(open_corpus(path))
    assert len(whole.texts) == 600 and whole.scale == Scale(0, 5) and "a sample of" not in whole.protocol
    assert len(whole.positives) == 50  # those scored 5, above 4
    part, again = (take_sample(open_corpus(path), most=100, seed=1) for _ in range(2))
    assert part.texts == again.texts and len(part.texts) == 100 and part.scale == Scale(0, 5)
    assert "a sample of 50 of 300 rows" in part.protocol
    assert take_sample(open_corpus(path), most=100, seed=2).texts != part.texts
    for (a, b), gold in zip(part.pairs, part.gold, strict=True):
        number = int(part.texts[a].split()[1])
        assert part.texts[b] == f"right {number}" and gold == number % 6


def test_what_a_corpus_cannot_give_is_said(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"sentence number {i}\n" for i in range(30)))
    sample = take_sample(open_corpus(path))
    assert sample.positives is None and sample.graded is None
    assert any("alignment" in note for note in sample.not_measured)
    assert any("densities" in note for note in sample.not_measured)
    pairs = take_sample(open_corpus(corpus(tmp_path, [f"a {i}\tb {i}" for i in range(9)])))
    assert len(pairs.positives) == 9 and len(pairs.not_measured) == 1
    (tmp_path / "one.txt").write_text("same\nsame\n")
    with pytest.raises(InputError, match="fewer than two distinct"):
        take_sample(open_corpus(tmp_path / "one.txt"))


def test_measures_of_a_model_as_plain_data() -> None:
    texts = [str(place) for place in range(40)]
    sample = Sample(source="x", texts=texts, rows=4, of_rows=4, pairs=PAIRS, gold=GOLD, scale=Scale(0, 5))
    found = measure("model", VECTORS, sample)
    document = Analysis(sample=sample, models=[found]).to_dict()
    assert document["models"][0]["geometry"]["alignment"] == found.geometry.alignment
    assert len(document["models"][0]["map"]["points"]) == 40

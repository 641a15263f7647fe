"""Keyword and hybrid search against the formulas as loops, through additions, removals, joins and filters."""

from __future__ import annotations

import math
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinpass.errors import ConfigError
from twinpass.search import keywords
from twinpass.search.index import Block, Index
from twinpass.search.keywords import MAX_WORDS, query_words, words_of
from twinpass.search.searching import fuse

MODEL = {"name": "toy", "fingerprint": "f" * 64}
WORDS = ["the", "cat", "dog", "mat", "sat", "Café", "x-ray", "42", "漢字", "", "?!"]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


def vectors_of(texts: list[str]) -> np.ndarray:
    rng = np.random.default_rng(0)
    table = {letter: rng.normal(size=6) for letter in sorted({*"".join(texts), " "})}
    return np.array([sum((table[letter] for letter in text), rng.normal(size=6) * 0.01) for text in texts], np.float32)


def block(texts: list[str]) -> Block:
    return Block(texts, vectors_of(texts), [{"n": len(text)} for text in texts])


def bm25(texts: dict[int, str], query: str, *, k1: float = 1.2, b: float = 0.75) -> dict[int, float]:
    """Transcribe the formula: the sum over the query's words of idf times a saturated count."""
    words = {number: words_of(text) for number, text in texts.items()}
    average = sum(map(len, words.values())) / len(words)
    scores = {}
    for number, own in words.items():
        score = 0.0
        for word in words_of(query):
            having = sum(word in others for others in words.values())
            weight = math.log(1 + (len(words) - having + 0.5) / (having + 0.5))
            count = own.count(word)
            if count:
                score += weight * count / (count + k1 * (1 - b + b * len(own) / average))
        if score:
            scores[number] = score
    return scores


def ranked(scores: dict[int, float]) -> list[int]:
    return sorted(scores, key=lambda number: (-np.float32(scores[number]), number))


def check(index: Index, texts: dict[int, str], query: str, k: int = 50, **options) -> None:
    expected = bm25(texts, query) if texts else {}
    keep = options.pop("keep", lambda number: True)
    expected = {number: score for number, score in expected.items() if keep(number)}
    hits = index.search(query, k, mode="keyword", group=False, **options)
    assert len(hits) == min(k, len(expected))
    np.testing.assert_allclose([hit.score for hit in hits], sorted(expected.values(), reverse=True)[:k], rtol=1e-5)
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.id], rel=1e-5) and texts[hit.id] == hit.text


@settings(max_examples=30)
@given(st.lists(TEXT, min_size=1, max_size=8), st.lists(TEXT, max_size=6), st.sets(st.integers(0, 13)), TEXT)
def test_scores_are_those_of_the_texts_that_are_there(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], more: list[str], gone: set[int], query: str
) -> None:
    query = query if query.strip() else "the"
    texts = dict(enumerate(first))
    folder = tmp_path_factory.mktemp("words") / "index"
    index = Index.from_blocks(folder, [block([text]) for text in first], model=MODEL)
    check(index, texts, query)
    if more:
        index.add_blocks([block(more)])
        texts |= dict(enumerate(more, start=len(first)))
        check(index, texts, query)
    if gone := sorted(gone & texts.keys()):
        index.remove(ids=gone)
        texts = {number: text for number, text in texts.items() if number not in gone}
        check(index, texts, query)
    if texts:
        check(index, texts, query, k=2)
        check(index, texts, query, where="n > 5", keep=lambda number: len(texts[number]) > 5)
    index.compact()
    check(index, texts, query)
    assert Index.verify(folder).whole


def test_scores_equal_those_of_bm25s(tmp_path: Path) -> None:
    bm25s = pytest.importorskip("bm25s", reason="needs bm25s (extra [test])")
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice([f"w{number}" for number in range(40)], size=rng.integers(1, 12))) for _ in range(60)]
    model = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    model.index([words_of(text) for text in texts], show_progress=False)
    index = Index.from_blocks(tmp_path / "index", [block(texts[:30])], model=MODEL)
    index.add_blocks([block(texts[30:])])
    for query in ("w1 w2", "w3", "w3 w3 w9 w39 nothing"):
        expected = model.get_scores([word for word in words_of(query) if word != "nothing"])
        found = {hit.id: hit.score for hit in index.search(query, 60, mode="keyword", group=False)}
        assert {*found} == {*np.flatnonzero(expected).tolist()}
        np.testing.assert_allclose([*found.values()], expected[[*found]], rtol=1e-5)


def test_many_chunks_are_sorted_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keywords, "CHUNK", 7)
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice([*"abcdefgh"], size=5)) for _ in range(50)]
    index = Index.from_blocks(tmp_path / "index", [block(texts[at : at + 9]) for at in range(0, 50, 9)], model=MODEL)
    for query in ("a", "b c", "a h h"):
        check(index, dict(enumerate(texts)), query)
    files = {path.name for path in (tmp_path / "index" / "segment-000001").iterdir()}
    assert files == {
        *("vectors.f32", "ids.i64", "digests.u64", "rows.arrow"),
        *("terms.arrow", "postings.u32", "lengths.u32"),
    }


def test_words() -> None:
    assert words_of("The CAT's x-ray, ﬁne Straße 漢字 no_1!") == [
        *("the", "cat", "s", "x", "ray", "fine", "strasse", "漢", "字", "no_1")
    ]
    assert words_of("?! …") == []


def naive_fusion(rankings: list[list[int]], k: int) -> list[tuple[int, float]]:
    rows = {row for ranking in rankings for row in ranking}
    scores = {row: sum(1 / (60 + r.index(row) + 1) for r in rankings if row in r) for row in rows}
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@given(st.lists(st.lists(st.integers(0, 30), unique=True), min_size=1, max_size=3), st.integers(1, 10))
def test_fusion_equals_its_formula(rankings: list[list[int]], k: int) -> None:
    scores, rows = fuse(rankings, k)
    expected = naive_fusion(rankings, k)
    assert rows.tolist() == [row for row, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-6)


def test_hybrid_fuses_the_two_rankings(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    texts = [" ".join(rng.choice(WORDS[:8], size=4)) + f" t{number}" for number in range(30)]
    index = Index.from_blocks(tmp_path / "index", [block(texts)], model=MODEL)
    query, vector = "the cat t7", vectors_of(texts)[7]
    for where in (None, "n > 20"):
        near = [hit.id for hit in index.search_vectors(vector, 30, where=where)[0]]
        same = [hit.id for hit in index.search(query, 30, mode="keyword", where=where)]
        (found,) = index.search_vectors(vector, 5, texts=[query], mode="hybrid", where=where)
        expected = naive_fusion([near, same], 5)
        assert [hit.id for hit in found] == [row for row, _ in expected]
        np.testing.assert_allclose([hit.score for hit in found], [score for _, score in expected], rtol=1e-6)
    best = found[0].score
    assert len(index.search_vectors(vector, 5, texts=[query], mode="hybrid", min_score=best)[0]) >= 1


def test_a_keyword_search_needs_neither_the_model_nor_torch(tmp_path: Path) -> None:
    Index.from_blocks(tmp_path / "index", [block(["a cat", "a dog"])], model=MODEL)  # of a model that does not exist
    code = "; ".join(
        [
            "import sys, twinpass",
            f"found = twinpass.Index.open({str(tmp_path / 'index')!r}).search(['dog', 'cat'], mode='keyword')",
            "assert [hits[0].text for hits in found] == ['a dog', 'a cat']",
            "assert 'torch' not in sys.modules and 'transformers' not in sys.modules and 'faiss' not in sys.modules",
        ]
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr


def test_what_cannot_be_searched_by_words(tmp_path: Path) -> None:
    index = Index.from_blocks(tmp_path / "index", [block(["a cat", "a dog"])], model=MODEL)
    with pytest.raises(ConfigError, match=r"no mode of search named 'hybird'. Did you mean 'hybrid'"):
        index.search("a", mode="hybird")
    with pytest.raises(ConfigError, match="a vector has no words"):
        index.search(vectors_of(["a"]), mode="hybrid")
    assert len(index.search("?!", mode="keyword")) == 0 and len(index.search("zebra", mode="keyword")) == 0
    index.remove(ids=[0, 1])
    assert len(index.search("cat", mode="keyword")) == 0


def test_an_index_of_the_second_format_gets_words_when_it_is_compacted(tmp_path: Path) -> None:
    import json

    from twinpass.files import sealed

    folder = tmp_path / "index"
    Index.from_blocks(folder, [block(["a cat", "a dog"])], model=MODEL)
    document = json.loads((folder / "index.json").read_text())
    del document["checksum"], document["id_column"]
    for name in ("terms.arrow", "postings.u32", "lengths.u32"):
        (folder / "segment-000001" / name).unlink()
        del document["parts"][0]["files"][name]
    (folder / "index.json").write_text(json.dumps(sealed(document | {"format": 2})))
    index = Index.open(folder)
    assert index.search(vectors_of(["a dog"]), 1)[0] and Index.verify(folder).whole
    with pytest.raises(ConfigError, match=r"cannot be searched by keywords.*twinpass index compact"):
        index.search("dog", mode="keyword")
    index.compact()
    assert [hit.id for hit in index.search("dog", mode="keyword")] == [1]


def test_equal_texts_are_one_hit(tmp_path: Path) -> None:
    texts = ["a cat", "a dog", "a cat", "a cat", "a cow", "a dog"]
    index = Index.from_blocks(tmp_path / "index", [block(texts)], model=MODEL)
    query = vectors_of(texts)[0]
    for options in ({"mode": "dense"}, {"mode": "hybrid"}, {"mode": "keyword"}):
        (hits,) = index.search_vectors(query, 3, texts=["a cat"], **options)
        assert hits[0].text == "a cat" and (hits[0].id, hits[0].copies) == (0, 3)
        assert sorted((hit.text, hit.id, hit.copies) for hit in hits)[1:] == [("a cow", 4, 1), ("a dog", 1, 2)]
        (hits,) = index.search_vectors(query, 6, texts=["a cat"], group=False, **options)
        assert sorted(hit.id for hit in hits) == [0, 1, 2, 3, 4, 5] and {hit.copies for hit in hits} == {1}
    index.add_blocks([Block(["a cat"], query[None], [{"n": 99}])])
    index.remove(ids=[0])
    (hits,) = index.search(query, 1)
    assert (hits[0].id, hits[0].copies) == (2, 3)
    (hits,) = index.search(query, 1, where="n = 99")
    assert (hits[0].id, hits[0].copies) == (6, 1)
    assert "copies" in repr(index.search(query)) and "copies" not in repr(index.search(query, group=False))


def test_your_own_vectors_are_not_grouped_by_themselves(tmp_path: Path) -> None:
    index = Index.build(tmp_path / "index", ["label", "label"], vectors=np.eye(2, 3, dtype=np.float32))
    assert len(index.search(np.eye(1, 3), 2)[0]) == 2 and len(index.search(np.eye(1, 3), 2, group=True)[0]) == 1


def test_words_take_their_space_before_they_are_mapped(tmp_path: Path, monkeypatch) -> None:
    """A full disk is then an error, as for other files; in a sparse memory map it would kill the process."""
    mapped: list[tuple[str, int]] = []
    memmap = np.memmap

    def noting(path: Path, dtype: Any, mode: str, **options: Any) -> Any:
        if mode != "r":
            mapped.append((mode, path.stat().st_size))
        return memmap(path, dtype, mode, **options)

    monkeypatch.setattr(np, "memmap", noting)
    monkeypatch.setattr(keywords, "CHUNK", 3)
    index = Index.from_blocks(tmp_path / "index", [block(["a cat", "a dog", "a cat and a dog"])], model=MODEL)
    assert mapped == [("r+", 8 * 8)] and len(index.search("dog", mode="keyword")) == 2


def test_a_query_is_read_up_to_a_number_of_different_words(tmp_path: Path) -> None:
    fillers = [f"w{number}" for number in range(MAX_WORDS - 1)]
    query = " ".join(["w0", *fillers, "cat", "w0", "dog", "w0"])
    assert query_words(query) == dict.fromkeys([*fillers, "cat"], 1) | {"w0": 3}
    texts = ["a dog", "a cat", "a fish"]
    index = Index.from_blocks(tmp_path / "index", [block(texts)], model=MODEL)
    assert [hit.text for hit in index.search(query, mode="keyword")] == ["a cat"]
    near = vectors_of(texts)[2]
    (found,) = index.search_vectors(near, 3, texts=[query], mode="hybrid")
    ranked_by_vector = [hit.id for hit in index.search_vectors(near, 3)[0]]
    assert [hit.id for hit in found] == [row for row, _ in naive_fusion([ranked_by_vector, [1]], 3)]


def test_no_long_run_of_combining_marks_is_put_in_order_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to order n marks grows with n squared."""
    longest = 0

    def normalize(form: str, text: str) -> str:
        nonlocal longest
        run = 0
        for letter in text:
            run = run + 1 if unicodedata.combining(unicodedata.normalize("NFKD", letter)[0]) else 0
            longest = max(longest, run)
        return unicodedata.normalize(form, text)

    monkeypatch.setattr(keywords, "unicodedata", SimpleNamespace(normalize=normalize))
    assert words_of("cafe\u0301" + "\u0315\u0300\u0f73" * 100 + " cafe\u0301") == ["café", "café"]
    assert words_of("cafe\u0301" + "\u0315\uff9e" * 100)[0] == "café"
    assert longest <= 30

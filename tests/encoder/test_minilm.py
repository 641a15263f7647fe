"""The built-in model against sentence-transformers on real sentences."""

from __future__ import annotations

import numpy as np
import pytest

from twinpass import Encoder
from twinpass.encoder.load import find_minilm
from twinpass.errors import ModelError


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    try:
        return Encoder.load("minilm", device="cpu")
    except ModelError as error:
        pytest.skip(str(error))


def test_it_knows_what_is_alike(minilm: Encoder) -> None:
    a, b, c = minilm.encode(["A man is playing a guitar.", "Someone plays an instrument.", "Stocks fell on Friday."])
    assert a @ b > 0.5 > a @ c
    assert (minilm.pooler, minilm.dimensions, minilm.max_tokens) == ("avg", 384, 256)


def test_vectors_equal_sentence_transformers_on_2000_real_sentences(minilm: Encoder, shared) -> None:
    from sentence_transformers import SentenceTransformer

    folder = shared / "data/senteval/downstream"
    dev = (folder / "STS/STSBenchmark/sts-dev.csv").read_text(encoding="utf-8").splitlines()
    reviews = (folder / "MR/rt-polarity.pos").read_text(encoding="latin-1").splitlines()
    texts = [line.split("\t")[5] for line in dev][:1500] + reviews[:500]
    assert len(texts) == 2000
    theirs = SentenceTransformer(str(find_minilm()), device="cpu").encode(texts)
    np.testing.assert_allclose(minilm.encode(texts), theirs, atol=1e-5)

"""One set of checks over every model family: load, encode, save, load elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES, SENTENCES
from transformers import AutoModel

from twinpass import Encoder
from twinpass.encoder.pooling import POOLERS
from twinpass.errors import ModelError

WITH_POOLER = {"bert", "roberta", "mpnet", "albert", "xlm-roberta"}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_vectors_do_not_depend_on_batch_order_or_duplicates(family: str, checkpoints) -> None:
    encoder = Encoder.load(checkpoints(family), pooler="avg_first_last")
    together = encoder.encode(SENTENCES)
    alone = np.stack([encoder.encode(sentence) for sentence in SENTENCES])
    backwards = encoder.encode(SENTENCES[::-1])[::-1]
    assert together.dtype == np.float32
    assert together.shape == (len(SENTENCES), encoder.dimensions)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(together, backwards, atol=1e-5)
    assert np.array_equal(together[2], together[5])  # the same text, encoded once
    assert np.isfinite(together).all()


@pytest.mark.parametrize("family", list(FAMILIES))
def test_saved_folder_gives_the_same_vectors_everywhere(family: str, checkpoints, tmp_path) -> None:
    from sentence_transformers import SentenceTransformer

    for pooler in ("cls_mlp", "avg_first_last"):
        encoder = Encoder.load(checkpoints(family), pooler=pooler, fresh_head_seed=3)
        folder = tmp_path / f"{family}-{pooler}"
        encoder.save(folder)
        expected = encoder.encode(SENTENCES)
        again = Encoder.load(folder)
        assert again.pooler == pooler
        assert again.fingerprint == encoder.fingerprint
        np.testing.assert_allclose(again.encode(SENTENCES), expected, atol=1e-6)
        theirs = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)
        np.testing.assert_allclose(theirs, expected, atol=1e-5)
    plain = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        states = plain(**encoder.pad(encoder.tokenize([SENTENCES[0]]))).hidden_states
    np.testing.assert_allclose(((states[1] + states[-1]) / 2)[0].mean(dim=0).numpy(), expected[0], atol=1e-5)


@pytest.mark.parametrize("pooler", [name for name in POOLERS if not POOLERS[name].in_template])
def test_every_pooler_loads_in_sentence_transformers(pooler: str, checkpoints, tmp_path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = Encoder.load(checkpoints("bert"), pooler=pooler, fresh_head_seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.save(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(theirs, encoder.encode(SENTENCES), atol=1e-5)
    np.testing.assert_allclose(Encoder.load(tmp_path / "saved").encode(SENTENCES), theirs, atol=1e-5)


def test_what_sentence_transformers_cannot_express_is_said(checkpoints, tmp_path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = Encoder.load(checkpoints("bert"), pooler="cls+avg_top2")
    with pytest.warns(UserWarning, match="sentence-transformers cannot load this model"):
        encoder.save(tmp_path / "saved")
    with pytest.raises(ImportError, match="OnlyTwinpassLoadsThisModel"):  # and not: another vector
        SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(Encoder.load(tmp_path / "saved").encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-6)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_pretrained_pooler_is_used_or_missed_aloud(family: str, checkpoints) -> None:
    if family in WITH_POOLER:
        encoder = Encoder.load(checkpoints(family), pooler="cls_pretrained")
        features = encoder.pad(encoder.tokenize(SENTENCES[:1]))
        with torch.no_grad():
            expected = AutoModel.from_pretrained(checkpoints(family)).eval()(**features).pooler_output
        np.testing.assert_allclose(encoder.encode(SENTENCES[:1]), expected.numpy(), atol=1e-5)
    else:
        with pytest.raises(ModelError, match="no pretrained pooler"):
            Encoder.load(checkpoints(family), pooler="cls_pretrained")


@pytest.mark.parametrize("family", list(FAMILIES))
def test_dropout_rate_reaches_the_model(family: str, checkpoints) -> None:
    def spread(rate: float) -> float:
        encoder = Encoder.load(checkpoints(family), pooler="cls", dropout=rate)
        features = encoder.pad(encoder.tokenize([SENTENCES[3]] * 2))
        with torch.no_grad():
            two = encoder.model.train()(features)
        return float((two[0] - two[1]).abs().max())

    torch.manual_seed(0)
    assert spread(0.0) < 1e-5
    assert spread(0.3) > 1e-3

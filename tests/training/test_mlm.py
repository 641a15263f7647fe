"""The masked-language-model loss hides what it should, starts from the checkpoint's head and shares its base."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tests.tiny import make_tokenizer
from tests.training.material import make_sentences
from torch.nn.functional import cross_entropy
from transformers import BertForMaskedLM, DistilBertForMaskedLM, RobertaForMaskedLM

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.training.mlm import IGNORED, Corrupter, MaskedLanguageModel
from twinpass.training.processes import Processes


def test_15_percent_are_hidden_80_10_10_and_never_a_special_token() -> None:
    tokenizer = make_tokenizer()
    vocabulary = len(tokenizer)
    corrupt = Corrupter(tokenizer, rate=0.15, vocabulary=vocabulary)
    ids = np.tile(np.array([2, *range(5, 105), 1, 3, 0]), 2000)
    corrupted, labels = corrupt(ids, np.random.default_rng(0))
    chosen, ordinary = labels != IGNORED, ~np.isin(ids, tokenizer.all_special_ids)
    assert not chosen[~ordinary].any()
    assert (corrupted[~chosen] == ids[~chosen]).all()
    assert (labels[chosen] == ids[chosen]).all()
    assert chosen[ordinary].mean() == pytest.approx(0.15, abs=0.005)
    assert (corrupted[chosen] == tokenizer.mask_token_id).mean() == pytest.approx(0.8, abs=0.01)
    assert (corrupted[chosen] == ids[chosen]).mean() == pytest.approx(0.1, abs=0.01)


def test_a_tokenizer_without_a_mask_token_is_refused() -> None:
    tokenizer = make_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(ConfigError, match="mask token"):
        Corrupter(tokenizer, rate=0.15, vocabulary=100)


@pytest.mark.parametrize(
    ("kind", "family"),
    [(BertForMaskedLM, "bert"), (DistilBertForMaskedLM, "distilbert"), (RobertaForMaskedLM, "roberta")],
)
def test_the_loss_is_the_checkpoints_own(kind, family: str, tmp_path) -> None:
    """Against transformers: the whole model run on the same corrupted ids, without dropout."""
    from tests.tiny import FAMILIES

    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    reference = kind(FAMILIES[family](vocab_size=len(tokenizer), pad_token_id=0)).eval()
    reference.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model", pooler="cls", device="cpu")
    mlm = MaskedLanguageModel.load(encoder, rate=0.3, seed=0)
    ids = encoder.tokenize(make_sentences(9))
    loss = mlm.backward(ids, np.random.default_rng(1), weight=0.5, processes=Processes(Accelerator(cpu=True)))

    random, sums, hidden = np.random.default_rng(1), [], 0
    for sentence in ids:
        corrupted, labels = mlm.corrupt(sentence, random)
        scores = reference(input_ids=torch.from_numpy(corrupted)[None]).logits[0]
        sums.append(cross_entropy(scores, torch.from_numpy(labels), reduction="sum"))
        hidden += int((labels != IGNORED).sum())
    wanted = 0.5 * sum(sums) / hidden
    assert loss == pytest.approx(wanted.item(), rel=1e-5)

    wanted.backward()
    ours = encoder.model.transformer.get_input_embeddings().weight.grad
    theirs = reference.get_input_embeddings().weight.grad
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_checkpoint_without_a_head_gets_a_fresh_one_and_a_warning(tiny) -> None:
    encoder = Encoder.load(tiny, pooler="cls", device="cpu")
    with pytest.warns(UserWarning, match="no masked-language-model head"):
        mlm = MaskedLanguageModel.load(encoder, rate=0.15, seed=0)
    tied = mlm.head.get_output_embeddings().weight
    assert tied is encoder.model.transformer.get_input_embeddings().weight

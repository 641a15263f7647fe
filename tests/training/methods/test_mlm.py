"""Masked language models: the loss masks what it should and shares its base; words are replaced by the likeliest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tests.tiny import FAMILIES, make_tokenizer
from tests.training.tiny_runs import make_sentences
from torch.nn.functional import cross_entropy
from transformers import BertForMaskedLM, DistilBertForMaskedLM, RobertaForMaskedLM

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.text.augment import hide
from twinpass.text.views import Place, add_positives
from twinpass.training import data as data_module
from twinpass.training.data import InMemory, read_data
from twinpass.training.methods.mlm import (
    IGNORED,
    Corrupter,
    MaskedLanguageModel,
    WordReplacer,
    masked_words,
    whole_words,
)
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
    with pytest.raises(ConfigError, match=r"mask token, and this model's has none\. Choose another model"):
        Corrupter(tokenizer, rate=0.15, vocabulary=100)


@pytest.mark.parametrize(
    ("kind", "family"),
    [(BertForMaskedLM, "bert"), (DistilBertForMaskedLM, "distilbert"), (RobertaForMaskedLM, "roberta")],
)
def test_the_loss_is_the_checkpoints_own(kind, family: str, tmp_path) -> None:
    """Against transformers: the whole model run on the same corrupted ids, without dropout."""

    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    reference = kind(FAMILIES[family](vocab_size=len(tokenizer), pad_token_id=0)).eval()
    reference.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model", pooler="cls", device="cpu")
    mlm = MaskedLanguageModel.load(encoder, rate=0.3, seed=0)
    ids = encoder.tokenize(make_sentences(9))
    random = np.random.default_rng(1)
    corrupted = [mlm.corrupt(each, random) for each in ids]
    loss = mlm.propagate(corrupted, weight=0.5, processes=Processes(Accelerator(cpu=True)))

    random, sums, hidden = np.random.default_rng(1), [], 0
    for sentence in ids:
        corrupted, labels = mlm.corrupt(sentence, random)
        scores = reference(input_ids=torch.from_numpy(corrupted)[None]).logits[0]
        sums.append(cross_entropy(scores, torch.from_numpy(labels), reduction="sum"))
        hidden += int((labels != IGNORED).sum())
    expected = 0.5 * sum(sums) / hidden
    assert loss == pytest.approx(expected.item(), rel=1e-5)

    expected.backward()
    ours = encoder.model.transformer.get_input_embeddings().weight.grad
    theirs = reference.get_input_embeddings().weight.grad
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_checkpoint_without_a_head_gets_a_fresh_one_and_a_warning(tiny) -> None:
    encoder = Encoder.load(tiny, pooler="cls", device="cpu")
    with pytest.warns(UserWarning, match="no masked-language-model head"):
        mlm = MaskedLanguageModel.load(encoder, rate=0.15, seed=0)
    tied = mlm.head.get_output_embeddings().weight
    assert tied is encoder.model.transformer.get_input_embeddings().weight


def make_places(texts: list[str], seed: int = 0) -> list[Place]:
    return [Place(text, (), np.random.default_rng([seed, row])) for row, text in enumerate(texts)]


@pytest.fixture(scope="module")
def replacer(masked: Path) -> WordReplacer:
    encoder = Encoder.load(masked, pooler="avg", device="cpu")
    mlm = MaskedLanguageModel.load(encoder, rate=0.3, seed=0, may_be_fresh=False)
    return WordReplacer(mlm, percent=30, max_tokens=64)


def test_words_are_replaced_by_the_likeliest_other_word(replacer: WordReplacer, masked: Path) -> None:
    """Against transformers: one sentence at a time, all the vocabulary ranked."""
    texts = [f"The {text}, Sat." for text in make_sentences(12)]
    tokenizer, reference = make_tokenizer(), BertForMaskedLM.from_pretrained(masked).eval()
    words = whole_words(tokenizer, size=len(tokenizer))
    for text, made, place in zip(texts, replacer(make_places(texts)), make_places(texts), strict=True):
        hidden = hide(text, place.random, 30)
        assert hidden.places
        ids = tokenizer(hidden.filled(["[MASK]"] * len(hidden.places)), return_tensors="pt")
        ranked = reference(**ids).logits[0].argsort(dim=-1, descending=True)
        at = (ids["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten().tolist()
        expected = [
            next(words[n] for n in ranked[spot].tolist() if n in words and words[n] != original.lower())
            for spot, original in zip(at, hidden.originals, strict=True)
        ]
        assert made == hidden.filled(expected)


def test_what_is_beyond_the_limit_or_holds_a_mask_stays(replacer: WordReplacer) -> None:
    long = " ".join(["cat"] * 300)
    made = replacer(make_places([long, "a [MASK] sat on the mat", "one", "日本語 日本語 日本語"]))
    assert made[0].split()[70:] == ["cat"] * 230 and made[0].split()[:60].count("cat") < 60
    assert made[1:3] == ["a [MASK] sat on the mat", "one"]
    assert made[3] != "日本語 日本語 日本語" and len(made[3].split()) == 3


def test_equal_questions_are_asked_once(replacer: WordReplacer, monkeypatch) -> None:
    asked: list[int] = []
    guess = replacer._guess
    monkeypatch.setattr(replacer, "_guess", lambda some: asked.append(len(some)) or guess(some))
    places = [Place("the cat sat on a mat", (), np.random.default_rng(1)) for _ in range(5)]
    assert len(set(replacer(places))) == 1
    assert asked == [1]


def test_whole_words_are_told_by_how_a_vocabulary_marks_them() -> None:
    class Vocabulary:
        all_special_ids = (0,)

        def __init__(self, *pieces: str) -> None:
            self.pieces = pieces

        def __len__(self) -> int:
            return len(self.pieces)

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return [self.pieces[number] for number in ids]

        def batch_decode(self, rows: list[list[int]]) -> list[str]:
            return [self.pieces[row[0]].replace("Ġ", " ").replace("▁", " ").replace("##", "") for row in rows]

    assert whole_words(Vocabulary("[CLS]", "cat", "##s", ".", "don't"), size=5) == {1: "cat"}
    assert whole_words(Vocabulary("<s>", "Ġcat", "s", "Ġ.", "Ġdog"), size=5) == {1: "cat", 4: "dog"}
    assert whole_words(Vocabulary("<s>", "▁cat", "s", "▁", "▁dog"), size=4) == {1: "cat"}


def test_a_masked_lm_is_asked_only_about_the_rows_that_are_trained_on(masked, monkeypatch) -> None:
    asked: list[str] = []
    replace = WordReplacer.__call__

    def remember(self: WordReplacer, places: list[Place]) -> list[str]:
        asked.extend(place.text for place in places)
        return replace(self, places)

    monkeypatch.setattr(WordReplacer, "__call__", remember)
    texts = make_sentences(40)
    run, cpu = Run(positive="mlm:20"), torch.device("cpu")
    rows = add_positives(
        InMemory(texts), run, masked_words=lambda name, percent: masked_words(name, percent, run, str(masked), cpu)
    )
    held = np.array([3, 8, 30])
    found = read_data(rows, lambda some: [[len(text)] for text in some], total=40, held=held)
    assert asked == [texts[3], texts[8], texts[30]]
    assert found.overlap is not None and 0 < found.overlap < 1
    assert data_module.count_rows(rows) == 40
    assert data_module.find_rows(rows, [30, 3])[1].startswith(f"row 30: {texts[30]} | ")
    assert asked[3:] == [texts[3], texts[30]]


@pytest.fixture
def pickled_below(masked: Path, tmp_path: Path) -> Path:
    """The model with a head as sentence-transformers of old kept it: a pickle, in a folder below."""
    folder = tmp_path / "below"
    model = BertForMaskedLM.from_pretrained(masked)
    (folder / "0_BERT").mkdir(parents=True)
    (folder / "1_Pooling").mkdir()
    model.config.save_pretrained(folder / "0_BERT")
    make_tokenizer().save_pretrained(folder / "0_BERT")
    torch.save(model.state_dict(), folder / "0_BERT" / "pytorch_model.bin")
    kinds = [("0", "0_BERT", "Transformer"), ("1", "1_Pooling", "Pooling")]
    modules = [{"idx": int(n), "name": n, "path": p, "type": f"sentence_transformers.models.{t}"} for n, p, t in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def test_a_head_is_loaded_from_a_pickle_in_a_folder_below(pickled_below, masked, recwarn) -> None:
    encoder = Encoder.load(pickled_below, device="cpu", trust_pickle=True)
    mlm = MaskedLanguageModel.load(encoder, rate=0.1, seed=0, trust_pickle=True)
    assert not [warning for warning in recwarn if "head" in str(warning.message)]
    reference = BertForMaskedLM.from_pretrained(masked)
    assert torch.equal(
        mlm.head.cls.predictions.transform.dense.weight, reference.cls.predictions.transform.dense.weight
    )


def test_other_weights_in_a_folder_below_are_another_masked_word_model(pickled_below) -> None:
    run, cpu = Run(trust_pickle=True), torch.device("cpu")
    before = masked_words("mlm:15", 15, run, str(pickled_below), cpu)
    first = before.fingerprint()
    assert len(before.open()([Place("the cat sat on a mat today", (), np.random.default_rng(1))])) == 1
    weights = pickled_below / "0_BERT" / "pytorch_model.bin"
    state = torch.load(weights)
    state["bert.embeddings.word_embeddings.weight"][7] += 1
    torch.save(state, weights)
    assert masked_words("mlm:15", 15, run, str(pickled_below), cpu).fingerprint() != first

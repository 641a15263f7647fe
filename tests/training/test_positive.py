"""Training on made positives: any kind, one encoder or two, killed and resumed; and what a masked LM replaces."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.text.tiny_wordnet import write_wordnet
from tests.tiny import FAMILIES, make_tokenizer
from tests.training.material import make_sentences
from transformers import BertForMaskedLM

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.files import sha256
from twinpass.log import Started, Stepped
from twinpass.positive import KINDS, Positive, read_positive
from twinpass.text.augment import hide
from twinpass.text.positives import Place, WithPositives
from twinpass.training import data as data_module
from twinpass.training.data import InMemory, read_data
from twinpass.training.loop import train
from twinpass.training.mlm import MaskedLanguageModel
from twinpass.training.positives import add_positives
from twinpass.training.replacing import WordReplacer, whole_words

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def masked(tmp_path_factory) -> Path:
    """A tiny BERT with a masked-language-model head."""
    folder = tmp_path_factory.mktemp("masked") / "model"
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    model = BertForMaskedLM(FAMILIES["bert"](vocab_size=len(tokenizer), pad_token_id=0))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("text", "read"), [("crop:10", ("crop", 10)), ("delete-one", ("delete-one", 0)), ("next:3", ("next", 3))]
)
def test_a_positive_is_read_and_spoken(text: str, read: tuple[str, int]) -> None:
    assert read_positive(text) == Positive(*read)
    assert str(Positive(*read)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("crops:10", "Did you mean 'crop'"),
        ("deleteone", "Did you mean 'delete-one'"),
        ("", "Known: crop:N, delete:N, delete-one, synonym, mlm:N, next:N"),
        ("crop", "per cent from 1 to 99 after a colon, as in crop:10; got 'crop'"),
        ("crop:100", "from 1 to 99"),
        ("delete:1.5", "whole number"),
        ("mlm:-1", "whole number"),
        ("next:0", "sentences from 1 to 999"),
        ("synonym:3", "takes no amount"),
    ],
)
def test_a_positive_that_makes_no_sense_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Run(positive=text).check()


def test_positives_go_with_single_sentences_only(make_run) -> None:
    for fields in ({"view": "triplets"}, {"share_dropout_mask": True}):
        with pytest.raises(ConfigError, match="positive makes pairs of single sentences"):
            Run(positive="delete-one", **fields).check()
    with pytest.raises(InputError, match="single sentences, and the data in memory has 2"):
        train(make_run(positive="delete-one"), rows=[("a", "b"), ("c", "d")])


def fields_of(kind: str, masked: Path, tmp_path: Path) -> dict[str, object]:
    """Return what a run needs besides the kind."""
    if kind == "mlm":
        return {"model": str(masked)}
    return {"wordnet": str(write_wordnet(tmp_path / "dict"))} if kind == "synonym" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_and_resumes_bit_by_bit(make_run, masked, tmp_path, kind: str) -> None:
    if kind == "synonym":
        pytest.importorskip("nltk", reason="needs the extra [augment]")
    positive = f"{kind}:20" if KINDS[kind] else kind
    fields = {"positive": positive, "save_every": 2, **fields_of(kind, masked, tmp_path)}
    fields |= {"dual_encoder": kind == "next", "dropout": 0.0 if kind == "delete-one" else None}
    events = []

    def interrupt(event) -> None:
        events.append(event)
        if isinstance(event, Stepped) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    rows = make_sentences(24)
    run = make_run(output=str(tmp_path / "stopped"), **fields)
    assert train(run, rows=rows, on_event=interrupt).reason == "interrupted"
    resumed = train(run, rows=rows, resume=True)
    whole = train(make_run(output=str(tmp_path / "whole"), **fields), rows=rows)
    assert sha256(resumed.output / "model.safetensors") == sha256(whole.output / "model.safetensors")
    started = next(event for event in events if isinstance(event, Started))
    assert (started.view, started.pooler) == ("pairs", "cls_mlp_train")
    assert started.why == f"positives of the data in memory are made by {positive}"
    stored = Run.read(whole.output / "run.json")
    assert (stored.positive, stored.view) == (positive, "pairs")


def test_other_positives_are_not_resumed(make_run) -> None:
    train(make_run(positive="delete-one"), rows=make_sentences(20))
    with pytest.raises(ConfigError, match="positive: 'delete-one' then, 'crop:10' now"):
        train(make_run(positive="crop:10"), rows=make_sentences(20), resume=True)


def test_another_dictionary_is_other_text(make_run, tmp_path) -> None:
    pytest.importorskip("nltk", reason="needs the extra [augment]")
    first, second = write_wordnet(tmp_path / "a"), write_wordnet(tmp_path / "b")
    train(make_run(positive="synonym", wordnet=str(first)), rows=make_sentences(20))
    train(make_run(positive="synonym", wordnet=str(second)), rows=make_sentences(20), resume=True)
    (second / "verb.exc").write_text("went go\n")
    with pytest.raises(ConfigError, match="not the text"):
        train(make_run(positive="synonym", wordnet=str(second)), rows=make_sentences(20), resume=True)


def test_a_preset_without_supervision_takes_positives(make_run) -> None:
    result = train(make_run(view="dropout", positive="delete:30"), rows=make_sentences(20))
    assert Run.read(result.output / "run.json").view == "pairs"


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
        wanted = [
            next(words[n] for n in ranked[spot].tolist() if n in words and words[n] != original.lower())
            for spot, original in zip(at, hidden.originals, strict=True)
        ]
        assert made == hidden.filled(wanted)


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


def test_a_model_without_a_head_cannot_replace_words(make_run, tiny) -> None:
    with pytest.raises(ModelError, match="no masked-language-model head"):
        train(make_run(positive="mlm:15"), rows=make_sentences(20))


def test_a_masked_lm_is_asked_only_about_the_rows_that_are_trained_on(masked, monkeypatch) -> None:
    asked: list[str] = []
    replace = WordReplacer.__call__

    def remember(self: WordReplacer, places: list[Place]) -> list[str]:
        asked.extend(place.text for place in places)
        return replace(self, places)

    monkeypatch.setattr(WordReplacer, "__call__", remember)
    texts = make_sentences(40)
    rows = add_positives(InMemory(texts), Run(positive="mlm:20"), model=str(masked), device=CPU)
    held = np.array([3, 8, 30])
    found = read_data(rows, lambda some: [[len(text)] for text in some], total=40, held=held)
    assert asked == [texts[3], texts[8], texts[30]]
    assert found.overlap is not None and 0 < found.overlap < 1
    assert data_module.count_rows(rows) == 40
    assert data_module.find_rows(rows, [30, 3])[1].startswith(f"row 30: {texts[30]} | ")
    assert asked[3:] == [texts[3], texts[30]]


def test_row_numbers_and_the_seed_alone_decide() -> None:
    texts = make_sentences(20)

    def made(**fields: object) -> list[tuple[str, ...]]:
        rows = add_positives(InMemory(texts), Run(positive="delete:30", **fields), model="", device=CPU)
        assert isinstance(rows, WithPositives)
        return [row.texts for row in rows]

    assert made() == made(batch_size=2, epochs=3)
    assert made() != made(seed=43)

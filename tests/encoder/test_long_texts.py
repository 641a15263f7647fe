"""Long texts: cut before they are tokenised whole, without a change of the ids that are kept."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.tiny import WORDS, make_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from twinpass.encoder import tokens
from twinpass.encoder.tokens import PlainTokenizer, Tokens


def bert() -> Tokenizer:
    return make_tokenizer().backend_tokenizer


def trained(model: Any, trainer: Any, pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    made = Tokenizer(model)
    made.pre_tokenizer, made.normalizer = pre_tokenizer, normalizer
    made.train_from_iterator([" ".join(WORDS) * 3, "naïve café 日本語 ﬁne  \n\t a-b_c 12345 ..."] * 5, trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    return made


def byte_level() -> Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], show_progress=False)
    made = trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.decoder = decoders.ByteLevel()
    return made


def unigram() -> Tokenizer:
    options = {"unk_token": "<unk>", "special_tokens": ["<s>", "</s>", "<unk>"], "show_progress": False}
    trainer = trainers.UnigramTrainer(vocab_size=300, **options)
    return trained(models.Unigram(), trainer, pre_tokenizers.Metaspace(), normalizers.NFKC())


RANDOM = random.Random(0)
PIECES = [
    *WORDS,
    "naïve",
    "e\u0301" * 40,
    "日本語の文",
    "ﬁ",
    " " * 90,
    "\n\n\t",
    "x" * 150,
    "...",
    "a-b_c",
    "\u200b",
    "ΟΔΟΣ",
    "🙂",
]
LONG = ["".join(RANDOM.choice(PIECES) + RANDOM.choice(["", " ", "  "]) for _ in range(300)) for _ in range(8)]
AWKWARD = [
    *LONG,
    " ".join(WORDS) * 30,
    " " * 9_000 + "the cat",  # nothing but whitespace for a long time
    "x" * 9_000 + " the cat sat " * 40,  # a word that is longer than the first part
    "日本語" * 3_000,  # no whitespace at all
    "the " * 3_000 + "cat",
    "e" + "\u0301" * 9_000 + " cat" * 100,
    "short",
    "",
]


@pytest.mark.parametrize("make", [bert, byte_level, unigram])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("limit", "part"), [(3, 16), (20, 2), (20, 5), (64, 2), (64, 16)])
def test_ids_are_those_of_the_whole_text(make, side: str, limit: int, part: int, monkeypatch: pytest.MonkeyPatch):
    backend = make()
    made = Tokens(
        PlainTokenizer(backend, side), pad_id=0, takes_types=False, limit=None, prompt="of it: ", lowercase=True
    )
    monkeypatch.setattr(tokens, "PART", part)  # few: the first part has hardly enough tokens
    found = made.ids(AWKWARD, max_tokens=limit)
    monkeypatch.setattr(tokens, "PART", 1 << 40)  # nothing is cut
    assert found == made.ids(AWKWARD, max_tokens=limit)
    assert len(found[1]) >= len(AWKWARD) - 3


class Counting:
    """A tokenizer that notes how many characters it is given."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend, self.characters = backend, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_batch(self, texts: list[str], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._backend.encode_batch(texts, **options)

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._backend.encode_batch_fast(texts, **options)


def test_little_of_a_huge_text_is_tokenised():
    counting = Counting(bert())
    made = Tokens(PlainTokenizer(counting, "right"), pad_id=0, takes_types=False, limit=None)
    ids, cut = made.ids(["the cat sat " * 1_000_000], max_tokens=16)
    assert counting.characters < 1_000
    assert (len(ids[0]), cut) == (16, [0])


def test_a_huge_word_is_read_up_to_a_bound_and_counts_as_truncated():
    counting = Counting(bert())
    made = Tokens(PlainTokenizer(counting, "right"), pad_id=0, takes_types=False, limit=None)
    ids, cut = made.ids(["x" * 1_000_000 + " cat"], max_tokens=3)
    assert counting.characters < 4 * 3 * tokens.MOST_CHARACTERS
    assert (ids, cut) == ([[2, 1, 3]], [0])  # [CLS] [UNK] [SEP]


def test_without_a_limit_nothing_is_cut():
    made = Tokens(PlainTokenizer(bert(), "right"), pad_id=0, takes_types=False, limit=None)
    (ids,), cut = made.ids(["the " * 20_000], max_tokens=None)
    assert (len(ids), cut) == (20_002, [])

"""MLM k % of Table 1: a masked language model replaces some words of a sentence.

The words are hidden all at once, one mask token each, and each becomes the likeliest whole word that is not the one
that stood there. Words beyond what the model reads stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.load import find_folder
from twinpass.files import sha256
from twinpass.text.augment import Hidden, hide
from twinpass.text.batch import cut
from twinpass.text.positives import Method, Place
from twinpass.training.mlm import MaskedLanguageModel

TOKEN_BUDGET = 2_048  # padded tokens in one forward pass


def masked_words(run: Run, *, name: str, percent: int, model: str, device: torch.device) -> Method:
    """Return the method that replaces percent % of the words by what the named model finds likeliest."""

    def load() -> WordReplacer:
        # The model as it was before training, also when a run is resumed: a row's positive never changes.
        encoder = Encoder.load(
            model,
            pooler="avg",
            device=str(device),
            trust_pickle=run.trust_pickle,
            trust_remote_code=run.trust_remote_code,
        )
        mlm = MaskedLanguageModel.load(
            encoder,
            rate=percent / 100,
            seed=0,
            may_be_fresh=False,
            trust_pickle=run.trust_pickle,
            trust_remote_code=run.trust_remote_code,
        )
        # Twice what training reads of a sentence: all that it will see, and as much again for context.
        return WordReplacer(mlm, percent=percent, max_tokens=2 * run.max_tokens)

    return Method(name, load, fingerprint=lambda: _hash_weights(model))


class WordReplacer:
    """Replaces a share of every sentence's words by what a masked language model finds likeliest."""

    def __init__(self, mlm: MaskedLanguageModel, *, percent: int, max_tokens: int) -> None:
        self.mlm, self.encoder, self.percent = mlm.eval(), mlm.encoder, percent
        self.max_tokens = min(max_tokens, self.encoder.max_tokens or max_tokens)
        self.encoder.model.eval()
        self.tokenizer = self.encoder.tokenizer
        self.tokenizer.truncation_side = "right"  # so that the masks that are read are the first ones
        size = int(mlm.head.config.vocab_size)
        self.words = whole_words(self.tokenizer, size=size)
        self.ids: dict[str, list[int]] = {}
        for number, word in self.words.items():
            self.ids.setdefault(word.lower(), []).append(number)
        self.barred = torch.ones(size, dtype=torch.bool, device=self.encoder.device)
        self.barred[list(self.words)] = False

    def __call__(self, places: Sequence[Place]) -> list[str]:
        """Return the sentences with words replaced; equal ones with equal words hidden are guessed once."""
        hidden = [hide(place.text, place.random, self.percent) for place in places]
        asked = [one for one in dict.fromkeys(hidden) if one.places and not self._holds_mask(one)]
        answers = dict(zip(asked, self._guess(asked), strict=True))
        return [answers.get(one, place.text) for one, place in zip(hidden, places, strict=True)]

    def _holds_mask(self, sentence: Hidden) -> bool:
        """Tell whether a text holds the mask token itself, so that ours could not be told from it."""
        return any(self.tokenizer.mask_token in word for word in sentence.words)

    @torch.inference_mode()
    def _guess(self, asked: Sequence[Hidden]) -> list[str]:
        new = [sentence.originals for sentence in asked]
        ids = self._tokenize([one.filled([self.tokenizer.mask_token] * len(one.places)) for one in asked])
        for batch in cut(np.fromiter(map(len, ids), np.int64, len(ids)), token_budget=TOKEN_BUDGET):
            features = self.encoder.pad([ids[place] for place in batch])
            hidden = features["input_ids"] == self.tokenizer.mask_token_id
            # Where a sentence was cut, only its first masks were read.
            slots = [
                (place, nth)
                for place, count in zip(batch, hidden.sum(dim=1).tolist(), strict=True)
                for nth in range(count)
            ]
            scores = self.mlm.scores(features, hidden).float().masked_fill(self.barred, -torch.inf)
            for row, (place, nth) in enumerate(slots):
                scores[row, self.ids.get(new[place][nth].lower(), [])] = -torch.inf
            for (place, nth), best in zip(slots, scores.argmax(dim=1).tolist(), strict=True):
                new[place][nth] = self.words[best]
        return [sentence.filled(words) for sentence, words in zip(asked, new, strict=True)]

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(texts, truncation=True, max_length=self.max_tokens)["input_ids"]
        return ids


def whole_words(tokenizer: Any, *, size: int) -> dict[int, str]:
    """Return the entries of a vocabulary that are a whole word of letters, by id."""
    special = set(tokenizer.all_special_ids)
    pieces = tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer)))))
    # A vocabulary marks either what begins a word (byte pairs, SentencePiece) or what goes on (WordPiece).
    marks = [mark for mark in ("Ġ", "▁") if sum(map(_starts(mark), pieces)) > len(pieces) / 10]
    begins = _starts(marks[0]) if marks else lambda piece: not piece.startswith("##")
    ids = [number for number, piece in enumerate(pieces) if begins(piece) and number not in special]
    words = (text.strip() for text in tokenizer.batch_decode([[number] for number in ids]))
    return {number: word for number, word in zip(ids, words, strict=True) if word.isalpha()}


def _starts(mark: str) -> Callable[[str], bool]:
    return lambda piece: piece.startswith(mark)


def _hash_weights(model: str) -> str:
    """Return a SHA-256 of a model's weights, so that a run is resumed with the same guesses or not at all."""
    folder = find_folder(model)
    files = sorted((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")))
    return hashlib.sha256("".join(sha256(file) for file in files).encode()).hexdigest()

"""Masked language models: the auxiliary loss of Appendix A, and the words that one replaces (MLM k % of Table 1).

The loss is a second pass over corrupted sentences. 15 % of the tokens are chosen, never special ones; of these 80 %
become the mask token, 10 % a random token and 10 % stay. The prediction head starts from the checkpoint's own where
it has one, over the encoder's own transformer.

For positives, the words are masked all at once, one mask token each, and each becomes the most likely whole word that
is not the original. Words beyond what the model reads stay as they are.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import hash_weights, transformer_home
from twinpass.encoder.load import find_folder
from twinpass.encoder.parts import quiet
from twinpass.errors import ConfigError, ModelError
from twinpass.text.augment import Hidden, hide
from twinpass.text.batch import cut
from twinpass.text.views import Place, PositiveMaker
from twinpass.training.chunked import cut_chunks
from twinpass.training.processes import Processes

IGNORED = -100
TOKEN_BUDGET = 2_048  # padded tokens in one forward pass that guesses words


class Corrupted(NamedTuple):
    """A sentence with some tokens masked, and the original tokens there (-100 elsewhere)."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]


class Corrupter:
    """Masks a share of the tokens of sentences."""

    def __init__(self, tokenizer: Any, *, rate: float, vocabulary: int) -> None:
        if tokenizer.mask_token_id is None:
            raise ConfigError(
                "a masked language model needs a tokenizer with a mask token, and this model's has none. Choose "
                "another model; SimCSE does without one where mlm_weight is left out."
            )
        self.rate, self.vocabulary = rate, vocabulary
        self.mask_id: int = tokenizer.mask_token_id
        self.special = np.array(sorted(tokenizer.all_special_ids))

    def __call__(self, ids: Sequence[int] | NDArray[Any], random: np.random.Generator) -> Corrupted:
        """Return a corrupted copy of one sentence's ids."""
        original = np.asarray(ids, dtype=np.int64)
        chosen = (random.random(len(original)) < self.rate) & ~np.isin(original, self.special)
        fate = random.random(len(original))
        hidden, swapped = chosen & (fate < 0.8), chosen & (fate >= 0.8) & (fate < 0.9)
        corrupted = np.where(hidden, self.mask_id, original)
        corrupted = np.where(swapped, random.integers(self.vocabulary, size=len(original)), corrupted)
        return Corrupted(corrupted, np.where(chosen, original, IGNORED))


class MaskedLanguageModel(nn.Module):
    """A prediction head over an encoder's transformer, applied only where tokens were masked."""

    def __init__(self, encoder: Encoder, head: Any, *, rate: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.corrupt = Corrupter(encoder.tokenizer, rate=rate, vocabulary=head.config.vocab_size)
        # Over the encoder's transformer first: it may be tied to that one's word embeddings.
        setattr(head, head.base_model_prefix, encoder.model.transformer)
        head.tie_weights()
        self.head = head.to(encoder.device)
        self.states = _Given()
        # The head keeps its own map from states to scores; only its input is replaced.
        setattr(self.head, head.base_model_prefix, self.states)

    @classmethod
    def load(
        cls,
        encoder: Encoder,
        *,
        rate: float,
        seed: int,
        trust_pickle: bool = False,
        trust_remote_code: bool = False,
        may_be_fresh: bool = True,
    ) -> MaskedLanguageModel:
        """Load the checkpoint's own head; if it has none, make one from a seed (with a warning) where allowed."""
        from transformers import AutoModelForMaskedLM

        folder = transformer_folder(encoder.name, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code)
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            head, report = AutoModelForMaskedLM.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=None if trust_pickle else True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
        base = head.base_model_prefix
        if any(not key.startswith(f"{base}.") for key in report["missing_keys"]):
            if not may_be_fresh:
                raise ModelError(
                    f"{encoder.name} has no masked-language-model head, so it cannot say which word fits. Choose a "
                    "model that has one."
                )
            warnings.warn(f"{encoder.name} has no masked-language-model head; a new one is trained.", stacklevel=2)
        return cls(encoder, head, rate=rate)

    @classmethod
    def empty(cls, encoder: Encoder, *, rate: float) -> MaskedLanguageModel:
        """Make a head of the right shape, for a checkpoint to fill."""
        from transformers import AutoModelForMaskedLM

        models: Any = AutoModelForMaskedLM
        return cls(encoder, models.from_config(encoder.model.transformer.config), rate=rate)

    def propagate(self, corrupted: Sequence[Corrupted], *, weight: float, processes: Processes) -> float:
        """Propagate weight times the mean loss over all processes' masked tokens, chunk by chunk; return it."""
        accelerator = processes.accelerator
        hidden = processes.total(sum(int((c.labels != IGNORED).sum()) for c in corrupted))
        total = 0.0
        for chunk in cut_chunks([c.ids for c in corrupted], [self.encoder] * len(corrupted)):
            with accelerator.autocast():
                loss = self._summed_loss([corrupted[place] for place in chunk.places]) * (weight / max(hidden, 1))
            if loss.requires_grad:
                accelerator.backward(loss)
            total += float(loss.detach())
        return processes.total(total)

    def _summed_loss(self, sentences: Sequence[Corrupted]) -> Tensor:
        features = self.encoder.pad([sentence.ids.tolist() for sentence in sentences])
        labels = torch.full_like(features["input_ids"], IGNORED)
        for row, sentence in enumerate(sentences):
            labels[row, : len(sentence.labels)] = torch.from_numpy(sentence.labels)
        hidden = labels != IGNORED
        if not hidden.any():
            return torch.zeros(())
        return cross_entropy(self.scores(features, hidden).float(), labels[hidden], reduction="sum")

    @contextlib.contextmanager
    def whole(self) -> Iterator[Any]:
        """Yield head and transformer as one transformers model, which can be saved."""
        prefix = self.head.base_model_prefix
        setattr(self.head, prefix, self.encoder.model.transformer)
        try:
            yield self.head
        finally:
            setattr(self.head, prefix, self.states)

    def scores(self, features: dict[str, Tensor], hidden: Tensor) -> Tensor:
        """Return the vocabulary's scores at the masked places alone, (places, vocabulary), in order."""
        transformer: Any = self.encoder.model.transformer
        self.states.given = transformer(**features, return_dict=True).last_hidden_state[hidden][None]
        scores: Tensor = self.head(input_ids=features["input_ids"]).logits[0]
        return scores


class _Given(nn.Module):
    """Takes the place of a head's transformer, and returns the states it was given."""

    given: Tensor

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return the given states in the shape of a transformer's output."""
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=self.given)


def load_mlm(encoder: Encoder, run: Run, *, rate: float, resumed: bool) -> MaskedLanguageModel:
    """Load the head that is trained with an encoder; a checkpoint fills an empty one."""
    if resumed:
        return MaskedLanguageModel.empty(encoder, rate=rate)
    return MaskedLanguageModel.load(encoder, rate=rate, seed=run.seed, **trust_of(run))


def trust_of(run: Run) -> dict[str, bool]:
    """Return what a run trusts of the models that it loads."""
    return {"trust_pickle": run.trust_pickle, "trust_remote_code": run.trust_remote_code}


def transformer_folder(model: str, *, trust_pickle: bool = False, trust_remote_code: bool = False) -> Path:
    """Return the folder of a model's transformer, which may be inside the model's folder."""
    return transformer_home(find_folder(model, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code))


def masked_words(name: str, percent: int, run: Run, model: str, device: torch.device) -> PositiveMaker:
    """Return the maker that replaces percent % of the words by the named model's most likely words."""
    trust: dict[str, Any] = trust_of(run)

    def load() -> WordReplacer:
        # The model as it was before training, also when a run is resumed: a row's positive never changes.
        encoder = Encoder.load(model, pooler="avg", device=str(device), **trust)
        mlm = MaskedLanguageModel.load(encoder, rate=percent / 100, seed=0, may_be_fresh=False, **trust)
        # Twice what training reads of a sentence: all that it uses, and as much again for context.
        return WordReplacer(mlm, percent=percent, max_tokens=2 * run.max_tokens)

    # A run is resumed with the same guesses or not at all.
    return PositiveMaker(name, load, fingerprint=lambda: weights_of(model, **trust))


def weights_of(model: str, *, trust_pickle: bool = False, trust_remote_code: bool = False) -> str:
    """Return a SHA-256 of the weights of a model's transformer and its head."""
    return hash_weights(find_folder(model, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code))


class WordReplacer:
    """Replaces a share of every sentence's words by the most likely words of a masked language model."""

    def __init__(self, mlm: MaskedLanguageModel, *, percent: int, max_tokens: int) -> None:
        self.mlm, self.encoder, self.percent = mlm.eval(), mlm.encoder, percent
        self.max_tokens = min(max_tokens, self.encoder.max_tokens or max_tokens)
        self.encoder.model.eval()
        self.tokenizer = self.encoder.tokenizer
        self.tokenizer.truncation_side = "right"  # so that the first masks are the ones that are read
        size = int(mlm.head.config.vocab_size)
        self.words = whole_words(self.tokenizer, size=size)
        self.ids: dict[str, list[int]] = {}
        for number, word in self.words.items():
            self.ids.setdefault(word.lower(), []).append(number)
        self.barred = torch.ones(size, dtype=torch.bool, device=self.encoder.device)
        self.barred[list(self.words)] = False

    def __call__(self, places: Sequence[Place]) -> list[str]:
        """Return the sentences with words replaced; equal sentences with equal words masked are guessed once."""
        hidden = [hide(place.text, place.random, self.percent) for place in places]
        asked = [one for one in dict.fromkeys(hidden) if one.places and not self._holds_mask(one)]
        answers = dict(zip(asked, self._guess(asked), strict=True))
        return [answers.get(one, place.text) for one, place in zip(hidden, places, strict=True)]

    def _holds_mask(self, sentence: Hidden) -> bool:
        """Return whether a text contains the mask token itself, which could not be distinguished from ours."""
        return any(self.tokenizer.mask_token in word for word in sentence.words)

    @torch.inference_mode()
    def _guess(self, asked: Sequence[Hidden]) -> list[str]:
        new = [sentence.originals for sentence in asked]
        ids = self._tokenize([one.filled([self.tokenizer.mask_token] * len(one.places)) for one in asked])
        for batch in cut(np.fromiter(map(len, ids), np.int64, len(ids)), token_budget=TOKEN_BUDGET):
            features = self.encoder.pad([ids[place] for place in batch])
            hidden = features["input_ids"] == self.tokenizer.mask_token_id
            # Of a truncated sentence only the first masks were read.
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
    # A vocabulary marks either the start of a word (byte pairs, SentencePiece) or its continuation (WordPiece).
    marks = [mark for mark in ("Ġ", "▁") if sum(map(_starts(mark), pieces)) > len(pieces) / 10]
    begins = _starts(marks[0]) if marks else lambda piece: not piece.startswith("##")
    ids = [number for number, piece in enumerate(pieces) if begins(piece) and number not in special]
    words = (text.strip() for text in tokenizer.batch_decode([[number] for number in ids]))
    return {number: word for number, word in zip(ids, words, strict=True) if word.isalpha()}


def _starts(mark: str) -> Callable[[str], bool]:
    return lambda piece: piece.startswith(mark)

"""The auxiliary masked-language-model loss (Appendix A): a second pass over corrupted sentences.

15 % of the tokens are chosen, never special ones; of these 80 % become the mask token, 10 % a random token and
10 % stay. The prediction head starts from the checkpoint's own where it has one, over the encoder's own base.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import quiet
from twinpass.encoder.load import find_folder
from twinpass.errors import ConfigError, ModelError
from twinpass.training.chunked import cut_chunks
from twinpass.training.processes import Processes

IGNORED = -100


class Corrupted(NamedTuple):
    """A sentence with some tokens hidden, and what stood there (-100 elsewhere)."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]


class Corrupter:
    """Hides tokens of sentences at a rate."""

    def __init__(self, tokenizer: Any, *, rate: float, vocabulary: int) -> None:
        if tokenizer.mask_token_id is None:
            raise ConfigError(
                "mlm_weight needs a tokenizer with a mask token, and this model's has none. Leave it out."
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
    """A prediction head over an encoder's transformer, applied only where tokens were hidden."""

    def __init__(self, encoder: Encoder, head: Any, *, rate: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.corrupt = Corrupter(encoder.tokenizer, rate=rate, vocabulary=head.config.vocab_size)
        self.head = head
        self.states = _Given()
        # The head keeps its own way from states to scores; only what feeds it is replaced.
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
        """Take the checkpoint's own head; where it has none, a fresh one from a seed (with a warning) if allowed."""
        from transformers import AutoModelForMaskedLM

        folder = find_folder(encoder.name)
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
            warnings.warn(f"{encoder.name} has no masked-language-model head; a fresh one is trained.", stacklevel=2)
        return cls._over(encoder, head, rate=rate)

    @classmethod
    def empty(cls, encoder: Encoder, *, rate: float) -> MaskedLanguageModel:
        """Make a head of the right shape, for a checkpoint to fill."""
        from transformers import AutoModelForMaskedLM

        models: Any = AutoModelForMaskedLM
        head = models.from_config(encoder.model.transformer.config)
        return cls._over(encoder, head, rate=rate)

    def backward(
        self, ids: Sequence[Any], random: np.random.Generator, *, weight: float, processes: Processes
    ) -> float:
        """Send weight times the mean loss over all processes' hidden tokens back, chunk by chunk; return it."""
        accelerator = processes.accelerator
        corrupted = [self.corrupt(sentence, random) for sentence in ids]
        hidden = processes.total(sum(int((c.labels != IGNORED).sum()) for c in corrupted))
        total = 0.0
        for chunk in cut_chunks([c.ids for c in corrupted], [self.encoder] * len(corrupted)):
            with accelerator.autocast():
                loss = self._summed_loss([corrupted[place] for place in chunk.places]) * (weight / max(hidden, 1))
            if loss.requires_grad:
                accelerator.backward(loss)
            total += float(loss.detach())
        return processes.total(total)

    @classmethod
    def _over(cls, encoder: Encoder, head: Any, *, rate: float) -> MaskedLanguageModel:
        """Let a head share the encoder's transformer, and its word embeddings where they are tied."""
        setattr(head, head.base_model_prefix, encoder.model.transformer)
        head.tie_weights()
        return cls(encoder, head.to(encoder.device), rate=rate)

    def _summed_loss(self, sentences: Sequence[Corrupted]) -> Tensor:
        features = self.encoder.pad([sentence.ids.tolist() for sentence in sentences])
        labels = torch.full_like(features["input_ids"], IGNORED)
        for row, sentence in enumerate(sentences):
            labels[row, : len(sentence.labels)] = torch.from_numpy(sentence.labels)
        hidden = labels != IGNORED
        if not hidden.any():
            return torch.zeros(())
        return cross_entropy(self.scores(features, hidden).float(), labels[hidden], reduction="sum")

    def scores(self, features: dict[str, Tensor], hidden: Tensor) -> Tensor:
        """Return the vocabulary's scores at the hidden places alone, (places, vocabulary), in order."""
        transformer: Any = self.encoder.model.transformer
        self.states.given = transformer(**features, return_dict=True).last_hidden_state[hidden][None]
        scores: Tensor = self.head(input_ids=features["input_ids"]).logits[0]
        return scores


class _Given(nn.Module):
    """Stands where a head expects its transformer, and returns the states it was given."""

    given: Tensor

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return the given states in the shape of a transformer's output."""
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=self.given)

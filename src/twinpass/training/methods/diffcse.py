"""DiffCSE (Chuang et al., 2022): from a sentence's vector one can tell which words of it were replaced.

A generator, a masked language model that does not change, fills masked places of the sentence x: x'' = G(mask(x)). A
discriminator D reads x'' with the sentence's vector h in the place of its first token, and says of every other token
whether it was replaced. So h must hold what the words say, and not only what tells sentences apart:

    L = InfoNCE + lambda * mean over tokens t of -[x''_t = x_t] log D(x'', h, t) - [x''_t != x_t] log(1 - D(x'', h, t))

h goes through an MLP with batch normalisation for both losses, in training only, as in the authors' code; so do both
passes of a sentence, each with masks of its own. The generator fills in its likeliest word, as in their code (the paper
draws one). The discriminator starts as a copy of the encoder, and is kept in checkpoints only, as is the MLP.

The discriminator's gradient is computed first, chunk by chunk, for a copy g of the gradient of h; then sum(h * g) takes
its place in the loss. So memory is bounded by `chunk_tokens`, and every process adds the part of its own sentences.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.training.chunked import cut_chunks
from twinpass.training.method import METHODS, Numbers, Start
from twinpass.training.methods.mlm import MaskedLanguageModel, trust_of, weights_of
from twinpass.training.methods.simcse import OfSentences

Row = NDArray[np.int64]


@METHODS.register("diffcse")
class DiffCSE(OfSentences):
    """SimCSE with a discriminator that finds replaced tokens with the help of the vector."""

    title = "DiffCSE (Chuang et al., 2022)"
    objective = "DiffCSE (Chuang et al.): SimCSE, and replaced tokens that the vector helps to find"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        (self.encoder,) = self.encoders
        run, given = self.run, start.encoder
        name = run.generator or (run.model if given is None else given.name)
        self.generator = load_generator(name, self.encoder, run)
        self.begins_with("generator", name, hashlib.sha256(weights_of(name, **trust_of(run)).encode()))
        width = self.encoder.dimensions
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.seed)
            self.projector = Projector(width).to(self.device)
            self.discriminator = Discriminator(self.encoder).to(self.device)
        self.heads = {"projector": self.projector, "discriminator": self.discriminator}
        self.special = np.array(sorted(self.encoder.tokenizer.all_special_ids))

    def compare(self, vectors: Tensor, mask: Tensor | None, step: int, examples: Numbers) -> Tensor:
        """Add the loss of the discriminator to the contrastive loss of the projected vectors."""
        projected = self._project_all(vectors)
        contrast = super().compare(projected, mask, step, examples)
        value, gradient = self._discriminate(projected.detach(), step, examples)
        through = (projected * gradient).sum()
        return contrast + (through - through.detach() + self.processes.total(value))

    def _project_all(self, vectors: Tensor) -> Tensor:
        """Return the MLP of the whole batch, whose mean it needs; the MLP's own gradient is the main process's."""
        flat = vectors.flatten(0, 1)
        counts = self.processes.is_main
        parameters = {name: one if counts else one.detach() for name, one in self.projector.named_parameters()}
        projected: Tensor = functional_call(self.projector, parameters, (flat,))
        return projected.view_as(vectors)

    def _discriminate(self, vectors: Tensor, step: int, examples: Numbers) -> tuple[float, Tensor]:
        """Propagate this process's part of the loss; return it, and the gradient of all vectors (passes, N, d)."""
        places = self.processes.share(np.arange(len(examples)))
        original = [self.data.ids(text).astype(np.int64) for text in self.data.columns(examples[places])[0]] * 2
        edited = self.edit(original, step, examples[places].tolist() * 2)
        counted = self.processes.total(sum(len(row) - 1 for row in original))
        leaf = vectors[:, places].flatten(0, 1).requires_grad_()
        weight, accelerator, total = self.run.rtd_weight / max(counted, 1), self.processes.accelerator, 0.0
        for chunk in cut_chunks(edited, [self.encoder] * len(edited), token_budget=self.run.chunk_tokens):
            features = self.encoder.pad([edited[place] for place in chunk.places])
            truth = self.encoder.pad([original[place] for place in chunk.places])["input_ids"]
            with accelerator.autocast():
                scores = self.discriminator(features, leaf[torch.from_numpy(chunk.places)])
            loss = weight * replaced_token_loss(scores.float(), features, truth)
            accelerator.backward(loss)
            total += float(loss.detach())
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        if accelerator.scaler is not None:  # the loss that it becomes part of is scaled again
            gradient = gradient / accelerator.scaler.get_scale()
        return total, self.processes.gather(gradient.view(2, len(places), -1), len(examples))

    @torch.no_grad()
    def edit(self, rows: list[Row], step: int, numbers: list[int]) -> list[Row]:
        """Return sentences in which the generator has filled in some masked tokens, the same for a step and a row."""
        edited, first = [row.copy() for row in rows], len(rows) // 2
        for place, (row, number) in enumerate(zip(edited, numbers, strict=True)):
            draw = np.random.default_rng([self.run.seed, step, number, place // max(first, 1)])
            chosen = (draw.random(len(row)) < self.run.mlm_rate) & ~np.isin(row, self.special)
            row[chosen] = self.generator.corrupt.mask_id
        for chunk in cut_chunks(edited, [self.generator.encoder] * len(edited), token_budget=self.run.chunk_tokens):
            features = self.generator.encoder.pad([edited[place] for place in chunk.places])
            hidden = features["input_ids"] == self.generator.corrupt.mask_id
            filled = features["input_ids"].clone()
            if hidden.any():
                filled[hidden] = self.generator.scores(features, hidden).argmax(dim=1)
            for row, place in zip(filled.cpu().numpy(), chunk.places.tolist(), strict=True):
                edited[place] = row[: len(edited[place])]
        return edited


class Projector(nn.Sequential):
    """The MLP of the authors' code; its means and deviations are always those of the batch."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Linear(width, 2 * width, bias=False),
            nn.BatchNorm1d(2 * width, track_running_stats=False),
            nn.ReLU(),
            nn.Linear(2 * width, width, bias=False),
            nn.BatchNorm1d(width, affine=False, track_running_stats=False),
        )


class Discriminator(nn.Module):
    """A copy of an encoder's transformer that reads a vector in the place of the first token's embedding."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        transformer: Any = copy.deepcopy(encoder.model.transformer)
        width = int(transformer.config.hidden_size)
        embeddings = getattr(transformer, "embeddings", None)
        size = getattr(transformer.config, "embedding_size", width)
        if embeddings is None or size != width or encoder.dimensions != width:
            raise ConfigError(
                f"diffcse puts a sentence's vector in the place of a token's embedding; {encoder.name} has vectors of "
                f"{encoder.dimensions} dimensions and embeddings of {size}. Use a model like BERT, RoBERTa or "
                "DistilBERT and the pooler cls or avg."
            )
        self.transformer = transformer
        self.found = nn.Linear(width, 1)

    def forward(self, features: dict[str, Tensor], vectors: Tensor) -> Tensor:
        """Return for every token a score, above 0 where it seems to be replaced."""
        with self._first_token(vectors):
            states = self.transformer(**features, return_dict=True).last_hidden_state
        scores: Tensor = self.found(states).squeeze(-1)
        return scores

    @contextmanager
    def _first_token(self, vectors: Tensor) -> Iterator[None]:
        def put(_: Any, __: Any, embedded: Tensor) -> Tensor:
            return torch.cat([vectors[:, None].to(embedded.dtype), embedded[:, 1:]], dim=1)

        transformer: Any = self.transformer
        handle = transformer.embeddings.register_forward_hook(put)
        try:
            yield
        finally:
            handle.remove()


def replaced_token_loss(scores: Tensor, features: dict[str, Tensor], original: Tensor) -> Tensor:
    """Return the summed cross-entropy of "this token was replaced", over all tokens but the first and padding."""
    counted = features["attention_mask"].bool().clone()
    counted[:, 0] = False
    replaced = (features["input_ids"] != original).to(scores.dtype)
    return binary_cross_entropy_with_logits(scores[counted], replaced[counted], reduction="sum")


def load_generator(name: str, encoder: Encoder, run: Run) -> MaskedLanguageModel:
    """Load the masked language model that edits sentences; it must read the encoder's tokens."""
    trust: dict[str, Any] = trust_of(run)
    reader = Encoder.load(name, pooler="avg", device=str(encoder.device), **trust)
    if reader.tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
        raise ConfigError(
            f"the generator {name} has another vocabulary than {encoder.name}, so its words cannot be put into its "
            "sentences. Use a masked language model with the same tokenizer."
        )
    generator = MaskedLanguageModel.load(reader, rate=run.mlm_rate, seed=0, may_be_fresh=False, **trust)
    reader.model.requires_grad_(False)
    return generator.eval()

"""PromptBERT (Jiang et al., 2022): a sentence's vector is the state of the mask token in a template around it.

    This sentence of "[X]" means [MASK] .        h_i: the state of [MASK] in the first pass
    This sentence : "[X]" means [MASK] .         h'_i: in the second

The template alone leaves a trace in both, which training removes (template denoising): b_i is the state of [MASK] in
the template without the sentence, every token of it at the position that it has around sentence i:

    l_i = -log  exp(cos(h_i - b_i, h'_i - b'_i) / tau) / sum_j exp(cos(h_i - b_i, h'_j - b'_j) / tau)

As in the authors' code, an MLP follows the difference in training, and at test time the vector is h_i of the first
template: no MLP, nothing subtracted. The folder keeps that template (`encoder/template.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twinpass.encoder.encoder import Encoder
from twinpass.encoder.model import SentenceModel, fresh_head
from twinpass.encoder.template import Frame, resolve
from twinpass.encoder.tokens import Tokens
from twinpass.errors import ConfigError
from twinpass.training.chunked import Ids
from twinpass.training.data import Tokenize
from twinpass.training.method import METHODS, Numbers, Start
from twinpass.training.methods.simcse import OfSentences


class OfTemplates(OfSentences):
    """What the methods share that read the mask token: passes after the first are behind the second template."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.models = {"encoder": self.encoders[0]}  # the second one is the same network behind another template

    def _load_encoders(self) -> list[Encoder]:
        first = super()._load_encoders()[0]
        if first.tokens.frame is None:
            return [first]
        return [first, behind(first, self.run.second_template or self.run.template or "")]

    def tokenizer(self, encoder: Encoder) -> Tokenize:
        """Return the tokenizer of the first template, with room for the second one where that is longer."""
        first, *second = (each.tokens.frame for each in self.encoders)
        longer = [len(frame) - len(first) for frame in second if frame is not None and first is not None]
        return partial(encoder.tokenize, max_tokens=self.token_limit(encoder) - max([0, *longer]))

    def passes(self, step: int, own: Numbers) -> list[Ids]:
        """Return the sentences in the first template and in the second."""
        ids, again = super().passes(step, own)
        return [ids, self.in_second_template(again)]

    def in_second_template(self, ids: Ids) -> Ids:
        """Return sentences in the second template, from those in the first; as they are where there is none."""
        first, last = self.encoders[0].tokens.frame, self.encoders[-1].tokens.frame
        if first is None or last is None:
            return ids
        bare = (row[len(first.before) : len(row) - len(first.after)].tolist() for row in ids)
        return [[*last.before, *row, *last.after] for row in bare]


@METHODS.register("promptbert")
class PromptBERT(OfTemplates):
    """SimCSE whose two passes are two templates around a sentence, each without the template's own trace."""

    title = "PromptBERT (Jiang et al., 2022)"
    objective = "PromptBERT (Jiang et al.): the mask token of two templates around a sentence, denoised"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        frame_of(self.encoders[0])
        self.mlp = training_mlp(self.encoders[0], self.run.seed)
        self.heads = {"mlp": self.mlp}
        _check_positions(self.encoders[0])

    def project(self, vectors: Tensor, passes: Sequence[Ids]) -> Tensor:
        """Subtract what the template alone makes of the mask token, and apply the MLP."""
        if not vectors.shape[1]:
            return vectors
        biases = [self.biases(encoder, ids) for encoder, ids in zip(self.encoders, passes, strict=True)]
        projected: Tensor = self.mlp(vectors - torch.stack(biases))
        return projected

    def biases(self, encoder: Encoder, ids: Ids) -> Tensor:
        """Return b_i (n, d): the template alone, at the positions that it has around each sentence."""
        frame = frame_of(encoder)
        # Sentences of one length have one bias.
        lengths, rows = np.unique([len(row) - len(frame) for row in ids], return_inverse=True)
        distinct, which = (torch.from_numpy(each).to(encoder.device) for each in (lengths, rows))
        features = encoder.pad([[*frame.before, *frame.after]] * len(distinct))
        places = torch.arange(len(frame), device=encoder.device) + _first_position(encoder)
        after = torch.arange(len(frame), device=encoder.device) >= len(frame.before)
        features["position_ids"] = places + after * distinct[:, None]
        with self.processes.accelerator.autocast():
            made: Tensor = encoder.model(features)
        return made.float()[which]


def frame_of(encoder: Encoder) -> Frame:
    """Return the token ids that an encoder puts around a text."""
    frame = encoder.tokens.frame
    if frame is None:
        raise ConfigError(
            f"promptbert needs an encoder with the pooler 'mask'; {encoder.name} has {encoder.pooler!r}. Load it with "
            "pooler='mask', or name the model in the run."
        )
    return frame


def behind(encoder: Encoder, template: str) -> Encoder:
    """Return an encoder that shares everything with this one but the template."""
    tokenizer, old = encoder.tokenizer, encoder.model
    settings = replace(encoder.settings, template=resolve(template, tokenizer.mask_token, encoder.name))
    tokens = Tokens(
        tokenizer,
        pad_id=encoder.tokens.pad_id,
        takes_types=encoder.tokens.takes_types,
        limit=encoder.tokens.limit,
        lowercase=settings.lowercase,
        prompt=settings.prompt,
        template=settings.template,
    )
    assert tokens.frame is not None
    place = tokens.frame.place(tokenizer.mask_token_id)
    transformer: Any = old.transformer
    model = SentenceModel(transformer, pooler=encoder.pooler, head=None, layers=old.layers, place=place)
    return Encoder(model, tokens, settings, name=encoder.name, device=encoder.device)


def training_mlp(encoder: Encoder, seed: int) -> torch.nn.Module:
    """Return a new Linear + tanh over an encoder's vectors, for training only."""
    config: Any = encoder.model.transformer.config
    deviation = getattr(config, "initializer_range", 0.02)
    return fresh_head(encoder.dimensions, seed=seed, deviation=deviation).to(encoder.device)


def _first_position(encoder: Encoder) -> int:
    """Return the position of a row's first token: 0, or in RoBERTa's family the one after the padding token's."""
    offset = getattr(getattr(encoder.model.transformer, "embeddings", None), "padding_idx", None)
    return 0 if offset is None else int(offset) + 1


def _check_positions(encoder: Encoder) -> None:
    if "position_ids" not in inspect.signature(encoder.model.transformer.forward).parameters:
        kind = type(encoder.model.transformer).__name__
        raise ConfigError(
            f"promptbert's denoising sets the positions of tokens, and {kind} of {encoder.name} takes none. Use a "
            "model like BERT, RoBERTa or DistilBERT."
        )

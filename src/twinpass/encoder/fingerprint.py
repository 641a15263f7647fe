"""The fingerprint of a model in torch: a SHA-256 over everything that its vectors depend on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import torch

from twinpass.encoder.folder import Settings
from twinpass.encoder.load import DROPOUT_FIELDS
from twinpass.encoder.model import SentenceModel, WeightsSeen
from twinpass.encoder.tokens import Tokens

# Fields of a config that do not change vectors: its history, and what only training or the caller uses.
_NOT_IN_FINGERPRINT = {"_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype"}
_NOT_IN_FINGERPRINT |= {"output_hidden_states", *DROPOUT_FIELDS}


class Fingerprint:
    """Computes a fingerprint, and again only after a change of weights, layers, settings or tokenizer."""

    def __init__(self) -> None:
        self._kept: tuple[WeightsSeen, tuple[object, ...], str] | None = None

    def of(self, model: SentenceModel, tokens: Tokens, settings: Settings) -> str:
        """Return the SHA-256 over weights, settings and the tokenizer's rules."""
        settings = replace(settings, transformer="", head=None, layers=(), base="", matryoshka=())
        transformer: Any = model.transformer
        config = {k: v for k, v in transformer.config.to_dict().items() if k not in _NOT_IN_FINGERPRINT}
        described = json.dumps(config, sort_keys=True, default=str)
        marks = (settings, repr(model.layers), described, tokens.marks())
        kept = self._kept
        if kept is not None and kept[1] == marks and kept[0].unchanged(model):
            return kept[2]
        seen = WeightsSeen(model)
        rules = json.dumps(tokens.rules(), sort_keys=True)
        digest = hashlib.sha256(repr((settings, model.layers, described, rules)).encode())
        if settings.template:  # not part of the settings' repr: what has none keeps the fingerprint it always had
            digest.update(settings.template.encode())
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        self._kept = (seen, marks, digest.hexdigest())
        return digest.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": None}  # what is kept refers to weights of this process

"""What is trained: the encoder or encoders, the head of the auxiliary loss, and the optimizer over them."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import read_foreign_settings, read_settings
from twinpass.encoder.load import find_folder
from twinpass.training.checkpoint import SECOND
from twinpass.training.mlm import MaskedLanguageModel
from twinpass.training.processes import Processes


def load_encoders(run: Run, device: torch.device, given: Encoder | None, folder: Path | None) -> list[Encoder]:
    """Load one encoder, or two for a dual encoder, from the checkpoint if there is one, ready to train."""
    if folder is not None:
        encoders = [_load(run, place, device) for place in (folder, folder / SECOND)[: _count(run)]]
    elif given is not None:
        encoders = [given, *(copy.deepcopy(given) for _ in range(1, _count(run)))]
    else:
        # Both start from the same checkpoint; where a head is fresh, each has its own.
        encoders = [
            _load(run, run.model, device, pooler=_pooler(run), seed=run.seed + place) for place in range(_count(run))
        ]
    for encoder in encoders:
        encoder.model.train()
        if run.grad_checkpointing:
            encoder.model.transformer.gradient_checkpointing_enable()  # type: ignore[operator]
    return encoders


def load_mlm(run: Run, encoder: Encoder, *, resumed: bool) -> MaskedLanguageModel | None:
    """Load the head of the masked-language-model loss if the run has one; a checkpoint fills its own."""
    if run.mlm_weight == 0:
        return None
    if resumed:
        return MaskedLanguageModel.empty(encoder, rate=run.mlm_rate)
    return MaskedLanguageModel.load(
        encoder,
        rate=run.mlm_rate,
        seed=run.seed,
        trust_pickle=run.trust_pickle,
        trust_remote_code=run.trust_remote_code,
    )


def name_parameters(encoders: list[Encoder], mlm: MaskedLanguageModel | None) -> dict[nn.Parameter, str]:
    """Name every trained parameter once, whatever is tied to what."""
    names: dict[nn.Parameter, str] = {}
    modules = [(f"encoder{place}", encoder.model) for place, encoder in enumerate(encoders)]
    for prefix, module in [*modules, *([("mlm", mlm.head)] if mlm else [])]:
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                names.setdefault(parameter, f"{prefix}.{name}")
    return names


def make_optimizer(run: Run, names: dict[nn.Parameter, str], processes: Processes) -> torch.optim.Optimizer:
    """Make AdamW over the named parameters."""
    fused = processes.accelerator.device.type in ("cpu", "cuda")
    return torch.optim.AdamW(list(names), lr=run.learning_rate, weight_decay=run.weight_decay, fused=fused)


def token_limit(run: Run, encoder: Encoder) -> int:
    """Return where sentences are cut in training: the run's limit, or the model's where that is lower."""
    return min(run.max_tokens, encoder.max_tokens or run.max_tokens)


def _count(run: Run) -> int:
    return 2 if run.dual_encoder else 1


def _load(
    run: Run, name: str | Path, device: torch.device, *, pooler: str | None = None, seed: int | None = None
) -> Encoder:
    return Encoder.load(
        name,
        pooler=pooler,
        device=str(device),
        dropout=run.dropout,
        fresh_head_seed=seed,
        trust_pickle=run.trust_pickle,
        trust_remote_code=run.trust_remote_code,
    )


def _pooler(run: Run) -> str | None:
    """Return the pooler to ask for: the run's, or None for the model's own, or the paper's for a bare model."""
    if run.pooler is not None:
        return run.pooler
    folder = find_folder(run.model, trust_pickle=run.trust_pickle)
    if read_settings(folder) or read_foreign_settings(folder):
        return None
    supervised = run.view != "dropout" and run.positive is None
    return "cls_mlp" if supervised else "cls_mlp_train"

"""LoRA (Hu et al., 2022) by the library peft: low-rank matrices beside the frozen ones of a transformer.

A frozen W of a linear layer becomes W + alpha / rank * B A, of which only B and A are trained. Every linear layer in
the transformer's numbered layers has them: attention and feed-forward, in any architecture. An adapter folder is in
peft's layout (adapter_config.json, adapter_model.safetensors) and names the model that it belongs to.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from twinpass.encoder.folder import Settings, hash_weights, path_of
from twinpass.errors import ConfigError, MissingExtra, ModelError

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = "default"  # of the one adapter, as peft calls it
_PREFIX = "base_model.model."  # of the names in a file, as peft writes them


def add_lora(encoder: Encoder, rank: int, alpha: int) -> None:
    """Freeze a model's transformer, and put trainable matrices beside its linear layers."""
    from twinpass.encoder.load import BUILTIN

    peft = _peft()
    named = path_of(encoder.name)
    base = str(named.resolve()) if named.is_dir() and encoder.name != BUILTIN else encoder.name
    folder = find_base(base, folder=named)
    if (folder / CONFIG).is_file():
        raise ConfigError(f"{base} is an adapter itself. Start from a merged model: train it with lora_merge.")
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=_targets(encoder.model.transformer),
        task_type="FEATURE_EXTRACTION",
        base_model_name_or_path=base,
    )
    peft.inject_adapter_in_model(config, encoder.model.transformer, adapter_name=_NAME)
    encoder.model.to(encoder.device)
    for name, parameter in encoder.model.transformer.named_parameters():
        parameter.requires_grad_("lora_" in name)
    encoder.settings = replace(encoder.settings, base=base, base_weights=hash_weights(folder))


def save_adapter(folder: Path, transformer: Any) -> None:
    """Write the adapter of a transformer as peft does; whatever is frozen is not written."""
    transformer.peft_config[_NAME].save_pretrained(str(folder))
    tensors = {
        _PREFIX + name.replace(f".{_NAME}.", "."): tensor.detach().cpu().contiguous()
        for name, tensor in transformer.state_dict().items()
        if ".lora_" in name
    }
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def load_adapter(folder: Path, transformer: Any) -> None:
    """Put the adapter of a folder into the transformer that it was trained for."""
    peft = _peft()
    config = peft.LoraConfig.from_pretrained(str(folder))
    peft.inject_adapter_in_model(config, transformer, adapter_name=_NAME)
    tensors = {_inside(name): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    own = {name: tensor.shape for name, tensor in transformer.state_dict().items() if ".lora_" in name}
    if {name: tensor.shape for name, tensor in tensors.items()} != own:
        raise ModelError(f"{folder / WEIGHTS} does not fit its model: names or shapes differ. Train the adapter again.")
    transformer.load_state_dict(tensors, strict=False)
    for name, parameter in transformer.named_parameters():
        parameter.requires_grad_("lora_" in name)


def merge_adapter(transformer: nn.Module) -> None:
    """Add the low-rank matrices to the frozen ones, and leave a transformer as if it had never had any."""
    with torch.no_grad():
        for name, module in list(transformer.named_modules()):
            if not _is_adapted(module):
                continue
            adapted: Any = module
            adapted.base_layer.weight += adapted.get_delta_weight(_NAME)
            parent, _, own = name.rpartition(".")
            setattr(transformer.get_submodule(parent), own, adapted.base_layer)
    del transformer.peft_config
    for parameter in transformer.parameters():
        parameter.requires_grad_(True)


def merged(encoder: Encoder) -> Encoder:
    """Return an encoder whose adapter, if it has one, is part of its weights; it is changed in place."""
    if encoder.settings.base:
        merge_adapter(encoder.model.transformer)
        encoder.settings = replace(encoder.settings, base="", base_weights="")
    return encoder


def find_base(name: str, *, folder: Path) -> Path:
    """Return the folder of the model that an adapter belongs to; only of this machine, since a file names it."""
    from twinpass.encoder.load import BUILTIN, find_minilm

    if name == BUILTIN:
        return find_minilm()
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"{folder} is an adapter of {name}, which is not on this machine. Load that model once by its name, put it "
            f"back where it was, or correct 'base' in {folder / 'twinpass.json'}."
        ) from error


def check_base(settings: Settings, home: Path, *, folder: Path) -> None:
    """Raise ModelError if the weights that an adapter was trained beside have changed since."""
    if settings.base_weights and hash_weights(home) != settings.base_weights:
        raise ModelError(
            f"{folder} is an adapter of {settings.base}, whose weights are not those that it was trained with: its "
            "vectors would be wrong. Put the model back as it was, or train the adapter again."
        )


def _targets(transformer: nn.Module) -> str:
    """Return a pattern of the names of all linear layers inside numbered layers."""
    inner = re.compile(r"(?:.*\.)?\d+\.(.+)")
    found = [inner.fullmatch(name) for name, module in transformer.named_modules() if type(module) is nn.Linear]
    names = sorted({match[1] for match in found if match})
    if not names:
        raise ConfigError(f"a {type(transformer).__name__} has no linear layers that LoRA could adapt.")
    return rf"(?:.*\.)?\d+\.({'|'.join(re.escape(name) for name in names)})"


def _is_adapted(module: nn.Module) -> bool:
    return hasattr(module, "base_layer") and hasattr(module, "get_delta_weight")


def _inside(name: str) -> str:
    """Return the name inside a transformer of a tensor that peft wrote."""
    start, _, last = name.removeprefix(_PREFIX).rpartition(".")
    return f"{start}.{_NAME}.{last}"


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise MissingExtra("LoRA", "lora") from error
    return peft

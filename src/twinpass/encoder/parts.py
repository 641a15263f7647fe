"""The parts of a model folder that hold weights, which need torch: layers are read, whole models are written."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from twinpass.encoder.checksums import write_checksums
from twinpass.encoder.flow import Flow
from twinpass.encoder.folder import (
    FILE,
    FORMAT,
    NORMALIZE,
    REFUSAL,
    SWITCHES,
    Settings,
    inside,
    pickle_refused,
    read_json,
)
from twinpass.encoder.lora import save_adapter
from twinpass.encoder.model import ACTIVATIONS, Dense, Normalize, SentenceModel
from twinpass.encoder.pooling import POOLERS, Pooler, find_pooler
from twinpass.encoder.tokens import Tokens
from twinpass.errors import ModelError
from twinpass.files import UMASK, explaining, flush, write_json, writing_folder

FLOW = "flow"


def read_layer(folder: Path, name: str, *, trust_pickle: bool = False) -> nn.Module:
    """Load one layer that follows the pooler; a missing one is an error, never a random layer."""
    if name == NORMALIZE:
        return Normalize()
    place = inside(folder, name)
    config = read_json(place / "config.json")
    layer: nn.Module
    if config.get("kind") == FLOW:
        layer = Flow(config["dimensions"], levels=config["levels"], depth=config["depth"], width=config["width"])
    else:
        activation = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
        if activation not in ACTIVATIONS or config.get("use_residual"):
            raise ModelError(
                f"{place / 'config.json'}: unknown activation {activation!r} or a residual. "
                f"Known: {', '.join(ACTIVATIONS)}."
            )
        sizes = config["in_features"], config["out_features"]
        layer = Dense(*sizes, bias=config.get("bias", True), activation=activation)
    safe, pickled = place / "model.safetensors", place / "pytorch_model.bin"
    if safe.is_file():
        weights = load_file(safe)
    elif not pickled.is_file():
        raise ModelError(
            f"{safe} is missing: this layer belongs to the model and is never made up. "
            "Save or download the model again."
        )
    elif trust_pickle:
        weights = torch.load(pickled, map_location="cpu", weights_only=True)
    else:
        raise pickle_refused(str(pickled))
    layer.load_state_dict({key: tensor.float() for key, tensor in weights.items()})
    return layer


def save_model(target: Path, model: SentenceModel, tokens: Tokens, settings: Settings, *, whole: Any = None) -> None:
    """Write a new folder whole or not at all; into an existing one, move finished files only.

    `whole` is a transformers model that holds the transformer and more, and is saved in its place.
    """
    if not target.exists():
        with writing_folder(target) as aside:
            _write(aside, model, tokens, settings, whole)
        return
    with explaining(target):
        aside = Path(tempfile.mkdtemp(prefix=".saving.", dir=target))
        try:
            _write(aside, model, tokens, settings, whole)
            _move_into(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _move_into(aside: Path, target: Path) -> None:
    """Replace files by the finished ones, the settings last, and leave no weights of another model."""
    files = sorted((path for path in aside.rglob("*") if path.is_file()), key=lambda path: path.name == FILE)
    for path in files:  # all of them on the disk first: a finished run deletes its checkpoints after this
        flush(path)
    for pattern in ("modules.json", "*model*.safetensors", "adapter_config.json", "model.safetensors.index.json"):
        for old in target.glob(pattern):
            if not (aside / old.name).exists():
                old.unlink()
    for path in files:
        place = target / path.relative_to(aside)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)


def _write(folder: Path, model: SentenceModel, tokens: Tokens, settings: Settings, whole: Any) -> None:
    settings = _write_layers(folder, model, settings)
    transformer: Any = model.transformer
    before = transformer.config.output_hidden_states
    # sentence-transformers passes on every layer's states only if the config asks for them.
    transformer.config.output_hidden_states = model.pooler.layers is not None
    with quiet():
        if settings.base:
            save_adapter(folder, transformer)
        else:
            (transformer if whole is None else whole).save_pretrained(folder)
        tokens.save(folder)
    transformer.config.output_hidden_states = before
    refusal = None if settings.base else _write_modules(folder, settings, transformer)
    if settings.base:
        _write_list(folder, [(REFUSAL, "")])
    elif refusal:  # without a list of modules, sentence-transformers would take the mean of the last layer
        _write_list(folder, [(REFUSAL, "")])
        warnings.warn(f"sentence-transformers cannot load this model: {refusal}. twinpass can.", stacklevel=4)
    write_json(folder / FILE, {"format": FORMAT, **settings.document()})
    for weights in folder.rglob("*.safetensors"):  # which safetensors lets nobody but the owner read
        weights.chmod(0o666 & ~UMASK)
    write_checksums(folder)


def _write_layers(folder: Path, model: SentenceModel, settings: Settings) -> Settings:
    """Write head and layers into numbered folders and return settings that name those."""
    head = None
    if isinstance(model.head, Dense):
        head = "2_Dense" if model.pooler.head == "kept" else "training_head"
        write_layer(folder / head, model.head)
    names = []
    for place, layer in enumerate(model.layers.children(), start=3):
        names.append(NORMALIZE if isinstance(layer, Normalize) else f"{place}_{type(layer).__name__}")
        if names[-1] != NORMALIZE:
            write_layer(folder / names[-1], layer)
    return replace(settings, transformer="", head=head, layers=tuple(names))


def write_layer(folder: Path, layer: nn.Module) -> None:
    """Write a layer's folder: a Dense in the layout that both libraries read, a Flow in our own."""
    if isinstance(layer, Flow):
        config: dict[str, Any] = {"kind": FLOW, **layer.settings}
    elif isinstance(layer, Dense):
        activation = type(layer.activation)
        config = {
            "in_features": layer.linear.in_features,
            "out_features": layer.linear.out_features,
            "bias": layer.linear.bias is not None,
            "activation_function": f"{activation.__module__}.{activation.__name__}",
        }
    else:
        raise ModelError(f"a layer of kind {type(layer).__name__} cannot be saved.")
    _write_part(folder, config, layer.state_dict())


def _write_part(folder: Path, config: dict[str, Any], weights: Mapping[str, torch.Tensor] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    if weights is not None:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")


def _write_modules(folder: Path, settings: Settings, transformer: Any) -> str | None:
    """Describe the folder to sentence-transformers, or return why that cannot be done."""
    pooler = find_pooler(settings.pooler)
    modes = _foreign_modes(settings.pooler, pooler)
    if any(name.endswith(Flow.__name__) for name in settings.layers):
        return "it has no layer like a flow"
    if pooler.layers is not None and "+" in settings.pooler:
        return "it cannot concatenate averages of several layers"
    if modes is None:
        return f"it has no pooling like {settings.pooler!r}"
    width, modules = transformer.config.hidden_size, [("Transformer", "")]
    if pooler.layers is not None:  # an average of several layers: weights over all of them
        depth = transformer.config.num_hidden_layers
        weights = torch.zeros(depth + 1)
        for layer in pooler.layers:
            weights[layer] += 1.0
        sizes = {"word_embedding_dimension": width, "layer_start": 0, "num_hidden_layers": depth}
        _write_part(folder / "1_WeightedLayerPooling", sizes, {"layer_weights": weights})
        modules.append(("WeightedLayerPooling", "1_WeightedLayerPooling"))
    switches = {switch: mode in modes for switch, mode in SWITCHES.items()}
    _write_part(folder / "1_Pooling", {"word_embedding_dimension": width, **switches})
    modules.append(("Pooling", "1_Pooling"))
    if settings.pooler == "cls_pretrained":
        write_layer(folder / "2_Dense", _pretrained_pooler(transformer))
        modules.append(("Dense", "2_Dense"))
    elif settings.head is not None and pooler.head == "kept":
        modules.append(("Dense", settings.head))
    modules += [("Normalize", "9_Normalize") if name == NORMALIZE else ("Dense", name) for name in settings.layers]
    _write_list(folder, modules)
    limits = {"max_seq_length": settings.max_tokens, "do_lower_case": settings.lowercase}
    write_json(folder / "sentence_bert_config.json", limits)
    prompts = {"default": settings.prompt} if settings.prompt else {}
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": "default" if prompts else None, "similarity_fn_name": "cosine"},
    )
    return None


def _write_list(folder: Path, modules: list[tuple[str, str]]) -> None:
    listed = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)


def _foreign_modes(name: str, pooler: Pooler) -> list[str] | None:
    if pooler.layers is not None:
        return ["mean"]
    if name == "cls_pretrained":
        return ["cls"]
    modes = [POOLERS[part].mode for part in name.split("+")]
    # sentence-transformers concatenates in a fixed order; another order cannot be written down.
    ordered = [mode for mode in SWITCHES.values() if mode in modes]
    return ordered if ordered == modes else None


def _pretrained_pooler(transformer: Any) -> Dense:
    """Copy the checkpoint's pooler, a Linear and a tanh in every family that has one, into a Dense."""
    linear = getattr(transformer.pooler, "dense", transformer.pooler)
    layer = Dense(linear.in_features, linear.out_features, activation="Tanh")
    layer.linear.load_state_dict(linear.state_dict())
    return layer


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' reports and progress bars: what matters of them is checked here."""
    from transformers.utils import logging

    library: Any = logging
    level, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity(library.CRITICAL)
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(level)
        if bars:
            library.enable_progress_bar()

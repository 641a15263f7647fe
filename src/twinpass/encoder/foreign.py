"""Folders in sentence-transformers' layout (modules.json): read as they say, written so that they load there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from twinpass.encoder.flow import Flow
from twinpass.encoder.model import ACTIVATIONS, Dense, Normalize
from twinpass.encoder.pooling import POOLERS, Pooler, find_pooler
from twinpass.encoder.settings import Settings, inside, read_any_json, read_json
from twinpass.errors import ModelError
from twinpass.files import write_json

NORMALIZE = "normalize"
FLOW = "flow"
REFUSAL = "OnlyTwinpassLoadsThisModel"  # no module of theirs, so that loading fails by this name
# Their switches of old, in the order in which they concatenate, and their names of the same modes now.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLER_OF_MODE = {POOLERS[name].mode: name for name in POOLERS if POOLERS[name].head == "none" and POOLERS[name].mode}


def read_foreign_settings(folder: Path) -> Settings | None:
    """Return what modules.json says, or None where there is none."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    modules = read_any_json(path)
    if not isinstance(modules, list) or not all(isinstance(each, dict) and "type" in each for each in modules):
        raise ModelError(f"{path}: expected a list of modules, each with a type. The file is damaged.")
    transformer, pooler, layers = "", None, []
    for module in modules:
        kind, place = module["type"].rsplit(".", 1)[-1], module.get("path", "")
        if kind == "Transformer":
            transformer = place
        elif kind == "Pooling":
            pooler = _read_pooling(inside(folder, place))
        elif kind == "Dense":
            layers.append(place)
        elif kind == "Normalize":
            layers.append(NORMALIZE)
        elif kind != "Dropout":  # which does nothing at test time
            raise ModelError(
                f"{path}: twinpass cannot run a module of kind {kind!r}; "
                "it knows Transformer, Pooling, Dense, Dropout and Normalize."
            )
    if pooler is None:
        raise ModelError(f"{path}: it names no Pooling module, so there is no way to one vector per sentence.")
    text = _read_text_settings(folder, inside(folder, transformer))
    return Settings(pooler=pooler, transformer=transformer, layers=tuple(layers), **text)


def _read_pooling(folder: Path) -> str:
    config = read_json(folder / "config.json")
    modes = config.get("pooling_mode") or [mode for switch, mode in _SWITCHES.items() if config.get(switch)]
    modes = [modes] if isinstance(modes, str) else list(modes) or ["mean"]
    unknown = [mode for mode in modes if mode not in _POOLER_OF_MODE]
    if unknown or not config.get("include_prompt", True):
        raise ModelError(
            f"{folder / 'config.json'}: twinpass cannot pool like this "
            f"(modes {modes}, include_prompt {config.get('include_prompt', True)})."
        )
    return "+".join(_POOLER_OF_MODE[mode] for mode in modes)


def _read_text_settings(folder: Path, transformer: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    # Named after the model's family in older folders: sentence_roberta_config.json and the like.
    for limits in sorted(transformer.glob("sentence_*_config.json"))[:1]:
        config = read_json(limits)
        settings = {"max_tokens": config.get("max_seq_length"), "lowercase": bool(config.get("do_lower_case"))}
    prompts = folder / "config_sentence_transformers.json"
    if prompts.is_file():
        config = read_json(prompts)
        settings["prompt"] = (config.get("prompts") or {}).get(config.get("default_prompt_name"), "")
    return settings


def read_layer(folder: Path, name: str, *, trust_pickle: bool = False) -> nn.Module:
    """Load one layer that follows the pooler; a missing one is an error, never a random layer."""
    if name == NORMALIZE:
        return Normalize()
    place = inside(folder, name)
    config = read_json(place / "config.json")
    layer = _empty_flow(config) if config.get("kind") == FLOW else _empty_dense(config, place)
    layer.load_state_dict(_read_weights(place, trust_pickle=trust_pickle))
    return layer


def _empty_flow(config: dict[str, Any]) -> Flow:
    return Flow(config["dimensions"], levels=config["levels"], depth=config["depth"], width=config["width"])


def _empty_dense(config: dict[str, Any], place: Path) -> Dense:
    activation = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    if activation not in ACTIVATIONS or config.get("use_residual"):
        raise ModelError(
            f"{place / 'config.json'}: unknown activation {activation!r} or a residual. "
            f"Known: {', '.join(ACTIVATIONS)}."
        )
    return Dense(config["in_features"], config["out_features"], bias=config.get("bias", True), activation=activation)


def _read_weights(folder: Path, *, trust_pickle: bool) -> dict[str, torch.Tensor]:
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    if safe.is_file():
        weights = load_file(safe)
    elif pickled.is_file() and trust_pickle:
        weights = torch.load(pickled, map_location="cpu", weights_only=True)
    elif pickled.is_file():
        raise ModelError(
            f"{pickled} is a pickle, which can run code when opened. "
            "Use --trust-pickle if you trust where it came from."
        )
    else:
        raise ModelError(
            f"{safe} is missing: this layer belongs to the model and is never made up. "
            "Save or download the model again."
        )
    return {name: tensor.float() for name, tensor in weights.items()}


def write_layer(folder: Path, layer: nn.Module) -> None:
    """Write a layer's folder: a Dense in the layout both libraries read, a Flow in one of our own."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", _describe(layer))
    save_file({name: tensor.contiguous() for name, tensor in layer.state_dict().items()}, folder / "model.safetensors")


def _describe(layer: nn.Module) -> dict[str, Any]:
    if isinstance(layer, Flow):
        return {"kind": FLOW, **layer.settings}
    if not isinstance(layer, Dense):
        raise ModelError(f"a layer of kind {type(layer).__name__} cannot be saved.")
    module = "torch.nn.modules." + ("linear" if isinstance(layer.activation, nn.Identity) else "activation")
    return {
        "in_features": layer.linear.in_features,
        "out_features": layer.linear.out_features,
        "bias": layer.linear.bias is not None,
        "activation_function": f"{module}.{type(layer.activation).__name__}",
    }


def layer_name(layer: nn.Module, place: int) -> str:
    """Return how settings name the layer in this place: its folder, or `normalize`, which needs none."""
    return NORMALIZE if isinstance(layer, Normalize) else f"{place}_{type(layer).__name__}"


def write_foreign_settings(folder: Path, settings: Settings, transformer: Any) -> str | None:
    """Describe the folder to sentence-transformers, or make it refuse the folder and return why."""
    refusal = _write_modules(folder, settings, transformer)
    if refusal is not None:  # without a list of modules it would take the mean of the last layer instead
        _write_list(folder, [(REFUSAL, "")])
    return refusal


def _write_modules(folder: Path, settings: Settings, transformer: Any) -> str | None:
    """Write the folder's modules in their layout, or return why that cannot be done."""
    pooler = find_pooler(settings.pooler)
    if any(name.endswith(Flow.__name__) for name in settings.layers):
        return "it has no layer like a flow"
    modules = [("Transformer", "")]
    if pooler.layers is not None:
        if "+" in settings.pooler:
            return "it cannot concatenate averages of several layers"
        modules.append(_write_layer_average(folder, pooler, transformer.config))
    mode = _foreign_mode(settings.pooler, pooler)
    if mode is None:
        return f"it has no pooling like {settings.pooler!r}"
    modules.append(_write_pooling(folder, mode, transformer.config.hidden_size))
    modules += _heads(folder, settings, transformer)
    modules += [("Normalize", "9_Normalize") if name == NORMALIZE else ("Dense", name) for name in settings.layers]
    _write_list(folder, modules)
    _write_text_settings(folder, settings)
    return None


def _write_list(folder: Path, modules: list[tuple[str, str]]) -> None:
    listed = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)


def _foreign_mode(name: str, pooler: Pooler) -> list[str] | None:
    if pooler.layers is not None:
        return ["mean"]
    if name == "cls_pretrained":
        return ["cls"]
    modes = [POOLERS[part].mode for part in name.split("+")]
    # They concatenate in an order of their own; another order cannot be written down.
    known = [mode for mode in modes if mode is not None]
    return known if len(known) == len(modes) and known == [m for m in _SWITCHES.values() if m in known] else None


def _heads(folder: Path, settings: Settings, transformer: Any) -> list[tuple[str, str]]:
    """Return the Dense modules that stand between pooling and the layers."""
    if settings.pooler == "cls_pretrained":
        write_layer(folder / "2_Dense", _pretrained_pooler(transformer))
        return [("Dense", "2_Dense")]
    if settings.head is not None and find_pooler(settings.pooler).head == "kept":
        return [("Dense", settings.head)]
    return []


def _pretrained_pooler(transformer: Any) -> Dense:
    """Copy the checkpoint's pooler, a Linear and a tanh in every family that has one, into a Dense."""
    linear = getattr(transformer.pooler, "dense", transformer.pooler)
    layer = Dense(linear.in_features, linear.out_features, activation="Tanh")
    layer.linear.load_state_dict(linear.state_dict())
    return layer


def _write_layer_average(folder: Path, pooler: Pooler, config: Any) -> tuple[str, str]:
    """Write an average of several layers as weights over all of them."""
    depth = config.num_hidden_layers
    weights = torch.zeros(depth + 1)
    for layer in pooler.layers or ():
        weights[layer] += 1.0
    place = folder / "1_WeightedLayerPooling"
    place.mkdir()
    write_json(
        place / "config.json",
        {"word_embedding_dimension": config.hidden_size, "layer_start": 0, "num_hidden_layers": depth},
    )
    save_file({"layer_weights": weights}, place / "model.safetensors")
    return ("WeightedLayerPooling", place.name)


def _write_pooling(folder: Path, modes: list[str], width: int) -> tuple[str, str]:
    place = folder / "1_Pooling"
    place.mkdir()
    switches = {switch: mode in modes for switch, mode in _SWITCHES.items()}
    write_json(place / "config.json", {"word_embedding_dimension": width, **switches})
    return ("Pooling", place.name)


def _write_text_settings(folder: Path, settings: Settings) -> None:
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": settings.max_tokens, "do_lower_case": settings.lowercase},
    )
    prompts = {"default": settings.prompt} if settings.prompt else {}
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": "default" if prompts else None, "similarity_fn_name": "cosine"},
    )

"""What a model folder may say, checked before anything in it is loaded: names, foreign code, sizes.

A folder is data from elsewhere. Its files name other files, code and sizes; what they name is followed only if it lies
in the folder, brings no code, and fits the weights, whose shapes the header of a safetensors file lists. Symbolic links
are followed: the hub's cache is made of them, and whoever can make them on this disk can read it anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinpass.encoder.folder import FILE, NORMALIZE, Settings, inside, pickle_refused, read_json
from twinpass.encoder.template import TEXT
from twinpass.encoder.tokens import Tokens
from twinpass.errors import ModelError

Shapes = dict[str, tuple[int, ...]]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
LONGEST_PROMPT = 10_000  # characters, put before every text
MOST_LAYERS = 1_000
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors itself allows

# Where a config names the code that computes attention or experts, and what of it comes with torch.
_IMPLEMENTATIONS = {f"{start}{what}_implementation" for start in ("", "_") for what in ("attn", "experts")}
_IMPLEMENTATIONS |= {f"_{what}_implementation_internal" for what in ("attn", "experts")}
_BUILT_IN = {None, "eager", "sdpa", "flex_attention", "grouped_mm", "batched_mm"}
_DEPTHS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers")
_WIDTHS = ("hidden_size", "dim", "d_model", "n_embd", "embedding_size", "intermediate_size", "hidden_dim", "d_ff")
_LAYER_SIZES = ("in_features", "out_features", "dimensions", "width", "levels", "depth")


def check_folder(folder: Path, *, trust_pickle: bool = False, trust_remote_code: bool = False) -> None:
    """Raise ModelError if a transformer's folder lacks a part, leads elsewhere, or does not fit its own weights."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json.")
    files = _weight_files(folder, trust_pickle=trust_pickle)
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{folder} has an adapter (adapter_config.json), which names another model to load. Merge the adapter into "
            "its model, and save that."
        )
    config = read_json(path)
    _check_weights_field(path, config)
    if trust_remote_code:
        return  # its own code decides what the sizes mean
    _check_foreign(path, config)
    if files:
        _check_sizes(path, config, {name: shape for file in files for name, shape in read_shapes(file).items()})


def refuse_onnx(folder: Path) -> None:
    """Raise ModelError if this folder holds an ONNX graph and no weights."""
    if (folder / "model.onnx").is_file() and not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} is an ONNX graph, which is for other software. Load the model that it was made from, or export "
            "that with --format openvino."
        )


def check_settings(folder: Path, settings: Settings) -> None:
    """Raise ModelError if the settings of a folder have values that no model has."""
    path = str(folder / FILE) if (folder / FILE).is_file() else f"{folder}, as sentence-transformers' files describe it"

    def require(condition: bool, name: str, value: object, expected: str) -> None:
        if not condition:
            raise ModelError(f"{path}: {name} is {value!r:.60}; expected {expected}. Correct the file.")

    limit, prompt, layers = settings.max_tokens, settings.prompt, settings.layers
    require(limit is None or (_is_count(limit) and limit >= 3), "max_tokens", limit, "a whole number, 3 or more")
    require(isinstance(prompt, str), "prompt", prompt, "text")
    require(
        len(prompt) <= LONGEST_PROMPT, "prompt", prompt, f"at most {LONGEST_PROMPT:,} characters, not {len(prompt):,}"
    )
    template = settings.template
    expected = f"text with {TEXT} once, at most {LONGEST_PROMPT:,} characters, or none"
    fits = isinstance(template, str) and len(template) <= LONGEST_PROMPT and template.count(TEXT) == 1
    require(template == "" or fits, "template", template, expected)
    require(len(layers) <= MOST_LAYERS, "layers", layers, f"at most {MOST_LAYERS:,} layers, not {len(layers):,}")
    sizes = settings.matryoshka
    require(all(map(_is_count, sizes)), "matryoshka", sizes, "whole numbers above 0")
    for name, value in {"transformer": settings.transformer, "head": settings.head or "", "layers": layers}.items():
        names = value if isinstance(value, tuple) else (value,)
        require(all(isinstance(each, str) for each in names), name, value, "names of folders")


def check_layer(folder: Path, name: str) -> None:
    """Raise ModelError if the sizes of a layer after the pooler do not fit its weights."""
    place = inside(folder, name)
    if name == NORMALIZE or not (place / WEIGHTS).is_file():
        return  # what is missing is reported where it is read
    path, shapes = place / "config.json", read_shapes(place / WEIGHTS)
    config = read_json(path)
    sizes = {field: config[field] for field in _LAYER_SIZES if field in config}
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for field, size in sizes.items():
        limit = len(shapes) if field in ("levels", "depth") else 2 * largest
        if not _is_count(size) or size > limit:
            raise ModelError(
                f"{path}: {field} is {size!r:.60}, which does not fit {place / WEIGHTS} ({len(shapes)} tensors, the "
                f"largest dimension is {largest}). The layer is damaged."
            )


def width_of(folder: Path, home: Path, settings: Settings) -> int | None:
    """Return the length of a model's vectors as its configs say, before weights are read; None if they do not say.

    `home` is the folder of the transformer.
    """
    layers = (inside(folder, name) / "config.json" for name in reversed(settings.layers) if name != NORMALIZE)
    for config in (read_json(path) for path in layers if path.is_file()):
        if "out_features" in config:
            return config["out_features"] if _is_count(config["out_features"]) else None
    width = read_json(home / "config.json").get("hidden_size") if (home / "config.json").is_file() else None
    return width * len(settings.pooler.split("+")) if _is_count(width) else None  # type: ignore[operator]


def check_tokens(folder: Path, tokens: Tokens, rows: int) -> None:
    """Raise ModelError if the tokenizer has an id for which the word table has no row, or no room for a word."""
    backend = tokens.tokenizer.backend_tokenizer
    # Special tokens may have an id in the post-processor alone; a text of no words shows it.
    special = {f"special token {place}": number for place, number in enumerate(backend.encode("").ids)}
    word, largest = max({**backend.get_vocab(with_added_tokens=True), **special}.items(), key=lambda item: item[1])
    if largest >= rows:
        raise ModelError(
            f"{folder / 'tokenizer.json'}: the token {word!r:.60} has id {largest}, and the model has vectors for "
            f"{rows} tokens only (vocab_size in config.json). Tokenizer and model do not belong together."
        )
    if tokens.limit is not None and tokens.limit < 3:
        raise ModelError(
            f"{folder}: model_max_length in tokenizer_config.json, or max_position_embeddings in config.json, leaves "
            f"room for {tokens.limit} tokens; expected 3 or more. The folder is damaged."
        )


def mismatch(folder: Path, keys: Any) -> ModelError:
    """Return the error for tensors whose shapes in the file are not those of the model; (name, ours, expected)."""
    shown = "; ".join(
        f"{name} is {tuple(found)} in the file and {tuple(expected)} by config.json"
        for name, found, expected in sorted(keys)[:3]
    )
    more = f"; and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ModelError(f"{folder}: weights of other shapes than config.json says: {shown}{more}. The folder is damaged.")


def read_shapes(path: Path) -> Shapes:
    """Return the shape of every tensor in a safetensors file, from its header alone."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(_LONGEST_HEADER, path.stat().st_size):
                raise ValueError(f"its header claims {length:,} bytes")
            header = json.loads(stream.read(length))
        return {name: tuple(each["shape"]) for name, each in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is no whole safetensors file: {error}. Save or download the model again.") from error


def _weight_files(folder: Path, *, trust_pickle: bool) -> list[Path]:
    """Return the safetensors files that hold the weights; none if they are in a pickle that the user trusts."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _listed(folder / INDEX, ".safetensors", trust_pickle=trust_pickle)
    pickled = [name for name in PICKLES if (folder / name).is_file()]
    if pickled and not trust_pickle:
        raise pickle_refused(str(folder / pickled[0]))
    if not pickled:
        raise ModelError(f"{folder} has no weights: expected model.safetensors.")
    if pickled[0].endswith(".json"):
        _listed(folder / pickled[0], ".bin", trust_pickle=trust_pickle)
    return []


def _listed(index: Path, suffix: str, *, trust_pickle: bool) -> list[Path]:
    """Return the files that an index of weights names; each must lie beside it."""
    named = read_json(index).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise ModelError(f"{index}: expected a weight_map that names files. The file is damaged.")
    files = []
    for name in sorted({str(each) for each in named.values()}):
        if Path(name).name != name or "\\" in name:
            raise ModelError(f"{index}: it names {name!r:.80}; expected a file beside it, without a path.")
        if not name.endswith(suffix):
            if name.endswith(".bin") and not trust_pickle:
                raise pickle_refused(f"{index.parent / name} (named in {index.name})")
            raise ModelError(f"{index}: it names {name!r:.80}; expected *{suffix} files.")
        if not (index.parent / name).is_file():
            raise ModelError(f"{index.parent / name} is missing: {index.name} names it. Download the model again.")
        files.append(index.parent / name)
    return files


def _check_weights_field(path: Path, config: dict[str, Any]) -> None:
    name = config.get("transformers_weights")
    if name not in (None, WEIGHTS, INDEX):
        raise ModelError(f"{path}: transformers_weights is {name!r:.80}; expected {WEIGHTS} or {INDEX}.")


def _check_foreign(path: Path, config: dict[str, Any]) -> None:
    """Refuse a config, or one inside it, that would have code or a method from elsewhere loaded."""
    for name, value in _fields(config):
        chosen = list(value.values()) if isinstance(value, dict) else [value]
        if name in _IMPLEMENTATIONS and any(isinstance(each, (dict, list)) or each not in _BUILT_IN for each in chosen):
            what = f"{name} is {value!r:.80}, code that does not come with torch"
        elif name in ("quantization_config", "compression_config") and value is not None:
            what = f"it has a {name}, so other code than torch's reads its weights"
        else:
            continue
        raise ModelError(
            f"{path}: {what}. Use --trust-remote-code (in Python: trust_remote_code=True) if you trust where it came "
            "from, or remove the field."
        )


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every field of a config and of the configs inside it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from _fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner)


def _check_sizes(path: Path, config: dict[str, Any], shapes: Shapes) -> None:
    """Refuse sizes that do not occur in the weights: a model of such a size would be built before it is compared."""
    dimensions = {size for shape in shapes.values() for size in shape}
    for name in (*_DEPTHS, *_WIDTHS, "vocab_size"):
        size = config.get(name)
        if size is None:
            continue
        if not _is_count(size):
            raise ModelError(f"{path}: {name} is {size!r:.60}; expected a whole number above 0.")
        if name in _DEPTHS:
            # Every layer has a tensor of its own, except where groups of layers share theirs.
            most = MOST_LAYERS if "num_hidden_groups" in config else min(MOST_LAYERS, len(shapes))
            if size > most:
                raise ModelError(f"{path}: {name} is {size}, and the weights are {len(shapes)} tensors. It is damaged.")
        elif size not in dimensions:
            raise ModelError(f"{path}: {name} is {size}, and no tensor of the weights has that size. It is damaged.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0

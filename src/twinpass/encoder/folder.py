"""A model folder: what lies in it and how it is read; `parts.py` reads and writes what holds weights.

::

    config.json, model.safetensors, tokenizer.json ...   what transformers reads
    modules.json, 1_Pooling/, 2_Dense/ ...               what sentence-transformers reads
    twinpass.json                                        pooler, head, layers, length limit, prompt, template
    training_head/                                       an MLP that only training uses
    3_Dense/, 4_Flow/ ...                                layers after the pooler

A folder with twinpass.json is read as that says, one with only modules.json as that says. A folder that is saved here
loads in transformers, and in sentence-transformers unless it has no module for a part.

An exported model is a folder of another kind: one graph that maps token ids to vectors, head and layers included. It
runs without torch and transformers::

    twinpass.json                                        the settings, and under "exported" what the graph needs
    tokenizer.json                                       what the library tokenizers reads
    openvino/model.xml, openvino/model.bin               the graph and its weights
    README.md                                            what it was made from, and what was measured

A static model is a third kind, one vector per token; `static.py` reads and writes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from twinpass.encoder.dimensions import shortened
from twinpass.errors import ModelError
from twinpass.files import sha256, with_home, write_json, writing_folder

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

FILE = "twinpass.json"
FORMAT = 1
NORMALIZE = "normalize"
REFUSAL = "OnlyTwinpassLoadsThisModel"  # not a module of sentence-transformers: its loader fails and shows this name
TOKENIZER = "tokenizer.json"
GRAPH = "openvino/model.xml"
EXPORTED_RUNTIMES = ("openvino",)
EXPORTED_PRECISIONS = ("fp32", "int8")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# sentence-transformers' older switches, in the order in which it concatenates, and its present names of the same modes.
SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How vectors are made from a folder's transformer."""

    pooler: str
    transformer: str = ""  # folder of the transformer, where it is not this one
    head: str | None = None  # folder of the MLP over the pooled vector, if there is one
    layers: tuple[str, ...] = ()  # folders of what follows, in order; "normalize" needs no folder
    max_tokens: int | None = None
    lowercase: bool = False
    prompt: str = ""
    template: str = field(default="", repr=False)  # around every text, with [X] in its place; for the pooler `mask`
    base: str = field(default="", repr=False)  # the model that this folder is an adapter (LoRA) of
    base_weights: str = field(default="", repr=False)  # SHA-256 of that model's weights, by `hash_weights`
    matryoshka: tuple[int, ...] = field(default=(), repr=False)  # sizes that shorter vectors were trained for

    def document(self) -> dict[str, Any]:
        """Return the settings as they are written; a template, a base and trained sizes only where there are any."""
        optional = ("template", "base", "base_weights", "matryoshka")
        return {name: value for name, value in asdict(self).items() if value or name not in optional}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an exported model needs beyond its settings: one graph maps its inputs to vectors."""

    folder: Path  # where it was read from; not written
    runtime: str
    precision: str
    file: str  # the graph, inside the folder
    inputs: tuple[str, ...]
    dimensions: int
    max_tokens: int | None  # the most that the model can read; the settings' limit may be lower
    vocabulary: int  # token ids are below this
    pad: Mapping[str, Any]  # "id" of the padding token; "truncation_side", left or right. Padding is on the right
    fingerprint: str  # of the graph, the tokenizer and all that vectors depend on; see `_fingerprint`
    source: Mapping[str, Any]  # "name" and "fingerprint" of the model it was made from
    measured: Mapping[str, Any]  # how near its vectors are to the source's, and whatever else was measured

    @property
    def path(self) -> Path:
        """The graph."""
        return self.folder / self.file

    def limited(self, max_tokens: int | None) -> Exported:
        """Return the same model with another token limit than the folder's, so with other fingerprints."""

        def other(fingerprint: str) -> str:
            return hashlib.sha256(f"{fingerprint} max_tokens={max_tokens}".encode()).hexdigest()

        return self._with_fingerprints(other)

    def shortened(self, dimensions: int) -> Exported:
        """Return the same model with shorter vectors, so with other fingerprints."""
        return self._with_fingerprints(lambda fingerprint: shortened(fingerprint, dimensions))

    def _with_fingerprints(self, other: Callable[[str], str]) -> Exported:
        source = {**self.source, "fingerprint": other(self.source["fingerprint"])}
        return replace(self, fingerprint=other(self.fingerprint), source=source)


def read_settings(folder: Path) -> Settings | None:
    """Return what twinpass.json says, or without one sentence-transformers' modules.json; None if there is neither."""
    document = _read_document(folder)
    if document is None:
        return read_foreign_settings(folder)
    path = folder / FILE
    types = get_type_hints(Settings) | {"layers": list, "matryoshka": list}
    fields = {name: value for name, value in document.items() if name in types}
    if "pooler" not in fields:
        raise ModelError(f"{path}: it names no pooler, so the folder is damaged. Save the model again.")
    for name, value in fields.items():
        if not isinstance(value, types[name]):
            raise ModelError(f"{path}: {name} cannot be {value!r}, so the folder is damaged. Save the model again.")
    fields |= {name: tuple(fields.get(name, ())) for name in ("layers", "matryoshka")}
    if not {"exported", "static"} & document.keys():  # else nothing is left to pool, and torch is not needed
        from twinpass.encoder.pooling import find_pooler

        find_pooler(fields["pooler"])
    return Settings(**fields)


def _read_document(folder: Path) -> dict[str, Any] | None:
    path = folder / FILE
    if not path.is_file():
        return None
    document: dict[str, Any] = read_json(path)
    if document.get("format") != FORMAT:
        raise ModelError(
            f"{path}: format {document.get('format')!r} is not {FORMAT}; this folder needs another version of twinpass."
        )
    return document


def read_exported(folder: Path) -> Exported | None:
    """Return what twinpass.json says of an exported model, checked against its files; None for any other folder."""
    document = _read_document(folder)
    if document is None or "exported" not in document:
        return None
    path, given = folder / FILE, document["exported"]
    if not isinstance(given, dict):
        raise ModelError(f"{path}: exported: expected an object, got {given!r:.60}. Export the model again.")
    for name, (expected, valid) in _EXPORTED_FIELDS.items():
        if name not in given or not valid(given[name]):
            came = f"{given[name]!r:.60}" if name in given else "nothing"
            raise ModelError(f"{path}: exported.{name}: expected {expected}, got {came}. Export the model again.")
    known = {name: given[name] for name in _EXPORTED_FIELDS}
    exported = Exported(**known | {"folder": folder.absolute(), "inputs": tuple(given["inputs"])})
    for part in (exported.path, folder / TOKENIZER):  # in the hub's cache they are links to elsewhere
        if not part.is_file():
            raise ModelError(f"{part} is missing: the exported model is incomplete. Export the model again.")
    settings = read_settings(folder)
    if settings is None or _fingerprint(exported, settings) != exported.fingerprint:
        raise ModelError(
            f"{folder}: the files of this exported model are not those that were written (their fingerprint is not "
            f"{exported.fingerprint[:12]}): one is damaged or was changed. Export the model again."
        )
    return exported


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def _is_pad(value: object) -> bool:
    if not isinstance(value, dict) or type(value.get("id")) is not int:
        return False
    return value["id"] >= 0 and value.get("truncation_side") in ("left", "right")


def _is_source(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and _is_digest(value.get("fingerprint"))


# What twinpass.json says of an exported model: field, what is expected, and the check.
_EXPORTED_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "runtime": (f"one of {', '.join(EXPORTED_RUNTIMES)}", lambda value: value in EXPORTED_RUNTIMES),
    "precision": (f"one of {', '.join(EXPORTED_PRECISIONS)}", lambda value: value in EXPORTED_PRECISIONS),
    "file": (f"{GRAPH!r}", lambda value: value == GRAPH),
    "inputs": (
        f"names from {', '.join(INPUTS)}",
        lambda value: isinstance(value, list) and value == [name for name in INPUTS if name in value],
    ),
    "dimensions": ("a positive number", _is_count),
    "max_tokens": ("a number of at least 3, or null", lambda value: value is None or (_is_count(value) and value > 2)),
    "vocabulary": ("a positive number", _is_count),
    "pad": ("an object with id (a number) and truncation_side (left or right)", _is_pad),
    "fingerprint": ("a SHA-256", _is_digest),
    "source": ("an object with name and fingerprint", _is_source),
    "measured": ("an object", lambda value: isinstance(value, dict)),
}


def _fingerprint(exported: Exported, settings: Settings) -> str:
    """Return a SHA-256 over everything that the vectors of an exported model depend on."""
    described = asdict(exported) | {"settings": settings.document()}
    for name in ("folder", "fingerprint", "source", "measured"):
        del described[name]
    for name in ("matryoshka", "base_weights"):  # vectors do not depend on them
        described["settings"].pop(name, None)
    files = [exported.path, exported.path.with_suffix(".bin"), exported.folder / TOKENIZER]
    described["files"] = [sha256(file) for file in files if file.is_file()]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def save_exported(
    target: Path,
    encoder: Encoder,
    write_graph: Callable[[Path], None],
    *,
    precision: str,
    measured: Mapping[str, Any],
    card: str,
) -> Exported:
    """Write an exported model, whole or not at all: `write_graph` puts the encoder's graph under the path it is given.

    The graph's inputs have the names of the encoder's inputs, and it includes the head and the layers.
    """
    settings = replace(encoder.settings, transformer="", head=None, layers=())
    tokens = encoder.tokens
    with writing_folder(target) as aside:
        graph = aside / GRAPH
        graph.parent.mkdir(parents=True)
        write_graph(graph)
        (aside / TOKENIZER).write_text(json.dumps(tokens.rules(), ensure_ascii=False), encoding="utf-8")
        (aside / "README.md").write_text(card, encoding="utf-8")
        exported = Exported(
            folder=aside,
            runtime=EXPORTED_RUNTIMES[0],
            precision=precision,
            file=GRAPH,
            inputs=tuple(tokens.arrays([[tokens.pad_id]])),
            dimensions=encoder.dimensions,
            max_tokens=tokens.limit,
            vocabulary=encoder.vocabulary,
            pad={"id": tokens.pad_id, "truncation_side": tokens.tokenizer.truncation_side},
            fingerprint="",
            source={"name": encoder.name, "fingerprint": encoder.fingerprint},
            measured=measured,
        )
        exported = replace(exported, fingerprint=_fingerprint(exported, settings))
        described = asdict(exported)
        del described["folder"]
        write_json(aside / FILE, {"format": FORMAT, **settings.document(), "exported": described})
    return replace(exported, folder=target.absolute())


def read_foreign_settings(folder: Path) -> Settings | None:
    """Return what sentence-transformers' modules.json says, or None if there is none."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    modules = read_json(path, list)
    if not all(isinstance(each, dict) and "type" in each for each in modules):
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
    from twinpass.encoder.pooling import POOLERS

    config = read_json(folder / "config.json")
    pooler_of_mode = {POOLERS[name].mode: name for name in POOLERS if POOLERS[name].head == "none"}
    modes = config.get("pooling_mode") or [mode for switch, mode in SWITCHES.items() if config.get(switch)]
    modes = [modes] if isinstance(modes, str) else list(modes) or ["mean"]
    if any(mode not in pooler_of_mode for mode in modes) or not config.get("include_prompt", True):
        raise ModelError(
            f"{folder / 'config.json'}: twinpass cannot pool like this "
            f"(modes {modes}, include_prompt {config.get('include_prompt', True)})."
        )
    return "+".join(pooler_of_mode[mode] for mode in modes)


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


def pickle_refused(path: str) -> ModelError:
    """Explain that weights are stored as a pickle, and how to allow that."""
    return ModelError(
        f"{path} is a pickle, which can run code when opened, and there is no model.safetensors. "
        "Use --trust-pickle (in Python: trust_pickle=True) if you trust where it came from."
    )


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON object, or a list, of a model folder, or say which file is damaged."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}. The model folder is incomplete or damaged.") from error
    if not isinstance(document, kind):
        expected = "a JSON object" if kind is dict else "a list"
        raise ModelError(f"{path}: expected {expected}, got {type(document).__name__}. The file is damaged.")
    return document


def transformer_home(folder: Path) -> Path:
    """Return the folder of a model's transformer, which may be inside the model's folder."""
    settings = read_settings(folder)
    return inside(folder, settings.transformer if settings else "")


def path_of(name: str | os.PathLike[str]) -> Path:
    """Return a model's name as a path, with the home folder for ~; refuse the ~ of a user that there is not."""
    return with_home(name, refusal=ModelError)


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a model's weights, several if they are in shards; a pickle beside safetensors is not read."""
    home = transformer_home(folder)
    files = sorted(home.glob("*.safetensors")) or sorted(home.glob("pytorch_model*.bin"))
    if not files:
        raise ModelError(f"{home} has no weights: expected model.safetensors or pytorch_model.bin.")
    return files


def hash_weights(folder: Path) -> str:
    """Return a SHA-256 of a model's weights."""
    return hashlib.sha256("".join(map(sha256, weight_files(folder))).encode()).hexdigest()


def hash_folder(folder: Path, *, without: Collection[str] = ()) -> str:
    """Return a SHA-256 of all files of a model's folder but those that are not loaded: hidden ones and checkpoints.

    `without` names further files and folders to leave out, wherever in the folder they lie.
    """
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    others = {"checkpoints", *without}
    loaded = [name for name in names if not any(part[0] == "." or part in others for part in name.parts)]
    listed = [f"{sha256(folder / name)}  {name.as_posix()}\n" for name in loaded]
    return hashlib.sha256("".join(listed).encode()).hexdigest()


def inside(folder: Path, name: str) -> Path:
    """Return the path of a part that a folder's own files name; refuse one outside the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{folder} names a part outside itself, {name!r}, which is not read.")
    return path

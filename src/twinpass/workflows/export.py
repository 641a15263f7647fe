"""Exporting a model: a folder to share, without checkpoints and logs, that is loaded again and compared."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from twinpass.display import Displayed, Grid
from twinpass.encoder.card import (
    EXPORT,
    LICENCE,
    USE,
    Base,
    Card,
    describe_base,
    front_matter,
    is_ours,
    library_of,
    read_card,
    use_section,
)
from twinpass.encoder.encoder import Encoder, Vectors
from twinpass.encoder.export import NEAR, how_far, make_graph, write_graph
from twinpass.encoder.folder import FILE, GRAPH, TOKENIZER, path_of, save_exported
from twinpass.encoder.load import find_folder
from twinpass.encoder.onnx import need_onnx, run_onnx, write_onnx
from twinpass.errors import ConfigError, MissingExtra, ModelError, OutputError
from twinpass.files import check_replaceable, human_bytes, refuse_own_input, write_json, writing_folder
from twinpass.progress import Log, ignore
from twinpass.provenance import installed, provenance

FORMATS = {
    "safetensors": "sentence-transformers' and transformers' layout",
    "onnx": "one ONNX graph, for other software",
    "openvino": "one OpenVINO graph, for twinpass without torch",
}
STATIC_PARTS = ("config.json", "model.safetensors", "modules.json", TOKENIZER, FILE, "SHA256SUMS")
TEXTS = [
    "A man is playing the guitar on a stage.",
    "",
    "How do I open a file for reading?",
    "Ein Satz, 日本語, and émigré words; 12345 numbers!",
    "The second part of the day was longer than the first, and nobody had expected that. " * 40,
    "no",
]


@dataclass(frozen=True, repr=False)
class ModelExport(Displayed):
    """What was exported, its files, and how far its vectors are from the source's."""

    source: str
    output: str | None  # None if the folder was only uploaded
    format: str
    files: dict[str, int]  # bytes by name
    apart: float  # the largest difference of a vector's values, after loading the folder again
    hub: str | None = None  # address on the hub
    provenance: dict[str, Any] = field(default_factory=dict)

    def grids(self) -> list[Grid]:
        """Return the files with their sizes."""
        rows = [(name, human_bytes(size)) for name, size in self.files.items()]
        rows.append(("in all", human_bytes(sum(self.files.values()))))
        notes = [f"loaded again and compared on {len(TEXTS)} texts: vectors differ by at most {self.apart:.1g}"]
        if self.hub:
            notes.append(f"uploaded to {self.hub}")
        target = self.output or self.hub
        return [Grid(f"{self.source} as {self.format} -> {target}", ("file", "size"), rows, notes)]


def export(
    model: str | os.PathLike[str] | Encoder = "minilm",
    *,
    output: str | os.PathLike[str] | None = None,
    format: str | None = None,
    to_hub: str | None = None,
    private: bool = False,
    overwrite: bool = False,
    log: Log = ignore,
    **loading: Any,
) -> ModelExport:
    """Write a model, with its head and layers and a model card, into a folder to share: no checkpoints, no logs.

    format      safetensors (the default): loads in sentence-transformers, transformers and twinpass; onnx: one graph
                with tokenizer, for other software; openvino: runs in twinpass without torch, and is the format of
                quantised models
    output      the folder, which appears whole or not at all; it may be left out if the model is uploaded
    to_hub      upload the folder to the hub under this name (owner/name), as the user who is logged in
    private     make a new repository on the hub private
    overwrite   replace what an earlier export wrote, and add to a repository that exists
    loading     options of Encoder.load, for a model that is given by name

    The written folder is loaded again, and its vectors are compared with the source's; if they differ, nothing is left.
    """
    if isinstance(model, Encoder) and loading:
        raise ConfigError(f"{', '.join(loading)}: options of Encoder.load need a model by name, not an Encoder.")
    if output is None and to_hub is None:
        raise ConfigError("expected a folder (--output) or a name on the hub (--to-hub), got neither.")
    if format not in (None, *FORMATS):
        raise ConfigError(f"unknown format {format!r}. Expected one of {', '.join(FORMATS)}.")
    check_name(to_hub)
    if format == "onnx":
        need_onnx()
    with ExitStack() as stack:
        target = Path(output or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinpass."))) / "model")
        check_replaceable(target, record=EXPORT, verb="export", overwrite=overwrite)
        encoder = model if isinstance(model, Encoder) else _load(model, target, log, loading)
        format = format or ("safetensors" if encoder.exported is None else "openvino")
        with writing_folder(target) as aside:
            vectors = _WRITE[format](encoder, aside)
            apart = how_far(vectors, _encode(encoder))
            if not apart < NEAR:
                raise ModelError(
                    f"{encoder.name}: after exporting to {format} its vectors differ by {apart:.1g}, expected less "
                    f"than {NEAR:g}. Nothing was written. This is a bug: please report it with the model's name."
                )
            _card(encoder, aside, str(target), to_hub, format, apart).write(aside)
        log(f"{encoder.name} as {format} -> {target}, vectors differ by at most {apart:.1g}")
        hub = to_hub and upload(target, to_hub, private=private, overwrite=overwrite, kept=output is not None)
        files = sorted(path for path in target.rglob("*") if path.is_file())
        options = {"format": format, "to_hub": to_hub}
        return ModelExport(
            source=encoder.name,
            output=None if output is None else str(output),
            format=format,
            files={path.relative_to(target).as_posix(): path.stat().st_size for path in files},
            apart=apart,
            hub=hub,
            provenance=provenance(model=encoder, options=options),
        )


def _load(model: str | os.PathLike[str], target: Path, log: Log, loading: dict[str, Any]) -> Encoder:
    folder = path_of(model)
    if folder.is_dir():
        refuse_own_input(target, [path for path in folder.iterdir() if path.is_file()])
    if (folder / "bilstm.json").is_file():
        raise ModelError(
            f"{model} is an LSTM over word vectors, which only twinpass runs; export needs a transformer. Copy the "
            "folder to share it."
        )
    log(f"loading {model} ...")
    return Encoder.load(model, **{"device": "cpu", **loading})


def _encode(encoder: Encoder) -> Vectors:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one text is longer than most limits, on purpose
        return encoder.encode(TEXTS)


def _note(folder: Path, encoder: Encoder, format: str, **more: Any) -> None:
    source = {"name": encoder.name, "fingerprint": encoder.fingerprint}
    versions = {library: installed(library) for library in ("twinpass", "torch", "transformers")}
    write_json(folder / EXPORT, {"format": format, "source": source, "versions": versions, **more})


def _write_safetensors(encoder: Encoder, folder: Path) -> Vectors:
    if encoder.exported is not None:
        raise _only_openvino(encoder, "safetensors")
    if encoder.static is not None:
        _copy(find_folder(encoder.name), folder, *STATIC_PARTS)
    else:
        encoder.save(folder)
    _note(folder, encoder, "safetensors")
    again = Encoder.load(folder, device=str(encoder.device))
    if again.fingerprint != encoder.fingerprint:
        raise ModelError(f"{encoder.name}: the weights or settings that were written are not those of the model.")
    return _encode(again)


def _write_onnx(encoder: Encoder, folder: Path) -> Vectors:
    if encoder.exported is not None:
        raise _only_openvino(encoder, "onnx")
    _refuse_static(encoder, "onnx")
    if encoder.tokens.template:
        raise ModelError(
            f"{encoder.name} reads texts in a template ({encoder.tokens.template!r}), which other software's tokenizer "
            "would leave out. Use --format openvino or safetensors, which keep it for twinpass."
        )
    write_onnx(encoder, folder)
    tokens = encoder.tokens
    inputs = list(tokens.arrays([[tokens.pad_id]]))
    prompt, lowercase = tokens.prompt, tokens.lowercase
    sizes = {"dimensions": encoder.dimensions, "max_tokens": encoder.max_tokens}
    _note(folder, encoder, "onnx", inputs=inputs, prompt=prompt, lowercase=lowercase, **sizes)
    return run_onnx(folder, TEXTS, prompt=prompt, lowercase=lowercase)


def _write_openvino(encoder: Encoder, folder: Path) -> Vectors:
    made = encoder.exported
    _refuse_static(encoder, "openvino")
    if made is None:
        aside = folder / "aside"  # which appears whole, as this folder does
        save_exported(aside, encoder, write_graph(make_graph(encoder)), precision="fp32", measured={}, card="")
        for part in aside.iterdir():
            part.rename(folder / part.name)
        aside.rmdir()
    else:  # the graph as it is
        _copy(made.folder, folder, FILE, TOKENIZER, Path(GRAPH).parts[0])
    _note(folder, encoder, "openvino")
    return _encode(Encoder.load(folder, max_tokens=encoder.max_tokens))


def _copy(source: Path, folder: Path, *parts: str) -> None:
    """Copy the files and folders of a model that cannot be written anew, and nothing else that lies beside them."""
    for name in parts:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        elif (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


_WRITE = {"safetensors": _write_safetensors, "onnx": _write_onnx, "openvino": _write_openvino}


def _refuse_static(encoder: Encoder, format: str) -> None:
    if encoder.static is not None:
        raise ModelError(
            f"{encoder.name} is a static model, a table with a vector for each token, for which there is no {format} "
            "graph. Use --format safetensors."
        )


def _only_openvino(encoder: Encoder, format: str) -> ModelError:
    made = encoder.exported
    assert made is not None
    return ModelError(
        f"{encoder.name} is one {made.runtime} graph in {made.precision}, which cannot become {format} again. Use "
        f"--format {made.runtime}, or export the model that it was made from, {made.source['name']}."
    )


def _card(encoder: Encoder, folder: Path, target: str, to_hub: str | None, format: str, apart: float) -> Card:
    """Return the card of the export: the source's sections, if twinpass wrote them, and how to load this folder."""
    name = Path(to_hub or target).name
    card, base = _source_card(encoder)
    data = {key: value for key, value in card.data.items() if key not in ("library_name", "tags")}
    if scores := data.pop("model-index", None):
        data["model-index"] = [{**each, "name": name} for each in scores]
    tags = [tag for tag in card.data.get("tags") or [] if tag != card.data.get("library_name")]
    made = f"Exported from `{encoder.name}` as {format} ({FORMATS[format]}) by twinpass {installed('twinpass')}."
    checked = f"The vectors of {len(TEXTS)} texts differ from the source's by at most {apart:.1g}."
    kept = {heading: text for heading, text in card.sections.items() if heading not in (USE, "Export", LICENCE)}
    sections = {
        USE: use_section(folder, to_hub or target, on_hub=to_hub is not None),
        **kept,
        LICENCE: card.sections[LICENCE],
    }
    return replace(
        card,
        title=name,
        about=re.sub(r"```.*?^```\n*", "", card.about, flags=re.M | re.S),  # code is in the section on use
        sections={**sections, "Export": f"{made} {checked}"},
        data=front_matter(library_of(folder), base, *tags, format, **data),
    )


def _source_card(encoder: Encoder) -> tuple[Card, Base]:
    """Return the card of the model that is exported, or a new one, and the model it was made from."""
    base = describe_base(encoder.name)
    folder = path_of(encoder.name)
    card = read_card(folder) if folder.is_dir() else None
    if card is None or not is_ours(card):
        about = f"A sentence encoder ({encoder.dimensions} dimensions, pooler `{encoder.pooler}`): `{encoder.name}`."
        card = Card(title="", about=about, sections={})
    return replace(card, sections={LICENCE: base.licence_section(), **card.sections}), base


def check_name(name: str | None) -> None:
    """Raise ConfigError if this cannot be a name on the hub."""
    if name is not None and not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", name):
        raise ConfigError(f"expected a name on the hub as owner/name, got {name!r}.")


def upload(folder: Path, name: str, *, private: bool, overwrite: bool, kept: bool) -> str:
    """Upload a folder to the hub as a model and return its address."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError as error:
        raise MissingExtra("uploading to the hub", "hub") from error

    api = HfApi()
    try:
        made = api.create_repo(name, private=private, exist_ok=overwrite)
        api.upload_folder(
            repo_id=name, folder_path=folder, commit_message=f"Model exported by twinpass {installed('twinpass')}"
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(" .") if str(error).strip() else type(error).__name__
        here = f" The folder {folder} is complete." if kept else ""
        raise OutputError(
            f"{name} could not be uploaded to the hub: {reason}.{here} Check the network and the name, log in with "
            "`hf auth login`, and add --overwrite if the repository exists and is yours."
        ) from error
    return str(made)

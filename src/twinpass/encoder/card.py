"""The model card of a folder, its README.md: front matter for the hub, how to load the model, and free sections.

A card is read and written section by section. What a user adds to it, and the licence in its front matter, stay with
the model when it is trained further or exported.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinpass.encoder.folder import FILE as SETTINGS
from twinpass.encoder.folder import REFUSAL, path_of, read_exported, read_json
from twinpass.encoder.load import BUILTIN, BUILTIN_HUB_NAME, find_minilm
from twinpass.errors import ModelError
from twinpass.files import writing

FILE = "README.md"
USE = "Use"
LICENCE = "Licence"
ONNX = "model.onnx"
EXPORT = "export.json"  # what `twinpass export` notes of its work
_TAGS = ("sentence-similarity", "feature-extraction", "sentence-embeddings", "twinpass")
_TEXTS = '["A sentence.", "Another one."]'


@dataclass(frozen=True)
class Base:
    """The model that another was made from; None is what its folder does not say."""

    name: str
    hub: str | None = None  # its name on the hub
    licence: str | None = None

    def licence_section(self) -> str:
        """Say which licence the model has, and where that is known from."""
        if self.licence is None:
            return f"unknown: see the base model, `{self.name}`."
        return f"`{self.licence}`, which is the licence that the card of the base model, `{self.name}`, names."


@dataclass(frozen=True)
class Card:
    """A model card: front matter, title, what the model is, and sections in order."""

    title: str
    about: str
    sections: Mapping[str, str]  # by heading
    data: Mapping[str, Any] = field(default_factory=dict)  # the front matter

    def text(self) -> str:
        """Return the card as Markdown."""
        from huggingface_hub import ModelCardData

        front = ModelCardData(ignore_metadata_errors=True, **self.data).to_yaml()
        parts = [f"---\n{front}\n---", f"# {self.title}", self.about]
        parts += [f"## {heading}\n\n{text}" for heading, text in self.sections.items()]
        return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    def write(self, folder: Path) -> None:
        """Write the card into a model folder."""
        with writing(folder / FILE) as aside:
            aside.write_text(self.text(), encoding="utf-8")


def read_card(folder: Path) -> Card | None:
    """Read a folder's card; None if it has none, or one that cannot be read."""
    from huggingface_hub import ModelCard

    try:
        card = ModelCard((folder / FILE).read_text(encoding="utf-8"), ignore_metadata_errors=True)
    except Exception:  # a card is text of any kind, for people; the model does not depend on it
        return None
    heading, title = "", folder.name
    found: dict[str, list[str]] = {"": []}
    fenced = False
    for line in card.text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (match := re.match(r"(##?) (.*)", line)):
            if match[1] == "#":
                title = match[2].strip()
                continue
            heading = match[2].strip()
            found.setdefault(heading, [])
        else:
            found[heading].append(line)
    data: Any = card.data.to_dict()  # type: ignore[no-untyped-call]
    sections = {heading: "\n".join(lines).strip("\n") for heading, lines in found.items()}
    return Card(title, sections.pop(""), sections, dict(data))


def is_ours(card: Card | None) -> bool:
    """Return whether twinpass wrote a card."""
    return card is not None and "twinpass" in (card.data.get("tags") or [])


def describe_base(name: str) -> Base:
    """Return what is known of a model on this machine: the licence of its card, its name on the hub; never a guess."""
    hub, folder = None, path_of(name)
    if name == BUILTIN:
        hub = BUILTIN_HUB_NAME
        with contextlib.suppress(ModelError):  # not installed: a model in memory may have this name, too
            folder = find_minilm()
    elif not folder.is_dir() and (cached := _cached_folder(name)):
        hub, folder = name, cached
    found = read_card(folder)
    data = found.data if found else {}
    licence = data.get("license")
    if licence == "other":
        licence = data.get("license_name") or licence
    base = data.get("base_model")
    hub = hub or (base if isinstance(base, str) else None)
    return Base(name, hub, None if licence in (None, "unknown") else str(licence))


def _cached_folder(name: str) -> Path | None:
    """Return the folder of a hub model in the local cache, if it is there; the network is not asked."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    with contextlib.suppress(HFValidationError):
        path = try_to_load_from_cache(name, "config.json")
        return Path(path).parent if isinstance(path, str) else None
    return None


def front_matter(library: str, base: Base | None, *tags: str, **more: Any) -> dict[str, Any]:
    """Return the front matter of a model for a library: what the hub shows, filters and searches by."""
    found: dict[str, Any] = {"library_name": library, "pipeline_tag": "sentence-similarity"}
    found["tags"] = [*dict.fromkeys([library, *_TAGS, *tags])]
    if base is not None:
        found |= {"base_model": base.hub, "license": base.licence or "unknown"}
    return {name: value for name, value in (found | more).items() if value is not None}


def use_section(folder: Path, name: str, *, on_hub: bool = False) -> str:
    """Return how to load the model in this folder, under the path or name on the hub by which users will know it."""
    if (folder / ONNX).is_file():
        return f"With onnxruntime:\n\n{_python(_with_onnxruntime(folder, name, on_hub=on_hub))}"
    if (folder / "bilstm.json").is_file():
        opened = f'from twinpass.encoder.any_model import open_model\n\nvectors = open_model("{name}").encode({_TEXTS})'
        return f"With twinpass:\n\n{_python(opened)}"
    if read_exported(folder) is not None:
        return openvino_section(name)
    twinpass = _with_twinpass(name)
    if library_of(folder) == "twinpass":
        note = "sentence-transformers has no module for a part of this model and refuses to load it."
        return f"With twinpass:\n\n{_python(twinpass)}\n\n{note}"
    foreign = "from sentence_transformers import SentenceTransformer\n\n"
    foreign += f'vectors = SentenceTransformer("{name}").encode({_TEXTS})'
    found = f"With sentence-transformers:\n\n{_python(foreign)}\n\nWith twinpass:\n\n{_python(twinpass)}"
    if code := _with_transformers(folder, name, on_hub=on_hub):
        found += f"\n\nWith transformers alone, whose model gives the states of the tokens:\n\n{_python(code)}"
    return found


# How transformers' output becomes one vector, by pooler; those that take more than a few lines are not here.
_POOLING = {
    "cls": "vectors = output.last_hidden_state[:, 0]  # the first token, [CLS]",
    "cls_pretrained": "vectors = output.pooler_output  # [CLS] through the pretrained layer",
    "avg": """mask = batch["attention_mask"].unsqueeze(-1)
vectors = (output.last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)  # the mean of the tokens""",
    "max": """mask = batch["attention_mask"].unsqueeze(-1)
vectors = output.last_hidden_state.masked_fill(mask == 0, float("-inf")).amax(dim=1)  # the maximum of the tokens""",
    "avg_first_last": """mask = batch["attention_mask"].unsqueeze(-1)
states = (output.hidden_states[1] + output.last_hidden_state) / 2  # of the first layer and the last
vectors = (states * mask).sum(dim=1) / mask.sum(dim=1)  # the mean of the tokens""",
    "avg_top2": """mask = batch["attention_mask"].unsqueeze(-1)
states = (output.hidden_states[-2] + output.last_hidden_state) / 2  # of the last two layers
vectors = (states * mask).sum(dim=1) / mask.sum(dim=1)  # the mean of the tokens""",
}
_POOLING |= {"cls_mlp": _POOLING["cls"], "cls_mlp_train": _POOLING["cls"]}


def _with_transformers(folder: Path, name: str, *, on_hub: bool) -> str:
    """Return code that needs transformers alone: pooling and normalisation, which AutoModel leaves out; "" if long."""
    facts = read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    pooler, head, layers = facts.get("pooler", ""), facts.get("head"), facts.get("layers", [])
    if pooler not in _POOLING or facts.get("transformer") or {*layers} - {"normalize"}:
        return ""
    head = head if pooler == "cls_mlp" else None  # another pooler's head is for training only
    if (pooler == "cls_mlp" and head is None) or not facts.get("max_tokens"):
        return ""
    imports = ["import torch"]
    texts = "texts"
    if facts.get("prompt") or facts.get("lowercase"):
        text = f"({facts['prompt']!r} + text)" if facts.get("prompt") else "text"
        texts = f"[{text}{'.lower()' if facts.get('lowercase') else ''} for text in texts]"
    lines = [_POOLING[pooler]]
    if head is not None:
        place = (
            f'hf_hub_download("{name}", "{head}/model.safetensors")' if on_hub else f'"{name}/{head}/model.safetensors"'
        )
        imports += ["from huggingface_hub import hf_hub_download"] if on_hub else []
        imports += ["from safetensors.torch import load_file"]
        lines += [
            f"head = load_file({place})",
            'vectors = torch.tanh(vectors @ head["linear.weight"].T + head["linear.bias"])',
        ]
    if layers:
        lines += ["vectors = torch.nn.functional.normalize(vectors)  # to length one"]
    more = ", output_hidden_states=True" if "hidden_states[" in _POOLING[pooler] else ""
    return "\n".join([
        *imports,
        "from transformers import AutoModel, AutoTokenizer",
        "",
        f"texts = {_TEXTS}",
        f'tokenizer, model = AutoTokenizer.from_pretrained("{name}"), AutoModel.from_pretrained("{name}")',
        f"batch = tokenizer({texts}, padding=True, truncation=True, "
        f'max_length={facts["max_tokens"]}, return_tensors="pt")',
        "with torch.no_grad():",
        f"    output = model(**batch{more})",
        *lines,
    ])  # fmt: skip


def openvino_section(name: str) -> str:
    """Return how to load an OpenVINO graph."""
    install = "With twinpass (`pip install 'twinpass[openvino]'`), on a CPU, without torch:"
    return f"{install}\n\n{_python(_with_twinpass(name))}"


def _with_twinpass(name: str) -> str:
    return f'from twinpass import Encoder\n\nvectors = Encoder.load("{name}").encode({_TEXTS})'


def library_of(folder: Path) -> str:
    """Return the library that the hub should show code for."""
    if (folder / ONNX).is_file():
        return "onnx"
    modules = folder / "modules.json"
    if not modules.is_file() or any(REFUSAL in str(module.get("type")) for module in read_json(modules, list)):
        return "twinpass"
    return "sentence-transformers"


def _with_onnxruntime(folder: Path, name: str, *, on_hub: bool) -> str:
    """Return code that needs onnxruntime, tokenizers and numpy alone."""
    facts = read_json(folder / EXPORT)
    attribute = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    arrays = "\n".join(f'    "{each}": np.array([row.{attribute[each]} for row in rows]),' for each in facts["inputs"])
    text = f"({facts['prompt']!r} + text)" if facts["prompt"] else "text"
    text += ".lower()" if facts["lowercase"] else ""
    texts = "texts" if text == "text" else f"[{text} for text in texts]"
    imported = "from huggingface_hub import snapshot_download\n" if on_hub else ""
    opened = f'snapshot_download("{name}")' if on_hub else f'"{name}"'
    return f"""import numpy as np
import onnxruntime
{imported}from tokenizers import Tokenizer

texts = {_TEXTS}
folder = {opened}
tokenizer = Tokenizer.from_file(f"{{folder}}/tokenizer.json")  # it truncates and pads
session = onnxruntime.InferenceSession(f"{{folder}}/{ONNX}")
rows = tokenizer.encode_batch({texts})
inputs = {{
{arrays}
}}
(vectors,) = session.run(["sentence_embedding"], inputs)"""


def _python(code: str) -> str:
    return f"```python\n{code}\n```"

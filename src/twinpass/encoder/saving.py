"""Writing a model folder that twinpass, transformers and sentence-transformers load."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinpass.encoder import foreign
from twinpass.encoder.loading import quiet
from twinpass.encoder.model import Dense, SentenceModel
from twinpass.encoder.settings import FILE, Settings, write_settings
from twinpass.encoder.tokens import Tokens
from twinpass.files import explaining, writing_folder


def save_model(target: Path, model: SentenceModel, tokens: Tokens, settings: Settings) -> None:
    """Write a new folder whole or not at all; into an existing one, move finished files only."""
    if not target.exists():
        with writing_folder(target) as aside:
            _write(aside, model, tokens, settings)
        return
    with explaining(target):
        aside = Path(tempfile.mkdtemp(prefix=".saving.", dir=target))
        try:
            _write(aside, model, tokens, settings)
            _move_into(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _write(folder: Path, model: SentenceModel, tokens: Tokens, settings: Settings) -> None:
    settings = _write_layers(folder, model, settings)
    transformer: Any = model.transformer
    before = transformer.config.output_hidden_states
    # sentence-transformers hands on every layer's states only if the config asks for them.
    transformer.config.output_hidden_states = model.pooler.layers is not None
    with quiet():
        transformer.save_pretrained(folder)
        tokens.save(folder)
    transformer.config.output_hidden_states = before
    refusal = foreign.write_foreign_settings(folder, settings, transformer)
    if refusal:
        warnings.warn(f"sentence-transformers cannot load this model: {refusal}. twinpass can.", stacklevel=4)
    write_settings(folder, settings)


def _write_layers(folder: Path, model: SentenceModel, settings: Settings) -> Settings:
    """Write head and layers under numbered names and return settings that point there."""
    head = None
    if isinstance(model.head, Dense):
        head = "2_Dense" if model.pooler.head == "kept" else "training_head"
        foreign.write_layer(folder / head, model.head)
    names = []
    for place, layer in enumerate(model.layers.children(), start=3):
        names.append(foreign.layer_name(layer, place))
        if names[-1] != foreign.NORMALIZE:
            foreign.write_layer(folder / names[-1], layer)
    return replace(settings, transformer="", head=head, layers=tuple(names))


def _move_into(aside: Path, target: Path) -> None:
    """Move finished files over their older namesakes, the settings last, and leave no weights of another model."""
    for pattern in ("modules.json", "model*.safetensors", "model.safetensors.index.json"):
        for old in target.glob(pattern):
            if not (aside / old.name).exists():
                old.unlink()
    files = sorted((path for path in aside.rglob("*") if path.is_file()), key=lambda path: path.name == FILE)
    for path in files:
        place = target / path.relative_to(aside)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)

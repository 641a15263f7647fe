"""Where an index meets a model: texts to blocks of rows, and the model that an index asks for."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.cli.console import Console
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.cli.engine import AnyIndex
    from twinpass.encoder.encoder import Encoder
    from twinpass.search.index import Block, Index
    from twinpass.text.corpus import Corpus


def is_index(name: str) -> bool:
    """Tell whether a saved index has this name."""
    return os.path.isfile(os.path.join(name, "index.json"))  # noqa: PTH113, PTH118 - takes any text for an answer


def blocks(encoder: Encoder, corpus: Corpus, advance: Callable[[int], None]) -> Iterator[Block]:
    """Yield a corpus as rows of an index, one window at a time; a row's texts share its other columns."""
    from twinpass.search.index import Block

    rows = ((text, metadata) for texts, metadata in corpus.records() for text in texts)
    for held, vectors, _ in encoder.encode_stream(rows, key=lambda row: row[0], normalize=True):
        texts, metadata = zip(*held, strict=True)
        yield Block(texts, vectors, metadata)
        advance(len(vectors))


def model_entry(encoder: Encoder, chosen: ModelOptions) -> dict[str, Any]:
    """Return what an index remembers of its model: enough to load the same again, from any folder."""
    name = str(Path(encoder.name).resolve()) if os.path.isdir(encoder.name) else encoder.name  # noqa: PTH112
    return {"name": name, "fingerprint": encoder.fingerprint, **chosen.described()}


def load_model_of(index: AnyIndex, chosen: ModelOptions, console: Console) -> Encoder:
    """Load the model that an index was built with, or the one that the user names if it is the same."""
    known = index.model
    options = replace(
        chosen, pooler=chosen.pooler or known.get("pooler"), max_tokens=chosen.max_tokens or known.get("max_tokens")
    )
    encoder = options.load(chosen.model or known["name"], console)
    index.check_model(name=encoder.name, fingerprint=encoder.fingerprint)
    return encoder


@contextlib.contextmanager
def index_of(names: list[str], chosen: ModelOptions, data: DataOptions, console: Console) -> Iterator[Index]:
    """Yield the index that is named, or one made of texts for the time being."""
    from twinpass.cli.options import exactly
    from twinpass.search.index import Index

    if is_index(names[-1]):
        if len(names) > 1 or chosen.model is not None:
            raise ConfigError(f"{names[-1]} is an index and has its vectors already: leave the model out.")
        yield Index.open(names[0])
        return
    name, rest = chosen.named(names, least=1)
    exactly(rest, 1, "texts or an index")
    corpus = data.open(rest[0])
    _, total, _ = corpus.survey()
    encoder = chosen.load(name, console)
    with (
        tempfile.TemporaryDirectory(prefix="twinpass-") as folder,
        console.progress("encoding", total=total) as advance,
    ):
        yield Index.build(Path(folder) / "index", blocks(encoder, corpus, advance), model=model_entry(encoder, chosen))

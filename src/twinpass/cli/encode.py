"""The verb `encode`: sentences in, vectors out, in a file."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.bulk import EngineOptions, encode_in_bulk
from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, ModelOptions, exactly
from twinpass.cli.ray_pool import Recipe, found_anywhere
from twinpass.cli.vectors import Write, check_target, files_of, writing_vectors
from twinpass.errors import InputError
from twinpass.provenance import provenance

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.text.corpus import Corpus


@verb
def encode(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    spread: EngineOptions,
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] INPUT", help="Input: a file, folder, pattern, - for stdin, or docs:")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .npy, .parquet or .safetensors file.")],
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length one.")] = False,
    shard_rows: Annotated[
        int | None, typer.Option(min=1, help="Make OUTPUT a folder of files with at most so many rows.")
    ] = None,
) -> None:
    """Turn sentences into vectors, in a file.

    One float32 vector per text, in order; a row of several text columns gives its vectors one after another.
    The output appears whole or not at all. With a single name, it is the input and the model is minilm.
    """
    name, rest = chosen.named(names, least=1)
    exactly(rest, 1, "one INPUT after the model")
    shard_rows = spread.settle(output, shard_rows)
    check_target(output, sharded=shard_rows is not None)
    corpus = data.open(rest[0])
    _, total, fingerprint = corpus.survey()  # a pass before the work: bad rows show now, not hours later
    encoder = chosen.load(name, console)
    options = console.described() | chosen.described() | data.described()
    options |= {"normalize": normalize, "shard_rows": shard_rows}
    facts = provenance(model=encoder, data=[(corpus.source, fingerprint)], options=options)
    metadata = _metadata(facts) | {"model": found_anywhere(name)}
    tally = Tally(corpus, total, encoder.dimensions)
    if shard_rows is not None and spread.engine == "ray":
        recipe = Recipe(found_anywhere(name), chosen.loading(console), normalize, metadata)
        found = encode_in_bulk(console, tally, recipe, spread, output=output, shard_rows=shard_rows)
    else:
        writing = writing_vectors(
            output, dimensions=encoder.dimensions, total=total, shard_rows=shard_rows, metadata=metadata
        )
        found = _encode_here(console, tally, encoder, writing, normalize=normalize)
    files = files_of(output, total=total, shard_rows=shard_rows)
    console.log(_sentence(found, output))
    console.result(facts | found | {"output": output, "files": files})


def _encode_here(
    console: Console, tally: Tally, encoder: Encoder, writing: AbstractContextManager[Write], *, normalize: bool
) -> dict[str, Any]:
    """Encode with this process alone and return the numbers of the run."""
    truncated = 0
    with writing as write, console.progress("encoding", total=tally.total) as advance:
        for texts, vectors, cut in encoder.encode_stream(tally.corpus.texts(), normalize=normalize):
            tally.count(texts)
            truncated += len(cut)
            write(texts, vectors)
            advance(len(texts))
        tally.check_complete()
    return tally.result(truncated=truncated)


@dataclass
class Tally:
    """What was encoded so far, of what was counted at first."""

    corpus: Corpus
    total: int
    dimensions: int
    texts: int = 0
    distinct: int = 0

    def __post_init__(self) -> None:
        self._started = time.perf_counter()

    def count(self, texts: list[str]) -> None:
        """Add a block; repeats are recognised within one, as the encoder does."""
        self.texts += len(texts)
        self.distinct += len(set(texts))
        self._check_not_longer()

    def check_complete(self) -> None:
        """Refuse an input that became shorter or longer since it was counted."""
        self._check_not_longer()
        if self.texts < self.total:
            raise self._changed(f"only {self.texts}")

    def _check_not_longer(self) -> None:
        if self.texts > self.total:
            raise self._changed(f"more than {self.total}")

    def _changed(self, now: str) -> InputError:
        return InputError(
            f"{self.corpus.source} changed while it was read: {self.total} texts at first, then {now}. "
            "Run again when nothing writes to it."
        )

    def result(self, *, truncated: int) -> dict[str, Any]:
        """Return the numbers of a finished run."""
        seconds = time.perf_counter() - self._started
        return {
            "texts": self.texts,
            "distinct": self.distinct,
            "truncated": truncated,
            "bad_rows": self.corpus.bad_rows,
            "dimensions": self.dimensions,
            "seconds": round(seconds, 3),
            "texts_per_second": round(self.texts / max(seconds, 1e-9), 1),
        }


def _metadata(facts: dict[str, Any]) -> dict[str, str]:
    """Return what a reader of the file needs to know, as the formats take it: text to text."""
    told = {name: facts.get("options", {}).get(name) for name in ("pooler", "max_tokens")}
    return {
        "twinpass": facts["twinpass"],
        "model": facts["model"]["name"],
        "model_fingerprint": facts["model"]["fingerprint"],
        "data": facts["data"][0]["source"],
        "data_fingerprint": facts["data"][0]["fingerprint"],
    } | {name: str(value) for name, value in told.items() if value is not None}


def _sentence(found: dict[str, Any], output: Path) -> str:
    skipped = f", {found['bad_rows']:,} bad rows left out" if found["bad_rows"] else ""
    return (
        f"{found['texts']:,} texts ({found['distinct']:,} distinct, {found['truncated']:,} truncated{skipped}) "
        f"-> {output}: {found['dimensions']} dimensions, {found['seconds']:.1f} s, "
        f"{found['texts_per_second']:,.0f} texts/s"
    )

"""What `analyze` does between the command line and the report: sample, encode, measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console
from twinpass.cli.options import DataOptions, ModelOptions
from twinpass.cli.variants import WHOLE, Variant, open_variant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from twinpass.analysis.measure import Analysis
    from twinpass.analysis.neighbours import Neighbours
    from twinpass.analysis.sample import Sample

    Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class LookOptions:
    """How much is looked at, and beside what."""

    sample: Annotated[int, typer.Option(min=2, help="Look at so many sentences of --data at most.")] = 10_000
    neighbours: Annotated[int, typer.Option(min=0, help="How many neighbours to show (0: none).")] = 3
    query: Annotated[list[str] | None, typer.Option(help="Show this sentence's neighbours; repeatable.")] = None
    corpus: Annotated[
        str | None, typer.Option(help="Look for neighbours in this text, all of it, instead of in --data.")
    ] = None
    results: Annotated[
        list[Path] | None,
        typer.Option(help="A file of `evaluate -o FILE.json`: its Avg. STS colours Figure 3; repeatable."),
    ] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep vectors on disk.")] = False

    def described(self) -> dict[str, Any]:
        """Return the options that shape the numbers, for a result's provenance."""
        names = ("sample", "neighbours", "query", "corpus")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Study:
    """What was found."""

    sample: Sample
    data_fingerprint: str
    analyses: list[Analysis]
    neighbours: Neighbours | None
    averages: dict[str, float]  # Avg. STS by label


def study(
    console: Console,
    chosen: ModelOptions,
    reading: DataOptions,
    look: LookOptions,
    *,
    data: str,
    variants: Sequence[Variant],
) -> Study:
    """Sample the data, encode it by every variant, and measure."""
    from twinpass.analysis.averages import read_averages
    from twinpass.analysis.measure import analyse
    from twinpass.analysis.sample import take_sample

    averages = read_averages(look.results or [])
    corpus = reading.open(data)
    sample = take_sample(corpus, most=look.sample, seed=console.seed)
    searched, queries = _searched(reading, look, sample)
    console.log(f"looking at {sample.protocol}")
    for note in sample.left_out:
        console.log(f"left out: {note}")
    analyses: list[Analysis] = []
    found: dict[str, Vectors] = {}
    known: dict[str, float] = {}
    for variant in variants:
        model = open_variant(variant, chosen, console)
        encoded = _Encoded(console, look, model, variant, sample.texts)
        analyses.append(
            analyse(variant.label, encoded.vectors, sample, fingerprint=encoded.fingerprint, seed=console.seed)
        )
        if look.neighbours:
            found[variant.label] = encoded.vectors if searched == sample.texts else encoded.encode(searched)
        average = averages.find(fingerprint=encoded.fingerprint, name=variant.label)
        known |= {} if average is None else {variant.label: average}
    return Study(
        sample=sample,
        data_fingerprint=corpus.fingerprint(),
        analyses=analyses,
        neighbours=_compare(console, look, searched, queries, found),
        averages=known,
    )


class _Encoded:
    """A variant's vectors; whitening is fitted to those of the sample."""

    def __init__(self, console: Console, look: LookOptions, model: Any, variant: Variant, texts: list[str]) -> None:
        self.console, self.look, self.model = console, look, model
        self.label = variant.label
        self.whitening: Any = None
        self.vectors = self.encode(texts)
        self.fingerprint: str | None = model.fingerprint
        if variant.whiten is not None:
            from twinpass.encoder.layers import fit_whitening, whiten

            keep = None if variant.whiten == WHOLE else variant.whiten
            self.whitening = fit_whitening(self.vectors, keep=keep)
            self.vectors = whiten(self.vectors, self.whitening)
            self.fingerprint = f"{model.fingerprint}-whitened-{self.vectors.shape[1]}"

    def encode(self, texts: list[str]) -> Vectors:
        """Encode texts, from the cache on disk where it has them."""
        from twinpass.encoder.layers import whiten
        from twinpass.encoder.vector_cache import Cache, encode_once

        cache = None if self.look.no_cache else Cache()
        with self.console.progress(f"encoding by {self.label}", total=len(texts)) as advance:
            vectors: Vectors = encode_once(self.model, texts, cache=cache, advance=advance)(texts)
        return vectors if self.whitening is None else whiten(vectors, self.whitening)


def _searched(reading: DataOptions, look: LookOptions, sample: Sample) -> tuple[list[str], list[int]]:
    """Return the texts among which neighbours are looked for, and the places of the queries asked for."""
    from twinpass.text.corpus import open_corpus

    texts = sample.texts
    if look.corpus is not None:
        opened = open_corpus(look.corpus, skip_bad_rows=reading.skip_bad_rows, header=reading.header)
        texts = list(dict.fromkeys(opened.texts()))
    if look.query:
        texts = list(dict.fromkeys([*texts, *look.query]))
    place = {text: number for number, text in enumerate(texts)}
    return texts, [place[text] for text in look.query or []]


def _compare(
    console: Console, look: LookOptions, texts: list[str], queries: list[int], found: dict[str, Vectors]
) -> Neighbours | None:
    """Compare neighbours where there are two models, or a query to show."""
    from twinpass.analysis.neighbours import compare_neighbours

    if not look.neighbours or not found or (len(found) < 2 and not queries):
        return None
    return compare_neighbours(texts, found, queries=queries, k=look.neighbours, seed=console.seed)

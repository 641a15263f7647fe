"""Fitting a layer to a model's vectors and saving both as one model, with measures before and after."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twinpass.analysis.measure import measure_spectrum
from twinpass.analysis.sampling import some_rows, take_sample
from twinpass.display import Displayed, Grid, to_markdown
from twinpass.encoder.card import LICENCE, USE, Card, describe_base, front_matter, library_of, use_section
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.layers import FITS, apply_layer, with_layer
from twinpass.equations import uniformity
from twinpass.errors import ConfigError
from twinpass.files import check_replaceable, write_json, writing_folder
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.text.corpus import Corpus, open_corpus

Vectors = NDArray[np.float32]

MEASURED = 4_096  # vectors that uniformity and spectrum are measured on, at most
RECORD = "fit.json"  # in the output folder: what it was made from


@dataclass(frozen=True)
class Spread:
    """How evenly vectors are spread, measured on a sample of them."""

    dimensions: int
    uniformity: float  # Eq. 3
    largest_share: float  # of the largest eigenvalue in the trace
    effective_rank: float
    measured_on: int


@dataclass(frozen=True, repr=False)
class Fitted(Displayed):
    """A fitted layer: what it was fitted to, the vectors before and after, and where the model was saved."""

    layer: str
    sentences: int
    truncated: int
    before: Spread
    after: Spread
    output: str
    output_fingerprint: str
    provenance: dict[str, Any] = field(default_factory=dict)  # model, data, options, versions

    def grids(self) -> list[Grid]:
        """Return the measures before and after."""
        rows = [
            (title, *(f"{scale * getattr(spread, name):.{decimals}f}" for spread in (self.before, self.after)))
            for title, name, decimals, scale in (
                ("uniformity (Eq. 3)", "uniformity", 3, 1),
                ("largest eigenvalue, % of trace", "largest_share", 2, 100),
                ("effective rank", "effective_rank", 1, 1),
                ("dimensions", "dimensions", 0, 1),
            )
        ]
        note = f"measured on {self.before.measured_on:,} of the {self.sentences:,} sentences it was fitted to"
        return [Grid(f"{self.layer} -> {self.output}", ("", "before", "after"), rows, [note])]


def fit(
    model: str | os.PathLike[str] | Encoder,
    layer: str,
    data: str | os.PathLike[str] | Corpus | Iterable[str],
    *,
    output: str | os.PathLike[str],
    keep: int | None = None,
    components: int | None = None,
    sample: int | None = None,
    seed: int = 42,
    overwrite: bool = False,
    progress: Progress = silent,
    log: Log = ignore,
    **loading: Any,
) -> Fitted:
    """Fit whitening, flow, centring or top-components to the model's vectors of the distinct sentences in `data`.

    The model is saved with its layer in the folder `output`, whole or not at all. `keep` is for whitening, `components`
    for top-components; `sample` fits to at most that many sentences. `data` is what `open_corpus` opens, a corpus, or
    a list of sentences; `loading` are options of `Encoder.load`, for a model that is given by name.
    """
    output = Path(output)
    if isinstance(model, Encoder) and loading:
        raise ConfigError(f"{', '.join(loading)}: options of Encoder.load need a model by name, not an Encoder.")
    FITS[layer].check(keep=keep, components=components)
    check_replaceable(output, record=RECORD, verb="fit", overwrite=overwrite)
    corpus = open_corpus(data) if isinstance(data, (str, os.PathLike)) else data
    texts = _sentences(corpus, sample, seed=seed)
    if not isinstance(model, Encoder):
        log(f"loading {model} ...")
        model = Encoder.load(model, **loading)
    model.check_whole("fitting a layer")
    blocks, truncated = [np.empty((0, model.dimensions), dtype=np.float32)], 0
    with progress("encoding", total=len(texts)) as advance:
        for block in model.encode_stream(texts):
            blocks.append(block.vectors)
            truncated += len(block.truncated)
            advance(len(block.items))
    vectors = np.concatenate(blocks)
    with progress(f"fitting {layer}", total=len(texts)) as advance:
        fitted = FITS[layer](vectors, keep=keep, components=components, seed=seed, advance=advance)
    changed = with_layer(model, fitted)
    source, content = "a list of sentences", None
    if isinstance(corpus, Corpus):
        source, content = corpus.source, corpus.fingerprint()
    options: dict[str, Any] = {"layer": layer, "keep": keep, "components": components, "sample": sample, "seed": seed}
    options |= {"pooler": model.pooler, "max_tokens": model.max_tokens, "precision": model.precision}
    options |= {"runtime": model.runtime_name, "device": str(model.device)}
    result = Fitted(
        layer=layer,
        sentences=len(texts),
        truncated=truncated,
        before=_measure(vectors, seed=seed),
        after=_measure(apply_layer(fitted, vectors), seed=seed),
        output=str(output),
        output_fingerprint=changed.fingerprint,
        provenance=provenance(model=model, data=[(source, content)], options=options),
    )
    with writing_folder(output) as aside:
        changed.save(aside)
        write_json(aside / RECORD, result.to_dict())
        _card(result, aside, model.name, source).write(aside)
    log(f"{layer} fitted to {len(texts):,} sentences of {source} -> {output}")
    return result


def _card(result: Fitted, folder: Path, model: str, source: str) -> Card:
    base = describe_base(model)
    return Card(
        title=Path(result.output).name,
        about=f"The sentence encoder `{model}` with {result.layer}, fitted to {result.sentences:,} sentences of "
        f"`{source}`.",
        sections={
            USE: use_section(folder, result.output),
            "Layer": to_markdown(result.grids()),
            LICENCE: base.licence_section(),
        },
        data=front_matter(library_of(folder), base, result.layer),
    )


def _sentences(corpus: Corpus | Iterable[str], sample: int | None, *, seed: int) -> list[str]:
    """Return the distinct sentences of a corpus or list, or of a sample of its rows."""
    if isinstance(corpus, Corpus) and sample is not None:
        return take_sample(corpus, most=sample, seed=seed).texts
    texts = list(dict.fromkeys(corpus.texts() if isinstance(corpus, Corpus) else corpus))
    return texts if sample is None else [texts[row] for row in some_rows(len(texts), sample, seed=seed)]


def _measure(vectors: Vectors, *, seed: int) -> Spread:
    some = vectors[some_rows(len(vectors), MEASURED, seed=seed)]
    spectrum = measure_spectrum(some)
    return Spread(
        dimensions=vectors.shape[1],
        uniformity=float(uniformity(torch.from_numpy(some))),
        largest_share=spectrum.largest_share,
        effective_rank=spectrum.effective_rank,
        measured_on=len(some),
    )

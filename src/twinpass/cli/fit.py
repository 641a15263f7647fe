"""The verb `fit`: a model and sentences in, the model with a fitted layer out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, verb
from twinpass.cli.options import DataOptions, ModelOptions, exactly
from twinpass.errors import OutputError
from twinpass.provenance import provenance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table
    from torch.nn import Module

    from twinpass.encoder.encoder import Encoder
    from twinpass.text.corpus import Corpus

    Vectors = NDArray[np.float32]

MEASURED = 4_096  # vectors that uniformity and spectrum are taken over, at most
RECORD = "fit.json"  # in the output folder: what it was made from


@verb
def fit(
    console: Console,
    chosen: ModelOptions,
    data: DataOptions,
    layer: Annotated[str, typer.Argument(metavar="LAYER", help="whitening, flow, centring or top-components.")],
    names: Annotated[
        list[str], typer.Argument(metavar="[MODEL] DATA", help="Data: a file, folder, pattern, - for stdin, or docs:")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model with its layer.")],
    keep: Annotated[int | None, typer.Option(min=1, help="whitening: keep so many dimensions.")] = None,
    components: Annotated[
        int | None, typer.Option(min=1, help="top-components: remove so many (default: a hundredth of the dimensions).")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=2, help="Fit to so many sentences at most, drawn by --seed.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier fit wrote.")] = False,
) -> None:
    """Fit a layer to a model's vectors, and save both as one model.

    Every distinct sentence of DATA is encoded, the layer is fitted to the vectors and appended to the model. OUTPUT
    appears whole or not at all and is a model like any other. With a single name, it is DATA and the model is minilm.
    """
    from twinpass.encoder.postprocess import FITS, with_layer

    wishes = {"keep": keep, "components": components}
    FITS[layer].check(**wishes)
    name, rest = chosen.named(names, least=1)
    exactly(rest, 1, "one DATA after the model")
    _check_output(output, overwrite=overwrite)
    corpus = data.open(rest[0])
    texts = _distinct(corpus, sample, seed=console.seed)
    encoder = chosen.load(name, console)
    fitted, found = _fit(console, encoder, texts, layer, wishes)
    model = with_layer(encoder, fitted)
    options = console.described() | chosen.described() | data.described()
    facts = provenance(
        model=encoder,
        data=[(corpus.source, corpus.fingerprint())],
        options=options | wishes | {"layer": layer, "sample": sample},
    )
    found |= {"output": str(output), "output_fingerprint": model.fingerprint}
    _save(model, output, facts | found)
    console.log(f"{layer} fitted to {len(texts):,} sentences of {corpus.source} -> {output}")
    console.result(facts | found, human=_table(found))


def _check_output(output: Path, *, overwrite: bool) -> None:
    """Refuse a folder that no fit has written, and one that a fit has written unless it may be replaced."""
    from twinpass.files import check_writable

    if not output.exists():
        check_writable(output)
        return
    if output.is_dir() and not any(output.iterdir()):
        return
    if not (output / RECORD).is_file():
        raise OutputError(f"{output} is already there and no fit wrote it. Choose another place with --output.")
    if not overwrite:
        raise OutputError(
            f"{output} is already there. Add --overwrite to replace it, or choose another place with --output."
        )


def _distinct(corpus: Corpus, most: int | None, *, seed: int) -> list[str]:
    """Return the distinct sentences of a corpus, or of a sample of its rows."""
    if most is None:
        return list(dict.fromkeys(corpus.texts()))
    from twinpass.analysis.sampling import take_sample

    return take_sample(corpus, most=most, seed=seed).texts


def _fit(
    console: Console, encoder: Encoder, texts: list[str], layer: str, wishes: dict[str, int | None]
) -> tuple[Module, dict[str, Any]]:
    """Return the layer, and the numbers of vectors without it and with it."""
    from twinpass.encoder.postprocess import FITS, apply_layer

    vectors, truncated = _encode(console, encoder, texts)
    with console.progress(f"fitting {layer}", total=len(texts)) as advance:
        fitted = FITS[layer](vectors, **wishes, seed=console.seed, advance=advance)
    return fitted, {
        "layer": layer,
        "sentences": len(texts),
        "truncated": truncated,
        "before": _measure(vectors, seed=console.seed),
        "after": _measure(apply_layer(fitted, vectors), seed=console.seed),
    }


def _save(model: Encoder, output: Path, record: dict[str, Any]) -> None:
    from twinpass.files import write_json, writing_folder

    with writing_folder(output) as aside:
        model.save(aside)
        write_json(aside / RECORD, record)


def _encode(console: Console, encoder: Encoder, texts: list[str]) -> tuple[Vectors, int]:
    import numpy as np

    blocks, truncated = [np.empty((0, encoder.dimensions), dtype=np.float32)], 0
    with console.progress("encoding", total=len(texts)) as advance:
        for held, vectors, cut in encoder.encode_stream(texts):
            blocks.append(vectors)
            truncated += len(cut)
            advance(len(held))
    return np.concatenate(blocks), truncated


def _measure(vectors: Vectors, *, seed: int) -> dict[str, Any]:
    """Return how evenly vectors lie, on a sample that the seed draws."""
    import torch

    from twinpass.analysis.sampling import some_rows
    from twinpass.analysis.spectrum import measure_spectrum
    from twinpass.equations import uniformity

    some = vectors[some_rows(len(vectors), MEASURED, seed=seed)]
    spectrum = measure_spectrum(some)
    return {
        "dimensions": vectors.shape[1],
        "uniformity": float(uniformity(torch.from_numpy(some))),
        "largest_share": spectrum.largest_share,
        "effective_rank": spectrum.effective_rank,
        "measured_on": len(some),
    }


def _table(found: dict[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        "",
        box=box.SIMPLE,
        caption=f"over {found['before']['measured_on']:,} of the sentences it was fitted to",
        caption_justify="left",
    )
    for title in ("before", "after"):
        table.add_column(title, justify="right")
    for title, key, decimals, scale in (
        ("uniformity (Eq. 3)", "uniformity", 3, 1),
        ("largest eigenvalue, % of trace", "largest_share", 2, 100),
        ("effective rank", "effective_rank", 1, 1),
        ("dimensions", "dimensions", 0, 1),
    ):
        table.add_row(title, *(f"{scale * found[when][key]:.{decimals}f}" for when in ("before", "after")))
    return table

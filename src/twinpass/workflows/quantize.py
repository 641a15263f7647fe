"""Quantising a model to int8: calibrated on text, measured on other text and on STS, and saved as a model folder."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinpass import processor
from twinpass.display import Displayed, Grid, to_markdown
from twinpass.encoder.card import LICENCE, USE, Card, describe_base, front_matter, openvino_section
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.export import (
    CALIBRATION_TEXTS,
    MINIMUM_COSINE,
    SEED,
    Agreement,
    copy_graph,
    draw_texts,
    made_aside,
    make_graph,
    measure_agreement,
    measure_rates,
    quantize_graph,
    too_far,
)
from twinpass.encoder.folder import FILE, GRAPH, TOKENIZER, read_exported, save_exported
from twinpass.errors import ConfigError, MissingExtra, ModelError, OutputError
from twinpass.evaluation.evaluate import Job, Settings, evaluate, make_jobs
from twinpass.files import check_writable
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import installed, provenance
from twinpass.text.corpus import Corpus, open_corpus

BUILT_IN_TEXT = "docs:"
RESAMPLES = 100
PARTS = {FILE, TOKENIZER, Path(GRAPH).parts[0], "README.md"}  # what an exported model consists of


@dataclass(frozen=True)
class Side:
    """One precision: megabytes of weights, sentences per second, and STS scores where they were measured."""

    precision: str
    megabytes: float
    sentences_per_second: float
    sts: Mapping[str, float] = field(default_factory=dict)  # Spearman * 100 by task, and "Avg."


@dataclass(frozen=True, repr=False)
class Quantized(Displayed):
    """A model in int8 beside the same model in fp32, and where it was saved."""

    source: str  # the name of the model that it was made from
    output: str
    fingerprint: str
    cosine: Agreement  # of int8's vectors to fp32's, on held-out text
    fp32: Side
    int8: Side
    calibration: Mapping[str, Any]  # source, fingerprint, texts, seed
    processor: str
    provenance: dict[str, Any] = field(default_factory=dict)  # model, data, options, versions

    def grids(self) -> list[Grid]:
        """Return both sides: size, rate and STS; and the cosines."""
        sides = (self.fp32, self.int8)
        rows = [
            ("weights, MB", *(f"{side.megabytes:.1f}" for side in sides)),
            ("sentences/s", *(f"{side.sentences_per_second:,.0f}" for side in sides)),
            *((f"STS {task}", *(f"{side.sts[task]:.2f}" for side in sides)) for task in self.fp32.sts),
            ("cosine to fp32: mean", "1", f"{self.cosine.mean:.4f}"),
            ("cosine to fp32: 1st percentile", "1", f"{self.cosine.first_percentile:.4f}"),
            ("cosine to fp32: lowest", "1", f"{self.cosine.lowest:.4f}"),
        ]
        notes = [
            f"calibrated on {self.calibration['texts']:,} texts of {self.calibration['source']}; "
            f"cosines and rates on {self.cosine.texts:,} others of it, on this machine ({self.processor})"
        ]
        columns = ("", "fp32 (torch)", "int8 (openvino)")
        return [Grid(f"{self.source} in int8 -> {self.output}", columns, rows, notes)]


def quantize(
    model: str | os.PathLike[str] | Encoder = "minilm",
    text: str | os.PathLike[str] | Corpus | Iterable[str] | None = None,
    *,
    output: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    texts: int = CALIBRATION_TEXTS,
    minimum_cosine: float = MINIMUM_COSINE,
    seed: int = SEED,
    overwrite: bool = False,
    progress: Progress = silent,
    log: Log = ignore,
    **loading: Any,
) -> Quantized:
    """Quantise a model to int8 and save it in the folder `output`, whole or not at all.

    text            what to calibrate and measure on: what `open_corpus` opens, a corpus or a list of texts; by default
                    the docstrings of the installed packages. Of its distinct texts, `texts` calibrate, others measure
    data            a folder of STS tasks in SentEval's layout: both precisions are scored on it
    minimum_cosine  refuse a model whose vectors have a lower mean cosine to the fp32 vectors; 0 takes any
    seed            draws the texts; the same model, texts and seed give the same graph
    loading         options of Encoder.load, for a model that is given by name
    """
    output = Path(output)
    if isinstance(model, Encoder) and loading:
        raise ConfigError(f"{', '.join(loading)}: options of Encoder.load need a model by name, not an Encoder.")
    if not 0 <= minimum_cosine <= 1:
        raise ConfigError(f"a minimum cosine lies between 0 and 1, got {minimum_cosine}.")
    if texts < 1:
        raise ConfigError(f"expected at least one text to calibrate with, got {texts}.")
    _check_output(output, overwrite=overwrite)
    if any(importlib.util.find_spec(library) is None for library in ("openvino", "nncf")):
        raise MissingExtra("quantising to int8", "openvino")
    processor.check(processor.INT8)
    tasks = [] if data is None else make_jobs("sts", Settings(data=os.fspath(data), resamples=RESAMPLES))
    text = BUILT_IN_TEXT if text is None else text
    corpus = open_corpus(text) if isinstance(text, (str, os.PathLike)) else text
    drawn = draw_texts(corpus.texts() if isinstance(corpus, Corpus) else corpus, count=texts, seed=seed)
    if not isinstance(model, Encoder):
        log(f"loading {model} ...")
        model = Encoder.load(model, **{"device": "cpu", **loading})
    computes = (str(model.device), model.precision)
    if model.exported is None and computes != ("cpu", "fp32"):
        raise ConfigError(
            f"expected a model on the CPU in fp32, to compare int8 with, got {model.name} on {' in '.join(computes)}. "
            "Load it with device='cpu' and precision='fp32'."
        )
    graph = make_graph(model)
    log(f"calibrating on {len(drawn.calibration):,} texts ...")
    graph = quantize_graph(model, graph, drawn.calibration, progress=progress)
    with made_aside(model, graph, precision="int8") as made:
        agreement = measure_agreement(model, made, drawn.held_out)
        if refusal := too_far(model, agreement, minimum_cosine):
            raise refusal
        rates = measure_rates({"fp32": model, "int8": made}, drawn.held_out)
        sides = []
        for precision, encoder, size in (("fp32", model, _size(model)), ("int8", made, _graph_size(made))):
            log(f"{precision}: {rates[precision]:,.0f} sentences/s")
            scores = _sts(encoder, tasks, progress, log)
            sides.append(Side(precision, size / 1e6, rates[precision], scores))
        source, content = _described(corpus)
        options = {"texts": texts, "minimum_cosine": minimum_cosine, "seed": seed, "data": data and str(data)}
        result = Quantized(
            source=model.name,
            output=str(output),
            fingerprint=made.fingerprint,
            cosine=agreement,
            fp32=sides[0],
            int8=sides[1],
            calibration={"source": source, "fingerprint": content, "texts": len(drawn.calibration), "seed": seed},
            processor=processor.processor_name(),
            provenance=provenance(model=model, data=[(source, content)], options=options),
        )
        measured = {
            **{name: result.to_dict()[name] for name in ("cosine", "fp32", "int8", "calibration", "processor")},
            "versions": {library: installed(library) for library in ("twinpass", "openvino", "nncf")},
        }
        save_exported(output, model, copy_graph(made), precision="int8", measured=measured, card=_card(result))
    return result


def _check_output(output: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is no exported model, and one that is unless it may be replaced."""
    if not output.exists():
        check_writable(output)
    elif not output.is_dir():
        raise OutputError(f"{output} is a file. Choose another --output.")
    elif not any(output.iterdir()):
        return
    elif not _is_exported(output):
        raise OutputError(f"{output} already exists and was not written by quantize. Choose another --output.")
    elif not overwrite:
        raise OutputError(f"{output} already exists. Add --overwrite to replace it, or choose another --output.")


def _is_exported(folder: Path) -> bool:
    """Return whether a folder is an exported model; a damaged one is, if there is nothing else in it."""
    try:
        return read_exported(folder) is not None
    except ModelError:
        return {path.name for path in folder.iterdir()} <= PARTS


def _described(corpus: Corpus | Iterable[str]) -> tuple[str, str | None]:
    return (corpus.source, corpus.fingerprint()) if isinstance(corpus, Corpus) else ("a list of texts", None)


def _size(encoder: Encoder) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in encoder.model.state_dict().values())


def _graph_size(made: Encoder) -> int:
    assert made.exported is not None
    return sum(path.stat().st_size for path in made.exported.path.parent.iterdir())


def _sts(encoder: Encoder, tasks: list[Job], progress: Progress, log: Log) -> dict[str, float]:
    """Return the STS scores of a model by task, and their average; nothing without tasks."""
    if not tasks:
        return {}
    found = evaluate(encoder, tasks, resamples=RESAMPLES, progress=progress, log=log)
    scores = {task.task: task.scores[0].value for task in found.tasks}
    return {**scores, "Avg.": sum(scores.values()) / len(scores)}


def _card(result: Quantized) -> str:
    base = describe_base(result.source)
    return Card(
        title=Path(result.output).name,
        about=f"`{result.source}`, quantised to int8 for OpenVINO by twinpass {installed('twinpass')}.",
        sections={
            USE: openvino_section(result.output),
            "Measured": to_markdown(result.grids()),
            LICENCE: base.licence_section(),
        },
        data=front_matter("twinpass", base, "int8", "openvino"),
    ).text()

"""`analyze`: sample sentences, encode them by every model, measure, and write the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinpass.analysis.measure import Measures, measure
from twinpass.analysis.models import Models, Variant, VariantEncoder, parse_variants
from twinpass.analysis.neighbours import compare_neighbours
from twinpass.analysis.report import PAGE, Analysis, check_target, is_table
from twinpass.analysis.sampling import MOST_TEXTS, Vectors, open_stsb, splits_of_stsb, take_sample
from twinpass.analysis.training_report import read_trajectory
from twinpass.display import Displayed
from twinpass.encoder.any_model import check_loading
from twinpass.encoder.vector_cache import Cache
from twinpass.errors import ConfigError, InputError
from twinpass.files import read_sealed
from twinpass.log import RunLog, has_log
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.text.corpus import open_corpus

PathLike = str | os.PathLike[str]
STS_AVERAGE = "all, spearman, no regressor"  # the paper's protocol (appendix B)


def analyze(
    models: Models = "minilm",
    *,
    data: PathLike | None = None,
    output: PathLike | None = None,
    sample: int | None = None,
    neighbours: int = 3,
    query: Sequence[str] = (),
    corpus: PathLike | None = None,
    results: Sequence[PathLike | Displayed] = (),
    runs: bool = False,
    columns: str | Sequence[str] | None = None,
    join: str | None = None,
    skip_bad_rows: bool = False,
    header: bool | None = None,
    cache: bool = True,
    seed: int = 42,
    progress: Progress = silent,
    log: Log = ignore,
    command: str | None = None,
    **loading: Any,
) -> Analysis:
    """Measure the vectors that models give to sentences: alignment, uniformity, spectrum, densities, neighbours.

    `models` is one or several of: a name, a variant such as "minilm#layers=3,pooler=avg,whiten,label=NAME", an Encoder,
    or any function from texts to vectors; or a mapping from labels to these. The other arguments:

    - data: scored pairs, pairs or sentences to analyse; `columns`, `join`, `skip_bad_rows` and `header` say how to read
      them. The folder of STS-B stands for its three splits together, as in the paper's figures: sts-train.csv,
      sts-dev.csv and sts-test.csv, or those of them that are there.
    - output: write the report to this folder: index.html, figures/ and analysis.json; or the numbers to a .csv,
      .parquet or .jsonl file.
    - sample: at most this many sentences; the seed decides which. Default: 10,000, or all of STS-B.
    - neighbours: how many to show (0: none) of each `query`; they are searched in `corpus`, by default in the sample.
    - results: of `evaluate`, or files of `evaluate -o FILE.json`; their Avg. STS colours Figure 3.
    - runs: the models are output folders of `train`; draw alignment and uniformity step by step from their logs.
    - cache: read and keep vectors on disk.
    - command: what to type to reproduce the report.
    - loading: options of `Encoder.load` (pooler, device ...), for models given by name.
    """
    if data is None and not runs:
        raise ConfigError("analyze expects sentences (--data FILE, or docs:), or training runs (--runs RUN ...).")
    variants = parse_variants(models)
    if output is not None:
        check_target(output)
    check_loading(loading, analyze)
    described = {name: value for name, value in loading.items() if not name.startswith("trust_")}
    reading: dict[str, Any] = {"skip_bad_rows": skip_bad_rows, "header": header}
    options: dict[str, Any] = {"models": [each.given for each in variants], "runs": runs, "data": data}
    options |= {"columns": columns, "join": join, "sample": sample, "seed": seed}
    options |= {"neighbours": neighbours, "query": query, "corpus": corpus}
    found = Analysis(
        runs=_read_runs(variants, all_of_them=data is None) if runs else (),
        facts=provenance(options=options | described | reading),
        command=command,
    )
    if data is not None:
        averages = _read_averages(results)
        splits = splits_of_stsb(data)
        how: dict[str, Any] = {"columns": columns, "join": join} | reading
        opened = open_stsb(data, splits, log=log, **how) if splits else open_corpus(data, log=log, **how)
        usual = sys.maxsize if splits else MOST_TEXTS
        taken = take_sample(opened, most=usual if sample is None else sample, seed=seed, splits=splits)
        texts: Iterable[str] = taken.texts if corpus is None else open_corpus(corpus, **reading).texts()
        searched = list(dict.fromkeys([*texts, *query]))
        # With one model and no query there is nothing to compare and nothing to show.
        comparing = neighbours > 0 and (len(variants) > 1 or len(query) > 0)
        log(f"analysing {taken.protocol}")
        measured: list[Measures] = []
        vectors: dict[str, Vectors] = {}
        for variant in variants:
            log(f"loading {variant.given} ...")
            model = VariantEncoder(variant, loading, cache=Cache() if cache else None, progress=progress)
            of_sample = model.fit(taken.texts)
            measured.append(measure(variant.label, of_sample, taken, fingerprint=model.fingerprint, seed=seed))
            if comparing:
                vectors[variant.label] = of_sample if searched == taken.texts else model.encode(searched)
        place = {text: number for number, text in enumerate(searched)}
        asked = [place[text] for text in query]
        compared = compare_neighbours(searched, vectors, queries=asked, k=neighbours, seed=seed) if comparing else None
        found = replace(
            found,
            sample=taken,
            models=measured,
            neighbours=compared,
            # The fingerprint comes last, so that it overrides the name.
            averages={m.name: averages[key] for m in measured for key in (m.name, m.fingerprint) if key in averages},
            data_fingerprint=opened.fingerprint(),
        )
    if output is not None:
        found.write(output)
        log(f"{Path(output)} is written" if is_table(Path(output)) else f"the report is {Path(output) / PAGE}")
    return found


def _read_runs(variants: Sequence[Variant], *, all_of_them: bool) -> list[RunLog]:
    """Read the logs of the runs among the models; without data all of them must be runs."""
    folders = {each.label: each.source for each in variants if isinstance(each.source, str)}
    runs = {label: folder for label, folder in folders.items() if all_of_them or has_log(folder)}
    if not runs:
        raise ConfigError("none of the models is a training run with a log. Name a run, or leave out --runs.")
    return [replace(read_trajectory(folder), name=label) for label, folder in runs.items()]


def _read_averages(results: Sequence[PathLike | Displayed]) -> dict[str | None, float]:
    """Return the average of the seven STS tasks from results of `evaluate`, by the model's name and fingerprint."""
    averages: dict[str | None, float] = {}
    for each in results:
        try:
            document = each.to_dict() if isinstance(each, Displayed) else read_sealed(Path(each))
            name, fingerprint = str(document["model"]["name"]), document["model"].get("fingerprint")
            found = [float(score["value"]) for score in document["averages"] if score["protocol"] == STS_AVERAGE]
        except OSError as error:
            raise InputError(f"cannot read {each}: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{each} is not a result file. Write one with: twinpass evaluate MODEL --data FOLDER -o FILE.json"
            ) from error
        if not found:
            raise InputError(
                f"{each} has no average of the seven STS tasks ({STS_AVERAGE}). Evaluate with --tasks sts, all of it."
            )
        averages |= dict.fromkeys(filter(None, (name, fingerprint)), found[0])
    return averages

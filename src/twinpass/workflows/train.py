"""Train with a dev set, without the rows it is made of, and with a report: the whole job behind `twinpass train`."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from twinpass.config import Run, parts_of
from twinpass.errors import ConfigError, InputError
from twinpass.progress import Log, ignore
from twinpass.workflows.dev import is_built_in, open_dev, rows_to_learn_from

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.log import OnEvent, Result
    from twinpass.training.data import Leakage
    from twinpass.training.loop import Evaluate
    from twinpass.training.setup import Given

MadeFrom = tuple[str, str, "str | None"]  # what, its name, its fingerprint


def train(
    run: Run,
    *,
    rows: Given | None = None,
    encoder: Encoder | None = None,
    evaluate: Evaluate | None = None,
    on_event: OnEvent | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
    log: Log = ignore,
    command: str | None = None,
) -> Result:
    """Train a sentence encoder as the run describes and leave it in the run's output folder.

    The model is scored on `run.dev` as it trains, or by `evaluate`: a function that gets a function from texts to
    vectors and returns a score (higher is better), or a dictionary of numbers with one under "score". The best model
    by that score is kept, the last without one. `rows` and `encoder` replace the run's data and model; of a mixture,
    `rows` may be a dictionary with the rows of parts by their names. Built-in text
    (`docs:`) is trained on without the part that built-in dev sets and evaluations ask for. `on_event` is called with
    every event of twinpass.log. `resume` continues from the newest checkpoint, bit-for-bit identically; `overwrite`
    lets a new run replace an old one; with both, a stopped run is resumed if it is the same one, and replaced
    otherwise. `report` writes OUTPUT/report.html; `command` is what it says to run again.
    """
    from twinpass.training.data import InMemory
    from twinpass.training.loop import train as run_training

    run.check()
    if run.keep_start and run.dev is None and evaluate is None:
        raise ConfigError("keep_start needs a dev set (--dev): without scores, the last model is kept. Add one.")
    if evaluate is None and run.dev is not None:
        dev = open_dev(run.dev)
        evaluate = dev
        log(f"dev: {dev.protocol}")
    if rows is None:
        held_out = {}
        for part in parts_of(run):
            if is_built_in(data := part.run.data):
                dev_set = run.dev if run.dev is not None and is_built_in(run.dev) else data
                kept = rows_to_learn_from(data, dev=dev_set, columns=part.run.columns) or []
                held_out[data] = InMemory(kept, source=data)
                log(f"{len(kept):,} rows of {data} are for training; those that {dev_set} is made of are held out")
        rows = held_out or None
    result = run_training(
        run, rows=rows, encoder=encoder, evaluate=evaluate, on_event=on_event, resume=resume, overwrite=overwrite
    )
    if report and result.finished and os.environ.get("RANK", "0") == "0":
        try:
            _write_report(run, result, command)
        except InputError as error:  # the model is complete, whatever happened to its log
            warnings.warn(f"the model is finished, but its report could not be written: {error}", stacklevel=2)
    return result


def find_leakage(run: Run, evaluation: str) -> Leakage:
    """Find the sentences of an evaluation file that occur in a run's training text."""
    from twinpass.text.corpus import open_corpus
    from twinpass.training.data import leakage
    from twinpass.training.setup import open_rows

    return leakage(open_rows(run, None), open_corpus(evaluation))


def _write_report(run: Run, result: Result, command: str | None) -> None:
    """Write the report of a finished run into its output folder."""
    from twinpass.analysis.report import provenance_section
    from twinpass.analysis.training_report import FILE, write_training_report
    from twinpass.files import plain

    write_training_report(
        result.output / FILE,
        title=f"Training report: {result.output.name}",
        folders={result.output.name: result.output},
        protocol=result.protocol or None,
        scores={name: scores for name, scores in result.stages.items() if scores},
        more=[provenance_section(command, fingerprints=made_from(result), facts=plain(result.provenance))],
    )


def made_from(result: Result) -> list[MadeFrom]:
    """Return a run's training text and weights, with their fingerprints."""
    from twinpass.files import sha256

    texts = [("data", each["source"], each["fingerprint"]) for each in result.provenance["data"]]
    weights = sorted(result.output.glob("*model*.safetensors"))
    return [*texts, *(("weights", path.name, sha256(path)) for path in weights)]

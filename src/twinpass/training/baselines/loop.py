"""One small loop for all baselines: a batch, its loss, a step; the best model by dev is the one kept."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from twinpass.encoder.runtime import choose_device
from twinpass.errors import ConfigError, OutputError, TrainingError
from twinpass.files import explaining, write_json, writing_folder
from twinpass.log import FILE as LOG
from twinpass.log import Journal, OnEvent
from twinpass.provenance import provenance
from twinpass.text.corpus import open_corpus
from twinpass.text.rows import Rows
from twinpass.training.baselines.base import BASELINES, Baseline, Candidate
from twinpass.training.baselines.course import Course
from twinpass.training.baselines.run import BaselineResult, BaselineRun, FilledRun
from twinpass.training.baselines.saving import Saved, Saver
from twinpass.training.data import InMemory
from twinpass.training.memory import explaining_memory, memory_of
from twinpass.training.watch import Evaluate


def train_baseline(
    run: BaselineRun,
    *,
    rows: Sequence[str] | Sequence[tuple[str, ...]] | None = None,
    evaluate: Evaluate | None = None,
    on_event: OnEvent | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> BaselineResult:
    """Train a baseline as the run describes and leave its model in the run's output folder, whole or not at all.

    `rows` takes the place of the run's data: sentences, or (premise, hypothesis, label) where labels are wanted.
    `evaluate` is handed a function from texts to vectors and returns a score, higher being better, or a dictionary
    with one under "score"; the best model by it is kept. `on_event` is called with the events of training.
    `resume` goes on where a stopped run was last saved, bit by bit if `evaluate` is the same; `overwrite` lets a new
    run replace an old one. With both, a stopped run is gone on with if it is this one, and else replaced.
    """
    kind = BASELINES[run.baseline]
    filled = run.check().filled()
    output = _check_output(run, overwrite=overwrite)
    text = _open_rows(run, kind, rows)
    saver = Saver(filled, data_fingerprint=text.fingerprint())
    saved = saver.open(resume=resume, overwrite=overwrite)
    with explaining_memory(lambda: _no_memory(filled)):
        try:
            result, kept = _run_course(filled, text, saver, saved, evaluate, on_event)
            if result.finished:
                _write_model(output, filled, text, saver, result, kept)
        except BaseException as error:
            # After a loss that is no number the same step would fail again; else there is something to go on from.
            if isinstance(error, TrainingError) or not saver.state.is_file():
                saver.remove()
            raise
    return result


def _no_memory(run: FilledRun) -> str:
    return (
        f"{memory_of(choose_device(run.device))} ran out while {run.baseline} was trained with a batch of "
        f"{run.batch_size} and at most {run.max_tokens} tokens. Begin anew with a smaller batch_size or max_tokens, or "
        "resume where there is more memory."
    )


def _run_course(
    run: FilledRun, text: Rows, saver: Saver, saved: Saved | None, evaluate: Evaluate | None, on_event: OnEvent | None
) -> tuple[BaselineResult, Candidate]:
    """Take the steps that are left; return what they came to, and the model to keep."""
    device = choose_device(run.device)
    _seed(run.seed)
    baseline = BASELINES[run.baseline](run, text, device)
    length = 0 if saved is None else saved.log_length
    with contextlib.closing(Journal(saver.folder, length=length)) as journal:
        course = Course(run, baseline, evaluate, journal, on_event, saver)
        _seed(run.seed)
        if saved is not None:
            course.restore(saved)
        result = course.run_through()
    return result, course.keeper.chosen()


def _write_model(
    output: Path, run: FilledRun, text: Rows, saver: Saver, result: BaselineResult, kept: Candidate
) -> None:
    with writing_folder(output) as aside:
        kept.save(aside)
        shutil.copyfile(saver.folder / LOG, aside / LOG)
        write_json(aside / "run.json", asdict(run))
        facts = provenance(model=kept, data=[(text.source, saver.data_fingerprint)], options=asdict(run))
        write_json(aside / "result.json", asdict(result) | {"provenance": facts})
    saver.remove()


def _seed(seed: int) -> None:
    from accelerate.utils import set_seed

    set_seed(seed)


def _open_rows(run: BaselineRun, kind: type[Baseline], rows: Sequence[str] | Sequence[tuple[str, ...]] | None) -> Rows:
    if rows is not None:
        return InMemory(rows)
    if not run.data:
        raise ConfigError(f"{run.baseline} learns from {kind.wants}. Name a file, or hand over rows.")
    return open_corpus(run.data, columns=run.columns or kind.columns, skip_bad_rows=run.skip_bad_rows)


def _check_output(run: BaselineRun, *, overwrite: bool) -> Path:
    """Return the output folder if it may be written: new, empty, or a run's that is to be replaced."""
    output = Path(run.output)
    with explaining(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        held = sorted(output.iterdir()) if output.exists() else []
    a_run = (output / "run.json").is_file() and (output / "model.safetensors").is_file()
    if held and not (overwrite and a_run):
        advice = "Allow it to be overwritten, or choose" if a_run else "Choose"
        raise OutputError(f"{output} already holds {held[0].name}. {advice} another place.")
    return output

"""One small loop for all baselines: a batch, its loss, a step; the best model by dev is the one kept."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from twinpass.encoder.runtime import choose_device
from twinpass.errors import ConfigError, OutputError, TrainingError
from twinpass.files import explaining, write_json, writing_folder
from twinpass.provenance import provenance
from twinpass.text.corpus import open_corpus
from twinpass.text.rows import Rows
from twinpass.training.baselines.base import BASELINES, Baseline, Numbers
from twinpass.training.baselines.keeping import Keeper
from twinpass.training.baselines.run import BaselineResult, BaselineRun, FilledRun
from twinpass.training.data import Batches, InMemory
from twinpass.training.events import Event, OnEvent, Started, Stepped, Stopped
from twinpass.training.journal import Journal
from twinpass.training.watch import Evaluate


def train_baseline(
    run: BaselineRun,
    *,
    rows: Sequence[str] | Sequence[tuple[str, ...]] | None = None,
    evaluate: Evaluate | None = None,
    on_event: OnEvent | None = None,
    overwrite: bool = False,
) -> BaselineResult:
    """Train a baseline as the run describes and leave its model in the run's output folder, whole or not at all.

    `rows` takes the place of the run's data: sentences, or (premise, hypothesis, label) where labels are wanted.
    `evaluate` is handed a function from texts to vectors and returns a score, higher being better, or a dictionary
    with one under "score"; the best model by it is kept. `on_event` is called with the events of training.
    """
    kind = BASELINES[run.baseline]
    filled = run.check().filled()
    output = _check_output(run, overwrite=overwrite)
    text = _open_rows(run, kind, rows)
    _seed(run.seed)
    baseline = kind(filled, text, choose_device(run.device))
    with writing_folder(output) as aside, contextlib.closing(Journal(aside, length=0)) as journal:
        course = Course(filled, baseline, evaluate, journal, on_event)
        result = course.run_through(output)
        course.keeper.chosen().save(aside)
        write_json(aside / "run.json", asdict(filled))
        facts = provenance(
            model=course.keeper.chosen(), data=[(text.source, text.fingerprint())], options=asdict(filled)
        )
        write_json(aside / "result.json", asdict(result) | {"output": str(output), "provenance": facts})
    return result


class Course:
    """The steps of a run, from the first to the last."""

    def __init__(
        self,
        run: FilledRun,
        baseline: Baseline,
        evaluate: Evaluate | None,
        journal: Journal,
        on_event: OnEvent | None,
    ) -> None:
        self.run, self.baseline, self.journal, self.on_event = run, baseline, journal, on_event
        self.batches = Batches(
            baseline.examples,
            baseline.examples_per_step,
            run.seed,
            hard_negatives=not baseline.needs_company,
        )
        self.steps = run.steps or run.epochs * self.batches.per_epoch
        self.parameters = baseline.parameters()
        self.optimizer = baseline.make_optimizer(run)
        self.keeper = Keeper(baseline, evaluate)
        self.step, self.loss, self.seconds = 0, math.nan, 0.0

    def run_through(self, output: Path) -> BaselineResult:
        """Take all steps, evaluate on the way, and sum up."""
        started = time.monotonic()
        _seed(self.run.seed)
        self.tell(self._introduce())
        reason = self._take_steps()
        self.tell(Stopped(step=self.step, reason=reason, advice=f"The model is in {output}."))
        return BaselineResult(
            output=output,
            reason=reason,
            steps=self.step,
            loss=self.loss,
            kept=self.keeper.name,
            before=self.keeper.before,
            best=self.keeper.best,
            last=self.keeper.last,
            best_step=self.keeper.best_step,
            seconds=time.monotonic() - started,
        )

    def tell(self, event: Event | None) -> None:
        """Log an event and hand it to whoever listens."""
        if event is None:
            return
        self.journal.write(event)
        if self.on_event is not None:
            self.on_event(event)

    def _take_steps(self) -> str:
        every = self.run.eval_every or self.batches.per_epoch
        self.tell(self.keeper.evaluate(0))
        for step, examples in self.batches.since(0, until=self.steps):
            if self.baseline.exhausted():
                return "early stop"
            self._take_step(step, examples)
            if self.step % every == 0 or self.step == self.steps:
                self.tell(self.keeper.evaluate(self.step))
        return "finished"

    def _take_step(self, step: int, examples: Numbers) -> None:
        began = time.monotonic()
        self.baseline.set_rate(self.optimizer, self.run, step, self.steps)
        # A generator of the step's own, so that what is drawn does not depend on what was drawn before.
        loss = self.baseline.backward(examples, np.random.default_rng([self.run.seed, step, 1]))
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.baseline.clip))
        self._check_finite(step, loss=loss, norm=norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step, self.loss = step + 1, loss
        self.seconds += time.monotonic() - began
        self.tell(self._describe(norm, len(examples)))

    def _check_finite(self, step: int, *, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        raise TrainingError(
            f"{self.run.baseline}: the loss is {loss} and the gradient's norm {norm} at step {step + 1}. Nothing was "
            f"written. Look at the texts, or train with a rate below {self.run.learning_rate}."
        )

    def _introduce(self) -> Started:
        return Started(
            view=self.run.baseline,
            why=self.baseline.about,
            pooler=self.run.pooler or "maximum over time",
            rows=self.baseline.examples,
            steps=self.steps,
            first_step=0,
            epochs=self.steps / self.batches.per_epoch,
            batch_size=min(self.baseline.examples_per_step, self.baseline.examples),
            processes=1,
            parameters=sum(parameter.numel() for parameter in self.parameters.values()),
            lexical_overlap=None,
        )

    def _describe(self, norm: float, examples: int) -> Stepped:
        a_step = self.seconds / self.step
        return Stepped(
            step=self.step,
            steps=self.steps,
            epoch=self.step / self.batches.per_epoch,
            loss=self.loss,
            mlm_loss=self.baseline.mlm_loss,
            learning_rate=self.optimizer.param_groups[0]["lr"],
            gradient_norm=norm,
            negatives=self.baseline.negatives,
            masked=0,
            sentences_per_second=examples * self.baseline.texts_per_example / max(a_step, 1e-9),
            seconds_left=(self.steps - self.step) * a_step,
        )


def _seed(seed: int) -> None:
    from accelerate.utils import set_seed

    set_seed(seed)


def _open_rows(
    run: BaselineRun, kind: type[Baseline], rows: Sequence[str] | Sequence[tuple[str, ...]] | None
) -> Rows:
    if rows is not None:
        return InMemory(rows)
    if not run.data:
        raise ConfigError(f"{run.baseline} learns from {kind.wants}. Name a file, or hand over rows.")
    return open_corpus(run.data, columns=run.columns or kind.columns)


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

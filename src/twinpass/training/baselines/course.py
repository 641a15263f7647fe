"""The steps of a baseline's run, from the first to the last, with evaluations and saves on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from twinpass.errors import TrainingError
from twinpass.log import Event, Journal, OnEvent, Started, Stepped, Stopped
from twinpass.training.baselines.base import Baseline, Numbers
from twinpass.training.baselines.keeping import Keeper
from twinpass.training.baselines.run import BaselineResult, FilledRun
from twinpass.training.baselines.saving import Saved, Saver, copy_into
from twinpass.training.checkpoint import (
    optimizer_tensors,
    random_states,
    random_tensors,
    restore_optimizer,
    with_prefix,
    without_prefix,
)
from twinpass.training.data import Batches
from twinpass.training.generators import restore_states, take_states
from twinpass.training.signals import interruptible
from twinpass.training.watch import Evaluate


class Course:
    """The steps of a run, from the first to the last."""

    def __init__(
        self,
        run: FilledRun,
        baseline: Baseline,
        evaluate: Evaluate | None,
        journal: Journal,
        on_event: OnEvent | None,
        saver: Saver,
    ) -> None:
        self.run, self.baseline, self.journal, self.on_event = run, baseline, journal, on_event
        self.saver = saver
        self.batches = Batches(
            baseline.examples, baseline.examples_per_step, run.seed, hard_negatives=not baseline.needs_company
        )
        self.steps = run.steps or run.epochs * self.batches.per_epoch
        self.parameters = baseline.parameters()
        self.names = {parameter: name for name, parameter in self.parameters.items()}
        self.device = next(iter(self.names)).device
        self.optimizer = baseline.make_optimizer(run)
        self.keeper = Keeper(baseline, evaluate)
        self.step, self.loss, self.seconds = 0, math.nan, 0.0
        self.began = time.monotonic()

    def run_through(self) -> BaselineResult:
        """Take the steps that are left, evaluate and save on the way, and sum up."""
        output = Path(self.run.output)
        with interruptible() as interrupted:
            self.tell(self._introduce())
            reason = self._take_steps(interrupted)
        stopped = reason == "interrupted"
        advice = f"Resume it to go on from step {self.step}." if stopped else f"The model is in {output}."
        self.tell(Stopped(step=self.step, reason=reason, advice=advice))
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
            seconds=time.monotonic() - self.began,
        )

    def save(self) -> None:
        """Save all that the next step depends on."""
        tensors = with_prefix("parameter", self.parameters) | with_prefix("best", self.keeper.weights)
        tensors |= optimizer_tensors(self.optimizer, self.names) | random_tensors([take_states(self.device)])
        self.saver.save(
            Saved(
                step=self.step,
                loss=self.loss,
                seconds=self.seconds,
                elapsed=time.monotonic() - self.began,
                log_length=self.journal.length(),
                keeper=self.keeper.memory(),
                memory=self.baseline.memory(),
                tensors=tensors,
            )
        )

    def restore(self, saved: Saved) -> None:
        """Bring everything back to where it was saved."""
        self.step, self.loss, self.seconds = saved.step, saved.loss, saved.seconds
        self.began = time.monotonic() - saved.elapsed
        copy_into(self.parameters, without_prefix("parameter", saved.tensors))
        restore_optimizer(self.optimizer, self.names, saved.tensors)
        self.keeper.remember(saved.keeper, without_prefix("best", saved.tensors))
        self.baseline.remember(saved.memory)
        restore_states(random_states(saved.tensors, 0), self.device)

    def tell(self, event: Event | None) -> None:
        """Log an event and hand it to whoever listens."""
        if event is None:
            return
        self.journal.write(event)
        if self.on_event is not None:
            self.on_event(event)

    def _take_steps(self, interrupted: Callable[[], bool]) -> str:
        every = self.run.eval_every or self.batches.per_epoch
        if self.step == 0:
            self.tell(self.keeper.evaluate(0))
        for step, examples in self.batches.since(self.step, until=self.steps):
            if self.baseline.exhausted():
                return "early stop"
            self._take_step(step, examples)
            if self.step % every == 0 or self.step == self.steps:
                self.tell(self.keeper.evaluate(self.step))
            stopping = interrupted()  # asked once: a run that stops here is one that is saved here
            if stopping or self.step % self.run.save_every == 0:
                self.save()
            if stopping and self.step < self.steps:
                return "interrupted"
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
            first_step=self.step,
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

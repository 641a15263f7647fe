"""What happens around the steps: events, evaluations, checkpoints and the finish."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.files import writing
from twinpass.log import Evaluated, Event, Journal, OnEvent, Result, Saved, Scores, Stopped, Tracked
from twinpass.training import checkpoint
from twinpass.training.card import write_card
from twinpass.training.generators import keeping_states, take_states
from twinpass.training.setup import Parts

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
Evaluate = Callable[[Encode], "float | Scores"]


def as_scores(found: float | Scores) -> Scores:
    """Return what an evaluation found as named numbers, one of them under "score"."""
    if not isinstance(found, dict):
        return {"score": float(found)}
    if "score" not in found:
        raise ConfigError(f"evaluate must return a number, or a dict with a 'score'; it returned {list(found)}.")
    return {name: float(value) for name, value in found.items()}


class Rate(NamedTuple):
    """How fast it goes, evaluations and saving left out."""

    sentences_per_second: float
    seconds_left: float


class Watch:
    """Follows a run: tells, scores, saves and finishes it."""

    def __init__(self, parts: Parts, evaluate: Evaluate | None, on_event: OnEvent | None) -> None:
        self.parts = parts
        self.evaluator = evaluate
        self.on_event = on_event
        self.journal: Journal | None = None
        if parts.processes.is_main:
            board = parts.run.tensorboard
            self.journal = Journal(parts.output, length=parts.progress.log_length, tensorboard=board)
            with writing(parts.output / "run.json") as aside:
                aside.write_text(parts.run.to_json(), encoding="utf-8")
        self.saved_step = parts.progress.step if parts.progress.step else None
        self.scored: tuple[int, Scores] | None = None  # the step last scored, and how
        self.steps = self.sentences = 0
        self.training_seconds = 0.0
        self.started = self.last_mark = time.monotonic()

    def tell(self, event: Event) -> None:
        """Log an event and hand it to whoever listens; only the main process speaks."""
        if self.journal is None:
            return
        # A checkpoint remembers the log's length, so the news of it comes too late to be logged.
        if not isinstance(event, Saved):
            self.journal.write(event)
        if self.on_event is not None:
            self.on_event(event)

    def note_step(self, sentences: int, now: float) -> Rate:
        """Count a step and return the rate so far."""
        self.steps += 1
        self.sentences += sentences
        self.training_seconds += now - self.last_mark
        self.last_mark = now
        seconds = max(self.training_seconds, 1e-9)
        left = self.parts.steps - self.parts.progress.step
        return Rate(self.sentences / seconds, left * seconds / self.steps)

    def evaluate(self) -> None:
        """Score the present model, and keep it if it is the best so far."""
        if self.evaluator is None:
            return
        parts, progress = self.parts, self.parts.progress
        scores: Scores = parts.processes.from_main(self._score() if parts.processes.is_main else None)
        before = progress.step == 0
        gain = not before and scores["score"] > progress.best.get("score", -math.inf)
        if before:
            progress.before = scores
        else:
            progress.last = scores
            progress.evaluations_without_gain = 0 if gain else progress.evaluations_without_gain + 1
        if gain:
            progress.best, progress.best_step = scores, progress.step
            if parts.processes.is_main:
                checkpoint.write_best(parts.output, parts.run, progress.step, parts.encoders)
        self.tell(Evaluated(step=progress.step, score=scores["score"], scores=scores, best=gain))
        self.last_mark = time.monotonic()

    def track(self) -> None:
        """Log alignment and uniformity of the dev set's vectors."""
        processes = self.parts.processes
        scores: Scores = processes.from_main(self._score() if processes.is_main else None)
        if not {"alignment", "uniformity"} <= scores.keys():
            raise ConfigError(
                "track_geometry wants a dev set of pairs, some of which mean the same; this run has "
                f"{'no dev set' if self.evaluator is None else 'one that tells ' + ', '.join(scores)}."
            )
        point = Tracked(step=self.parts.progress.step, alignment=scores["alignment"], uniformity=scores["uniformity"])
        self.tell(point)
        self.last_mark = time.monotonic()

    def save(self) -> None:
        """Write a checkpoint of the present state, unless there is one of this very step."""
        parts, progress = self.parts, self.parts.progress
        if self.saved_step == progress.step:
            return
        progress.seconds += time.monotonic() - self.started
        self.started = time.monotonic()
        progress.log_length = self.journal.length() if self.journal else 0
        progress.processes = parts.processes.count
        progress.scaler = parts.accelerator.scaler.state_dict() if parts.accelerator.scaler else {}
        random = parts.processes.everyones(take_states(parts.encoder.device))
        if parts.processes.is_main:
            tensors = self._tensors() | checkpoint.random_tensors(random)
            folder = checkpoint.write_checkpoint(parts.output, parts.run, progress, parts.encoders, tensors)
            self.tell(Saved(step=progress.step, folder=str(folder)))
        parts.processes.wait()
        self.saved_step = progress.step
        self.last_mark = time.monotonic()

    def finish(self, reason: str) -> Result:
        """Save the last state, put the kept model into the output folder and sum the run up."""
        self.save()
        parts, progress = self.parts, self.parts.progress
        interrupted = reason == "interrupted"
        if not interrupted and parts.processes.is_main:
            self._put_model()
        advice = (
            f"Resume with the same command and --resume, or train(Run.read('{parts.output}/run.json'), resume=True)."
            if interrupted
            else f"The model is in {parts.output}."
        )
        self.tell(Stopped(step=progress.step, reason=reason, advice=advice))
        result = Result(
            output=parts.output,
            reason=reason,
            steps=progress.step,
            loss=progress.loss,
            before=progress.before,
            best=progress.best,
            last=progress.last,
            best_step=progress.best_step,
            masked=progress.masked,
            seconds=progress.seconds + time.monotonic() - self.started,
            sentences_per_second=self.sentences / self.training_seconds if self.training_seconds else 0.0,
            advice=advice,
        )
        if not interrupted and parts.processes.is_main:
            write_card(parts, result, protocol=str(getattr(self.evaluator, "protocol", "")))
        parts.processes.wait()
        return result

    def close(self) -> None:
        """Close the log and leave the encoders ready for use."""
        if self.journal is not None:
            self.journal.close()
        for encoder in self.parts.encoders:
            encoder.model.eval()

    def _put_model(self) -> None:
        """Save the best model by dev where there is one, the last otherwise."""
        output, best = self.parts.output, self.parts.progress.best_step
        kept = self.parts.encoder
        if best is not None and best != self.parts.progress.step:
            kept = Encoder.load(checkpoint.best_folder(output, best), device=str(kept.device))
        kept.save(output)

    def _score(self) -> Scores:
        """Ask the evaluator, and let nothing it draws at random touch the training."""
        if self.evaluator is None:
            return {}
        step = self.parts.progress.step
        if self.scored is not None and self.scored[0] == step:
            return self.scored[1]
        with keeping_states(self.parts.encoder.device):
            scores = as_scores(self.evaluator(self.parts.encoder.encode))
        self.scored = step, scores
        return scores

    def _tensors(self) -> dict[str, Any]:
        """Return what a checkpoint holds beside the model: the optimizer's moments and the head of the MLM."""
        parts = self.parts
        tensors = checkpoint.optimizer_tensors(parts.optimizer, parts.names)
        head = {name: parameter.detach() for parameter, name in parts.names.items() if name.startswith("mlm.")}
        return tensors | head

"""The training loop, the same for every method, and the record of a run: events, evaluations, checkpoints."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

from twinpass.config import USERS, Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, TrainingError
from twinpass.files import writing
from twinpass.log import Evaluated, Event, LogWriter, OnEvent, Result, Saved, Scores, Started, Stepped, Stopped, Tracked
from twinpass.provenance import provenance
from twinpass.training import checkpoint
from twinpass.training.card import write_card
from twinpass.training.lean import lean_layers
from twinpass.training.method import Encode, Numbers, Outcome, Trainable
from twinpass.training.mixture import fingerprints
from twinpass.training.processes import explaining_loss_of_others, explaining_memory, interruptible, memory_of
from twinpass.training.randomness import keeping_states, take_states
from twinpass.training.setup import AlreadyFinished, Given, Parts, count_values, prepare

Evaluate = Callable[[Encode], "float | Scores"]
CHUNK = 4096  # tokens to encode at once where the memory is too small for a whole batch


def train(
    run: Run,
    *,
    evaluate: Evaluate | None = None,
    on_event: OnEvent | None = None,
    rows: Given | None = None,
    encoder: Encoder | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Result:
    """Train as the run describes, with the options of `twinpass.train` but with an opened dev set as `evaluate`.

    With both `resume` and `overwrite`, a stopped run is resumed if it is the same one, and replaced otherwise.
    """
    if run.dev is not None and evaluate is None:
        raise ConfigError("twinpass.train opens run.dev; this loop takes the opened dev set as `evaluate`.")
    if run.track_geometry is not None and evaluate is None:
        raise ConfigError(
            "track_geometry needs a dev set of pairs, some of which mean the same; this run has no dev set."
        )
    try:
        parts = prepare(run, rows=rows, encoder=encoder, resume=resume, overwrite=overwrite)
    except AlreadyFinished as finished:
        return finished.result
    with parts, checkpoint.advising(parts.output, count_values(parts.names), keep=run.keep_checkpoints):
        record = Record(parts, evaluate, on_event)
        try:
            models = (each.model for each in parts.method.models.values())
            with (
                explaining_memory(lambda: _no_memory(parts)),
                explaining_loss_of_others(parts.processes),
                lean_layers(models, parts.method.device),
                interruptible() as interrupted,
            ):
                record.tell(_introduce(parts))
                for part in parts.method.mixed():
                    record.tell(part)
                reason = _run_steps(parts, record, interrupted)
                result = record.finish(reason)
        finally:
            record.close()
    # A signal in the very last step, or while the model is written, comes too late to stop the run, but it is not lost.
    return dataclasses.replace(result, interrupted=interrupted() or reason == "interrupted")


def _run_steps(parts: Parts, record: Record, interrupted: Callable[[], bool]) -> str:
    """Take the remaining steps and return why they ended."""
    run, method, progress = parts.run, parts.method, parts.progress
    optimizer = parts.processes.accelerator.prepare(parts.optimizer)
    eval_every = run.eval_every or parts.batches.per_epoch
    if progress.step == 0:
        record.evaluate()
        if run.track_geometry is not None:
            record.track()
    for step, examples in parts.batches.since(progress.step, until=parts.steps):
        impatient = run.patience is not None and progress.evaluations_without_gain >= run.patience
        if impatient or method.exhausted():
            return "early stop"
        method.set_rate(parts.optimizer, step, parts.steps)
        outcome, norm = compute_gradient(parts, step, examples)
        optimizer.step()
        optimizer.zero_grad()

        progress.step, progress.loss = step + 1, outcome.loss
        progress.masked += outcome.masked
        record.tell(record.describe_step(outcome, norm))
        if progress.step % eval_every == 0 or progress.step == parts.steps:
            record.evaluate()
        if run.track_geometry is not None and progress.step % run.track_geometry == 0:
            record.track()
        stop = parts.processes.total(interrupted()) > 0
        if stop or progress.step % run.save_every == 0:
            record.save()
        if stop and progress.step < parts.steps:
            return "interrupted"
    return "finished"


def compute_gradient(parts: Parts, step: int, examples: Numbers) -> tuple[Outcome, float]:
    """Compute the clipped gradient of a batch; return the step's numbers and the norm before clipping."""
    outcome = parts.method.backward(step, examples)
    _check_finite(parts, "the loss", outcome.loss, step, examples, outcome)
    parts.processes.sum_gradients(parts.names)
    clip = math.inf if parts.run.clip is None else parts.run.clip
    accelerator = parts.processes.accelerator
    norm = float(accelerator.clip_grad_norm_(list(parts.names), clip))
    if accelerator.scaler is None:  # with fp16 the scaler skips such a step by itself
        _check_finite(parts, "the gradient's norm", norm, step, examples, outcome)
    return outcome, norm


def _check_finite(parts: Parts, what: str, value: float, step: int, examples: Numbers, outcome: Outcome) -> None:
    """Stop the run at a non-finite value, and report the texts."""
    if math.isfinite(value):
        return
    blamed = examples
    if outcome.vectors is not None:
        broken = (~outcome.vectors.isfinite().all(dim=2)).any(dim=0).cpu().numpy()
        blamed = examples[broken] if broken.any() else examples
    good, _ = checkpoint.newest_good(parts.output)
    raise TrainingError(
        f"{what} is {value} at step {step + 1}, on {len(blamed)} of {len(examples)} rows:\n  "
        + "\n  ".join(parts.method.describe(blamed))
        + f"\n{f'The last good checkpoint is {good}' if good else 'There is no good checkpoint'}. Look at these texts, "
        f"or train with a learning rate below {parts.run.learning_rate}."
    )


def _no_memory(parts: Parts) -> str:
    """Return what ran out, and what needs less of it."""
    run, smaller = parts.run, "a smaller batch_size or max_tokens"
    step, memory = parts.progress.step + 1, memory_of(parts.method.device)
    what = f"{memory} ran out at step {step}, with a batch of {run.batch_size} rows."
    if run.method not in USERS["chunk_tokens"]:
        return f"{what} Start again with {smaller}, or resume where there is more memory."
    tokens = CHUNK if run.chunk_tokens is None else max(1, run.chunk_tokens // 2)
    return (
        f"{what} Start again with chunk_tokens {tokens}: the batch is encoded in smaller chunks, and its loss stays "
        f"the same. If that is not enough, use {smaller}, or resume where there is more memory."
    )


def _introduce(parts: Parts) -> Started:
    method, run = parts.method, parts.run
    return Started(
        method=run.method,
        objective=method.objective,
        view=" + ".join(method.views),
        why=method.why,
        pooler=run.pooler or "maximum over time",
        rows=method.examples,
        steps=parts.steps,
        first_step=parts.progress.step,
        epochs=parts.epoch(parts.steps),
        batch_size=min(method.per_step, method.examples),
        processes=parts.processes.count,
        parameters=sum(parameter.numel() for parameter in parts.names),
        lexical_overlap=method.overlap,
        notes=parts.notes,
    )


def as_scores(found: float | Scores) -> Scores:
    """Return the result of an evaluation as named numbers, one of them under "score"."""
    if not isinstance(found, dict):
        return {"score": float(found)}
    if "score" not in found:
        raise ConfigError(f"evaluate must return a number, or a dict with a 'score'; it returned {list(found)}.")
    return {name: float(value) for name, value in found.items()}


class Record:
    """What happens around the steps: events are logged, models evaluated and saved, the run is finished."""

    def __init__(self, parts: Parts, evaluate: Evaluate | None, on_event: OnEvent | None) -> None:
        self.parts, self.evaluator, self.on_event = parts, evaluate, on_event
        self.protocol = str(getattr(evaluate, "protocol", ""))
        self.log: LogWriter | None = None
        if parts.processes.is_main:
            board = parts.run.tensorboard
            self.log = LogWriter(parts.output, length=parts.progress.log_length, tensorboard=board)
            parts.notes += (self.log.note,) if self.log.note else ()
            with writing(parts.output / "run.json") as aside:
                aside.write_text(parts.run.to_json(), encoding="utf-8")
        self.saved_step = parts.progress.step if parts.progress.step else None
        self.scored: tuple[int, str, Scores] | None = None  # the step last scored, the best candidate, its scores
        self.steps = self.texts = 0
        self.training_seconds = 0.0  # without evaluations and saving
        self.started = self.last_mark = time.monotonic()

    def tell(self, event: Event) -> None:
        """Log an event and pass it to the listener, in the main process only."""
        if self.log is None:
            return
        # A checkpoint stores the log's length, so its own event comes too late to be logged.
        if not isinstance(event, Saved):
            self.log.write(event)
        if self.on_event is not None:
            self.on_event(event)

    def describe_step(self, outcome: Outcome, norm: float) -> Stepped:
        """Count a step and return its event."""
        parts, now = self.parts, time.monotonic()
        self.steps += 1
        self.texts += outcome.texts
        self.training_seconds += now - self.last_mark
        self.last_mark = now
        step, seconds = parts.progress.step, max(self.training_seconds, 1e-9)
        return Stepped(
            step=step,
            steps=parts.steps,
            epoch=parts.epoch(step),
            loss=outcome.loss,
            mlm_loss=outcome.mlm_loss,
            learning_rate=parts.optimizer.param_groups[0]["lr"],
            gradient_norm=norm,
            negatives=outcome.negatives,
            masked=outcome.masked,
            sentences_per_second=self.texts / seconds,
            seconds_left=(parts.steps - step) * seconds / self.steps,
            part=outcome.part,
        )

    def evaluate(self) -> None:
        """Score the present model, and keep it if it is the best so far."""
        if self.evaluator is None:
            return
        parts, progress = self.parts, self.parts.progress
        name, scores = self._score()
        before = progress.step == 0
        competes = not before or parts.run.keep_start
        gain = competes and scores["score"] > progress.best.get("score", -math.inf)
        if before:
            progress.before = scores
        else:
            progress.last, progress.last_step = scores, progress.step
            progress.evaluations_without_gain = 0 if gain else progress.evaluations_without_gain + 1
            parts.method.note_evaluation(gain=gain)
        if gain:
            progress.best, progress.best_step, progress.kept = scores, progress.step, name
            if parts.processes.is_main:
                candidates = parts.method.candidates()
                others = {each: model for each, model in parts.method.models.items() if each not in candidates}
                checkpoint.write_best(parts.output, parts.run, progress.step, candidates[name], others)
        self.tell(Evaluated(step=progress.step, score=scores["score"], scores=scores, best=gain))
        self.last_mark = time.monotonic()

    def track(self) -> None:
        """Log alignment and uniformity of the dev set's vectors."""
        _, scores = self._score()
        if not {"alignment", "uniformity"} <= scores.keys():
            raise ConfigError(
                "track_geometry needs a dev set of pairs, some of which mean the same; this run has one that gives "
                f"{', '.join(scores)}."
            )
        step = self.parts.progress.step
        self.tell(Tracked(step=step, alignment=scores["alignment"], uniformity=scores["uniformity"]))
        self.last_mark = time.monotonic()

    def save(self) -> None:
        """Write a checkpoint of the present state, unless there is one of this step."""
        parts, progress, method = self.parts, self.parts.progress, self.parts.method
        if self.saved_step == progress.step:
            return
        progress.seconds += time.monotonic() - self.started
        self.started = time.monotonic()
        progress.log_length = self.log.length() if self.log else 0
        progress.processes = parts.processes.count
        progress.memory = method.memory
        scaler = parts.processes.accelerator.scaler
        progress.scaler = scaler.state_dict() if scaler else {}
        random = parts.processes.everyones(take_states(method.device))
        if parts.processes.is_main:
            state = self._state() | checkpoint.random_tensors(random)
            main = method.candidates()[method.main]
            others = {name: model for name, model in method.models.items() if name != method.main}
            folder = checkpoint.write_checkpoint(parts.output, parts.run, progress, main, others, state)
            self.tell(Saved(step=progress.step, folder=str(folder)))
        parts.processes.wait()
        self.saved_step = progress.step
        self.last_mark = time.monotonic()

    def finish(self, reason: str) -> Result:
        """Save the last state, write the kept model into the output folder and return the result."""
        self.save()
        parts, progress = self.parts, self.parts.progress
        finished = reason != "interrupted"
        kept = self._write_model() if finished and parts.processes.is_main else None
        python = f"train(Run.read('{parts.output}/run.json'), resume=True)"
        advice = f"Resume with the same command and --resume, or {python}."
        if finished:
            advice = f"The model is in {parts.output}."
        self.tell(Stopped(step=progress.step, reason=reason, advice=advice))
        text = fingerprints(parts.method.rows, progress.data_fingerprint)
        facts = provenance(data=text, options={"run": dataclasses.asdict(parts.run)})
        result = Result(
            output=parts.output,
            reason=reason,
            steps=progress.step,
            loss=progress.loss,
            kept=progress.kept,
            before=progress.before,
            best=progress.best,
            last=progress.last,
            best_step=progress.best_step,
            last_step=progress.last_step,
            masked=progress.masked,
            seconds=progress.seconds + time.monotonic() - self.started,
            sentences_per_second=self.texts / self.training_seconds if self.training_seconds else 0.0,
            protocol=self.protocol,
            advice=advice,
            provenance=facts
            if kept is None
            else {"model": {"name": str(parts.output), "fingerprint": kept.fingerprint}, **facts},
        )
        if finished and parts.processes.is_main:
            write_card(parts, result)
            checkpoint.write_finished(parts.output, parts.run, progress, result)
        parts.processes.wait()
        return result

    def close(self) -> None:
        """Close the log and leave the encoders ready for use."""
        if self.log is not None:
            self.log.close()
        for model in self.parts.method.models.values():
            model.model.eval()

    def _write_model(self) -> Trainable:
        """Save the best model by dev if there is one, the last otherwise; return it."""
        parts, progress = self.parts, self.parts.progress
        kept = parts.method.candidates()[progress.kept]
        if progress.best_step is not None and progress.best_step != progress.step:
            best = checkpoint.find_best(parts.output, progress.best_step)
            kept = parts.method.load_best(best)
        parts.method.finish(kept).save(parts.output)
        return kept

    def _score(self) -> tuple[str, Scores]:
        """Return the best candidate and its scores, the same in every process."""
        if self.evaluator is None:
            return "", {}
        step, processes = self.parts.progress.step, self.parts.processes
        if self.scored is None or self.scored[0] != step:
            self.scored = step, *processes.from_main(self._score_candidates() if processes.is_main else None)
        return self.scored[1:]

    def _score_candidates(self) -> tuple[str, Scores]:
        candidates = list(self.parts.method.candidates().items())
        if self.parts.progress.step == 0:  # where they are still the same
            candidates = candidates[:1]
        scored: dict[str, Scores] = {}
        for name, candidate in candidates:
            # Nothing that an evaluation draws at random changes the training.
            with keeping_states(self.parts.method.device):
                scored[name] = as_scores(self.evaluator(candidate.encode))  # type: ignore[misc]
        # NaN is below all other scores.
        return max(scored.items(), key=lambda item: (not math.isnan(item[1]["score"]), item[1]["score"]))

    def _state(self) -> dict[str, Any]:
        """Return what a checkpoint holds besides the models: optimizer, heads, and the method's own tensors."""
        parts = self.parts
        heads = tuple(f"{name}." for name in parts.method.heads)
        weights = {name: parameter.detach() for parameter, name in parts.names.items() if name.startswith(heads)}
        own = checkpoint.kept_tensors(parts.method.tensors)
        return checkpoint.optimizer_tensors(parts.optimizer, parts.names) | weights | own

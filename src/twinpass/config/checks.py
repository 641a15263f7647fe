"""What a run may say: types, values and combinations, each problem with what to do."""

from __future__ import annotations

import dataclasses
import math
import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from twinpass.config.methods import AFTER_SIMCSE, NEW_MODEL, USERS, new_model
from twinpass.config.mixture import parts_of
from twinpass.config.positives import read_positive
from twinpass.config.sizes import read_sizes
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.config.run import Run


def check_types(run: Run) -> None:
    """Raise ConfigError for a field whose value has another type than it is declared with."""
    hints = get_type_hints(type(run))
    for field in dataclasses.fields(run):
        value, expected = getattr(run, field.name), hints[field.name]
        if not _is(value, expected):
            raise ConfigError(f"{field.name}: expected {in_words(expected)}, got {value!r}.")


def _is(value: object, expected: Any) -> bool:
    if get_origin(expected) in (Union, types.UnionType):
        return any(_is(value, part) for part in get_args(expected))
    if get_origin(expected) is tuple:
        return isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    if expected is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, expected)


def in_words(expected: Any) -> str:
    """Say what a field of this type takes."""
    names = {"float": "a number", "int": "a whole number", "str": "text", "bool": "true or false"}
    parts = get_args(expected) if get_origin(expected) in (Union, types.UnionType) else (expected,)
    return " or ".join(
        "nothing" if part is type(None) else names.get(part.__name__, "a list of texts") for part in parts
    )


def check_method(run: Run) -> None:
    """Raise ConfigError for an option that the run's method does not use."""
    for name, value in run.changes.items():
        if name in USERS and run.method not in USERS[name]:
            users = ", ".join(USERS[name])
            raise ConfigError(f"{run.method} does not use {name}; got {value!r}. Leave it out (it is for: {users}).")


def check_values(run: Run) -> None:
    """Raise ConfigError for a value that no run may have."""
    for field in dataclasses.fields(run):
        choices, value = field.metadata["choices"], getattr(run, field.name)
        if choices and value not in choices:
            raise ConfigError(f"{field.name} must be one of {', '.join(choices)}; got {value!r}.")
        finite = not isinstance(value, float) or math.isfinite(value)
        _require(finite, f"{field.name} must be a finite number; got {value}.")
    for name in ("temperature", "ranking_temperature", "hard_negative_weight", "learning_rate", "clip"):
        value = getattr(run, name)
        _require(value is None or value > 0, f"{name} must be above 0; got {value}.")
    counts = (
        "batch_size",
        "epochs",
        "steps",
        "eval_every",
        "save_every",
        "patience",
        "chunk_tokens",
        "width",
        "lora",
        "lora_alpha",
    )
    for name in (*counts, "track_geometry", "layers"):
        value = getattr(run, name)
        _require(value is None or value >= 1, f"{name} must be 1 or more; got {value}.")
    weights = ("mlm_weight", "soft_negative_weight", "rtd_weight", "ranking_weight", "consistency_weight")
    for name in (*weights, "weight_decay", "seed", "keep_checkpoints", "queue"):
        _require(getattr(run, name) >= 0, f"{name} must not be negative; got {getattr(run, name)}.")
    _require(run.dropout is None or 0 <= run.dropout < 1, f"dropout must be in [0, 1); got {run.dropout}.")
    _require(0 < run.mlm_rate < 1, f"mlm_rate must be between 0 and 1; got {run.mlm_rate}.")
    _require(0 <= run.warmup < 1, f"warmup is a share of the steps, in [0, 1); got {run.warmup}.")
    _require(run.max_tokens >= 3, f"max_tokens must be 3 or more, to hold a word; got {run.max_tokens}.")
    _require(run.seed < 2**31, f"seed must be below 2^31; got {run.seed}.")
    _require(0 <= run.repetition <= 1, f"repetition is a share of the subwords, in [0, 1]; got {run.repetition}.")
    _require(0 <= run.teacher_share <= 1, f"teacher_share is a share, in [0, 1]; got {run.teacher_share}.")
    _require(0 <= run.momentum <= 1, f"momentum is a share, in [0, 1]; got {run.momentum}.")
    _require(
        run.batch_size >= 2 or not (run.method in AFTER_SIMCSE or run.view in ("dropout", "pairs")),
        "batch_size must be 2 or more: the other rows of a batch are a row's negatives.",
    )
    _require(
        run.batch_size >= 2 or not (run.score or (run.method == "distill" and run.match == "cosines")),
        "batch_size must be 2 or more: a row is compared with the other rows of its batch.",
    )


def check_combinations(run: Run) -> None:
    """Raise ConfigError for values that are possible alone, but not together."""
    _require(run.lora is None or not run.mlm_weight, "lora freezes the word embeddings, which mlm_weight trains.")
    _require(run.lora is not None or run.lora_alpha is None, "lora_alpha scales LoRA's matrices: give lora, too.")
    _require(run.lora is not None or run.lora_merge, "lora_merge says how LoRA's result is saved: give lora, too.")
    if run.matryoshka is not None:
        read_sizes(run.matryoshka, what="matryoshka")
    if run.model.startswith(NEW_MODEL):
        _require(run.method == "mlm", f"{run.model!r} is an untrained encoder: pretrain it with the method mlm.")
        new_model(run.model)
    if run.positive is not None:
        read_positive(run.positive)
        _require(
            run.view != "triplets" and not run.share_dropout_mask,
            "positive makes pairs of single sentences, so it cannot be combined with the triplets view or "
            "share_dropout_mask. Drop one.",
        )
    _require(
        not run.share_dropout_mask or run.view in ("auto", "dropout"),
        f"share_dropout_mask uses one pass as both views, so it needs the dropout view, not {run.view!r}.",
    )
    _require(
        not (run.share_dropout_mask and run.dual_encoder),
        "share_dropout_mask needs one encoder for both views, and dual_encoder makes two. Drop one.",
    )
    _check_labels_and_scores(run)
    if run.mixture:
        _require(
            bool(run.data) or (run.columns, run.join, run.label, run.score, run.positive) == (None,) * 5,
            "columns, join, label, score and positive say how `data` is read, and this run has only a mixture. Write "
            "them after the file's name, as in 'tickets.csv columns=text label=category'.",
        )
        for part in parts_of(run):
            part.run.check()
    _require(
        run.hard_negative_weight == 1.0 or run.view in ("auto", "triplets"),
        f"hard_negative_weight needs hard negatives, so the triplets view (three columns or more), not {run.view!r}.",
    )
    for name in ("template", "second_template"):
        text = getattr(run, name)
        _require(
            text is None or (text.count("[X]") == 1 and text.count("[MASK]") == 1),
            f"{name} must have [X] once, for the sentence, and [MASK] once, for its vector; got {text!r}.",
        )
    _require(
        run.method != "promptbert" or run.pooler == "mask",
        f"promptbert's vector is that of its template's mask token, so its pooler is mask; got {run.pooler!r}.",
    )
    _require(
        run.margin_low <= run.margin_high,
        f"margin_low must not be above margin_high; got {run.margin_low} and {run.margin_high}.",
    )
    _require(
        run.similarity == "cosine" or run.temperature in (0.05, 1.0),
        f"the dot product has no temperature (Table D.1); got {run.temperature}. Leave temperature out, or use the "
        "cosine.",
    )


def _check_labels_and_scores(run: Run) -> None:
    _require(run.label is None or run.score is None, "a run learns from a label or from a score. Drop one of the two.")
    for field, view in (("label", "classes"), ("score", "scores")):
        given = getattr(run, field) is not None
        _require(given or run.view != view, f"the {view} view needs the column to learn from: name it with {field}.")
        _require(
            not given or run.view in ("auto", view),
            f"{field} makes the view {view!r}, so it cannot be combined with the view {run.view!r}. Drop one.",
        )
        _require(
            not given or (run.positive is None and not run.share_dropout_mask),
            f"{field} says what belongs together, so it cannot be combined with positive or share_dropout_mask. Drop "
            "one.",
        )
    _require(
        run.label is None or run.batch_size >= 4,
        f"batch_size must be 4 or more with label: two rows of two classes; got {run.batch_size}.",
    )
    _require(
        run.label is None or not run.dual_encoder,
        "dual_encoder gives pairs two encoders, and label compares single texts with each other. Drop one.",
    )
    _require(
        run.score is None or run.similarity == "cosine",
        "score ranks the cosines of pairs, so it needs the similarity 'cosine'.",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)

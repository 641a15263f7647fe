"""Run: one frozen description of a training run, and the paper's own settings as values of it.

The command line's flags are derived from the fields below, so a new option is added here and nowhere else.
Each field's metadata holds `help` (one line), `source` (the table or section its default comes from) and,
where the values are few, `choices`.
"""

from __future__ import annotations

import dataclasses
import json
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from twinpass.errors import ConfigError
from twinpass.positive import read_positive
from twinpass.registry import Registry, suggest


def _option(default: Any, help: str, *, source: str = "", choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "source": source, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides what a training run computes; equal runs give equal weights."""

    # What is read, and where the model goes.
    data: str = _option("", "Training text: a file, folder, glob, '-' or 'docs:'.")
    columns: tuple[str, ...] | None = _option(None, "The text columns, by name or position.")
    header: bool | None = _option(None, "Whether a table's first row names its columns; by default it is seen.")
    skip_bad_rows: bool = _option(False, "Leave unreadable rows out instead of stopping at the first.")
    model: str = _option("minilm", "The model to start from: 'minilm', a folder or a cached hub name.")
    output: str = _option("", "The folder that receives the model, its log and its checkpoints.")
    trust_pickle: bool = _option(False, "Load weights stored as a pickle, which can run code.")
    trust_remote_code: bool = _option(False, "Run model code that comes with the checkpoint.")

    # What makes a positive, and how a sentence becomes a vector.
    view: str = _option(
        "auto",
        "What makes a positive; 'auto' goes by the number of columns.",
        source="Sections 3 and 4",
        choices=("auto", "dropout", "pairs", "triplets"),
    )
    positive: str | None = _option(
        None,
        "Make each sentence's positive: crop:10, delete:20 (per cent), delete-one, synonym, mlm:15, or one of the "
        "next sentences, next:1 or next:3.",
        source="Tables 1 and 2",
    )
    wordnet: str | None = _option(None, "The folder of WordNet's files, for synonyms; by default it is looked for.")
    share_dropout_mask: bool = _option(False, "One pass used as both views: the row 'fixed 0.1'.", source="Table 3")
    dropout: float | None = _option(None, "Dropout rate; by default the model's own (0.1).", source="Table 3")
    pooler: str | None = _option(
        None,
        "How token states become one vector; by default the model's own, or else cls_mlp_train for single "
        "sentences and cls_mlp for pairs and triplets.",
        source="Table 6",
    )
    dual_encoder: bool = _option(False, "A second encoder for the positives (and hard negatives).", source="Table 2")
    max_tokens: int = _option(32, "Sentences are cut at this many tokens in training.", source="the authors' code")

    # What is minimised.
    similarity: str = _option("cosine", "How vectors are compared.", source="Table D.1", choices=("cosine", "dot"))
    temperature: float = _option(0.05, "Divides the cosine; the dot product goes without.", source="Table D.1")
    hard_negative_weight: float = _option(
        1.0, "Eq. 8's alpha: how much a row's own hard negative counts.", source="Table 7"
    )
    mlm_weight: float = _option(0.0, "Weight of the masked-language-model loss (0: none).", source="Table D.2")
    mlm_rate: float = _option(0.15, "Share of the tokens that loss hides.", source="the authors' code")
    keep_duplicates: bool = _option(False, "Let exact duplicates within a batch count as negatives of each other.")

    # How it is minimised.
    batch_size: int = _option(64, "Rows in the loss, over all processes together.", source="Table A.1")
    learning_rate: float = _option(3e-5, "AdamW's peak rate; it falls linearly to 0.", source="Table A.1")
    epochs: int = _option(1, "Passes over the data.", source="Appendix A")
    steps: int | None = _option(None, "Stop after this many steps instead of counting epochs.")
    warmup: float = _option(0.0, "Share of the steps over which the rate first rises.", source="the authors' code")
    weight_decay: float = _option(0.0, "AdamW's weight decay.", source="the authors' code")
    clip: float = _option(1.0, "Largest allowed norm of the gradient.", source="the authors' code")
    seed: int = _option(42, "Decides order, dropout and fresh layers.", source="the authors' code")

    # What it runs on.
    device: str = _option("auto", "Where to compute: auto, cpu, cuda or mps.")
    precision: str = _option("fp32", "Arithmetic of the encoder's passes.", choices=("fp32", "bf16", "fp16"))
    chunk_tokens: int | None = _option(
        None, "Bounds memory: encode the batch in chunks of this many tokens and replay them for the gradient."
    )
    grad_checkpointing: bool = _option(False, "Recompute activations layer by layer to save memory.")

    # How often it is looked at.
    eval_every: int = _option(250, "Steps between evaluations on the dev set.", source="Appendix A")
    save_every: int = _option(250, "Steps between checkpoints.", source="Appendix A")
    track_geometry: int | None = _option(
        None, "Log alignment and uniformity on the dev set every so many steps (the paper: 10).", source="Figure 2"
    )
    patience: int | None = _option(None, "Stop after this many evaluations without a better score.")
    tensorboard: bool = _option(False, "Also write the log for TensorBoard, under OUTPUT/tensorboard.")

    def check(self) -> Run:
        """Return the run itself, or raise ConfigError for a value or combination that makes no sense."""
        _check_types(self)
        _check_values(self)
        _check_combinations(self)
        return self

    def to_json(self) -> str:
        """Return the run as a JSON object, one field a line."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, document: str) -> Run:
        """Read a run back from JSON; fields left out take their defaults, unknown ones are refused."""
        try:
            fields = json.loads(document)
        except json.JSONDecodeError as error:
            raise ConfigError(f"a run is a JSON object, and this is not JSON: {error}.") from error
        if not isinstance(fields, dict):
            raise ConfigError(f"a run is a JSON object, not a {type(fields).__name__}.")
        return cls._from_fields(fields)

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a run.json; a problem is reported with the file's name."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read a run from {path}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: a run is a JSON object, and this is not text.") from error
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def replace(self, **changes: Any) -> Run:
        """Return a copy with other values; an unknown field is refused with a suggestion."""
        known = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Run._from_fields(known | changes)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Run:
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise ConfigError(f"a run has no field {name!r}.{suggest(name, known)} Known: {', '.join(known)}.")
        if isinstance(fields.get("columns"), list):
            fields = fields | {"columns": tuple(fields["columns"])}
        run = cls(**fields)
        _check_types(run)
        return run


def _check_types(run: Run) -> None:
    for name, wanted in get_type_hints(Run).items():
        value = getattr(run, name)
        if not _is(value, wanted):
            raise ConfigError(f"{name} wants {_spoken(wanted)} and got {value!r}.")


def _is(value: object, wanted: Any) -> bool:
    if get_origin(wanted) in (Union, types.UnionType):
        return any(_is(value, part) for part in get_args(wanted))
    if get_origin(wanted) is tuple:
        return isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)


def _spoken(wanted: Any) -> str:
    names = {"float": "a number", "int": "a whole number", "str": "text", "bool": "true or false"}
    parts = get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
    spoken = ["nothing" if part is type(None) else names.get(part.__name__, "a list of texts") for part in parts]
    return " or ".join(spoken)


def _check_values(run: Run) -> None:
    for field in dataclasses.fields(run):
        choices, value = field.metadata["choices"], getattr(run, field.name)
        if choices and value not in choices:
            raise ConfigError(f"{field.name} is one of {', '.join(choices)}; got {value!r}.")
    for name in ("temperature", "hard_negative_weight", "learning_rate", "clip"):
        _require(getattr(run, name) > 0, f"{name} must be above 0; got {getattr(run, name)}.")
    counts = ("batch_size", "epochs", "steps", "eval_every", "save_every", "patience", "chunk_tokens")
    for name in (*counts, "track_geometry"):
        value = getattr(run, name)
        _require(value is None or value >= 1, f"{name} must be 1 or more; got {value}.")
    for name in ("mlm_weight", "weight_decay", "seed"):
        _require(getattr(run, name) >= 0, f"{name} must not be negative; got {getattr(run, name)}.")
    _require(run.dropout is None or 0 <= run.dropout < 1, f"dropout lies in [0, 1); got {run.dropout}.")
    _require(0 < run.mlm_rate < 1, f"mlm_rate lies between 0 and 1; got {run.mlm_rate}.")
    _require(0 <= run.warmup < 1, f"warmup is a share of the steps, in [0, 1); got {run.warmup}.")
    _require(run.max_tokens >= 3, f"max_tokens must leave room for a word, so 3 or more; got {run.max_tokens}.")
    _require(run.seed < 2**31, f"seed must be below 2^31; got {run.seed}.")
    _require(
        run.batch_size >= 2 or run.view in ("auto", "triplets"),
        "batch_size must be 2 or more: the other rows of a batch are a row's negatives.",
    )


def _check_combinations(run: Run) -> None:
    if run.positive is not None:
        read_positive(run.positive)
        _require(
            run.view != "triplets" and not run.share_dropout_mask,
            "positive makes pairs of single sentences, so it goes with neither the triplets view nor "
            "share_dropout_mask. Drop one.",
        )
    _require(
        not run.share_dropout_mask or run.view in ("auto", "dropout"),
        f"share_dropout_mask uses one pass as both views, so it needs the dropout view, not {run.view!r}.",
    )
    _require(
        not (run.share_dropout_mask and run.dual_encoder),
        "share_dropout_mask needs one encoder for both views, and dual_encoder asks for two. Drop one.",
    )
    _require(
        run.hard_negative_weight == 1.0 or run.view in ("auto", "triplets"),
        f"hard_negative_weight needs hard negatives, so the triplets view (three columns), not {run.view!r}.",
    )
    _require(
        run.similarity == "cosine" or run.temperature in (0.05, 1.0),
        f"the dot product has no temperature (Table D.1), and this run asks for {run.temperature}. "
        "Leave temperature out, or use the cosine.",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


UNSUP = Run(view="dropout", batch_size=64, learning_rate=3e-5, epochs=1)
SUP = Run(view="triplets", batch_size=512, learning_rate=5e-5, epochs=3)

# The six columns of Table A.1; one epoch without and three with supervision (Appendix A).
PRESETS: Registry[Run] = Registry("preset")
PRESETS.add("unsup-bert-base", UNSUP)
PRESETS.add("unsup-bert-large", UNSUP.replace(batch_size=64, learning_rate=1e-5))
PRESETS.add("unsup-roberta-base", UNSUP.replace(batch_size=512, learning_rate=1e-5))
PRESETS.add("unsup-roberta-large", UNSUP.replace(batch_size=512, learning_rate=3e-5))
PRESETS.add("sup-base", SUP)
PRESETS.add("sup-large", SUP.replace(batch_size=512, learning_rate=1e-5))

"""Run: one frozen description of a training run, whatever its method, and the paper's own settings as values of it.

The command line's flags are derived from the fields below, so a new option is added here and nowhere else.
Each field's metadata holds `help` (one line), `source` (the table or section its default comes from) and,
where the values are few, `choices`. A field that is not given takes its method's default: see METHOD_DEFAULTS.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from twinpass.errors import ConfigError
from twinpass.registry import Registry, suggest


class MethodDefaults(NamedTuple):
    """What a method reads, and the defaults of its runs that differ from SimCSE's.

    They stand here and not in the method's file, which imports torch: a Run and `--help` need no torch.
    """

    reads: str
    fields: Mapping[str, Any]


_LABELLED = ("premise", "hypothesis", "label")
METHOD_DEFAULTS: dict[str, MethodDefaults] = {
    "simcse": MethodDefaults("one, two or three text columns", {}),
    # Carlsson et al., 2021. The rate has a schedule of its own, and dropout is off.
    "ct": MethodDefaults(
        "sentences", {"batch_size": 16, "learning_rate": 1e-5, "max_tokens": 75, "pooler": "avg", "clip": None}
    ),
    # Reimers and Gurevych, 2019, and the authors' library.
    "sbert": MethodDefaults(
        "premise, hypothesis, label",
        {"batch_size": 16, "learning_rate": 2e-5, "max_tokens": 128, "pooler": "avg", "columns": _LABELLED}
        | {"warmup": 0.1, "weight_decay": 0.01},
    ),
    # Zhang et al., 2020, and the authors' code.
    "is-bert": MethodDefaults(
        "sentences",
        {"batch_size": 32, "learning_rate": 2e-5, "max_tokens": 128, "pooler": "avg"}
        | {"warmup": 0.1, "weight_decay": 0.01},
    ),
    # Giorgi et al., 2021; max_tokens is the longest span.
    "declutr": MethodDefaults(
        "documents, or their lines in order",
        {"batch_size": 16, "learning_rate": 5e-5, "max_tokens": 512, "pooler": "avg"}
        | {"warmup": 0.1, "weight_decay": 0.1},
    ),
    # Devlin et al., 2019, with the rate at which an encoder is usually trained further.
    "mlm": MethodDefaults(
        "sentences; -m new:layers=6,width=256,vocabulary=8000 starts from nothing",
        {"batch_size": 64, "learning_rate": 5e-5, "max_tokens": 128, "pooler": "avg"}
        | {"warmup": 0.06, "weight_decay": 0.01},
    ),
    # Conneau et al., 2017. The paper cuts no sentence, and 512 words cut next to none.
    "infersent": MethodDefaults(
        "premise, hypothesis, label; -m names a file of word vectors",
        {"batch_size": 64, "learning_rate": 0.1, "max_tokens": 512, "columns": _LABELLED, "width": 2048}
        | {"clip": 5.0, "eval_every": None},
    ),
}
# Which methods use a field, where not all of them do.
_SIMCSE = ["view", "positive", "wordnet", "share_dropout_mask", "dual_encoder", "keep_duplicates"]
_SIMCSE += ["similarity", "temperature", "hard_negative_weight", "mlm_weight"]
USERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_SIMCSE, ("simcse",)),
    **dict.fromkeys(("dropout", "warmup", "weight_decay"), ("simcse", "sbert", "is-bert", "declutr", "mlm")),
    **dict.fromkeys(
        ("pooler", "precision", "grad_checkpointing"), ("simcse", "ct", "sbert", "is-bert", "declutr", "mlm")
    ),
    "mlm_rate": ("simcse", "mlm"),
    "chunk_tokens": ("simcse", "ct", "sbert", "declutr"),
    "width": ("infersent",),
}


# A model with random weights instead of a pretrained one, and its default sizes.
NEW_MODEL = "new:"
_NEW = {"layers": 6, "width": 256, "vocabulary": 8_000}


def new_model(name: str) -> dict[str, int]:
    """Return the sizes of a model named `new:layers=6,width=256,vocabulary=8000`; what is left out has its default."""
    sizes = dict(_NEW)
    for part in filter(None, name.removeprefix(NEW_MODEL).split(",")):
        field, _, value = part.partition("=")
        if field not in sizes or not value.isdecimal() or int(value) < 1:
            raise ConfigError(f"{name!r}: expected {NEW_MODEL} with layers=N, width=N or vocabulary=N, got {part!r}.")
        sizes[field] = int(value)
    heads = max(1, sizes["width"] // 64)
    if sizes["width"] % heads:
        raise ConfigError(f"{name!r}: the width must be a multiple of {heads}, its number of attention heads.")
    return sizes


def _option(default: Any, help: str, *, source: str = "", choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "source": source, "choices": choices})


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """Everything that decides what a training run computes; equal runs give equal weights."""

    method: str = _option(
        "simcse",
        "What to train, with the text it expects: "
        + ", ".join(f"{name} ({its.reads})" for name, its in METHOD_DEFAULTS.items())
        + ".",
    )

    # What is read, and where the model goes.
    data: str = _option("", "Training text: a file, folder, glob, '-' or 'docs:'.")
    columns: tuple[str, ...] | None = _option(None, "The text columns, by name or position.")
    header: bool | None = _option(None, "Whether a table's first row names its columns; detected by default.")
    skip_bad_rows: bool = _option(False, "Skip unreadable rows instead of stopping at the first.")
    model: str = _option("minilm", "The model to start from: 'minilm', a folder or a hub name.")
    output: str = _option("", "The folder for the model, its log and its checkpoints.")
    dev: str | None = _option(
        None, "Score while training: scored pairs (STS-B's layout, csv, jsonl), pairs to retrieve, or docs:."
    )
    trust_pickle: bool = _option(False, "Load weights stored as a pickle, which can run code.")
    trust_remote_code: bool = _option(False, "Run model code that comes with the checkpoint.")

    # What makes a positive, and how a sentence becomes a vector.
    view: str = _option(
        "auto",
        "What makes a positive; 'auto' follows the number of columns.",
        source="Sections 3 and 4",
        choices=("auto", "dropout", "pairs", "triplets"),
    )
    positive: str | None = _option(
        None,
        "Make each sentence's positive: crop:10, delete:20 (per cent), delete-one, synonym, mlm:15, or one of the "
        "next sentences, next:1 or next:3.",
        source="Tables 1 and 2",
    )
    wordnet: str | None = _option(None, "The folder of WordNet's files, for synonyms; searched for by default.")
    share_dropout_mask: bool = _option(False, "Use one pass as both views: the row 'fixed 0.1'.", source="Table 3")
    dropout: float | None = _option(None, "Dropout rate; by default the model's own (0.1).", source="Table 3")
    pooler: str | None = _option(
        None,
        "How token states become one vector; by default the model's own, or else cls_mlp_train for single "
        "sentences and cls_mlp for pairs and triplets.",
        source="Table 6",
    )
    dual_encoder: bool = _option(False, "A second encoder for the positives (and hard negatives).", source="Table 2")
    max_tokens: int = _option(32, "Truncate texts to this many tokens in training.", source="the authors' code")
    width: int | None = _option(None, "Units of the LSTM in each direction.")

    # What is minimised.
    similarity: str = _option("cosine", "How vectors are compared.", source="Table D.1", choices=("cosine", "dot"))
    temperature: float = _option(0.05, "Divides the cosine; not used with the dot product.", source="Table D.1")
    hard_negative_weight: float = _option(
        1.0, "Eq. 8's alpha: how much a row's own hard negative counts.", source="Table 7"
    )
    mlm_weight: float = _option(0.0, "Weight of the masked-language-model loss; 0 turns it off.", source="Table D.2")
    mlm_rate: float = _option(0.15, "Share of the tokens that this loss masks.", source="the authors' code")
    keep_duplicates: bool = _option(False, "Let exact duplicates within a batch count as negatives of each other.")

    # How it is minimised.
    batch_size: int = _option(
        64, "Rows per step, over all processes; ct counts pairs, 8 to an anchor.", source="Table A.1"
    )
    learning_rate: float = _option(
        3e-5,
        "Peak learning rate; it falls linearly to 0 (ct and infersent have their own schedules).",
        source="Table A.1",
    )
    epochs: int = _option(1, "Passes over the data.", source="Appendix A")
    steps: int | None = _option(None, "Stop after this many steps instead of counting epochs.")
    warmup: float = _option(0.0, "Share of the steps over which the rate rises first.", source="the authors' code")
    weight_decay: float = _option(0.0, "AdamW's weight decay.", source="the authors' code")
    clip: float | None = _option(1.0, "Clip the gradient to this norm.", source="the authors' code")
    seed: int = _option(42, "Seed of the order, dropout and new layers.", source="the authors' code")

    # What it runs on.
    device: str = _option("auto", "Where to compute: auto, cpu, cuda or mps.")
    precision: str = _option("fp32", "Number format of the encoder's passes.", choices=("fp32", "bf16", "fp16"))
    chunk_tokens: int | None = _option(
        None, "Bound memory: encode the batch in chunks of this many tokens, and again for the gradient."
    )
    grad_checkpointing: bool = _option(False, "Recompute activations layer by layer to save memory.")

    # How often it is evaluated and saved.
    eval_every: int | None = _option(
        250, "Steps between evaluations on the dev set; none: one per epoch.", source="Appendix A"
    )
    save_every: int = _option(250, "Steps between checkpoints.", source="Appendix A")
    keep_checkpoints: int = _option(
        0, "Checkpoints to keep when the run is finished; while it trains there are two, or this many if more."
    )
    keep_start: bool = _option(
        False, "Let the model before training compete on the dev set: it is kept if no step scores higher."
    )
    track_geometry: int | None = _option(
        None, "Log alignment and uniformity on the dev set every N steps (the paper: 10).", source="Figure 2"
    )
    patience: int | None = _option(None, "Stop after this many evaluations without a better score.")
    tensorboard: bool = _option(False, "Also write the log for TensorBoard, under OUTPUT/tensorboard.")

    def check(self) -> Run:
        """Return the run itself, or raise ConfigError for a value or combination that is not possible."""
        _check_types(self)
        _check_method(self)
        _check_values(self)
        _check_combinations(self)
        return self

    def to_json(self) -> str:
        """Return the run as a JSON object, one field a line."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, document: str) -> Run:
        """Read a run back from JSON; missing fields take their defaults, unknown ones are refused."""
        try:
            fields = json.loads(document)
        except json.JSONDecodeError as error:
            raise ConfigError(f"expected a run as a JSON object, and this is not JSON: {error}.") from error
        if not isinstance(fields, dict):
            raise ConfigError(f"expected a run as a JSON object, got a {type(fields).__name__}.")
        if isinstance(fields.get("columns"), list):
            fields["columns"] = tuple(fields["columns"])
        run = cls(**fields)
        _check_types(run)
        return run

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a run.json; a problem is reported with the file's name."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read a run from {path}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: expected a run as a JSON object, and this is not text.") from error
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def replace(self, **changes: Any) -> Run:
        """Return a copy with other values; what was never given follows the method's defaults."""
        given = {name: getattr(self, name) for name in vars(self)["_given"]}
        run = Run(**(given | changes))
        _check_types(run)
        return run

    @property
    def changes(self) -> dict[str, Any]:
        """The fields whose values differ from the defaults of the method."""
        usual = Run(method=self.method)
        every = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in every.items() if value != getattr(usual, name)}

    def __repr__(self) -> str:
        method = {} if self.method == "simcse" else {"method": self.method}
        return f"Run({', '.join(f'{name}={value!r}' for name, value in (method | self.changes).items())})"


_assign_fields = Run.__init__


@functools.wraps(_assign_fields)
def _init(self: Run, **given: Any) -> None:
    """Refuse unknown fields with a suggestion, and give the others their method's defaults."""
    known = [field.name for field in dataclasses.fields(Run)]
    for name in given:
        if name not in known:
            raise ConfigError(f"a run has no field {name!r}.{suggest(name, known)} Known: {', '.join(known)}.")
    method = given.get("method", "simcse")
    if method not in METHOD_DEFAULTS:
        names = ", ".join(METHOD_DEFAULTS)
        raise ConfigError(f"no method named {method!r}.{suggest(str(method), METHOD_DEFAULTS)} Known: {names}.")
    _assign_fields(self, **(dict(METHOD_DEFAULTS[method].fields) | given))
    object.__setattr__(self, "_given", tuple(given))


Run.__init__ = _init  # type: ignore[method-assign]


def _check_types(run: Run) -> None:
    hints = get_type_hints(Run)
    for field in dataclasses.fields(Run):
        value, expected = getattr(run, field.name), hints[field.name]
        if not _is(value, expected):
            raise ConfigError(f"{field.name}: expected {_in_words(expected)}, got {value!r}.")


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


def _in_words(expected: Any) -> str:
    names = {"float": "a number", "int": "a whole number", "str": "text", "bool": "true or false"}
    parts = get_args(expected) if get_origin(expected) in (Union, types.UnionType) else (expected,)
    return " or ".join(
        "nothing" if part is type(None) else names.get(part.__name__, "a list of texts") for part in parts
    )


def _check_method(run: Run) -> None:
    for name, value in run.changes.items():
        if name in USERS and run.method not in USERS[name]:
            users = ", ".join(USERS[name])
            raise ConfigError(f"{run.method} does not use {name}; got {value!r}. Leave it out (it is for: {users}).")


def _check_values(run: Run) -> None:
    for field in dataclasses.fields(run):
        choices, value = field.metadata["choices"], getattr(run, field.name)
        if choices and value not in choices:
            raise ConfigError(f"{field.name} must be one of {', '.join(choices)}; got {value!r}.")
    for name in ("temperature", "hard_negative_weight", "learning_rate", "clip"):
        value = getattr(run, name)
        _require(value is None or value > 0, f"{name} must be above 0; got {value}.")
    counts = ("batch_size", "epochs", "steps", "eval_every", "save_every", "patience", "chunk_tokens", "width")
    for name in (*counts, "track_geometry"):
        value = getattr(run, name)
        _require(value is None or value >= 1, f"{name} must be 1 or more; got {value}.")
    for name in ("mlm_weight", "weight_decay", "seed", "keep_checkpoints"):
        _require(getattr(run, name) >= 0, f"{name} must not be negative; got {getattr(run, name)}.")
    _require(run.dropout is None or 0 <= run.dropout < 1, f"dropout must be in [0, 1); got {run.dropout}.")
    _require(0 < run.mlm_rate < 1, f"mlm_rate must be between 0 and 1; got {run.mlm_rate}.")
    _require(0 <= run.warmup < 1, f"warmup is a share of the steps, in [0, 1); got {run.warmup}.")
    _require(run.max_tokens >= 3, f"max_tokens must be 3 or more, to hold a word; got {run.max_tokens}.")
    _require(run.seed < 2**31, f"seed must be below 2^31; got {run.seed}.")
    _require(
        run.batch_size >= 2 or run.method != "simcse" or run.view in ("auto", "triplets"),
        "batch_size must be 2 or more: the other rows of a batch are a row's negatives.",
    )


def _check_combinations(run: Run) -> None:
    if run.model.startswith(NEW_MODEL):
        _require(run.method == "mlm", f"{run.model!r} starts from nothing, which only the method mlm can do.")
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
    _require(
        run.hard_negative_weight == 1.0 or run.view in ("auto", "triplets"),
        f"hard_negative_weight needs hard negatives, so the triplets view (three columns), not {run.view!r}.",
    )
    _require(
        run.similarity == "cosine" or run.temperature in (0.05, 1.0),
        f"the dot product has no temperature (Table D.1); got {run.temperature}. Leave temperature out, or use the "
        "cosine.",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


class Positive(NamedTuple):
    """A way of making positives: its kind, and how much of it (0 where there is no amount)."""

    kind: str
    amount: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.amount}" if self.amount else self.kind


_PERCENT, _COUNT = range(1, 100), range(1, 1000)
# How `positive` is spelt: the kinds, each with the amounts that may follow the colon (None: no colon either).
POSITIVES: dict[str, range | None] = {
    "crop": _PERCENT,
    "delete": _PERCENT,
    "delete-one": None,
    "synonym": None,
    "mlm": _PERCENT,
    "next": _COUNT,
}


def read_positive(text: str) -> Positive:
    """Read `crop:10`, `delete-one` and so on, or raise ConfigError with a suggestion."""
    kind, colon, amount = text.partition(":")
    if kind not in POSITIVES:
        known = ", ".join(f"{name}:N" if amounts else name for name, amounts in POSITIVES.items())
        raise ConfigError(f"no positive named {text!r}.{suggest(kind, POSITIVES)} Known: {known}.")
    amounts = POSITIVES[kind]
    if amounts is None:
        if colon:
            raise ConfigError(f"positive {kind!r} takes no amount; got {text!r}. Write {kind}.")
        return Positive(kind, 0)
    if not re.fullmatch("[0-9]{1,3}", amount) or int(amount) not in amounts:
        what, example = ("sentences", 3) if kind == "next" else ("per cent", 10)
        raise ConfigError(
            f"positive {kind!r} expects a whole number of {what} from {amounts[0]} to {amounts[-1]} after a colon, "
            f"as in {kind}:{example}; got {text!r}."
        )
    return Positive(kind, int(amount))


# The six columns of Table A.1; one epoch without and three with supervision (Appendix A). The MLP over [CLS] is
# dropped after training without supervision and kept with it (section 6.3).
UNSUP = Run(
    view="dropout", model="bert-base-uncased", pooler="cls_mlp_train", batch_size=64, learning_rate=3e-5, epochs=1
)
SUP = Run(view="triplets", model="bert-base-uncased", pooler="cls_mlp", batch_size=512, learning_rate=5e-5, epochs=3)
PRESETS: Registry[Run] = Registry("preset")
PRESETS.add("unsup-bert-base", UNSUP)
PRESETS.add("unsup-bert-large", UNSUP.replace(model="bert-large-uncased", batch_size=64, learning_rate=1e-5))
PRESETS.add("unsup-roberta-base", UNSUP.replace(model="roberta-base", batch_size=512, learning_rate=1e-5))
PRESETS.add("unsup-roberta-large", UNSUP.replace(model="roberta-large", batch_size=512, learning_rate=3e-5))
PRESETS.add("sup-base", SUP)
PRESETS.add("sup-large", SUP.replace(model="bert-large-uncased", batch_size=512, learning_rate=1e-5))

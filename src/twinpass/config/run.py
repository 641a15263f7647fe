"""Run: one frozen description of a training run, whatever its method.

The command line's flags are derived from the fields below, so a new option is added here and nowhere else.
Each field's metadata holds `help` (one line), `source` (the table or section its default comes from) and,
where the values are few, `choices`. A field that is not given takes its method's default: see METHOD_DEFAULTS.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinpass.config.checks import check_combinations, check_method, check_types, check_values
from twinpass.config.methods import METHOD_DEFAULTS
from twinpass.errors import ConfigError
from twinpass.registry import suggest


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
    mixture: tuple[str, ...] = _option(
        (),
        "More training text for the same run, each file with its own view: 'wiki.txt:0.5' comes half as often as a "
        "file without a number; further words say how it is read, as in 'tickets.csv columns=text label=category'.",
    )
    columns: tuple[str, ...] | None = _option(None, "The text columns, by name or position.")
    join: str | None = _option(None, "Make one text of the columns, joined by this.")
    label: str | None = _option(
        None, "The column of each row's class: rows of one class are positives of each other.", source="Khosla, 2020"
    )
    score: str | None = _option(
        None, "The column of each pair's score: pairs are ranked by it instead of all being positives.", source="CoSENT"
    )
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
        "What makes a positive; 'auto' follows the number of columns, the label and the score.",
        source="Sections 3 and 4",
        choices=("auto", "dropout", "pairs", "triplets", "classes", "scores"),
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
    template: str | None = _option(
        None,
        "Template around every sentence: [X] is the sentence, the state of [MASK] its vector (pooler mask).",
        source="PromptBERT's code",
    )
    second_template: str | None = _option(
        None, "Template of the second pass (and of sncse's negations); in training only.", source="PromptBERT's code"
    )
    dual_encoder: bool = _option(False, "A second encoder for the positives (and hard negatives).", source="Table 2")
    max_tokens: int = _option(32, "Truncate texts to this many tokens in training.", source="the authors' code")
    lora: int | None = _option(
        None,
        "LoRA: train low-rank matrices of this rank beside the transformer's frozen weights (extra [lora]).",
        source="Hu et al., 2022",
    )
    lora_alpha: int | None = _option(
        None, "Scales LoRA's matrices by alpha / rank; by default alpha is twice the rank."
    )
    lora_merge: bool = _option(
        True, "Save LoRA's result as a whole model; with --no-lora-merge, as an adapter in peft's layout."
    )
    width: int | None = _option(None, "Units of the LSTM in each direction.")
    layers: int | None = _option(None, "Layers of the student, fewer than the teacher's.")

    # What is minimised.
    similarity: str = _option("cosine", "How vectors are compared.", source="Table D.1", choices=("cosine", "dot"))
    temperature: float = _option(0.05, "Divides the cosine; not used with the dot product.", source="Table D.1")
    hard_negative_weight: float = _option(
        1.0, "Eq. 8's alpha: how much each of a row's own hard negatives counts.", source="Table 7"
    )
    mlm_weight: float = _option(0.0, "Weight of the masked-language-model loss; 0 turns it off.", source="Table D.2")
    mlm_rate: float = _option(0.15, "Share of the tokens that are masked.", source="the authors' code")
    match: str = _option("cosines", "What the student is trained to match.", choices=("cosines", "vectors"))
    repetition: float = _option(
        0.32,
        "At most this share of a sentence's subwords is repeated in its positive.",
        source="ESimCSE, not checked against the paper",
    )
    queue: float = _option(
        2.5, "Size of the momentum queue of negatives, in batches; 0 for none.", source="ESimCSE's training log"
    )
    momentum: float = _option(
        0.995,
        "Share of its weights that the momentum encoder keeps in each step.",
        source="ESimCSE, not checked against the paper",
    )
    generator: str | None = _option(
        None, "The masked language model that replaces tokens: a folder or a hub name; by default the run's own model."
    )
    rtd_weight: float = _option(
        0.005, "Weight of the discriminator that finds replaced tokens.", source="DiffCSE's lambda, for STS"
    )
    soft_negative_weight: float = _option(
        1e-3, "Weight of the margin loss of negated sentences.", source="SNCSE's code, for BERT"
    )
    margin_low: float = _option(
        0.1, "How far the negation's cosine lies below the positive's, at least.", source="SNCSE's code"
    )
    margin_high: float = _option(0.3, "The same, at most.", source="SNCSE's code")
    matryoshka: str | None = _option(
        None,
        "Train shorter vectors too: the loss is averaged over vectors cut to these sizes, such as 384,192,96,48.",
        source="Kusupati et al., 2022",
    )
    teacher: str | None = _option(
        None, "The model whose ranking is learned: a folder or a hub name, or two, comma-separated."
    )
    teacher_pooler: str | None = _option(None, "The teacher's pooler, where the teacher does not name one.")
    teacher_share: float = _option(0.33, "Of two teachers, the share of the first.", source="RankCSE's alpha")
    ranking: str = _option(
        "listmle", "How the teacher's ranking is learned.", source="RankCSE", choices=("listmle", "listnet")
    )
    ranking_temperature: float = _option(
        0.05,
        "Temperature of the ranking loss; listnet divides the teacher's cosines by half of it.",
        source="RankCSE's tau2",
    )
    ranking_weight: float = _option(1.0, "Weight of the teacher's ranking.", source="RankCSE's gamma")
    consistency_weight: float = _option(
        1.0, "Weight of the consistency loss: both passes rank alike.", source="RankCSE's beta"
    )
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
        None, "Bound memory by gradient caching: encode in chunks of this many tokens, and again for the gradient."
    )
    grad_checkpointing: bool = _option(False, "Recompute activations layer by layer to save memory.")

    # How often it is evaluated and saved.
    eval_every: int | None = _option(
        250, "Steps between evaluations on the dev set; in Python, None is once per epoch.", source="Appendix A"
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
        check_types(self)
        check_method(self)
        check_values(self)
        check_combinations(self)
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
        for name in ("columns", "mixture"):
            if isinstance(fields.get(name), list):
                fields[name] = tuple(fields[name])
        run = cls(**fields)
        check_types(run)
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
        check_types(run)
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

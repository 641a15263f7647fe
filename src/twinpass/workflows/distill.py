"""Distillation: from a teacher to a smaller student of fewer layers, or to a static one; both beside the teacher."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.config import Run
from twinpass.display import Displayed, Grid, to_markdown
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.export import HELD_OUT_TEXTS, draw_texts, measure_rates
from twinpass.encoder.static import save_static
from twinpass.encoder.token_table import DIMENSIONS, RARITY, make_table, student_settings
from twinpass.errors import ConfigError, OutputError
from twinpass.evaluation.evaluate import Settings as TaskSettings
from twinpass.evaluation.evaluate import evaluate, make_jobs
from twinpass.evaluation.results import METRICS, Results
from twinpass.evaluation.tasks import GROUPS
from twinpass.files import check_writable, write_json, writing, writing_folder
from twinpass.processor import processor_name
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import installed, provenance
from twinpass.text.corpus import Corpus, open_corpus
from twinpass.training.data import InMemory
from twinpass.workflows.dev import PAIRS, is_built_in, rows_to_learn_from
from twinpass.workflows.train import train

if TYPE_CHECKING:
    from twinpass.log import OnEvent

BUILT_IN_TEXT = "docs:"
RECORD = "distill.json"
ROUNDS = 3  # of measuring the rates, in turns
Text = str | os.PathLike[str] | Corpus | Iterable[str]


@dataclass(frozen=True)
class Measured:
    """A score times 100 with its 95 % interval."""

    metric: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Side:
    """The teacher or the student: megabytes of weights, dimensions, sentences per second, and scores by task."""

    name: str
    megabytes: float
    dimensions: int
    sentences_per_second: float
    scores: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Distilled(Displayed):
    """A student beside its teacher: what was lost, what was gained, and where it was saved."""

    kind: str  # "3 layers" or "static"
    output: str
    fingerprint: str
    teacher: Side
    student: Side
    made: Mapping[str, Any]  # how: layers and match and steps; or dimensions, weights, rarity
    processor: str
    provenance: dict[str, Any] = field(default_factory=dict)  # teacher, data, options, versions

    def grids(self) -> list[Grid]:
        """Return both sides, and what changed: factors for sizes and rates, differences for scores."""
        sides = (self.teacher, self.student)
        size, rate = (
            self.teacher.megabytes / max(self.student.megabytes, 1e-9),
            self.student.sentences_per_second / max(self.teacher.sentences_per_second, 1e-9),
        )
        rows = [
            ("weights, MB", *(f"{side.megabytes:.1f}" for side in sides), f"{size:.1f} times smaller"),
            ("dimensions", *(str(side.dimensions) for side in sides), ""),
            ("sentences/s", *(f"{side.sentences_per_second:,.0f}" for side in sides), f"{rate:,.1f} times"),
        ]
        for task, before in self.teacher.scores.items():
            after = self.student.scores[task]
            shown = (f"{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in (before, after))
            label = f"{task} {METRICS.get(before.metric, before.metric)}"
            rows.append((label, *shown, f"{after.value - before.value:+.2f}"))
        notes = [f"sentences/s on this machine ({self.processor}), in turns; scores times 100 with 95 % intervals"]
        columns = ("", f"teacher ({self.teacher.name})", f"student ({self.kind})", "change")
        return [Grid(f"{self.teacher.name} distilled -> {self.output}", columns, rows, notes)]


def distill(
    teacher: str | os.PathLike[str] | Encoder = "minilm",
    text: Text | None = None,
    *,
    output: str | os.PathLike[str],
    layers: int | None = None,
    static: bool = False,
    dimensions: int = DIMENSIONS,
    weights: str = "text",
    rarity: float = RARITY,
    data: str | os.PathLike[str] | None = None,
    tasks: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    skip_bad_rows: bool = False,
    seed: int = 42,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    on_event: OnEvent | None = None,
    progress: Progress = silent,
    log: Log = ignore,
    pooler: str | None = None,
    trust_pickle: bool = False,
    trust_remote_code: bool = False,
    **fields: Any,
) -> Distilled:
    """Distil a teacher into a student with fewer layers, or into a static one, and save it in the folder `output`.

    text        what the student learns from: what `open_corpus` opens, a corpus or a list of texts; by default the
                docstrings of the installed packages. A static student only counts tokens in it
    layers      layers of the student: it is trained as Run(method="distill") says, and `fields` are fields of that
                run (match, steps, epochs, batch_size, learning_rate, max_tokens, dev ...)
    static      make a static student: one vector per token, of `dimensions` numbers, weighted by the token's rarity
                in the text (weights="text"), by Zipf's law ("zipf") or not at all ("none")
    data        a folder of STS tasks in SentEval's layout: teacher and student are scored on it
    tasks       what to score both on, as in `evaluate`; by default sts with data, and docs-pairs:
    resume      continue a stopped training of a student with layers, bit-for-bit identically
    """
    output = Path(output)
    if static == (layers is not None):
        raise ConfigError("a student has fewer layers (--layers 3) or is static (--static). Choose one of the two.")
    if static and (fields or resume):
        names = ", ".join([*fields, *["resume"] * resume])
        raise ConfigError(f"{names}: nothing is trained for a static student. Leave this out, or use --layers.")
    if static:
        _check_output(output, overwrite=overwrite)
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("distill compares models in one process. Train in several with: train --method distill.")
    asked = _task_names(tasks, data)
    jobs = make_jobs(asked, TaskSettings(data=None if data is None else os.fspath(data))) if asked else []
    trusted: dict[str, Any] = {"trust_pickle": trust_pickle, "trust_remote_code": trust_remote_code}
    reading: dict[str, Any] = {"columns": columns, "header": header, "skip_bad_rows": skip_bad_rows}
    text = BUILT_IN_TEXT if text is None else text
    named = isinstance(text, (str, os.PathLike))
    corpus: Any = open_corpus(text, **reading) if isinstance(text, (str, os.PathLike)) else text
    texts = _to_learn_from(corpus)
    source, content = (corpus.source, corpus.fingerprint()) if isinstance(corpus, Corpus) else ("a list of texts", None)
    if not isinstance(teacher, Encoder):
        log(f"loading {teacher} ...")
        teacher = Encoder.load(teacher, pooler=pooler, device=device, **trusted)
    _ = teacher.model  # a static or exported model refuses to be a teacher
    compared = _Comparison(teacher, jobs, draw_texts(texts(), seed=seed).held_out, progress, log)
    options: dict[str, Any] = {"tasks": asked, "data": data and str(data), "seed": seed}
    facts = partial(provenance, model=teacher, data=[(source, content)])
    if static:
        log(f"a vector for each token of {teacher.name} ...")
        with progress("encoding tokens", total=teacher.vocabulary) as advance:
            table, made = make_table(
                teacher, texts(), dimensions=dimensions, weights=weights, rarity=rarity, advance=advance
            )
        options |= {"dimensions": dimensions, "weights": weights, "rarity": rarity}
        return _save_static(teacher, table, made, output, compared, facts(options=options))
    run = Run(
        method="distill",
        model=teacher.name,
        data=source,
        **reading | {"columns": tuple(columns) if columns else None},
        output=str(output),
        layers=layers,
        seed=seed,
        device=device,
        pooler=teacher.pooler,
        **trusted,
        **fields,
    )
    rows = None if named else InMemory(list(texts()), source=source)
    trained = train(
        run, rows=rows, encoder=teacher, on_event=on_event, resume=resume, overwrite=overwrite, log=log, report=False
    )
    if not trained.finished:
        log(f"stopped at step {trained.steps}. {trained.advice}")
        raise KeyboardInterrupt
    made = {"layers": layers, "match": run.match, "steps": trained.steps, "batch_size": run.batch_size}
    made |= {"learning_rate": run.learning_rate, "seconds": trained.seconds, "loss": trained.loss}
    student, kind = Encoder.load(output, device=device), "1 layer" if layers == 1 else f"{layers} layers"
    result = compared.result(student, kind, output, made, facts(options=options | {"run": run.changes}))
    write_json(output / RECORD, result.to_dict())
    card, heading = output / "README.md", "\n## Beside the teacher\n"
    written = card.read_text(encoding="utf-8").partition(heading)[
        0
    ]  # a finished run may be resumed, and measured again
    with writing(card) as aside:
        aside.write_text(f"{written}{heading}\n{to_markdown(result.grids())}\n", encoding="utf-8")
    return result


def _save_static(
    teacher: Encoder, table: Any, made: Mapping[str, Any], output: Path, compared: _Comparison, facts: dict[str, Any]
) -> Distilled:
    """Save a static student aside, measure it, and put it in its place with its record and card."""
    settings = student_settings(teacher)
    source = {"name": teacher.name, "fingerprint": teacher.fingerprint}
    with writing_folder(output) as aside:
        save_static(aside, table, teacher.tokens.rules(), settings, source=source, made=made)
        student = Encoder.load(aside)
        student.name = str(output)
        result = compared.result(student, "static", output, made, facts)
        write_json(aside / RECORD, result.to_dict())
        (aside / "README.md").write_text(_card(result), encoding="utf-8")
    return result


class _Comparison:
    """Measures a student and its teacher in the same way, on the same texts."""

    def __init__(self, teacher: Encoder, jobs: Sequence[Any], texts: Sequence[str], progress: Progress, log: Log):
        self.teacher, self.jobs, self.texts = teacher, jobs, texts[:HELD_OUT_TEXTS]
        self.progress, self.log = progress, log

    def result(
        self, student: Encoder, kind: str, output: Path, made: Mapping[str, Any], facts: dict[str, Any]
    ) -> Distilled:
        sides = {"teacher": self.teacher, "student": student}
        self.log("measuring teacher and student ...")
        rates = dict.fromkeys(sides, 0.0)
        for _ in range(ROUNDS):
            for name, encoder in sides.items():
                rates[name] = max(rates[name], measure_rates({name: encoder}, self.texts, seconds=0.3)[name])
        measured = {
            name: Side(encoder.name, _megabytes(encoder), encoder.dimensions, rates[name], self._scores(encoder))
            for name, encoder in sides.items()
        }
        return Distilled(
            kind=kind,
            output=str(output),
            fingerprint=student.fingerprint,
            **measured,
            made=made,
            processor=processor_name(),
            provenance=facts,
        )

    def _scores(self, encoder: Encoder) -> dict[str, Measured]:
        """Return the main score of each task, and the average of STS where all of its tasks are there."""
        if not self.jobs:
            return {}
        found: Results = evaluate(encoder, self.jobs, progress=self.progress, log=self.log)
        # Of retrieval, the share of queries whose first hit is right; of any other task, its main score.
        main = {task.task: {score.metric: score for score in reversed(task.scores)} for task in found.tasks}
        scores = {task.task: main[task.task].get("r_at_1", task.scores[0]) for task in found.tasks}
        if set(GROUPS["sts"]) <= scores.keys():
            average = next(score for score in found.averages if score.metric == "spearman")
            at = list(scores).index(GROUPS["sts"][-1]) + 1
            listed = list(scores.items())
            scores = dict([*listed[:at], ("Avg. STS", average), *listed[at:]])
        return {name: Measured(each.metric, each.value, each.low, each.high) for name, each in scores.items()}


def _task_names(tasks: str | Sequence[str] | None, data: object) -> list[str]:
    if tasks is None:
        return ["sts", PAIRS] if data else [PAIRS]
    return [tasks] if isinstance(tasks, str) else list(tasks)


def _to_learn_from(corpus: Corpus | Iterable[str]) -> Callable[[], Iterable[str]]:
    """Return a function that reads the texts; of built-in text, without those that the built-in evaluation scores."""
    if not isinstance(corpus, Corpus):
        given = list(corpus)
        return lambda: given
    if not is_built_in(corpus.source):
        return corpus.texts
    kept = [text for row in rows_to_learn_from(corpus.source, dev=corpus.source) or [] for text in row]
    return lambda: kept


def _check_output(output: Path, *, overwrite: bool) -> None:
    """Refuse a folder that no distillation wrote, and one that it wrote unless it may be replaced."""
    if not output.exists():
        check_writable(output)
    elif output.is_dir() and not any(output.iterdir()):
        return
    elif not (output / RECORD).is_file():
        raise OutputError(f"{output} already exists and was not written by distill. Choose another --output.")
    elif not overwrite:
        raise OutputError(f"{output} already exists. Add --overwrite to replace it, or choose another --output.")


def _megabytes(encoder: Encoder) -> float:
    """Return the size of the weights on disk."""
    if encoder.static is not None:
        return encoder.vocabulary * encoder.dimensions * 2 / 1e6  # float16
    return float(sum(tensor.numel() * tensor.element_size() for tensor in encoder.model.state_dict().values()) / 1e6)


def _card(result: Distilled) -> str:
    return f"""---
library_name: twinpass
pipeline_tag: sentence-similarity
tags: [sentence-embeddings, static-embeddings, model2vec, twinpass]
---

# {Path(result.output).name}

A static student of `{result.teacher.name}` ({result.student.dimensions} dimensions), made by twinpass \
{installed("twinpass")}: one vector per token, reduced by PCA and weighted by the token's rarity; a text's vector is \
their mean, of length one. It knows no word order and no context. It runs without torch.

```python
from twinpass import Encoder

vectors = Encoder.load("{Path(result.output).name}").encode(["A sentence.", "Another one."])
```

model2vec (`StaticModel.from_pretrained`) and sentence-transformers load the folder, too.

## Beside the teacher

{to_markdown(result.grids())}
"""

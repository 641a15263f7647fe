"""Read a task's files, or its copy on the hub, and refuse data that is not what the task says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.tasks import Part, Task
from twinpass.files import sha256
from twinpass.text.corpus import open_corpus

HUB = "hub"
_ON_HUB = {
    "STS12": "mteb/sts12-sts",
    "STS13": "mteb/sts13-sts",
    "STS14": "mteb/sts14-sts",
    "STS15": "mteb/sts15-sts",
    "STS16": "mteb/sts16-sts",
    "STS-B": "mteb/stsbenchmark-sts",
}
_HUB_SPLITS = {"dev": "validation"}
# SHA-256 of each data file in SentEval's layout; `sha256sum -c` reads it too.
_SUMS = Path(__file__).with_name("SHA256SUMS").read_text(encoding="utf-8")
SHA256 = {file: digest for digest, file in map(str.split, _SUMS.splitlines())}
_TREC = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}


class Rows(NamedTuple):
    """The rows of one part: texts[i] are the one or two texts of row i, targets[i] its score or class."""

    texts: list[tuple[str, ...]]
    targets: list[float]


class Data(NamedTuple):
    """A task with its rows by part, and the SHA-256 of each file they came from."""

    task: Task
    parts: dict[str, Rows]
    sha256: dict[str, str]


def read_task(task: Task, folder: str | Path, *, parts: tuple[str, ...] | None = None) -> Data:
    """Read a task (or only some of its parts) from a folder in SentEval's layout."""
    root = find_root(Path(folder))
    chosen = [part for part in task.parts if parts is None or part.name in parts]
    rows = {part.name: _read_part(task, part, root) for part in chosen}
    return Data(task, rows, {file: _check_hash(task, root, file) for part in chosen for file in part.files})


def read_hub_task(task: Task, *, split: str) -> Data:
    """Read one STS task from the hub: mteb's copies are not tokenised and do not mark their subsets."""
    if task.name not in _ON_HUB:
        known = ", ".join(_ON_HUB)
        # The hub's SICK-R is all 9,927 pairs, not the 4,927 of its test split.
        raise ConfigError(f"{task.name} is not on the hub in the form of its protocol. Available: {known}.")
    whole = task.protocol == "subsets"
    source = f"hf:{_ON_HUB[task.name]}:{'test' if whole else _HUB_SPLITS.get(split, split)}"
    corpus = open_corpus(source, columns=["sentence1", "sentence2"], score="score")
    rows = [(row.texts, row.score or 0.0) for row in corpus]
    expected = sum(part.rows for part in task.parts if whole or part.name == split)
    if len(rows) != expected:
        raise InputError(f"{task.name}: expected {expected} rows, got {len(rows)} in {source}.")
    part = Rows([texts for texts, _ in rows], [score for _, score in rows])
    return Data(task, {"test" if whole else split: part}, {source: corpus.fingerprint()})


def senteval_order(parts: Sequence[Rows]) -> Rows:
    """Join parts in SentEval's order, which its folds and shuffles depend on: by number of words, then target."""
    rows = [row for part in parts for row in zip(part.texts, part.targets, strict=True)]
    rows.sort(key=lambda row: (*(len(text.split()) for text in row[0]), row[1]))
    return Rows([texts for texts, _ in rows], [target for _, target in rows])


def find_root(folder: Path) -> Path:
    """Return the folder that holds STS, MR and so on: the one given, or its folder 'downstream'."""
    if not folder.is_dir():
        raise InputError(f"no folder {folder}. Name the folder of the data with --data (SentEval's layout).")
    below = folder / "downstream"
    return below if below.is_dir() else folder


def _read_part(task: Task, part: Part, root: Path) -> Rows:
    rows = list(_LAYOUTS[task.layout](task, part, root))
    if len(rows) != part.rows:
        raise InputError(
            f"{task.name} {part.name}: expected {part.rows} rows, got {len(rows)} in "
            f"{root / part.files[0]}. The file is truncated or another one; take a complete copy."
        )
    if task.classes and (strange := {target for _, target in rows} - set(range(task.classes))):
        raise InputError(
            f"{task.name} {part.name}: expected classes 0 to {task.classes - 1}, got {min(strange):g} in "
            f"{root / part.files[0]}."
        )
    return Rows([texts for texts, _ in rows], [target for _, target in rows])


def is_sentevals(file: str, digest: str) -> bool:
    """Tell whether a file has the content of SentEval's copy, or is none that SentEval has."""
    return digest == SHA256.get(file, digest)


def _check_hash(task: Task, root: Path, file: str) -> str:
    found = sha256(root / file)
    if not is_sentevals(file, found):
        warnings.warn(
            f"{root / file} has the right number of rows for {task.name}, but is not SentEval's copy "
            f"(sha256 {found[:12]}..., expected {SHA256[file][:12]}...): "
            "the scores do not compare with published ones.",
            stacklevel=2,
        )
    return found


Row = tuple[tuple[str, ...], float]


def _parallel(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """Sentences in one file, gold scores in another; a line without a score is not scored."""
    of_inputs, of_scores = (root / file for file in part.files)
    inputs, scores = _lines(task, of_inputs), _lines(task, of_scores)
    if len(inputs) != len(scores):
        raise InputError(
            f"{task.name} {part.name}: {of_inputs} has {len(inputs)} lines and {of_scores} {len(scores)}. "
            "Expected equally many; take complete copies."
        )
    for number, (line, score) in enumerate(zip(inputs, scores, strict=True), start=1):
        if score.strip():
            gold = _number(score, f"{of_scores}:{number}")
            yield _texts(task, line.split("\t"), f"{of_inputs}:{number}"), gold


def _table(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """Tab-separated columns, without quoting."""
    path = root / part.files[0]
    for number, line in enumerate(_lines(task, path), start=1):
        if number == 1 and task.header:
            continue
        fields, place = line.split("\t"), f"{path}:{number}"
        texts = _texts(task, fields, place)
        yield texts, _number(_field(fields, task.target or 0, place), place)


def _one_class(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """One sentence per line, all of one class; an empty line is an empty sentence."""
    for line in _lines(task, root / part.files[0]):
        yield (_clean(line),), float(part.label or 0)


def _trec(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """COARSE:fine, a space, the question."""
    path = root / part.files[0]
    for number, line in enumerate(_lines(task, path), start=1):
        label, _, question = line.partition(" ")
        coarse = label.partition(":")[0]
        if coarse not in _TREC:
            raise InputError(f"{path}:{number}: expected one of {', '.join(_TREC)} before ':', got {coarse!r}.")
        yield (_clean(question),), float(_TREC[coarse])


_LAYOUTS = {"parallel": _parallel, "table": _table, "lines": _one_class, "trec": _trec}


def _lines(task: Task, path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode(task.encoding)
    except FileNotFoundError:
        raise InputError(
            f"{task.name} needs {path}, and there is no such file. Check --data, or skip {task.name}."
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not {task.encoding}. Take SentEval's copy.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    # Only a line feed ends a line: other separators, such as U+0085 in latin-1, belong to the sentence.
    lines = text.removeprefix("\ufeff").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _texts(task: Task, fields: list[str], place: str) -> tuple[str, ...]:
    return tuple(_clean(_field(fields, column, place)) for column in task.texts)


def _field(fields: list[str], column: int, place: str) -> str:
    if column >= len(fields):
        raise InputError(f"{place}: expected {column + 1} tab-separated columns, got {len(fields)}.")
    return fields[column]


def _number(field: str, place: str) -> float:
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{place}: expected a number, got {field.strip()!r}.")
    return number


def _clean(text: str) -> str:
    """One space between words, none around them, as after SentEval's splitting into words."""
    return " ".join(text.split())

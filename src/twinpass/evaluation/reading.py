"""Read a task's files, and refuse those that are not what the task says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from twinpass.errors import InputError
from twinpass.evaluation.manifest import SHA256
from twinpass.evaluation.tasks import Part, Task
from twinpass.files import sha256

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
    wanted = [part for part in task.parts if parts is None or part.name in parts]
    rows = {part.name: _read_part(task, part, root) for part in wanted}
    return Data(task, rows, {file: _check_hash(task, root, file) for part in wanted for file in part.files})


def senteval_order(parts: Sequence[Rows]) -> Rows:
    """Join parts in SentEval's order, on which its folds and shuffles stand: by number of words, then target."""
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
            f"{task.name} {part.name}: {part.rows} rows are wanted and {len(rows)} were found in "
            f"{root / part.files[0]}. The file is cut short or another's; take a whole copy."
        )
    if task.classes and (strange := {target for _, target in rows} - set(range(task.classes))):
        raise InputError(
            f"{task.name} {part.name}: classes 0 to {task.classes - 1} are wanted, got {min(strange):g} in "
            f"{root / part.files[0]}."
        )
    return Rows([texts for texts, _ in rows], [target for _, target in rows])


def _check_hash(task: Task, root: Path, file: str) -> str:
    found = sha256(root / file)
    if found != SHA256.get(file, found):
        warnings.warn(
            f"{root / file} has the right number of rows for {task.name}, but is not SentEval's copy "
            f"(sha256 {found[:12]}..., wanted {SHA256[file][:12]}...): "
            "the scores do not compare with published ones.",
            stacklevel=2,
        )
    return found


Row = tuple[tuple[str, ...], float]


def _parallel(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """Sentences in one file, gold scores in another; a line without a score is not scored."""
    inputs, scores = (_lines(task, root / file) for file in part.files)
    if len(inputs) != len(scores):
        raise InputError(
            f"{task.name} {part.name}: {root / part.files[0]} has {len(inputs)} lines and "
            f"{root / part.files[1]} {len(scores)}. They must run in parallel; take whole copies."
        )
    for number, (line, score) in enumerate(zip(inputs, scores, strict=True), start=1):
        if score.strip():
            place = f"{root / part.files[0]}:{number}"
            gold = _number(score, f"{root / part.files[1]}:{number}")
            yield _texts(task, line.split("\t"), place), gold


def _table(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """Columns parted by tabs, without quoting."""
    path = root / part.files[0]
    for number, line in enumerate(_lines(task, path), start=1):
        if number == 1 and task.header:
            continue
        fields, place = line.split("\t"), f"{path}:{number}"
        texts = _texts(task, fields, place)
        yield texts, _number(_field(fields, task.target or 0, place), place)


def _one_class(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """One sentence a line, all of one class; an empty line is an empty sentence."""
    for line in _lines(task, root / part.files[0]):
        yield (_clean(line),), float(part.label or 0)


def _trec(task: Task, part: Part, root: Path) -> Iterator[Row]:
    """COARSE:fine, a space, the question."""
    path = root / part.files[0]
    for number, line in enumerate(_lines(task, path), start=1):
        label, _, question = line.partition(" ")
        coarse = label.partition(":")[0]
        if coarse not in _TREC:
            raise InputError(f"{path}:{number}: one of {', '.join(_TREC)} is wanted before ':', got {coarse!r}.")
        yield (_clean(question),), float(_TREC[coarse])


_LAYOUTS = {"parallel": _parallel, "table": _table, "lines": _one_class, "trec": _trec}


def _lines(task: Task, path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode(task.encoding)
    except FileNotFoundError:
        raise InputError(
            f"{task.name} wants {path}, and it is not there. Check --data, or leave {task.name} out."
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not {task.encoding}. Take SentEval's own copy.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    # Only a line feed ends a line: other separators, such as U+0085 in latin-1, belong to the sentence.
    lines = text.removeprefix("\ufeff").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _texts(task: Task, fields: list[str], place: str) -> tuple[str, ...]:
    return tuple(_clean(_field(fields, column, place)) for column in task.texts)


def _field(fields: list[str], column: int, place: str) -> str:
    if column >= len(fields):
        raise InputError(f"{place}: {column + 1} columns parted by tabs are wanted, got {len(fields)}.")
    return fields[column]


def _number(field: str, place: str) -> float:
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{place}: a number is wanted, got {field.strip()!r}.")
    return number


def _clean(text: str) -> str:
    """One space between words, none around them, as SentEval's splitting into words leaves it."""
    return " ".join(text.split())

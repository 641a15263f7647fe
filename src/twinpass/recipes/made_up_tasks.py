"""A data folder in SentEval's layout, with the true counts and made-up sentences."""

from __future__ import annotations

import random
from pathlib import Path

from twinpass.evaluation.tasks import Part, Task

WORDS = ["a", "the", "cat", "dog", "man", "woman", "sits", "runs", "on", "mat", "red", "blue", "old", "young"]
_TREC = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]


def write_task(task: Task, root: Path) -> Path:
    """Write every file of a task; the score of a pair follows the words it shares, so it can be learnt."""
    rng = random.Random(task.name)
    for part in task.parts:
        for file in part.files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[task.layout](task, part, root, rng)
    return root


def make_sentence(rng: random.Random, first: str | None = None) -> str:
    """Return a few words, led by a given one if there is one."""
    words = rng.choices(WORDS, k=rng.randint(3, 9))
    return " ".join([first, *words] if first else words)


def _pair(rng: random.Random) -> tuple[str, str, float]:
    a, b = make_sentence(rng), make_sentence(rng)
    shared = len(set(a.split()) & set(b.split())) / len(set(a.split()) | set(b.split()))
    return a, b, round(5 * shared, 3)


def _parallel(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    pairs = [_pair(rng) for _ in range(part.rows)]
    inputs = [f"{a}\t{b}\tmore\n" for a, b, _ in pairs] + ["never\tscored\n"]
    (root / part.files[0]).write_text("".join(inputs), encoding="utf-8")
    (root / part.files[1]).write_text("".join(f"{s}\n" for *_, s in pairs) + "\n", encoding="utf-8")


def _table(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    lines = ["header\n"] if task.header else []
    target = task.target or 0
    for _ in range(part.rows):
        fields = ["x"] * (max(*task.texts, target) + 1)
        if len(task.texts) == 2:
            a, b, score = _pair(rng)
            fields[task.texts[0]], fields[task.texts[1]] = a, b
            fields[target] = str(int(score > 1) if task.classes else score)
        else:
            label = rng.randrange(task.classes)
            fields[0], fields[target] = make_sentence(rng, f"class{label}"), str(label)
        lines.append("\t".join(fields) + "\n")
    (root / part.files[0]).write_text("".join(lines), encoding="utf-8")


def _lines(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    rows = [make_sentence(rng, f"class{part.label}") for _ in range(part.rows - 1)]
    (root / part.files[0]).write_text("\n".join([*rows, ""]) + "\n", encoding="latin-1")


def _trec(task: Task, part: Part, root: Path, rng: random.Random) -> None:
    labels = [rng.randrange(6) for _ in range(part.rows)]
    rows = [f"{_TREC[i]}:fine {make_sentence(rng, f'class{i}')}\n" for i in labels]
    (root / part.files[0]).write_text("".join(rows), encoding="latin-1")


_WRITERS = {"parallel": _parallel, "table": _table, "lines": _lines, "trec": _trec}

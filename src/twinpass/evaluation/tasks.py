"""Tasks are data: files, columns, row counts, licence and citation. A new task is one entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError
from twinpass.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Part:
    """One subset or split of a task: its files (relative to the data folder) and how many rows it has."""

    name: str
    files: tuple[str, ...]
    rows: int
    label: int | None = None  # the class of every row, where a file holds one class


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: kind and protocol say how it is scored, layout and columns how its files are read."""

    name: str
    kind: Literal["sts", "transfer"]
    protocol: Literal["subsets", "splits", "folds", "train-test"]
    layout: Literal["parallel", "table", "lines", "trec"]
    parts: tuple[Part, ...]
    texts: tuple[int, ...] = (0,)
    target: int | None = None
    header: bool = False
    encoding: str = "utf-8"
    classes: int = 0
    licence: str
    citation: str


TASKS: Registry[Task] = Registry("task")
GROUPS = {
    "sts": ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"),
    "transfer": ("MR", "CR", "SUBJ", "MPQA", "SST-2", "TREC", "MRPC"),
}


@dataclass(frozen=True, repr=False)
class TaskList(Displayed):
    """The known tasks."""

    tasks: list[Task]

    def grids(self) -> list[Grid]:
        """Return one row for each task."""
        columns = ["task", "kind", "rows", "licence", "citation"]
        rows = [
            [task.name, task.kind, " / ".join(f"{p.name} {p.rows:,}" for p in task.parts), task.licence, task.citation]
            for task in self.tasks
        ]
        return [Grid("", columns, rows, words=columns)]


def list_tasks() -> TaskList:
    """Return the known tasks, with rows, licence and citation."""
    return TaskList([TASKS[name] for name in TASKS])


def choose(names: str) -> list[Task]:
    """Return the tasks of a comma-separated list of task and group names, each once."""
    known: Registry[tuple[str, ...]] = Registry("task")
    for name, members in [*GROUPS.items(), *((name, (name,)) for name in TASKS)]:
        known.add(name, members)
    spelling = {name.lower().replace("-", ""): name for name in known}
    asked = [name.strip() for name in names.split(",") if name.strip()]
    if not asked:
        raise ConfigError(f"no task named. Known: {', '.join(known)}.")
    chosen = (task for name in asked for task in known[spelling.get(name.lower().replace("-", ""), name)])
    return [TASKS[name] for name in dict.fromkeys(chosen)]


# Scored pairs of each subset. SMT of 2013 is missing, as everywhere: it may not be redistributed.
_YEARS = {
    12: {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    13: {"FNWN": 189, "headlines": 750, "OnWN": 561},
    14: {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750},
    15: {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    16: {"answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209},
}


def _year(year: int) -> Task:
    folder = f"STS/STS{year}-en-test"
    return Task(
        name=f"STS{year}",
        kind="sts",
        protocol="subsets",
        layout="parallel",
        parts=tuple(
            Part(name=name, files=(f"{folder}/STS.input.{name}.txt", f"{folder}/STS.gs.{name}.txt"), rows=rows)
            for name, rows in _YEARS[year].items()
        ),
        texts=(0, 1),
        licence="scores CC BY-SA 4.0, texts vary by source",
        citation=f"Agirre et al., 20{year}",
    )


def _splits(file: str, **splits: tuple[str, int]) -> tuple[Part, ...]:
    """Take the splits' names in the files' names, and their rows."""
    return tuple(Part(name=name, files=(file.format(part),), rows=rows) for name, (part, rows) in splits.items())


def _two_classes(name: str, yes: tuple[str, int], no: tuple[str, int], citation: str) -> Task:
    """A task with one file per class, one sentence per line."""
    return Task(
        name=name,
        kind="transfer",
        protocol="folds",
        layout="lines",
        parts=(
            Part(name="positive", files=(yes[0],), rows=yes[1], label=1),
            Part(name="negative", files=(no[0],), rows=no[1], label=0),
        ),
        encoding="latin-1",
        classes=2,
        licence="research use",
        citation=citation,
    )


_ENTRIES = [
    *(_year(year) for year in _YEARS),
    Task(
        name="STS-B",
        kind="sts",
        protocol="splits",
        layout="table",
        parts=_splits("STS/STSBenchmark/sts-{}.csv", train=("train", 5749), dev=("dev", 1500), test=("test", 1379)),
        texts=(5, 6),
        target=4,
        licence="scores CC BY-SA 4.0, texts vary by source",
        citation="Cer et al., 2017",
    ),
    Task(
        name="SICK-R",
        kind="sts",
        protocol="splits",
        layout="table",
        parts=_splits("SICK/SICK_{}.txt", train=("train", 4500), dev=("trial", 500), test=("test_annotated", 4927)),
        texts=(1, 2),
        target=3,
        header=True,
        licence="CC BY-NC-SA 3.0",
        citation="Marelli et al., 2014",
    ),
    _two_classes("MR", ("MR/rt-polarity.pos", 5331), ("MR/rt-polarity.neg", 5331), "Pang and Lee, 2005"),
    _two_classes("CR", ("CR/custrev.pos", 2407), ("CR/custrev.neg", 1368), "Hu and Liu, 2004"),
    _two_classes("SUBJ", ("SUBJ/subj.objective", 5000), ("SUBJ/subj.subjective", 5000), "Pang and Lee, 2004"),
    _two_classes("MPQA", ("MPQA/mpqa.pos", 3312), ("MPQA/mpqa.neg", 7294), "Wiebe et al., 2005"),
    Task(
        name="SST-2",
        kind="transfer",
        protocol="splits",
        layout="table",
        parts=_splits("SST/binary/sentiment-{}", train=("train", 67349), dev=("dev", 872), test=("test", 1821)),
        target=1,
        classes=2,
        licence="research use",
        citation="Socher et al., 2013",
    ),
    Task(
        name="TREC",
        kind="transfer",
        protocol="train-test",
        layout="trec",
        parts=_splits("TREC/{}.label", train=("train_5500", 5452), test=("TREC_10", 500)),
        encoding="latin-1",
        classes=6,
        licence="research use",
        citation="Voorhees and Tice, 2000",
    ),
    Task(
        name="MRPC",
        kind="transfer",
        protocol="train-test",
        layout="table",
        parts=_splits("MRPC/msr_paraphrase_{}.txt", train=("train", 4076), test=("test", 1725)),
        texts=(3, 4),
        target=0,
        header=True,
        classes=2,
        licence="research use",
        citation="Dolan and Brockett, 2005",
    ),
]

for _task in _ENTRIES:
    TASKS.add(_task.name, _task)

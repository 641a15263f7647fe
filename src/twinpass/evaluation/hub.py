"""The STS tasks from the hub: mteb's copies, untokenised and without their subsets."""

from __future__ import annotations

from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.reading import Data, Rows
from twinpass.evaluation.tasks import Task

COPIES = {
    "STS12": "mteb/sts12-sts",
    "STS13": "mteb/sts13-sts",
    "STS14": "mteb/sts14-sts",
    "STS15": "mteb/sts15-sts",
    "STS16": "mteb/sts16-sts",
    "STS-B": "mteb/stsbenchmark-sts",
}
_SPLITS = {"dev": "validation"}


def read_hub_task(task: Task, *, split: str) -> Data:
    """Read one STS task through `hf:`; its count is checked as a file's would be."""
    from twinpass.text.corpus import open_corpus

    if task.name not in COPIES:
        known = ", ".join(COPIES)
        # The hub's SICK-R is all 9,927 pairs, not the 4,927 of its test split.
        raise ConfigError(f"{task.name} is not on the hub in the form of its protocol. There are: {known}.")
    whole = task.protocol == "subsets"
    source = f"hf:{COPIES[task.name]}:{'test' if whole else _SPLITS.get(split, split)}"
    corpus = open_corpus(source, columns=["sentence1", "sentence2"], score="score")
    rows = [(row.texts, row.score or 0.0) for row in corpus]
    wanted = sum(part.rows for part in task.parts if whole or part.name == split)
    if len(rows) != wanted:
        raise InputError(f"{task.name}: {wanted} rows are wanted and {len(rows)} were found in {source}.")
    part = Rows([texts for texts, _ in rows], [score for _, score in rows])
    return Data(task, {"test" if whole else split: part}, {source: corpus.fingerprint()})

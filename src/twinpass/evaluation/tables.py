"""The tables of an evaluation: which rows and columns are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from twinpass.display import Grid
from twinpass.evaluation.protocols import DEFAULT_CELL, Cell, papers_using
from twinpass.evaluation.published import Published, published_beside
from twinpass.evaluation.results import Results, Score, TaskResult, cell_score, cells_of
from twinpass.evaluation.tasks import GROUPS

INTERVAL = "95 % interval"
NAMES = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "f1": "F1",
    "r_at_1": "R@1",
    "r_at_5": "R@5",
    "r_at_10": "R@10",
    "mrr": "MRR",
    "ndcg_at_10": "nDCG@10",
    "ap": "AP",
}


def make_grids(results: Results) -> list[Grid]:
    """Lay out results: STS (by one protocol or all), perhaps its subsets, transfer, and every other task."""
    sts = [task for task in results.tasks if task.kind == "sts"]
    transfer = [task for task in results.tasks if task.kind == "transfer"]
    others = [task for task in results.tasks if task.kind not in ("sts", "transfer")]
    grids = [_sts_grid(results, sts)] if sts else []
    if results.subsets:
        grids += [_subset_grid(task) for task in sts if len(_subset_names(task)) > 1]
    if transfer:
        grids.append(_transfer_grid(results, transfer))
    return grids + [_other_grid(task) for task in others]


def _number(score: Score | None) -> str:
    """A score with two decimals; a dash where there is none."""
    return "-" if score is None or math.isnan(score.value) else f"{score.value:.2f}"


def _span(score: Score | None) -> str:
    """A score's interval."""
    return "" if score is None or math.isnan(score.low) else f"{score.low:.2f} to {score.high:.2f}"


def _sts_grid(results: Results, tasks: list[TaskResult]) -> Grid:
    cells = cells_of(tasks) if results.cells else [DEFAULT_CELL]
    averages = {score.protocol: score for score in results.averages if score.metric in ("spearman", "pearson")}
    columns = ["", *(task.task for task in tasks), *(["Avg."] if averages else [])]
    rows = []
    notes = [f"{task.task}: {note}" for task in tasks for note in task.notes]
    for cell in cells:
        scores = [cell_score(task, cell) for task in tasks] + ([averages.get(cell.name)] if averages else [])
        rows.append([results.model if len(cells) == 1 else cell.name, *map(_number, scores)])
        if len(cells) == 1:
            rows.append([f"  {INTERVAL}", *map(_span, scores)])
        rows += _beside(results, cell, columns)
        papers = "; ".join(papers_using(cell)) or "no paper of Table B.1"
        notes.append(f"{cell.name}: used by {papers}")
    metric = f"{results.model}, every protocol" if len(cells) > 1 else cells[0].name
    splits = "/".join(dict.fromkeys(task.split for task in tasks))
    return Grid(f"STS, correlation x 100 ({metric}, {splits})", columns, rows, notes)


def _beside(results: Results, cell: Cell | None, columns: Sequence[str]) -> list[list[str]]:
    """The published rows of the same protocol, one value for each column that is shown."""
    if results.beside is None:
        return []
    group = "transfer" if cell is None else "sts"
    return [[_published_name(row), *_published_values(row, group, columns[1:])] for row in published_beside(cell)]


def _published_name(row: Published) -> str:
    return f"{row.model}{', ' + row.training if row.training else ''} [Table {row.table}]"


def _published_values(row: Published, group: str, tasks: Sequence[str]) -> list[str]:
    values = dict(zip((*GROUPS[group], "Avg."), row.values, strict=True))
    return [f"{values[name]:.2f}" if name in values else "" for name in tasks]


def _subset_names(task: TaskResult) -> list[str]:
    return list(getattr(task.items["cosine"], "subsets", {}))


def _subset_grid(task: TaskResult) -> Grid:
    rows = []
    for name in _subset_names(task):
        found = [s for s in task.scores if s.over == name]
        rows.append([name, f"{found[0].n:,}", *(text for s in found for text in (_number(s), _span(s)))])
    columns = ["", "pairs", "Spearman", INTERVAL, "Pearson", INTERVAL]
    return Grid(f"{task.task} by subset, x 100 (no regressor)", columns, rows)


def _transfer_grid(results: Results, tasks: list[TaskResult]) -> Grid:
    average = [s for s in results.averages if s.protocol.startswith("transfer")]
    columns = ["", *(task.task for task in tasks), *(["Avg."] if average else [])]
    test = [task.scores[0] for task in tasks] + average
    rows = [
        [f"{results.model}, test", *map(_number, test)],
        [f"  {INTERVAL}", *map(_span, test)],
        [f"{results.model}, dev", *(_number(task.scores[-1]) for task in tasks), *[""] * len(average)],
        *_beside(results, None, columns),
    ]
    f1 = [(task.task, score) for task in tasks for score in task.scores if score.metric == "f1"]
    notes = [f"{name}: test F1 {_number(score)} ({_span(score)})" for name, score in f1]
    title = f"Transfer, accuracy in per cent (SentEval, {test[0].protocol} protocol)"
    return Grid(title, columns, rows, notes)


def _other_grid(task: TaskResult) -> Grid:
    rows = [[NAMES.get(s.metric, s.metric), _number(s), _span(s)] for s in task.scores]
    count = f"{task.scores[0].n:,} {'queries' if task.kind == 'retrieval' else 'pairs'}"
    title = f"{task.task}, x 100 ({count if task.scores[0].n else task.split})"
    return Grid(title, ["", "score", INTERVAL], rows, task.notes)

"""Results as tables for people: which rows and columns, whatever they are then drawn with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from twinpass.evaluation.protocols import CELLS, DEFAULT_CELL, Cell, papers_using
from twinpass.evaluation.published import Published, published_beside
from twinpass.evaluation.results import Results, Score, TaskResult, cell_score
from twinpass.evaluation.tasks import GROUPS

NAMES = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "accuracy": "accuracy",
    "f1": "F1",
    "r_at_1": "R@1",
    "r_at_5": "R@5",
    "r_at_10": "R@10",
    "mrr": "MRR",
    "ndcg_at_10": "nDCG@10",
    "ap": "AP",
}


@dataclass(frozen=True)
class Grid:
    """A titled table of text."""

    title: str
    columns: Sequence[str]
    rows: list[tuple[str, list[str]]]
    notes: list[str] = field(default_factory=list)


def make_grids(results: Results, *, all_cells: bool = False, subsets: bool = False, beside: bool = False) -> list[Grid]:
    """Lay out results: STS (one cell or all), perhaps its subsets, transfer, and people's own tasks."""
    sts = [task for task in results.tasks if task.kind == "sts"]
    transfer = [task for task in results.tasks if task.kind == "transfer"]
    others = [task for task in results.tasks if task.kind not in ("sts", "transfer")]
    grids = []
    if sts:
        cells = _cells_of(sts) if all_cells else [DEFAULT_CELL]
        grids.append(_sts_grid(results, sts, cells, beside=beside))
    if subsets:
        grids += [_subset_grid(task) for task in sts if len(_subset_names(task)) > 1]
    if transfer:
        grids.append(_transfer_grid(results, transfer, beside=beside))
    return grids + [_own_grid(task) for task in others]


def number(value: float) -> str:
    """Write a score as tables do, with two decimals; a dash where there is none."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def span(score: Score | None) -> str:
    """Write a score's interval."""
    return "" if score is None or math.isnan(score.low) else f"{score.low:.2f} to {score.high:.2f}"


def _cells_of(tasks: list[TaskResult]) -> list[Cell]:
    regressed = any("regressor" in task.items for task in tasks)
    return [cell for cell in CELLS if regressed or not cell.regressor]


def _sts_grid(results: Results, tasks: list[TaskResult], cells: list[Cell], *, beside: bool) -> Grid:
    columns = [task.task for task in tasks]
    rows: list[tuple[str, list[str]]] = []
    notes = [f"{task.task}: {note}" for task in tasks for note in task.notes]
    for cell in cells:
        average = next((s for s in results.averages if s.protocol == cell.name), None)
        scores = [cell_score(task, cell) for task in tasks] + ([average] if results_have_average(results) else [])
        label = results.model if len(cells) == 1 else cell.name
        rows.append((label, [number(s.value) if s else "-" for s in scores]))
        if len(cells) == 1:
            rows.append(("  95 % interval", [span(s) for s in scores]))
        if beside:
            rows += [_beside(row, columns, "sts", results) for row in published_beside(cell)]
        papers = "; ".join(papers_using(cell)) or "no paper of Table B.1"
        notes.append(f"{cell.name}: used by {papers}")
    if results_have_average(results):
        columns = [*columns, "Avg."]
    metric = f"{results.model}, every protocol" if len(cells) > 1 else cells[0].name
    splits = "/".join(dict.fromkeys(task.split for task in tasks))
    return Grid(f"STS, correlation x 100 ({metric}, {splits})", columns, rows, notes)


def results_have_average(results: Results) -> bool:
    """Tell whether all seven STS tasks were scored, so that an average is due."""
    return any(score.metric in ("spearman", "pearson") for score in results.averages)


def _beside(row: Published, columns: Sequence[str], group: str, results: Results) -> tuple[str, list[str]]:
    """A published row, cut to the columns that are shown."""
    by_task = dict(zip((*GROUPS[group], "Avg."), row.values, strict=True))
    shown = [*columns, "Avg."] if any(score.over == "Avg." for score in results.averages) else columns
    label = f"{row.model}{', ' + row.training if row.training else ''} [Table {row.table}]"
    return label, [number(by_task[name]) if name in by_task else "" for name in shown]


def _subset_names(task: TaskResult) -> list[str]:
    pairs = task.items["cosine"]
    return list(getattr(pairs, "subsets", {}))


def _subset_grid(task: TaskResult) -> Grid:
    rows = []
    for name in _subset_names(task):
        found = [s for s in task.scores if s.over == name]
        cells = [text for s in found for text in (number(s.value), span(s))]
        rows.append((name, [f"{found[0].n:,}", *cells]))
    columns = ["pairs", "Spearman", "95 % interval", "Pearson", "95 % interval"]
    return Grid(f"{task.task} by subset, x 100 (no regressor)", columns, rows)


def _transfer_grid(results: Results, tasks: list[TaskResult], *, beside: bool) -> Grid:
    protocol = tasks[0].scores[0].protocol
    columns = [task.task for task in tasks]
    average = next((s for s in results.averages if s.protocol.startswith("transfer")), None)
    test = [task.scores[0] for task in tasks] + ([average] if average else [])
    dev = [task.scores[-1] for task in tasks]
    rows = [
        (f"{results.model}, test", [number(s.value) for s in test]),
        ("  95 % interval", [span(s) for s in test]),
        (f"{results.model}, dev", [number(s.value) for s in dev] + [""] * bool(average)),
    ]
    if beside:
        rows += [_beside(row, columns, "transfer", results) for row in published_beside(None)]
    notes = [
        f"{task.task}: test F1 {number(s.value)} ({span(s)})" for task in tasks for s in task.scores if s.metric == "f1"
    ]
    if average:
        columns = [*columns, "Avg."]
    return Grid(f"Transfer, accuracy in per cent (SentEval, {protocol} protocol)", columns, rows, notes)


def _own_grid(task: TaskResult) -> Grid:
    rows = [(NAMES.get(s.metric, s.metric), [number(s.value), span(s)]) for s in task.scores]
    count = f"{task.scores[0].n:,} {'queries' if task.kind == 'retrieval' else 'pairs'}"
    title = f"{task.task}, x 100 ({count if task.scores[0].n else task.split})"
    return Grid(title, ["score", "95 % interval"], rows, task.notes)

"""Draw tables: for the terminal, as Markdown, as LaTeX; and list every score as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinpass.evaluation.grids import Grid
from twinpass.evaluation.results import Results

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = ("model", "task", "kind", "split", "over", "metric", "protocol", "value", "low", "high", "n")
_LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "\\": r"\textbackslash{}"})


def to_rich(grids: list[Grid]) -> RenderableType:
    """Draw grids for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for grid in grids:
        table = Table("")
        for column in grid.columns:
            table.add_column(column, justify="right")
        for label, cells in grid.rows:
            table.add_row(label, *cells)
        # A title inside the table would be broken to the table's width.
        parts += [Text(grid.title, style="bold"), table]
        parts += [*(Text(note, style="dim") for note in grid.notes), Text()]
    return Group(*parts)


def to_markdown(grids: list[Grid]) -> str:
    """Draw grids as Markdown tables, notes below them."""
    return "\n".join(_markdown(grid) for grid in grids)


def to_latex(grids: list[Grid]) -> str:
    """Draw grids as LaTeX tables (booktabs)."""
    return "\n".join(_latex(grid) for grid in grids)


def to_csv(results: Results) -> str:
    """List every score, one a line, with all that says what it is."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for task in results.tasks:
        for s in task.scores:
            place = (results.model, task.task, task.kind, task.split)
            writer.writerow((*place, s.over, s.metric, s.protocol, s.value, s.low, s.high, s.n))
    for s in results.averages:
        place = (results.model, "Avg.", "", "")
        writer.writerow((*place, s.over, s.metric, s.protocol, s.value, s.low, s.high, s.n))
    return stream.getvalue()


def _markdown(grid: Grid) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.strip().replace("|", "\\|") for cell in cells) + " |"

    lines = [f"**{grid.title}**", "", line(["", *grid.columns]), line(["---", *["---:"] * len(grid.columns)])]
    lines += [line([label, *cells]) for label, cells in grid.rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in grid.notes), ""])


def _latex(grid: Grid) -> str:
    def line(cells: list[str]) -> str:
        return "  " + " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"

    columns = "l" + "r" * len(grid.columns)
    body = [line(["", *grid.columns]), r"  \midrule", *(line([label, *cells]) for label, cells in grid.rows)]
    notes = "".join(f" {note.translate(_LATEX)}." for note in grid.notes)
    return "\n".join(
        [
            r"\begin{table}",
            rf"  \caption{{{grid.title.translate(_LATEX)}.{notes}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"  \toprule",
            *body,
            r"  \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


TEXTS: dict[str, Callable[[list[Grid]], str]] = {"markdown": to_markdown, "latex": to_latex}

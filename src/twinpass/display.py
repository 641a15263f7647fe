"""Results that print well: on a terminal, in a notebook, as Markdown, LaTeX or CSV, and as plain data."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinpass.errors import UserError
from twinpass.files import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

# Characters that LaTeX reads as commands.
_LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$"}
)
SENTENCE = 40  # characters above which a column of words is wrapped in LaTeX


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun: "1 text", "1,200 texts"; `several` is the plural if it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


@dataclass(frozen=True)
class Grid:
    """A table of text. The first column is aligned left, the others right unless they stand in `words`."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    words: Sequence[str] = ()
    lines: bool = False  # draw a line between rows, for cells of several lines

    def align(self, place: int) -> str:
        """Return how the column at a place is aligned."""
        return "left" if place == 0 or self.columns[place] in self.words else "right"


class Displayed:
    """A result that prints as its grids and converts to plain data; a dataclass of this kind sets repr=False."""

    def grids(self) -> Sequence[Grid]:
        """Return the tables that show the result."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON can hold it; a field `provenance` comes first, not nested."""
        document: dict[str, Any] = plain(self)
        return {**document.pop("provenance", {}), **document}

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per row of the result."""
        first = self.grids()[0]
        return [dict(zip(first.columns, row, strict=True)) for row in first.rows]

    def to_pandas(self) -> Any:
        """Return the records as a DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise UserError("to_pandas needs pandas. Install it: pip install pandas.") from error
        return pandas.DataFrame(self.records())

    def to_csv(self) -> str:
        """Return the records as comma-separated values with a header."""
        stream, records = io.StringIO(), self.records()
        writer = csv.DictWriter(stream, list(records[0]) if records else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return stream.getvalue()

    def __repr__(self) -> str:
        return to_text(self.grids())

    def _repr_html_(self) -> str:
        return to_html(self.grids())


def to_rich(grids: Sequence[Grid]) -> RenderableType:
    """Draw grids for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for grid in grids:
        # A title inside the table would be broken to the table's width.
        parts += [Text(grid.title, style="bold")] if grid.title else []
        if grid.columns:
            table = Table(show_lines=grid.lines)
            for place, column in enumerate(grid.columns):
                table.add_column(Text(column), justify=grid.align(place))  # type: ignore[arg-type]
            for row in grid.rows:
                table.add_row(*map(Text, row))
            parts.append(table)
        parts += [Text(note, style="dim") for note in grid.notes]
    return Group(*parts)


def to_text(grids: Sequence[Grid], *, width: int = 200) -> str:
    """Draw grids as plain text, as a terminal shows them."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, color_system=None)
    console.print(to_rich(grids))
    drawn: str = console.file.getvalue().rstrip()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in drawn.splitlines())


def to_html(grids: Sequence[Grid]) -> str:
    """Draw grids as HTML tables, notes below them."""
    return "\n".join(map(_html, grids))


def to_markdown(grids: Sequence[Grid]) -> str:
    """Draw grids as Markdown tables, notes below them."""
    return "\n".join(map(_markdown, grids))


def to_latex(grids: Sequence[Grid]) -> str:
    """Draw grids as LaTeX tables (booktabs), the first note in the caption, the others below the table."""
    return "\n".join(map(_latex, grids))


def _html(grid: Grid) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        aligned = (
            f'<{tag} style="text-align: {grid.align(place)}">{html.escape(cell)}</{tag}>'
            for place, cell in enumerate(cells)
        )
        return f"<tr>{''.join(aligned)}</tr>"

    rows = "".join(line("td", row) for row in grid.rows)
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in grid.notes)
    head = f"<table><caption>{html.escape(grid.title)}</caption><thead>{line('th', grid.columns)}</thead>"
    return f"{head}<tbody>{rows}</tbody></table>{notes}"


def _markdown(grid: Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.strip().replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = ["---" if grid.align(place) == "left" else "---:" for place in range(len(grid.columns))]
    lines = [f"**{grid.title}**", "", line(grid.columns), line(rule), *map(line, grid.rows)]
    return "\n".join([*lines, "", *(f"- {note}" for note in grid.notes), ""])


def _latex(grid: Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        return "  " + " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"

    def sentence(*notes: str) -> str:  # begun as they are: many a note begins with the name of a file or a model
        return f"{'; '.join(notes)}.".translate(_LATEX)

    long = {  # sentences are wrapped, and share most of the line
        place
        for place, column in enumerate(grid.columns)
        if column in grid.words and any(len(row[place]) > SENTENCE for row in grid.rows)
    }
    kinds = (
        rf"p{{{0.6 / len(long):.2g}\linewidth}}" if place in long else grid.align(place)[0]
        for place in range(len(grid.columns))
    )
    caption = rf"  \caption{{{sentence(grid.title, *grid.notes[:1])}}}"
    head = [r"\begin{table}", caption, rf"  \begin{{tabular}}{{{''.join(kinds)}}}", r"  \toprule", line(grid.columns)]
    foot = [r"  \bottomrule", r"  \end{tabular}"]
    if others := grid.notes[1:]:
        foot.append(rf"  \par\smallskip\footnotesize {sentence(*others)}")
    return "\n".join([*head, r"  \midrule", *map(line, grid.rows), *foot, r"\end{table}", ""])

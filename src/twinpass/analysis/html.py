"""Elements of a page: tables that sort, figures, blocks of text; everything escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from twinpass.analysis.svg import Drawing, inline_svg

Cell = str | float | int | None
NUMBER = ' class="number"'
LONG = 40  # letters without a space, as fingerprints are, may be broken anywhere


@dataclass(frozen=True)
class Column:
    """A column's title, what it means, and how many decimals its numbers show."""

    title: str
    about: str = ""
    decimals: int = 3


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table whose columns sort at a click or by keyboard; numbers tell all their digits on hover."""
    numeric = [any(isinstance(row[at], (int, float)) for row in rows) for at in range(len(columns))]
    heads = "".join(
        f'<th scope="col" aria-sort="none"{NUMBER * right}><button type="button" title="{escape(column.about)}">'
        f"{escape(column.title)}</button></th>"
        for column, right in zip(columns, numeric, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True)) + "</tr>"
        for row in rows
    )
    # The caption stands outside what scrolls sideways on a narrow screen, so that all of it can be read.
    return (
        f'<p class="caption">{escape(caption)}</p><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table class="sortable" aria-label="{escape(caption)}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(drawing: Drawing, *, files: str | None = None) -> str:
    """Return a figure with its caption; `files` is the folder where its files lie, seen from the page."""
    links = ""
    if files is not None:
        names = [f"{drawing.name}-{theme}.{kind}" for theme in ("light", "dark") for kind in ("svg", "png")]
        links = " ".join(f'<a href="{escape(files)}/{name}">{name.split("-")[-1]}</a>' for name in names)
        links = f'<span class="files">Files: {links}</span>'
    return (
        f'<figure id="figure-{escape(drawing.name)}">{inline_svg(drawing)}'
        f"<figcaption><strong>{escape(drawing.title)}.</strong> {escape(drawing.caption)} {links}</figcaption></figure>"
    )


def figures(drawings: Sequence[Drawing], *, files: str | None = None) -> str:
    """Return figures side by side where there is room."""
    return f'<div class="figures">{"".join(figure(each, files=files) for each in drawings)}</div>'


def notes(lines: Sequence[str]) -> str:
    """Return a list of remarks, or nothing."""
    return f'<ul class="notes">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>' if lines else ""


def code(text: str) -> str:
    """Return a block of text as it is."""
    return f"<pre><code>{escape(text)}</code></pre>"


def _cell(value: Cell, column: Column) -> str:
    if isinstance(value, str):
        long = ' class="long"' if len(value) > LONG and " " not in value else ""
        return f"<td{long}>{escape(value)}</td>"
    if value is None or not math.isfinite(value):
        return f'<td{NUMBER} title="not measured">–</td>'
    # Adding zero turns what rounds to minus nothing into nothing.
    shown = f"{value:,}" if isinstance(value, int) else f"{round(value, column.decimals) + 0.0:.{column.decimals}f}"
    return f'<td{NUMBER} data-value="{value!r}" title="{value!r}">{shown}</td>'

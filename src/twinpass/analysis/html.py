"""The page of a report: its elements, and the one file that opens from disk and needs no network.

The elements are tables that sort, figures, notes and code; everything is escaped. The page's HTML, CSS and JavaScript
are in page/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from twinpass import __version__
from twinpass.analysis.drawing import DARK, LIGHT, Drawing, Theme, inline_svg
from twinpass.files import writing

Cell = str | float | int | None
NUMBER = ' class="number"'
MISSING = "–"
LONG = 40  # longer words, such as fingerprints, may be broken anywhere


@dataclass(frozen=True)
class Column:
    """A column's title, its meaning, and the number of decimals shown."""

    title: str
    about: str = ""
    decimals: int = 3

    def show(self, value: Cell) -> str:
        """Return a value of this column as text."""
        if isinstance(value, str):
            return value
        if value is None or not math.isfinite(value):
            return MISSING
        # Adding zero turns a rounded -0.0 into 0.0.
        return f"{value:,}" if isinstance(value, int) else f"{round(value, self.decimals) + 0.0:.{self.decimals}f}"


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it."""

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """The section's name in a link."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table whose columns sort on a click or by keyboard; numbers show all their digits on hover."""
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
    # The caption is outside the part that scrolls sideways on a narrow screen, so that all of it can be read.
    return (
        f'<p class="caption">{escape(caption)}</p><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table class="sortable" aria-label="{escape(caption)}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: Cell, column: Column) -> str:
    if isinstance(value, str):
        long = ' class="long"' if len(value) > LONG and " " not in value else ""
        return f"<td{long}>{escape(value)}</td>"
    shown = column.show(value)
    if shown == MISSING:
        return f'<td{NUMBER} title="not measured">{MISSING}</td>'
    return f'<td{NUMBER} data-value="{value!r}" title="{value!r}">{shown}</td>'


def figures(drawings: Sequence[Drawing], *, folder: str | None = None) -> str:
    """Return figures side by side, each with its caption and links to its files in `folder`, relative to the page."""
    return f'<div class="figures">{"".join(_figure(each, folder) for each in drawings)}</div>'


def _figure(drawing: Drawing, folder: str | None) -> str:
    links = ""
    if folder is not None:
        names = [f"{drawing.name}-{theme}.{kind}" for theme in ("light", "dark") for kind in ("svg", "png")]
        links = " ".join(f'<a href="{escape(folder)}/{name}">{name.split("-")[-1]}</a>' for name in names)
        links = f'<span class="files">Files: {links}</span>'
    return (
        f'<figure id="figure-{escape(drawing.name)}">{inline_svg(drawing)}'
        f"<figcaption><strong>{escape(drawing.title)}.</strong> {escape(drawing.caption)} {links}</figcaption></figure>"
    )


def notes(lines: Sequence[str]) -> str:
    """Return a list of notes; nothing if there are none."""
    return f'<ul class="notes">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>' if lines else ""


def code(text: str) -> str:
    """Return a block of preformatted text."""
    return f"<pre><code>{escape(text)}</code></pre>"


def write_page(target: str | Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write the page, whole or not at all."""
    style = Template(_asset("style.css")).substitute(light=_variables(LIGHT), dark=_variables(DARK))
    text = Template(_asset("page.html")).substitute(
        title=escape(title),
        lead=escape(lead),
        version=__version__,
        style=style,
        contents=" ".join(f'<a href="#{each.anchor}">{escape(each.title)}</a>' for each in sections),
        sections="\n".join(
            f'<section id="{each.anchor}"><h2>{escape(each.title)}</h2>{each.body}</section>' for each in sections
        ),
        script=_asset("page.js"),
    )
    with writing(target) as aside:
        aside.write_text(text, encoding="utf-8")


def _asset(name: str) -> str:
    return files("twinpass.analysis").joinpath("page", name).read_text(encoding="utf-8")


def _variables(theme: Theme) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in theme.colours().items())

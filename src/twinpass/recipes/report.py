"""An outcome as a table people read, and as JSON, Markdown, LaTeX and a figure."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twinpass.files import write_json, writing
from twinpass.recipes.accounts import say
from twinpass.recipes.reproduce import Cell, Outcome, RowOutcome

WIDE = 3  # with more columns than this, ours and the paper's number share a cell
NOTHING = "-"
SMALL = 0.005  # below it two decimals say nothing


def number(value: float | None, *, sign: bool = False) -> str:
    """Write a number as tables have it: two decimals, or as it is where two say nothing."""
    if value is None or math.isnan(value):
        return NOTHING
    if 0 < abs(value) < SMALL:
        return f"{value:+g}" if sign else f"{value:g}"
    return f"{value:+.2f}" if sign else f"{value:.2f}"


def ours(cell: Cell) -> str:
    """Write our mean, with the deviation over seeds where there are several."""
    if cell.mean is None or cell.deviation is None:
        return number(cell.mean)
    small = 0 < abs(cell.mean) < SMALL  # a learning rate, say
    return f"{number(cell.mean)} ± {cell.deviation:{'.1g' if small else '.2f'}}"


def headings(outcome: Outcome) -> list[str]:
    """Return the headings of the table."""
    recipe = outcome.recipe
    if len(recipe.columns) > WIDE:
        return ["", *(f"{label} (paper)" if recipe.paper else label for label in recipe.columns.values())]
    parts = ["ours", "paper", "difference"] if recipe.paper else ["ours"]
    return ["", *(f"{label}: {part}" for label in recipe.columns.values() for part in parts)]


def lines(outcome: Outcome) -> list[list[str]]:
    """Return the rows of the table, as text."""
    return [[row.row.label, *_cells(outcome, row)] for row in outcome.rows]


def _cells(outcome: Outcome, row: RowOutcome) -> list[str]:
    cells = [row.cells[column] for column in outcome.recipe.columns]
    if not outcome.recipe.paper:
        return [ours(cell) for cell in cells]
    if len(cells) > WIDE:
        return [f"{ours(cell)} ({number(cell.paper)})" for cell in cells]
    return [text for cell in cells for text in (ours(cell), number(cell.paper), number(cell.difference, sign=True))]


def notes(outcome: Outcome) -> list[str]:
    """Return what is to be said below the table: protocol, ordering, rows left out, the text that was read."""
    recipe = outcome.recipe
    seeds = f"{len(outcome.seeds)} seed{'s' * (len(outcome.seeds) > 1)} ({', '.join(map(str, outcome.seeds))})"
    encoder = f", encoder {outcome.encoder}" if outcome.encoder else ""
    found = [f"{recipe.protocol}; scale {outcome.scale}{encoder}, {seeds}"]
    for column, label in recipe.columns.items():
        agreement = outcome.agreement(column)
        if agreement is not None:
            found.append(
                f"{label}: Kendall's tau {agreement.tau:+.2f} against the paper over {agreement.rows} rows "
                f"(p = {agreement.p:.2g}): {agreement.words}"
            )
    found += [f"{row.row.label.strip()}: {row.note}" for row in outcome.rows if row.note]
    found += [f"text {say(name, account)}" for name, account in outcome.facts.get("corpora", {}).items()]
    sources = {row.row.source for row in outcome.rows if row.row.source}
    if sources:
        found.append(f"some of the paper's numbers are quoted there from {'; '.join(sorted(sources))}")
    return found


def to_document(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as a JSON object."""
    recipe = outcome.recipe
    agreement = {column: outcome.agreement(column) for column in recipe.columns}
    return outcome.facts | {
        "recipe": recipe.name,
        "title": recipe.title,
        "protocol": recipe.protocol,
        "scale": outcome.scale,
        "encoder": outcome.encoder,
        "seeds": list(outcome.seeds),
        "columns": dict(recipe.columns),
        "rows": [_row_document(row) for row in outcome.rows],
        "ordering": {column: asdict(found) for column, found in agreement.items() if found is not None},
    }


def _row_document(row: RowOutcome) -> dict[str, Any]:
    return {
        "key": row.row.key,
        "label": row.row.label,
        "source": row.row.source,
        "note": row.note,
        "cells": {column: _cell_document(cell) for column, cell in row.cells.items()},
        "more": row.more,
    }


def _cell_document(cell: Cell) -> dict[str, Any]:
    return {
        "ours": list(cell.ours),
        "mean": cell.mean,
        "deviation": cell.deviation,
        "paper": cell.paper,
        "difference": cell.difference,
    }


def to_markdown(outcome: Outcome) -> str:
    """Return the outcome as a Markdown table with its notes."""
    head = headings(outcome)
    rule = ["---", *("---:" for _ in head[1:])]
    table = ["| " + " | ".join(line) + " |" for line in (head, rule, *lines(outcome))]
    below = [f"- {note}" for note in notes(outcome)]
    return "\n".join([f"### {outcome.recipe.name}: {outcome.recipe.title}", "", *table, "", *below, ""])


_LATEX = {letter: rf"\{letter}" for letter in "&%_#${}"}
_LATEX |= {"±": r"$\pm$", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def to_latex(outcome: Outcome) -> str:
    """Return the outcome as a LaTeX table (booktabs)."""
    head = headings(outcome)
    rows = [" & ".join(map(_escape, line)) + r" \\" for line in lines(outcome)]
    caption = _escape(f"{outcome.recipe.title}. {'. '.join(notes(outcome))}.")
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            " & ".join(map(_escape, head)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}}}",
            r"\end{table}",
            "",
        ]
    )


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def write_report(outcome: Outcome, folder: Path) -> list[Path]:
    """Write NAME.json, .md, .tex and the figure into a folder."""
    from twinpass.analysis.drawing import write_figure
    from twinpass.recipes.figures import draw_outcome

    folder.mkdir(parents=True, exist_ok=True)
    name = outcome.recipe.name
    write_json(folder / f"{name}.json", to_document(outcome))
    written = [folder / f"{name}.json"]
    for suffix, text in (("md", to_markdown(outcome)), ("tex", to_latex(outcome))):
        with writing(folder / f"{name}.{suffix}") as aside:
            aside.write_text(text, encoding="utf-8")
        written.append(folder / f"{name}.{suffix}")
    drawing = draw_outcome(outcome)
    return written + (write_figure(drawing, folder) if drawing is not None else [])

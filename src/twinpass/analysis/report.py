"""The report of an analysis: a page, its figures as files, and all numbers as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from twinpass.analysis.figures import make_figures
from twinpass.analysis.figures.training import trajectory_figure
from twinpass.analysis.html import Cell, Column, figures, notes, table
from twinpass.analysis.measure import Analysis
from twinpass.analysis.neighbours import Comparison, Neighbours
from twinpass.analysis.page import Section, write_page
from twinpass.analysis.sample import Sample
from twinpass.analysis.svg import Drawing, write_figure
from twinpass.analysis.trajectory import RunLog
from twinpass.errors import OutputError
from twinpass.files import write_json, writing, writing_folder

PAGE, NUMBERS, FIGURES = "index.html", "analysis.json", "figures"
COLUMNS = (
    Column("model"),
    Column("dimensions"),
    Column("alignment", "Eq. 2 over positive pairs; lower is better"),
    Column("uniformity", "Eq. 3 with t = 2 over all pairs of sentences; lower is better"),
    Column("Spearman × 100", "Correlation of the cosine with the gold score", 2),
    Column("anisotropy", "Mean cosine of two different sentences"),
    Column("Eq. 6, 1st term", "Keeps positives together; in nats, temperature 0.05"),
    Column("Eq. 6, 2nd term", "Pushes everything apart; in nats, temperature 0.05"),
    Column("Eq. 7", "Jensen's lower bound of Eq. 6's second term, in nats"),
    Column("λ₁, % of trace", "Largest eigenvalue of the matrix of cosines, per cent of its trace", 2),
    Column("effective rank", "exp of the entropy of the singular values taken as a distribution", 1),
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a report shows; a report of runs alone has neither sample nor analyses."""

    title: str
    sample: Sample | None = None
    analyses: Sequence[Analysis] = ()
    neighbours: Neighbours | None = None
    averages: Mapping[str, float] = field(default_factory=dict)  # Avg. STS by model name
    runs: Sequence[RunLog] = ()
    last: Sequence[Section] = ()

    def drawings(self) -> list[Drawing]:
        """Return all figures."""
        paths = [trajectory_figure(self.runs)] if self.runs else []
        if self.sample is None:
            return paths
        return [*make_figures(self.sample, self.analyses, averages=self.averages), *paths]


def check_target(folder: Path) -> None:
    """Refuse to replace a folder that is not an earlier report."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"cannot write {folder}: it is a file. A report is a folder; choose another name.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / NUMBERS).is_file():
        raise OutputError(
            f"{folder} holds something that is not a report. It would be replaced: choose another folder."
        )


def write_report(folder: Path, report: Report, document: Mapping[str, Any]) -> None:
    """Write the report, whole or not at all, in place of an earlier one."""
    check_target(folder)
    drawings = report.drawings()
    with writing_folder(folder) as aside:
        (aside / FIGURES).mkdir()
        for drawing in drawings:
            write_figure(drawing, aside / FIGURES)
        captions = "".join(f"{each.name}: {each.title}. {each.caption}\n\n" for each in drawings)
        with writing(aside / FIGURES / "captions.txt") as captions_file:
            captions_file.write_text(captions, encoding="utf-8")
        write_json(aside / NUMBERS, document)
        write_page(aside / PAGE, report.title, _lead(report), _sections(report, drawings))


def _lead(report: Report) -> str:
    if report.sample is None:
        return f"{len(report.runs)} training run(s): where the space went, step by step."
    return f"{len(report.analyses)} model(s) on {report.sample.protocol}."


def _sections(report: Report, drawings: Sequence[Drawing]) -> list[Section]:
    sections = []
    if report.sample is not None:
        rows = [to_row(each) for each in report.analyses]
        left_out = [f"Left out: {note}." for note in report.sample.left_out]
        caption = f"{report.sample.protocol}; {report.analyses[0].geometry.positives:,} positive pairs"
        sections.append(Section("Numbers", table(caption, COLUMNS, rows) + notes(left_out)))
    sections.append(Section("Figures", figures(drawings, files=FIGURES)))
    if report.neighbours is not None:
        sections.append(neighbours_section(report.neighbours))
    return [*sections, *report.last]


def to_row(each: Analysis) -> list[Cell]:
    """Return a model's numbers in the order of COLUMNS."""
    found = each.geometry
    return [
        each.name,
        each.dimensions,
        found.alignment,
        found.uniformity,
        found.spearman,
        found.anisotropy,
        found.positives_term,
        found.negatives_term,
        found.jensen_bound,
        100 * each.spectrum.largest_share,
        each.spectrum.effective_rank,
    ]


def neighbours_section(found: Neighbours) -> Section:
    """Table 8: the same query's neighbours by every model, side by side."""
    columns = (Column("model"), Column("other model"), Column("in common", "Share of the k nearest", 3))
    rows: list[list[Cell]] = [[a, b, share] for (a, b), share in found.agreement.items()]
    caption = f"Share of the {found.k} nearest of {found.texts:,} sentences in common; {found.queries:,} queries"
    agreement = table(caption, columns, rows) if rows else ""
    shown = comparisons_section("Neighbours", found.comparisons)
    return Section(shown.title, agreement + shown.body)


def comparisons_section(title: str, comparisons: Sequence[Comparison]) -> Section:
    """Queries, and below each its neighbours by every model."""
    legend = notes(["Bold: a neighbour that no other model has among its nearest. The number is the cosine."])
    return Section(title, legend + "".join(map(_comparison, comparisons)))


def _comparison(each: Comparison) -> str:
    cards = []
    for name, near in each.by_model.items():
        lines = "".join(
            f'<li class="{"shared" if n.shared else "only"}">{escape(n.text)} '
            f'<span class="cosine">{n.cosine:.3f}</span></li>'
            for n in near
        )
        cards.append(f"<div><h4>{escape(name)}</h4><ol>{lines}</ol></div>")
    return f'<h3>Query: {escape(each.query)}</h3><div class="neighbours">{"".join(cards)}</div>'

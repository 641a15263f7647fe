"""The result of an analysis: as tables, as JSON, and as a report of one page with figures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from twinpass.analysis.drawing import Drawing, write_figure
from twinpass.analysis.figures import make_figures
from twinpass.analysis.html import Cell, Column, Section, code, figures, notes, table, write_page
from twinpass.analysis.measure import Measures
from twinpass.analysis.neighbours import Comparison, Neighbours
from twinpass.analysis.sampling import Sample
from twinpass.analysis.training_report import trajectory_figure
from twinpass.display import Displayed, Grid, counted
from twinpass.errors import OutputError
from twinpass.files import plain, write_json, writing_folder
from twinpass.log import RunLog
from twinpass.text.tables import check_table, write_table

TABLES = (".csv", ".parquet", ".jsonl")
# Suffixes of files that a report is not. Any other may be part of a folder's name, as in model-1.5B and report.v2.
_NAMES = "txt md html htm pdf tex doc docx odt ipynb json yaml xml png svg jpg jpeg gif webp eps tsv xls xlsx ods npy"
_NAMES += " safetensors zip gz xz bz2 tar tgz"
OTHERS = tuple(f".{name}" for name in _NAMES.split())
PAGE, NUMBERS, FIGURES = "index.html", "analysis.json", "figures"
COLUMNS = (
    Column("model"),
    Column("dimensions"),
    Column("alignment", "Eq. 2 over positive pairs; lower is better"),
    Column("uniformity", "Eq. 3 with t = 2 over all pairs of sentences; lower is better"),
    Column("Spearman × 100", "Correlation of the cosine with the gold score", 2),
    Column("anisotropy", "Mean cosine of two different sentences"),
    Column("Eq. 6, 1st term", "Pulls positives together; in nats, temperature 0.05"),
    Column("Eq. 6, 2nd term", "Pushes all sentences apart; in nats, temperature 0.05"),
    Column("Eq. 7", "Jensen's lower bound of Eq. 6's second term, in nats"),
    Column("λ₁, % of trace", "Largest eigenvalue of the matrix of cosines, per cent of its trace", 2),
    Column("effective rank", "exp of the entropy of the singular values divided by their sum", 1),
)
FINGERPRINTS = (
    Column("what"),
    Column("name", "As it was given."),
    Column("fingerprint", "SHA-256. Equal fingerprints: equal vectors, or equal text."),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Analysis(Displayed):
    """What `analyze` found; of training runs alone, there is neither a sample nor a model."""

    sample: Sample | None = None
    models: Sequence[Measures] = ()
    neighbours: Neighbours | None = None
    averages: Mapping[str, float] = field(default_factory=dict)  # Avg. STS by model name
    runs: Sequence[RunLog] = ()
    data_fingerprint: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # versions and options
    command: str | None = None

    def grids(self) -> list[Grid]:
        """Return a table of the models, and one of the training runs."""
        found = []
        if self.sample is not None:
            rows = [list(map(Column.show, COLUMNS, _row(each))) for each in self.models]
            skipped = [f"not measured: {note}" for note in self.sample.not_measured]
            found.append(Grid(self.sample.heading, [column.title for column in COLUMNS], rows, notes=skipped))
        if self.runs:
            columns = ("run", "points", "alignment, first and last", "uniformity, first and last")
            paths = [[f"{log.geometry[0][at]:.3f} -> {log.geometry[-1][at]:.3f}" for at in (1, 2)] for log in self.runs]
            lines = [[log.name, str(len(log.geometry)), *path] for log, path in zip(self.runs, paths, strict=True)]
            found.append(Grid("", columns, lines))
        return found

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per model: the columns of the table, with all digits. Of runs alone: one per point."""
        if self.sample is None:
            return [{"run": log.name} | point for log in self.runs for point in _points(log)]
        return [dict(zip((column.title for column in COLUMNS), _row(each), strict=True)) for each in self.models]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, and what they were made from, as a JSON object."""
        document: dict[str, Any] = {**self.facts, "command": self.command}
        if (sample := self.sample) is not None:
            names = ("source", "rows", "of_rows", "scale", "not_measured")
            document["sample"] = {name: getattr(sample, name) for name in names}
            document["sample"] |= {"sentences": len(sample.texts), "fingerprint": self.data_fingerprint}
            document |= {"models": [each.to_dict(sample) for each in self.models], "neighbours": None}
            if (found := self.neighbours) is not None:
                agreement = [{"models": pair, "share": share} for pair, share in found.agreement.items()]
                document["neighbours"] = vars(found) | {"agreement": agreement}
            document["averages"] = self.averages
        document["runs"] = [{"name": log.name, "geometry": _points(log)} for log in self.runs]
        flat: dict[str, Any] = plain(document)
        return flat

    def figures(self) -> list[Drawing]:
        """Return all figures."""
        found = [] if self.sample is None else make_figures(self.sample, self.models, self.averages)
        return [*found, trajectory_figure(self.runs)] if self.runs else found

    def write(self, output: str | os.PathLike[str]) -> None:
        """Write the report to a folder, whole or not at all, or the records to a .csv, .parquet or .jsonl file.

        A report replaces an earlier report and nothing else.
        """
        target = check_target(output)
        if is_table(target):
            records = self.records()
            write_table(target, records, columns=list(records[0]) if records else ())
            return
        drawings = self.figures()
        with writing_folder(target) as aside:
            (aside / FIGURES).mkdir()
            for drawing in drawings:
                write_figure(drawing, aside / FIGURES)
            captions = "".join(f"{each.name}: {each.title}. {each.caption}\n\n" for each in drawings)
            (aside / FIGURES / "captions.txt").write_text(captions, encoding="utf-8")
            write_json(aside / NUMBERS, self.to_dict())
            title, lead = "Paths of training", f"{counted(len(self.runs), 'training run')}."
            if self.sample is not None:
                title = "Analysis of sentence vectors"
                lead = f"{counted(len(self.models), 'model')} on {self.sample.protocol}."
            write_page(aside / PAGE, title, lead, _sections(self, drawings))


def is_table(output: Path) -> bool:
    """Tell whether a name is that of a table of the numbers, not that of a report's folder."""
    return output.suffix in TABLES


def check_target(output: str | os.PathLike[str]) -> Path:
    """Return the output as a path; refuse a folder that is not an earlier report, and files of other kinds."""
    target = Path(output)
    if is_table(target):
        check_table(target)
        return target
    if not target.is_dir() and target.suffix.lower() in OTHERS:
        raise OutputError(
            f"cannot write {target}: expected the name of a folder for the report, or one that ends in "
            f"{', '.join(TABLES[:-1])} or {TABLES[-1]} for a table of the numbers; got the suffix {target.suffix}. "
            "A folder with such a name must exist already."
        )
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write {target}: it is a file. A report is a folder; choose another name.")
    if target.is_dir() and any(target.iterdir()) and not (target / NUMBERS).is_file():
        raise OutputError(f"{target} is not empty and not a report: it would be replaced. Choose another folder.")
    return target


def _row(each: Measures) -> list[Cell]:
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


def _points(log: RunLog) -> list[dict[str, Any]]:
    return [dict(zip(("step", "alignment", "uniformity"), point, strict=True)) for point in log.geometry]


def _sections(analysis: Analysis, drawings: Sequence[Drawing]) -> list[Section]:
    sections = []
    made_from: list[tuple[str, str, str | None]] = []
    if (sample := analysis.sample) is not None:
        skipped = notes([f"Not measured: {note}." for note in sample.not_measured])
        numbers = table(sample.heading, COLUMNS, [_row(each) for each in analysis.models])
        sections.append(Section("Numbers", numbers + skipped))
        made_from = [("model", each.name, each.fingerprint) for each in analysis.models]
        made_from.append(("data", sample.source, analysis.data_fingerprint))
    made_from += [("run", log.name, None) for log in analysis.runs]
    sections.append(Section("Figures", figures(drawings, folder=FIGURES)))
    if analysis.neighbours is not None:
        sections.append(_neighbours_section(analysis.neighbours))
    return [*sections, provenance_section(analysis.command, fingerprints=made_from, facts=plain(analysis.facts))]


def provenance_section(
    command: str | None, *, fingerprints: Sequence[tuple[str, str, str | None]], facts: Mapping[str, Any]
) -> Section:
    """How to reproduce a report: the command, its inputs as (what, name, fingerprint), versions and options."""
    rows: list[list[Cell]] = [[what, name, print_ or "–"] for what, name, print_ in fingerprints]
    body = (code(command) if command else "") + table("Made from", FINGERPRINTS, rows)
    details = json.dumps(facts, indent=2, ensure_ascii=False, default=str)
    details = f"<details><summary>Versions and options</summary>{code(details)}</details>"
    return Section("How to reproduce this", body + details)


def _neighbours_section(found: Neighbours) -> Section:
    """Table 8: the same query's neighbours by every model, side by side."""
    columns = (Column("model"), Column("other model"), Column("in common", "Share of the k nearest", 3))
    rows: list[list[Cell]] = [[a, b, share] for (a, b), share in found.agreement.items()]
    caption = f"Share of the {found.k} nearest of {found.texts:,} sentences in common; {found.queries:,} queries"
    agreement = table(caption, columns, rows) if rows else ""
    shown = comparisons_section("Neighbours", found.comparisons)
    return Section(shown.title, agreement + shown.body)


def comparisons_section(title: str, comparisons: Sequence[Comparison]) -> Section:
    """Queries, and below each its neighbours by every model."""
    legend = notes(["Bold: no other model has this text among its nearest. The number is the cosine."])
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

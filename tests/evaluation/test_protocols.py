import re

import pytest

from twinpass.evaluation.protocols import DEFAULT_CELL, PUBLISHED, Cell, published_beside

LABELS = {
    "5": "tab:main_sts",
    "B.2": "tab:replicated_results",
    "B.3": "tab:wmean_sts",
    "C.1": "tab:target_vs_nli",
    "E.1": "tab:main_transfer",
}


@pytest.mark.parametrize("table", LABELS)
def test_the_numbers_are_the_papers(table, shared):
    """Every number of the table's source, in order, and nothing else."""
    tex = (shared / "paper.tex").read_text(encoding="utf-8")
    label = tex.index(rf"\label{{{LABELS[table]}}}")
    body = tex[tex.rindex(r"\begin{tabular}", 0, label) : label]
    body = body[: body.index(r"\end{tabular}")]
    numbers = [float(number) for number in re.findall(r"(?<![\d.])\d\d\.\d\d(?!\d)", body)]
    ours = [value for row in PUBLISHED if row.table == table for value in row.values]
    assert ours == numbers and len(ours) % 8 == 0


def test_averages_follow_from_their_rows():
    """An average is of the seven printed values, to rounding; a few quoted ones were averaged elsewhere."""
    for row in PUBLISHED:
        assert sum(row.values[:7]) / 7 == pytest.approx(row.values[7], abs=0.04 if row.source else 0.011)


def test_rows_stand_only_beside_their_own_protocol():
    assert all(row.cell == DEFAULT_CELL for row in published_beside(DEFAULT_CELL))
    assert {row.table for row in published_beside(Cell("wmean", "spearman", False))} == {"B.2", "B.3"}
    assert {row.table for row in published_beside(None)} == {"E.1"}
    assert published_beside(Cell("mean", "pearson", True)) == []

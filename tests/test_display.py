"""Results print as tables and convert to plain data."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from twinpass.display import Displayed, Grid, counted, to_html, to_latex, to_markdown, to_text

GRID = Grid("Scores & more", ["model", "score"], [["a_b", "1.50"], ["c|d", "10.00"]], notes=["50 % of it"])


@dataclass(frozen=True, repr=False)
class Scores(Displayed):
    model: str
    score: float

    def grids(self) -> list[Grid]:
        return [Grid("", ["model", "score"], [[self.model, f"{self.score:.2f}"]])]


def test_text_shows_title_headings_cells_and_notes() -> None:
    text = to_text([GRID])
    assert [
        part for part in ("Scores & more", "model", "a_b", " 1.50 ", "10.00", "50 % of it") if part not in text
    ] == []


def test_markdown_aligns_numbers_and_escapes_bars() -> None:
    assert to_markdown([GRID]).splitlines() == [
        "**Scores & more**",
        "",
        "| model | score |",
        "| --- | ---: |",
        "| a_b | 1.50 |",
        "| c\\|d | 10.00 |",
        "",
        "- 50 % of it",
    ]


def test_latex_escapes_what_it_reads_as_commands() -> None:
    text = to_latex([GRID])
    assert r"\caption{Scores \& more; 50 \% of it.}" in text
    assert r"a\_b & 1.50 \\" in text
    assert r"\begin{tabular}{lr}" in text


def test_latex_leaves_the_names_that_notes_begin_with() -> None:
    text = to_latex([Grid("Scores", ["model"], [], notes=["wiki.txt: first", "minilm scores 5", "e5 scores 6"])])
    assert r"\caption{Scores; wiki.txt: first.}" in text
    assert r"\footnotesize minilm scores 5; e5 scores 6." in text


def test_html_escapes() -> None:
    assert "<caption>Scores &amp; more</caption>" in to_html([GRID])


def test_a_result_prints_and_converts() -> None:
    result = Scores("m", 2.0)
    assert "2.00" in repr(result)
    assert "<table>" in result._repr_html_()
    assert result.to_dict() == {"model": "m", "score": 2.0}
    assert result.to_csv() == "model,score\nm,2.00\n"


def test_a_result_becomes_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = Scores("m", 2.0).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.to_dict("records") == [{"model": "m", "score": "2.00"}]


def test_a_number_and_its_noun_agree() -> None:
    assert [counted(count, "text") for count in (0, 1, 1_200)] == ["0 texts", "1 text", "1,200 texts"]
    assert [counted(count, "query", "queries") for count in (1, 2)] == ["1 query", "2 queries"]

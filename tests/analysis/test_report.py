"""The page in a real browser: no errors, tables that sort, figures that are there, nothing that overflows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser import PATIENCE, open_browser

from twinpass.analysis.html import Column, table
from twinpass.analysis.measure import measure
from twinpass.analysis.neighbours import compare_neighbours
from twinpass.analysis.report import Analysis, check_target
from twinpass.analysis.sampling import Sample, Scale
from twinpass.errors import OutputError
from twinpass.log import RunLog

NAMES = ("base", "a-model-with-quite-a-long-name#pooler=avg_first_last,layers=3", '<b>third</b> & "last"')
FIGURES = ("geometry", "spectrum", "density", "map", "theory", "trajectory")


def make_report() -> Analysis:
    draw = np.random.default_rng(3)
    texts = [f"sentence number {place} with <tags> & signs" for place in range(80)]
    pairs = np.arange(80).reshape(40, 2)
    gold = np.linspace(0, 5, 40)
    sample = Sample(
        source="some/folder/pairs.csv", texts=texts, rows=40, of_rows=40, pairs=pairs, gold=gold, scale=Scale(0, 5)
    )
    vectors = {}
    for place, name in enumerate(NAMES):
        found = draw.normal(size=(80, 12)) + 0.5 * place
        found[pairs[:, 1]] = found[pairs[:, 0]] * gold[:, None] + found[pairs[:, 1]]
        vectors[name] = found.astype(np.float32)
    run = RunLog(name="a run", geometry=[(0, 0.1, -0.5), (10, 0.2, -1.5), (20, 0.15, -2.5)])
    return Analysis(
        sample=sample,
        models=[measure(name, each, sample, fingerprint=160 * "f") for name, each in vectors.items()],
        neighbours=compare_neighbours(texts, vectors),
        averages={"base": 70.0, NAMES[1]: 75.5},
        runs=[run],
        facts={"a": 1},
        command="twinpass analyze",
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "report"
    make_report().write(folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def open_page(browser: Any, path: Path, *, width: int = 1000, scheme: str = "light") -> tuple[Any, list[str]]:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: request.url.startswith("file:") or troubles.append(request.url))
    page.goto(path.as_uri())
    return page, [trouble for trouble in troubles if not trouble.startswith("data:")]


def test_the_folder_holds_page_figures_and_numbers(report: Path) -> None:
    assert json.loads((report / "analysis.json").read_text()) == make_report().to_dict()
    for name in FIGURES:
        for theme in ("light", "dark"):
            assert (report / "figures" / f"{name}-{theme}.png").read_bytes().startswith(b"\x89PNG")
            svg = (report / "figures" / f"{name}-{theme}.svg").read_text()
            assert "<text" in svg, "text must stay text"
    captions = (report / "figures" / "captions.txt").read_text()
    assert "80 distinct sentences of pairs.csv" in captions
    assert "Alignment over 8 positive pairs (score above 4), uniformity over all pairs of sentences." in captions
    page = (report / "index.html").read_text()
    heading = "80 distinct sentences of pairs.csv; 8 positive pairs (score above 4)"
    assert heading in page and make_report().grids()[0].title == heading
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page
    identifiers = [part.split('"')[0] for part in page.split(' id="')[1:]]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize("width", [400, 800, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen_without_a_complaint(browser: Any, report: Path, width: int, scheme: str) -> None:
    page, troubles = open_page(browser, report / "index.html", width=width, scheme=scheme)
    assert troubles == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Only what may be scrolled sideways is wider than its place.
    wide = """[...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, svg"))
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""
    assert page.evaluate(wide) == []
    if width == 1600:
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth)")
    page.close()


def test_figures_are_drawn_in_the_readers_colours(browser: Any, report: Path) -> None:
    inks = []
    for scheme in ("light", "dark"):
        page, _ = open_page(browser, report / "index.html", scheme=scheme)
        for name in FIGURES:
            box = page.locator(f"#figure-{name} svg").bounding_box()
            assert box["width"] > 200 and box["height"] > 100
            assert page.locator(f"#figure-{name} figcaption").inner_text().count(" ") > 10
        inks.append(page.evaluate("getComputedStyle(document.querySelector('#figure-map svg text')).fill"))
        page.close()
    assert inks[0] != inks[1]


def test_tables_sort_by_click_and_by_keyboard(browser: Any, report: Path) -> None:
    page, _ = open_page(browser, report / "index.html")
    first = page.locator("table.sortable").first
    column = 3  # uniformity

    def values() -> list[float]:
        cells = first.locator(f"tbody tr td:nth-child({column + 1})")
        return [float(cell.get_attribute("data-value")) for cell in cells.all()]

    head = first.locator("thead th").nth(column)
    head.locator("button").click()
    assert values() == sorted(values()) and head.get_attribute("aria-sort") == "ascending"
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert values() == sorted(values(), reverse=True) and head.get_attribute("aria-sort") == "descending"
    names = first.locator("thead th").first
    names.locator("button").click()
    assert head.get_attribute("aria-sort") == "none" and names.get_attribute("aria-sort") == "ascending"
    page.close()


def test_what_was_not_measured_sorts_last(browser: Any, tmp_path: Path) -> None:
    from twinpass.analysis.html import Section, write_page

    rows = [["a", None], ["b", 2.0], ["c", -1.0]]
    write_page(tmp_path / "x.html", "x", "y", [Section("t", table("t", [Column("n"), Column("v")], rows))])
    page, _ = open_page(browser, tmp_path / "x.html")
    for expected in ("cba", "bca"):
        page.locator("thead th button").nth(1).click()
        assert "".join(page.locator("tbody tr td:first-child").all_inner_texts()) == expected
    page.close()


def test_points_tell_their_values(browser: Any, report: Path) -> None:
    page, _ = open_page(browser, report / "index.html")
    point = page.locator("#figure-geometry use[data-tip]").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator("#tip", has_text="uniformity -").wait_for()
    assert page.locator("#figure-map use[data-tip]").count() == 3 * 80
    page.mouse.move(1, 1)
    page.locator("#tip").wait_for(state="hidden")
    page.close()


def test_names_are_shown_not_run(browser: Any, report: Path) -> None:
    page, _ = open_page(browser, report / "index.html")
    assert NAMES[2] in page.locator("main").inner_text()
    assert page.locator("main b").count() == 0
    page.close()


def test_a_report_replaces_a_report_and_nothing_else(report: Path, tmp_path: Path) -> None:
    check_target(report)
    check_target(tmp_path / "new")
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(OutputError, match="not empty and not a report"):
        check_target(tmp_path)
    with pytest.raises(OutputError, match="expected the name of a folder for the report, or one that ends in"):
        check_target(tmp_path / "mine.txt")
    with pytest.raises(OutputError, match=r"got the suffix \.PDF\. A folder with such a name must exist"):
        check_target(tmp_path / "an.PDF")
    (tmp_path / "an.PDF").mkdir()
    for name in ("an.PDF", "run-0.05", "model-1.5B", "report.v2", "out.d"):
        assert check_target(tmp_path / name) == tmp_path / name

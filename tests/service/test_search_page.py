"""The page of the service in a real browser: type, click, see the right neighbour first, and run nothing foreign."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the service (pip install 'twinpass[serve]')")
pytest.importorskip("uvicorn", reason="needs the service (pip install 'twinpass[serve]')")

from tests.browser import PATIENCE, open_browser
from tests.service.toy_service import Toy, encode, serving

from twinpass.encoder.encoder import Encoder

EVIL = "an evil image <img src=x onerror=\"window.harmed='img'\"> & <script>window.harmed='script'</script>"
TEXTS = [
    "the cat sat on the mat",
    "a cat sat on a warm mat",
    "the dog runs in the park",
    "a dog sleeps in the park",
    "interest rates rise in spring",
    "the bank raises interest rates",
    EVIL,
    *(f"filler{place} theme{place % 4} topic{place % 7} of many words" for place in range(20)),
]
FILTERS = {"year = 1999": [0], "year < 2000": [0, 2]}
TABS = ("search", "matrix", "compare", "corpus")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Toy, str]]:
    toy = Toy(TEXTS, metadata={0: {"year": 1999, "empty": None}, 1: {"of kind": "warm"}}, filters=FILTERS)
    with serving(toy.app()) as address:
        yield toy, address


@pytest.fixture
def toy(served: tuple[Toy, str]) -> Iterator[Toy]:
    fresh = served[0]
    metadata = fresh.metadata
    yield fresh
    for event in fresh.held.values():
        event.set()
    fresh.texts, fresh.metadata, fresh.key, fresh.held, fresh.broken = TEXTS, metadata, None, {}, False
    fresh.asked.clear()


@pytest.fixture
def open_page(browser: Any, served: tuple[Toy, str]) -> Iterator[Open]:
    """Open the page in a window of its own; afterwards nothing must have complained."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def open_it(place: str = "", *, width: int = 1000, scheme: str = "light", expected: str = "$^") -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)

        def note(trouble: str) -> None:
            if not re.search(expected, trouble):
                troubles.append(trouble)

        page.on("console", lambda message: note(message.text))
        page.on("pageerror", lambda error: note(str(error)))
        page.on("dialog", lambda dialog: note(f"dialog: {dialog.message}"))
        page.on("request", lambda sent: sent.url.startswith(served[1]) or note(sent.url))
        page.goto(f"{served[1]}/{place}")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert troubles == []


def result_texts(page: Any) -> list[str]:
    return page.locator("#results .text").all_inner_texts()


def wait_for_first(page: Any, text: str) -> None:
    page.locator("#results li:first-child .text", has_text=text).wait_for()


def stop_clock(page: Any) -> None:
    """Load the page again with its clock stopped: what is typed waits to be searched for until the clock is moved."""
    page.clock.install()
    page.reload()
    page.locator("#search [role=status]:not(:empty)").wait_for()
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 3600)


def test_typing_finds_the_right_neighbour_first(toy: Toy, open_page: Open) -> None:
    page = open_page()
    stop_clock(page)  # however slow the machine types, its letters come without a pause
    page.locator("#query").press_sequentially("bank interest rates")
    assert toy.asked == []
    page.clock.run_for(1000)
    wait_for_first(page, "the bank raises interest rates")
    assert len(result_texts(page)) == 10
    assert result_texts(page)[1] == "interest rates rise in spring"
    assert page.locator("#search [role=status]").inner_text() == "10 results, nearest first"
    scores = [float(score) for score in page.locator("#results .number").all_inner_texts()]
    wanted = (encode(["bank interest rates"])[0] @ encode(["the bank raises interest rates"])[0]).item()
    assert scores[0] == pytest.approx(wanted, abs=1e-3) and scores == sorted(scores, reverse=True)
    bars = page.locator("#results .track span").evaluate_all("all => all.map((e) => parseFloat(e.style.width))")
    assert bars[0] == pytest.approx(100 * wanted, abs=0.1)
    assert len(toy.asked) == 1, "letters typed in one go are one question"
    page.locator("#k").select_option("5")
    page.locator("#results li:nth-child(6)").wait_for(state="detached")
    assert len(result_texts(page)) == 5
    page.locator("#query").fill("")
    page.clock.run_for(1000)
    page.locator("#results li").first.wait_for(state="detached")
    assert page.locator("#search [role=status]").inner_text().startswith(f"Search {len(TEXTS)} texts")


def test_an_answer_that_comes_late_is_never_shown(toy: Toy, open_page: Open) -> None:
    page = open_page()
    late = toy.hold("cat mat")
    with page.expect_request("**/search"):
        page.locator("#query").fill("cat mat")
    page.locator("#query").fill("dog park")
    wait_for_first(page, "dog")
    late.set()
    page.wait_for_timeout(300)
    assert "dog" in result_texts(page)[0] and page.locator("#search").get_attribute("aria-busy") is None
    late = toy.hold("interest rates")
    with page.expect_request("**/search"):
        page.locator("#query").fill("interest rates")
    page.keyboard.press("ArrowDown")  # into results that are about to be replaced
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "More like this, result 1"
    late.set()
    wait_for_first(page, "interest")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "More like this, result 1"


def test_what_is_typed_while_the_page_still_loads_stands(toy: Toy, open_page: Open) -> None:
    loading = toy.hold("/index")
    page = open_page()
    page.locator("#query").fill("dog park")
    with page.expect_response("**/index"):
        loading.set()
    wait_for_first(page, "dog")
    page.wait_for_timeout(300)
    assert page.locator("#query").input_value() == "dog park" and len(result_texts(page)) == 10


def test_the_keyboard_is_enough(toy: Toy, open_page: Open) -> None:
    page = open_page()
    stop_clock(page)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.type("cat on the mat")
    page.clock.run_for(1000)
    wait_for_first(page, "the cat sat on the mat")
    assert page.locator("#results li").first.locator(".metadata").inner_text().split() == ["year", "1999"]

    focused = "document.activeElement.getAttribute('aria-label')"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "More like this, result 2"
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) == "More like this, result 1"
    page.keyboard.press("Enter")
    wait_for_first(page, "a cat sat on a warm mat")  # the text itself is left out
    assert page.locator("#query").input_value() == "the cat sat on the mat"
    assert "the cat sat on the mat" not in result_texts(page) and len(result_texts(page)) == 10
    assert page.evaluate(focused) == "More like this, result 1"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "query"
    page.go_back()
    wait_for_first(page, "the cat sat on the mat")
    assert page.locator("#query").input_value() == "cat on the mat"
    page.reload()
    wait_for_first(page, "the cat sat on the mat")


def test_a_filter_narrows_the_results_and_stays_in_the_address(toy: Toy, open_page: Open) -> None:
    page = open_page()
    page.locator("#query").fill("cat mat")
    wait_for_first(page, "the cat sat on the mat")
    assert len(result_texts(page)) == 10
    page.locator("#where").fill("year = 1999")
    page.keyboard.press("Enter")
    page.locator("#results li:nth-child(2)").wait_for(state="detached")
    assert result_texts(page) == ["the cat sat on the mat"] and toy.asked[-1]["where"] == "year = 1999"
    assert page.locator("#search [role=status]").inner_text() == "1 result, nearest first"
    page.reload()
    wait_for_first(page, "the cat sat on the mat")
    assert page.locator("#where").input_value() == "year = 1999" and len(result_texts(page)) == 1
    page.locator("#where").fill("year < 2000")  # a pause is enough
    page.locator("#results li:nth-child(2)").wait_for()
    asked = len(toy.asked)
    page.locator("#query").focus()  # the results are those of this filter: leaving it must not replace them
    page.locator("#results button.more").first.click()
    page.locator("#search [role=status]", has_text="similar to the text above").wait_for()
    assert len(toy.asked) == asked + 1
    assert toy.asked[-1]["where"] == "year < 2000" and result_texts(page) == ["the dog runs in the park"]
    page.locator("#where").fill("")
    page.keyboard.press("Enter")
    page.locator("#results li:nth-child(10)").wait_for()
    assert "where" not in toy.asked[-1] and "where" not in page.url


def test_a_wrong_filter_is_explained_below_it_and_the_results_stay(toy: Toy, open_page: Open) -> None:
    page = open_page("#search?q=cat+mat", expected="400")
    wait_for_first(page, "the cat sat on the mat")
    page.locator("#where").fill("year 1999")
    page.keyboard.press("Enter")
    page.locator("#where-problem:not([hidden])").wait_for()
    assert page.locator("#where-problem").inner_text().split("\n")[1:] == ["  year 1999", "  ^"]
    assert page.locator("#where").get_attribute("aria-invalid") == "true"
    assert len(result_texts(page)) == 10 and page.locator("#results.stale").count() == 1
    assert "before the filter was changed" in page.locator("#search [role=status]").inner_text()
    assert page.locator("#search .trouble").count() == 0
    page.locator("#where").fill("year = 1999")
    page.locator("#results li:nth-child(2)").wait_for(state="detached")
    assert not page.locator("#where-problem").is_visible() and page.locator("[aria-invalid]").count() == 0


def test_columns_are_offered_and_added_to_the_filter(toy: Toy, open_page: Open) -> None:
    page = open_page()
    offered = page.locator("#where-columns button")
    offered.first.wait_for()
    assert offered.all_inner_texts() == ["year", "empty", "of kind"]
    offered.nth(0).click()
    assert page.locator("#where").input_value() == "year " and page.evaluate("document.activeElement.id") == "where"
    page.keyboard.type("= 1999")
    offered.nth(2).click()
    assert page.locator("#where").input_value() == 'year = 1999 and "of kind" '
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "query"


def test_the_mode_is_chosen_and_scores_are_shown_as_it_has_them(toy: Toy, open_page: Open) -> None:
    page = open_page("#search?q=cat+mat")
    wait_for_first(page, "the cat sat on the mat")
    assert toy.asked[-1]["mode"] == "dense"
    score = page.locator("#results .number").first
    cosine = float(score.inner_text())
    for mode, factor, digits, says in (("keyword", 20, 2, "best match"), ("hybrid", 0.03, 4, "best of both")):
        page.locator("#mode").select_option(mode)
        page.locator("#search [role=status]", has_text=says).wait_for()
        assert toy.asked[-1]["mode"] == mode and f"by={mode}" in page.url
        shown = score.inner_text()
        assert float(shown) == pytest.approx(cosine * factor, abs=0.02) and len(shown.split(".")[1]) == digits
        bars = page.locator("#results .track span").evaluate_all("all => all.map((e) => parseFloat(e.style.width))")
        assert bars[0] == 100 and bars == sorted(bars, reverse=True)
    page.reload()
    page.locator("#search [role=status]", has_text="best of both").wait_for()
    assert page.locator("#mode").input_value() == "hybrid"


def test_equal_texts_are_counted_and_without_columns_there_is_no_filter(toy: Toy, open_page: Open) -> None:
    toy.texts, toy.metadata = [*TEXTS, TEXTS[2]], {}
    page = open_page("#search?q=dog+runs")
    wait_for_first(page, "the dog runs in the park")
    assert page.locator("#results li").first.locator(".metadata").inner_text().split() == ["equal", "texts", "2"]
    assert not page.locator("#where").is_visible()


def open_stopped(open_page: Open, toy: Toy) -> Any:
    """Open the page with results in view, stop its clock, and type another query."""
    page = open_page("#search?q=interest+rates")
    wait_for_first(page, "interest")  # or its question may be asked after the next one
    stop_clock(page)
    wait_for_first(page, "interest")
    toy.asked.clear()
    page.locator("#query").fill("dog park")
    return page


def test_more_like_this_is_not_overwritten_by_what_was_just_typed(toy: Toy, open_page: Open) -> None:
    page = open_stopped(open_page, toy)
    page.locator("#results button").first.click()
    page.locator("#search [role=status]", has_text="similar to the text above").wait_for()
    page.clock.run_for(1000)
    assert "like=" in page.url and len(toy.asked) == 1
    assert page.locator("#query").input_value() == toy.asked[0]["query"] != "dog park"
    assert "similar to the text above" in page.locator("#search [role=status]").inner_text()


def test_a_change_of_tab_is_not_overwritten_by_what_was_just_typed(toy: Toy, open_page: Open) -> None:
    page = open_stopped(open_page, toy)
    page.locator("#tab-matrix").click()
    page.clock.run_for(1000)
    assert page.url.endswith("#matrix") and page.locator("[role=tabpanel]:visible").get_attribute("id") == "matrix"
    assert toy.asked == []
    page.locator("#tab-search").click()  # what was typed is searched for now
    wait_for_first(page, "dog")
    assert page.locator("#query").input_value() == "dog park" and page.url.endswith("#search?q=dog+park")


def test_a_step_back_is_not_overwritten_by_what_was_just_typed(toy: Toy, open_page: Open) -> None:
    page = open_stopped(open_page, toy)
    for _ in range(2):
        before = page.locator("#query").input_value()
        page.locator("#results button").first.click()
        page.locator(f"#results:not(:has-text('{page.locator('#query').input_value()}'))").wait_for()
    page.locator("#query").fill("cat mat")
    page.go_back()
    page.locator("#search [role=status]", has_text="similar to the text above").wait_for()
    page.clock.run_for(1000)
    assert "like=" in page.url and page.locator("#query").input_value() == before


def test_a_document_is_shown_not_run(toy: Toy, open_page: Open) -> None:
    page = open_page(expected="TrustedHTML")
    page.locator("#query").fill("evil image")
    page.locator("#results .text", has_text="evil").wait_for()
    assert result_texts(page)[0] == EVIL
    page.locator("#results button").first.click()
    page.locator("#tab-matrix").click()
    page.locator("#sentences").fill(f"{EVIL}\n<b>two</b>\n<svg onload=window.harmed=1>")
    page.locator("#heat table").wait_for()
    page.locator("#heat tbody td").nth(1).hover()
    assert EVIL in page.locator(".readout").inner_text()
    assert page.locator("main img, main script, main b:not(.number), main svg").count() == 0
    assert page.evaluate("window.harmed") is None
    # Even a script of ours could not: the policy refuses it.
    assert page.evaluate("() => { try { document.body.innerHTML = 'x'; } catch (e) { return e.name; } }") == "TypeError"


CELLS = """() => [...document.querySelectorAll("#heat tbody tr")]
  .map((row) => [...row.cells].slice(1).map((cell) => Number(cell.textContent.replace("−", "-"))))"""
CONTRAST = """() => {
  const light = (css) => { const [r, g, b] = css.match(/[0-9.]+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  return [...document.querySelectorAll("#heat tbody td:not(.self)")].map((cell) => {
    const style = getComputedStyle(cell);
    const [low, high] = [light(style.color), light(style.backgroundColor)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
}"""


def test_the_matrix_is_a_table_with_the_right_values(toy: Toy, open_page: Open) -> None:
    page = open_page("#matrix")
    sentences = [TEXTS[0], TEXTS[4], TEXTS[1], TEXTS[5], TEXTS[2]]
    page.locator("#sentences").fill("\n\n".join(sentences) + "\n")
    page.locator("#heat table").wait_for()
    wanted = encode(sentences) @ encode(sentences).T
    assert page.evaluate(CELLS) == pytest.approx(wanted, abs=0.0051)
    assert page.locator("#heat tbody th .text").all_inner_texts() == sentences
    assert page.locator("#heat thead th").nth(1).get_attribute("aria-label") == f"2: {sentences[1]}"
    assert "Most similar: 1 and 3" in page.locator("#matrix [role=status]").inner_text()
    assert min(page.evaluate(CONTRAST)) >= 4.5

    page.locator("#order").select_option("alike")
    places = [int(place) for place in page.locator("#heat tbody .place").all_inner_texts()]
    assert sorted(places) == [1, 2, 3, 4, 5]
    assert abs(places.index(1) - places.index(3)) == 1 and abs(places.index(2) - places.index(4)) == 1
    page.locator("#scale").select_option("stretched")
    assert min(page.evaluate(CONTRAST)) >= 4.5

    page.locator("#heat tbody td").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert f"{places[1]}. {sentences[places[1] - 1]}" in page.locator(".readout").inner_text()
    assert page.locator("#heat td[tabindex='0']").count() == 1


@pytest.mark.parametrize(("count", "width"), [(2, 360), (50, 360), (24, 1280), (50, 1280)])
def test_the_matrix_is_legible_at_every_size(toy: Toy, open_page: Open, count: int, width: int) -> None:
    page = open_page("#matrix", width=width)
    extra = 3 if count == 50 else 0
    page.locator("#sentences").fill("\n".join(f"sentence {n} of some length" for n in range(count + extra)))
    page.locator("#heat table").wait_for()
    assert page.locator("#heat tbody td").count() == count**2
    assert ("The last 3 of 53 sentences are skipped." in page.locator("#matrix [role=status]").inner_text()) == bool(
        extra
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator("#heat tbody td").nth(1).bounding_box()
    assert box["width"] >= 14 and box["height"] >= 14
    if width == 1280:
        assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.scroll'))")
    page.locator("#values").check()
    cut = "all => all.filter((e) => e.scrollWidth > e.parentElement.clientWidth + 1).length"
    assert page.locator("#heat td span").evaluate_all(cut) == 0
    assert page.locator("#heat td span").nth(1).bounding_box()["width"] > 15


def test_two_sentences_are_compared_in_words(toy: Toy, open_page: Open) -> None:
    page = open_page("#compare")
    page.locator("#first").fill(TEXTS[0])
    page.locator("#second").fill("the cat sat on the mat again")
    page.locator("#rank", has_text="random").wait_for()
    wanted = (encode([TEXTS[0]]) @ encode(["the cat sat on the mat again"]).T).item()
    assert page.locator("#compare [role=status]").text_content() == f"Cosine {wanted:.3f}. Nearly the same meaning."
    assert "More similar than 9" in page.locator("#rank").inner_text()
    page.locator("#swap").click()
    assert page.locator("#second").input_value() == TEXTS[0]
    page.locator("#second").fill("zebra")
    page.locator(".words", has_text="Hardly related").or_(page.locator(".words", has_text="Unrelated")).wait_for()
    page.locator("#second").fill("")
    page.locator(".words").wait_for(state="detached")


def test_the_corpus_is_measured_and_drawn(toy: Toy, open_page: Open) -> None:
    page = open_page()
    page.locator("#tab-corpus").click()
    page.locator("#figure-cosines svg").wait_for()
    tiles = page.locator(".tiles").inner_text()
    assert "−2.500" in tiles and "needs pairs" in tiles and str(len(TEXTS)) in tiles and "257 dimensions" in tiles
    assert page.locator("#figure-cosines rect").count() > 3
    assert page.locator("#figure-spectrum polyline").get_attribute("points").count(",") > 20
    for figure in page.locator("figure svg").all():
        assert figure.get_attribute("aria-label")
    ticks = page.locator("#figure-cosines svg text").all_text_contents()
    assert "cosine" in ticks and "0.4" in ticks
    page.set_viewport_size({"width": 400, "height": 800})
    page.locator("#figure-cosines svg:is([width^='2'], [width^='3'])").wait_for()  # drawn anew, not shrunk


def test_without_an_index_the_page_says_how_to_make_one(toy: Toy, open_page: Open) -> None:
    toy.texts = None
    page = open_page(expected="404")
    page.locator("#search .empty pre").wait_for()
    assert "twinpass index build texts.txt -m MODEL -o my-index" in page.locator("#search .empty").inner_text()
    assert not page.locator("#query").is_visible()
    page.locator("#tab-corpus").click()
    page.locator("#corpus .empty pre").wait_for()
    page.locator("#tab-matrix").click()
    page.locator("#matrix-example").click()
    page.locator("#heat table").wait_for()
    assert page.locator("#served").inner_text() == "toy · no index"


def test_a_key_is_asked_for_once_and_kept(toy: Toy, open_page: Open) -> None:
    toy.key = "secret"
    page = open_page(expected="401")
    page.locator("#key").fill("wrong")
    page.keyboard.press("Enter")
    page.locator("#key-why", has_text="not accepted").wait_for()
    page.locator("#key").fill("secret")
    page.locator("#key-dialog button.main").click()
    page.locator("#served", has_text="texts").wait_for()
    page.locator("#query").fill("dog park")
    wait_for_first(page, "dog")
    page.reload()
    wait_for_first(page, "dog")
    assert not page.locator("#key-dialog").is_visible()
    assert page.evaluate("localStorage.length") == 0

    declined = open_page(expected="401")
    declined.locator("#key-cancel").click()
    declined.locator(".trouble", has_text="a key is wanted").wait_for()


def test_a_failure_is_told_and_can_be_tried_again(toy: Toy, open_page: Open) -> None:
    toy.broken = True
    page = open_page(expected="503")
    page.locator("#query").fill("dog park")
    page.locator(".trouble", has_text="the queue is full").wait_for()
    toy.broken = False
    page.locator(".trouble button").click()
    wait_for_first(page, "dog")
    assert page.locator(".trouble").count() == 0


def test_light_and_dark_follow_the_system_until_chosen(open_page: Open) -> None:
    page = open_page(scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    button = page.locator("#theme")
    assert page.evaluate(paper) == "rgb(20, 23, 27)" and button.get_attribute("aria-pressed") == "true"
    button.click()
    assert page.evaluate(paper) == "rgb(255, 255, 255)" and button.get_attribute("aria-pressed") == "false"
    page.reload()
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    button.click()
    assert page.evaluate(paper) == "rgb(20, 23, 27)" and page.evaluate("localStorage.length") == 0


def test_tabs_move_by_arrow_keys_and_every_control_has_a_name(open_page: Open) -> None:
    page = open_page()
    page.locator("#tab-search").focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home"):
        page.keyboard.press(key)
        seen.append(page.locator("[role=tabpanel]:visible").get_attribute("id"))
    assert seen == ["matrix", "compare", "corpus", "search", "corpus", "search"]
    named = """(e) => e.getAttribute("aria-label") || (e.labels?.[0] ?? e).textContent.trim()"""
    for control in page.locator("button, input, select, textarea").all():
        assert control.evaluate(named), control.evaluate("(e) => e.outerHTML")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1000, "dark"), (1600, "light")])
def test_it_fits_every_screen(toy: Toy, open_page: Open, width: int, scheme: str) -> None:
    page = open_page("#search?q=evil+cat", width=width, scheme=scheme)
    page.locator("#results li").first.wait_for()
    for tab in TABS:
        page.locator(f"#tab-{tab}").click()
        for example in page.locator(f"#{tab}-example").all():
            example.click()
        page.locator(f"#{tab}:not([aria-busy])").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = """[...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, svg, .unseen"))
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""
        assert page.evaluate(wide) == []


def test_it_works_on_the_real_service(browser: Any, folder: Path, tmp_path: Path) -> None:
    from twinpass.search.engines.exact import nearest
    from twinpass.search.index import Block, Index
    from twinpass.service.app import create_app

    encoder = Encoder.load(folder, device="cpu")
    vectors = encoder.encode(TEXTS)
    model = {"name": encoder.name, "fingerprint": encoder.fingerprint}
    metadata = [{"place": place} for place in range(len(TEXTS))]
    index = Index.from_blocks(tmp_path / "index", [Block(TEXTS, vectors, metadata)], model=model, id_column="place")
    query = "how many people find water"
    _, rows = nearest(encoder.encode([query]), vectors, k=5)
    troubles: list[str] = []
    with serving(create_app(encoder, index)) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(address)
        page.locator("#k").select_option("5")
        page.locator("#query").fill(query)
        wait_for_first(page, TEXTS[rows[0][0]])
        assert result_texts(page) == [TEXTS[row] for row in rows[0]]
        assert page.locator("#served").inner_text() == f"tiny · {len(TEXTS)} texts"
        page.locator("#query").fill("bank interest rates")
        page.locator("#mode").select_option("hybrid")
        page.locator("#search [role=status]", has_text="5 results, best of both first").wait_for()
        page.locator("#mode").select_option("keyword")
        page.locator("#results li:nth-child(3)").wait_for(state="detached")
        assert set(result_texts(page)) == {TEXTS[4], TEXTS[5]}  # the only ones with a word of the query
        page.locator("#where").fill("place = 4")
        page.keyboard.press("Enter")
        page.locator("#results li:nth-child(2)").wait_for(state="detached")
        assert result_texts(page) == [TEXTS[4]]
        assert page.locator("#results .metadata").inner_text().split() == ["place", "4"]  # its id
        for wrong, says in (("place 4", "expected an operator"), ("colour = 4", "no metadata column named 'colour'")):
            page.locator("#where").fill(wrong)
            page.keyboard.press("Enter")
            page.locator("#where-problem", has_text=says).wait_for()
        page.locator("#tab-matrix").click()
        page.locator("#matrix-example").click()
        page.locator("#heat table").wait_for()
        page.locator("#tab-compare").click()
        page.locator("#compare-example").click()
        page.locator("#rank", has_text="random").wait_for()
        page.locator("#tab-corpus").click()
        page.locator("#figure-spectrum svg").wait_for()
        assert f"of {len(TEXTS)} texts" in page.locator("#corpus [role=status]").inner_text()
        page.close()
    assert [trouble for trouble in troubles if "400" not in trouble] == []  # of the wrong filters

"""The verb `reproduce`, as users run it."""

import json

import pytest

from twinpass.errors import ConfigError
from twinpass.recipes import figures


def test_without_a_name_it_lists_all_with_their_cost(run):
    done = run("reproduce", "--json")
    listed = json.loads(done.out)
    assert len(listed["recipes"]) == 23
    table_3 = next(each for each in listed["recipes"] if each["name"] == "table-3")
    assert table_3["trainings"] == 8 and table_3["hours"] > 0
    longer = json.loads(run("reproduce", "--steps", 240, "--json").out)["recipes"]
    assert next(each for each in longer if each["name"] == "table-3")["passes"] == 2 * table_3["passes"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["table-33"], "table-3"),
        (["table-3", "--scale", "tiny"], "Known"),
        (["table-3", "--all"], "expected names or --all, got both (table-3 and --all)"),
        (["--released"], "--released takes --all, or names: table-5"),
        (["table-3"], "--data"),
        (["table-3", "--data", "nowhere"], "nowhere"),
        (["table-3", "--data", "."], "--encoder"),
        (["table-3", "--data", ".", "--encoder", "./nowhere"], "nowhere"),
        (["table-3", "--scale", "smoke", "--precision", "fp8"], "no precision named 'fp8'"),
        (["table-3", "--scale", "paper", "--data", ".", "--encoder", "./nowhere"], "under their hub names"),
    ],
)
def test_mistakes_are_explained(run, arguments, says, tmp_path):
    done = run("reproduce", *arguments, "-o", str(tmp_path / "out"))
    assert done.code == 2 and says in done.err and "Traceback" not in done.err


def test_the_precision_of_trainings_is_passed_on(run, tmp_path, monkeypatch):
    given = []

    def reproduce(*names, **options):
        given.append((names, options["precision"]))
        raise ConfigError("enough")

    monkeypatch.setattr("twinpass.recipes.reproduce.reproduce", reproduce)
    monkeypatch.setattr("twinpass.processor.prepare", lambda probe: given.append(probe.name))
    for option in (["--precision", "bf16"], []):
        assert run("reproduce", "table-3", "-o", str(tmp_path / "out"), *option).code == 2
    assert given == ["bf16", (("table-3",), "bf16"), (("table-3",), None)], "the processor is prepared first"


def test_a_table_of_which_nothing_could_be_measured_is_no_success(run, tmp_path):
    (tmp_path / "empty").mkdir()
    out, earlier = (str(tmp_path / "out"), tmp_path / "out" / "reports" / "smoke-tiny-encoder" / "table-3.json")
    earlier.parent.mkdir(parents=True)
    earlier.write_text("an earlier report")
    command = ("reproduce", "table-3", "--scale", "smoke", "--data", str(tmp_path / "empty"), "-o", out)
    for done in (run(*command), run(*command, "--json")):
        assert done.code == 2 and "no row could be measured" in done.err and "wiki" in done.err
        assert done.out == "" and earlier.read_text() == "an earlier report"


def test_every_recipe_runs_at_the_scale_smoke(run, tmp_path, monkeypatch):
    """All sixteen tables and four figures, end to end: only rows whose text is not generated are skipped."""
    draw = figures.draw_outcome  # the figures of tables are all of one kind, so one of them is drawn
    monkeypatch.setattr(
        figures, "draw_outcome", lambda each: draw(each) if each.recipe.name.startswith(("figure", "table-7")) else None
    )
    done = run("reproduce", "--all", "--scale", "smoke", "--json", "-o", str(tmp_path / "lab"))
    assert done.code == 0, done.err
    recipes = json.loads(done.out)["recipes"]
    assert len(recipes) == 23
    for recipe in recipes:
        for row in recipe["rows"]:
            measured = any(cell["ours"] for cell in row["cells"].values())
            excused = any(word in row["note"] for word in ("anli", "WordNet", "[augment]", "[lora]", "paper's scale"))
            assert measured or excused or row["source"], f"{recipe['recipe']}: {row['label']}: {row['note']}"
    reports = {path.name for path in (tmp_path / "lab" / "reports" / "smoke-tiny-encoder").iterdir()}
    assert {f"{recipe['recipe']}.md" for recipe in recipes} <= reports
    assert {
        "table-7-light.png",
        "figure-2-light.png",
        "figure-3-light.png",
        "figure-f1-light.png",
        "figure-g1-light.png",
    } <= reports

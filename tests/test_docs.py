"""The documentation is true: the examples of docs/python.md run, links exist, and commands have the options named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import twinpass
from twinpass.cli.main import VERBS, load_verb

TOP = Path(__file__).parents[1]
PAGE = TOP / "docs" / "python.md"
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").glob("*.md"))]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_every_public_name_has_an_example() -> None:
    code = "\n".join(BLOCKS)
    assert [name for name in twinpass.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", code)] == []


def test_the_examples_run_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(BLOCKS), encoding="utf-8")
    environment = os.environ | {"TWINPASS_CACHE": str(tmp_path / "cache"), "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    for shown in ("spearman", "cosine", "uniformity", "machinery", "missing.csv"):
        assert shown.lower() in ran.stdout.lower(), f"{shown} is not in the output"
    assert (tmp_path / "my-model" / "model.safetensors").is_file() and (tmp_path / "reproduction").is_dir()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_points_to_a_file(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        target, _, section = link.partition("#")
        file = page.parent / target if target else page
        if ":" not in link and not (file.is_file() and (not section or section in _sections(file))):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_has_its_verb_and_options(page: Path) -> None:
    wrong = [wrong for line in _commands(page) for wrong in _not_there(line)]
    assert wrong == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert _not_there("twinpass judge minilm") == ["twinpass judge"]
    assert _not_there("twinpass index build a -o b --engine x") == ["twinpass index build --engine"]
    assert _not_there("twinpass index join a") == ["twinpass index join"]


def _sections(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(page: Path) -> list[str]:
    """Return a page's twinpass commands, of fenced blocks and between backticks, without comments."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return fenced_commands(page) + re.findall(r"`(twinpass\s[a-z][^`]*)`", prose)


def fenced_commands(page: Path) -> list[str]:
    """Return the twinpass commands of a page's fenced blocks, which are written out, without comments."""
    fence = re.compile(r"^```(?:bash|console)?\n(.*?)^```$", flags=re.M | re.S)
    text = page.read_text(encoding="utf-8")
    lines = "".join(fence.findall(text)).replace("\\\n", " ").splitlines()
    starts = (re.search(r"(?:^|^\$ |\| |&& |-m )(?:\.venv/bin/)?(twinpass [a-z].*)", line) for line in lines)
    return [re.split(r"\s#\s", start[1])[0] for start in starts if start]


def _not_there(line: str) -> list[str]:
    """Return what a command names that the program does not have."""
    _, verb, *rest = line.split()
    if verb not in VERBS:
        return [f"twinpass {verb}"]
    command, name = load_verb(verb), f"twinpass {verb}"
    own_verbs = getattr(command, "commands", None)
    if own_verbs and rest:
        name, command = f"{name} {rest[0]}", own_verbs.get(rest[0])
        if command is None:
            return [name]
    known = {"--help"}.union(*([*option.opts, *option.secondary_opts] for option in command.params))
    return [f"{name} {flag}" for flag in re.findall(r"(?<=\s)--[a-z][a-z-]*", line) if flag not in known]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs mkdocs (pip install 'twinpass[docs]')")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=TOP,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(TOP / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    reference = (tmp_path / "site" / "reference.html").read_text(encoding="utf-8")
    public = [name for name in twinpass.__all__ if name != "__version__"]
    assert [name for name in public if f'id="{twinpass._PUBLIC[name]}.{name}"' not in reference] == []
    built = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "site").glob("*.html"))
    assert (
        re.findall(
            r'<(?:script|img)[^>]+src="(?:https?:)?//[^"]*"|<link[^>]+stylesheet[^>]+href="(?:https?:)?//', built
        )
        == []
    )


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r"([\w-]+\.md)$", (TOP / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.M)
    pages = sorted(page.name for page in (TOP / "docs").glob("*.md"))
    assert sorted(listed) == pages, "add the page to nav in mkdocs.yml"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_import_exists(page: Path) -> None:
    lines = re.findall(r"^from (twinpass[\w.]*) import (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    names = [(module, name.strip()) for module, names in lines for name in names.split(",")]
    assert [f"{module}.{name}" for module, name in names if not hasattr(import_module(module), name)] == []

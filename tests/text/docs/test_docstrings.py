"""The built-in corpus: prose is kept, everything else is not, and the order never changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from twinpass.errors import InputError
from twinpass.text.corpus import open_corpus
from twinpass.text.docs import docstrings
from twinpass.text.docs.docstrings import docs_pairs, docs_sentences
from twinpass.text.docs.prose import extract, is_sentence

MODULE = '''
"""Tools for measuring the distance between points."""

def distance(x, y, *, p=2):
    """distance(x, y, p=2) -> float

    Compute the :class:`~space.Norm` of the difference of two points.

    The points are taken from ``x`` and `y`, e.g. from a table, and **must** have the same
    number of dimensions. See the notes [1]_ for the choice of *p*.

    .. versionadded:: 1.2
        This whole text is indented and belongs to the directive.

    Parameters
    ----------
    x : array_like
        The first point that is compared with the other.
    p : int
        The order of the norm, as a parameter it is not prose.

    Returns
    -------
    float
        The distance between the two points in the plane.

    Notes
    -----
    The triangle inequality holds for every order that is at least one.

    =====  =====
    order  name
    =====  =====

    >>> distance([0], [1])
    1.0

    References
    ----------
    .. [1] A book about norms that nobody has read.
    """

class Table:
    """Hold the rows of a table

    Rows are kept in the order in which they were added.

    Args:
        rows: The rows of the table that are to be held.

    ```
    This looks like a sentence but is code in a fence.
    ```

    - This item is part of a list and is left out.

    :param rows: The rows that are given to the table.
    """

    async def fetch(self):
        \'\'\'Wait until the rows of the table are there.\'\'\'
        def inner():
            "Not looked for."

add_newdoc("space", "norm", """
    norm(x)

    Return the length of a vector as a number.

    The length is never less than zero.
    """)
'''
SENTENCES = [
    "Tools for measuring the distance between points.",
    "Compute the Norm of the difference of two points.",
    "The points are taken from x and y, e.g. from a table, and must have the same number of dimensions.",
    "See the notes for the choice of p.",
    "The triangle inequality holds for every order that is at least one.",
    "Hold the rows of a table",
    "Rows are kept in the order in which they were added.",
    "Wait until the rows of the table are there.",
    "Return the length of a vector as a number.",
    "The length is never less than zero.",
]
PAIRS = [
    ("Compute the Norm of the difference of two points.", " ".join(SENTENCES[2:4])),
    ("Hold the rows of a table", SENTENCES[6]),
    ("Return the length of a vector as a number.", SENTENCES[9]),
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with one package, and an empty cache."""
    package = tmp_path / "site-packages" / "spacetools"
    (package / "tests").mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE)
    (package / "again.py").write_text(MODULE)  # exact repeats must vanish
    (package / "broken.py").write_text('"""This file is not Python at all."""\ndef f(:')
    (package / "tests" / "test_it.py").write_text('"""Tests are left out of the corpus."""')
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site-packages")])
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    return package


def test_prose_is_kept_and_nothing_else(installed: Path) -> None:
    assert docs_sentences(["spacetools"]) == SENTENCES
    assert docs_pairs(["spacetools"]) == PAIRS


def test_as_a_corpus(installed: Path) -> None:
    corpus = open_corpus("docs:spacetools")
    assert (corpus.width, corpus.scored, list(corpus.texts())) == (1, False, SENTENCES)
    assert next(iter(corpus)).where == "docs:spacetools:1"
    pairs = open_corpus("docs-pairs:spacetools")
    assert (pairs.width, pairs.columns) == (2, ("summary", "description"))
    assert [row.texts for row in pairs] == PAIRS


def test_a_second_time_comes_from_the_cache(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = docs_sentences(["spacetools"])
    with monkeypatch.context() as patch:
        patch.setattr(docstrings, "extract", lambda paths: pytest.fail("extracted again"))
        assert docs_sentences(["spacetools"]) == first
    (installed / "more.py").write_text('"""A new file changes what is in the corpus."""')
    assert docs_sentences(["spacetools"])[-1] == "A new file changes what is in the corpus."


def test_a_cache_that_is_damaged_or_cannot_be_written(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs_sentences(["spacetools"])
    for cached in (tmp_path / "cache" / "docs").iterdir():
        cached.write_text("[1")
    assert docs_sentences(["spacetools"]) == SENTENCES
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "file"))
    assert docs_sentences(["spacetools"]) == SENTENCES


def test_processes_in_parallel_change_nothing(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        (installed / f"part{number}.py").write_text(f'"""This is the part with the number {number} of them."""')
    alone = extract(str(path) for path in sorted(installed.glob("*.py")))
    monkeypatch.setattr(docstrings, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(docstrings.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    calls: list[int] = []
    real = docstrings._extract_in_process
    monkeypatch.setattr(docstrings, "_extract_in_process", lambda paths: calls.append(len(paths)) or real(paths))
    assert docs_sentences(["spacetools"]) == alone.sentences
    assert docs_pairs(["spacetools"]) == alone.pairs
    assert len(calls) > 1


def test_no_file_of_the_working_folder_is_run(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("json", "ast", "gc", "re", "pathlib", "sitecustomize", "usercustomize", "twinpass"):
        (hostile / f"{name}.py").write_text(f"open({str(tmp_path / 'was run')!r}, 'w').close()\n")
    monkeypatch.chdir(hostile)
    monkeypatch.setattr(sys, "path", ["", str(hostile), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(hostile))
    monkeypatch.setattr(docstrings, "extract", lambda paths: pytest.fail("the process did not answer"))
    found = docstrings._extract_in_process([str(installed / "__init__.py")])
    assert found.sentences == SENTENCES and found.pairs == PAIRS
    assert not (tmp_path / "was run").exists()


def test_packages_that_are_not_there(installed: Path) -> None:
    with pytest.raises(InputError, match=r"no package 'spacetool' is installed here. Did you mean 'spacetools'\?"):
        open_corpus("docs:spacetool")
    (installed.parent / "silent.py").write_text("x = 1")
    with pytest.raises(InputError, match="docs:silent is empty"):
        open_corpus("docs:silent")


def test_the_standard_library_is_always_there(installed: Path) -> None:
    found = docs_sentences(["json", "argparse", "asyncio"])
    assert len(found) > 100 and len(set(found)) == len(found)
    assert all(is_sentence(text, needs_end=False) and 4 <= len(text.split()) <= 60 for text in found)
    pairs = docs_pairs(["json", "argparse", "asyncio"])
    assert len(pairs) > 50 and len({side for pair in pairs for side in pair}) == 2 * len(pairs)

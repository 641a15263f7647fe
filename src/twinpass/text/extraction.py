"""Taking sentences and (summary, description) pairs out of Python source files, which are parsed, never run."""

from __future__ import annotations

import ast
import gc
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from twinpass.text.english import is_sentence
from twinpass.text.prose import paragraphs, sentences

VERSION = 2  # raise it whenever the same source would give different prose: it is part of the cache's key
LONGEST_DESCRIPTION = 3  # sentences

_HOLDERS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_REMARKS = ("See ", "Refer to ", "For more ", "For details", "Deprecated", "Added in", "New in", "Changed in", "TODO")


Prose = list[tuple[list[str], bool]]  # the sentences of each paragraph, and whether it is of the lead


class Extract(NamedTuple):
    """Distinct sentences and pairs, in the order of the source."""

    sentences: list[str]
    pairs: list[tuple[str, str]]


def extract(paths: Iterable[str]) -> Extract:
    """Return the prose of every docstring in the files that can be parsed."""
    found: dict[str, None] = {}
    pairs: list[tuple[str, str]] = []
    for docstring in dict.fromkeys(text for path in paths for text in read_docstrings(Path(path))):
        prose = split_prose(docstring)
        found.update(dict.fromkeys(plain_sentences(prose)))
        pairs += explained_summary(prose)
    return Extract(list(found), distinct_pairs(pairs))


def distinct_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keep a pair only if neither of its sides was seen before, so that each summary has one answer."""
    seen: set[str] = set()
    kept = []
    for summary, description in pairs:
        if summary not in seen and description not in seen:
            seen.update((summary, description))
            kept.append((summary, description))
    return kept


def split_prose(docstring: str) -> Prose:
    """Return the sentences of each paragraph of prose, plain or not, and whether it is of the lead."""
    return [(sentences(paragraph.text), paragraph.leading) for paragraph in paragraphs(docstring)]


def plain_sentences(prose: Prose) -> list[str]:
    """Return the plain English sentences of a docstring's prose."""
    return [
        sentence
        for at, (paragraph, _) in enumerate(prose)
        for sentence in paragraph
        if is_sentence(sentence, needs_end=at > 0)  # a one-line summary often has no full stop
    ]


def explained_summary(prose: Prose) -> list[tuple[str, str]]:
    """Return a docstring's first sentence with those that explain it, or nothing if it has none."""
    text = [sentence for paragraph, leading in prose if leading for sentence in paragraph]
    if len(text) < 2 or not is_sentence(text[0], needs_end=False):
        return []
    rest = list(takewhile(is_sentence, text[1 : LONGEST_DESCRIPTION + 1]))
    if not rest or rest[0].startswith(_REMARKS):
        return []
    return [(text[0], " ".join(rest))]


def read_docstrings(path: Path) -> Iterator[str]:
    """Yield every docstring of a source file, and those it adds to compiled functions by a call."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes are no news to our users
            source = path.read_bytes()
            if not any(quotes in source for quotes in (b'"""', b"'''")):
                return  # no docstrings: do not pay for parsing
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # templates, other languages' test cases, syntax newer than this Python
    yield from _docstrings(tree)


def _docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Module, *_HOLDERS)):
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            yield docstring
    for child in getattr(node, "body", ()):  # statements only: walking every expression is many times slower
        if isinstance(child, (*_HOLDERS, ast.If, ast.Try, ast.With)):
            yield from _docstrings(child)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _added_docstrings(child.value)


def _added_docstrings(call: ast.Call) -> Iterator[str]:
    """Yield the texts in calls such as numpy's add_newdoc and torch's add_docstr."""
    function = call.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    if name.endswith(("add_newdoc", "add_docstr")):
        for argument in call.args:
            for part in ast.walk(argument):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and "\n" in part.value:
                    yield part.value


def answer() -> None:
    """Read a JSON list of paths from standard input, and write what they hold to standard output."""
    gc.disable()  # syntax trees hold no cycles, and looking for some costs a fifth of the time
    json.dump(extract(json.load(sys.stdin)), sys.stdout)

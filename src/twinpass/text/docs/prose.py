"""From Python source files to English prose: docstrings, their paragraphs without markup, and the sentences in them.

Source files are parsed, never run.
"""

from __future__ import annotations

import ast
import gc
import inspect
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from pathlib import Path
from typing import NamedTuple

VERSION = 2  # part of the cache key: raise it whenever the same source would give different prose
LONGEST_DESCRIPTION = 3  # sentences
FEWEST_WORDS, MOST_WORDS = 4, 60  # of a sentence
LONGEST_TITLE = 25  # words; a longer text without a full stop is several things run together

_HOLDERS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_REMARKS = ("See ", "Refer to ", "For more ", "For details", "Deprecated", "Added in", "New in", "Changed in", "TODO")
# Sections that list names, code or citations, though single lines of them may look like prose.
LISTINGS = frozenset(
    """
    parameters, other parameters, params, args, arguments, optional arguments, kwargs, keywords, keyword args,
    keyword arguments, returns, return, yields, yield, receives, raises, raise, warns, except, exceptions,
    attributes, attribute, methods, members, properties, functions, classes, constants, variables, fields,
    options, examples, example, usage, example usage, usage example, usage examples, doctest, see also,
    references, reference, citation, citations, bibliography, shape, shapes, inputs, input, outputs, output,
    todo, authors, author, credits, history, changelog, contents, table of contents, notation, legend, values,
    choices
    """.strip()
    .replace("\n    ", " ")
    .split(", ")
)
_UNDERLINE = re.compile(r"([-=~^\"'#*+`])\1{2,}\s*")
_GOOGLE = re.compile(r"[A-Z][A-Za-z ]{1,24}:")
_FIELD = re.compile(r"[:@][a-zA-Z][\w ,*.\[\]|-]*:|\.\. |@\w+ ")
_LIST_ITEM = re.compile(r"(?:[-*+•]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]+)[.)]) |\|")
_TABLE = re.compile(r"\S {2,}\S+ {2,}\S|[-=+]{4,}|\t|\|.*\|")
_SIGNATURE = re.compile(r"[\w.]+\s*\(.*\)(?:\s*->.*)?")  # name(x, y) -> float
_CODE = re.compile(r">>>|\.\.\. |[$%#] ?\w|In \[\d|import |from \w+ import|def \w+\(|@|```|~~~")

_MARKUP: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\[`~?(?:[\w.]*\.)?([\w()]+)`\](?:\([^()\s]+\))?", r"\1"),  # [`~package.Name`]
        (r"!?\[([^\[\]]+)\]\([^()\s]+\)", r"\1"),  # [text](url)
        (r"\s*\[#?[\w*]+\]_+", ""),  # [1]_
        (r"``(.+?)``", r"\1"),
        (r"(?::[a-zA-Z:+-]+:)?`~(?:[\w.]*\.)?([\w()]+)`", r"\1"),  # :class:`~package.Name`
        (r"(?::[a-zA-Z:+-]+:)?`([^`<]+?)\s*<[^`>]+>`_{0,2}", r"\1"),  # `text <target>`_
        (r"(?::[a-zA-Z:+-]+:)`([^`]+)`", r"\1"),
        (r"`([^`]+)`_{0,2}", r"\1"),
        (r"\*\*(\S(?:[^*]*\S)?)\*\*", r"\1"),
        (r"(?<![\w*])\*(\w(?:[^*]*[\w.!?])?)\*(?![\w*])", r"\1"),
        (r"\b(\w+)_(?=[\s.,;:)])", r"\1"),  # link_
    )
)
_MAYBE_MARKUP = re.compile(r"[`*\[]|_(?:\W|$)")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|viz|resp|approx|incl|et al|al|Fig|Figs|Eq|Eqs|Ref|Refs|Sec|Ch|Chap|Vol|No|pp|p|"
    r"Dr|Mr|Mrs|Ms|Prof|Jr|St|Inc|Ltd|ca|esp|dept|def|w\.r\.t|a\.k\.a|i\.i\.d|arg|args|param|params)|\b[A-Z])\.$"
)
_BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[]?[A-Z])")

_COMMON = frozenset(
    """
    a about after all also an and any are as at be because been before being between both but by can could do
    does each either else every few first for from given has have how if in into is it its least like make may
    more most must no not of on once one only or other our over same should since so some such than that the
    their them then there these they this those to two under until up use used using was we were what when
    where whether which while who whose will with within without would you your
    """.split()  # noqa: SIM905 -- a list would be a hundred lines
)
_PLAIN_WORD = re.compile(r"[\"'(\[]*[A-Za-z][a-z]*(?:['’-][A-Za-z]?[a-z]+)*[\"')\],.;:!?]*")
_NEVER = re.compile(r"[\\{}<>|=^~@#$%*`_\x00-\x1f]{2}|[\\{}<>|=`@$^~]|::|https?:|www\.|\.\.\.|--|\*\*|\(\)\(|__")
_HANGING = re.compile(r"\b(?:a|an|and|are|as|at|by|e\.g|for|from|i\.e|in|is|of|or|see|the|to|with)[.,:;?!)\s]*$", re.I)
_BEGINNING = re.compile(r"(?!TODO|FIXME|XXX|NOTE\b)[\"'(]?[A-Z0-9]")


class Extract(NamedTuple):
    """Distinct sentences and pairs, in the order of the source."""

    sentences: list[str]
    pairs: list[tuple[str, str]]


def extract(paths: Iterable[str]) -> Extract:
    """Return the prose of every docstring in the files that can be parsed."""
    found: dict[str, None] = {}
    pairs: list[tuple[str, str]] = []
    for docstring in dict.fromkeys(text for path in paths for text in read_docstrings(Path(path))):
        prose = [(sentences(text), leading) for text, leading in paragraphs(docstring)]
        for at, (paragraph, _) in enumerate(prose):  # a one-line summary often has no full stop
            found.update(dict.fromkeys(text for text in paragraph if is_sentence(text, needs_end=at > 0)))
        pairs += _explained_summary([sentence for paragraph, leading in prose if leading for sentence in paragraph])
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


def _explained_summary(text: list[str]) -> list[tuple[str, str]]:
    """Return the first of a docstring's leading sentences with those that explain it, or nothing if it has none."""
    rest = list(takewhile(is_sentence, text[1 : LONGEST_DESCRIPTION + 1]))
    if not rest or rest[0].startswith(_REMARKS) or not is_sentence(text[0], needs_end=False):
        return []
    return [(text[0], " ".join(rest))]


def read_docstrings(path: Path) -> Iterator[str]:
    """Yield every docstring of a source file, and those it adds to compiled functions by a call."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in other people's source
            source = path.read_bytes()
            if not any(quotes in source for quotes in (b'"""', b"'''")):
                return  # no docstrings: skip the parsing
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


def paragraphs(docstring: str) -> list[tuple[str, bool]]:
    """Return a docstring's paragraphs of prose, each on one line without markup, and whether no section precedes it."""
    return [(clean(" ".join(block)), leading) for block, leading in _prose_blocks(docstring)]


def clean(text: str) -> str:
    """Return text without reStructuredText and Markdown markup, with single spaces."""
    if _MAYBE_MARKUP.search(text):
        for pattern, replacement in _MARKUP:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph of prose into sentences, not at abbreviations or initials."""
    found: list[str] = []
    start = 0
    for boundary in _BOUNDARY.finditer(paragraph):
        piece = paragraph[start : boundary.start()]
        if not _ABBREVIATION.search(piece):
            found.append(paragraph[start : boundary.end()].strip())
            start = boundary.end()
    found.append(paragraph[start:].strip())
    return [sentence for sentence in found if sentence]


def _prose_blocks(docstring: str) -> Iterator[tuple[list[str], bool]]:
    """Yield blocks of unindented prose lines, and whether they come before any section."""
    listing = False  # within a numpydoc section of names
    leading = True
    for block in _blocks(inspect.cleandoc(docstring)):
        heading = _heading(block)
        if heading is not None:
            listing = heading.lower().rstrip(":") in LISTINGS
            leading = False
            block = block[2:]
        elif _GOOGLE.fullmatch(block[0]) or _FIELD.match(block[0]):
            leading = False
            continue
        if block and not listing and _is_prose(block):
            yield block, leading


def _blocks(text: str) -> list[list[str]]:
    """Return runs of lines between blank lines, without fenced code."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and mark == (fence or mark):
            fence = "" if fence else mark
        elif not fence:
            lines.append(line.rstrip())
    return [list(block) for filled, block in groupby(lines, bool) if filled]


def _heading(block: list[str]) -> str | None:
    if len(block) > 1 and _UNDERLINE.fullmatch(block[1].strip()) and len(block[0].split()) <= 8:
        return block[0].strip()
    return None


def _is_prose(block: list[str]) -> bool:
    if any(line.startswith((" ", "\t")) or _TABLE.search(line) or _CODE.match(line) for line in block):
        return False
    if any(_LIST_ITEM.match(line) or _FIELD.match(line) for line in block):
        return False
    return not _SIGNATURE.fullmatch(" ".join(block))


def is_sentence(text: str, *, needs_end: bool = True) -> bool:
    """Tell whether a text is one plain English sentence; titles and summaries may lack the full stop."""
    if not _BEGINNING.match(text) or _NEVER.search(text) or not text.isascii():
        return False
    words = text.split()
    ended = text.endswith((".", "!", "?", '."', ".)", ".'"))
    if not ended and (needs_end or len(words) > LONGEST_TITLE or ". " in text):  # a summary is one short phrase
        return False
    if text.endswith((":", ",", ";", "-", "(")) or _HANGING.search(text) or not _is_balanced(text):
        return False
    return FEWEST_WORDS <= len(words) <= MOST_WORDS and _reads_as_english(words)


def _reads_as_english(words: list[str]) -> bool:
    plain = sum(1 for word in words if _PLAIN_WORD.fullmatch(word))
    common = sum(1 for word in words if word.strip("\"'().,;:!?").lower() in _COMMON)
    return plain >= 0.8 * len(words) and common >= max(1, len(words) // 8)


def _is_balanced(text: str) -> bool:
    return text.count("(") == text.count(")") and text.count("[") == text.count("]") and text.count('"') % 2 == 0


def answer() -> None:
    """Read a JSON list of paths from standard input, and write their prose to standard output as JSON."""
    gc.disable()  # syntax trees have no cycles, and looking for some takes a fifth of the time
    json.dump(extract(json.load(sys.stdin)), sys.stdout)

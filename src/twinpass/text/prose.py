"""From a docstring to its prose: paragraphs without markup, and the sentences in them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

# Sections whose content is a list of names, code or citations, however prose-like single lines may look.
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


class Paragraph(NamedTuple):
    """A paragraph of prose on one line, without markup."""

    text: str
    leading: bool  # it comes before the docstring's first section or listing


def paragraphs(docstring: str) -> list[Paragraph]:
    """Return a docstring's paragraphs of prose, in order."""
    return [Paragraph(clean(" ".join(block)), leading) for block, leading in _prose_blocks(docstring)]


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


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield runs of lines between blank lines, leaving out fenced code and doctests."""
    block: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and (not fence or mark == fence):
            fence = "" if fence else mark
            continue
        if fence:
            continue
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield block
            block = []
    if block:
        yield block


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

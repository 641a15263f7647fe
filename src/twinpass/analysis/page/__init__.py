"""The page that shows a report: one file that opens from disk and needs no network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from twinpass import __version__
from twinpass.analysis.style import DARK, LIGHT, Theme
from twinpass.files import writing


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it."""

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """The section's name in a link."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def render_page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return the whole page."""
    style = Template(_asset("style.css")).substitute(light=_variables(LIGHT), dark=_variables(DARK))
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        lead=escape(lead),
        version=__version__,
        style=style,
        contents=" ".join(f'<a href="#{each.anchor}">{escape(each.title)}</a>' for each in sections),
        sections="\n".join(
            f'<section id="{each.anchor}"><h2>{escape(each.title)}</h2>{each.body}</section>' for each in sections
        ),
        script=_asset("page.js"),
    )


def write_page(target: str | Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write the page, whole or not at all."""
    text = render_page(title, lead, sections)
    with writing(target) as aside:
        aside.write_text(text, encoding="utf-8")


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _variables(theme: Theme) -> str:
    return " ".join(f"--{place}: {colour};" for place, colour in theme.colours().items())

"""Figures as files and as parts of a page: hover values on points, colours that follow the reader's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from twinpass.analysis.style import LIGHT, THEMES, Theme, drawing
from twinpass.files import writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
HOVER = "hover"  # how the identifiers of points with values begin
MARGIN = 0.03  # inches around a figure


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure that can be drawn in any theme; the caption tells what it shows and how it was measured."""

    name: str
    title: str
    caption: str
    draw: Callable[[Theme], Figure]


def attach_tips(axes: Axes, points: Collection, tips: Sequence[str]) -> None:
    """Give each of the points a text, which a page shows under the pointer."""
    figure: Any = axes.figure
    known: dict[str, list[str]] = figure.__dict__.setdefault("_tips", {})
    name = f"{HOVER}-{len(known)}"
    known[name] = list(tips)
    points.set_gid(name)


def add_hover(axes: Axes, x: Sequence[float], y: Sequence[float], tips: Sequence[str]) -> None:
    """Put invisible points with a text each over what is drawn."""
    attach_tips(axes, axes.scatter(x, y, s=36, alpha=0.0, linewidths=0, zorder=90), tips)


def write_figure(drawing_: Drawing, folder: Path) -> list[Path]:
    """Write a figure as SVG and PNG, light and dark, each file whole or not at all."""
    written = []
    for theme_name, theme in THEMES.items():
        with drawing(theme):
            figure = drawing_.draw(theme)
            for kind in ("svg", "png"):
                path = folder / f"{drawing_.name}-{theme_name}.{kind}"
                notes: dict[str, str | None] = {"Title": drawing_.title, "Description": drawing_.caption}
                notes |= {"Date": None} if kind == "svg" else {}  # the same figure gives the same file
                with writing(path) as aside:
                    figure.savefig(aside, format=kind, metadata=notes, bbox_inches="tight", pad_inches=MARGIN)
                written.append(path)
    return written


def inline_svg(drawing_: Drawing) -> str:
    """Return a figure as an SVG element for a page: unique identifiers, hover texts, colours as CSS variables."""
    with drawing(LIGHT):
        figure = drawing_.draw(LIGHT)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=MARGIN)
        tips = figure.__dict__.get("_tips", {})
    root = ElementTree.fromstring(stream.getvalue())
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    _attach_tips(root, tips)
    _make_unique(root, drawing_.name)
    _share_styles(root)
    _shorten_places(root)
    root.set("role", "img")
    root.set("aria-label", drawing_.title)
    # The width in the page is the page's business; the viewBox keeps the proportions.
    width = root.attrib.pop("width")
    root.attrib.pop("height", None)
    root.set("style", f"width: 100%; max-width: {1.6 * float(width.removesuffix('pt')):.0f}px")
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return _follow_theme(ElementTree.tostring(root, encoding="unicode"))


def _attach_tips(root: ElementTree.Element, tips: dict[str, list[str]]) -> None:
    for group in root.iter(f"{{{SVG}}}g"):
        texts = tips.get(group.get("id", ""))
        if texts is None:
            continue
        points = list(group.iter(f"{{{SVG}}}use"))
        if len(points) != len(texts):  # points outside the axes are not drawn
            continue
        for point, text in zip(points, texts, strict=True):
            point.set("data-tip", text)


def _share_styles(root: ElementTree.Element) -> None:
    """Say a style once where all points of a group have it, for a map has many points."""
    for group in root.iter(f"{{{SVG}}}g"):
        points = group.findall(f"{{{SVG}}}use")
        styles = {point.get("style") for point in points}
        if len(points) > 1 and len(styles) == 1 and (style := styles.pop()):
            group.set("style", style)
            for point in points:
                del point.attrib["style"]


def _shorten_places(root: ElementTree.Element) -> None:
    """Cut coordinates to a hundredth of a point, finer than any screen; what is to be read stays as it is."""
    for element in root.iter():
        for key, value in element.attrib.items():
            if key != "data-tip":
                element.set(key, re.sub(r"(\.\d\d)\d+", r"\1", value))


def _make_unique(root: ElementTree.Element, prefix: str) -> None:
    """Prefix all identifiers, for a page holds many figures."""
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{prefix}-{value}")
            elif key in ("href", f"{{{XLINK}}}href") and value.startswith("#"):
                element.set(key, f"#{prefix}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{prefix}-"))


def _follow_theme(text: str) -> str:
    """Replace the light theme's colours by variables that the page sets for light and dark."""
    places = {colour: f"var(--{place})" for place, colour in LIGHT.colours().items()}
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: places.get(found[0], found[0]), text)

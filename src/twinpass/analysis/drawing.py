"""How figures look, and how they are written: as SVG and PNG files, and as part of a page.

One column wide, in colours that colour-blind readers can tell apart, light and dark. In a page, points show their
values on hover and the colours follow the reader's theme.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from twinpass.files import writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure


COLUMN = 3.3  # inches: one column of a two-column paper
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", "*", ">", "h", "d")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (4, 1, 1, 1, 1, 1)))
LINE = 0.145  # inches: height of a line of the legend
MARGIN = 0.03  # inches around a figure
GAP = 0.03  # inches between the numbers of a horizontal axis, at least
MOST_TICKS = 5  # on an axis whose numbers are too long for more
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
HOVER = "hover"  # prefix of the identifiers of points with values


@dataclass(frozen=True, kw_only=True)
class Theme:
    """The colours on one background; each has a name, so that a page can switch between themes."""

    paper: str
    ink: str
    faint: str
    series: tuple[str, ...]

    def colours(self) -> dict[str, str]:
        """Return every colour by its name."""
        named = {f"series-{place}": colour for place, colour in enumerate(self.series)}
        return {"paper": self.paper, "ink": self.ink, "faint": self.faint} | named


# The colours of Okabe and Ito, strongest contrasts first; on a dark background, lighter tints of the same hues.
LIGHT = Theme(
    paper="#ffffff",
    ink="#1b1f24",
    faint="#c3c8ce",
    series=("#0072b2", "#d55e00", "#009e73", "#b8528f", "#b07800", "#2f8fc7", "#6b6f75", "#8c4a2f"),
)
DARK = Theme(
    paper="#14171b",
    ink="#e8eaed",
    faint="#474d55",
    series=("#5cb3f0", "#ff9150", "#3fd0a4", "#ea9fcf", "#f0bd4f", "#9bd4f7", "#b4b8be", "#d69a7e"),
)
THEMES = {"light": LIGHT, "dark": DARK}


def themed(theme: Theme) -> AbstractContextManager[None]:
    """Draw with the settings of a theme; matplotlib's own settings are restored afterwards."""
    import matplotlib

    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    chosen: Any = dict.fromkeys(papers, theme.paper) | dict.fromkeys(inks, theme.ink)
    chosen |= dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), 8.0)
    chosen |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7.0)
    chosen |= dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7)
    chosen |= {
        "grid.color": theme.faint,
        "grid.linewidth": 0.4,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,  # the numbers at the ticks are the values themselves
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.3,
        "legend.frameon": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "svg.fonttype": "none",  # text stays text: it can be searched, copied and read by screen readers
        "svg.hashsalt": "twinpass",  # the same figure gives the same file
        "figure.constrained_layout.use": True,
        "savefig.dpi": 300,
    }
    return matplotlib.rc_context(chosen)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure that can be drawn in any theme; the caption says what it shows and how it was measured."""

    name: str
    title: str
    caption: str
    draw: Callable[[Theme], Figure]


def one_panel(*, height: float) -> tuple[Figure, Axes]:
    """Return a figure of column width with one panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, height))
    return figure, figure.subplots()


def panels(
    count: int, *, height: float, single: float, alike: bool = False, same_rows: bool = False
) -> tuple[Figure, Iterator[Axes]]:
    """Return a figure with two panels per row, each of height `height`, or with one panel of height `single`.

    With `alike` all panels share both axes; with `same_rows` only the vertical one.
    """
    from matplotlib.figure import Figure

    columns = min(2, count)
    rows = math.ceil(count / columns)
    total = single if count == 1 else height * rows
    figure = Figure(figsize=(COLUMN, total))
    grid: Any = figure.subplots(rows, columns, squeeze=False, sharex=alike, sharey=alike or same_rows)
    for spare in grid.flat[count:]:
        spare.set_visible(False)
    for panel in grid.flat if alike else ():
        panel.tick_params(labelbottom=True)  # matplotlib labels only the lowest row
    return figure, iter(grid.flat)


def line(theme: Theme, place: int) -> dict[str, Any]:
    """Return colour and dashes of a line by its position; the first five lines differ in both."""
    return {"color": theme.series[place % len(theme.series)], "linestyle": DASHES[place % len(DASHES)]}


def legend(figure: Figure, axes: Axes, *, handle: float = 2.6) -> None:
    """Put the legend above the axes and make the figure higher by its height."""
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if len(labels) > 1 and max(map(len, labels)) <= 19 else 1
    figure.set_figheight(figure.get_figheight() + LINE * math.ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=handle, labelspacing=0.3)


def sentence(text: str) -> str:
    """Return a phrase with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def or_nan(value: float | None) -> float:
    """Return the value, or NaN, which matplotlib does not draw."""
    return math.nan if value is None else value


def short(name: str, most: int = 28) -> str:
    """Shorten a model's name to at most `most` letters: of a path only the last part."""
    path, mark, variant = name.partition("#")
    if "/" in path:
        path = Path(path).name
    whole = path + mark + variant
    return whole if len(whole) <= most else whole[: most - 1] + "…"


def attach_tips(axes: Axes, points: Collection, tips: Sequence[str]) -> None:
    """Give each of the points a text, which a page shows on hover."""
    figure: Any = axes.figure
    known: dict[str, list[str]] = figure.__dict__.setdefault("_tips", {})
    name = f"{HOVER}-{len(known)}"
    known[name] = list(tips)
    points.set_gid(name)


def add_hover(axes: Axes, x: Sequence[float], y: Sequence[float], tips: Sequence[str]) -> None:
    """Add invisible points, each with a text that a page shows on hover."""
    attach_tips(axes, axes.scatter(x, y, s=36, alpha=0.0, linewidths=0, zorder=90), tips)


def write_figure(drawing: Drawing, folder: Path) -> list[Path]:
    """Write a figure as SVG and PNG, light and dark; each file is written whole or not at all."""
    written = []
    for theme_name, theme in THEMES.items():
        with themed(theme):
            figure = _drawn(drawing, theme)
            for kind in ("svg", "png"):
                path = folder / f"{drawing.name}-{theme_name}.{kind}"
                notes: dict[str, str | None] = {"Title": drawing.title, "Description": drawing.caption}
                notes |= {"Date": None} if kind == "svg" else {}  # the same figure gives the same file
                with writing(path) as aside:
                    figure.savefig(aside, format=kind, metadata=notes, bbox_inches="tight", pad_inches=MARGIN)
                written.append(path)
    return written


def _drawn(drawing: Drawing, theme: Theme) -> Figure:
    """Draw a figure, with fewer ticks on axes whose numbers would overlap: those of close values have many digits."""
    from matplotlib.ticker import AutoLocator, MaxNLocator

    figure = drawing.draw(theme)
    axes: Any = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    pending = [axis for axis in axes if isinstance(axis.get_major_locator(), AutoLocator)]
    for most in range(MOST_TICKS, 0, -1):
        figure.draw_without_rendering()
        pending = [axis for axis in pending if _overlapping(axis)]
        if not pending:
            break
        for axis in pending:
            axis.set_major_locator(MaxNLocator(most, min_n_ticks=1))
    return figure


def _overlapping(axis: Any) -> bool:
    """Tell whether the numbers at two neighbouring ticks of a horizontal or vertical axis nearly touch."""
    across = axis.axis_name == "x"
    low, high = sorted(axis.get_view_interval())
    shown = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_visible()]
    boxes = [tick.label1.get_window_extent() for tick in shown if tick.label1.get_text()]
    ends = sorted((box.x0, box.x1) if across else (box.y0, box.y1) for box in boxes)
    gap = GAP * axis.get_figure().dpi if across else 0
    return any(end + gap > start for (_, end), (start, _) in pairwise(ends))


def at_least(axis: Any, span: float) -> None:
    """Let an axis show at least this span: a difference that means nothing must not fill it."""
    low, high = sorted(axis.get_view_interval())
    if high - low < span:
        middle = (low + high) / 2
        axis.axes.set(**{f"{axis.axis_name}lim": (middle - span / 2, middle + span / 2)})


def inline_svg(drawing: Drawing) -> str:
    """Return a figure as an SVG element for a page: unique identifiers, hover texts, colours as CSS variables."""
    with themed(LIGHT):
        figure = _drawn(drawing, LIGHT)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=MARGIN)
        tips = figure.__dict__.get("_tips", {})
    root = ElementTree.fromstring(stream.getvalue())
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    _attach_tips(root, tips)
    _rewrite_attributes(root, drawing.name)
    _share_styles(root)
    root.set("role", "img")
    root.set("aria-label", drawing.title)
    # The page sets the width; the viewBox keeps the proportions.
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
    """Move a style that all points of a group share to the group: a map has many points."""
    for group in root.iter(f"{{{SVG}}}g"):
        points = group.findall(f"{{{SVG}}}use")
        styles = {point.get("style") for point in points}
        if len(points) > 1 and len(styles) == 1 and (style := styles.pop()):
            group.set("style", style)
            for point in points:
                del point.attrib["style"]


def _rewrite_attributes(root: ElementTree.Element, prefix: str) -> None:
    """Prefix all identifiers, since a page has several figures; cut coordinates to a hundredth of a point."""
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{prefix}-{value}")
            elif key in ("href", f"{{{XLINK}}}href") and value.startswith("#"):
                element.set(key, f"#{prefix}-{value[1:]}")
            elif key != "data-tip":
                element.set(key, re.sub(r"(\.\d\d)\d+", r"\1", value.replace("url(#", f"url(#{prefix}-")))


def _follow_theme(text: str) -> str:
    """Replace the light theme's colours by variables that the page sets for light and dark."""
    places = {colour: f"var(--{place})" for place, colour in LIGHT.colours().items()}
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: places.get(found[0], found[0]), text)

"""How figures look: column width, colours that colour-blind readers tell apart, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMN = 3.3  # inches: one column of a two-column paper
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", "*", ">", "h", "d")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (4, 1, 1, 1, 1, 1)))


@dataclass(frozen=True, kw_only=True)
class Theme:
    """The colours of one background; every colour has one place, so that a page can exchange them."""

    paper: str
    ink: str
    faint: str
    series: tuple[str, ...]
    sequential: str  # matplotlib's name of the colours for ordered values

    def colours(self) -> dict[str, str]:
        """Return every colour under the name of its place."""
        named = {f"series-{place}": colour for place, colour in enumerate(self.series)}
        return {"paper": self.paper, "ink": self.ink, "faint": self.faint} | named


# The order of Okabe and Ito, strongest contrasts first; the dark ones are lighter tints of the same hues.
LIGHT = Theme(
    paper="#ffffff",
    ink="#1b1f24",
    faint="#c3c8ce",
    series=("#0072b2", "#d55e00", "#009e73", "#b8528f", "#b07800", "#2f8fc7", "#6b6f75", "#8c4a2f"),
    sequential="viridis",
)
DARK = Theme(
    paper="#14171b",
    ink="#e8eaed",
    faint="#474d55",
    series=("#5cb3f0", "#ff9150", "#3fd0a4", "#ea9fcf", "#f0bd4f", "#9bd4f7", "#b4b8be", "#d69a7e"),
    sequential="viridis",
)
THEMES = {"light": LIGHT, "dark": DARK}


def settings(theme: Theme) -> dict[str, Any]:
    """Return matplotlib's settings for a theme."""
    return {
        "figure.facecolor": theme.paper,
        "axes.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.ink,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "grid.color": theme.faint,
        "grid.linewidth": 0.4,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.7,
        "xtick.major.width": 0.7,
        "ytick.major.width": 0.7,
        "lines.linewidth": 1.3,
        "legend.frameon": False,
        "font.size": 8.0,
        "axes.labelsize": 8.0,
        "axes.titlesize": 8.0,
        "xtick.labelsize": 7.0,
        "ytick.labelsize": 7.0,
        "legend.fontsize": 7.0,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
        "svg.hashsalt": "twinpass",  # the same figure gives the same file
        "figure.constrained_layout.use": True,
        "savefig.dpi": 300,
    }


@contextmanager
def drawing(theme: Theme) -> Iterator[None]:
    """Draw with a theme, without a screen, and leave matplotlib's settings as they were."""
    import matplotlib

    chosen: Any = settings(theme)
    with matplotlib.rc_context(chosen):
        yield


def short(name: str, most: int = 28) -> str:
    """Shorten a model's name to what fits beside a point: the end of a path says most."""
    path, mark, variant = name.partition("#")
    if "/" in path:
        path = Path(path).name
    whole = path + mark + variant
    return whole if len(whole) <= most else whole[: most - 1] + "…"

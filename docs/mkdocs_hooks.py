"""What the site adds to the pages: the public names of twinpass on the page of the Python reference."""

from __future__ import annotations

from typing import Any

import twinpass

PLACE = "<!-- public names -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put a block for every public name where the page asks for them."""
    if PLACE not in markdown:
        return markdown
    names = sorted((name for name in twinpass.__all__ if name != "__version__"), key=str.lower)
    return markdown.replace(PLACE, "\n".join(f"::: {twinpass._PUBLIC[name]}.{name}\n" for name in names))

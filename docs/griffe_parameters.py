"""How docstrings become pages: their aligned lists of parameters become lists of Markdown."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

ROW = re.compile(r"^(?P<name>[a-z_]\w*(?:, \w+)*) {2,}(?P<text>\S.*)$")


class AlignedParameters(Extension):
    """Rewrites `name   what it means`, which a terminal shows as a table, as a list."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)


def as_list(text: str) -> str:
    """Return a docstring with its aligned rows as a Markdown list."""
    lines, inside = [], False
    for line in text.splitlines():
        if match := ROW.match(line):
            if not inside:
                lines.append("")
            lines.append(f"- `{match['name']}`: {match['text']}")
            inside = True
        elif inside and line.startswith("    ") and line.strip():
            lines.append(f"    {line.strip()}")
        else:
            lines.append(line)
            inside = False
    return "\n".join(lines)

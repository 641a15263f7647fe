"""How the sizes of vectors are spelt: 384,192,96,48."""

from __future__ import annotations

from twinpass.errors import ConfigError


def read_sizes(text: str, *, what: str) -> tuple[int, ...]:
    """Read comma-separated sizes, and return each once, the largest first."""
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ConfigError(f"{what} is {text!r}; expected comma-separated sizes, such as 384,192,96,48.")
    return tuple(sorted({int(size) for size in sizes}, reverse=True))

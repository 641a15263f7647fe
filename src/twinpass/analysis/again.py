"""The last section of every report: how to make it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twinpass.analysis.html import Cell, Column, code, table
from twinpass.analysis.page import Section

FINGERPRINTS = (
    Column("what"),
    Column("name", "As it was named."),
    Column("fingerprint", "SHA-256; equal fingerprints give equal vectors, or are equal text."),
)


def again_section(
    command: str | None, *, fingerprints: Sequence[tuple[str, str, str | None]], facts: Mapping[str, Any]
) -> Section:
    """Return the command, what went into it as (what, name, fingerprint), and the versions it ran with."""
    rows: list[list[Cell]] = [[what, name, print_ or "–"] for what, name, print_ in fingerprints]
    body = (code(command) if command else "") + table("What it was made from", FINGERPRINTS, rows)
    details = json.dumps(facts, indent=2, ensure_ascii=False, default=str)
    return Section("Make it again", f"{body}<details><summary>Versions and options</summary>{code(details)}</details>")

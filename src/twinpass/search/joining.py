"""When the segments of an index are joined: few enough to search quickly, seldom enough to write little."""

from __future__ import annotations

from twinpass.search.approximate import EXACT, KINDS, kind_for
from twinpass.search.manifest import Manifest

MOST_PARTS = 8  # segments; each costs a search a little
STALE = 4  # an index is joined anew when one row in so many is removed, or is not in its graph yet


def first_to_join(manifest: Manifest) -> int | None:
    """Return the first of the segments to join into one, or None if all is well."""
    if not manifest.parts:
        return None
    rows = [part.rows for part in manifest.parts]
    living = sum(rows) - manifest.removed_rows
    now = manifest.parts[0].kind
    behind = now != EXACT and sum(rows[1:]) * STALE > sum(rows)
    grown = KINDS.index(kind_for(living, manifest.kind)) > KINDS.index(now)
    if manifest.removed_rows * STALE > sum(rows) or behind or grown:
        return 0
    if len(rows) <= MOST_PARTS:
        return None
    first = len(rows) - 1
    while first > 0 and rows[first - 1] <= 2 * sum(rows[first:]):  # so that a row is seldom written again
        first -= 1
    return first if first < len(rows) - 1 else None

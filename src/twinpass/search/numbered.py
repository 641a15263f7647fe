"""Rows on their way into a segment: with digests, and with ids where they have some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from twinpass.search.segment import BATCH, Block, Digests, Ids, digest_of
from twinpass.search.snapshot import Snapshot


class Numbered(NamedTuple):
    """A block with its rows' digests, their ids unless they are new, and how many rows were left out of it."""

    block: Block
    digests: Digests
    ids: Ids | None = None
    left_out: int = 0


class Seen:
    """Which texts there are already, by their digests."""

    def __init__(self, known: Digests | None = None) -> None:
        self._known = np.empty(0, np.uint64) if known is None else np.sort(known)
        self._new: set[int] = set()

    def fresh(self, digests: Digests) -> list[int]:
        """Return the places of the digests that are met for the first time."""
        places = []
        for place, (digest, old) in enumerate(zip(digests.tolist(), self._is_known(digests), strict=True)):
            if not old and digest not in self._new:
                self._new.add(digest)
                places.append(place)
        return places

    def _is_known(self, digests: Digests) -> list[bool]:
        """Look each up: `np.isin` would sort all that are known again for every block."""
        if not len(self._known):
            return [False] * len(digests)
        places = np.minimum(np.searchsorted(self._known, digests), len(self._known) - 1)
        found: list[bool] = (self._known[places] == digests).tolist()
        return found


def numbered(blocks: Iterable[Block], seen: Seen | None = None) -> Iterator[Numbered]:
    """Yield blocks with their digests, without the texts that were seen before."""
    for block in blocks:
        digests = digest_of(block.texts)
        if seen is None:
            yield Numbered(block, digests)
            continue
        places = seen.fresh(digests)
        metadata = [block.metadata[place] for place in places] if block.metadata else None
        kept = Block([block.texts[place] for place in places], np.asarray(block.vectors)[places], metadata)
        yield Numbered(kept, digests[places], left_out=len(digests) - len(places))


def copied(snapshot: Snapshot, rows: Ids) -> Iterator[Numbered]:
    """Yield rows of an index in blocks, with their own ids."""
    for segment, start in zip(snapshot.segments, snapshot.starts, strict=False):
        here = rows[(rows >= start) & (rows < start + len(segment))] - start
        for chosen in np.array_split(here, range(BATCH, len(here), BATCH)):
            if len(chosen):
                yield Numbered(segment.block(chosen), segment.digests[chosen], segment.ids[chosen])


def living_digests(snapshot: Snapshot) -> Digests:
    """Return the digests of all rows that were not removed."""
    return _digests(snapshot)[snapshot.alive]


def _digests(snapshot: Snapshot) -> Digests:
    return np.concatenate([np.empty(0, np.uint64), *(segment.digests for segment in snapshot.segments)])


def ids_of_texts(snapshot: Snapshot, texts: Sequence[str]) -> Ids:
    """Return the ids of every row with one of these texts."""
    wanted = set(texts)
    rows = np.flatnonzero(np.isin(_digests(snapshot), digest_of(wanted)) & snapshot.alive).tolist()
    return snapshot.ids[[row for row in rows if _text(snapshot, row) in wanted]]


def _text(snapshot: Snapshot, row: int) -> str:
    segment, place = snapshot.locate(row)
    return segment.text(place)

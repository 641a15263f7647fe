"""Reading a data set of the Hugging Face hub with the `datasets` library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from twinpass.errors import InputError, MissingExtra
from twinpass.text.rows import SAMPLE, BadRows, Record

HOW = "Expected hf:owner/name, hf:owner/name:split or hf:owner/name/config:split"


class HubTable:
    """One split of a data set on the hub, downloaded once and then memory-mapped from the local cache."""

    def __init__(self, address: str) -> None:
        self.name = f"hf:{address}"
        self._data = _load(address)
        self.names: tuple[str, ...] = tuple(self._data.column_names) if len(self._data) else ()
        self.sample = [[row[name] for name in self.names] for row in islice(self._data, SAMPLE)]

    def rows(self, wanted: Sequence[int], bad: BadRows) -> Iterator[Record]:
        """Yield the wanted columns of every row, decoding no other column."""
        names = [self.names[at] for at in wanted]
        chosen = self._data.select_columns(names)
        return ((number, [row[name] for name in names]) for number, row in enumerate(chosen, 1))


def _load(address: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra(f"reading hf:{address}", "hub") from error
    path, _, split = address.partition(":")
    owner, _, rest = path.partition("/")
    name, _, config = rest.partition("/")
    if not owner or not name:
        raise InputError(f"hf:{address} does not name a data set. {HOW}.")
    try:
        splits = datasets.load_dataset(f"{owner}/{name}", config or None)
    except Exception as error:  # the library raises dozens of kinds, also those of its transports
        raise InputError(f"cannot get hf:{address}: {error}. {HOW}. Check the network connection.") from error
    return splits[_choose_split(address, split, list(splits))]


def _choose_split(address: str, split: str, known: list[str]) -> str:
    """Return the split that was named, else the training split, else the only one."""
    if split in known:
        return split
    if not split and ("train" in known or len(known) == 1):
        return "train" if "train" in known else known[0]
    found = f"no split {split!r}" if split else "several splits and none called 'train'"
    raise InputError(f"hf:{address} has {found}. Known: {', '.join(known)}. Name one after a colon.")

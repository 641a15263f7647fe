"""Choosing where an index is kept: a folder of this machine, or a collection of Milvus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.errors import ConfigError
from twinpass.registry import suggest

if TYPE_CHECKING:
    from twinpass.search.index import Block, Index
    from twinpass.search.milvus import Address, MilvusIndex

    AnyIndex = Index | MilvusIndex

ENGINES = ("faiss", "milvus")


@dataclass(frozen=True)
class IndexOptions:
    """With faiss, INDEX is a folder; with milvus, it is the name of a collection at `uri`."""

    engine: Annotated[str, typer.Option(help="faiss: INDEX is a folder; milvus: a collection (extra [milvus]).")] = (
        "faiss"
    )
    uri: Annotated[str | None, typer.Option(help="With milvus: a file that ends in .db, or http://HOST:19530.")] = None
    token: Annotated[str | None, typer.Option(envvar="MILVUS_TOKEN", help="With milvus: what the server asks for.")] = (
        None
    )

    def open(self, name: Path) -> AnyIndex:
        """Open the index of this name."""
        from twinpass.search.index import Index
        from twinpass.search.milvus import MilvusIndex

        address = self._address(name)
        return Index.open(name) if address is None else MilvusIndex.open(address)

    def check(self, name: Path, *, kind: str, overwrite: bool) -> None:
        """Refuse, before any work is done, an index that could not be built."""
        from twinpass.search import milvus, writing

        address = self._address(name)
        if address is None:
            writing.check_kind(kind)
            writing.check_folder(name, overwrite=overwrite)
        else:
            milvus.check_target(address, kind=kind, overwrite=overwrite)

    def build(self, name: Path, blocks: Iterable[Block], **options: Any) -> AnyIndex:
        """Make the index of this name."""
        from twinpass.search.index import Index
        from twinpass.search.milvus import MilvusIndex

        address = self._address(name)
        if address is None:
            return Index.build(name, blocks, **options)
        return MilvusIndex.build(address, blocks, **options)

    def _address(self, name: Path) -> Address | None:
        """Return where Milvus keeps the index, or None if it is a folder."""
        from twinpass.search.milvus import Address

        if self.engine not in ENGINES:
            hint = suggest(self.engine, ENGINES)
            raise ConfigError(f"no engine named {self.engine!r}.{hint} Known: {', '.join(ENGINES)}.")
        if self.engine == "milvus":
            if self.uri is None:
                raise ConfigError("--engine milvus wants --uri: a file that ends in .db, or http://HOST:19530.")
            return Address(self.uri, str(name), self.token)
        if self.uri is not None:
            raise ConfigError("--uri belongs to --engine milvus. Add it, or leave --uri out.")
        return None

"""Choosing sentences on the command line: the same options for every verb that reads some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from twinpass.text.corpus import Corpus


@dataclass(frozen=True)
class DataOptions:
    """Which columns to read, and what to do with rows that cannot be read."""

    columns: Annotated[
        str | None, typer.Option(help="Text columns by name or position, with commas between: sent0,sent1.")
    ] = None
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out and count rows that cannot be read.")
    ] = False

    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether a table's first row names its columns.")
    ] = None

    def open(self, source: str) -> Corpus:
        """Open a file, folder, pattern, `-`, `docs:` or `hf:owner/name` with these options."""
        from twinpass.text.corpus import open_corpus

        columns = None if self.columns is None else [name.strip() for name in self.columns.split(",")]
        return open_corpus(source, columns=columns, skip_bad_rows=self.skip_bad_rows, header=self.header)

    def described(self) -> dict[str, Any]:
        """Return the options that shape the data, for a result's provenance."""
        return {"columns": self.columns, "skip_bad_rows": self.skip_bad_rows, "header": self.header}

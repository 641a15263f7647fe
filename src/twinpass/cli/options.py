"""Choosing a model on the command line: the same options for every verb that loads one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.text.corpus import Corpus


DEFAULT_MODEL = "minilm"


@dataclass(frozen=True)
class ModelOptions:
    """How to load a model; `model` stays None when it is named by position or left to the default."""

    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A folder, a hub name, or minilm (the default, built in).")
    ] = None
    pooler: Annotated[
        str | None, typer.Option(help="How token states become one vector; needed if the model does not say.")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Cut longer texts here (default: the model's own limit).")
    ] = None
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32"
    runtime: Annotated[str, typer.Option(help="torch, or a faster one from the extra [onnx].")] = "torch"
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load weights stored as a pickle, which can run code.")
    ] = False
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False

    def named(self, positionals: Sequence[str], *, least: int) -> tuple[str, list[str]]:
        """Split positionals into model and rest: the first is the model if there are more than `least`."""
        if self.model is not None:
            return self.model, list(positionals)
        # No name on the hub has a space in it: such a first name is a text, unless it is a folder's.
        if len(positionals) > least and (" " not in positionals[0] or os.path.isdir(positionals[0])):  # noqa: PTH112
            return positionals[0], list(positionals[1:])
        return DEFAULT_MODEL, list(positionals)

    def load(self, name: str, console: Console) -> Encoder:
        """Load the model of this name with these options on the console's device."""
        from twinpass.encoder.encoder import Encoder

        console.log(f"loading {name} ...")
        return Encoder.load(name, **self.loading(console))

    def loading(self, console: Console) -> dict[str, Any]:
        """Return the options as whatever loads a model takes them."""
        return {
            "pooler": self.pooler,
            "device": console.device,
            "precision": self.precision,
            "runtime": self.runtime,
            "max_tokens": self.max_tokens,
            "trust_pickle": self.trust_pickle,
            "trust_remote_code": self.trust_remote_code,
        }

    def described(self) -> dict[str, Any]:
        """Return the options that shape the vectors, for a result's provenance."""
        return {
            "pooler": self.pooler,
            "max_tokens": self.max_tokens,
            "precision": self.precision,
            "runtime": self.runtime,
        }


def exactly(positionals: Sequence[str], wanted: int, what: str) -> None:
    """Refuse positionals that are not as many as wanted."""
    if len(positionals) != wanted:
        raise ConfigError(f"wanted {what}, got {len(positionals)}: {' '.join(map(repr, positionals)) or 'nothing'}.")


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

"""Options that several verbs share: which model to load and how, which columns of the data to read."""

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
CacheOption = Annotated[bool, typer.Option("--cache/--no-cache", help="Keep vectors on disk and read them from there.")]


@dataclass(frozen=True)
class ModelOptions:
    """How to load a model; `model` is None when it is given by position or by default."""

    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A folder, a hub name, or minilm (the default, built in).")
    ] = None
    pooler: Annotated[
        str | None, typer.Option(help="How token states become one vector; required if the model folder does not say.")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Truncate texts to this many tokens (default: the model's limit).")
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, bf16, fp16, int8 (extra [openvino]); default: an exported model's own, else fp32."),
    ] = None
    runtime: Annotated[
        str | None,
        typer.Option(
            help="torch, openvino (extra [openvino]) or auto, the faster; default: an exported model's own, else torch."
        ),
    ] = None
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Allow weights in pickle format, which can run code.")
    ] = False
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Allow code from the model's repository to run.")
    ] = False

    def named(self, positionals: Sequence[str], *, least: int) -> tuple[str, list[str]]:
        """Split positionals into model and rest: the first is the model if there are more than `least`."""
        if self.model is not None:
            return self.model, list(positionals)
        # Hub names have no spaces: a first argument with a space is a text, unless a folder has that name.
        if len(positionals) > least and (" " not in positionals[0] or os.path.isdir(positionals[0])):  # noqa: PTH112
            return positionals[0], list(positionals[1:])
        return DEFAULT_MODEL, list(positionals)

    def load(self, name: str, console: Console) -> Encoder:
        """Load the model of this name with these options on the console's device."""
        from twinpass.encoder.encoder import Encoder

        console.log(f"loading {name} ...")
        return Encoder.load(name, **self.loading(console))

    def loading(self, console: Console) -> dict[str, Any]:
        """Return the keyword arguments of Encoder.load."""
        return {
            "pooler": self.pooler,
            "device": console.device,
            "precision": self.precision,
            "runtime": self.runtime,
            "max_tokens": self.max_tokens,
            "trust_pickle": self.trust_pickle,
            "trust_remote_code": self.trust_remote_code,
        }

    def described(self, encoder: Encoder) -> dict[str, Any]:
        """Return the options that the encoder's vectors depend on, for provenance."""
        return {
            "pooler": self.pooler,
            "max_tokens": self.max_tokens,
            "precision": encoder.precision,
            "runtime": encoder.runtime_name,
        }


def exactly(positionals: Sequence[str], wanted: int, what: str) -> None:
    """Raise ConfigError unless there are exactly `wanted` positional arguments."""
    if len(positionals) != wanted:
        raise ConfigError(f"expected {what}, got {len(positionals)}: {' '.join(map(repr, positionals)) or 'nothing'}.")


@dataclass(frozen=True)
class DataOptions:
    """Which columns to read, and whether to skip bad rows."""

    columns: Annotated[
        str | None, typer.Option(help="Text columns, comma-separated, by name or position: sent0,sent1.")
    ] = None
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Skip and count rows that cannot be read.")] = (
        False
    )

    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first row holds column names (default: detected)."),
    ] = None

    def open(self, source: str) -> Corpus:
        """Open a file, folder, pattern, `-`, `docs:` or `hf:owner/name` with these options."""
        from twinpass.text.corpus import open_corpus

        return open_corpus(source, columns=self.columns, skip_bad_rows=self.skip_bad_rows, header=self.header)

    def described(self) -> dict[str, Any]:
        """Return the options that the data depend on, for provenance."""
        return {"columns": self.columns, "skip_bad_rows": self.skip_bad_rows, "header": self.header}

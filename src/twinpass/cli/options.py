"""Options that several verbs share: which model to load and how, which columns of the data to read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.completion import POOLERS, PRECISIONS, RUNTIMES, values
from twinpass.cli.console import Console
from twinpass.errors import ConfigError

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.text.corpus import Corpus


DEFAULT_MODEL = "minilm"
PoolerOption = Annotated[
    str | None,
    typer.Option(
        autocompletion=values(POOLERS),
        help="How token states become one vector; required if the model folder does not say.",
    ),
]
TrustPickle = Annotated[
    bool, typer.Option("--trust-pickle", help="Allow weights in pickle format, which can run code.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Allow code from the model's repository to run.")
]
CacheOption = Annotated[bool, typer.Option("--cache/--no-cache", help="Keep vectors on disk and read them from there.")]


@dataclass(frozen=True)
class ModelOptions:
    """How to load a model: a verb on texts takes it by --model only, a verb on models also by position."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A folder, a hub name, or minilm (built in). Default: an index's own model, else minilm.",
        ),
    ] = None
    pooler: PoolerOption = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Truncate texts to this many tokens (default: the model's limit).")
    ] = None
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="Keep only the first N numbers of each vector, scaled to length one.")
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            autocompletion=values(PRECISIONS),
            help="fp32, bf16, fp16, int8 (extra [openvino]); default: an exported model's own, else fp32.",
        ),
    ] = None
    runtime: Annotated[
        str | None,
        typer.Option(
            autocompletion=values(RUNTIMES),
            help="torch, openvino (extra [openvino]) or auto, the faster; default: an exported model's, else torch.",
        ),
    ] = None
    trust_pickle: TrustPickle = False
    trust_remote_code: TrustRemoteCode = False

    @property
    def name(self) -> str:
        """The model's name: what --model says, or the default."""
        return DEFAULT_MODEL if self.model is None else self.model

    def models(self, positionals: Sequence[str] | None) -> list[str]:
        """Return the models of a verb on models: those given by position, and by --model."""
        return [*(positionals or ()), *([] if self.model is None else [self.model])]

    def load(self, console: Console) -> Encoder:
        """Load the model with these options on the console's device."""
        from twinpass.encoder.encoder import Encoder

        console.log(f"loading {self.name} ...")
        return Encoder.load(self.name, **self.loading(console))

    def loading(self, console: Console) -> dict[str, Any]:
        """Return the keyword arguments of Encoder.load."""
        return {
            "pooler": self.pooler,
            "device": console.device,
            "precision": self.precision,
            "runtime": self.runtime,
            "max_tokens": self.max_tokens,
            "dimensions": self.dimensions,
            "trust_pickle": self.trust_pickle,
            "trust_remote_code": self.trust_remote_code,
        }

    def described(self, encoder: Encoder) -> dict[str, Any]:
        """Return the options that the encoder's vectors depend on, for provenance."""
        return {
            "pooler": self.pooler,
            "max_tokens": self.max_tokens,
            "dimensions": encoder.kept_dimensions,
            "precision": encoder.precision,
            "runtime": encoder.runtime_name,
        }


def exactly(positionals: Sequence[str], expected: int, what: str) -> None:
    """Raise ConfigError unless there are exactly so many positional arguments."""
    if len(positionals) != expected:
        raise ConfigError(f"expected {what}, got {len(positionals)}: {' '.join(map(repr, positionals)) or 'nothing'}.")


def only(positionals: Sequence[str], verb: str, what: str) -> str:
    """Return the one positional of a verb on texts; of two, the first was probably meant as the model."""
    if len(positionals) == 1:
        return positionals[0]
    first, second = (*map(shlex.quote, positionals), "", "")[:2]
    advice = f"The model is named with -m: twinpass {verb} {second} -m {first}"
    if len(positionals) > 2:
        advice = f"The model is named with -m, and a pattern is quoted: twinpass {verb} '*.txt' -m MODEL"
    raise ConfigError(f"expected one {what}, got {len(positionals)}: {' '.join(map(repr, positionals))}. {advice}")


@dataclass(frozen=True)
class DataOptions:
    """Which columns to read, and whether to skip bad rows."""

    columns: Annotated[
        str | None, typer.Option(help="Text columns, comma-separated, by name or position: sent0,sent1.")
    ] = None
    join: Annotated[
        str | None, typer.Option(help="Make one text of the columns, joined by this: --columns subject,body --join ' '")
    ] = None
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Skip and count rows that cannot be read.")] = (
        False
    )

    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first row holds column names (default: detected)."),
    ] = None

    def open(self, source: str, console: Console, *, pairs: bool = False) -> Corpus:
        """Open a file, folder, pattern, `-`, `docs:` or `hf:owner/name` with these options."""
        from twinpass.text.corpus import open_corpus

        return open_corpus(source, **asdict(self), pairs=pairs, log=console.log)

    def described(self) -> dict[str, Any]:
        """Return the options that the data depend on, for provenance."""
        return asdict(self)

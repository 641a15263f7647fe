"""What every verb shares: `--json`, `--quiet`, `--seed`, `--device`, `--debug`, and who may speak where.

Results go to stdout, and only through `Console.result`; logs, warnings and progress go to stderr. A verb is a
function decorated with `verb` whose first parameter is a Console:

    @verb
    def count(console: Console, source: str) -> None:
        console.log("counting ...")
        console.result({"lines": 3}, human="3 lines")
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from twinpass.cli.expand import expand
from twinpass.cli.failures import remember_debug
from twinpass.plain import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT_SEED = 42  # the seed of the paper's own runs


@dataclass
class Console:
    """The options that mean the same everywhere, and the two streams."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")] = False
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn at random.")] = DEFAULT_SEED
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps ...")] = "auto"
    debug: Annotated[bool, typer.Option("--debug", help="Show where a failure came from.", callback=remember_debug)] = (
        False
    )
    stdout: TextIO = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.stdout = sys.stdout

    def described(self) -> dict[str, Any]:
        """Return the shared options that shape a result, for its provenance."""
        return {"seed": self.seed, "device": self.device}

    def log(self, message: str) -> None:
        """Say a line on stderr, unless asked to be quiet."""
        if not self.quiet:
            print(message, file=sys.stderr)

    def result(self, document: Mapping[str, Any], human: RenderableType | None = None) -> None:
        """Print what the verb found: the document under --json, else the text or rich table for people."""
        if self.json:
            text = json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)
            print(text, file=self.stdout, flush=True)
        elif isinstance(human, str):
            print(human, file=self.stdout, flush=True)
        elif human is not None:
            self._draw(human)

    def _draw(self, human: RenderableType) -> None:
        from rich.console import Console as RichConsole

        rich = RichConsole(file=self.stdout, highlight=False, markup=False)
        if not rich.is_terminal:
            rich.width = max(rich.width, 200)  # a pipe has no edge to wrap at
        rich.print(human)
        self.stdout.flush()

    @contextlib.contextmanager
    def progress(self, what: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Yield a function that moves a bar with rate and time left; it draws only on a terminal."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda count: None
            return
        from twinpass.progress import bar

        with bar(what, total=total) as advance:
            yield advance

    @contextlib.contextmanager
    def speaking(self) -> Iterator[None]:
        """Keep stdout for the result alone, and give warnings of ours one neat line each."""
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            if not self.debug:
                warnings.simplefilter("ignore")
                warnings.filterwarnings("default", module=r"twinpass\b")
            warnings.showwarning = self._warn
            yield

    def _warn(self, message: Warning | str, *_: object, **__: object) -> None:
        self.log(f"twinpass: warning: {' '.join(str(message).split())}")


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function: parameters typed as dataclasses become their fields' options."""

    def run(console: Console, *args: Any, **values: Any) -> None:
        with console.speaking():
            _limit_instructions(console, {getattr(group, "precision", None) for group in values.values()})
            function(console, *args, **values)

    return expand(function, run)


def _limit_instructions(console: Console, precisions: set[str | None]) -> None:
    """Where a command asks for bf16, choose the processor's instructions now: torch is not loaded yet."""
    if "bf16" not in precisions or console.device not in ("auto", "cpu"):
        return
    from twinpass import processor

    verdict = processor.prepare(processor.BF16)
    if console.debug:
        limit, set_by = processor.active_limit()
        console.log(
            f"twinpass: {verdict}; " + (f"{processor.LIMIT}={limit}, set by {set_by}" if limit else "no limit set")
        )

"""What every verb shares: the options `--json`, `--quiet`, `--seed`, `--device`, `--debug`; output; exit codes.

Results go to stdout, and only through `Console.result` and `Console.show`; logs, warnings and progress bars go to
stderr. A verb is a function decorated with `verb` whose first parameter is a Console:

    @verb
    def count(console: Console, source: str) -> None:
        console.log("counting ...")
        console.result({"lines": 3}, human="3 lines")
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import json
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO, get_type_hints

import typer

from twinpass.errors import TwinpassError, UserError
from twinpass.files import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinpass.display import Displayed


DEBUG = "twinpass.debug"  # the key of --debug in a click context
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}

# Newer releases of typer bundle click, older ones import it; this is the class of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def remember_debug(context: typer.Context, value: bool) -> bool:
    """Remember a --debug given before or after the verb; return whether it, or TWINPASS_DEBUG, is set."""
    if value:
        context.meta[DEBUG] = True
    return _debugging(context.meta)


def _debugging(meta: dict[str, Any]) -> bool:
    return bool(meta.get(DEBUG)) or os.environ.get("TWINPASS_DEBUG", "0") not in ("", "0")


DEFAULT_SEED = 42  # the seed of the paper's own runs


@dataclass
class Console:
    """The options that every verb has, and what it prints to."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = DEFAULT_SEED
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps ...")] = "auto"
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", callback=remember_debug)] = (
        False
    )
    stdout: TextIO = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.stdout = sys.stdout

    def described(self) -> dict[str, Any]:
        """Return the shared options that a result depends on, for its provenance."""
        return {"seed": self.seed, "device": self.device}

    def log(self, message: str) -> None:
        """Print a line on stderr, except with --quiet."""
        if not self.quiet:
            print(message, file=sys.stderr)

    def warn(self, message: str) -> None:
        """Print a warning on stderr, also with --quiet: for what changes what the result means."""
        print(f"twinpass: warning: {message}", file=sys.stderr)

    def result(self, document: Mapping[str, Any], human: RenderableType | None = None) -> None:
        """Print the verb's result: the document with --json, else the text or table."""
        if self.json:
            text = json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)
            print(text, file=self.stdout, flush=True)
        elif isinstance(human, str):
            print(human, file=self.stdout, flush=True)
        elif human is not None:
            self._draw(human)

    def show(self, result: Displayed, **more: Any) -> None:
        """Print a result of the library: its plain data with --json (`more` is added), else its tables."""
        from twinpass.display import to_rich

        self.result(result.to_dict() | more, human=to_rich(result.grids()))

    def _draw(self, human: RenderableType) -> None:
        from rich.console import Console as RichConsole

        rich = RichConsole(file=self.stdout, highlight=False, markup=False)
        if not rich.is_terminal:
            rich.width = max(rich.width, 200)  # no wrapping in a pipe or file
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
    def redirected(self) -> Iterator[None]:
        """Send everything but the result to stderr, and print our warnings one line each."""
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            if not self.debug:
                warnings.simplefilter("ignore")
                warnings.filterwarnings("default", module=r"twinpass\b")
            warnings.showwarning = self._warn
            yield

    def _warn(self, message: Warning | str, *_: object, **__: object) -> None:
        self.log(f"twinpass: warning: {' '.join(str(message).split())}")


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a function into a command; a parameter whose type is a dataclass becomes the options of its fields."""

    def run(console: Console, *args: Any, **values: Any) -> None:
        with console.redirected():
            _limit_instructions(console, {getattr(group, "precision", None) for group in values.values()})
            function(console, *args, **values)

    return expand(function, run)


def _limit_instructions(console: Console, precisions: set[str | None]) -> None:
    """With bf16 or int8, limit the processor's instructions if needed; this must happen before a library is loaded."""
    if console.device not in ("auto", "cpu"):
        return
    from twinpass import processor

    for probe in (processor.BF16, processor.INT8):
        if probe.name in precisions:
            verdict = processor.prepare(probe)
            if console.debug:
                limit, set_by = processor.active_limit()
                state = f"{processor.LIMIT}={limit}, set by {set_by}" if limit else "no limit set"
                console.log(f"twinpass: {verdict}; {state}")


def expand(function: Callable[..., None], run: Callable[..., None]) -> Callable[..., None]:
    """Return a flat version of `function` for typer, which builds the dataclasses and hands them to `run`."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    groups = {name: hints[name] for name in parameters if dataclasses.is_dataclass(hints[name])}

    def flat(**values: Any) -> None:
        built = {name: group(**_take(group, values)) for name, group in groups.items()}
        run(**built, **values)

    own = [_parameter(name, hints[name], p.default) for name, p in parameters.items() if name not in groups]
    shared = [p for name in reversed(groups) for p in _fields(groups[name])]  # --help shows the console's last
    flat.__name__, flat.__doc__, flat.__module__ = function.__name__, function.__doc__, function.__module__
    flat.__signature__ = inspect.Signature(own + shared)  # type: ignore[attr-defined]
    flat.__annotations__ = {p.name: p.annotation for p in own + shared}
    return flat


def _fields(group: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for option in dataclasses.fields(group):
        if option.init:
            given = option.default is not dataclasses.MISSING
            default = option.default if given else inspect.Parameter.empty
            yield _parameter(option.name, hints[option.name], default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _take(group: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values.pop(field.name) for field in dataclasses.fields(group) if field.init}


@contextlib.contextmanager
def exit_codes(meta: dict[str, Any]) -> Iterator[None]:
    """Turn an exception into one message on stderr and an exit code: 2 user error, 130 Ctrl-C, 1 anything else."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        _stop("stopped.", 130, meta)
    except BrokenPipeError:
        _silence_stdout()
        raise typer.Exit(1) from None
    except UsageError as error:
        _stop(f"error: {_usage(error)}", 2, meta)
    except UserError as error:
        _stop(f"error: {error}", 2, meta)
    except TwinpassError as error:
        _stop(f"error: {error}", 1, meta)
    except OSError as error:
        if error.errno not in DISK_FULL:
            _stop(_unexpected(error, meta), 1, meta)
        _silence_stdout()  # it may be on the full disk
        _stop(f"error: {_no_room(error)}", 2, meta)
    except Exception as error:
        _stop(_unexpected(error, meta), 1, meta)


def _stop(message: str, code: int, meta: dict[str, Any]) -> NoReturn:
    if _debugging(meta):
        traceback.print_exc(file=sys.stderr)
    print(f"twinpass: {message}", file=sys.stderr)
    raise typer.Exit(code) from None


def _usage(error: Any) -> str:
    path = error.ctx.command_path if error.ctx else "twinpass"
    message = error.format_message().strip().rstrip(".")
    return f"{message}{'' if message.endswith('?') else '.'} Try: {path} --help"


def _unexpected(error: Exception, meta: dict[str, Any]) -> str:
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    where = "" if _debugging(meta) else " Run again with --debug (or TWINPASS_DEBUG=1) to see where."
    return f"unexpected error: {what}.{where}"


def _no_room(error: OSError) -> str:
    return f"cannot write {error.filename or 'the output'}: {error.strerror}. Free some space, or write somewhere else."


def _silence_stdout() -> None:
    """Redirect stdout to the null device: Python's last flush would fail on a closed pipe or a full disk."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_given: list[str] = []


def remember_command(arguments: Sequence[str]) -> None:
    """Remember the arguments, for reports."""
    _given[:] = arguments


def command_line() -> str:
    """Return the command being run, as typed in a shell."""
    return shlex.join(["twinpass", *_given])

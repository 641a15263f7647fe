"""What a failure says and which code it exits with: 2 the user's mistake, 130 stopped, 1 anything else."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

import typer

from twinpass.errors import TwinpassError, UserError

DEBUG = "twinpass.debug"  # the key under which a context remembers --debug
FULL = {errno.ENOSPC, errno.EDQUOT}

# Newer typers carry a click of their own, older ones borrow the real one: this finds the class of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def remember_debug(context: typer.Context, value: bool) -> bool:
    """Keep a --debug given before or after the verb where the failure handler finds it; return whether there is one.

    TWINPASS_DEBUG counts as one, so a verb's console knows of all three.
    """
    if value:
        context.meta[DEBUG] = True
    return _debugging(context.meta)


@contextlib.contextmanager
def exit_codes(meta: dict[str, Any]) -> Iterator[None]:
    """Turn whatever a verb raises into one message on stderr and an exit code."""
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
        if error.errno not in FULL:
            _stop(f"error: {_unforeseen(error, meta)}", 1, meta)
        _silence_stdout()  # it may be what is full
        _stop(f"error: {_no_room(error)}", 2, meta)
    except Exception as error:
        _stop(f"error: {_unforeseen(error, meta)}", 1, meta)


def _stop(message: str, code: int, meta: dict[str, Any]) -> NoReturn:
    if _debugging(meta):
        traceback.print_exc(file=sys.stderr)
    print(f"twinpass: {message}", file=sys.stderr)
    raise typer.Exit(code) from None


def _debugging(meta: dict[str, Any]) -> bool:
    return bool(meta.get(DEBUG)) or os.environ.get("TWINPASS_DEBUG", "0") not in ("", "0")


def _usage(error: Any) -> str:
    path = error.ctx.command_path if error.ctx else "twinpass"
    message = error.format_message().strip().rstrip(".")
    return f"{message}{'' if message.endswith('?') else '.'} Try: {path} --help"


def _unforeseen(error: Exception, meta: dict[str, Any]) -> str:
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    where = "" if _debugging(meta) else " Run again with --debug (or TWINPASS_DEBUG=1) to see where."
    return f"this was not foreseen: {what}.{where}"


def _no_room(error: OSError) -> str:
    return f"cannot write {error.filename or 'the output'}: {error.strerror}. Make room, or write to another place."


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain about a closed or full one."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""What every verb promises: options, streams, exit codes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from twinpass.cli import main as cli
from twinpass.cli.console import Console, verb
from twinpass.errors import InputError, MissingExtra, TrainingError
from twinpass.files import plain


@pytest.fixture
def tryout(monkeypatch: pytest.MonkeyPatch):
    """Put a function on the command line as the verb `tryout`."""

    def register(function):
        monkeypatch.setitem(sys.modules, "twinpass.cli.tryout", SimpleNamespace(tryout=verb(function)))
        monkeypatch.setattr(cli, "VERBS", {**cli.VERBS, "tryout": cli.Verb("Try.", "demo")})

    return register


def warn(message: str, *, module: str) -> None:
    """Warn as code in that module would."""
    warnings.warn_explicit(message, UserWarning, f"{module}.py", 1, module=module)


@pytest.mark.parametrize("name", cli.VERBS)
def test_every_verb_takes_the_shared_options(name: str):
    verb = cli.load_verb(name)
    for command in getattr(verb, "commands", {name: verb}).values():  # a verb may have verbs of its own
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--quiet", "--seed", "--device", "--debug"} <= options


def test_json_is_one_document_whatever_a_library_prints(run, tryout):
    def speak(console: Console) -> None:
        print("a library chatters")
        warn("one\n thing", module="twinpass.encoder.encoder")
        console.log("a log line")
        console.result({"seed": console.seed, "device": console.device}, human="for people")

    tryout(speak)
    ran = run("tryout", "--json", "--seed", 7, "--device", "cpu")
    assert json.loads(ran.out) == {"seed": 7, "device": "cpu"}
    assert ran.err.splitlines() == ["a library chatters", "twinpass: warning: one thing", "a log line"]
    assert run("tryout").out == "for people\n"


def test_quiet_leaves_only_the_result(run, tryout):
    def speak(console: Console) -> None:
        warn("a warning", module="twinpass.encoder.encoder")
        console.log("a log line")
        console.result({}, human="the result")

    tryout(speak)
    assert run("tryout", "-q") == (0, "the result\n", "")


def test_warnings_of_libraries_are_not_shown(run, tryout):
    def speak(console: Console) -> None:
        warn("old", module="library")

    tryout(speak)
    assert run("tryout").err == ""
    assert "old" in run("tryout", "--debug").err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("x.txt:3: bad row"), 2, "twinpass: error: x.txt:3: bad row\n"),
        (MissingExtra("hf:", "hub"), 2, "pip install 'twinpass[hub]'\n"),
        (TrainingError("loss is nan"), 1, "twinpass: error: loss is nan\n"),
        (KeyboardInterrupt(), 130, "twinpass: stopped.\n"),
        (BrokenPipeError(), 1, ""),
        (OSError(errno.ENOSPC, "it is full"), 2, "the output: it is full. Free some space, or write somewhere else.\n"),
        (OSError(errno.EIO, "Input/output error"), 1, "to see where.\n"),
        (ZeroDivisionError("oops"), 1, "oops. Run again with --debug (or TWINPASS_DEBUG=1) to see where.\n"),
    ],
)  # fmt: skip
def test_exit_codes(run, tryout, error: BaseException, code: int, message: str):
    def fail(console: Console) -> None:
        raise error

    tryout(fail)
    ran = run("tryout")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.endswith(message) and "Traceback" not in ran.err
    assert ran.err.count("\n") == (1 if message else 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which this system has not")
def test_a_full_output_is_told():
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "twinpass", "reproduce"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert ran.stderr.startswith("twinpass: error: cannot write the output: No space left")


@pytest.mark.parametrize("arguments", [["--debug", "tryout"], ["tryout", "--debug"]])
def test_debug_shows_where(run, tryout, arguments: list[str]):
    def fail(console: Console) -> None:
        raise ZeroDivisionError("oops")

    tryout(fail)
    ran = run(*arguments)
    assert ran.code == 1
    assert "Traceback" in ran.err and "in fail" in ran.err and "--debug" not in ran.err.splitlines()[-1]


def test_debug_by_environment(run, tryout, monkeypatch: pytest.MonkeyPatch):
    def fail(console: Console) -> None:
        raise InputError("bad")

    tryout(fail)
    monkeypatch.setenv("TWINPASS_DEBUG", "1")
    assert "Traceback" in run("tryout").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["encoed"], "No such command 'encoed'. Did you mean 'encode'? Try: twinpass --help"),
        (["--bogus"], "No such option: --bogus"),
        (["encode"], "Missing argument 'INPUT'"),
        (["encode", "x.txt"], "Missing option '--output' / '-o'"),
        (["doctor", "--seed", "many"], "Invalid value for '--seed'"),
    ],
)
def test_usage_errors_are_one_line(run, arguments: list[str], message: str):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err and ran.err.startswith("twinpass: error: ") and ran.err.count("\n") == 1


def test_version_and_bare_call(run):
    assert run("--version") == (0, "twinpass 0.1.0\n", "")
    ran = run()
    assert ran.code == 0 and "Usage: twinpass" in ran.out


def test_closed_pipe_is_quiet():
    reading, writing = os.pipe()
    os.close(reading)  # before the program starts: it may say everything before this process goes on
    with os.fdopen(writing, "wb") as closed:
        ran = subprocess.run([sys.executable, "-m", "twinpass", "--help"], stdout=closed, stderr=subprocess.PIPE)
    assert (ran.returncode, ran.stderr) == (1, b"")


def test_result_draws_tables_without_colour_in_a_pipe(run, tryout):
    def draw(console: Console) -> None:
        from rich.table import Table

        table = Table("[bold]literal")
        table.add_row("x" * 120)
        console.result({}, human=table)

    tryout(draw)
    out = run("tryout").out
    assert "[bold]literal" in out and "x" * 120 in out and "\x1b" not in out


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
def test_no_color_is_respected_on_a_terminal(monkeypatch, capsys, no_color: str | None, coloured: bool):
    from rich.text import Text

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich's way of saying: this is a terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    Console().result({}, human=Text("red", style="red"))
    assert ("\x1b[31m" in capsys.readouterr().out) is coloured


def test_progress_is_drawn_only_on_a_terminal(monkeypatch, capsys):
    with Console().progress("working", total=10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Console().progress("working", total=10) as advance:
        advance(10)
    assert "working" in capsys.readouterr().err
    with Console(quiet=True).progress("working", total=10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""


def test_plain_values():
    @dataclass
    class Point:
        x: float

    found = plain(
        {1: np.float32(0.5), "a": np.arange(2), "p": Path("x"), "n": float("nan"), "d": Point(1.0), "s": {2, 1}}
    )
    assert found == {"1": 0.5, "a": [0, 1], "p": "x", "n": None, "d": {"x": 1.0}, "s": [1, 2]}
    assert plain(np.array([1.0, np.inf])) == [1.0, None]
    assert json.dumps(plain((True, None, "x"))) == '[true, null, "x"]'

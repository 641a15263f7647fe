"""What all parts of benchmarks/faults.py share: rows of the table, tiny data, and how the program is run.

Python needs seconds to import torch. So this process imports everything once, computes nothing itself, and forks a
child for every command. A child runs the same code as `python -m twinpass`, and can be killed at any moment. With
`true_processes` every command is a process of its own, which is slower and starts from nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinpass.display import Displayed, Grid

TOP = Path(__file__).parents[2]
LONGEST = 120.0  # seconds after which a command counts as hanging
# What the verbs import; forked children need not do it again.
MODULES = (
    "accelerate",
    "faiss",
    "matplotlib.figure",
    "pyarrow.parquet",
    "scipy.stats",
    "tests.tiny",
    "transformers.models.bert.modeling_bert",
    "twinpass.analysis.training_report",
    "twinpass.bulk.encode_file",
    "twinpass.cli.compare",
    "twinpass.cli.encode",
    "twinpass.cli.evaluate",
    "twinpass.cli.index",
    "twinpass.cli.main",
    "twinpass.cli.search",
    "twinpass.cli.train",
    "twinpass.evaluation.evaluate",
    "twinpass.search.index",
    "twinpass.text.corpus",
    "twinpass.training.loop",
    "twinpass.workflows.train",
)


@dataclass(frozen=True)
class Row:
    """One line of the table: what was tried how often, what failed, and how the others ended."""

    part: str
    what: str
    tries: int = 0
    failures: tuple[str, ...] = ()
    ended: Mapping[str, int] = field(default_factory=dict)
    skipped: str | None = None  # why nothing was tried


@dataclass(frozen=True, repr=False)
class Report(Displayed):
    """All lines of a run."""

    rows: Sequence[Row]
    seed: int
    seconds: float

    @property
    def failures(self) -> int:
        """Number of tries that failed."""
        return sum(len(row.failures) for row in self.rows)

    def grids(self) -> Sequence[Grid]:
        """Return the table of tries and failures, with the first failures of each line below it."""
        cells = []
        for row in self.rows:
            ended = ", ".join(f"{count:,} {how}" for how, count in row.ended.items())
            tried = ["-", "-"] if row.skipped else [f"{row.tries:,}", f"{len(row.failures):,}"]
            cells.append([row.part, row.what, *tried, f"skipped: {row.skipped}" if row.skipped else ended])
        total = sum(row.tries for row in self.rows)
        cells.append(["all", "", f"{total:,}", f"{self.failures:,}", ""])
        notes = [f"{row.part}, {row.what}: {failure}" for row in self.rows for failure in row.failures[:5]]
        title = f"Faults, seed {self.seed}, {self.seconds:.0f} s"
        return [Grid(title, ["part", "what", "tries", "failures", "ended"], cells, notes, words=("what", "ended"))]


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal), what it wrote, and what its function returned."""

    code: int | None  # None: it was still running after LONGEST seconds
    out: str = ""
    err: str = ""
    value: Any = None
    seconds: float = 0.0

    @property
    def unexpected(self) -> str | None:
        """Why this is no proper end of a program, or None: 0, or 2 with a message."""
        if self.code is None:
            return "hangs"
        if self.code < 0:
            return f"died of {signal.Signals(-self.code).name}"
        if self.code == 2 and self.err.strip() and "Traceback" not in self.err:
            return None
        if self.code != 0:
            return f"exit code {self.code}: {' '.join(self.err.split())[-300:]}"
        return None


class Program:
    """The program, run in children that are forked from this process, or in processes of their own."""

    def __init__(self, work: Path, *, true_processes: bool = False) -> None:
        self.work = work
        self.true_processes = true_processes
        self.environment = {"OMP_NUM_THREADS": "1", "TWINPASS_CACHE": str(work / "cache"), "HF_HUB_OFFLINE": "1"}
        self.environment |= {"TERM": "dumb", "PYTHONPATH": os.pathsep.join([str(TOP / "src"), str(TOP)])}
        # Ray's clusters of this run are for this run alone.
        self.environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update(self.environment)  # read when torch is imported
        for name in MODULES if not true_processes else ():
            importlib.import_module(name)

    def verb(self, *arguments: object, cwd: Path, kill_after: float | None = None, **environment: str) -> Ended:
        """Run a verb of the program in a folder; kill it after so many seconds, if it still runs."""
        told = [str(argument) for argument in arguments]
        if self.true_processes:
            return self.process(*told, cwd=cwd, kill_after=kill_after, **environment)
        return self.call(_run_main, told, cwd=cwd, kill_after=kill_after, **environment)

    def process(self, *arguments: object, cwd: Path, kill_after: float | None = None, **environment: str) -> Ended:
        """Run a verb as a process of its own."""
        command = [sys.executable, "-m", "twinpass", *map(str, arguments)]
        told = os.environ | environment
        began = time.perf_counter()
        with subprocess.Popen(
            command, cwd=cwd, env=told, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            try:
                out, err = child.communicate(timeout=LONGEST if kill_after is None else kill_after)
            except subprocess.TimeoutExpired:
                child.kill()
                out, err = child.communicate()
                if kill_after is None:
                    return Ended(None, out.decode(errors="replace"), err.decode(errors="replace"))
        seconds = time.perf_counter() - began
        return Ended(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"), None, seconds)

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        cwd: Path | None = None,
        kill_after: float | None = None,
        **environment: str,
    ) -> Ended:
        """Call a function in a forked child and return how that ended; a UserError ends it with code 2."""
        place = self.work / "child"
        place.mkdir(exist_ok=True)
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            _be_child(function, arguments, place, cwd, environment)
        code = _wait(child, LONGEST if kill_after is None else kill_after)
        if code is None:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status) if kill_after is not None else None
        seconds = time.perf_counter() - began
        out, err = ((place / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        value = pickle.loads((place / "value").read_bytes()) if code == 0 else None
        return Ended(code, out, err, value, seconds)


def _be_child(
    function: Callable[..., Any], arguments: Any, place: Path, cwd: Path | None, environment: Mapping[str, str]
) -> None:
    """Run a function with its output in files, and end this process."""
    code = 1
    try:
        for name, number in (("out", 1), ("err", 2)):
            handle = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.environ.update(environment)
        if cwd is not None:
            os.chdir(cwd)
        value, code = _called(function, arguments)
        if code == 0:
            (place / "value").write_bytes(pickle.dumps(value))
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _called(function: Callable[..., Any], arguments: Any) -> tuple[Any, int]:
    from twinpass.errors import UserError

    try:
        return function(*arguments), 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return None, 2
    except SystemExit as stop:
        return None, stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1


def _run_main(arguments: list[str]) -> None:
    from twinpass.cli.main import main

    main(arguments)


def _wait(child: int, seconds: float) -> int | None:
    """Return the exit code of a child, or None if it still runs after so many seconds."""
    until = time.perf_counter() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        left = until - time.perf_counter()
        if left <= 0:
            return None
        time.sleep(min(0.002, left))


class Broken(RuntimeError):
    """What all tries depend on did not work."""


def worked(ended: Ended) -> Ended:
    """Return how a child ended, or raise if that was no success."""
    if ended.code != 0:
        raise Broken(f"exit code {ended.code}: {ended.err[-2000:]}")
    return ended


@dataclass(frozen=True)
class Material:
    """The tiny data and the tiny model that everything is tried on."""

    folder: Path

    @property
    def model(self) -> Path:
        """A model folder of ours, with a whitening layer."""
        return self.folder / "model"

    @property
    def texts(self) -> Path:
        """120 lines, some of them alike."""
        return self.folder / "texts.txt"

    @property
    def table(self) -> Path:
        """120 texts with a year and a tag."""
        return self.folder / "table.jsonl"

    @property
    def more(self) -> Path:
        """60 other texts, with the same columns."""
        return self.folder / "more.jsonl"

    @property
    def dev(self) -> Path:
        """40 scored pairs."""
        return self.folder / "dev.csv"


def make_material(program: Program, seed: int) -> Material:
    """Write the data, and make the model in a child."""
    material = Material(program.work / "material")
    material.folder.mkdir()
    draw = random.Random(seed)
    words = worked(program.call(_words)).value

    def sentences(count: int) -> list[str]:
        return [" ".join(draw.choices(words, k=draw.randint(2, 14))) for _ in range(count)]

    lines = sentences(100)
    material.texts.write_text("\n".join([*lines, *lines[:20]]) + "\n", encoding="utf-8")
    for path, texts in ((material.table, sentences(120)), (material.more, sentences(60))):
        rows = [{"text": text, "year": 1990 + place % 30, "tag": f"t{place % 4}"} for place, text in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pairs = [(*sentences(2), round(draw.uniform(0, 5), 2)) for _ in range(40)]
    written = "\n".join(",".join(map(str, pair)) for pair in pairs)
    material.dev.write_text(f"sentence1,sentence2,score\n{written}\n", encoding="utf-8")
    worked(program.call(_make_model, material.folder, seed))
    fitting = ["fit", "whitening", "texts.txt", "-m", "plain", "-o", "model", "--device", "cpu", "--quiet"]
    worked(program.verb(*fitting, cwd=material.folder))
    return material


def _words() -> list[str]:
    from tests.tiny import WORDS

    return WORDS


def _make_model(folder: Path, seed: int) -> None:
    from tests.tiny import make_checkpoint

    from twinpass.encoder.encoder import Encoder

    Encoder.load(make_checkpoint(folder / "bare", seed=seed), pooler="avg", device="cpu").save(folder / "plain")


def has_verb(*names: str) -> bool:
    """Whether the program has a verb, or a verb of a verb."""
    from twinpass.cli.main import VERBS

    if names[0] not in VERBS:
        return False
    if len(names) == 1:
        return True
    return names[1] in getattr(importlib.import_module(f"twinpass.cli.{names[0]}"), names[0])


def count(ended: dict[str, int], how: str) -> None:
    """Count one end."""
    ended[how] = ended.get(how, 0) + 1

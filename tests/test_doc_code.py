"""The code of the documentation runs: Python blocks, and the commands of the README and the tour, on small data.

A tiny random model takes the place of every model that is not a folder here, so nothing is downloaded or slow. Comments
in a page speak of the block that follows them: `<!-- before: CODE -->` is run first, `<!-- not run: REASON -->` skips
the block, `<!-- in the tests: THIS is THAT; ... -->` replaces what is too large for a tiny model, and with
`<!-- file: NAME -->` the block is written to that file.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.test_docs import PAGES, TOP, fenced_commands
from tests.tiny import WORDS

from twinpass.cli.main import VERBS, load_verb, main

BLOCK = re.compile(r"(?P<comments>(?:^<!-- .*? -->\n)*)^```(?P<kind>\w+)\n(?P<code>.*?)^```$", flags=re.M | re.S)
# What a test cannot run to its end, or what another test runs.
NOT_RUN = {
    "serve": "runs until Ctrl-C; tests/service starts it",
    "demo": "minutes; tests/cli/test_verb_demo.py runs it",
    "quantize": "tests/cli/test_verb_quantize.py runs it",
    "reproduce": "hours at any scale but smoke; tests/recipes runs that",
}


class Block(NamedTuple):
    """A fenced block of a page, and what the comments before it say."""

    kind: str
    code: str
    comments: dict[str, str]


def blocks(page: Path) -> list[Block]:
    found = []
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        comments = dict(re.findall(r"<!-- (before|not run|file|in the tests): (.*?) -->", match["comments"]))
        code = match["code"]
        for change in comments.get("in the tests", "").split("; "):
            this, _, that = change.partition(" is ")
            code = code.replace(this, that) if this else code
        found.append(Block(match["kind"], code, comments))
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> Path:
    """An empty folder with the files that the pages speak of, where every model on the hub is a tiny one."""
    from twinpass.encoder import encoder
    from twinpass.recipes.smoke_data import make_data

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    find = encoder.find_folder
    tiny = Path(model)
    monkeypatch.setattr(
        encoder, "find_folder", lambda name, **trust: find(name, **trust) if Path(name).is_dir() else tiny
    )
    make_data(tmp_path / "data")
    (tmp_path / "senteval").symlink_to(tmp_path / "data" / "senteval")
    draw = random.Random(0)
    texts = [" ".join(draw.sample(WORDS, 5)) for _ in range(48)]
    near = [f"{text} now" for text in texts]
    scored = [f"{one},{two},{draw.randint(0, 5)}" for one, two in zip(texts, near[1:] + near[:1], strict=True)]
    for name in ("sentences.txt", "train.txt", "wiki.txt", "tickets.txt"):
        Path(name).write_text("\n".join(texts) + "\n")
    for name in ("scored.csv", "dev.csv", "sts-dev.csv", "sts-test.csv", "mine.csv"):
        Path(name).write_text("sentence1,sentence2,score\n" + "\n".join(scored) + "\n")
    Path("pairs.csv").write_text("question,answer\n" + "".join(f"{a},{b}\n" for a, b in zip(texts, near, strict=True)))
    triplets = [{"sent0": a, "sent1": b, "hard_neg": c} for a, b, c in zip(texts, near, reversed(texts), strict=True)]
    Path("triplets.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in triplets))
    rows = [{"text": text, "body": text, "lang": "en", "year": 2000 + number} for number, text in enumerate(texts)]
    Path("sentences.jsonl").write_text("".join(json.dumps({**row, "body": 1}) + "\n" for row in rows))
    Path("tickets.csv").write_text(
        "id,text,lang,category\n" + "".join(f"{n},{text},en,{n % 3}\n" for n, text in enumerate(texts))
    )
    Path("nli.csv").write_text(
        "premise,hypothesis,label\n"
        + "".join(f"{a},{b},entailment\n{a},not {b},contradiction\n" for a, b in zip(texts, near, strict=True))
    )
    with gzip.open("huge.jsonl.gz", "wt") as stream:
        stream.write("".join(json.dumps({"body": text}) + "\n" for text in texts))
    labels = ("entailment", "contradiction", "neutral")
    nli = [
        {"sentence1": text, "sentence2": f"{text} {label}", "gold_label": label} for text in texts for label in labels
    ]
    for name in ("snli_1.0_train.jsonl", "multinli_1.0_train.jsonl"):
        Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in nli))
    captions = [f"{image}.jpg#{place}\t{text}" for image in range(4) for place, text in enumerate(texts[:5])]
    Path("results_20130124.token").write_text("\n".join(captions) + "\n")
    return tmp_path


WITH_PYTHON = [page for page in PAGES if page.name != "python.md" and any(b.kind == "python" for b in blocks(page))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path, place: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks(page):
        if "file" in block.comments:
            Path(block.comments["file"]).write_text(block.code, encoding="utf-8")
        if block.kind == "python" and "not run" not in block.comments:
            exec(compile(block.comments.get("before", ""), f"{page.name}, a comment", "exec"), names)
            exec(compile(block.code, page.name, "exec"), names)


def test_a_block_that_is_not_run_says_why() -> None:
    skipped = [block.comments["not run"] for page in PAGES for block in blocks(page) if "not run" in block.comments]
    assert all(len(reason) > 10 for reason in skipped)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_can_be_parsed(page: Path) -> None:
    for line in fenced_commands(page):
        parse(line)


def parse(line: str) -> None:
    """Parse a command as the program does, without running it."""
    words = shlex.split(re.split(r" (?:\||>|2>|<|&&|&)(?: |$)", line)[0])[1:]
    command = load_verb(words[0])
    own = getattr(command, "commands", None)
    if own:
        command, words = own[words[1]], words[1:]
    if "--help" not in words:
        command.make_context(words[0], words[1:])


def test_a_command_that_cannot_be_parsed_is_found() -> None:
    from twinpass.cli.console import UsageError

    for wrong in ("twinpass encode x.txt", "twinpass search", "twinpass train a.txt -o b --steps many"):
        with pytest.raises(UsageError):
            parse(wrong)


@pytest.mark.parametrize("name", ["README.md", "docs/tour.md"])
def test_the_commands_of_a_page_run(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(TOP / name):
        if "file" in block.comments:
            Path(block.comments["file"]).write_text(block.code, encoding="utf-8")
        if block.kind == "bash" and "not run" not in block.comments:
            for line in block.code.splitlines():
                if line.startswith("twinpass ") and line.split()[1] not in NOT_RUN:
                    run(shlex.split(line, comments=True)[1:])
                    capsys.readouterr()


def run(words: list[str]) -> None:
    """Run a command to its end; a training that would replace another is given a new folder, as users would."""
    if words[0] in ("train", "sweep") and "--resume" not in words:
        shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)
    quick = ["--resamples", "100"] if words[0] in ("evaluate", "compare") else []
    words = [{"sts": "STS-B", "sts,transfer": "STS-B,SICK-R"}.get(word, word) for word in words]
    with pytest.raises(SystemExit) as ended:
        main([*words, *quick, "--device", "cpu", "-q"])
    assert ended.value.code in (0, None), f"twinpass {shlex.join(words)} exits with {ended.value.code}"


def test_commands_that_are_not_run_exist() -> None:
    assert set(NOT_RUN) <= set(VERBS)

"""`twinpass train` as a user meets it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tiny import WORDS

from twinpass.cli.train import NAMED_OTHERWISE, RunOptions, _nothing_gained
from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.log import Result
from twinpass.text.corpus import open_corpus
from twinpass.workflows.dev import rows_to_learn_from

QUICK = ("--steps", 4, "--batch-size", 4, "--eval-every", 2, "--device", "cpu")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{a} {b} {c}\n" for a, b, c in zip(WORDS, WORDS[3:], WORDS[7:], strict=False)))
    return path


def test_every_field_of_a_run_is_a_flag() -> None:
    flags = {field.name for field in dataclasses.fields(RunOptions)}
    assert flags | NAMED_OTHERWISE == {field.name for field in dataclasses.fields(Run)}


def test_one_column_trains_unsupervised_and_says_why(run, model, texts, dev, tmp_path) -> None:
    out = tmp_path / "out"
    done = run("train", texts, "-m", model, "-o", out, "--dev", dev, *QUICK)
    assert done.code == 0, done.err
    assert "unsupervised SimCSE" in done.err
    assert "has one text column" in done.err
    assert "dev at step 0" in done.err
    assert "before" in done.out and "best" in done.out and "uniformity" in done.out
    assert "Spearman" in done.out
    assert Encoder.load(out, device="cpu").encode("a dog").shape == (32,)
    assert "Spearman" in (out / "README.md").read_text()
    assert Run.read(out / "run.json").steps == 4
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert sum("loss" in line and "learning_rate" in line for line in lines) == 4


def test_built_in_text_is_taught_without_what_the_dev_set_asks(run, model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    done = run("train", "docs:rich,click", "--dev", "docs:rich,click", "-m", model, "-o", tmp_path / "out", *QUICK)
    assert done.code == 0, done.err
    kept = len(rows_to_learn_from("docs:rich,click", dev="docs:rich,click"))
    assert f"{kept:,} rows of docs:rich,click are for training" in done.err
    assert f"{kept:,} rows of `docs:rich,click`" in (tmp_path / "out" / "README.md").read_text()


def test_json_is_one_document(run, model, texts, dev, tmp_path) -> None:
    done = run("train", texts, "-m", model, "-o", tmp_path / "out", "--dev", dev, "--json", "--seed", 3, *QUICK)
    document = json.loads(done.out)
    assert document["options"]["run"]["seed"] == 3
    assert document["steps"] == 4
    assert document["model"]["fingerprint"] == Encoder.load(tmp_path / "out", device="cpu").fingerprint
    assert document["data"] == [{"source": str(texts), "fingerprint": open_corpus(texts).fingerprint()}]
    assert set(document["last"]) >= {"score", "alignment", "uniformity"}


def test_presets_flags_and_mistakes(run, model, texts, tmp_path) -> None:
    out = tmp_path / "out"
    done = run("train", texts, "-m", model, "-o", out, "--preset", "unsup-bert-bas")
    assert done.code == 2 and "Did you mean 'unsup-bert-base'" in done.err
    done = run("train", texts, "-m", model, "-o", out, "--preset", "sup-base", *QUICK)
    assert done.code == 2 and "triplets" in done.err
    done = run("train", texts, "-m", model, "-o", out, "--temperature", 0)
    assert done.code == 2 and "temperature must be above 0" in done.err
    assert not (out / "model.safetensors").exists()
    done = run("train", texts, "-m", model, "-o", out, "--preset", "unsup-bert-base", "--lr", "1e-4", *QUICK)
    assert done.code == 0 and Run.read(out / "run.json").learning_rate == 1e-4
    done = run("train", texts, "-m", model, "-o", out, *QUICK)
    assert done.code == 2 and "already holds a model" in done.err
    assert "--resume" in done.err and "--overwrite" in done.err


def test_a_dev_set_needs_two_columns(run, model, texts, tmp_path) -> None:
    done = run("train", texts, "-m", model, "-o", tmp_path / "out", "--dev", texts, *QUICK)
    assert done.code == 2 and "two text columns" in done.err and "got 1" in done.err


def test_pairs_without_scores_are_retrieved(run, model, texts, tmp_path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a} {b}\t{b} {a}\n" for a, b in itertools.pairwise(WORDS)))
    done = run("train", pairs, "-m", model, "-o", tmp_path / "out", "--dev", pairs, *QUICK)
    assert done.code == 0, done.err
    assert "contrastive learning on pairs (Eq. 1)" in done.err
    assert "lexical overlap of pairs 100%" in done.err
    assert "R@1" in done.out


@pytest.mark.parametrize(("best", "warned"), [(79.0, True), (80.0, False), (81.0, False)])
def test_a_training_that_made_the_model_worse_says_so(best: float, warned: bool) -> None:
    scores = {"before": {"score": 80.0}, "best": {"score": best}, "last": {"score": best}, "best_step": 4}
    said = _nothing_gained(Result(output=Path("out"), reason="finished", steps=4, loss=0.1, **scores))
    assert ("no step as high as the model it started from (80.00 before, 79.00 at its best)" in said) == warned


def test_a_model_that_could_not_be_scored_before_is_not_said_to_be_better() -> None:
    scores = {"before": {"score": math.nan}, "best": {"score": 1.0}, "last": {"score": 1.0}}
    assert _nothing_gained(Result(output=Path("out"), reason="finished", steps=4, loss=0.1, **scores)) == ""


def test_the_warning_of_a_worse_model_is_seen_with_quiet_and_the_start_can_be_kept(run, model, texts, dev, tmp_path):
    pairs = list(itertools.pairwise(WORDS))
    cosines = Encoder.load(model).similarity(*map(list, zip(*pairs, strict=True)), pairwise=True)
    rows = [f"{a},{b},{score}\n" for (a, b), score in zip(pairs, cosines.values.tolist(), strict=True)]
    dev.write_text("sentence1,sentence2,score\n" + "".join(rows))  # the model itself scores 100 here
    options = ("-m", model, "--dev", dev, "--steps", 2, "--batch-size", 4, "--lr", 0.5, "-q", "--device", "cpu")
    done = run("train", texts, "-o", tmp_path / "worse", *options)
    assert done.code == 0 and done.err.startswith("twinpass: warning: dev scored no step as high as the model")
    done = run("train", texts, "-o", tmp_path / "kept", "--keep-start", *options)
    assert done.code == 0 and "so that one was kept" in done.err and "best (step 0)" in done.out
    assert Encoder.load(tmp_path / "kept").fingerprint == Encoder.load(model).fingerprint


def test_leakage_is_reported(run, model, texts, dev, tmp_path) -> None:
    with texts.open("a") as stream:
        stream.write(f"{WORDS[0]} {WORDS[1]}\n")
    done = run("train", texts, "-m", model, "-o", tmp_path / "out", "--leakage", dev, *QUICK)
    assert done.code == 0
    assert "leakage: 1 of" in done.err


SIGNALLED = """
import os, signal, sys
from twinpass import log

name, at = sys.argv.pop(1), int(sys.argv.pop(1))
write = log.LogWriter.write

def write_and_signal(self, event):
    write(self, event)
    if isinstance(event, log.Stepped) and event.step == at:
        os.kill(os.getpid(), getattr(signal, name))

log.LogWriter.write = write_and_signal
from twinpass.cli.main import main
main()
"""


def run_signalled(name: str, step: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the program in a process that gets a signal once a step is logged."""
    command = [sys.executable, "-c", SIGNALLED, name, str(step), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def test_ctrl_c_saves_and_resume_ends_as_if_nothing_had_happened(run, model, texts, tmp_path) -> None:
    """Without DATA, the folder's own run.json says what to resume."""
    arguments = ("-m", model, "--steps", 40, "--batch-size", 8, "--device", "cpu", "--seed", 3)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run("train", texts, "-o", whole, *arguments).code == 0
    stopped = run_signalled("SIGINT", 20, "train", texts, "-o", broken, *arguments)
    assert stopped.returncode == 130, stopped.stderr
    assert "stopped at step 20" in stopped.stderr and "--resume" in stopped.stderr
    done = run("train", "-o", broken, "--resume")
    assert done.code == 0, done.err
    assert (whole / "model.safetensors").read_bytes() == (broken / "model.safetensors").read_bytes()
    done = run("train", texts, "-o", broken, "--resume", *arguments)
    assert done.code == 0 and "was finished before, so nothing was trained" in done.err


def test_without_data_there_must_be_a_run_to_resume(run, tmp_path) -> None:
    done = run("train", "-o", tmp_path / "out")
    assert done.code == 2 and "Missing argument 'DATA'" in done.err
    done = run("train", "--resume", "-o", tmp_path / "out")
    assert done.code == 2 and "out/run.json" in done.err


def test_a_header_of_unknown_names_can_be_told(run, model, tmp_path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("one,two\n" + "".join(f"{a} {b},{b} {a}\n" for a, b in itertools.pairwise(WORDS)))
    for flag, rows in (("--header", len(WORDS) - 1), ("--no-header", len(WORDS))):
        done = run("train", table, "-m", model, "-o", tmp_path / flag, flag, "--columns", "0,1", *QUICK)
        assert done.code == 0 and f"{rows} rows" in done.err


def test_help_says_what_each_method_expects(run) -> None:
    shown = " ".join(run("train", "--help").out.split())
    for words in ("ct (sentences)", "sbert (premise, hypothesis, label)", "infersent", "declutr", "is-bert", "--dev"):
        assert words in shown.replace("│ │ ", ""), words


def test_the_first_line_says_which_defaults_apply(run, model, texts, tmp_path) -> None:
    done = run("train", texts, "-m", model, "-o", tmp_path / "own", *QUICK)
    assert done.err.splitlines()[0] == (
        f"settings: the defaults of simcse and your options; model {model}, batch size 4, learning rate 3e-05, 4 steps"
    )
    done = run("train", texts, "-m", model, "-o", tmp_path / "preset", "--preset", "unsup-bert-base", *QUICK)
    assert done.err.startswith(
        f"settings: the preset unsup-bert-base and your options; model {model}, pooler cls_mlp_tr"
    )
    triplets = tmp_path / "triplets.tsv"
    triplets.write_text("".join(f"{a} {b}\t{b} {a}\t{a} {a}\n" for a, b in itertools.pairwise(WORDS)))
    done = run("train", triplets, "-m", model, "-o", tmp_path / "three", "--steps", 1, "--device", "cpu")
    assert "the defaults of simcse" in done.err and "batch size 64, learning rate 3e-05" in done.err
    assert Run.read(tmp_path / "three" / "run.json").batch_size == 64


def test_a_preset_brings_its_model_and_an_explicit_one_goes_before_it(run, model, texts, tmp_path) -> None:
    """Without -m the preset's own model is asked for; here there is none of that name."""
    done = run("train", texts, "-o", tmp_path / "out", "--preset", "unsup-roberta-large", *QUICK)
    assert "model roberta-large, pooler cls_mlp_train" in done.err
    done = run("train", texts, "-m", model, "--pooler", "avg", "-o", tmp_path / "b", "--preset", "sup-base")
    assert f"model {model}, pooler avg, batch size 512" in done.err


@pytest.mark.parametrize("method", ["ct", "sbert"])
def test_another_method_killed_and_resumed_ends_with_the_same_bytes(run, model, dev, tmp_path, method: str) -> None:
    data = tmp_path / "data.tsv"
    labels = itertools.cycle(("entailment", "neutral", "contradiction"))
    if method == "sbert":
        rows = [
            f"{a} {b}\t{b} {c}\t{label}" for a, b, c, label in zip(WORDS, WORDS[1:], WORDS[2:], labels, strict=False)
        ]
        data.write_text("\n".join(["premise\thypothesis\tlabel", *rows]) + "\n")
    else:
        data = data.with_suffix(".txt")
        data.write_text("".join(f"{a} {b}\n" for a, b in itertools.pairwise(WORDS)))
    options = ("--method", method, "-m", model, "--dev", dev, "--steps", 8, "--save-every", 3, "--eval-every", 2)
    options = (*options, "--device", "cpu", "--lr", "1e-3", "--keep-checkpoints", 1)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = run("train", data, "-o", whole, *options)
    assert done.code == 0, done.err
    assert run_signalled("SIGKILL", 5, "train", data, "-o", killed, *options).returncode == -signal.SIGKILL
    assert not (killed / "model.safetensors").exists() and (killed / "checkpoints/step-00000003").is_dir()
    done = run("train", data, "-o", killed, "--resume", *options)
    assert done.code == 0, done.err
    assert "steps 3 to 8" in done.err
    for name in ("model.safetensors", "checkpoints/step-00000008/trainer.safetensors"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    assert Encoder.load(killed, device="cpu").pooler == "avg"


def test_classes_scores_and_several_files_in_one_run(run, model, texts, tmp_path) -> None:
    """A mixture of three views; stopped, it resumes from its folder alone."""
    tickets, graded, out = tmp_path / "tickets.csv", tmp_path / "graded.csv", tmp_path / "out"
    lines = texts.read_text().splitlines()
    tickets.write_text("text,category\n" + "".join(f"{line},{'ab'[n % 2]}\n" for n, line in enumerate(lines)))
    pairs = zip(lines, lines[5:], strict=False)
    graded.write_text("one,other,likeness\n" + "".join(f"{a},{b},{n % 5}\n" for n, (a, b) in enumerate(pairs)))
    mixture = ("--data", f"{graded} columns=one,other score=likeness", "--data", f"{texts}:0.5")
    done = run("train", tickets, "--label", "category", *mixture, "-m", model, "-o", out, *QUICK)
    assert done.code == 0, done.err
    assert f"part {tickets}: 40% of the steps" in done.err and "column 'category'" in done.err
    assert f"part {texts}: 20% of the steps" in done.err and "unsupervised SimCSE" in done.err
    assert "graded pairs: cosines are ranked" in done.err
    assert f"({graded})" in done.err  # the loss of a part
    stored = Run.read(out / "run.json")
    assert (stored.data, stored.label, stored.mixture) == (str(tickets), "category", mixture[1::2])
    again = run("train", "--resume", "-o", out)
    assert (again.code, again.err.count("nothing was trained")) == (0, 1), again.err


def test_mixtures_need_no_positional_data_and_say_what_is_wrong(run, model, texts, tmp_path) -> None:
    both = ("--data", texts, "--data", f"{texts} positive=crop:20")
    done = run("train", *both, "-m", model, "-o", tmp_path / "a", *QUICK)
    assert done.code == 0, done.err
    wrong = run("train", "--data", f"{texts} lable=x", "-m", model, "-o", tmp_path / "b", *QUICK)
    assert (wrong.code, "Did you mean 'label'?" in wrong.err) == (2, True)
    wrong = run("train", texts, "--label", "category", "-m", model, "-o", tmp_path / "b", *QUICK)
    assert (wrong.code, "has no column 'category'" in wrong.err) == (2, True)

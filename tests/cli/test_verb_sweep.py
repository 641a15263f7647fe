"""`twinpass sweep`: a grid from the command line."""

from __future__ import annotations

import json
import sys

from twinpass.cli.console import Console
from twinpass.cli.train import TrainingView
from twinpass.log import Started

QUICK = ("--steps", 2, "--batch-size", 4, "--device", "cpu")


def test_a_sweep_prints_its_settings_and_leaves_a_page(run, model, sentences, dev, tmp_path) -> None:
    out = tmp_path / "runs"
    options = ("sweep", sentences, "-m", model, "-o", out, "--dev", dev, *QUICK, "--grid", "learning_rate=1e-4,3e-3")
    done = run(*options)
    assert done.code == 0, done.err
    assert "learning_rate" in done.out and "best model:" in done.out and (out / "sweep.html").is_file()
    assert "42: " in done.out and "no checkpoint to resume" not in done.err and "already finished" not in done.err
    again = run(*options, "--json")
    assert json.loads(again.out)["best_model"].startswith(str(out)) and "step 2" not in again.err
    assert again.err.count("  already finished: ") == 2 and again.err.count("dev: ") == 1


def test_a_wrong_grid_is_a_users_mistake(run, model, sentences, dev, tmp_path) -> None:
    done = run("sweep", sentences, "-m", model, "-o", tmp_path, "--dev", dev, *QUICK, "--grid", "lr=1")
    assert done.code == 2 and "cannot vary 'lr'" in done.err


def test_the_live_line_of_a_run_is_closed_before_the_next(monkeypatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    words = dict.fromkeys(("method", "objective", "view", "why", "pooler"), "")
    numbers = dict.fromkeys(("rows", "steps", "first_step", "epochs", "batch_size", "processes", "parameters"), 1)
    started = Started(**words, **numbers, lexical_overlap=None)
    view, bars = TrainingView(Console()), []
    for _ in range(2):
        view.show(started)
        bars.append(view.bar)
    assert [bar.live.is_started for bar in bars] == [False, True]
    view.close()
    assert not bars[1].live.is_started

"""Kill it, stop it, fill its disk: what was saved is whole, and a resumed run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.training.tiny_runs import make_sentences, make_triplets, spread, train_until_killed

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError, ModelError, OutputError
from twinpass.files import sha256
from twinpass.log import Saved, Stepped
from twinpass.training import checkpoint
from twinpass.training.loop import train
from twinpass.training.randomness import restore_states, take_states

KILLS = [("Stepped", 0), ("Evaluated", 1), ("half-written", 1), ("Saved", 1), ("Stepped", 0)]


def steps_in_log(output: Path) -> list[int]:
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if line["event"] == "stepped"]


@pytest.mark.parametrize(
    ("fields", "rows"),
    [({"chunk_tokens": 40}, make_sentences(21)), ({"dual_encoder": True, "mlm_weight": 0.1}, make_triplets(21))],
    ids=["dropout", "triplets-dual-mlm"],
)
def test_killed_at_random_and_resumed_the_weights_are_the_same(make_run, children, tmp_path, fields, rows) -> None:
    fields = {"steps": 14, "save_every": 3, "eval_every": 4, "keep_checkpoints": 1, **fields}
    whole = make_run(output=str(tmp_path / "whole"), **fields)
    killed = make_run(output=str(tmp_path / "killed"), **fields)
    draw = random.Random(len(rows[0]))
    for place, (when, at) in enumerate(KILLS):
        child = children.Process(
            target=train_until_killed, args=(killed, rows, at or draw.randint(1, 5), when, place > 0)
        )
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL, f"kill {place} came too late"
    finishing = children.Process(target=train_until_killed, args=(killed, rows, 0, "never", True))
    uninterrupted = children.Process(target=train_until_killed, args=(whole, rows, 0, "never", False))
    for child in (finishing, uninterrupted):
        child.start()
        child.join()
        assert child.exitcode == 0
    for name in ("model.safetensors", "checkpoints/step-00000014/model.safetensors"):
        assert sha256(tmp_path / "killed" / name) == sha256(tmp_path / "whole" / name)
    trainers = [tmp_path / run / "checkpoints/step-00000014/trainer.safetensors" for run in ("killed", "whole")]
    assert sha256(trainers[0]) == sha256(trainers[1])
    assert steps_in_log(tmp_path / "killed") == list(range(1, 15)) == steps_in_log(tmp_path / "whole")
    assert not list((tmp_path / "killed").rglob(".*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_resume(make_run, tmp_path, number) -> None:
    run = make_run(steps=6)

    def interrupt(event) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            os.kill(os.getpid(), number)

    result = train(run, rows=make_sentences(20), on_event=interrupt)
    assert (result.reason, result.steps, result.finished) == ("interrupted", 2, False)
    assert "--resume" in result.advice
    assert not (result.output / "model.safetensors").exists()
    resumed = train(run, rows=make_sentences(20), resume=True)
    whole = train(make_run(steps=6, output=str(tmp_path / "whole")), rows=make_sentences(20))
    assert sha256(resumed.output / "model.safetensors") == sha256(whole.output / "model.safetensors")
    assert steps_in_log(resumed.output) == [1, 2, 3, 4, 5, 6]


def test_a_finished_run_resumes_to_the_same_model(make_run) -> None:
    run = make_run()
    first = sha256(train(run, rows=make_sentences(20)).output / "model.safetensors")
    again = train(run, rows=make_sentences(20), resume=True)
    assert again.steps == 4
    assert sha256(again.output / "model.safetensors") == first


def test_with_nothing_to_resume_a_run_starts_at_the_beginning(make_run) -> None:
    events = []
    train(make_run(), rows=make_sentences(20), resume=True, on_event=events.append)
    assert events[0].first_step == 0 and "no checkpoint to resume" in events[0].notes[0]


def test_a_checkpoint_stands_alone(make_run, tiny, tmp_path) -> None:
    """The model it started from may be gone when it is resumed."""
    model = tmp_path / "model"
    shutil.copytree(tiny, model)
    run = make_run(model=str(model), steps=4, save_every=2, mlm_weight=0.1)

    class KilledError(Exception):
        pass

    def stop(event) -> None:
        if isinstance(event, Saved):
            raise KilledError

    with pytest.warns(UserWarning, match="a new one is trained"), pytest.raises(KilledError):
        train(run, rows=make_sentences(20), on_event=stop)
    shutil.rmtree(model)
    assert train(run, rows=make_sentences(20), resume=True).finished


def test_other_settings_or_other_text_are_not_resumed(make_run) -> None:
    train(make_run(), rows=make_sentences(20))
    with pytest.raises(ConfigError, match=r"temperature: 0\.05 then, 0\.1 now"):
        train(make_run(temperature=0.1), rows=make_sentences(20), resume=True)
    with pytest.raises(ConfigError, match="not the text"):
        train(make_run(), rows=make_sentences(20, seed=7), resume=True)
    # Which rows there are is seen by their content, however they are read.
    assert train(make_run(skip_bad_rows=True), rows=make_sentences(20), resume=True).finished


def test_a_failing_save_leaves_the_previous_checkpoint_whole(make_run, monkeypatch) -> None:
    run = make_run(steps=6, save_every=2)
    real, calls = checkpoint.save_file, []

    def fail_second(tensors, path) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", fail_second)
    with pytest.raises(OutputError, match=r"step-00000004: No space left .* --resume .*step-00000002 is whole"):
        train(run, rows=make_sentences(20))
    assert [folder.name for folder in (Path(run.output) / "checkpoints").iterdir()] == ["step-00000002"]
    assert train(run, rows=make_sentences(20), resume=True).steps == 6


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 800 kB: room for one checkpoint of the tiny model, not for two."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounting.returncode:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_leaves_the_previous_checkpoint_whole(make_run, small_disk, monkeypatch) -> None:
    monkeypatch.setattr(checkpoint, "check_room", lambda *_, **__: None)
    run = make_run(output=str(small_disk / "out"), steps=6, save_every=2)
    with pytest.raises(OutputError) as caught:
        train(run, rows=make_sentences(20))
    checkpoints = small_disk / "out/checkpoints"
    assert [folder.name for folder in checkpoints.iterdir()] == ["step-00000002"]
    assert Encoder.load(checkpoints / "step-00000002").encode(["a dog"]).shape == (1, 32)
    message = str(caught.value)
    assert message.startswith(f"cannot write {checkpoints / 'step-00000004'}: No space left on device: ")
    assert re.search(r"[\d.]+ kB are free, and about [\d.]+ kB more are needed\. Free space, then .*--resume", message)
    assert message.endswith("step-00000002 is whole.")


def test_a_full_disk_is_found_before_the_first_step(make_run, monkeypatch) -> None:
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    events = []
    with pytest.raises(OutputError, match=r"a disk with 0 bytes free, and this run needs about 1\.\d MB"):
        train(make_run(), rows=make_sentences(20), on_event=events.append)
    assert events == []


def test_a_folder_that_cannot_be_written_to_is_found_before_the_first_step(make_run, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"Not a directory|File exists"):
        train(make_run(output=str(tmp_path / "file" / "out")), rows=make_sentences(20))
    with pytest.raises(OutputError, match="cannot write"):
        train(make_run(output="/proc/out"), rows=make_sentences(20))


def test_generators_come_back(tmp_path) -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(()).item()

    random.gauss(0, 1), np.random.randn()  # each leaves a second number waiting
    device = torch.device("cpu")
    save_file(checkpoint.random_tensors([{}, take_states(device)]), tmp_path / "states.safetensors")
    drawn = draw()
    restore_states(checkpoint.random_states(load_file(tmp_path / "states.safetensors"), 1), device)
    assert draw() == drawn


def test_a_run_that_began_on_a_gpu_goes_on_without_one() -> None:
    device = torch.device("cpu")
    states = take_states(device) | {"gpu": torch.zeros(16, dtype=torch.uint8)}
    drawn = torch.rand(())
    restore_states(states, device)
    assert torch.rand(()) == drawn


def test_a_run_that_stopped_early_stays_stopped(make_run) -> None:
    scores = iter([0.0, 0.9, 0.8])
    run = make_run(steps=9, eval_every=1, patience=1)
    first = train(run, rows=make_sentences(20), evaluate=lambda _: next(scores))
    again = train(run, rows=make_sentences(20), evaluate=lambda _: next(scores), resume=True)
    assert (first.steps, first.reason) == (again.steps, again.reason) == (2, "early stop")


def test_scores_survive_a_resume(make_run) -> None:
    run = make_run(steps=4, eval_every=2, save_every=2)

    def interrupt(event) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    first = train(run, rows=make_sentences(20), evaluate=spread, on_event=interrupt)
    second = train(run, rows=make_sentences(20), evaluate=spread, resume=True)
    assert first.before == second.before != {}
    assert torch.isfinite(torch.tensor(second.best["score"]))


@pytest.mark.parametrize("when", ["the last step", "the model is written"])
def test_a_signal_that_comes_too_late_to_stop_is_not_lost(make_run, when, monkeypatch) -> None:
    """The model is complete, and whoever trains several in turn learns that no other is wanted."""

    def interrupt(event) -> None:
        last = isinstance(event, Stepped) and event.step == 4 and when == "the last step"
        if last or (isinstance(event, Saved) and when != "the last step"):
            os.kill(os.getpid(), signal.SIGINT)

    result = train(make_run(steps=4), rows=make_sentences(20), on_event=interrupt)
    assert (result.reason, result.finished, result.interrupted) == ("finished", True, True)
    assert (result.output / "model.safetensors").is_file()
    assert not train(make_run(steps=4), rows=make_sentences(20), overwrite=True).interrupted


def test_the_room_of_checkpoints_that_are_there_counts_as_free(make_run, tmp_path, monkeypatch) -> None:
    """A disk on which the run just fits has less free space once there is a checkpoint; it fits all the same."""
    parameters = sum(parameter.numel() for parameter in Encoder.load(make_run().model, pooler="cls").model.parameters())
    needed = 4 * parameters * 10
    run = make_run(steps=6, pooler="cls")

    def usage(_: object) -> object:
        written = sum(path.stat().st_size for path in Path(run.output).glob("checkpoints/*/*") if path.is_file())
        return shutil._ntuple_diskusage(needed, written, needed - written)

    monkeypatch.setattr(checkpoint.shutil, "disk_usage", usage)

    def interrupt(event) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    assert train(run, rows=make_sentences(20), on_event=interrupt).reason == "interrupted"
    assert usage(None).free < needed
    assert train(run, rows=make_sentences(20), resume=True).finished


def test_a_refused_run_leaves_no_new_folder(make_run, tmp_path) -> None:
    with pytest.raises(ConfigError, match="needs training text"):
        train(make_run(output=str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_a_refused_run_that_may_overwrite_takes_nothing_away(make_run, tmp_path) -> None:
    run = make_run(steps=1, keep_checkpoints=1)
    train(run, rows=make_sentences(9))
    for resume in (False, True):
        with pytest.raises(InputError):
            train(run.replace(data=str(tmp_path / "missing.txt"), seed=7), resume=resume, overwrite=True)
        with pytest.raises(ModelError):
            train(run.replace(model=str(tmp_path / "missing")), rows=make_sentences(8), resume=resume, overwrite=True)
    assert checkpoint.newest(Path(run.output)) is not None
    assert (Path(run.output) / "result.json").is_file()
    train(run.replace(seed=7), rows=make_sentences(9), overwrite=True)
    assert Run.read(checkpoint.newest(Path(run.output)) / "run.json").seed == 7

"""What a run finds damaged, removed, in use or finished: it goes on from what is whole, or says which file is not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.training.tiny_runs import make_sentences, spread, train_and_wait, train_in_process

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError, OutputError, TrainingError
from twinpass.files import sha256
from twinpass.log import Saved, Started, Stepped, read_log
from twinpass.training import checkpoint
from twinpass.training.loop import train

ROWS = make_sentences(20)
FIELDS = {"steps": 6, "save_every": 2, "eval_every": 3}


class KilledError(Exception):
    pass


def stop_at(step: int) -> Callable[[Any], None]:
    def stop(event: Any) -> None:
        if isinstance(event, Stepped) and event.step == step:
            raise KilledError

    return stop


@pytest.fixture(scope="module")
def stopped(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that died in its fifth step, with checkpoints of steps 2 and 4; the hash of the model it would become."""
    home = tmp_path_factory.mktemp("stopped")
    run = Run(model=str(tiny), batch_size=8, device="cpu", learning_rate=1e-3, **FIELDS)
    with pytest.raises(KilledError):
        train(run.replace(output=str(home / "run")), rows=ROWS, evaluate=spread, on_event=stop_at(5))
    whole = train(run.replace(output=str(home / "whole")), rows=ROWS, evaluate=spread)
    return home / "run", sha256(whole.output / "model.safetensors")


@pytest.fixture
def out(stopped: tuple[Path, str], tmp_path: Path) -> Path:
    return shutil.copytree(stopped[0], tmp_path / "out")


@pytest.fixture
def go_on(make_run, stopped: tuple[Path, str], out: Path) -> Callable[..., Started]:
    """Resume the stopped run, check that its model is the right one, and return its first event."""

    def resume(**options: Any) -> Started:
        events: list[Any] = []
        result = train(make_run(**FIELDS), rows=ROWS, evaluate=spread, on_event=events.append, resume=True, **options)
        assert sha256(result.output / "model.safetensors") == stopped[1]
        return events[0]

    return resume


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def false_step(path: Path) -> None:
    path.write_text(path.read_text().replace('"step": 4', '"step": 3'))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


DAMAGES = {
    "model.safetensors": flip,
    "trainer.safetensors": flip,
    "progress.json": false_step,
    "manifest.json": lambda path: flip(path, 40),
    "run.json": cut,
    "tokenizer.json": Path.unlink,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(go_on, out: Path, name: str) -> None:
    DAMAGES[name](out / "checkpoints/step-00000004" / name)
    with pytest.warns(UserWarning, match=rf"step-00000004/{name} .*Resuming from .*step-00000002"):
        assert go_on().first_step == 2


def test_a_cut_trainer_file_and_no_other_checkpoint_is_an_error_with_a_remedy(go_on, out: Path) -> None:
    cut(out / "checkpoints/step-00000004/trainer.safetensors")
    flip(out / "checkpoints/step-00000002/model.safetensors")
    with pytest.raises(InputError, match=r"step-00000004/trainer.*step-00000002/model.*--overwrite"):
        go_on()
    with pytest.warns(UserWarning, match=r"trainer.safetensors is damaged.* starts at the beginning"):
        assert go_on(overwrite=True).first_step == 0


def test_a_damaged_best_model_is_not_kept(go_on, make_run, out: Path) -> None:
    flip(out / "checkpoints/best-00000003/model.safetensors")
    with pytest.warns(UserWarning, match=r"best-00000003/model.safetensors is damaged"):
        assert go_on().first_step == 2  # which knows of no best model yet

    def damage_best(event: Any) -> None:
        if isinstance(event, Stepped) and event.step == 5:
            flip(out / "checkpoints/best-00000003/model.safetensors")

    scores = iter([0.0, 2.0, 1.0])
    run = make_run(**FIELDS)
    with pytest.raises(OutputError, match=r"best-00000003/model.safetensors is damaged.*--overwrite"):
        train(run, rows=ROWS, evaluate=lambda _: next(scores), on_event=damage_best, overwrite=True)


def test_a_good_checkpoint_is_not_given_up_for_a_damaged_one(make_run) -> None:
    """The newest is read again before the one before it goes."""
    run = make_run(steps=8, save_every=2)
    output = Path(run.output)
    names: list[list[str]] = []

    def look(event: Any) -> None:
        if type(event).__name__ == "Saved":
            names.append(sorted(folder.name[-1] for folder in (output / "checkpoints").iterdir()))
            if event.step == 4:
                flip(output / "checkpoints/step-00000004/model.safetensors")

    train(run, rows=ROWS, on_event=look)
    assert names == [["2"], ["2", "4"], ["2", "6"], ["6", "8"]]


def test_as_many_checkpoints_stay_as_are_asked_for(make_run) -> None:
    run = make_run(steps=6, save_every=1, keep_checkpoints=3)
    output = train(run, rows=ROWS).output
    assert sorted(folder.name[-1] for folder in (output / "checkpoints").iterdir()) == ["4", "5", "6"]
    none = train(run.replace(keep_checkpoints=0), rows=ROWS, resume=True)
    assert none.steps == 6 and not (output / "checkpoints").exists()


def test_a_finished_run_is_not_trained_again(make_run) -> None:
    run, events = make_run(), []
    first = train(run, rows=ROWS, evaluate=lambda _: float("nan"))
    again = train(run, rows=ROWS, resume=True, on_event=events.append)
    assert events == [] and "nothing was trained" in again.advice
    assert (again.steps, again.loss, again.finished, again.output) == (4, first.loss, True, first.output)
    with pytest.raises(ConfigError, match=r"seed: 42 then, 7 now"):
        train(run.replace(seed=7), rows=ROWS, resume=True)
    flip(first.output / "model.safetensors")
    with pytest.raises(OutputError, match=r"model.safetensors is not the model .*--overwrite"):
        train(run, rows=ROWS, resume=True)
    flip(first.output / "result.json", 200)
    with pytest.raises(OutputError, match=r"result.json is damaged.*--overwrite"):
        train(run, rows=ROWS, resume=True)
    (first.output / "result.json").unlink()
    with pytest.raises(OutputError, match=r"neither a checkpoint to resume from nor the result"):
        train(run, rows=ROWS, resume=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train(run, rows=ROWS, resume=True, overwrite=True).finished


@pytest.mark.parametrize("damage", [Path.unlink, cut, lambda path: flip(path, 0)], ids=["removed", "cut", "flipped"])
def test_a_damaged_log_does_not_stop_a_resume(go_on, out: Path, damage) -> None:
    if damage is cut:  # what was logged after the checkpoint is of no use anyway
        content = (out / "log.jsonl").read_bytes()
        (out / "log.jsonl").write_bytes(content[: content.index(b'"step": 2') + 3])
    else:
        damage(out / "log.jsonl")
    first = go_on()
    assert first.first_step == 4 and "log.jsonl was removed, cut or damaged" in " ".join(first.notes)
    steps = [step for step, _ in read_log(out).loss]
    assert steps == ([1, 5, 6] if damage is cut else [5, 6])


def test_two_trainings_into_one_folder_are_refused(make_run, children) -> None:
    run = make_run(**FIELDS)
    reached = children.Event()
    other = children.Process(target=train_and_wait, args=(run, ROWS, reached))
    other.start()
    assert reached.wait(timeout=600)
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(OutputError, match=rf"out is locked by another process \(process {other.pid} on "):
            train(run, rows=ROWS, **options)
    other.kill()
    other.join()
    # The lock died with its process, though its file is still there.
    assert (Path(run.output) / ".lock").is_file()
    result = train(run, rows=ROWS, resume=True)
    assert result.steps == 6 and not (result.output / ".lock").exists()


def test_a_refused_training_leaves_the_folder_that_another_took_meanwhile(make_run, monkeypatch) -> None:
    """Both find no folder; the other has locked it, and trains, before this one asks for the lock."""
    run = make_run()

    def other_is_first(path: Path, **_: Any) -> None:
        (path.parent / "log.jsonl").write_text("{}\n")
        raise OutputError(f"{path.parent} is locked by another process.")

    with monkeypatch.context() as patch:
        patch.setattr("twinpass.training.setup.locked", other_is_first)
        with pytest.raises(OutputError, match="is locked"):
            train(run, rows=ROWS)
    assert (Path(run.output) / "log.jsonl").is_file()
    fresh = run.replace(output=str(Path(run.output).with_name("fresh")))
    with pytest.raises(ConfigError, match="needs training text"):
        train(fresh)
    assert not Path(fresh.output).exists(), "a folder of its own is removed"


@pytest.mark.parametrize(
    ("damaged", "advice"),
    [
        ([], r"Go on with .*--resume .*step-00000004 is whole"),
        ([4], r"Go on with .*--resume .*step-00000002 is whole"),
        ([2, 4], r"Start again with --overwrite .*no checkpoint is whole"),
    ],
)
def test_only_a_checkpoint_that_is_whole_is_called_so(make_run, damaged: list[int], advice: str) -> None:
    run = make_run(**FIELDS)

    def fail(event: Any) -> None:
        if isinstance(event, Stepped) and event.step == 5:
            for step in damaged:
                flip(checkpoint.folder_of(Path(run.output), "step", step) / "model.safetensors")
            raise OutputError("cannot write it.")

    with pytest.raises(OutputError, match=rf"cannot write it\. {advice}"):
        train(run, rows=ROWS, on_event=fail)


def test_a_diverged_run_names_no_damaged_checkpoint(make_run) -> None:
    run = make_run(learning_rate=1e30, save_every=1)

    def damage(event: Any) -> None:
        if isinstance(event, Saved):
            flip(Path(event.folder) / "trainer.safetensors")

    with pytest.raises(TrainingError, match=r"at step 2, (.|\n)*There is no good checkpoint"):
        train(run, rows=ROWS, on_event=damage)


def test_two_threads_of_one_process_are_refused_too(make_run) -> None:
    run, refusals = make_run(), []

    def second(event: Any) -> None:
        if isinstance(event, Started):
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()

    def attempt() -> None:
        try:
            train(run, rows=ROWS, overwrite=True)
        except OutputError as error:
            refusals.append(str(error))

    assert train(run, rows=ROWS, on_event=second).finished
    assert len(refusals) == 1 and "is locked by another process" in refusals[0]


def test_what_is_refused_in_one_process_is_refused_in_all(make_run, children, tmp_path: Path) -> None:
    """The main process alone looks at the folder; the other does not wait for it in vain."""
    run = make_run(**FIELDS)
    (Path(run.output)).mkdir()
    (Path(run.output) / "model.safetensors").touch()
    pair = [
        children.Process(target=train_in_process, args=(run, ROWS, rank, 2, str(tmp_path / "meeting")))
        for rank in range(2)
    ]
    for child in pair:
        child.start()
    for child in pair:
        child.join(timeout=600)
    assert [child.exitcode for child in pair] == [1, 1]


def test_the_step_that_was_scored_is_the_one_that_is_shown(make_run) -> None:
    run = make_run(steps=9, eval_every=2)
    with pytest.raises(KilledError):
        train(run.replace(save_every=3), rows=ROWS, evaluate=spread, on_event=stop_at(4))
    events: list[Any] = []

    def interrupt(event: Any) -> None:
        events.append(event)
        if isinstance(event, Stepped) and event.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    result = train(run.replace(save_every=3), rows=ROWS, evaluate=spread, on_event=interrupt, resume=True)
    assert (result.steps, result.last_step) == (5, 4)
    assert result.grids()[0].columns[-1] == "last (step 4)"


def test_the_starting_model_is_kept_if_nothing_is_better(make_run, tiny: Path) -> None:
    scores = iter([5.0, 3.0, 4.0, 5.0, 3.0, 4.0])
    run = make_run(steps=4, eval_every=2, pooler="cls", learning_rate=0.05)
    worse = train(run, rows=ROWS, evaluate=lambda _: next(scores))
    assert (worse.best_step, worse.best) == (4, {"score": 4.0})
    kept = train(run.replace(keep_start=True), rows=ROWS, evaluate=lambda _: next(scores), overwrite=True)
    assert (kept.best_step, kept.best, kept.last) == (0, {"score": 5.0}, {"score": 4.0})
    assert "The best was at step 0" in (kept.output / "README.md").read_text()
    start = Encoder.load(tiny, pooler="cls", device="cpu")
    assert (Encoder.load(kept.output, device="cpu").encode(["a dog"]) == start.encode(["a dog"])).all()


def test_tracking_without_a_dev_set_is_refused_before_the_model_is_loaded(make_run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="track_geometry needs a dev set"):
        train(make_run(track_geometry=1, model=str(tmp_path / "no-such-model")), rows=ROWS)
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_lists_every_file(stopped: tuple[Path, str]) -> None:
    for folder in (stopped[0] / "checkpoints").iterdir():
        listed = json.loads((folder / "manifest.json").read_text())["files"]
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == {*listed, "manifest.json"} and checkpoint.damage(folder) is None

"""`twinpass.sweep`: every combination and seed once, resumed, shared, and compared."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import statistics
from pathlib import Path

import pytest
from filelock import FileLock
from safetensors.torch import load_file, save_file
from tests.tiny import WORDS, make_checkpoint

from twinpass import Run, sweep
from twinpass.analysis.drawing import LIGHT
from twinpass.encoder.folder import hash_folder
from twinpass.errors import Busy, ConfigError, ModelError, TrainingError, UserError
from twinpass.files import sha256
from twinpass.log import Event, Saved, Started
from twinpass.recipes.measures import best_setting
from twinpass.training import sweep as sweeping
from twinpass.training.sweep import combinations, parse_grid, plan, rank, run_all
from twinpass.workflows.sweep import Sweep, _draw, _labels
from twinpass.workflows.train import train

GRID = {"learning_rate": [1e-4, 3e-3], "batch_size": [4, 8]}
SCORES = ([90.0, math.nan], [50.0, 51.0], [math.nan, math.nan])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("sweep") / "tiny")


@pytest.fixture
def base(tiny: Path, dev: Path, tmp_path: Path, monkeypatch) -> Run:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{a} {b} {c}\n" for a, b, c in zip(WORDS, WORDS[3:], WORDS[7:], strict=False)))
    output = str(tmp_path / "runs")
    return Run(data=str(text), model=str(tiny), dev=str(dev), output=output, steps=2, device="cpu", seed=5)


def test_every_combination_and_seed_is_a_run_and_the_best_mean_comes_first(base) -> None:
    found = sweep(base, GRID, seeds=2)
    folders = [path for path in Path(base.output).iterdir() if path.is_dir()]
    assert len(folders) == 8 and len(found.scores) == 4
    means = [statistics.fmean(scores) for _, scores in found.scores]
    assert means == sorted(means, reverse=True) and all(len(scores) == 2 for _, scores in found.scores)
    of_best = [path for path in folders if all(f"{n}={v:g}" in path.name for n, v in found.best.items())]
    assert found.best_model in of_best and len(of_best) == 2
    assert Run.read(found.best_model / "run.json").learning_rate == found.best["learning_rate"]
    low, high = found.interval
    assert low <= max(found.scores[0][1]) <= high
    document = json.loads((Path(base.output) / "sweep.json").read_text())
    assert document["best"] == dict(found.best) and document["versions"] and len(document["settings"]) == 4
    assert document["data"][1] == {"source": base.dev, "fingerprint": sha256(Path(base.dev))}
    weights = sha256(found.best_model / "model.safetensors")
    assert all(setting["seeds"] == [5, 6] and len(setting["scores"]) == 2 for setting in document["settings"])
    first, second = found.scores[0][1]
    assert f"5: {first:.2f}, 6: {second:.2f}" in repr(found)
    page = (Path(base.output) / "sweep.html").read_text()
    assert "learning_rate" in page and "<svg" in page and found.protocol in page
    assert all(hash in page for hash in (weights, *(each["fingerprint"] for each in document["data"])))
    assert f"over 2 seeds; its best model has dev score {max(first, second):.2f} (95 % interval" in page
    assert f"5: {first:.2f}, 6: {second:.2f}" in page
    assert "over batch_size, one line for each learning_rate. The thin dotted line" in page and "Bars are" in page
    assert "best model:" in repr(found) and found.to_pandas().shape[0] == 4


def test_finished_runs_are_found_again_and_a_wider_grid_adds_to_them(base) -> None:
    first = sweep(base, {"learning_rate": [1e-4]})
    weights = first.best_model / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    said: list[str] = []
    events: list[Event] = []
    second = sweep(base, {"learning_rate": [1e-4, 3e-3]}, log=said.append, on_event=events.append)
    score = f"{first.scores[0][1][0]:.2f}"
    assert said[1:3] == [f"run 1 of 2: {first.best_model.name}", f"  already finished: {score}"]
    assert sum(line.startswith("dev: ") for line in said) == 1 and sum("already" in line for line in said) == 1
    (started,) = (event for event in events if isinstance(event, Started))
    assert started.notes == (), "a run that never started has nothing to resume"
    page = (Path(base.output) / "sweep.html").read_text()
    assert f"dev score {second.best_score:.2f} (95 % interval" in page and "seeds" not in page.split("<section")[0]
    assert "one line for each" not in page and "Bars are" not in page
    assert dict(first.scores[0][0]) in [dict(values) for values, _ in second.scores]
    assert weights.stat().st_mtime_ns == stamp, "it was not trained again"
    sweep(base.replace(steps=3), {"learning_rate": [1e-4]})
    assert sum(path.is_dir() for path in Path(base.output).iterdir()) == 3, "another run has another folder"


def test_runs_are_found_again_by_their_hash_however_the_grid_is_written(base, tmp_path) -> None:
    first = sweep(base.replace(batch_size=4), {"learning_rate": [1e-4]})
    first.best_model.rename(first.best_model.with_name(f"mine-{first.best_model.name.rpartition('-')[2]}"))
    sweep(base, {"learning_rate": [1e-4], "batch_size": [8]})
    said: list[str] = []
    found = sweep(base, {"batch_size": [4, 8], "learning_rate": [1e-4]}, log=said.append)
    assert sum("already finished" in line for line in said) == 2 and sum("found as" in line for line in said) == 2
    folders = [path for path in Path(base.output).iterdir() if path.is_dir()]
    assert len(folders) == 2 and found.best_model in folders


def test_of_several_folders_with_one_hash_the_finished_one_is_found(base) -> None:
    (trial,) = plan(base, {"batch_size": [4]}, seeds=1)
    assert trial.begun() is trial
    finished = trial.folder.with_name(f"seed=5-{trial.digest}")
    for folder in (trial.folder, finished, trial.folder.with_name(f"a-{trial.digest}")):
        folder.mkdir(parents=True)
    assert trial.begun().folder == trial.folder
    (finished / "result.json").write_text("{}")
    assert trial.begun().folder == finished


def test_the_same_run_under_another_name_is_worked_on_once(base) -> None:
    """The lock is on the hash, and the folder is looked up under it: it may be made by the process before."""
    (first,), (second,) = (
        plan(base, grid, seeds=1) for grid in ({"batch_size": [4], "steps": [2]}, {"steps": [2], "batch_size": [4]})
    )
    assert first.folder != second.folder and first.lock == second.lock
    lock = FileLock(first.lock)
    Path(base.output).mkdir()
    lock.acquire()
    said: list[str] = []

    def free(message: str) -> None:
        said.append(message)
        if "postponed" in message:
            first.folder.mkdir()
            lock.release()

    (tried,) = run_all([second], lambda run: _result(run), log=free)
    assert tried.trial.folder == first.folder and not second.folder.exists()


def test_equal_scores_are_ranked_by_the_grid_and_not_by_who_finished_first(base, monkeypatch) -> None:
    """Another process works on the first run, so this one ends it last; both must show the same."""
    monkeypatch.setattr("twinpass.workflows.sweep._train", lambda run, **_: _result(run))
    monkeypatch.setattr("twinpass.workflows.sweep._interval", lambda *_: (0.0, 2.0))
    monkeypatch.setattr("twinpass.workflows.sweep.made_from", lambda _: [])
    grid = {"batch_size": [8, 4]}
    best = plan(base, grid, seeds=2)[0]
    lock = FileLock(best.lock)
    Path(base.output).mkdir()
    lock.acquire()
    found = sweep(base, grid, seeds=2, log=lambda message: lock.release() if "postponed" in message else None)
    assert [values for values, _ in found.scores] == [{"batch_size": 8}, {"batch_size": 4}]
    assert found.best_model == best.folder


def test_what_another_process_works_on_comes_last(base) -> None:
    trials = plan(base, {"batch_size": [4, 8]}, seeds=1)
    Path(base.output).mkdir()
    lock = FileLock(trials[0].lock)
    lock.acquire()
    said: list[str] = []
    finished = run_all(trials, lambda run: _result(run), log=said.append)
    assert next(finished).trial is trials[1] and any("postponed" in line for line in said)
    lock.release()
    assert next(finished).trial is trials[0]


def test_a_lock_that_a_run_meets_inside_is_told_and_not_waited_for(base) -> None:
    trials = plan(base, {"batch_size": [4]}, seeds=1)

    def locked_inside(run):
        raise Busy("the output folder is locked by another process.")

    with pytest.raises(Busy, match="the output folder is locked"):
        list(run_all(trials, locked_inside))


def test_another_dev_set_or_start_under_the_same_name_is_another_sweep(base, tmp_path) -> None:
    mine = base.replace(dev=str(tmp_path / "my-dev.csv"), model=str(tmp_path / "start"))
    shutil.copy(base.dev, mine.dev)
    shutil.copytree(base.model, mine.model)
    names = [plan(mine, {"batch_size": [4]}, seeds=1)[0].folder.name for _ in range(2)]
    with Path(mine.dev).open("a") as stream:
        stream.write("\n")
    names.append(plan(mine, {"batch_size": [4]}, seeds=1)[0].folder.name)
    (Path(mine.model) / "model.safetensors").write_bytes(b"other weights")
    names.append(plan(mine, {"batch_size": [4]}, seeds=1)[0].folder.name)
    assert names[0] == names[1] and len({*names}) == 3


@pytest.mark.parametrize("form", ["csv:{}/dev.csv", "{}", "{}/*.csv"])
def test_a_dev_set_and_a_start_are_known_by_all_their_files(base, tiny, tmp_path, form) -> None:
    folder = tmp_path / "devs"
    folder.mkdir()
    shutil.copy(base.dev, folder / "dev.csv")
    start = shutil.copytree(tiny, tmp_path / "start")
    run = base.replace(dev=form.format(folder), model=str(start))

    def names() -> set[str]:
        return {trial.folder.name for trial in plan(run, {"batch_size": [4]}, seeds=1)}

    before = names()
    (start / "checkpoints").mkdir()
    (start / "checkpoints" / "step-1").write_text("not loaded")
    assert names() == before
    (start / "0_Transformer").mkdir()
    (start / "0_Transformer" / "model.safetensors").write_text("other weights")
    other_start = names()
    (folder / "dev.csv").write_text((folder / "dev.csv").read_text() + "a,b,3\n")
    assert len(before | other_start | names()) == 3


def test_a_start_is_not_known_by_what_trainings_write_into_its_folder(base, tiny, tmp_path) -> None:
    """The start is a run's folder, the sweep's output lies in it, and so does another training."""
    start = tmp_path / "start"
    train(base.replace(output=str(start)))
    mine = base.replace(model=str(start), output=str(start / "runs"), pooler=None)
    grid = {"batch_size": [4]}

    def name() -> str:
        return plan(mine, grid, seeds=1)[0].folder.name

    before, before_all = name(), hash_folder(start)
    sweep(mine, grid)
    train(base.replace(output=str(start / "again")), report=False)
    (start / "tensorboard").mkdir()
    for written in ("tensorboard/events.out", "report.html", "log.jsonl", "README.md", "result.json", "sweep.html"):
        (start / written).write_text("written again")
    assert name() == before and hash_folder(start) != before_all
    said: list[str] = []
    sweep(mine, grid, log=said.append)
    assert sum("already finished" in line for line in said) == 1
    (start / "twinpass.json").write_text((start / "twinpass.json").read_text() + "\n")
    assert name() != before


def test_all_files_of_a_folder_that_no_training_made_count(base, tiny, tmp_path) -> None:
    start = shutil.copytree(tiny, tmp_path / "start")
    (start / "README.md").write_text("a card")
    assert sweeping._model_content(str(start)) == hash_folder(start) != hash_folder(tiny)


def test_a_text_is_known_by_its_content_wherever_it_lies(base, tmp_path, monkeypatch) -> None:
    """So files may move, and changed text is never mixed with what was trained on the old one."""

    def name(run: Run) -> str:
        return plan(run, {"batch_size": [4]}, seeds=1)[0].folder.name

    first = name(base)
    monkeypatch.chdir(tmp_path)
    relative = base.replace(data="text.txt", model=os.path.relpath(base.model), tensorboard=True)
    assert name(relative) == first
    with (tmp_path / "text.txt").open("a") as stream:
        stream.write("one more sentence\n")
    assert name(relative) != first


def test_teachers_and_generators_are_known_by_their_files(base, tiny, tmp_path) -> None:
    """Another model under the same name is another run; the same files at another place are the same one."""

    def name(**changes) -> str:
        return plan(base.replace(**changes), {"batch_size": [4]}, seeds=1)[0].folder.name

    for number, changes in enumerate(
        ({"method": "rankcse", "teacher": "MODEL"}, {"method": "diffcse", "generator": "MODEL"})
    ):
        one, moved = tmp_path / f"one{number}", tmp_path / f"moved{number}"
        given = {field: str(one) if value == "MODEL" else value for field, value in changes.items()}
        shutil.copytree(tiny, one)
        first = name(**given)
        shutil.copytree(one, moved)
        elsewhere = {field: str(moved) if value == str(one) else value for field, value in given.items()}
        assert name(**elsewhere) == first
        (one / "model.safetensors").write_bytes(b"other weights")
        assert name(**given) != first
    with pytest.raises(UserError, match="no/such/teacher"):
        name(method="rankcse", teacher="./no/such/teacher")


def test_parts_of_a_mixture_are_known_by_content_and_share(base, tmp_path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("one sentence more\nand another one\n")
    (tmp_path / "moved").mkdir()
    moved = shutil.copy(more, tmp_path / "moved" / "more.txt")

    def name(part: str) -> str:
        return plan(base.replace(mixture=(part,)), {"batch_size": [4]}, seeds=1)[0].folder.name

    first = name(str(more))
    assert name(str(moved)) == first and name(f"{more}:0.5") != first and name(f"{more} positive=delete:10") != first
    more.write_text("another text\nand another one\n")
    assert name(str(more)) != first


@pytest.mark.parametrize("changes", [{"data": "-"}, {"data": "txt:-"}, {"dev": "csv:-"}])
def test_a_sweep_does_not_read_standard_input(base, changes) -> None:
    with pytest.raises(ConfigError, match=r"standard input can be read once\. Use a file"):
        sweep(base.replace(**changes), {"batch_size": [4]})


def test_a_long_value_makes_no_name_that_is_too_long(base, tiny, tmp_path) -> None:
    start = tmp_path / ("a" * 100) / ("b" * 100) / "start"
    shutil.copytree(tiny, start)
    names = ["x" * 60 + str(n) for n in range(5)]
    grid = {"model": [str(start)], "columns": [(name,) for name in names], "template": [None]}
    folders = [trial.folder.name for trial in plan(base, grid, seeds=1)]
    assert len({*folders}) == 5 and max(map(len, folders)) < 255 and folders[0].startswith("model=")


def test_names_of_folders_are_limited_in_bytes(base) -> None:
    grid = {"template": ["[MASK] [X] " + "文" * 40], "second_template": ["[MASK] [X] " + "句" * 40]}
    (trial,) = plan(base.replace(method="promptbert"), grid, seeds=1)
    assert len(trial.folder.name.encode()) < 200 and trial.folder.name.startswith("template=文")
    trial.folder.mkdir(parents=True)


@pytest.mark.parametrize("grid", [{"pooler": ["cls", "avgg"]}, {"model": ["BASE", "/no/such/model"]}])
def test_a_value_that_cannot_be_is_refused_before_the_first_run(base, grid) -> None:
    grid = {name: [base.model if value == "BASE" else value for value in values] for name, values in grid.items()}
    with pytest.raises(UserError, match=r"avgg|/no/such/model"):
        sweep(base, grid)
    assert not Path(base.output).exists()


@pytest.mark.filterwarnings("error:constrained_layout not applied")  # labels that leave no room
def test_a_run_that_is_refused_later_leaves_the_others_their_table(base, tmp_path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(base.model, broken)
    (broken / "model.safetensors").write_bytes(b"no weights")
    said: list[str] = []
    found = sweep(base, {"model": [base.model, str(broken)]}, log=said.append)
    assert found.best == {"model": base.model} and "5: failed" in repr(found)
    assert any(line.startswith("  failed: ") and "broken" in line for line in said)
    with pytest.raises(UserError, match="broken"):  # the first run: nothing is lost
        sweep(base, {"model": [str(broken), base.model], "batch_size": [4]})


def test_a_run_that_was_stopped_is_resumed_and_one_without_a_checkpoint_says_so(base) -> None:
    stopped, early = (trial.run for trial in plan(base.replace(save_every=1), {"batch_size": [4, 8]}, seeds=1))

    def stop(event: Event) -> None:
        if isinstance(event, Saved):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(stopped, on_event=stop, report=False)
    Path(early.output).mkdir()
    (Path(early.output) / "run.json").write_text("{}")  # killed before its first checkpoint
    events: list[Event] = []
    sweep(base.replace(save_every=1), {"batch_size": [4, 8]}, on_event=events.append)
    resumed, again = (event for event in events if isinstance(event, Started))
    assert resumed.first_step == 1 and not any("no checkpoint" in note for note in resumed.notes)
    assert again.first_step == 0 and any("no checkpoint to resume from" in note for note in again.notes)


def test_an_interrupted_run_stops_the_sweep(base) -> None:
    trials = plan(base, {"batch_size": [4, 8]}, seeds=1)
    with pytest.raises(KeyboardInterrupt):
        list(run_all(trials, lambda run: _result(run, reason="interrupted")))


def test_a_run_that_fails_does_not_end_the_sweep(base) -> None:
    said: list[str] = []
    grid = {"learning_rate": [1e30, 1e-4]}
    found = sweep(base.replace(steps=4), grid, seeds=2, log=said.append)
    assert found.best == {"learning_rate": 1e-4} and "5: failed, 6: failed" in repr(found)
    assert sum("failed: the " in line for line in said) == 2
    document = json.loads((Path(base.output) / "sweep.json").read_text())
    assert [setting["scores"] for setting in document["settings"]][1] == [None, None]
    assert "failed" in (Path(base.output) / "sweep.html").read_text()
    with pytest.raises(TrainingError, match=r"has a dev score: all 1 failed\. Try lower learning rates"):
        sweep(base.replace(steps=4), {"learning_rate": [1e30]})


def test_a_start_without_a_score_is_blamed_only_if_training_does_not_repair_it(base, tmp_path) -> None:
    """The last layer's scale is zero, so all texts have one vector: a stationary point of SimCSE, but not of mlm."""
    flat = tmp_path / "flat"
    shutil.copytree(base.model, flat)
    weights = load_file(flat / "model.safetensors")
    weights["encoder.layer.2.output.LayerNorm.weight"].zero_()
    save_file(weights, flat / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TrainingError, match=r"The starting model scores NaN, too.*its weights, its tokenizer"):
        sweep(base.replace(model=str(flat)), {"batch_size": [4]})
    found = sweep(base.replace(model=str(flat), method="mlm", learning_rate=1e-3), {"batch_size": [8, 16]})
    assert math.isnan(found.before) and math.isfinite(found.best_score)
    assert "the starting model has no score" in repr(found)
    assert "dotted line" not in (Path(base.output) / "sweep.html").read_text()


def test_the_start_is_shown_only_where_all_runs_have_the_same(base) -> None:
    found = sweep(base, {"pooler": ["cls", "avg"], "batch_size": [4, 8]})
    assert found.before is None and "the starting models of the runs have different scores" in repr(found)
    assert found.to_dict()["before"] is None and not _dotted(found)
    assert "dotted line" not in (Path(base.output) / "sweep.html").read_text()
    same = sweep(base.replace(pooler="avg"), {"batch_size": [4, 8]})
    assert f"the starting model scores {same.before:.2f}" in repr(same) and len(_dotted(same)) == 1
    fresh = sweep(base.replace(pooler="cls_mlp"), {"batch_size": [4]}, seeds=2)
    assert fresh.before is None, "each seed has an MLP of its own"


def test_the_start_of_a_run_that_failed_counts(base) -> None:
    found = sweep(base.replace(steps=4), {"pooler": ["cls", "avg"], "learning_rate": [1e-4, 1e30]})
    assert found.before is None and repr(found).count("5: failed") == 2
    (trial, *_) = plan(base.replace(steps=4), {"learning_rate": [1e30], "pooler": ["cls"]}, seeds=1)
    log = trial.begun().folder / "log.jsonl"
    assert sweeping._start_in_log(log.parent) is not None
    log.write_text("not JSON")
    assert sweeping._start_in_log(log.parent) is sweeping._start_in_log(log.parent / "none") is None


def test_a_start_that_needs_trust_is_trusted_to_the_end(base, tiny, tmp_path) -> None:
    start = shutil.copytree(tiny, tmp_path / "start")
    config = json.loads((start / "config.json").read_text())
    (start / "config.json").write_text(json.dumps(config | {"mine": {"attn_implementation": "of/mine"}}))
    grid = {"batch_size": [4]}
    with pytest.raises(ModelError, match="--trust-remote-code"):
        sweep(base.replace(model=str(start)), grid)
    found = sweep(base.replace(model=str(start), trust_remote_code=True), grid)
    assert "of/mine" in (found.best_model / "config.json").read_text()
    assert found.interval[0] <= found.best_score <= found.interval[1]


def test_a_comma_in_the_name_of_the_dev_file_keeps_the_interval(base, tmp_path) -> None:
    dev = shutil.copy(base.dev, tmp_path / "dev,1.csv")
    found = sweep(base.replace(dev=str(dev)), {"batch_size": [4]})
    assert found.interval[0] <= found.best_score <= found.interval[1]


def test_the_table_is_there_without_an_interval(base, monkeypatch) -> None:
    def refuse(*_, **__):
        document = json.loads((Path(base.output) / "sweep.json").read_text())
        assert len(document["settings"]) == 2, "it is written before"
        raise ModelError("there is no model")

    monkeypatch.setattr("twinpass.evaluation.evaluate.evaluate", refuse)
    said: list[str] = []
    found = sweep(base, {"batch_size": [4, 8]}, log=said.append)
    assert said[-1] == "no interval of the best model: there is no model"
    assert f"dev score {found.best_score:.2f} (no interval)" in repr(found)
    assert json.loads((Path(base.output) / "sweep.json").read_text())["interval"] == [None, None]
    assert "(no interval)" in (Path(base.output) / "sweep.html").read_text()


def test_the_picture_has_a_line_for_every_setting_in_the_order_of_numbers(base) -> None:
    end = "/a/long/path/that/ends/alike"
    grid = {"model": [f"one{end}", f"two{end}"], "batch_size": [128, 64], "learning_rate": [3e-5, 1e-5]}
    scores = [(values, [float(number)]) for number, values in enumerate(combinations(grid))]
    nan = math.nan
    found = Sweep(
        grid=grid, scores=scores, seeds=[1], before=nan, protocol="", best_model=Path("best"), interval=(nan, nan)
    )
    (axes,) = _draw(found, LIGHT).axes
    lines, labels = axes.get_legend_handles_labels()
    assert labels == [
        f"model {number}: .../path/that/ends/alike, batch_size {size}" for number in (1, 2) for size in (64, 128)
    ]
    assert [list(line[0].get_ydata()) for line in lines] == [[3, 2], [1, 0], [7, 6], [5, 4]]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1e-05", "3e-05"]


def test_long_values_are_shown_by_their_ends() -> None:
    assert _labels([None, "x" * 30]) == {None: "None", "x" * 30: "..." + "x" * 21}
    assert _labels([None, "None"]) == {None: "1: None", "None": "2: None"}


def test_a_run_without_a_dev_score_failed(base) -> None:
    (trial,) = plan(base, {"batch_size": [4]}, seeds=1)
    nothing = dataclasses.replace(_result(trial.run), best={}, before={"score": math.nan})
    (tried,) = run_all([trial], lambda run: nothing)
    assert math.isnan(tried.score)


def test_a_setting_of_which_a_run_failed_is_behind_the_others() -> None:
    lucky, steady, none = SCORES
    assert sorted([steady, none, lucky], key=rank) == [none, lucky, steady]


def test_table_a1_ranks_settings_as_a_sweep_does() -> None:
    def search(*scores: float | None) -> dict[str, object]:
        settings = combinations({"learning_rate": [1e-5], "batch_size": [64, 128, 256]})
        return {"grid": [values | {"stsb": score} for values, score in zip(settings, scores, strict=True)]}

    assert best_setting([search(90.0, 50.0, 50.0), search(None, 51.0, 51.0)])["batch_size"] == 128
    assert best_setting([search(90.0, None, 50.0), search(None, 51.0, None)])["batch_size"] == 64
    assert all(map(math.isnan, best_setting([search(None, None, None)]).values()))


def test_several_processes_are_refused(base, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"a sweep trains in one process.*without torchrun"):
        sweep(base, GRID)


def _dotted(found: Sweep) -> list[object]:
    (axes,) = _draw(found, LIGHT).axes
    return [line for line in axes.get_lines() if line.get_linestyle() == ":"]


def _result(run: Run, reason: str = "finished"):
    from twinpass.log import Result

    Path(run.output).mkdir(parents=True, exist_ok=True)
    scores = {"score": 1.0}
    return Result(
        output=Path(run.output),
        reason=reason,
        steps=2,
        loss=0.1,
        before=scores,
        best=scores,
        last=scores,
        provenance={"data": []},
    )


def test_a_grid_is_read_by_the_types_of_its_fields() -> None:
    grid = parse_grid(["learning-rate=1e-5,3e-5", "batch_size=64", "dropout=none,0.2", "pooler=cls,avg"])
    assert grid == {"learning_rate": [1e-5, 3e-5], "batch_size": [64], "dropout": [None, 0.2], "pooler": ["cls", "avg"]}
    assert parse_grid(["keep_duplicates=true,false"]) == {"keep_duplicates": [True, False]}
    assert combinations({"a": [1, 2], "b": "xy"}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["learning_rate"], "expected NAME=VALUE"),
        (["lerning_rate=1"], "Did you mean 'learning_rate'"),
        (["seed=1,2"], "Use --seeds N, from --seed on"),
        (["dev=a,b"], "the same for every run"),
        (["batch_size=many"], "batch_size: expected a whole number, got 'many'"),
        (["batch_size=4", "batch_size=8"], "given twice"),
    ],
)
def test_a_grid_that_cannot_be_read_is_refused(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_grid(options)


def test_a_sweep_needs_a_dev_set_and_something_to_vary(base) -> None:
    with pytest.raises(ConfigError, match="pass --dev"):
        sweep(base.replace(dev=None), GRID)
    with pytest.raises(ConfigError, match="something to vary"):
        sweep(base, {})
    with pytest.raises(ConfigError, match="different values"):
        sweep(base, {"batch_size": [4, 4]})
    with pytest.raises(ConfigError, match="batch_size"):
        sweep(base, {"batch_size": [-1]})
    with pytest.raises(ConfigError, match=r"needs an output folder.*Run\(output=\.\.\.\)"):
        sweep(base.replace(output=""), GRID)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"learning_rate": 1e-5}, "learning_rate: expected a list .*, got 1e-05. Put a single value into a list"),
        ({"columns": [["0"], ["1"]]}, "columns: expected a list .* got .*as a tuple"),
        ({"pooler": "cls"}, "pooler: expected a list .*, got 'cls'"),
        ({"batch_size": {4, 8}}, "batch_size: expected a list"),
        ({"batch_size": []}, "batch_size: expected a list of one or more different values"),
        ({4: [8]}, "cannot vary 4"),
        (["batch_size=4"], "something to vary"),
    ],
)
def test_a_grid_in_python_that_is_none_is_refused(base, grid, message) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep(base, grid)


@pytest.mark.parametrize("seeds", ["2", 2.0, True, 0])
def test_seeds_are_a_whole_number(base, seeds) -> None:
    with pytest.raises(ConfigError, match="seeds: expected a whole number, 1 or more, got"):
        sweep(base, GRID, seeds=seeds)

"""The log of a run is read back as curves, and its result prints its scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinpass.errors import InputError
from twinpass.files import DiskFull
from twinpass.log import Evaluated, LogWriter, Result, Stepped, Tracked, has_log, read_log


def stepped(step: int) -> Stepped:
    numbers = dict.fromkeys(
        ("loss", "learning_rate", "gradient_norm", "negatives", "sentences_per_second", "seconds_left", "epoch"), 0.5
    )
    return Stepped(step=step, steps=9, mlm_loss=None, masked=0, **numbers)


def test_what_is_written_is_read_back_as_curves(tmp_path: Path) -> None:
    assert not has_log(tmp_path)
    log = LogWriter(tmp_path, length=0)
    for event in (
        Evaluated(step=0, score=float("nan"), scores={"score": float("nan"), "pearson": 2.0}, best=False),
        stepped(1),
        Tracked(step=1, alignment=0.25, uniformity=-2.0),
        stepped(2),
    ):
        log.write(event)
    log.close()
    found = read_log(tmp_path)
    assert has_log(tmp_path) and found.name == str(tmp_path)
    assert (found.loss, found.dev, found.geometry) == ([(1, 0.5), (2, 0.5)], [(0, {"pearson": 2.0})], [(1, 0.25, -2.0)])


def test_a_damaged_or_missing_log_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_log(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"event": "stopped"}\n{"eve')
    with pytest.raises(InputError, match=r"log.jsonl:2: expected a line of JSON"):
        read_log(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_names_the_log_and_closing_it_hides_nothing(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, length=0)
    log.stream.close()
    log.stream = Path("/dev/full").open("ab")  # noqa: SIM115 - the log closes it
    with pytest.raises(DiskFull, match=r"cannot write .*log\.jsonl: No space left on device: .* are free"):
        log.write(stepped(1))
    log.close()


def test_an_event_of_another_form_is_reported_with_its_line(tmp_path: Path) -> None:
    for line in ('{"event": "evaluated", "step": 2}', '{"event": "stepped", "step": "x"}', "5"):
        (tmp_path / "log.jsonl").write_text(line + "\n")
        with pytest.raises(InputError, match=r"log.jsonl:1: expected an event"):
            read_log(tmp_path)


def test_a_result_that_was_only_scored_before_shows_that() -> None:
    result = Result(output=Path("out"), reason="interrupted", steps=1, loss=0.1, before={"score": 1.0})
    assert result.grids()[0].columns == ("score", "before")


def test_a_result_prints_its_scores() -> None:
    scores = {"before": {"score": 1.0}, "best": {"score": 3.0}, "last": {"score": 2.0, "mrr": 5.0}}
    result = Result(output=Path("out"), reason="finished", steps=4, loss=0.1, best_step=2, protocol="made up", **scores)
    (grid,) = result.grids()
    assert (grid.title, grid.columns) == ("made up", ("score", "before", "best (step 2)", "last (step 4)"))
    assert grid.rows == [("score", "1.000", "3.000", "2.000"), ("mrr", "-", "-", "5.000")]
    assert "best (step 2)" in repr(result) and "<table>" in result._repr_html_()
    assert result.to_dict()["last"] == scores["last"] and result.to_dict()["output"] == "out"


def test_a_result_without_a_dev_set_says_so() -> None:
    result = Result(output=Path("out"), reason="finished", steps=4, loss=0.125)
    assert repr(result) == "4 steps in 0 s, last loss 0.1250; no dev set, so nothing was scored"
    assert result.records() == []

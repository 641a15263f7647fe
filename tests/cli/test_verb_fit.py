"""`twinpass fit`: a layer fitted to the user's sentences, saved with the model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import SENTENCES, WORDS

from twinpass.encoder.encoder import Encoded, Encoder
from twinpass.encoder.layers import FITS, with_layer
from twinpass.errors import OutputError

LINES = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[11:], strict=False)]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Some hundred sentences, the first ten of them twice."""
    path = tmp_path / "in" / "lines.txt"
    path.parent.mkdir()
    path.write_text("\n".join(LINES + LINES[:10]) + "\n", encoding="utf-8")
    return path


def test_the_model_is_saved_with_its_layer(run, model, lines, tmp_path):
    out = tmp_path / "white"
    ran = run("fit", "whitening", lines, "-m", model, "-o", out, "--keep", 12, "--json")
    assert ran.code == 0, ran.err
    fitted = Encoder.load(out, device="cpu")
    encoder = Encoder.load(model, device="cpu")
    expected = with_layer(encoder, FITS["whitening"](encoder.encode(list(dict.fromkeys(LINES))), keep=12))
    np.testing.assert_allclose(fitted.encode(SENTENCES), expected.encode(SENTENCES), atol=1e-3)
    document = json.loads(ran.out)
    assert document["model"] == {"name": model, "fingerprint": Encoder.load(model).fingerprint}
    assert document["output_fingerprint"] == fitted.fingerprint and document["output"] == str(out)
    assert document["options"]["layer"] == "whitening" and document["options"]["keep"] == 12
    assert document["sentences"] == len(set(LINES))
    before, after = document["before"], document["after"]
    assert (before["dimensions"], after["dimensions"]) == (32, 12)
    assert after["uniformity"] < before["uniformity"] and after["largest_share"] < before["largest_share"]
    assert after["largest_share"] == pytest.approx(1 / 12, abs=0.06)
    assert json.loads((out / "fit.json").read_text()) == document


@pytest.mark.parametrize("layer", ["flow", "centring", "top-components"])
def test_every_layer_and_what_people_see(run, model, lines, tmp_path, layer: str):
    ran = run("fit", layer, lines, "-m", model, "-o", tmp_path / "out", "--seed", 3)
    assert ran.code == 0, ran.err
    assert f"{layer} fitted to {len(set(LINES))} sentences of {lines} -> {tmp_path / 'out'}" in ran.err
    assert "uniformity (Eq. 3)" in ran.out and "largest eigenvalue, % of trace" in ran.out
    assert ("sentence-transformers cannot load this model" in ran.err) is (layer == "flow")
    assert Encoder.load(tmp_path / "out", device="cpu").encode("a dog").shape == (32,)


def test_what_is_there_is_replaced_only_where_a_fit_wrote_it(run, model, lines, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    arguments = ("fit", "centring", lines, "-m", model, "-o", out)
    assert run(*arguments).code == 0  # an empty folder is no loss
    first = (out / "fit.json").read_bytes()
    ran = run(*arguments)
    assert ran.code == 2 and "--overwrite" in ran.err and (out / "fit.json").read_bytes() == first

    def fail(*_: object) -> None:
        raise OutputError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "save", fail)
        assert run(*arguments, "--overwrite").code == 2
    assert (out / "fit.json").read_bytes() == first and len(list(tmp_path.iterdir())) == 2
    assert run("fit", "flow", lines, "-m", model, "-o", out, "--overwrite").code == 0
    assert (
        (out / "3_Flow").is_dir()
        and not (out / "3_Dense").exists()
        and "OnlyTwinpass" in (out / "modules.json").read_text()
    )
    for foreign in (shutil.copytree(model, tmp_path / "mine"), lines):
        ran = run("fit", "centring", lines, "-m", model, "-o", foreign, "--overwrite")
        assert ran.code == 2 and "was not written by fit" in ran.err


def test_a_sample_is_drawn_by_the_seed(run, model, lines, tmp_path):
    drawn = []
    for number, seed in enumerate((1, 1, 2)):
        out = tmp_path / str(number)
        ran = run("fit", "centring", lines, "-m", model, "-o", out, "--sample", 40, "--seed", seed, "--json")
        found = json.loads(ran.out)
        assert found["sentences"] <= 40
        drawn.append(found["output_fingerprint"])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["whitenign"], ["no layer to fit named 'whitenign'", "Did you mean 'whitening'?"]),
        (["flow", "--keep", 8], ["flow does not take 'keep'"]),
        (["whitening", "--keep", 64], ["between 1 and 32 dimensions, not 64"]),
    ],
)
def test_wrong_wishes_leave_nothing(run, model, lines, tmp_path, arguments: list[object], words: list[str]):
    ran = run("fit", *arguments, lines, "-m", model, "-o", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "") and all(word in ran.err for word in words), ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_too_few_sentences(run, model, lines, tmp_path, monkeypatch):
    lines.write_text("a dog\n" * 5)
    ran = run("fit", "whitening", lines, "-m", model, "-o", tmp_path / "out")
    assert ran.code == 2 and "at least two different sentences" in ran.err
    lines.write_text("".join(f"{line}\n" for line in LINES[:6]))
    ran = run("fit", "whitening", lines, "-m", model, "-o", tmp_path / "out")
    assert ran.code == 0 and "only 6 sentences" in ran.err and "320 or more are advised" in ran.err
    assert Encoder.load(tmp_path / "out", device="cpu").dimensions == 5
    nans = np.full((6, 32), np.nan, dtype=np.float32)
    monkeypatch.setattr(Encoder, "encode_stream", lambda self, texts: [Encoded(texts, nans, [])])
    ran = run("fit", "flow", lines, "-m", model, "-o", tmp_path / "nan")
    assert ran.code == 2 and "6 of 6 vectors hold a non-finite value" in ran.err
    assert not (tmp_path / "nan").exists()

"""fit(): a layer fitted to sentences and saved with the model, in one call."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import SENTENCES, WORDS, make_checkpoint

from twinpass import Encoder, open_corpus
from twinpass.errors import ConfigError, OutputError
from twinpass.workflows.fit import fit

LINES = [" ".join(words) for words in zip(WORDS, WORDS[3:], WORDS[11:], strict=False)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(make_checkpoint(tmp_path_factory.mktemp("tiny") / "model"), pooler="avg", device="cpu")


def test_a_list_a_file_and_a_corpus_are_the_same_data(encoder, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join([*LINES, LINES[0]]) + "\n", encoding="utf-8")
    bars: list[tuple[str, int | None]] = []

    def progress(what: str, *, total: int | None = None):
        from twinpass.progress import silent

        bars.append((what, total))
        return silent(what, total=total)

    found = [
        fit(encoder, "whitening", data, output=tmp_path / str(place), keep=8, progress=progress)
        for place, data in enumerate((iter([*LINES, LINES[0]]), path, open_corpus(path)))
    ]
    assert len({each.output_fingerprint for each in found}) == 1 and found[0].sentences == len(LINES)
    assert found[0].after.dimensions == 8 and found[0].after.uniformity < found[0].before.uniformity
    assert bars[:2] == [("encoding", len(LINES)), ("fitting whitening", len(LINES))]
    assert json.loads((tmp_path / "1" / "fit.json").read_text()) == found[1].to_dict()
    assert found[1].to_dict()["data"][0]["source"] == str(path) and found[0].to_dict()["data"][0]["fingerprint"] is None
    assert "uniformity (Eq. 3)" in repr(found[0]) and "<table>" in found[0]._repr_html_()
    loaded = Encoder.load(tmp_path / "2", device="cpu")
    assert loaded.fingerprint == found[2].output_fingerprint and loaded.encode(SENTENCES).shape == (len(SENTENCES), 8)


def test_a_model_by_name_takes_options_of_load_and_a_sample(encoder, tmp_path: Path) -> None:
    lines: list[str] = []
    found = fit(
        encoder.name,
        "centring",
        LINES,
        output=tmp_path / "out",
        sample=20,
        pooler="cls",
        device="cpu",
        log=lines.append,
    )
    assert found.sentences == 20 and found.to_dict()["options"]["pooler"] == "cls"
    assert lines[0].startswith("loading ") and lines[1].startswith("centring fitted to 20 sentences")
    again = fit(encoder.name, "centring", LINES, output=tmp_path / "b", sample=20, pooler="cls", device="cpu")
    assert again.output_fingerprint == found.output_fingerprint
    np.testing.assert_array_equal(
        Encoder.load(tmp_path / "out").encode("a dog"), Encoder.load(tmp_path / "b").encode("a dog")
    )


def test_mistakes_are_found_before_any_work(encoder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="flow does not take 'keep'"):
        fit("no/such/model", "flow", LINES, output=tmp_path / "out", keep=3)
    with pytest.raises(ConfigError, match=r"pooler: options of Encoder\.load need a model by name"):
        fit(encoder, "flow", LINES, output=tmp_path / "out", pooler="cls")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="was not written by fit"):
        fit(encoder, "flow", LINES, output=tmp_path / "mine", overwrite=True)

"""`analyze` as a Python user calls it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import WORDS, make_checkpoint

from twinpass.analysis.analyze import analyze
from twinpass.analysis.models import parse_variants
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.layers import fit_whitening, whiten
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.files import sealed
from twinpass.text.corpus import open_corpus
from twinpass.vectors import unit

PAIRS = [(f"{WORDS[i]} {WORDS[i + 1]}", f"{WORDS[i + i % 5]} {WORDS[i + 1]} dog", 5 - i % 6) for i in range(40)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1,sentence2,score\n" + "".join(f"{a},{b},{score}\n" for a, b, score in PAIRS))
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


def letters(texts: Sequence[str]) -> np.ndarray:
    return np.array([[text.count(letter) + 0.1 for letter in "abcdefgh"] for text in texts], dtype=np.float32)


def test_names_encoders_and_functions_beside_each_other(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(tiny, pooler="avg", device="cpu")
    said: list[str] = []
    models = [f"{tiny}#label=by name", f"{tiny}#layers=1,label=lowest", encoder, letters]
    shown = {"query": ["a dog"], "neighbours": 2}
    found = analyze(
        models, data=pairs, output=tmp_path / "report", **shown, pooler="avg", device="cpu", log=said.append
    )
    assert [each.name for each in found.models] == ["by name", "lowest", encoder.name, "letters"]
    by_name, lowest, same, function = found.models
    assert by_name.geometry == same.geometry and by_name.fingerprint == same.fingerprint
    assert lowest.geometry != by_name.geometry and function.fingerprint is None and function.dimensions == 8
    assert [len(near) for near in found.neighbours.comparisons[0].by_model.values()] == [2] * 4
    assert "letters" in repr(found) and "<table>" in found._repr_html_()
    assert found.records()[3]["uniformity"] == function.geometry.uniformity
    assert found.to_dict() == json.loads((tmp_path / "report" / "analysis.json").read_text())
    assert found.to_dict()["options"]["models"] == [*models[:2], encoder.name, "letters"]
    assert any("the report is" in line for line in said)


def test_nothing_is_written_without_an_output(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    found = analyze(letters, data=pairs, cache=False)
    assert set(tmp_path.iterdir()) == before
    found.write(tmp_path / "later")
    assert (tmp_path / "later" / "index.html").is_file()


def test_a_mapping_names_its_models(pairs: Path) -> None:
    found = analyze({"plain": letters, "squared": lambda texts: letters(texts) ** 2}, data=pairs, sample=20)
    assert [each.name for each in found.models] == ["plain", "squared"]
    assert found.sample.rows == 10 and found.neighbours is not None
    with pytest.raises(ConfigError, match="two models are named 'letters'"):
        parse_variants([letters, letters])


def test_an_empty_sample_is_refused(pairs: Path) -> None:
    with pytest.raises(InputError, match="2 or more sentences, got 0"):
        analyze(letters, data=pairs, sample=0)


def test_one_model_without_a_query_does_not_encode_the_corpus(pairs: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("never encoded\n")

    def encode(texts: Sequence[str]) -> np.ndarray:
        assert "never encoded" not in texts
        return letters(texts)

    assert analyze(encode, data=pairs, corpus=corpus).neighbours is None


def test_whitening_is_fitted_to_the_sample_and_applied_to_the_corpus(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    others, query = [" ".join(WORDS[i : i + 4]) for i in range(5)], " ".join(WORDS[2:7])
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(others) + "\n")
    white = {"white": f"{tiny}#whiten=8,pooler=avg"}
    found = analyze(white, data=pairs, corpus=corpus, query=[query], neighbours=5, device="cpu")
    encoder = Encoder.load(tiny, pooler="avg", device="cpu")
    whitening = fit_whitening(encoder.encode(found.sample.texts), keep=8)
    vectors = unit(whiten(encoder.encode([query, *others]), whitening))
    near = found.neighbours.comparisons[0].by_model["white"]
    assert {each.text: each.cosine for each in near} == pytest.approx(
        dict(zip(others, vectors[1:] @ vectors[0], strict=True)), abs=1e-4
    )


def test_vectors_that_cannot_be_measured_are_refused(pairs: Path) -> None:
    with pytest.raises(ModelError, match=r"returned an array of shape \(3, 8\)"):
        analyze(lambda texts: letters(texts)[:3], data=pairs)

    def broken(texts: Sequence[str]) -> np.ndarray:
        return np.where(np.arange(len(texts))[:, None] == 3, np.nan, letters(texts))

    with pytest.raises(ModelError, match="NaN or infinity for 1 of"):
        analyze(broken, data=pairs)


def test_average_scores_of_a_result_colour_the_models(pairs: Path) -> None:
    from twinpass.display import Displayed

    class Result(Displayed):
        def to_dict(self) -> dict[str, object]:
            score = {"protocol": "all, spearman, no regressor", "value": 61.5}
            return {"model": {"name": "letters", "fingerprint": None}, "averages": [score]}

    assert analyze(letters, data=pairs, results=[Result()]).averages == {"letters": 61.5}


def test_a_result_file_that_was_damaged_is_refused(pairs: Path, tmp_path: Path) -> None:
    score = {"protocol": "all, spearman, no regressor", "value": 61.5}
    document = sealed({"model": {"name": "letters", "fingerprint": None}, "averages": [score]})
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document))
    assert analyze(letters, data=pairs, results=[path]).averages == {"letters": 61.5}
    path.write_text(json.dumps(document).replace("61.5", "71.5"))
    with pytest.raises(InputError, match="its checksum does not match"):
        analyze(letters, data=pairs, results=[path])


def test_the_folder_of_stsb_stands_for_its_three_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's figures take all of STS-B, and no other file beside its three."""
    folder = tmp_path / "STSBenchmark"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        rows = [f"genre\tfile\t2012\t{n}\t{4 + n}.0\ta {split}\tb {split} {n}\n" for n in range(2)]
        (folder / f"sts-{split}.csv").write_text("".join(rows))
    content = open_corpus(str(folder / "sts-*.csv")).fingerprint()
    for other in ("LICENSE.txt", "sts-mt.csv"):
        (folder / other).write_text("some words\n")
    monkeypatch.setattr("twinpass.analysis.analyze.MOST_TEXTS", 2)  # a sample would be smaller
    found = analyze({"letters": letters}, data=folder, neighbours=0)
    assert found.models[0].geometry.positives == 3 and found.sample.rows == 6
    assert found.sample.protocol == "STS-B, three splits, 9 distinct sentences, 3 positives"
    assert found.sample.source == f"{folder} (sts-dev.csv, sts-test.csv, sts-train.csv)"
    assert found.data_fingerprint == content and found.grids()[0].title == found.sample.protocol
    captions = [each.caption for each in found.figures()]
    assert all("STS-B, three splits, 9 distinct sentences, 3 positives." in caption for caption in captions)
    assert "over 3 positive pairs (score above 4), uniformity over all pairs of sentences." in captions[0]


def test_all_of_stsb_has_the_counts_of_the_protocol(shared: Path) -> None:
    """1,491 positives in three splits, 208 of them in dev, as the authors of the paper count them."""
    folder = shared / "data" / "senteval" / "downstream" / "STS" / "STSBenchmark"
    whole = analyze({"letters": letters}, data=folder, neighbours=0, cache=False)
    assert whole.models[0].geometry.positives == 1_491
    assert whole.sample.protocol == "STS-B, three splits, 15,437 distinct sentences, 1,491 positives"
    dev = analyze({"letters": letters}, data=folder / "sts-dev.csv", neighbours=0, cache=False)
    assert dev.models[0].geometry.positives == 208


def test_a_text_too_long_for_a_name_is_no_folder_of_stsb() -> None:
    with pytest.raises(InputError, match=r"no file x+\."):
        analyze(letters, data="x" * 5_000, neighbours=0)


def test_splits_of_stsb_that_are_missing_are_not_claimed(tmp_path: Path) -> None:
    for split in ("test", "dev"):
        (tmp_path / f"sts-{split}.csv").write_text("".join(f"g\tf\t2012\t{n}\t{n}.0\ta {n}\tb {n}\n" for n in range(6)))
    said: list[str] = []
    analyze(letters, data=tmp_path, neighbours=0, cache=False, log=said.append)
    assert "analysing STS-B, dev and test only, 12 distinct sentences, 2 positives" in said
    (tmp_path / "sts-test.csv").unlink()
    part = analyze(letters, data=tmp_path, neighbours=0, cache=False, sample=6)
    assert part.sample.protocol.startswith("STS-B, dev only, 6 distinct sentences, ")
    assert part.sample.protocol.endswith(", a sample of 3 of 6 rows")
    (tmp_path / "sts-test.csv").write_text("only\nsentences\nhere\n")
    with pytest.raises(InputError, match=r"sts-dev.csv, sts-test.csv in .* differ in their columns"):
        analyze(letters, data=tmp_path)

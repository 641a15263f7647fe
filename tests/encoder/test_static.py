"""Static models: pooling against a loop, the table's recipe, folders of ours and of model2vec, damage, no torch."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import SENTENCES

import twinpass
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import Settings
from twinpass.encoder.static import FEW, Static, read_static, save_static, silent_ids
from twinpass.encoder.token_table import count_tokens, make_table, reduce, token_vectors, zipf_shares
from twinpass.errors import ConfigError, InputError, ModelError

TEXTS = [*SENTENCES, " ", "the " * 300, "[CLS] the cat [SEP]", "\n\tcat"]


@pytest.fixture(scope="module")
def teacher(model: str) -> Encoder:
    return Encoder.load(model, device="cpu")


@pytest.fixture(scope="module")
def static(teacher: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static") / "student"
    folder.mkdir()
    table, made = make_table(teacher, SENTENCES, dimensions=8)
    settings = Settings(pooler="avg", layers=("normalize",))
    source = {"name": teacher.name, "fingerprint": teacher.fingerprint}
    save_static(folder, table, teacher.tokens.rules(), settings, source=source, made=made)
    return folder


def naive_pool(static: Static, ids: list[int]) -> list[float]:
    known = [token for token in ids if token not in static.silent.tolist()]
    total = [sum(float(static.table[token][k]) for token in known) for k in range(static.table.shape[1])]
    mean = [value / max(len(known), 1) for value in total]
    length = math.sqrt(sum(value * value for value in mean)) if static.normalize else 1.0
    return [value / length if length else 0.0 for value in mean]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("count", [5, FEW + 50])
def test_pooling_is_a_loop_over_tokens(count: int, normalize: bool) -> None:
    draw = np.random.default_rng(0)
    table = draw.normal(size=(20, 6)).astype(np.float32)
    table[[0, 3]] = 0
    static = Static(table=table, silent=np.array([0, 3]), normalize=normalize)
    ids = [draw.integers(20, size=draw.integers(1, 9)).tolist() for _ in range(count)]
    ids[1] = [0, 3, 3]
    wanted = np.array([naive_pool(static, each) for each in ids])
    np.testing.assert_allclose(static.pool(ids), wanted, atol=1e-6)
    assert not static.pool(ids)[1].any()
    padded = {"input_ids": np.zeros((2, 9), np.int64), "attention_mask": np.zeros((2, 9), np.int64)}
    for place, each in enumerate(ids[:2]):
        padded["input_ids"][place, : len(each)], padded["attention_mask"][place, : len(each)] = each, 1
    with static.session() as forward:
        np.testing.assert_allclose(forward(padded), wanted[:2], atol=1e-6)


def test_the_table_is_the_recipe(teacher: Encoder) -> None:
    table, made = make_table(teacher, SENTENCES, dimensions=8, rarity=1e-2)
    vocabulary, silent = len(table), [0, 1, 2, 3, 4]
    alone = teacher.encode_ids([[2, token, 3] for token in range(vocabulary)])
    kept = np.array([row for token, row in enumerate(alone) if token not in silent], dtype=np.float64)
    _, singular, axes = np.linalg.svd(kept - kept.mean(axis=0))
    counts = np.zeros(vocabulary)
    for text in SENTENCES:
        for token in teacher.tokenize([text])[0]:
            counts[token] += token not in silent
    for token in range(vocabulary):
        weight = 1e-2 / (1e-2 + counts[token] / counts.sum())
        wanted = weight * (axes[:8] @ (alone[token] - kept.mean(axis=0)))
        np.testing.assert_allclose(np.abs(table[token]), np.abs(wanted), atol=2e-4)
    assert made["variance_explained"] == pytest.approx((singular[:8] ** 2).sum() / (singular**2).sum())
    assert (made["texts"], made["tokens"]) == (len(SENTENCES), counts.sum())
    assert np.array_equal(count_tokens(teacher, SENTENCES)[0], counts)


def test_a_final_normalisation_of_the_teacher_is_left_out(teacher: Encoder, tmp_path: Path) -> None:
    shutil.copytree(teacher.name, tmp_path / "unit")
    document = json.loads((tmp_path / "unit" / "twinpass.json").read_text())
    (tmp_path / "unit" / "SHA256SUMS").unlink(missing_ok=True)
    (tmp_path / "unit" / "twinpass.json").write_text(json.dumps(document | {"layers": ["normalize"]}))
    unit = Encoder.load(tmp_path / "unit", device="cpu")
    before = unit.encode(SENTENCES)
    np.testing.assert_allclose(token_vectors(unit), token_vectors(teacher), atol=1e-6)
    assert np.array_equal(unit.encode(SENTENCES), before) and np.allclose(np.linalg.norm(before, axis=1), 1)


def test_a_teacher_with_a_template_sees_each_token_in_it(model: str) -> None:
    templated = Encoder.load(model, pooler="mask", device="cpu")
    frame = templated.tokens.frame
    assert frame is not None
    alone = templated.encode_ids([[*frame.before, token, *frame.after] for token in range(templated.vocabulary)])
    np.testing.assert_allclose(token_vectors(templated), alone, atol=1e-6)
    counts, texts = count_tokens(templated, ["the cat"])
    assert (counts.sum(), texts) == (2, 1)  # the template is no part of the text


def test_other_weights_and_what_cannot_be_made(teacher: Encoder) -> None:
    plain, _ = make_table(teacher, [], dimensions=4, weights="none")
    zipf, made = make_table(teacher, [], dimensions=4, weights="zipf", rarity=0.01)
    shares = np.concatenate([np.zeros(5), zipf_shares(len(plain) - 5)])  # the five special tokens have no rank
    np.testing.assert_allclose(zipf, plain * (0.01 / (0.01 + shares))[:, None], rtol=1e-5)
    assert made["weights"] == "zipf" and zipf_shares(5) == pytest.approx(
        np.array([1 / rank for rank in range(2, 7)]) / sum(1 / rank for rank in range(2, 7))
    )
    with pytest.raises(InputError, match="no text to count tokens in"):
        make_table(teacher, [])
    for options in ({"weights": "idf"}, {"rarity": 0.0}, {"dimensions": 0}):
        with pytest.raises(ConfigError):
            make_table(teacher, SENTENCES, **options)


def test_more_dimensions_than_the_teacher_has_are_all_of_them() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(30, 6)).astype(np.float32)
    reduced, explained = reduce(vectors, np.arange(30), 6)
    distances = [np.linalg.norm(each[:, None] - each[None], axis=2) for each in (vectors, reduced)]
    np.testing.assert_allclose(*distances, atol=1e-4)
    assert explained == pytest.approx(1)


def test_it_encodes_as_any_model_does(static: Path) -> None:
    encoder = Encoder.load(static)
    assert (encoder.dimensions, encoder.pooler, encoder.max_tokens) == (8, "avg", None)
    assert (encoder.precision, encoder.runtime_name, str(encoder.device)) == ("fp32", "numpy", "cpu")
    found = read_static(static)
    assert found is not None and encoder.static is not None
    vectors = encoder.encode(TEXTS)
    wanted = [naive_pool(found[0], ids) for ids in encoder.tokenize(TEXTS)]
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    assert not vectors[TEXTS.index("")].any()  # no word, no vector
    np.testing.assert_array_equal(encoder.encode("[CLS] the cat [SEP]"), encoder.encode("the cat"))
    blocks = list(encoder.encode_stream(TEXTS, window=4))
    np.testing.assert_array_equal(np.concatenate([block.vectors for block in blocks]), vectors)
    many = [f"{text} {number}" for number in range(60) for text in TEXTS]
    np.testing.assert_allclose(encoder.encode(many)[:200], encoder.encode(many[:200]), atol=1e-6)
    assert float(encoder.similarity("the cat", "cat the")) == pytest.approx(1)
    assert np.array_equal(pickle.loads(pickle.dumps(encoder)).encode(TEXTS), vectors)


def test_its_vectors_can_be_shortened(static: Path) -> None:
    whole, short = Encoder.load(static), Encoder.load(static, dimensions=3)
    expected = whole.encode(TEXTS)[:, :3]
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(short.encode(TEXTS, normalize=True), expected / np.maximum(lengths, 1e-12), atol=1e-6)
    assert short.dimensions == 3 and short.fingerprint != whole.fingerprint


def test_its_fingerprint_is_that_of_its_content_and_limit(static: Path, tmp_path: Path) -> None:
    shutil.copytree(static, tmp_path / "copy")
    assert Encoder.load(static).fingerprint == Encoder.load(tmp_path / "copy").fingerprint
    assert Encoder.load(static).fingerprint != Encoder.load(static, max_tokens=4).fingerprint
    short = Encoder.load(static, max_tokens=4)
    with pytest.warns(UserWarning, match="longer than 4 tokens"):
        np.testing.assert_array_equal(short.encode("the cat sat on the mat"), short.encode("the cat sat on"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooler": "cls"}, "is a static model: its pooler is avg, not cls"),
        ({"runtime": "openvino"}, "its runtime is numpy, not openvino"),
        ({"precision": "int8"}, "its precision is fp32, not int8"),
        ({"device": "cuda"}, "its device is cpu, not cuda"),
        ({"dropout": 0.1}, "its dropout cannot be set"),
    ],
)
def test_options_that_are_fixed_are_refused(options: dict[str, Any], message: str, static: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        Encoder.load(static, **options)
    assert Encoder.load(static, runtime="auto", precision="fp32", pooler="avg").dimensions == 8


def test_what_needs_a_network_says_what_to_use(static: Path, teacher: Encoder, tmp_path: Path) -> None:
    encoder = Encoder.load(static)
    for ask in (lambda: encoder.model, lambda: encoder.tokenizer, lambda: encoder.save(tmp_path / "saved")):
        with pytest.raises(ModelError, match=f"is a static model, .* made from, {teacher.name}"):
            ask()


def test_model2vec_and_sentence_transformers_load_the_folder(static: Path) -> None:
    ours = Encoder.load(static).encode(TEXTS)
    peer = pytest.importorskip("model2vec").StaticModel.from_pretrained(str(static))
    np.testing.assert_allclose(peer.encode(TEXTS), ours, atol=1e-3)  # it adds up float16
    library = pytest.importorskip("sentence_transformers")
    some = [text for text in TEXTS if text.strip()]
    theirs = library.SentenceTransformer(str(static), device="cpu").encode(some)
    np.testing.assert_allclose(theirs, Encoder.load(static).encode(some), atol=1e-3)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_folder_of_model2vec_loads(normalize: bool, static: Path, tmp_path: Path) -> None:
    model2vec = pytest.importorskip("model2vec")
    peer = model2vec.StaticModel.from_pretrained(str(static), normalize=normalize)
    peer.embedding, folder = peer.embedding.astype(np.float32), tmp_path / "peer"
    peer.save_pretrained(folder)
    np.testing.assert_allclose(Encoder.load(folder).encode(TEXTS), peer.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "is not the file that was saved"),
        (lambda folder: (folder / "twinpass.json").write_text("{"), "cannot read"),
        (
            lambda folder: (folder / "twinpass.json").write_text(
                json.dumps(json.loads((folder / "twinpass.json").read_text()) | {"static": 3})
            ),
            "expected normalize",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*changed since the model was saved")
def test_damage_is_explained(damage: Any, message: str, static: Path, tmp_path: Path) -> None:
    shutil.copytree(static, tmp_path / "damaged")
    damage(tmp_path / "damaged")
    with pytest.raises(ModelError, match=message):
        Encoder.load(tmp_path / "damaged")


def test_silent_tokens_of_other_tokenizers() -> None:
    unigram = {
        "model": {"unk_id": 2, "vocab": [["a", 0.0]]},
        "added_tokens": [{"id": 7, "content": "</s>", "special": True}],
    }
    assert silent_ids(unigram).tolist() == [2, 7] and silent_ids(unigram, special=False).tolist() == [2]
    bytes_ = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": "x", "special": False}]}
    assert silent_ids(bytes_).tolist() == []


def test_encoding_needs_neither_torch_nor_transformers(static: Path) -> None:
    code = (
        "import sys, twinpass\n"
        f"vectors = twinpass.Encoder.load({str(static)!r}).encode(['the cat', *map(str, range(600))])\n"
        "print(vectors.shape, sorted({'torch', 'transformers', 'openvino'} & sys.modules.keys()))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "(601, 8) []\n"


def test_index_search_and_evaluate_take_it(static: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat\nmany people find oil\nwater is in the first part\n")
    index = twinpass.Index.build(tmp_path / "index", str(texts), encoder=str(static))
    assert len(index) == 3
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("question,answer\nthe cat,a cat sat\noil people,people and oil\nfirst water,water first\n")
    found = twinpass.evaluate(str(static), f"retrieval:{pairs}", resamples=0, cache=False)
    assert found.computing == {"precision": "fp32", "runtime": "numpy"}
    assert found.tasks[0].scores[0].value > 50

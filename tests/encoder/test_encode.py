"""What a user may hand to encode, and what comes back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES, WORDS

from twinpass import Encoder
from twinpass.encoder import encoder as room
from twinpass.encoder.encoder import TruncationWarning
from twinpass.errors import ConfigError, InputError


@pytest.fixture(scope="module")
def encoder(checkpoints) -> Encoder:
    return Encoder.load(checkpoints("bert"), pooler="avg")


def test_a_string_gives_a_vector_and_an_empty_list_an_empty_matrix(encoder: Encoder) -> None:
    assert encoder.encode("a dog").shape == (32,)
    assert encoder.encode([]).shape == (0, 32)
    assert encoder.encode([]).dtype == np.float32


def test_the_empty_string_is_a_text(encoder: Encoder) -> None:
    vector = encoder.encode([""])
    assert vector.shape == (1, 32)
    assert np.isfinite(vector).all()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a dog", 7], "expected a string as text 1, got int: 7"),
        (["a dog", None], "expected a string as text 1, got NoneType"),
        ([b"a dog"], "expected a string as text 0, got bytes"),
        (b"a dog", "expected texts, got bytes"),
        (7, "expected texts, got int"),
    ],
)
def test_what_is_not_text_is_refused(encoder: Encoder, texts, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder.encode(texts)


def test_control_characters_are_text_and_lone_surrogates_are_not(encoder: Encoder) -> None:
    assert np.isfinite(encoder.encode(["\x00\x01\x02 dog", "tab\tand\nnewline", "\u200b"])).all()
    with pytest.raises(InputError, match="text 1 holds half a character"):
        encoder.encode(["a dog", "\ud800 dog"])


def test_truncation_is_counted_and_said_once(encoder: Encoder) -> None:
    long = " ".join(WORDS * 3)
    with pytest.warns(TruncationWarning, match="3 of 4 texts are longer than 64 tokens") as caught:
        vectors, truncated = encoder.encode([long, "a dog", long, long], return_truncated=True)
    assert len([w for w in caught if w.category is TruncationWarning]) == 1
    assert truncated == [0, 2, 3]
    with pytest.warns(TruncationWarning, match="3 of 4 texts"):
        blocks = list(encoder.encode_stream([long, "a dog", long, long], window=2))
    assert [block.truncated for block in blocks] == [[0], [0, 1]]
    with pytest.warns(TruncationWarning):
        np.testing.assert_allclose(encoder.encode(long + " and more"), vectors[0], atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encoder.encode("a dog", return_truncated=True)[1] == []


def test_max_tokens_cuts_earlier_and_has_bounds(encoder: Encoder) -> None:
    with pytest.warns(TruncationWarning):
        cut = encoder.encode("the cat sat on the mat", max_tokens=5)
    np.testing.assert_allclose(cut, encoder.encode("the cat sat"), atol=1e-6)
    with pytest.raises(ConfigError, match="at most 64"):
        encoder.encode("a dog", max_tokens=65)
    with pytest.raises(ConfigError, match="at least 3"):
        encoder.encode("a dog", max_tokens=2)


def test_normalize(encoder: Encoder) -> None:
    vectors = encoder.encode(SENTENCES, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


def test_each_distinct_text_is_encoded_once(encoder: Encoder, monkeypatch) -> None:
    asked: list[str] = []
    ids = encoder.tokens.ids
    monkeypatch.setattr(encoder.tokens, "ids", lambda texts, **rest: (asked.extend(texts), ids(texts, **rest))[1])
    monkeypatch.setattr(room, "WINDOW", 3)  # duplicates are found across windows too
    texts = SENTENCES * 3
    vectors = encoder.encode(iter(texts))
    assert sorted(asked) == sorted(set(texts))
    np.testing.assert_allclose(vectors[: len(SENTENCES)], vectors[len(SENTENCES) : 2 * len(SENTENCES)])


def test_an_iterator_is_taken_window_by_window(encoder: Encoder, monkeypatch) -> None:
    monkeypatch.setattr(room, "WINDOW", 4)
    taken = encoded = 0
    most_ahead = 0

    def stream():
        nonlocal taken, most_ahead
        for number in range(20):
            taken += 1
            most_ahead = max(most_ahead, taken - encoded)
            yield f"text {WORDS[number]}"

    encode_ids = encoder.encode_ids

    def counting(ids, **options):
        nonlocal encoded
        encoded += len(ids)
        return encode_ids(ids, **options)

    monkeypatch.setattr(encoder, "encode_ids", counting)
    assert encoder.encode(stream()).shape == (20, 32)
    assert most_ahead <= 5


def test_stream_yields_the_same_vectors_in_blocks(encoder: Encoder) -> None:
    texts = SENTENCES * 3
    blocks = list(encoder.encode_stream(iter(texts), window=5))
    assert [len(block.items) for block in blocks] == [5, 5, 5, 5, 4]
    assert [text for block in blocks for text in block.items] == texts
    np.testing.assert_allclose(np.concatenate([block.vectors for block in blocks]), encoder.encode(texts), atol=1e-5)


def test_a_stream_carries_what_stands_beside_a_text(encoder: Encoder) -> None:
    rows = [{"id": place, "text": text} for place, text in enumerate(SENTENCES)]
    blocks = list(encoder.encode_stream(iter(rows), key=lambda row: row["text"], window=3))
    assert [row["id"] for block in blocks for row in block.items] == list(range(len(rows)))
    np.testing.assert_allclose(
        np.concatenate([block.vectors for block in blocks]), encoder.encode(SENTENCES), atol=1e-5
    )


def test_a_stream_holds_one_window_at_a_time(encoder: Encoder) -> None:
    consumed = 0

    def texts() -> Iterator[str]:
        nonlocal consumed
        for number in range(40):
            consumed += 1
            yield str(number)

    for number, block in enumerate(encoder.encode_stream(texts(), window=8), start=1):
        assert consumed == number * 8 == number * len(block.items)


def test_encoding_leaves_the_model_as_it_was(encoder: Encoder) -> None:
    encoder.model.train()
    state = torch.get_rng_state()
    encoder.encode(SENTENCES * 40)
    assert encoder.model.training
    assert torch.equal(state, torch.get_rng_state())
    encoder.model.eval()


def test_devices_and_precisions_are_checked(checkpoints) -> None:
    folder = checkpoints("bert")
    with pytest.raises(ConfigError, match="no precision named 'fp8'"):
        Encoder.load(folder, pooler="avg", precision="fp8")
    with pytest.raises(ConfigError, match="fp16 needs a GPU"):
        Encoder.load(folder, pooler="avg", precision="fp16", device="cpu")
    with pytest.raises(ConfigError, match="no runtime named 'tpu'"):
        Encoder.load(folder, pooler="avg", runtime="tpu")
    with pytest.raises(ConfigError, match="device 'quantum' cannot be used"):
        Encoder.load(folder, pooler="avg", device="quantum")


@pytest.mark.bf16
def test_bf16_is_near(checkpoints) -> None:
    exact = Encoder.load(checkpoints("bert"), pooler="avg", device="cpu").encode(SENTENCES, normalize=True)
    rough = Encoder.load(checkpoints("bert"), pooler="avg", device="cpu", precision="bf16")
    vectors = rough.encode(SENTENCES, normalize=True)
    assert vectors.dtype == np.float32
    assert (vectors * exact).sum(axis=1).min() > 0.999


def test_a_string_is_not_a_list_of_letters(encoder: Encoder) -> None:
    with pytest.raises(InputError, match="expected texts, got str"):
        list(encoder.encode_stream("a dog"))
    with pytest.raises(InputError, match="a single string"):
        encoder.tokenize("a dog")
    with pytest.raises(ConfigError, match="at least one text"):
        list(encoder.encode_stream(["a dog"], window=0))


def test_truncation_obeys_the_tokenizers_side(checkpoints) -> None:
    encoder = Encoder.load(checkpoints("bert"), pooler="avg")
    encoder.tokenizer.truncation_side = "left"
    with pytest.warns(TruncationWarning, match="only (its|their) end was encoded"):
        cut = encoder.encode("the cat sat on the mat", max_tokens=5)
    np.testing.assert_allclose(cut, encoder.encode("on the mat"), atol=1e-6)


def test_the_progress_bar_moves_on_a_terminal(encoder: Encoder, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert encoder.encode(SENTENCES * 5, progress=True).shape == (40, 32)
    assert encoder.encode(iter(SENTENCES), progress=True).shape == (8, 32)


def test_threads_may_share_an_encoder(encoder: Encoder) -> None:
    from concurrent.futures import ThreadPoolExecutor

    expected = encoder.encode(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: encoder.encode(SENTENCES), range(12)):
            np.testing.assert_allclose(vectors, expected, atol=1e-6)

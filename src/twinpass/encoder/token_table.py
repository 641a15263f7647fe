"""From a teacher to a static student: a vector for every token, reduced by PCA, weighted by how rare the token is.

In the manner of model2vec (Tulkens and van Dongen, 2024). A token's vector is the teacher's for that token alone.
Frequent tokens say little, so each vector is weighted as in SIF (Arora, Liang and Ma, 2017): a / (a + p), p being the
token's share of a text. model2vec takes p from Zipf's law and the token's rank in the vocabulary, which needs no text
but a vocabulary in order of frequency. Shares counted in a text, even in one of another kind, score a little higher and
depend less on a (docs/distill.md).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import NORMALIZE, Settings
from twinpass.encoder.static import POOLER, plain_tokens, silent_ids
from twinpass.errors import ConfigError, InputError
from twinpass.progress import Advance

Vectors = NDArray[np.float32]
Numbers = NDArray[np.float64]

DIMENSIONS = 256
RARITY = 3e-4  # SIF's a; chosen on STS-B's dev set (docs/distill.md)
MOST_COUNTED = 200_000  # texts: more do not change the shares of tokens that are frequent enough to matter
WEIGHTINGS = ("text", "zipf", "none")
_FREE = re.compile(r"\[unused\d+\]")  # BERT's vocabulary has a thousand
_BLOCK = 4_096


def make_table(
    teacher: Encoder,
    texts: Iterable[str],
    *,
    dimensions: int = DIMENSIONS,
    weights: str = "text",
    rarity: float = RARITY,
    advance: Advance = lambda count: None,
) -> tuple[Vectors, dict[str, Any]]:
    """Return the table (tokens, dimensions) of a static student, and what it was made with."""
    if dimensions < 1:
        raise ConfigError(f"expected one dimension or more, got {dimensions}.")
    if weights not in WEIGHTINGS:
        raise ConfigError(f"weights must be one of {', '.join(WEIGHTINGS)}; got {weights!r}.")
    if not 0 < rarity <= 1:
        raise ConfigError(f"rarity (SIF's a) is above 0 and at most 1; got {rarity}.")
    made: dict[str, Any] = {"weights": weights} | ({} if weights == "none" else {"rarity": rarity})
    size = vocabulary_size(teacher)
    kept = used_tokens(teacher)
    shares = np.zeros(size)
    if weights == "zipf":
        shares[kept] = zipf_shares(len(kept))
    if weights == "text":
        counts, counted = count_tokens(teacher, islice(texts, MOST_COUNTED))
        made |= {"texts": counted, "tokens": int(counts.sum())}
        if not made["tokens"]:
            raise InputError("there is no text to count tokens in. Give some, or weight by Zipf's law (weights zipf).")
        shares = counts / counts.sum()
    vectors = token_vectors(teacher, advance=advance)
    reduced, made["variance_explained"] = reduce(vectors, kept, min(dimensions, vectors.shape[1]))
    return (reduced * (rarity / (rarity + shares))[:, None]).astype(np.float32), made


def used_tokens(teacher: Encoder) -> NDArray[np.int64]:
    """Return the ids of the tokens that a text can have: no special tokens, and none that is only kept free."""
    vocabulary = teacher.tokens.tokenizer.backend_tokenizer.get_vocab(with_added_tokens=True)
    ids = np.array(sorted(number for token, number in vocabulary.items() if not _FREE.fullmatch(token)), dtype=np.int64)
    return np.setdiff1d(ids, silent_ids(teacher.tokens.rules()))


def student_settings(teacher: Encoder) -> Settings:
    """Return how a static student of a teacher reads text: whole, without a prompt or template."""
    return Settings(pooler=POOLER, layers=(NORMALIZE,), lowercase=teacher.settings.lowercase)


def vocabulary_size(teacher: Encoder) -> int:
    """Return the number of token ids that the tokenizer can produce."""
    return 1 + int(max(teacher.tokens.tokenizer.backend_tokenizer.get_vocab(with_added_tokens=True).values()))


def token_vectors(teacher: Encoder, *, advance: Advance = lambda count: None) -> Vectors:
    """Return the teacher's vector for every token alone, between its special tokens.

    A final normalisation is left out: how long these vectors are says something about the token.
    """
    before, after = _frame(teacher)
    size = vocabulary_size(teacher)
    with _without_normalisation(teacher):
        blocks = [
            teacher.encode_ids(
                [[*before, token, *after] for token in range(start, min(start + _BLOCK, size))], advance=advance
            )
            for start in range(0, size, _BLOCK)
        ]
    return np.concatenate(blocks)


def _frame(teacher: Encoder) -> tuple[list[int], list[int]]:
    """Return the ids that a text stands between: special tokens, or the teacher's template."""
    if (frame := teacher.tokens.frame) is not None:
        return [*frame.before], [*frame.after]
    encoding = teacher.tokens.tokenizer.backend_tokenizer.encode("a")
    own = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
    if not own:
        return [], []
    return encoding.ids[: own[0]], encoding.ids[own[-1] + 1 :]


@contextlib.contextmanager
def _without_normalisation(teacher: Encoder) -> Iterator[None]:
    """Leave out layers at the end that only scale vectors to length one."""
    from torch import nn

    from twinpass.encoder.model import Normalize

    layers = teacher.model.layers
    end = len(layers)
    while end and isinstance(layers[end - 1], Normalize):
        end -= 1
    teacher.model.layers = nn.Sequential(*list(layers)[:end])
    try:
        yield
    finally:
        teacher.model.layers = layers


def count_tokens(teacher: Encoder, texts: Iterable[str]) -> tuple[Numbers, int]:
    """Return how often each token that counts occurs in the texts, and the number of texts."""
    rules, size = teacher.tokens.rules(), vocabulary_size(teacher)
    tokens = plain_tokens(rules, student_settings(teacher), pad_id=size)
    counts, number, stream = np.zeros(size + 1), 0, iter(texts)
    while block := list(islice(stream, _BLOCK)):
        number += len(block)
        ids = np.fromiter(chain.from_iterable(tokens.ids(block, max_tokens=None)[0]), np.int64)
        counts += np.bincount(ids, minlength=size + 1)
    counts[silent_ids(rules)] = 0
    return counts[:size], number


def zipf_shares(size: int) -> Numbers:
    """Return the share of each token by Zipf's law, its place in the vocabulary being its rank, as model2vec has it."""
    inverse = 1.0 / np.arange(2, size + 2)
    shares: Numbers = inverse / inverse.sum()
    return shares


def reduce(vectors: Vectors, kept: NDArray[np.int64], dimensions: int) -> tuple[Numbers, float]:
    """Return the vectors on the first principal components of those that are kept, and the share of their variance."""
    some = vectors[kept].astype(np.float64)
    mean = some.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(some - mean, rowvar=False).reshape(vectors.shape[1], -1))
    axes = axes[:, ::-1][:, :dimensions]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(dimensions)])  # else the sign is the library's
    explained = float(variances[::-1][:dimensions].sum() / max(variances.sum(), 1e-30))
    return (vectors - mean) @ axes, explained

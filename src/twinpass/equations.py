"""The eight equations of the SimCSE paper, one pure function each.

Every function takes tensors with one vector per row, and returns a differentiable scalar.
Vectors are normalised inside wherever the paper assumes unit vectors, so callers pass the encoder's output.
N is the number of pairs in the batch, m the number of vectors, d their dimension; the temperature tau is positive.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

Similarity = Literal["cosine", "dot"]
# As a share of the highest score: alignment's positives are the STS-B pairs scored above 4 of 5 (section 3, footnote
# on Figure 2).
POSITIVE_SHARE = 0.8


class AsymptoticTerms(NamedTuple):
    """The two terms of Eq. 6: the first pulls positives together, the second pushes all vectors apart."""

    positives: Tensor
    negatives: Tensor


def info_nce(
    h: Tensor,
    h_pos: Tensor,
    *,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
) -> Tensor:
    """Eq. 1: mean over i of -log softmax_j(sim(h_i, h+_j) / tau) at j = i; h and h_pos are (N, d), N >= 1.

    `mask` (N, N) is True where h+_j is known to mean the same as h_i: such false negatives are excluded
    from the sum. The diagonal is ignored: the positive always counts. Rows of h_pos after the N-th, each with its
    column of the mask, are negatives of every row.
    """
    return contrast(similarities(h, h_pos, similarity) / temperature, mask)


def alignment(x: Tensor, x_pos: Tensor) -> Tensor:
    """Eq. 2: the mean of |f(x) - f(x+)|^2 over positive pairs; both (n, d), n >= 1, result in [0, 4]."""
    return (_unit(x) - _unit(x_pos)).square().sum(dim=1).mean()


def uniformity(x: Tensor, *, t: float = 2.0, block: int = 2048) -> Tensor:
    """Eq. 3: log of the mean of exp(-t |f(x) - f(y)|^2) over distinct pairs; x is (m, d), m >= 2.

    The result lies in [-4t, 0]. Pairs are processed in tiles of block x block, so no m x m matrix is held in memory.
    """
    if len(x) < 2:
        raise ValueError(f"uniformity compares pairs: expected 2 or more vectors, got {len(x)}")
    rows = torch.split(_unit(x), block)
    sums = [
        _log_sum_of_kernels(left, right, t, same=i == j)
        for i, left in enumerate(rows)
        for j, right in enumerate(rows[i:], start=i)
    ]
    return torch.stack(sums).logsumexp(dim=0) - math.log(len(x) * (len(x) - 1) / 2)


def unsupervised(
    h_z: Tensor,
    h_z_prime: Tensor,
    *,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
) -> Tensor:
    """Eq. 4: Eq. 1 on the same sentences encoded twice, under dropout masks z and z'; both (N, d)."""
    return info_nce(h_z, h_z_prime, temperature=temperature, similarity=similarity, mask=mask)


def supervised(
    h: Tensor,
    h_pos: Tensor,
    h_neg: Tensor,
    *,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
) -> Tensor:
    """Eq. 5: Eq. 1 with every row's hard negative among the candidates; all (N, d), `mask` (N, 2N)."""
    return weighted(h, h_pos, h_neg, alpha=1.0, temperature=temperature, similarity=similarity, mask=mask)


def asymptotic(
    x: Tensor, x_pos: Tensor, data: Tensor, *, temperature: float = 0.05, block: int = 2048
) -> AsymptoticTerms:
    """Eq. 6: the terms whose sum Eq. 1 (less log N) tends to as N grows; x, x_pos (n, d), data (m, d).

    Expectations over the data run over all m^2 ordered pairs, a vector with itself included, as in Eq. 7.
    """
    positives = -(_unit(x) * _unit(x_pos)).sum(dim=1).mean() / temperature
    rows = torch.split(_unit(data), block)
    log_sums = [_log_sum_over(rows, row / temperature) for row in rows]
    return AsymptoticTerms(positives, torch.cat(log_sums).mean() - math.log(len(data)))


def jensen_bound(data: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Eq. 7: Sum(W W^T) / (tau m^2), the lower bound of Eq. 6's second term; data is (m, d), m >= 1."""
    # Sum(W W^T) is the squared length of the sum of all rows, which needs no m x m matrix.
    return _unit(data).mean(dim=0).square().sum() / temperature


def weighted(
    h: Tensor,
    h_pos: Tensor,
    h_neg: Tensor,
    *,
    alpha: float = 1.0,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
) -> Tensor:
    """Eq. 8: Eq. 5 with a row's own hard negative counted alpha > 0 times; alpha is a weight, not a logit."""
    to_positives = similarities(h, h_pos, similarity) / temperature
    to_negatives = similarities(h, h_neg, similarity) / temperature
    # alpha * e^s = e^(s + log alpha): added after the temperature, and only where i = j.
    own = torch.eye(len(h), dtype=h.dtype, device=h.device) * math.log(alpha)
    return contrast(torch.cat([to_positives, to_negatives + own], dim=1), mask)


def _unit(x: Tensor) -> Tensor:
    return normalize(x, dim=1)


def similarities(a: Tensor, b: Tensor, similarity: Similarity) -> Tensor:
    """Return sim(a_i, b_j) for all i and j; the cosine with a zero vector is 0."""
    if similarity == "dot":
        return a @ b.T
    if similarity == "cosine":
        return _unit(a) @ _unit(b).T
    raise ValueError(f"expected similarity 'cosine' or 'dot', got {similarity!r}")


def contrast(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of -log softmax at the diagonal, without the masked candidates."""
    own = torch.arange(len(logits), device=logits.device)
    if mask is not None:
        positive = torch.zeros_like(mask)
        positive[own, own] = True
        logits = logits.masked_fill(mask & ~positive, -math.inf)
    return cross_entropy(logits, own)


def _log_sum_of_kernels(left: Tensor, right: Tensor, t: float, *, same: bool) -> Tensor:
    """Return the log of the sum of exp(-t |x - y|^2) over one tile; within a block each pair counts once."""
    # On the unit sphere |x - y|^2 = 2 - 2 x.y.
    exponents = -t * (2 - 2 * left @ right.T)
    if same:
        keep = torch.ones_like(exponents, dtype=torch.bool).triu(diagonal=1)
        return exponents[keep].logsumexp(dim=0)
    return exponents.flatten().logsumexp(dim=0)


def _log_sum_over(blocks: tuple[Tensor, ...], queries: Tensor) -> Tensor:
    """Return log sum_j exp(queries_i . x_j) for every i, block of j by block of j."""
    parts = [(queries @ block.T).logsumexp(dim=1) for block in blocks]
    return torch.stack(parts).logsumexp(dim=0)

"""Losses for data that the paper does not train on: several hard negatives in a row, classes, and graded pairs.

As in `equations`: one vector per row, a differentiable scalar out, vectors are normalised inside, tau is positive.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from twinpass.equations import Similarity, contrast, similarities


def several_negatives(
    h: Tensor,
    h_pos: Tensor,
    h_neg: Tensor,
    owner: Tensor,
    *,
    alpha: float = 1.0,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
) -> Tensor:
    """Eq. 8 where a row has any number of hard negatives; h and h_pos are (N, d), h_neg (M, d), `mask` (N, N + M).

    The m-th hard negative belongs to row owner_m. The mean over i of -log of
    e^(sim(h_i, h+_i) / tau) / (sum_j e^(sim(h_i, h+_j) / tau) + sum_m alpha^[owner_m = i] e^(sim(h_i, h-_m) / tau)).
    With one hard negative in every row this is Eq. 8, and without any it is Eq. 1.
    """
    to_positives = similarities(h, h_pos, similarity) / temperature
    to_negatives = similarities(h, h_neg, similarity) / temperature
    own = owner[None, :] == torch.arange(len(h), device=h.device)[:, None]
    return contrast(torch.cat([to_positives, to_negatives + own.to(h.dtype) * math.log(alpha)], dim=1), mask)


def same_class(
    h: Tensor,
    classes: Tensor,
    *,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
) -> Tensor:
    """Supervised contrastive loss, L_out of Khosla et al. (2020), Eq. 2; h is (N, d), `classes` holds N numbers.

    The mean over i of -1/|P(i)| sum_{p in P(i)} log(e^(sim(h_i, h_p) / tau) / sum_{a != i} e^(sim(h_i, h_a) / tau)),
    where P(i) are the other rows of i's class. `mask` (N, N) is True where row a must not count against row i. A row
    without another one of its class teaches nothing: the mean is over the others.
    """
    logits = similarities(h, h, similarity) / temperature
    itself = torch.eye(len(h), dtype=torch.bool, device=h.device)
    positive = (classes[:, None] == classes[None, :]) & ~itself
    hidden = itself if mask is None else itself | (mask & ~positive)
    log_shares = logits - logits.masked_fill(hidden, -math.inf).logsumexp(dim=1, keepdim=True)
    counts = positive.sum(dim=1)
    sums = log_shares.masked_fill(~positive, 0.0).sum(dim=1)
    return -(sums[counts > 0] / counts[counts > 0]).sum() / max(1, int((counts > 0).sum()))


def ranked_pairs(h: Tensor, h_other: Tensor, scores: Tensor, *, temperature: float = 0.05) -> Tensor:
    """CoSENT's ranking loss (Su, 2022): a pair with a higher score should have a higher cosine; both (N, d).

    log(1 + sum over pairs with score_i > score_j of e^((cos_j - cos_i) / tau)), where cos_i = cos(h_i, h_other_i).
    """
    cosines = torch.cosine_similarity(h, h_other, dim=1) / temperature
    excess = (cosines[None, :] - cosines[:, None])[scores[:, None] > scores[None, :]]
    return torch.cat([excess.new_zeros(1), excess]).logsumexp(dim=0)

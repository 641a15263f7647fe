"""ESimCSE (Wu et al., 2022): positives of another length, and negatives of earlier batches.

Both passes of unsupervised SimCSE have the same length, so a model may learn that sentences of one length are alike.
Here the second pass repeats some subwords of the sentence:

    k ~ uniform{0, ..., max(2, floor(rate * N))},  k of the N subwords are chosen, each is repeated once

and the sentences of earlier batches, encoded by a momentum encoder, are further negatives g_1 ... g_M:

    l_i = -log  exp(sim(h_i, h_i+) / tau) / ( sum_j exp(sim(h_i, h_j+) / tau) + sum_m exp(sim(h_i, g_m) / tau) )
    theta_m <- lambda theta_m + (1 - lambda) theta

The momentum encoder runs without dropout, and with the MLP if training has one, so that g lies where h does. Exact
duplicates of a row's sentence in the queue do not count against it, as in SimCSE here (`keep_duplicates`).
"""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinpass.training.chunked import Ids, cut_chunks, encode_directly
from twinpass.training.method import METHODS, Numbers, Start
from twinpass.training.methods.simcse import OfSentences, contrastive_loss


@METHODS.register("esimcse")
class ESimCSE(OfSentences):
    """SimCSE with repeated subwords in the positive, and a queue of negatives from a momentum encoder."""

    title = "ESimCSE (Wu et al., 2022)"
    objective = "ESimCSE (Wu et al.): repeated subwords as the positive, a momentum queue of negatives"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        (self.encoder,) = self.encoders
        self.special = np.array(sorted(self.encoder.tokenizer.all_special_ids))
        self.longest = self.encoder.tokens.limit
        self.queue_size = round(self.run.queue * self.run.batch_size)
        if self.queue_size:
            self.momentum = copy.deepcopy(self.encoder) if start.checkpoint is None else self.load_encoder("momentum")
            self.momentum.model.requires_grad_(False)
            # The head, which is for training, applies; dropout does not.
            self.momentum.model.train()
            self.momentum.model.transformer.eval()
            self.models = {"encoder": self.encoder, "momentum": self.momentum}
            width = self.encoder.dimensions
            self.tensors = {"queue": torch.zeros(0, width), "queue_keys": torch.zeros(0, dtype=torch.int64)}
            self.tensors = {name: tensor.to(self.device) for name, tensor in self.tensors.items()}

    def passes(self, step: int, own: Numbers) -> list[Ids]:
        """Return the sentences, and the sentences with repeated subwords; what repeats depends on step and row."""
        sentences = [self.data.ids(text) for text in self.data.columns(own)[0]]
        draws = (np.random.default_rng([self.run.seed, step, row]) for row in own.tolist())
        return [sentences, [self.repeat(ids, random) for ids, random in zip(sentences, draws, strict=True)]]

    def repeat(self, ids: NDArray[np.int32], random: np.random.Generator) -> NDArray[np.int32]:
        """Return the ids with some of them repeated, never special ones; at most as many as the model reads."""
        words = np.flatnonzero(~np.isin(ids, self.special))
        most = max(2, math.floor(self.run.repetition * len(words))) if self.run.repetition else 0
        if self.longest is not None:
            most = min(most, self.longest - len(ids))
        count = int(random.integers(0, min(most, len(words)), endpoint=True)) if most > 0 else 0
        times = np.ones(len(ids), dtype=np.int64)
        times[random.choice(words, size=count, replace=False)] = 2
        return np.repeat(ids, times)

    def compare(self, vectors: Tensor, mask: Tensor | None, step: int, examples: Numbers) -> Tensor:
        """Return the loss against the batch and the queue, then put the batch into the queue."""
        h, h_pos = vectors
        if not self.queue_size:
            return super().compare(vectors, mask, step, examples)
        queue, keys = self.tensors["queue"], self.tensors["queue_keys"]
        own_keys = torch.from_numpy(self.data.key_columns(examples)[0].view(np.int64)).to(keys.device)
        same = own_keys[:, None] == keys[None, :]
        if self.run.keep_duplicates:
            same = torch.zeros_like(same)
        elif mask is None:
            mask = torch.zeros(len(h), len(h), dtype=torch.bool, device=same.device)
        hidden = None if mask is None else torch.cat([mask, same], dim=1)
        self.more_negatives = len(queue) - float(same.sum()) / len(h)
        loss = contrastive_loss("dropout", (h, torch.cat([h_pos, queue])), self.run, hidden)
        self.update_queue(examples, own_keys)
        return loss

    @torch.no_grad()
    def update_queue(self, examples: Numbers, keys: Tensor) -> None:
        """Move the momentum encoder towards the encoder, and let it encode the batch into the queue."""
        share = self.run.momentum
        pairs = zip(self.momentum.model.parameters(), self.encoder.model.parameters(), strict=True)
        for slow, fast in pairs:
            slow.mul_(share).add_(fast, alpha=1 - share)
        ids = [self.data.ids(text) for text in self.data.columns(self.processes.share(examples))[0]]
        chunks = cut_chunks(ids, [self.momentum] * len(ids), token_budget=self.run.chunk_tokens)
        autocast = self.processes.accelerator.autocast
        new = encode_directly(chunks, ids, dimensions=self.encoder.dimensions, autocast=autocast).vectors
        new = self.processes.gather(new[None], len(examples))[0]
        self.tensors = {
            "queue": torch.cat([self.tensors["queue"], new])[-self.queue_size :],
            "queue_keys": torch.cat([self.tensors["queue_keys"], keys])[-self.queue_size :],
        }

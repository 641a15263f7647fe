"""SimCSE (Gao, Yao and Chen, 2021): two passes of one sentence, a pair, or a triplet; Eqs. 1, 4, 5 and 8."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinpass import equations
from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.folder import read_foreign_settings, read_settings
from twinpass.encoder.load import find_folder, released_settings
from twinpass.text.rows import Rows
from twinpass.text.views import VIEWS, View, add_positives, choose_view, shared_dropout
from twinpass.training.data import count_rows, read_data
from twinpass.training.method import METHODS, Method, Numbers, Outcome, Start
from twinpass.training.methods.mlm import load_mlm, masked_words

Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]

OBJECTIVE = {
    "dropout": "unsupervised SimCSE: each sentence is encoded twice, dropout is the only noise (Eq. 4)",
    "pairs": "contrastive learning on pairs (Eq. 1)",
    "triplets": "supervised SimCSE: pairs with hard negatives (Eqs. 5 and 8)",
}
COLUMNS = {1: "one text column", 2: "two text columns", 3: "three text columns"}


@METHODS.register("simcse")
class SimCSE(Method):
    """Each row's positive is pulled close, the other rows of the batch are pushed away."""

    title = "SimCSE (Gao et al., 2021)"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        run = self.run
        self.objective, self.needs_negatives = OBJECTIVE[run.view], run.view != "triplets"
        self.view = View(1, shared_dropout) if run.share_dropout_mask else VIEWS[run.view]
        self.encoders = self._load_encoders()
        self.models = dict(zip(("encoder", "second"), self.encoders, strict=False))
        self.run = run = run.replace(pooler=self.encoders[0].pooler)
        # Where few steps are asked for, only the rows that they use are tokenised.
        total = count_rows(self.rows) if run.steps is not None else None
        held = self.batches(total).visited(run.steps) if run.steps is not None and total else None
        self.data = read_data(self.rows, self.tokenizer(self.encoders[0]), total=total, held=held)
        self.mlm = None
        if run.mlm_weight:
            self.mlm = load_mlm(self.encoders[0], run, rate=run.mlm_rate, resumed=start.checkpoint is not None)
            self.heads = {"mlm": self.mlm.head}

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Make positives where the run says how, and choose the view by the number of columns."""
        view = run.view
        if run.positive is not None:
            view = "auto"
            rows = add_positives(
                rows, run, masked_words=lambda name, percent: masked_words(name, percent, run, model, device)
            )
        return run.replace(view=choose_view(view, width=rows.width, source=rows.source)).check(), rows

    @property
    def why(self) -> str:
        """The columns, or how positives are made."""
        made, source = self.run.positive, self.rows.source
        return f"positives of {source} are made by {made}" if made else f"{source} has {COLUMNS[self.rows.width]}"

    def backward(self, step: int, examples: Numbers) -> Outcome:
        """Encode a batch's passes, compute the loss over all of them, and send it back to the parameters."""
        run, own = self.run, self.processes.share(examples)
        # The view says which sentences make which passes; for unsupervised SimCSE every sentence makes two.
        passes = self.view.passes(self.data.columns(own))
        ids = [self.data.ids(text) for one_pass in passes for text in one_pass]
        encoder_of = [self.encoders[min(place, len(self.encoders) - 1)] for place in range(len(passes)) for _ in own]
        vectors = self.encode(encoder_of, ids).view(len(passes), len(own), self.encoders[0].dimensions)
        vectors = self.processes.gather(vectors, len(examples))

        keys = self.view.passes(self.data.key_columns(examples))
        mask = None if run.keep_duplicates else false_negatives(keys)
        masked = 0 if mask is None else int(mask.sum())
        hidden = None if mask is None or not masked else torch.from_numpy(mask).to(vectors.device)
        loss = contrastive_loss(run.view, vectors.unbind(), run, hidden)
        value = loss.item()
        self.propagate(loss)

        mlm_loss = None
        if self.mlm is not None:
            random = np.random.default_rng([run.seed, step, self.processes.rank])
            corrupted = [self.mlm.corrupt(each, random) for each in ids]
            mlm_loss = self.mlm.propagate(corrupted, weight=run.mlm_weight, processes=self.processes)
        return Outcome(
            value + (mlm_loss or 0.0),
            texts=len(passes) * len(examples),
            negatives=negatives_per_anchor(keys, mask),
            masked=masked,
            mlm_loss=mlm_loss,
            vectors=vectors.detach(),
        )

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Make AdamW over all parameters alike, as the authors do."""
        run, fused = self.run, self.device.type in ("cpu", "cuda")
        return torch.optim.AdamW(parameters, lr=run.learning_rate, weight_decay=run.weight_decay, fused=fused)

    def _load_encoders(self) -> list[Encoder]:
        """Load one encoder, or two for a dual encoder; both start from one model, each with its own new MLP."""
        pooler = None if self.start.encoder or self.start.checkpoint else _pooler(self.run)
        first = self.load_encoder("encoder", pooler=pooler, seed=self.run.seed)
        if not self.run.dual_encoder:
            return [first]
        if self.start.encoder is not None and self.start.checkpoint is None:
            return [first, copy.deepcopy(first)]
        return [first, self.load_encoder("second", pooler=pooler, seed=self.run.seed + 1)]


def _pooler(run: Run) -> str | None:
    """Return the pooler to load with: the run's, None for the model's own, or the paper's for a bare model."""
    if run.pooler is not None:
        return run.pooler
    folder = find_folder(run.model, trust_pickle=run.trust_pickle, trust_remote_code=run.trust_remote_code)
    if read_settings(folder) or read_foreign_settings(folder) or released_settings(run.model):
        return None
    supervised = run.view != "dropout" and run.positive is None
    return "cls_mlp" if supervised else "cls_mlp_train"


def contrastive_loss(view: str, passes: Sequence[Tensor], run: Run, mask: Tensor | None) -> Tensor:
    """Return the loss of a batch from the vectors of its passes, (N, d) each: one equation for each view."""
    options: dict[str, Any] = {"similarity": run.similarity, "mask": mask}
    # The dot product is not divided (Table D.1, "N/A").
    options["temperature"] = run.temperature if run.similarity == "cosine" else 1.0
    if view == "dropout":  # Eq. 4; with a shared mask there is one pass, which is used as both
        h_z, h_z_prime = passes[0], passes[-1]
        return equations.unsupervised(h_z, h_z_prime, **options)
    if view == "pairs":  # Eq. 1
        h, h_pos = passes
        return equations.info_nce(h, h_pos, **options)
    h, h_pos, h_neg = passes  # Eq. 8, which with the default weight of 1 is Eq. 5
    return equations.weighted(h, h_pos, h_neg, alpha=run.hard_negative_weight, **options)


def false_negatives(passes: Sequence[Keys]) -> Mask:
    """Return (N, candidates), True where candidate j must not count against row i.

    `passes` holds one key per row and pass; equal keys mean equal texts. A candidate is masked if it is row i's own
    sentence or positive, or the positive of another row with the same sentence.
    """
    anchor, positive = passes[0], passes[min(1, len(passes) - 1)]
    means_the_same = _equal(anchor, positive) | _equal(positive, positive) | _equal(anchor, anchor)
    np.fill_diagonal(means_the_same, False)
    if len(passes) < 3:
        return means_the_same
    hard = passes[2]
    return np.concatenate([means_the_same, _equal(anchor, hard) | _equal(positive, hard)], axis=1)


def negatives_per_anchor(passes: Sequence[Keys], mask: Mask | None) -> float:
    """Return the number of negatives of the average row of the batch."""
    rows = len(passes[0])
    candidates = rows - 1 + (rows if len(passes) == 3 else 0)
    return candidates - (0 if mask is None or rows == 0 else float(mask.sum()) / rows)


def _equal(left: Keys, right: Keys) -> Mask:
    same: Mask = left[:, None] == right[None, :]
    return same

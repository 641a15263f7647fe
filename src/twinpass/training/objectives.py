"""What a file of training text teaches: which texts of a batch are encoded, and the loss of their vectors.

`Contrastive` is the paper's: a sentence twice, a pair, or a pair with hard negatives. `Classes` learns from labels and
`Scores` from graded pairs. A run has one objective, or one for each part of its mixture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinpass import equations
from twinpass.config import Run
from twinpass.display import counted
from twinpass.errors import InputError
from twinpass.text.rows import Rows
from twinpass.text.views import VIEWS, View, shared_dropout
from twinpass.training import losses
from twinpass.training.batches import Batches, ClassBatches
from twinpass.training.data import Tokenize, TrainingData, count_rows, find_rows, read_data

Numbers = NDArray[np.int64]
Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]

OBJECTIVE = {
    "dropout": "unsupervised SimCSE: each sentence is encoded twice, dropout is the only noise (Eq. 4)",
    "pairs": "contrastive learning on pairs (Eq. 1)",
    "triplets": "supervised SimCSE: pairs with hard negatives (Eqs. 5 and 8)",
    "classes": "supervised contrastive learning: rows of one class are positives (Khosla et al., 2020)",
    "scores": "graded pairs: cosines are ranked as the scores are (CoSENT; Su, 2022)",
}
COLUMNS = {1: "one text column", 2: "two text columns", 3: "three text columns"}


class Lesson(NamedTuple):
    """The loss of a batch, and what it was taken over."""

    loss: Tensor
    negatives: float  # per anchor
    masked: int = 0  # false negatives


class Objective:
    """The rows of one file, the batches they come in, and the loss of a batch; `run` is what the file is read by."""

    data: TrainingData

    def __init__(self, run: Run, rows: Rows, *, name: str = "") -> None:
        self.run, self.rows, self.name = run, rows, name or rows.source
        self.view_name = "dropout" if run.view == "auto" else run.view  # methods built on SimCSE have no view to choose
        self.view = View(1, shared_dropout) if run.share_dropout_mask else VIEWS[self.view_name]
        self.about = OBJECTIVE[self.view_name]
        self.needs_negatives = True  # whether a row alone in a batch teaches nothing
        self.ragged = False  # whether the last pass holds any number of hard negatives of each row
        self.notes: list[str] = []

    @property
    def why(self) -> str:
        """Why the objective is this one."""
        if self.run.positive:
            return f"positives of {self.rows.source} are made by {self.run.positive}"
        return f"{self.rows.source} has {COLUMNS.get(self.rows.width, f'{self.rows.width} text columns')}"

    def batches(self, rows: int) -> Batches:
        """Return the order in which rows are used."""
        return Batches(rows, self.run.batch_size, self.run.seed, needs_negatives=self.needs_negatives)

    def read(self, tokenize: Tokenize, *, steps: int | None) -> None:
        """Tokenise the rows; where only some steps take a batch of them, only the rows that these use."""
        total = None if steps is None else count_rows(self.rows)
        held = None if steps is None or total is None else self.batches(total).visited(steps)
        self.data = read_data(self.rows, tokenize, total=total, held=held)

    def describe(self, rows: Numbers) -> list[str]:
        """Return "file:line: text" for some rows."""
        return find_rows(self.rows, rows.tolist())

    def passes(self, rows: Numbers) -> list[Numbers]:
        """Return the numbers of the texts to encode, pass by pass."""
        return list(self.view.passes(self.data.columns(rows)))

    def lesson(self, vectors: Sequence[Tensor], rows: Numbers) -> Lesson:
        """Return the loss of a batch from the vectors of its passes."""
        raise NotImplementedError


class Contrastive(Objective):
    """Each row's positive is pulled close, the other rows of the batch and hard negatives are pushed away."""

    def __init__(self, run: Run, rows: Rows, *, name: str = "") -> None:
        super().__init__(run, rows, name=name)
        # Of rows with any number of hard negatives the columns are a pair, and the negatives are one more pass.
        self.ragged = bool(getattr(rows, "ragged", False))
        self.view = VIEWS["pairs"] if self.ragged else self.view
        self.needs_negatives = self.view_name != "triplets" or self.ragged

    def passes(self, rows: Numbers) -> list[Numbers]:
        """Return the view's passes; for unsupervised SimCSE every sentence makes two."""
        return super().passes(rows) + ([self.data.negatives(rows)[0]] if self.ragged else [])

    def mask(self, rows: Numbers, device: torch.device) -> tuple[Tensor | None, float, int]:
        """Return the mask of a batch's false negatives (or None), the negatives per anchor, and how many are masked."""
        keys = list(self.view.passes(self.data.key_columns(rows)))
        keys += [self.data.negatives(rows)[2]] if self.ragged else []
        found = None if self.run.keep_duplicates else false_negatives(keys)
        masked = 0 if found is None else int(found.sum())
        hidden = None if found is None or not masked else torch.from_numpy(found).to(device)
        return hidden, negatives_per_anchor(keys, found), masked

    def lesson(self, vectors: Sequence[Tensor], rows: Numbers) -> Lesson:
        """Mask false negatives, and compute the equation of the view."""
        device = vectors[0].device
        hidden, negatives, masked = self.mask(rows, device)
        owner = torch.from_numpy(self.data.negatives(rows)[1]).to(device) if self.ragged else None
        return Lesson(contrastive_loss(self.view_name, vectors, self.run, hidden, owner), negatives, masked)


class Classes(Objective):
    """Rows of the same class are pulled close, rows of other classes are pushed away."""

    def __init__(self, run: Run, rows: Rows, *, name: str = "") -> None:
        super().__init__(run, rows, name=name)
        numbers: dict[str, int] = {}
        self.classes = np.fromiter((numbers.setdefault(str(row.label), len(numbers)) for row in rows), np.int64)
        sizes, where = Counter(self.classes.tolist()), f"column {run.label!r} of {rows.source}"
        self.count = len(sizes)
        if self.count == 1:
            raise InputError(f"{where} has one class only ({next(iter(numbers))!r}); expected two or more.")
        if (several := sum(size > 1 for size in sizes.values())) < 2:
            raise InputError(
                f"{where} has {self.count:,} classes in {len(self.classes):,} rows, and {several or 'none'} of them "
                "has two rows: there is nothing to pull together and apart. Name the column of classes with label."
            )
        if alone := sum(size == 1 for size in sizes.values()):
            self.notes.append(f"left out {counted(alone, 'row')} of {rows.source}: no other row has the same class")

    @property
    def why(self) -> str:
        """The column of classes."""
        return f"column {self.run.label!r} of {self.rows.source} has {self.count:,} classes"

    def batches(self, rows: int) -> Batches:
        """Return balanced batches: a class in a batch has two rows in it, or more."""
        return ClassBatches(rows, self.run.batch_size, self.run.seed, needs_negatives=True, classes=self.classes)

    def lesson(self, vectors: Sequence[Tensor], rows: Numbers) -> Lesson:
        """Compute the loss over all positives; a text that has two labels is no negative of itself."""
        classes, (keys,) = self.classes[rows], self.data.key_columns(rows)
        other = classes[:, None] != classes[None, :]
        mask = other & _equal(keys, keys) if not self.run.keep_duplicates else np.zeros_like(other)
        (h,), masked = vectors, int(mask.sum())
        hidden = torch.from_numpy(mask).to(h.device) if masked else None
        loss = losses.same_class(h, torch.from_numpy(classes).to(h.device), **_options(self.run, hidden))
        return Lesson(loss, float(other.sum() - masked) / len(rows), masked)


class Scores(Objective):
    """The cosines of pairs are ranked as their scores are."""

    def __init__(self, run: Run, rows: Rows, *, name: str = "") -> None:
        super().__init__(run, rows, name=name)
        self.scores = np.fromiter((row.score for row in rows), np.float64)
        if len(self.scores) < 2 or self.scores.min() == self.scores.max():
            raise InputError(
                f"all {len(self.scores):,} pairs of {rows.source} have the same score in column {run.score!r}, so "
                "there is nothing to rank."
            )

    @property
    def why(self) -> str:
        """The column of scores."""
        return f"column {self.run.score!r} of {self.rows.source} has scores"

    def lesson(self, vectors: Sequence[Tensor], rows: Numbers) -> Lesson:
        """Compute the ranking loss; the "negatives" of a pair are those that it is ranked above."""
        scores = self.scores[rows]
        h, h_other = vectors
        ranked = torch.from_numpy(scores).to(h.device)
        loss = losses.ranked_pairs(h, h_other, ranked, temperature=self.run.temperature)
        return Lesson(loss, float((scores[:, None] > scores[None, :]).sum()) / len(rows))


def make_objective(run: Run, rows: Rows, *, name: str = "") -> Objective:
    """Return the objective of a run whose view is known."""
    kinds: dict[str, type[Objective]] = {"classes": Classes, "scores": Scores}
    return kinds.get(run.view, Contrastive)(run, rows, name=name)


def contrastive_loss(
    view: str, passes: Sequence[Tensor], run: Run, mask: Tensor | None, owner: Tensor | None = None
) -> Tensor:
    """Return the loss of a batch from the vectors of its passes, (N, d) each: one equation for each view.

    Where rows may have any number of hard negatives, the third pass is (M, d), and `owner` says whose each one is.
    """
    options = _options(run, mask)
    if view == "dropout":  # Eq. 4; with a shared mask there is one pass, which is used as both
        h_z, h_z_prime = passes[0], passes[-1]
        return equations.unsupervised(h_z, h_z_prime, **options)
    if view == "pairs":  # Eq. 1
        h, h_pos = passes
        return equations.info_nce(h, h_pos, **options)
    h, h_pos, h_neg = passes  # Eq. 8, which with the default weight of 1 is Eq. 5
    options["alpha"] = run.hard_negative_weight
    if owner is None:
        return equations.weighted(h, h_pos, h_neg, **options)
    return losses.several_negatives(h, h_pos, h_neg, owner, **options)


def _options(run: Run, mask: Tensor | None) -> dict[str, Any]:
    """Return the options of a loss; the dot product is not divided (Table D.1, "N/A")."""
    temperature = run.temperature if run.similarity == "cosine" else 1.0
    return {"similarity": run.similarity, "temperature": temperature, "mask": mask}


def false_negatives(passes: Sequence[Keys]) -> Mask:
    """Return (N, candidates), True where candidate j must not count against row i.

    `passes` holds one key per row and pass, of hard negatives one or more; equal keys mean equal texts. A candidate is
    masked if it is row i's own sentence or positive, or the positive of another row with the same sentence.
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
    candidates = rows - 1 + (len(passes[2]) if len(passes) == 3 else 0)
    return candidates - (0 if mask is None or rows == 0 else float(mask.sum()) / rows)


def _equal(left: Keys, right: Keys) -> Mask:
    same: Mask = left[:, None] == right[None, :]
    return same

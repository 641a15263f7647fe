"""What a row of a table is about: a training, a baseline, a raw encoder, word vectors, or one of them with a layer
or another pooler.

A subject only describes. The paper's own encoders and settings stand in it; a scale makes them smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinpass.config import SUP, UNSUP, Run

BERT, BERT_LARGE = "bert-base-uncased", "bert-large-uncased"
ROBERTA, ROBERTA_LARGE = "roberta-base", "roberta-large"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """SimCSE, or a variant of it that a Run can describe."""

    run: Run
    corpus: str
    keeps_batch: bool = False  # where the batch size is what is studied, a smaller scale takes fewer steps instead
    most: int | None = None  # a sample of so many rows of the corpus


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Another method, trained by us; it starts from an encoder, or from another subject."""

    baseline: str
    corpus: str
    encoder: str = BERT
    start: Subject | None = None


@dataclass(frozen=True, kw_only=True)
class Raw:
    """A pretrained encoder as it is."""

    pooler: str
    encoder: str = BERT


@dataclass(frozen=True, kw_only=True)
class Words:
    """The average of word vectors."""

    vectors: str = "glove"


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A subject with a layer fitted to its vectors, of NLI sentences or of the sentences it is judged on."""

    of: Subject
    layer: Literal["whitening", "flow"]
    on: Literal["nli", "target"]


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A training under another pooler than it was trained with."""

    of: Trained | Baseline
    pooler: str


Subject = Trained | Baseline | Raw | Words | Fitted | Pooled


def unsupervised(corpus: str = "wiki", **changes: object) -> Trained:
    """Unsupervised SimCSE of BERT-base as in Table A.1, changed in some fields."""
    return Trained(run=UNSUP.replace(**{"model": BERT, "pooler": "cls_mlp_train"} | changes), corpus=corpus)


def supervised(corpus: str = "nli-triplets", **changes: object) -> Trained:
    """Supervised SimCSE of BERT-base as in Table A.1, changed in some fields."""
    return Trained(run=SUP.replace(**{"model": BERT, "pooler": "cls_mlp"} | changes), corpus=corpus)


def encoder_of(subject: Subject) -> str | None:
    """Return the pretrained encoder that a subject starts from; word vectors have none."""
    if isinstance(subject, Trained):
        return subject.run.model
    if isinstance(subject, (Fitted, Pooled)):
        return encoder_of(subject.of)
    if isinstance(subject, Baseline):
        return encoder_of(subject.start) if subject.start is not None else subject.encoder
    return subject.encoder if isinstance(subject, Raw) else None

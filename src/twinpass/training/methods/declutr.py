"""DeCLUTR (Giorgi et al., 2021): spans that are near each other in a document have similar meanings.

A document is as many consecutive lines as it takes to hold 2 x 2 x (longest span) tokens, the authors' minimum for two
anchors. So a file of sentences in order works, and a file of long documents keeps its documents. Lines with a blank
line between them are of different documents and are never joined; what is shorter is left out. An anchor is drawn
from each half of a document; its two positives are adjacent to it, overlap it or lie inside it. The loss of masked
tokens of the anchors is added to the contrastive loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from twinpass.errors import InputError
from twinpass.text.rows import Rows
from twinpass.text.views import adjoin
from twinpass.training.data import read_data
from twinpass.training.method import METHODS, Method, Numbers, Outcome, Start
from twinpass.training.methods.mlm import load_mlm

ANCHORS, POSITIVES = 2, 2  # per document, per anchor
ANCHOR_LENGTH, POSITIVE_LENGTH = (4, 2), (2, 4)  # of a beta distribution: anchors are long, positives short
SHORTEST = 16  # a span has at least this part of the longest: 32 of 512 tokens
TEMPERATURE = 0.05
MLM_RATE = 0.15

T = TypeVar("T")
Document = list[list[list[int]]]  # anchors, each with its positives, each the token ids of a span


class Span(NamedTuple):
    """Tokens of a document from start to before end."""

    start: int
    end: int


@METHODS.register("declutr")
class Declutr(Method):
    """An anchor is distinguished from all other spans of the batch by the mean of its positives."""

    title = "DeCLUTR (Giorgi et al., 2021)"
    objective = "DeCLUTR (Giorgi et al.): nearby spans of a document, and masked tokens"
    needs_negatives = True
    texts_per_example = ANCHORS * (1 + POSITIVES)

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.encoder = self.load_plain_encoder()
        self.models = {"encoder": self.encoder}
        self.frame = Frame(self.encoder.tokenizer)
        self.longest = self.token_limit(self.encoder) - self.frame.special
        self.data = read_data(self.rows, self._bare_ids)
        self.tokens = self.data.tokens
        self.documents = group_lines(self.data.ends, first_lines(self.rows), least=2 * ANCHORS * self.longest)
        if len(self.documents) < 2:
            raise InputError(
                f"{self.rows.source} makes {len(self.documents)} document(s): {len(self.data)} lines hold "
                f"{len(self.tokens)} tokens, and a document holds {2 * ANCHORS * self.longest} (2 x {ANCHORS} anchors "
                f"x spans of {self.longest}) between two blank lines. Give more text, or a lower max_tokens."
            )
        self.mlm = load_mlm(self.encoder, self.run, rate=MLM_RATE, resumed=start.checkpoint is not None)
        self.heads = {"mlm": self.mlm.head}
        self.negatives = 2.0 * (ANCHORS * min(self.per_step, self.examples) - 1)

    @property
    def examples(self) -> int:
        """The number of documents."""
        return len(self.documents)

    def describe(self, examples: Numbers) -> list[str]:
        """Return the documents by number."""
        return [f"document {number + 1} of {len(self.documents)}" for number in examples[:5].tolist()]

    def backward(self, step: int, examples: Numbers) -> Outcome:
        """Propagate the contrastive loss, then that of the anchors' masked tokens; report their sum."""
        random = np.random.default_rng([self.run.seed, step, 1])
        spans = self.draw(examples, random)
        loss = self.contrast(spans)
        self.propagate(loss)
        masked = [[self.mlm.corrupt(ids, random) for ids, *_ in document] for document in spans]
        anchors = [anchor for document in self._own(masked) for anchor in document]
        mlm_loss = self.mlm.propagate(anchors, weight=1.0, processes=self.processes)
        texts = len(examples) * self.texts_per_example
        return Outcome(float(loss.detach()) + mlm_loss, texts, negatives=self.negatives, mlm_loss=mlm_loss)

    def draw(self, documents: Numbers, random: np.random.Generator) -> list[Document]:
        """Return for every document the token ids of its anchors, each followed by those of its positives."""
        drawn = []
        for number in documents:
            tokens = self.tokens[slice(*self.documents[number])]
            spans = draw_spans(len(tokens), self.longest, random)
            drawn.append([[self.frame(tokens[start:end]) for start, end in group] for group in spans])
        return drawn

    def contrast(self, documents: Sequence[Document]) -> Tensor:
        """Return the contrastive loss of spans, over the documents of all processes."""
        own = self._own(documents)
        ids = [span for document in own for group in document for span in group]
        vectors = self.encode([self.encoder] * len(ids), ids).view(
            len(own), self.texts_per_example, self.encoder.dimensions
        )
        every = self.processes.gather(vectors.transpose(0, 1), len(documents)).transpose(0, 1)
        groups = every.reshape(ANCHORS * len(documents), 1 + POSITIVES, -1)
        return nt_xent(groups[:, 0], groups[:, 1:].mean(dim=1))

    def _own(self, documents: Sequence[T]) -> list[T]:
        return [documents[place] for place in self.processes.share(np.arange(len(documents)))]

    def _bare_ids(self, texts: Any) -> list[list[int]]:
        """Return the ids of whole texts without special tokens, which only spans get."""
        return [self.frame.strip(ids) for ids in self.encoder.tokens.ids(texts, max_tokens=None)[0]]


class Frame:
    """The special tokens that a tokenizer puts around a text."""

    def __init__(self, tokenizer: Any) -> None:
        bare, whole = (tokenizer("a", add_special_tokens=add)["input_ids"] for add in (False, True))
        start = next(place for place in range(len(whole)) if whole[place : place + len(bare)] == bare)
        self.before, self.after = whole[:start], whole[start + len(bare) :]

    @property
    def special(self) -> int:
        """The number of them."""
        return len(self.before) + len(self.after)

    def strip(self, ids: list[int]) -> list[int]:
        """Remove them."""
        return ids[len(self.before) : len(ids) - len(self.after)]

    def __call__(self, ids: NDArray[np.int32]) -> list[int]:
        """Add them around a span."""
        return [*self.before, *ids.tolist(), *self.after]


def first_lines(rows: Rows) -> list[int]:
    """Return the numbers of the rows with which a document of the text begins."""
    following = zip(rows, islice(rows, 1, None), strict=False)
    return [0, *(number for number, (row, after) in enumerate(following, start=1) if not adjoin(row, after))]


def group_lines(ends: NDArray[np.int64], starts: Sequence[int], *, least: int) -> list[Span]:
    """Join consecutive lines of a document into parts of at least `least` tokens; its rest joins its last part.

    `ends` says where lines end in the flat array of tokens, `starts` which lines begin a document.
    """
    parts: list[Span] = []
    for first, last in pairwise([*starts, len(ends)]):
        start = int(ends[first - 1]) if first else 0
        before = len(parts)
        for end in ends[first:last].tolist():
            if end - start >= least:
                parts.append(Span(start, end))
                start = end
        if len(parts) > before:
            parts[-1] = Span(parts[-1].start, int(ends[last - 1]))
    return parts


def draw_spans(tokens: int, longest: int, random: np.random.Generator) -> list[list[Span]]:
    """Draw one anchor from each equal part of a document, and positives within reach of it."""
    part = tokens // ANCHORS
    groups = []
    for number in range(ANCHORS):
        length = draw_length(ANCHOR_LENGTH, longest, random)
        start = number * part + int(random.integers(part - length + 1))
        anchor = Span(start, start + length)
        groups.append([anchor, *(_draw_near(anchor, tokens, longest, random) for _ in range(POSITIVES))])
    return groups


def draw_length(shape: tuple[int, int], longest: int, random: np.random.Generator) -> int:
    """Draw a span's length between a sixteenth of the longest and the longest."""
    shortest = max(1, longest // SHORTEST)
    return int(random.beta(*shape) * (longest - shortest) + shortest)


def _draw_near(anchor: Span, tokens: int, longest: int, random: np.random.Generator) -> Span:
    """Draw a positive that begins at the anchor's end at the latest and ends at its start at the earliest."""
    length = draw_length(POSITIVE_LENGTH, longest, random)
    first, last = max(0, anchor.start - length), min(anchor.end, tokens - length)
    start = int(random.integers(first, last + 1))
    return Span(start, start + length)


def nt_xent(anchors: Tensor, positives: Tensor, *, temperature: float = TEMPERATURE) -> Tensor:
    """Return InfoNCE in both directions, with every other vector of the batch as a negative; both (n, d)."""
    vectors = normalize(torch.cat([anchors, positives]), dim=1)
    logits = (vectors @ vectors.T / temperature).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(vectors), device=vectors.device).roll(len(anchors))
    return cross_entropy(logits, partners)

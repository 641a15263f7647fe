"""DeCLUTR (Giorgi et al., 2021): spans that lie near each other in a document mean alike.

A document is as many consecutive lines as it takes to hold 2 x 2 x (longest span) tokens, the authors' least length
for two anchors, so a corpus of sentences in order will do and a corpus of long documents keeps its own. From each half
of a document comes an anchor; two positives begin and end within reach of it, so they may lie beside it, overlap it or
lie inside it. Beside the contrastive loss stands that of masked tokens of the anchors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from twinpass.encoder.encoder import Encoder
from twinpass.errors import InputError
from twinpass.text.rows import Rows
from twinpass.training.baselines.base import (
    BASELINES,
    Baseline,
    Defaults,
    Numbers,
    encode_with_graph,
    load_encoder,
    token_limit,
)
from twinpass.training.baselines.material import Sentences
from twinpass.training.baselines.run import FilledRun
from twinpass.training.data import read_data
from twinpass.training.mlm import MaskedLanguageModel
from twinpass.training.processes import Processes

ANCHORS, POSITIVES = 2, 2  # per document, per anchor
ANCHOR_LENGTH, POSITIVE_LENGTH = (4, 2), (2, 4)  # of a beta distribution: anchors are long, positives short
SHORTEST = 16  # a span has at least this part of the longest: 32 of 512 tokens
TEMPERATURE = 0.05
MLM_RATE = 0.15


class Span(NamedTuple):
    """Tokens of a document from start to before end."""

    start: int
    end: int


@BASELINES.register("declutr")
class Declutr(Baseline):
    """An anchor is told from all other spans of the batch by the mean of its positives."""

    about = "DeCLUTR (Giorgi et al.): nearby spans of a document, beside masked tokens"
    wants = "documents"
    defaults = Defaults(batch_size=16, learning_rate=5e-5, max_tokens=512)
    warmup = 0.1
    weight_decay = 0.1
    needs_company = True
    texts_per_example = ANCHORS * (1 + POSITIVES)

    def __init__(self, run: FilledRun, rows: Rows, device: torch.device) -> None:
        self.encoder = load_encoder(run, device)
        self.frame = Frame(self.encoder.tokenizer)
        self.longest = token_limit(run, self.encoder) - self.frame.special
        data = read_data(Sentences(rows), self._bare_ids)
        self.tokens = data.tokens
        self.ends = group_lines(data.ends, least=2 * ANCHORS * self.longest)
        if len(self.ends) < 2:
            raise InputError(
                f"{rows.source} makes {len(self.ends)} document(s): {len(data)} lines hold {len(self.tokens)} tokens, "
                f"and a document holds {2 * ANCHORS * self.longest} (2 x {ANCHORS} anchors x spans of {self.longest}). "
                "Give more text, or a lower max_tokens."
            )
        self.mlm = MaskedLanguageModel.load(self.encoder, rate=MLM_RATE, seed=run.seed)
        self.processes = _one_process(device)
        self.examples, self.examples_per_step = len(self.ends), run.batch_size
        self.negatives = 2.0 * (ANCHORS * min(self.examples_per_step, self.examples) - 1)

    def modules(self) -> Mapping[str, nn.Module]:
        """Return the encoder and the head of the masked-token loss."""
        return {"encoder": self.encoder.model, "mlm": self.mlm.head}

    def candidates(self) -> Mapping[str, Encoder]:
        """Return the encoder."""
        return {"encoder": self.encoder}

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Return the contrastive part for spans drawn from the documents."""
        return self._contrast(self.draw(examples, random))

    def backward(self, examples: Numbers, random: np.random.Generator) -> float:
        """Send back the contrastive loss, then that of the anchors' masked tokens; return their sum."""
        spans = self.draw(examples, random)
        loss = self._contrast(spans)
        loss.backward()  # type: ignore[no-untyped-call]
        anchors = [ids for ids, *_ in spans]
        self.mlm_loss = self.mlm.backward(anchors, random, weight=1.0, processes=self.processes)
        return float(loss.detach()) + self.mlm_loss

    def draw(self, documents: Numbers, random: np.random.Generator) -> list[list[list[int]]]:
        """Return the token ids of every anchor of the documents, each followed by those of its positives."""
        drawn = []
        for number in documents:
            tokens = self.tokens[self.ends[number - 1] if number else 0 : self.ends[number]]
            for anchor, *positives in draw_spans(len(tokens), self.longest, random):
                drawn.append([self.frame(tokens[start:end]) for start, end in (anchor, *positives)])
        return drawn

    def _contrast(self, spans: list[list[list[int]]]) -> Tensor:
        vectors = encode_with_graph(self.encoder, [ids for group in spans for ids in group])
        groups = vectors.view(len(spans), 1 + POSITIVES, -1)
        return nt_xent(groups[:, 0], groups[:, 1:].mean(dim=1))

    def _bare_ids(self, texts: Any) -> list[list[int]]:
        """Return whole texts' ids without special tokens, which only spans get."""
        return [self.frame.strip(ids) for ids in self.encoder.tokens.ids(texts, max_tokens=None)[0]]


class Frame:
    """The special tokens that a tokenizer puts around a text."""

    def __init__(self, tokenizer: Any) -> None:
        bare, whole = (tokenizer("a", add_special_tokens=add)["input_ids"] for add in (False, True))
        start = next(place for place in range(len(whole)) if whole[place : place + len(bare)] == bare)
        self.before, self.after = whole[:start], whole[start + len(bare) :]

    @property
    def special(self) -> int:
        """How many there are."""
        return len(self.before) + len(self.after)

    def strip(self, ids: list[int]) -> list[int]:
        """Take them off."""
        return ids[len(self.before) : len(ids) - len(self.after)]

    def __call__(self, ids: NDArray[np.int32]) -> list[int]:
        """Put them around a span."""
        return [*self.before, *ids.tolist(), *self.after]


def group_lines(ends: NDArray[np.int64], *, least: int) -> Numbers:
    """Join consecutive lines into documents of at least so many tokens; what is left over joins the last.

    `ends` and the result say where lines and documents end in the flat array of tokens.
    """
    documents, start = [], 0
    for end in ends.tolist():
        if end - start >= least:
            documents.append(end)
            start = end
    if documents:
        documents[-1] = int(ends[-1])
    return np.array(documents, dtype=np.int64)


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
    """Return InfoNCE in both directions, every other vector of the batch a negative; both (n, d)."""
    vectors = normalize(torch.cat([anchors, positives]), dim=1)
    logits = (vectors @ vectors.T / temperature).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(vectors), device=vectors.device).roll(len(anchors))
    return cross_entropy(logits, partners)


def _one_process(device: torch.device) -> Processes:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # an earlier run of this process may have chosen another precision
    return Processes(Accelerator(cpu=device.type == "cpu", mixed_precision="no"))

"""Sentence-BERT (Reimers and Gurevych, 2019): a softmax over NLI labels from two sentence vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from twinpass.encoder.encoder import Encoder
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
from twinpass.training.baselines.material import LabelledPairs
from twinpass.training.baselines.run import FilledRun
from twinpass.training.baselines.softmax import make_classifier, softmax_loss
from twinpass.training.data import read_data


@BASELINES.register("sbert")
class SentenceBert(Baseline):
    """Both sentences go through one encoder; the classifier is dropped after training."""

    about = "SBERT (Reimers and Gurevych): softmax over (u, v, |u - v|) on NLI labels"
    wants = "labelled pairs"
    columns = ("premise", "hypothesis", "label")
    texts_per_example = 2
    defaults = Defaults(batch_size=16, learning_rate=2e-5, max_tokens=128)
    warmup = 0.1
    weight_decay = 0.01  # the authors' library

    def __init__(self, run: FilledRun, rows: Rows, device: torch.device) -> None:
        pairs = LabelledPairs(rows)
        self.encoder = load_encoder(run, device)
        self.classifier = make_classifier(3 * self.encoder.dimensions).to(device)
        self.classes = torch.from_numpy(pairs.classes).to(device)
        limit = token_limit(run, self.encoder)
        self.data = read_data(pairs, lambda texts: self.encoder.tokenize(texts, max_tokens=limit))
        self.examples, self.examples_per_step = len(self.data), run.batch_size

    def modules(self) -> Mapping[str, nn.Module]:
        """Return the encoder and the classifier."""
        return {"encoder": self.encoder.model, "classifier": self.classifier}

    def candidates(self) -> Mapping[str, Encoder]:
        """Return the encoder."""
        return {"encoder": self.encoder}

    def loss(self, examples: Numbers, random: np.random.Generator) -> Tensor:
        """Encode premises and hypotheses together and classify the pairs."""
        texts = np.concatenate(self.data.columns(examples))
        u, v = encode_with_graph(self.encoder, [self.data.ids(text) for text in texts]).chunk(2)
        return softmax_loss(self.classifier, u, v, self.classes[torch.from_numpy(examples)], "difference")

"""Masked-language-model pretraining (Devlin et al., 2019): guess 15 % of the tokens of a sentence from the others.

It continues the pretraining of an encoder on text of a new domain, which is worth doing before SimCSE where that text
differs from what the encoder has read; or it starts a small encoder from nothing. The model that is kept has its
prediction head, so SimCSE's MLM loss and the positives `mlm:15` start from it.

`model="new:layers=6,width=256,vocabulary=8000"` is a BERT with random weights (each number may be left out), and a
lowercased vocabulary of byte pairs learned from the training text. It is not WordPiece as BERT's own: the `tokenizers`
library numbers WordPiece's parts in another order every time, and equal runs must give equal weights.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twinpass.config import NEW_MODEL, Run, new_model
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.parts import quiet, save_model
from twinpass.files import explaining, writing_folder
from twinpass.text.rows import Rows
from twinpass.training.data import count_rows, read_data
from twinpass.training.method import METHODS, Encode, Method, Numbers, Outcome, Start
from twinpass.training.methods.mlm import MaskedLanguageModel, load_mlm

FOLDER = "start"  # in the output folder, while the new encoder is loaded from it
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_TEXTS = 200_000  # from which a vocabulary is learned
HEAD_WIDTH = 64  # of one attention head, as in BERT


class WithHead:
    """An encoder that is saved together with its prediction head."""

    def __init__(self, mlm: MaskedLanguageModel) -> None:
        self.encoder, self.mlm = mlm.encoder, mlm

    @property
    def model(self) -> torch.nn.Module:
        """The encoder's weights; the head is the method's."""
        return self.encoder.model

    @property
    def encode(self) -> Encode:
        """From texts to vectors."""
        return self.encoder.encode

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self.encoder.dimensions

    @property
    def fingerprint(self) -> str:
        """The encoder's."""
        return self.encoder.fingerprint

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write encoder and head as one checkpoint, which loads as either."""
        with self.mlm.whole() as whole:
            save_model(Path(folder), self.encoder.model, self.encoder.tokens, self.encoder.settings, whole=whole)


@METHODS.register("mlm")
class Pretraining(Method):
    """The tokens of each sentence are masked anew in every step."""

    title = "masked-language-model pretraining (Devlin et al., 2019)"
    objective = "masked language model (Devlin et al., 2019): guess the masked tokens"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        with self._starting_model():
            self.encoder = self.load_plain_encoder()
            resumed = start.checkpoint is not None
            self.mlm = load_mlm(self.encoder, self.run, rate=self.run.mlm_rate, resumed=resumed)
        total = count_rows(self.rows) if self.run.steps is not None else None
        held = self.batches(total).visited(self.run.steps) if self.run.steps is not None and total else None
        self.data = read_data(self.rows, self.tokenizer(self.encoder), total=total, held=held)
        self.models = {"encoder": WithHead(self.mlm)}
        self.heads = {"mlm": self.mlm.head}

    @contextlib.contextmanager
    def _starting_model(self) -> Iterator[None]:
        """Where the run starts from nothing, write the new encoder for as long as it is loaded."""
        run, start = self.run, self.start
        if not run.model.startswith(NEW_MODEL) or start.checkpoint is not None or start.encoder is not None:
            yield
            return
        folder = Path(run.output) / FOLDER
        try:
            if self.processes.is_main:
                shutil.rmtree(folder, ignore_errors=True)
                make_encoder(run, self.rows, folder)
            self.processes.wait()
            encoder = Encoder.load(folder, pooler=run.pooler, device=str(self.device), dropout=run.dropout)
            self.start = replace(start, encoder=encoder)
            yield
            self.processes.wait()
        finally:
            if self.processes.is_main:
                shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def load_saved(folder: Path, device: torch.device) -> WithHead:
        """Load a model that this method saved, with its head."""
        encoder = Encoder.load(folder, device=str(device))
        return WithHead(MaskedLanguageModel.load(encoder, rate=0.15, seed=0, may_be_fresh=False))

    def backward(self, step: int, examples: Numbers) -> Outcome:
        """Mask the sentences and propagate the mean loss over all masked tokens."""
        # Every process masks the whole batch, so that the masks do not depend on how many share it.
        random = np.random.default_rng([self.run.seed, step, 1])
        corrupted = [self.mlm.corrupt(self.data.ids(text), random) for text in self.data.columns(examples)[0]]
        own = [corrupted[place] for place in self.processes.share(np.arange(len(examples)))]
        loss = self.mlm.propagate(own, weight=1.0, processes=self.processes)
        return Outcome(loss, texts=len(examples), mlm_loss=loss)


def make_encoder(run: Run, rows: Rows, folder: Path) -> None:
    """Write a BERT with random weights and a vocabulary of the training text, the same for the same run and text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    size = new_model(run.model)
    words: Any = Tokenizer(models.BPE(unk_token="[UNK]"))
    words.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    words.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size["vocabulary"],
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    words.train_from_iterator(_texts(rows), trainer=trainer)
    ends = [(name, words.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    config = BertConfig(
        vocab_size=words.get_vocab_size(),
        hidden_size=size["width"],
        num_hidden_layers=size["layers"],
        num_attention_heads=max(1, size["width"] // HEAD_WIDTH),
        intermediate_size=4 * size["width"],
        max_position_embeddings=512,
    )
    named = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL}
    with explaining(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with writing_folder(folder) as aside, torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(run.seed)
        network: Any = BertForMaskedLM(config)
        network.save_pretrained(aside)
        tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=512, **named)
        tokenizer.save_pretrained(aside)


def _texts(rows: Rows) -> Iterator[str]:
    return (row.texts[0] for row in islice(rows, VOCABULARY_TEXTS))

"""InferSent's encoder: a bidirectional LSTM over frozen word vectors, and its maximum over time.

::

    FOLDER/
      bilstm.json         format, sizes
      model.safetensors   the LSTM's weights and the word vectors
      words.txt           the words, one per line, in the order of the vectors
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from twinpass.encoder.encoder import TOKEN_BUDGET, WINDOW
from twinpass.encoder.folder import read_json
from twinpass.encoder.load import explained
from twinpass.encoder.runtime import choose_device
from twinpass.encoder.runtime.pytorch import evaluating
from twinpass.encoder.tokens import Distinct, windows
from twinpass.encoder.wordvectors import WordVectors
from twinpass.errors import ModelError
from twinpass.files import explaining, write_json
from twinpass.text.batch import cut
from twinpass.vectors import unit

FILE, WORDS, WEIGHTS = "bilstm.json", "words.txt", "model.safetensors"
FORMAT = 1

Vectors = NDArray[np.float32]


class BiLstm(nn.Module):
    """Word vectors (n, words, width) of known lengths to sentence vectors (n, 2 * hidden)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return each unit's maximum over the sentence's words."""
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, padding_value=-torch.inf)
        return states.amax(dim=1)


class BiLstmEncoder:
    """A BiLSTM with the word vectors it reads: texts to vectors."""

    def __init__(self, model: BiLstm, words: WordVectors, *, name: str, device: torch.device) -> None:
        self.model = model.to(device)
        self.words = words
        self.name = name
        self.device = device
        # One more row of zeros: a text without a known word still needs one position.
        empty = np.zeros((1, words.dimensions), dtype=np.float32)
        self.table = torch.from_numpy(np.concatenate([words.vectors, empty])).to(device)

    @classmethod
    def fresh(cls, words: WordVectors, *, hidden: int, device: torch.device) -> BiLstmEncoder:
        """Make an untrained one from torch's present random state."""
        return cls(BiLstm(words.dimensions, hidden), words, name=words.name, device=device)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, device: str = "auto") -> BiLstmEncoder:
        """Load what `save` wrote; anything missing or inconsistent is an error."""
        folder = Path(folder)
        facts = read_json(folder / FILE)
        if facts.get("format") != FORMAT:
            found = f"{folder / FILE}: format {facts.get('format')!r}"
            raise ModelError(f"{found} is not {FORMAT}; this folder needs another version of twinpass.")
        with explained(folder):
            weights = load_file(folder / WEIGHTS)
            vectors = weights.pop("words").numpy()
            known = (folder / WORDS).read_bytes().decode().split("\n")[:-1]
            if len(known) != len(vectors):
                raise ModelError(f"{folder / WORDS} has {len(known)} words for {len(vectors)} vectors.")
            shape, sizes = tuple(weights["lstm.weight_ih_l0"].shape), (facts["hidden"], facts["word_dimensions"])
            if shape != (4 * sizes[0], sizes[1]):  # before an LSTM of that size is made
                raise ModelError(f"cannot load {folder / FILE}: sizes {sizes} do not fit weights of shape {shape}.")
            model = BiLstm(sizes[1], sizes[0])
            model.load_state_dict(weights)
        words = WordVectors({word: row for row, word in enumerate(known)}, vectors, name=str(folder), fingerprint="")
        return cls(model.eval(), words, name=str(folder), device=choose_device(device))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the encoder with all the words it knows."""
        folder = Path(folder)
        with explaining(folder):
            folder.mkdir(exist_ok=True)
            weights = {name: tensor.cpu().contiguous() for name, tensor in self.model.state_dict().items()}
            save_file(weights | {"words": torch.from_numpy(self.words.vectors)}, folder / WEIGHTS)
            lines = "".join(f"{word}\n" for word in self.words.words)
            (folder / WORDS).write_bytes(lines.encode())
        sizes = {"hidden": self.model.lstm.hidden_size, "word_dimensions": self.words.dimensions}
        write_json(folder / FILE, {"format": FORMAT, "kind": "bilstm-max", **sizes})

    def encode(self, texts: Iterable[str], *, normalize: bool = False) -> Vectors:
        """Return one float32 vector per text (n, dimensions), in order; each distinct text is encoded once."""
        distinct = Distinct()
        blocks = [np.empty((0, self.dimensions), dtype=np.float32)]
        with evaluating(self.model), torch.inference_mode():
            for window in windows(texts, WINDOW):
                rows = self.word_rows(distinct.add(window))
                blocks.append(np.empty((len(rows), self.dimensions), dtype=np.float32))
                for batch in cut(np.fromiter(map(len, rows), np.int64, len(rows)), token_budget=TOKEN_BUDGET):
                    blocks[-1][batch] = self.encode_rows([rows[place] for place in batch]).cpu().numpy()
        vectors = np.concatenate(blocks)[np.asarray(distinct.rows, dtype=np.int64)]
        return unit(vectors) if normalize else vectors

    def word_rows(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the rows of each text's known words in the table; the row of zeros where none is known."""
        return [self.words.rows(text) or [len(self.words.vectors)] for text in texts]

    def encode_rows(self, rows: Sequence[Any]) -> Tensor:
        """Return the vectors (n, dimensions) of rows of words, with their graph."""
        lengths = torch.tensor([len(row) for row in rows])
        padded = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        for place, row in enumerate(rows):
            padded[place, : len(row)] = torch.as_tensor(row)
        vectors: Tensor = self.model(self.table[padded.to(self.device)], lengths)
        return vectors

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return 2 * self.model.lstm.hidden_size

    @property
    def fingerprint(self) -> str:
        """A SHA-256 over words, their vectors and the weights: equal fingerprints give equal vectors."""
        digest = hashlib.sha256(repr((FORMAT, list(self.words.words), self.words.vectors.shape)).encode())
        digest.update(np.ascontiguousarray(self.words.vectors).data)
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()

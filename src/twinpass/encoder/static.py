"""A static model: one vector per token; a text's vector is the mean of its tokens' vectors, scaled to length one.

Nothing is computed but sums, so it needs numpy, tokenizers and safetensors, and neither torch nor transformers. Its
folder is also one of model2vec (Tulkens and van Dongen, 2024) and of sentence-transformers, and a folder that model2vec
wrote is read here::

    model.safetensors                    "embeddings" (tokens, dimensions), in float16: reduced and weighted
    tokenizer.json                       what the library tokenizers reads; it adds no special tokens
    config.json, modules.json            what model2vec and sentence-transformers read
    twinpass.json                        the settings, and under "static" where the vectors come from
    distill.json, README.md              what was measured, and the card
    SHA256SUMS                           checksums of the files
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.encoder.checks import check_settings, check_tokens
from twinpass.encoder.checksums import check_checksums, write_checksums
from twinpass.encoder.folder import FILE, FORMAT, NORMALIZE, TOKENIZER, Settings, read_json, read_settings
from twinpass.encoder.runtime import Forward
from twinpass.encoder.tokens import PlainTokenizer, Tokens
from twinpass.errors import ModelError
from twinpass.files import sha256, write_json
from twinpass.progress import Advance
from twinpass.vectors import unit

Vectors = NDArray[np.float32]

WEIGHTS = "model.safetensors"
TABLE = "embeddings"  # the tensor's name in model2vec's files
RUNTIME = "numpy"
POOLER = "avg"
FEW = 256  # texts up to which importing scipy costs more than it saves
_BLOCK = 4_096  # texts
_PEER = "model2vec"
_NOTHING_ADDED = {"post_processor": None, "truncation": None, "padding": None}  # by the tokenizer, to a text's tokens


@dataclass(frozen=True, kw_only=True)
class Static:
    """A table of token vectors, and where it comes from."""

    table: Vectors  # (tokens + 1, dimensions); the last row is zeros, for a text without tokens
    silent: NDArray[np.int64]  # ids that do not count: special and unknown tokens, the last row; their vectors are zero
    normalize: bool = True
    source: Mapping[str, Any] = field(default_factory=dict)  # "name" and "fingerprint" of the teacher
    content: str = ""  # SHA-256 of the table and the tokenizer

    def pool(self, ids: Sequence[Any]) -> Vectors:
        """Return the mean of each text's token vectors (n, dimensions), of length one; zeros where no token counts."""
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        tokens = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))
        ends = np.concatenate([[0], lengths.cumsum()])
        sums = _sum_few(self.table, tokens, ends) if len(ids) <= FEW else _sum_many(self.table, tokens, ends)
        if self.normalize:  # the mean's direction is the sum's
            return unit(sums)
        counted = np.concatenate([[0], np.cumsum(~np.isin(tokens, self.silent))])[ends]
        means: Vectors = sums / np.maximum(np.diff(counted), 1)[:, None].astype(np.float32)
        return means

    def pool_all(self, ids: Sequence[Any], advance: Advance = lambda count: None) -> Vectors:
        """Pool any number of texts, block by block."""
        vectors = np.empty((len(ids), self.table.shape[1]), dtype=np.float32)
        for start in range(0, len(ids), _BLOCK):
            block = ids[start : start + _BLOCK]
            vectors[start : start + len(block)] = self.pool(block)
            advance(len(block))
        return vectors

    @contextlib.contextmanager
    def session(self) -> Iterator[Forward]:
        """Yield the forward pass over padded ids, as any runtime does; `pool` needs no padding."""
        yield lambda inputs: self.pool(
            [row[kept > 0] for row, kept in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)]
        )

    def fingerprint(self, settings: Settings) -> str:
        """Return a SHA-256 over everything that the vectors depend on."""
        described = {"content": self.content, "settings": asdict(settings), "normalize": self.normalize}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _sum_few(table: Vectors, tokens: NDArray[np.int64], ends: NDArray[np.int64]) -> Vectors:
    return np.stack([table[tokens[start:end]].sum(axis=0) for start, end in pairwise(ends)])


def _sum_many(table: Vectors, tokens: NDArray[np.int64], ends: NDArray[np.int64]) -> Vectors:
    """Multiply a sparse matrix of ones by the table: the vectors are added up without being copied first."""
    from scipy.sparse import csr_array

    ones = np.ones(len(tokens), dtype=np.float32)
    sums: Vectors = csr_array((ones, tokens, ends), shape=(len(ends) - 1, len(table))) @ table
    return sums


def read_static(folder: Path) -> tuple[Static, Tokens, Settings] | None:
    """Load a static model, ours or model2vec's, with its tokenizer and settings; None for any other folder."""
    ours = (folder / FILE).is_file()
    if not ours and not (folder / WEIGHTS).is_file():
        return None
    path = folder / (FILE if ours else "config.json")
    document = read_json(path) if path.is_file() else {}
    if not ("static" in document if ours else document.get("model_type") == _PEER):
        return None
    check_checksums(folder)
    about = document["static"] if ours else document
    settings = read_settings(folder) if ours else Settings(pooler=POOLER, layers=(NORMALIZE,))
    assert settings is not None  # there is a twinpass.json
    check_settings(folder, settings)
    for part in (folder / WEIGHTS, folder / TOKENIZER):
        if not part.is_file():
            raise ModelError(f"{part} is missing: the static model is incomplete. Save or download it again.")
    normalize = about.get("normalize", False) if isinstance(about, dict) else None
    if not isinstance(normalize, bool):
        raise ModelError(f"{path}: expected normalize to be true or false, got {about!r:.60}. The file is damaged.")
    table, rules = _read_table(folder / WEIGHTS), read_json(folder / TOKENIZER)
    tokens = plain_tokens(rules, settings, pad_id=len(table))
    check_tokens(folder, tokens, len(table))
    silent = np.append(silent_ids(rules, special=ours), len(table))
    table = np.concatenate([table, np.zeros_like(table[:1])])
    table[silent] = 0
    source = about.get("source", {}) if ours else {"name": str(about.get("tokenizer_name", ""))}
    content = hashlib.sha256((sha256(folder / WEIGHTS) + sha256(folder / TOKENIZER)).encode()).hexdigest()
    return Static(table=table, silent=silent, normalize=normalize, source=source, content=content), tokens, settings


def _read_table(path: Path) -> Vectors:
    """Read the table as float32; model2vec's may hold clusters of tokens, and weights beside the vectors."""
    from safetensors.numpy import load_file

    parts = load_file(path)
    if TABLE not in parts or parts[TABLE].ndim != 2:
        raise ModelError(f"{path}: expected a tensor {TABLE!r} (tokens, dimensions), got {', '.join(parts) or 'none'}.")
    table = parts[TABLE].astype(np.float32)
    table = table[parts["mapping"]] if "mapping" in parts else table
    return table * parts["weights"].astype(np.float32)[:, None] if "weights" in parts else table


def plain_tokens(rules: dict[str, Any], settings: Settings, *, pad_id: int) -> Tokens:
    """Make the tokenizer, so that it adds no special tokens and cuts nothing."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(json.dumps({**rules, **_NOTHING_ADDED}))
    text: dict[str, Any] = {"lowercase": settings.lowercase, "prompt": settings.prompt}
    return Tokens(PlainTokenizer(backend, "right"), pad_id=pad_id, takes_types=False, limit=None, **text)


def silent_ids(rules: Mapping[str, Any], *, special: bool = True) -> NDArray[np.int64]:
    """Return the ids of the unknown token and of the special tokens, by a tokenizer's rules, in ascending order.

    model2vec leaves out the unknown token only, so a text with "[SEP]" in it has another mean there.
    """
    added = {token["content"]: token["id"] for token in rules.get("added_tokens", []) if token.get("special")}
    model = rules["model"]
    vocabulary = model.get("vocab") if isinstance(model.get("vocab"), dict) else {}
    unknown = {**added, **vocabulary}.get(model.get("unk_token"), model.get("unk_id"))
    found = {*(added.values() if special else ()), *([] if unknown is None else [unknown])}
    return np.array(sorted(found), dtype=np.int64)


def save_static(
    folder: Path,
    table: Vectors,
    rules: Mapping[str, Any],
    settings: Settings,
    *,
    source: Mapping[str, Any],
    made: Mapping[str, Any],
) -> None:
    """Write a static model into an empty folder; `rules` are the teacher's tokenizer, `made` says how it was made."""
    from safetensors.numpy import save_file

    kept = table.astype(np.float16)
    kept[silent_ids(rules)] = 0
    save_file({TABLE: np.ascontiguousarray(kept)}, folder / WEIGHTS)
    (folder / TOKENIZER).write_text(json.dumps({**rules, **_NOTHING_ADDED}, ensure_ascii=False), encoding="utf-8")
    config = {"model_type": _PEER, "architectures": ["StaticModel"], "tokenizer_name": source.get("name", "")}
    config |= {"hidden_dim": table.shape[1], "seq_length": 1_000_000, "max_length": None, "normalize": True}
    write_json(folder / "config.json", config | {"embedding_dtype": "float16"})
    modules = [("StaticEmbedding", "."), ("Normalize", "1_Normalize")]
    kind = "sentence_transformers.models."
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind + name} for i, (name, path) in enumerate(modules)]
    write_json(folder / "modules.json", listed)
    about = {"normalize": True, "source": dict(source), "made": dict(made)}
    write_json(folder / FILE, {"format": FORMAT, **settings.document(), "static": about})
    write_checksums(folder)

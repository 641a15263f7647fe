"""Texts on their way into an index: read and encoded in blocks, or encoded before; and the record of their model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.progress import Advance, Log, ignore
from twinpass.provenance import checksum, provenance
from twinpass.search.engines.exact import Floats
from twinpass.search.segment import BATCH, Block
from twinpass.search.writer import check_ids

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder

Name = str | os.PathLike[str]
Texts = Name | Iterable[str]  # a name is a file, folder, pattern or corpus; anything else is the texts themselves
Metadata = Iterable[Mapping[str, Any]]
Row = tuple[str, Mapping[str, Any]]

DEFAULT_MODEL = "minilm"
EXPECTED = "Expected a file or a folder of shards written by `twinpass encode -o NAME.parquet`"
OWN_VECTORS = {"name": "your own vectors", "fingerprint": "unknown"}  # the record where no model is known


@dataclass
class Source:
    """Texts with their metadata, how many there are if known, and the facts to keep: complete after the last block."""

    rows: Iterable[Row]
    total: int | None
    facts: dict[str, Any]

    def blocks(self, encoder: Encoder | None, vectors: Floats | None, advance: Advance) -> Iterator[Block]:
        """Yield the texts with their vectors: those that are given, or the encoder's."""
        for block in self._given(vectors) if vectors is not None else self._encoded(encoder):
            yield block
            advance(len(block.texts))

    def _encoded(self, encoder: Any) -> Iterator[Block]:
        for rows, vectors, truncated in encoder.encode_stream(self.rows, key=itemgetter(0), normalize=True):
            self.facts["truncated"] += len(truncated)
            yield _block(rows, vectors)

    def _given(self, vectors: Floats) -> Iterator[Block]:
        rows, start = iter(self.rows), 0
        while held := list(islice(rows, BATCH)):
            yield _block(held, vectors[start : start + len(held)])
            start += len(held)
        if start != len(vectors):
            raise InputError(f"expected a vector for each of {start:,} texts, got {len(vectors):,}.")


def _block(rows: Sequence[Row], vectors: Floats) -> Block:
    texts, metadata = zip(*rows, strict=True)
    return Block(texts, vectors, metadata)


def read_texts(
    texts: Texts,
    metadata: Metadata | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    join: str | None = None,
    header: bool | None = None,
    skip_bad_rows: bool = False,
    id_column: str | None = None,
    log: Log = ignore,
    options: Mapping[str, Any],
) -> Source:
    """Return the texts of a file or corpus with its other columns, or texts and metadata that are given.

    If the index has an `id_column`, wrong ids are refused here: no model is loaded yet, and nothing encoded.
    """
    if not isinstance(texts, (str, os.PathLike)):
        total = len(texts) if isinstance(texts, Sized) else None
        facts = provenance(options=options) | {"bad_rows": 0, "truncated": 0}
        if id_column is not None and isinstance(metadata, Sequence):
            check_ids(metadata, id_column)
        return Source(_paired(texts, metadata), total, facts)
    from twinpass.text.corpus import open_corpus

    if metadata is not None:
        raise ConfigError("expected metadata only with a list of texts: a file brings its other columns.")
    reading: dict[str, Any] = {"columns": columns, "join": join, "header": header, "skip_bad_rows": skip_bad_rows}
    corpus = open_corpus(texts, **reading, single=True, log=log)
    _, total, fingerprint = corpus.survey()
    facts = provenance(data=[(corpus.source, fingerprint)], options={**reading, **options})
    rows = ((text, others) for record, others in corpus.records() for text in record)
    if id_column is not None:
        check_ids((others for record, others in corpus.records() for _ in record), id_column)
    return Source(rows, total, facts | {"bad_rows": corpus.bad_rows, "truncated": 0})


def _paired(texts: Iterable[str], metadata: Metadata | None) -> Iterator[Row]:
    notes = None if metadata is None else iter(metadata)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {number}: expected a string, got {type(text).__name__}.")
        note = {} if notes is None else next(notes, None)
        if note is None:
            raise InputError(f"expected metadata for every text, got {number:,} dictionaries.")
        yield text, note
    if notes is not None and next(notes, None) is not None:
        raise InputError("expected metadata for every text, got more dictionaries than texts.")


def load_encoder(encoder: Encoder | Name | None, log: Log, loading: Mapping[str, Any]) -> Encoder:
    """Return the encoder, or load the model of this name with these options of Encoder.load."""
    if encoder is not None and not isinstance(encoder, (str, os.PathLike)):
        return encoder
    from twinpass.encoder.encoder import Encoder

    name = encoder or DEFAULT_MODEL
    log(f"loading {name} ...")
    return Encoder.load(name, **loading)


def describe_model(encoder: Encoder) -> dict[str, Any]:
    """Return the record that an index keeps of its model: enough to load the same again, from any folder."""
    return {
        "name": str(Path(encoder.name).resolve()) if Path(encoder.name).is_dir() else encoder.name,
        "fingerprint": encoder.fingerprint,
        "pooler": encoder.pooler,
        "max_tokens": encoder.max_tokens,
        "precision": encoder.precision,
        "runtime": encoder.runtime_name,
        **({} if encoder.kept_dimensions is None else {"dimensions": encoder.kept_dimensions}),
    }


def as_it_was(known: Mapping[str, Any], loading: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of Encoder.load that make the model of a record what it was, where `loading` does not say.

    Vectors of OpenVINO come from an export, which is another model than its source in torch.
    """
    names = ["pooler", "max_tokens", "dimensions"]
    if known.get("runtime") == "openvino" and not (loading.get("precision") or loading.get("runtime")):
        names += ["precision", "runtime"]
    return {**loading, **{name: loading.get(name) or known.get(name) for name in names}}


def load_again(
    known: Mapping[str, Any], given: Name | None, loading: Mapping[str, Any], log: Log, *, place: object
) -> Encoder:
    """Load the model of a record as it was, from where `given` says if it has moved."""
    if known["fingerprint"] == OWN_VECTORS["fingerprint"]:
        raise ModelError(f"{place} was built from your own vectors, so its model is unknown. Pass vectors.")
    return load_encoder(given or known["name"], log, as_it_was(known, loading))


class StoredVectors:
    """Texts, vectors and other columns in the parquet files of `encode`, in order, and the model of the vectors."""

    def __init__(self, source: Name) -> None:
        folder = Path(source)
        found = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]
        if not found:
            raise InputError(f"{folder} holds no parquet file. {EXPECTED}.")
        self._paths = found
        self._files = [_open(path) for path in found]
        notes = _notes(found[0], self._files[0])
        for path, file in zip(found, self._files, strict=True):
            if _notes(path, file) != notes:
                raise InputError(f"{path} and {found[0]} come from different models or data. {EXPECTED}.")
        shards = found[-1].stem.rpartition("-of-")[2]  # the name of a shard says how many there are
        if folder.is_dir() and shards.isdecimal() and int(shards) != len(found):
            raise InputError(f"{folder} holds {len(found)} of {int(shards)} shards. {EXPECTED}.")
        self.total = sum(file.metadata.num_rows for file in self._files)
        self.data = (notes["data"], notes["data_fingerprint"])  # what was encoded
        self.model: dict[str, Any] = {"name": notes["model"], "fingerprint": notes["model_fingerprint"]}
        kinds = {"pooler": str, "max_tokens": int, "precision": str, "runtime": str, "dimensions": int}
        self.model |= {name: kind(notes[name]) for name, kind in kinds.items() if name in notes}

    def blocks(self, advance: Advance) -> Iterator[Block]:
        """Yield the rows; all columns but text and vector are metadata."""
        for path, file in zip(self._paths, self._files, strict=True):
            others = [name for name in file.schema_arrow.names if name not in ("text", "vector")]
            for batch in _batches(path, file):
                column = batch.column("vector")
                vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
                rows = batch.select(others).to_pylist() if others else ()
                metadata = [{name: value for name, value in row.items() if value is not None} for row in rows]
                yield Block(batch.column("text").to_pylist(), vectors, metadata or None)
                advance(len(column))


def _open(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    if not path.is_file():
        raise InputError(f"there is no {path}. {EXPECTED}.")
    try:
        return parquet.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a parquet file: {str(error).rstrip('.')}. {EXPECTED}.") from error


def _batches(path: Path, file: Any) -> Iterator[Any]:
    """Yield the rows of a file; what cannot be read, or has another checksum than it was written with, is damaged."""
    import pyarrow as pa

    rows = 0
    try:
        for batch in file.iter_batches(BATCH):
            rows += len(batch)
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged: {str(error).rstrip('.')}. Encode the texts again.") from error
    if rows != file.metadata.num_rows:
        told = f"expected {file.metadata.num_rows:,} rows, got {rows:,}"
        raise InputError(f"{path} is damaged: {told}. Encode the texts again.")


def _notes(path: Path, file: Any) -> dict[str, str]:
    schema = file.schema_arrow
    metadata = {key: value for key, value in (schema.metadata or {}).items() if key[:5] != b"ARROW"}
    notes = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in metadata.items()}
    if "model_fingerprint" not in notes or not {"text", "vector"} <= {*schema.names}:
        raise InputError(f"{path} has no texts with vectors of a known model. {EXPECTED}.")
    kinds = [str(schema.field(name).type) for name in ("text", "vector")]
    if "string" not in kinds[0] or not kinds[1].startswith(("list<", "fixed_size_list<")):
        raise InputError(f"{path} holds {' and '.join(kinds)} in the columns text and vector. {EXPECTED}.")
    stored = notes.pop("checksum", None)  # files of earlier versions have none
    if stored is not None and stored != checksum(notes, schema.names):
        raise InputError(f"{path} is damaged: its header is not as it was written. Encode the texts again.")
    return notes

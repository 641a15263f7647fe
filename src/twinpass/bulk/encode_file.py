"""encode_file: a file or folder of sentences to vectors on disk."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from twinpass.bulk.ray import encode_shards, find_ray
from twinpass.bulk.shards import Job, check_shard_folder
from twinpass.bulk.writers import CARRYING, WRITERS, Columns, Content, Row, encode_lines, encode_rows, find_columns
from twinpass.display import Displayed, Grid, counted
from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.files import check_writable, refuse_own_input, sha256
from twinpass.progress import Advance, Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.text.sources import MAX_LINE_BYTES, input_files

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.text.corpus import Corpus

# The rows of a shard on Ray: what a worker that dies loses at most takes minutes on a core, seconds on a GPU, and
# 100 MB at 384 dimensions. Sixteen blocks of a stream, so that repeats are recognised as in a single file.
SHARD_ROWS = 65_536
# What workers and provenance are given of Encoder.load's options where the user says nothing.
_UNSAID = ("pooler", "max_tokens", "precision", "runtime", "dimensions")
USUAL_LOADING = {**dict.fromkeys(_UNSAID), "device": "auto"}


@dataclass(frozen=True, repr=False)
class EncodedFile(Displayed):
    """What `encode_file` wrote, and what it was made from."""

    texts: int
    distinct: int  # encoded; repeats are recognised within a block of 4,096 texts
    truncated: int  # longer than the model reads
    bad_rows: int  # skipped
    dimensions: int
    columns: tuple[str, ...]  # carried along beside text and vector
    seconds: float
    texts_per_second: float  # of those that this run encoded
    output: Path
    files: tuple[Path, ...]
    shards: int | None  # None for a single file
    resumed: int  # shards that an earlier run had finished
    provenance: Mapping[str, Any]

    def grids(self) -> Sequence[Grid]:
        """Return one table of the numbers."""
        numbers = self.records()[0]
        row = [f"{value:,}" for value in numbers.values()]
        return [Grid(str(self.output), [name.replace("_", " ") for name in numbers], [row])]

    def records(self) -> list[dict[str, Any]]:
        """Return the numbers as one row."""
        names = ("texts", "distinct", "truncated", "bad_rows", "dimensions", "seconds", "texts_per_second")
        return [{name: getattr(self, name) for name in names}]

    def summary(self) -> str:
        """Return the numbers in one line."""
        skipped = f", {counted(self.bad_rows, 'bad row')} skipped" if self.bad_rows else ""
        texts = f"{counted(self.texts, 'text')} ({self.distinct:,} distinct, {self.truncated:,} truncated{skipped})"
        speed = f"{self.seconds:.1f} s, {self.texts_per_second:,.0f} texts/s"
        return f"{texts} -> {self.output}: {counted(self.dimensions, 'dimension')}, {speed}"


def encode_file(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | TextIO,
    *,
    model: str | os.PathLike[str] | Encoder = "minilm",
    columns: str | Sequence[str] | None = None,
    join: str | None = None,
    skip_bad_rows: bool = False,
    header: bool | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    normalize: bool = False,
    shard_rows: int | None = None,
    ray: bool = False,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = silent,
    log: Log = ignore,
    **loading: Any,
) -> EncodedFile:
    """Encode a file, folder, pattern, `-` (stdin), `docs:` or `hf:owner/name` into a file of vectors.

    One float32 vector per text, in order; a row of several text columns gives its vectors one after another. A
    .parquet, .jsonl or .csv file also holds the texts and the other columns of the source; .npy and .safetensors
    vectors only. If the output is a stream, such as sys.stdout, it gets what a .jsonl file would. `columns`, `join`,
    `skip_bad_rows`, `header` and `max_line_bytes` are those of `open_corpus`. `model` is a name, a folder or an
    Encoder; `loading` are options of `Encoder.load` (pooler, device ...), which go with a name.

    A single file appears whole or not at all. With `shard_rows` the output is a folder of files with at most that many
    rows; when stopped, the same call resumes it. With `ray`, `workers` of the Ray cluster at `address` (default: one
    started on this machine) encode the shards, and the output must be parquet.
    """
    from twinpass.encoder.any_model import check_loading
    from twinpass.text.corpus import open_corpus

    check_loading(loading, encode_file)
    stream, target = (None, Path(output)) if isinstance(output, (str, os.PathLike)) else (output, Path("-"))
    if stream is not None and (ray or shard_rows is not None):
        raise ConfigError("a stream is written in one piece: shard_rows and ray need a file name.")
    shard_rows = None if stream is not None else _check(target, shard_rows, ray=ray, workers=workers, address=address)
    refuse_own_input(target, input_files(source))
    reading: dict[str, Any] = {"columns": columns, "join": join, "skip_bad_rows": skip_bad_rows, "header": header}
    corpus = open_corpus(source, **reading, single=True, max_line_bytes=max_line_bytes, log=log)
    _, total, fingerprint = corpus.survey()  # a pass before the work: bad rows show now, not hours later
    carried = (
        find_columns((others for _, others in corpus.records()), numbered=target.suffix == ".csv")
        if stream is not None or target.suffix in CARRYING
        else Columns()
    )
    for old, new in carried.renamed.items():
        log(f"the column {old!r} of the input is called {new!r} in the output, where {old!r} is a name of ours")
    encoder, loading = _open(model, USUAL_LOADING | loading, log)
    if address is not None:
        _refuse_own_exports(encoder)
    options = {**loading, **reading, "normalize": normalize, "shard_rows": shard_rows}
    facts = provenance(model=encoder, data=[(corpus.source, fingerprint)], options=options)
    content = Content(normalize, _metadata(facts), carried)
    rows = _rows(corpus, total, carried)
    started = time.perf_counter()
    resumed: list[dict[str, Any]] = []
    if stream is not None:
        files = []
        with progress("encoding", total=total) as advance:
            counts = [encode_lines(rows, stream, encoder, content, advance)]
    elif shard_rows is None:
        files = [target]
        with progress("encoding", total=total) as advance:
            counts = [encode_rows(rows, total, target, encoder, content, advance)]
    else:
        job = Job(target, total=total, shard_rows=shard_rows, identity=_identity(content, loading))
        files = [target / shard.vectors.name for shard in job.shards]
        resumed = job.finished()
        if job.damaged:
            warnings.warn(f"{', '.join(job.damaged[:3])}: damaged, so encoded again", stacklevel=2)
        if resumed:
            log(f"finished before: {len(resumed):,} of {counted(len(files), 'shard')}")
        with job.working():
            if ray and job.without_texts():
                log(f"cutting the input into {counted(len(files), 'shard')} ...")
                job.write_texts(rows, carried)
            with progress("encoding", total=total) as advance:
                advance(sum(made["rows"] for made in resumed))
                if ray:
                    for made in encode_shards(job, loading, content, workers=workers, address=address):
                        advance(made["rows"])
                else:
                    _encode_here(job, rows, encoder, content, advance)
            counts = job.finished()
    seconds = time.perf_counter() - started
    encoded = total - sum(made["rows"] for made in resumed)
    return EncodedFile(
        texts=total,
        distinct=sum(made["distinct"] for made in counts),
        truncated=sum(made["truncated"] for made in counts),
        bad_rows=corpus.bad_rows,
        dimensions=encoder.dimensions,
        columns=tuple(carried.types),
        seconds=round(seconds, 3),
        texts_per_second=round(encoded / max(seconds, 1e-9), 1),
        output=target,
        files=tuple(files),
        shards=None if shard_rows is None else len(files),
        resumed=len(resumed),
        provenance=facts,
    )


def _check(output: Path, shard_rows: int | None, *, ray: bool, workers: int | None, address: str | None) -> int | None:
    """Raise now what would fail after minutes of reading; return the rows of a shard."""
    if not ray and (workers is not None or address is not None):
        raise ConfigError("workers and address need --ray (in Python: ray=True). Add it, or leave them out.")
    if ray and output.suffix != ".parquet":
        raise OutputError(f"cannot write {output}: with ray the output is a folder whose name ends in .parquet.")
    if output.suffix not in WRITERS:
        raise OutputError(f"cannot write {output}: expected a name that ends in {', '.join(WRITERS)}.")
    if shard_rows is not None and shard_rows < 1:
        raise ConfigError(f"shard_rows is {shard_rows}; expected at least 1.")
    if ray:
        find_ray()
        shard_rows = shard_rows or SHARD_ROWS
    if shard_rows is None:
        check_writable(output)
    else:
        check_shard_folder(output)
    return shard_rows


def _open(model: str | os.PathLike[str] | Encoder, loading: dict[str, Any], log: Log) -> tuple[Encoder, dict[str, Any]]:
    """Return the model, and the options with which a worker loads the same."""
    from twinpass.encoder.encoder import Encoder

    if isinstance(model, Encoder):
        if given := [name for name, value in loading.items() if value not in (None, False, "auto")]:
            raise ConfigError(f"{given[0]} is an option of loading a model, but the model is an Encoder already.")
        settled: dict[str, Any] = {"pooler": model.pooler, "max_tokens": model.max_tokens, "precision": model.precision}
        settled |= {"runtime": model.runtime_name, "dimensions": model.kept_dimensions}
        return model, {**loading, **settled, "device": str(model.device)}
    log(f"loading {model} ...")
    encoder = Encoder.load(model, **loading)
    settled = {"precision": encoder.precision, "runtime": encoder.runtime_name}
    # An exported or static model needs no GPU: none is asked of a cluster.
    return encoder, {**loading, **settled, **({"device": "cpu"} if encoder.runtime_name != "torch" else {})}


def _refuse_own_exports(encoder: Encoder) -> None:
    """Refuse a model that every machine of a cluster would quantise itself: on other texts, so to another model."""
    if encoder.exported is None or encoder.precision != "int8":
        return
    from twinpass.encoder.runtime.choose import exported_here

    if exported_here(encoder.exported):
        raise ConfigError(
            f"with --address (in Python: address=) every machine would quantise {encoder.name} itself, and get other "
            f"vectors. Quantise it once with: twinpass quantize {encoder.name} -o FOLDER, then encode with FOLDER."
        )


def _metadata(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what a reader of the file needs to know, as the formats take it: text to text."""
    name = facts["model"]["name"]
    names = ("pooler", "max_tokens", "precision", "runtime", "dimensions")
    settings = {key: facts.get("options", {}).get(key) for key in names}
    return {
        "twinpass": facts["twinpass"],
        "model": str(Path(name).absolute()) if Path(name).is_dir() else name,  # as it is found from any folder
        "model_fingerprint": facts["model"]["fingerprint"],
        "data": facts["data"][0]["source"],
        "data_fingerprint": facts["data"][0]["fingerprint"],
    } | {key: str(value) for key, value in settings.items() if value is not None}


def _identity(content: Content, loading: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes outputs differ: a job is resumed only if all of it is the same."""
    fingerprints = {name: content.metadata[name] for name in ("model_fingerprint", "data_fingerprint")}
    fingerprints["columns_fingerprint"] = content.columns.fingerprint or ""
    computing = {name: loading[name] for name in ("precision", "runtime")}
    return {**fingerprints, **computing, "normalize": content.normalize}


def _rows(corpus: Corpus, total: int, columns: Columns) -> Iterator[Row]:
    """Yield every text with the other columns of its row; raise if they are not as many as were counted."""
    records = corpus.records() if columns.types else ((row.texts, {}) for row in corpus)
    count = 0
    for texts, others in records:
        for text in texts:
            count += 1
            if count <= total:
                yield text, columns.named(others)
    if count != total:
        raise InputError(
            f"{corpus.source} changed while it was read: {counted(total, 'text')} at first, then {count:,}. "
            "Run again when nothing writes to it."
        )


def _encode_here(job: Job, rows: Iterator[Row], encoder: Encoder, content: Content, advance: Advance) -> None:
    """Encode what is left of a job in this process; truncated texts are reported once, not for each shard."""
    from twinpass.encoder.encoder import TruncationWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for shard, own in job.cut(rows, job.left()):
            counts = encode_rows(own, shard.rows, shard.vectors, encoder, content, advance)
            job.note({"shard": shard.number, **counts, "sha256": sha256(shard.vectors)})
    truncated = sum(made["truncated"] for made in job.finished())
    if truncated:
        longer = "is longer than {} tokens and was" if truncated == 1 else "are longer than {} tokens and were"
        message = f"{counted(truncated, 'text')} {longer.format(encoder.max_tokens)} truncated."
        warnings.warn(message, TruncationWarning, stacklevel=2)

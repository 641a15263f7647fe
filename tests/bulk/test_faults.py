"""What goes wrong while a file is encoded: its own input, a second run, a full disk, damaged weights, an interrupt."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import WORDS

from twinpass.bulk import encode_file as module
from twinpass.bulk import writers
from twinpass.bulk.encode_file import encode_file
from twinpass.encoder.encoder import Encoder
from twinpass.errors import InputError, ModelError, OutputError
from twinpass.files import locked
from twinpass.text.nli import triplets

TEXTS = [f"the cat sat on {'a mat and ' * (n % 5)}the dog number {n}" for n in range(40)]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "texts.txt"
    path.parent.mkdir()
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of eight texts, so that a small file has several."""
    stream = Encoder.encode_stream
    monkeypatch.setattr(Encoder, "encode_stream", lambda self, *given, **named: stream(self, *given, window=8, **named))


def no_threads() -> bool:
    return all(thread.name != "twinpass-ahead" for thread in threading.enumerate())


def test_an_output_is_never_the_input(model: str, lines: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "v.parquet"
    encode_file(lines, vectors, model=model)
    before = vectors.read_bytes()
    (tmp_path / "link.parquet").symlink_to(vectors)
    for source, output in ((vectors, vectors), (vectors, tmp_path / "link.parquet"), (tmp_path / "*.parquet", vectors)):
        with pytest.raises(OutputError, match=r"would replace the input .*\.parquet\. Choose another output"):
            encode_file(source, output, model=model)
    assert vectors.read_bytes() == before
    folder = tmp_path / "shards.parquet"
    encode_file(lines, folder, model=model, shard_rows=20)
    with pytest.raises(OutputError, match="would replace the input"):
        encode_file(folder, folder, model=model, shard_rows=20)
    nli = tmp_path / "nli.csv"
    nli.write_text("premise,hypothesis,label\na,b,entailment\na,c,contradiction\n")
    with pytest.raises(OutputError, match="would replace the input"):
        triplets(nli, nli)


def test_two_runs_with_one_folder_of_shards_are_refused(model: str, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.npy"
    with locked(tmp_path / ".v.npy.lock"):
        holder = rf"v\.npy is locked by another process \(process {os.getpid()} on .*\)"
        with pytest.raises(OutputError, match=holder):
            encode_file(lines, out, model=model, shard_rows=10)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["in"]
    encode_file(lines, out, model=model, shard_rows=10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "v.npy"]  # no lock is left either


def damage(encoder: Encoder) -> None:
    """Make the vector of every text with the word "mat" NaN."""
    with torch.no_grad():
        number = encoder.tokenize(["mat"])[0][1]
        encoder.model.transformer.get_input_embeddings().weight[number] = float("nan")  # type: ignore[operator]


@pytest.mark.parametrize("shard_rows", [None, 7])
def test_vectors_that_are_not_finite_are_not_written(model: str, lines: Path, tmp_path: Path, shard_rows: Any) -> None:
    encoder = Encoder.load(model, device="cpu")
    damage(encoder)
    with pytest.raises(ModelError, match=r"NaN or infinity for .* texts, the first of them 'the cat sat on a mat"):
        encode_file(lines, tmp_path / "v.npy", model=encoder, shard_rows=shard_rows)
    assert [path.name for path in tmp_path.iterdir()] == ["in"] and no_threads()


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_no_thread_and_no_file_is_left_when_it_stops(model, lines, tmp_path, monkeypatch, error) -> None:
    encode_ids = Encoder.encode_ids
    calls: list[int] = []

    def stopping(self: Encoder, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise error
        return encode_ids(self, *given, **named)

    monkeypatch.setattr(Encoder, "encode_ids", stopping)
    with pytest.raises((KeyboardInterrupt, OutputError)):
        encode_file(lines, tmp_path / "v.npy", model=model)
    assert len(calls) == 2 and no_threads()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.usefixtures("small_windows")
def test_an_error_of_the_reader_comes_once_with_file_and_line(model, lines, tmp_path, monkeypatch) -> None:
    def changed(*given: Any) -> Iterator[Any]:
        yield from ((text, {}) for text in TEXTS[:20])
        raise InputError(f"expected text, got something else ({lines}:21).")

    monkeypatch.setattr(module, "_rows", changed)
    with pytest.raises(InputError, match=r"texts\.txt:21") as raised:
        encode_file(lines, tmp_path / "v.parquet", model=model)
    assert raised.value.__cause__ is None and no_threads()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.usefixtures("small_windows")
def test_the_bar_moves_before_the_first_block_is_written(model, lines, tmp_path, monkeypatch) -> None:
    moved: list[int] = []
    seen: list[int] = []
    plain = writers.WRITERS[".npy"]

    def watching(path: Path, shape: Any, content: Any) -> Any:
        @contextmanager
        def opened() -> Iterator[Any]:
            with plain(path, shape, content) as write:
                yield lambda *block: (seen.append(sum(moved)), write(*block))

        return opened()

    monkeypatch.setitem(writers.WRITERS, ".npy", watching)
    rows = [(text, {}) for text in TEXTS]
    content = writers.Content(False, {})
    encoder = Encoder.load(model, device="cpu")
    writers.encode_rows(rows, len(rows), tmp_path / "v.npy", encoder, content, moved.append)
    assert seen == [8, 16, 24, 32, 40] and len(moved) > len(seen)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".safetensors"])
def test_a_full_disk_is_named_with_what_is_needed_and_free(model, tmp_path, tiny_disk: Path, suffix: str) -> None:
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(f"{WORDS[n % 100]} {WORDS[n // 100]} cat" for n in range(2000)))  # 256 kB of vectors
    amounts = r"65\.5 kB are free, and about 256\.0 kB more are needed"
    with pytest.raises(OutputError, match=rf"cannot write .*v\{suffix}: No space left on device: {amounts}"):
        encode_file(lines, tiny_disk / f"v{suffix}", model=model)
    assert list(tiny_disk.iterdir()) == [] and no_threads()
    advice = r"about 25\.6 kB more are needed\. Finished shards are kept: free space, then run the same command again\."
    with pytest.raises(OutputError, match=rf"No space left on device: .* are free, and {advice}"):
        encode_file(lines, tiny_disk / f"v{suffix}", model=model, shard_rows=200)
    (unfinished,) = tiny_disk.iterdir()
    finished = len(list(unfinished.glob(f"*{suffix}")))
    assert finished >= 1
    subprocess.run(["mount", "-o", "remount,size=2m", str(tiny_disk)], check=True)
    found = encode_file(lines, tiny_disk / f"v{suffix}", model=model, shard_rows=200)
    assert found.resumed == finished and found.shards == 10

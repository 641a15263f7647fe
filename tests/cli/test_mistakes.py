"""Mistakes at the front door, by really running the command: exit 2, one message, no partial file."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def refuse(ran, folder: Path, *words: str) -> None:
    """Check that a command failed as it should and left the folder as it was."""
    assert ran.code == 2, ran.err
    assert ran.out == ""
    errors = [line for line in ran.err.splitlines() if not line.startswith("loading ")]
    assert len(errors) == 1 and errors[0].startswith("twinpass: error: "), ran.err
    assert all(word in errors[0] for word in words), ran.err
    assert [path for path in folder.rglob("*") if path.is_file()] == []


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Enough lines for some 250 kB of vectors."""
    path = tmp_path / "many.txt"
    words = itertools.islice(itertools.product("abcdefghijklm", repeat=3), 2000)
    path.write_text("".join(f"{' '.join(letters)}\n" for letters in words))
    return path


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """Put a small file system over a folder, or skip where that is not allowed."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("needs the right to mount a file system")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a file system here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_missing_input(command, out):
    refuse(command("encode", "nowhere.txt", "-o", out / "v.npy"), out, "nowhere.txt")


def test_empty_input(command, out, tmp_path):
    (tmp_path / "empty.txt").touch()
    refuse(command("encode", tmp_path / "empty.txt", "-o", out / "v.npy"), out, "empty.txt", "empty")


def test_bytes_that_are_not_utf8(command, out, tmp_path):
    (tmp_path / "latin.txt").write_bytes("fine\nfine\ncaf\xe9\n".encode("latin-1"))
    refuse(command("encode", tmp_path / "latin.txt", "-o", out / "v.npy"), out, "latin.txt:3", "UTF-8")


def test_unknown_model(command, out, sentences):
    refuse(command("encode", sentences, "-m", "no-such-model", "-o", out / "v.npy"), out, "no-such-model", "minilm")


def test_model_in_the_home_folder_of_nobody(command, out, sentences):
    refuse(
        command("encode", sentences, "-m", "~nobody-here/x", "-o", out / "v.npy"), out, "no home folder '~nobody-here'"
    )


def test_missing_output_folder(command, out, sentences):
    refuse(command("encode", sentences, "-o", out / "missing" / "v.npy"), out, "no folder", "missing")


def test_read_only_output_folder(command, out, sentences):
    with mounted(out, "ro"):
        refuse(command("encode", sentences, "-o", out / "v.npy"), out, "v.npy", "Read-only file system")


def test_unknown_output_suffix(command, out, sentences):
    refuse(command("encode", sentences, "-o", out / "v.mat"), out, "v.mat", ".npy", ".parquet", ".safetensors")


def test_csv_row_with_too_few_columns(command, out, tmp_path):
    (tmp_path / "short.csv").write_text("sent0,sent1\na,b\nalone\n")
    refuse(command("encode", tmp_path / "short.csv", "-o", out / "v.npy"), out, "short.csv:3")


def test_full_disk(command, out, model, many):
    with mounted(out, "size=100k"):
        refuse(command("encode", many, "-m", model, "-o", out / "v.npy"), out, "v.npy", "No space left on device")


@pytest.mark.parametrize("name", ["v.parquet", "v.safetensors"])
def test_full_disk_in_this_process(run, out, model, many, name: str):
    with mounted(out, "size=100k"):
        refuse(run("encode", many, "-m", model, "-o", out / name), out, name, "No space left on device")


def test_file_larger_than_allowed(command, out, model, many):
    limit = 100_000
    ran = command(
        "encode", many, "-m", model, "-o", out / "v.safetensors", "--shard-rows", 1500,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    refuse(ran, out, "v.safetensors", "File too large")

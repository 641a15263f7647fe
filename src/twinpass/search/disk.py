"""One writer at a time, nothing left lying about, and bytes that really are on the disk."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from twinpass.errors import OutputError
from twinpass.files import explaining

LOCK = "lock"
# Names that a writer gives, and no others: what bears one is deleted when the index does not name it.
OURS = re.compile(r"segment-\d{6,}|removed-\d{6,}\.npy|\.index\.json\..+")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an index for writing; the system lets go of it even if we are killed."""
    with explaining(folder), (folder / LOCK).open("a+", encoding="utf-8") as stream:
        if not _lock(stream.fileno()) or not _is_still(folder / LOCK, stream.fileno()):
            stream.seek(0)
            raise OutputError(
                f"another process ({stream.read().strip() or 'unknown'}) is writing to {folder}. "
                "Wait until it is done; searching needs no waiting."
            )
        stream.truncate(0)
        stream.write(f"process {os.getpid()}")
        stream.flush()
        yield


def _is_still(path: Path, handle: int) -> bool:
    """Tell whether the file we hold has its name yet; a writer that failed takes its lock away."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def sweep(folder: Path, keep: set[str]) -> None:
    """Delete what a writer that was stopped left behind, and what the index no longer names."""
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in keep:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # a reader may hold a file open where that forbids it
            else:
                with contextlib.suppress(OSError):
                    path.unlink()


def strangers(folder: Path, known: set[str]) -> list[str]:
    """Return the names of files in a folder that no index made."""
    return sorted(
        path.name for path in folder.iterdir() if path.name not in known | {LOCK} and not OURS.fullmatch(path.name)
    )


def sync(path: Path) -> None:
    """Put a file, or a folder's list of names, on the disk."""
    if path.is_dir() and sys.platform == "win32":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """Put every file of a folder, and the folder, on the disk."""
    for path in folder.iterdir():
        sync(path)
    sync(folder)


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

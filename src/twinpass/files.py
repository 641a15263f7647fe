"""Files and folders that appear whole or not at all, locks, full disks, hashes, checksums, and the cache folder."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeVar

from twinpass.errors import Busy, InputError, OutputError, UserError
from twinpass.progress import Log, ignore

# The umask can only be read by setting it, so this is done once, before there are threads.
UMASK = os.umask(0)
os.umask(UMASK)

PART = ".part"  # the end of the name of a file or folder that is not complete
_FULL = {errno.ENOSPC, errno.EDQUOT}
Item = TypeVar("Item")
Made = TypeVar("Made")


@contextlib.contextmanager
def writing(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to the target only if nothing failed."""
    target = Path(target)
    with _beside(target, folder=False) as aside, explaining(target):
        yield aside
        flush(aside)
        aside.replace(target)


@contextlib.contextmanager
def writing_folder(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; it replaces the target only if nothing failed."""
    target = Path(target)
    with _beside(target, folder=True) as aside, explaining(target):
        yield aside
        for path in aside.rglob("*"):
            if path.is_file():
                flush(path)
        replace_folder(aside, target)


def write_json(target: str | os.PathLike[str], document: Any) -> None:
    """Write one JSON document, whole or not at all; non-finite numbers become null."""
    text = json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)
    with writing(target) as aside:
        aside.write_text(text + "\n", encoding="utf-8")


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON document with a checksum of all that it says, whatever its layout."""
    return {**document, "checksum": _checksum_of(document)}


def is_sealed(document: Any) -> bool | None:
    """Tell whether a document says what it said when it was sealed; None if it has no checksum."""
    if not isinstance(document, dict) or document.get("checksum") is None:
        return None
    return bool(document["checksum"] == _checksum_of(document))


def _checksum_of(document: Mapping[str, Any]) -> str:
    content = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_sealed(path: Path) -> Any:
    """Read a JSON document; refuse one that does not match its checksum. One without a checksum is read as it is."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if is_sealed(document) is False:
        raise InputError(
            f"{path} is not what was written: its checksum does not match. Restore it from a copy, or make it again. "
            'If you edited it on purpose, delete its field "checksum".'
        )
    return document


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, what: object = None, keep: bool = True) -> Iterator[None]:
    """Hold a lock file, one holder at a time across processes; the system frees it when a process is killed.

    The file says which process on which machine holds it, so a file that a killed process left is no obstacle. Without
    `wait` a lock that is taken raises Busy, which names `what` is locked (the path itself by default) and the
    holder. The file stays, so that those who wait share one lock; where nobody waits, `keep=False` removes it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False)  # whichever thread ends the block releases it
    with explaining(path):
        try:
            lock.acquire(blocking=wait)
        except Timeout:
            holder = ""
            with contextlib.suppress(OSError, UnicodeDecodeError):  # some systems let nobody read a locked file
                holder = path.read_text(encoding="utf-8").strip()
            raise Busy(
                f"{path if what is None else what} is locked by another process{holder and f' ({holder})'}. Wait until "
                "it is done, then try again."
            ) from None
    try:
        with contextlib.suppress(OSError):  # the lock holds without the note, too
            path.write_text(f"process {os.getpid()} on {platform.node()}\n", encoding="utf-8")
        yield
    finally:
        if not keep:
            with contextlib.suppress(OSError):
                path.unlink()  # while it is held: a process that has it open sees that it is gone
        lock.release()


def sharing(
    items: Iterable[Item], work: Callable[[Item, bool], Made], *, waits: bool = True, log: Log = ignore
) -> Iterator[Made]:
    """Yield what `work(item, wait)` makes of each item; those that another process works on come last.

    An item is such if `work` raises Busy, as `locked` does without `wait`. In the end it is called with `wait` for
    these; where `waits` is false, Busy is raised instead.
    """
    left = list(items)
    for wait in (False, True):
        postponed: list[Item] = []
        busy = None
        for item in left:
            try:
                made = work(item, wait)
            except Busy as error:
                if wait:
                    raise
                log("  another process works on it: postponed")
                postponed.append(item)
                busy = error
            else:
                yield made
        if busy is not None and not waits:
            raise busy
        left = postponed


def check_writable(target: str | os.PathLike[str]) -> None:
    """Raise OutputError now if a file or folder of this name could not be written later."""
    with _beside(Path(target), folder=False):
        pass


def check_replaceable(output: Path, *, record: str, verb: str, overwrite: bool) -> None:
    """Raise OutputError for a folder that cannot be written, or that the verb did not write or may not replace.

    The verb writes the file `record` into every folder that it makes.
    """
    if not output.exists():
        check_writable(output)
    elif output.is_dir() and not any(output.iterdir()):
        return
    elif not (output / record).is_file():
        raise OutputError(f"{output} already exists and was not written by {verb}. Choose another --output.")
    elif not overwrite:
        raise OutputError(f"{output} already exists. Add --overwrite to replace it, or choose another --output.")


def refuse_own_input(target: str | os.PathLike[str], inputs: Iterable[Path]) -> None:
    """Raise OutputError if the target is a file that is read, by whatever name or link, or a folder that holds one."""
    target = Path(target)
    if not target.exists():
        return
    own = target.stat()
    for path in inputs:
        places = [path, *path.resolve().parents] if target.is_dir() else [path]
        if any(os.path.samestat(own, place.stat()) for place in places):
            raise OutputError(f"cannot write {target}: it would replace the input {path}. Choose another output.")


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def with_home(name: str | os.PathLike[str], *, of: str = "", refusal: type[UserError] = InputError) -> Path:
    """Return a path with the home folder for ~; refuse the ~ of a user that there is not, and say what it is `of`."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        user = os.fspath(name).partition("/")[0]
        raise refusal(f"{of}{name}: there is no home folder {user!r}. Write the whole path.") from error


def cache_home() -> Path:
    """Return the cache folder: $TWINPASS_CACHE, or the platform's own (on Linux ~/.cache/twinpass)."""
    if named := os.environ.get("TWINPASS_CACHE"):
        return with_home(named, of="TWINPASS_CACHE=")
    from platformdirs import user_cache_path

    return user_cache_path("twinpass", appauthor=False)


def cache_folder(part: str) -> Path:
    """Return the folder for one kind of cached files, created if it is missing."""
    folder = cache_home() / part
    with explaining(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep_recent(used: Path, *, most: int = 16) -> None:
    """Note that a cached file or folder is used now, and delete those beside it except the most recently used.

    Lock files stay. A cache that cannot be written to stays as it is.
    """
    with contextlib.suppress(OSError):
        os.utime(used)
        entries = [path for path in used.parent.iterdir() if path.suffix not in (".lock", PART)]
        entries.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in entries[most:]:
            _delete(old)


@contextlib.contextmanager
def explaining(target: Path) -> Iterator[None]:
    """Turn the system's errors on writing into an OutputError that names the target."""
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise disk_full(target, error) from error
        # safetensors reports the system's errors with its own error class, which is not imported just for this test.
        system = type(error).__name__ == "SafetensorError" and "os error" in str(error)
        if not system and not isinstance(error, OSError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"cannot write {target}: {reason}. What was there before is unchanged. Choose another place."
        ) from error


def is_full(error: BaseException | None) -> bool:
    """Return whether an error says that a disk, or the user's share of it, is full."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return type(error).__name__ == "SafetensorError" and any(f"os error {code})" in str(error) for code in _FULL)


class DiskFull(OutputError):
    """A full disk: which path it refused, how much is free, how much is needed, what to do."""

    def __init__(
        self,
        target: Path,
        reason: str,
        *,
        needed: int | None = None,
        advice: str = "What was there before is unchanged. Free space, or choose another place.",
    ) -> None:
        self.target, self.reason, self.needed = target, reason, needed
        folder = next(place for place in (target, *target.absolute().parents) if place.exists())
        wanted = "" if needed is None else f", and about {human_bytes(needed)} more are needed"
        free = human_bytes(shutil.disk_usage(folder).free)
        super().__init__(f"cannot write {target}: {reason}: {free} are free{wanted}. {advice}")


def disk_full(target: Path, error: BaseException) -> DiskFull:
    """Return the error that explains a full disk."""
    return DiskFull(target, getattr(error, "strerror", None) or os.strerror(errno.ENOSPC))


def human_bytes(count: float) -> str:
    """Return a number of bytes in the unit that fits it: 800 bytes, 12.5 kB, 1.2 GB."""
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


@contextlib.contextmanager
def _beside(target: Path, *, folder: bool) -> Iterator[Path]:
    """Yield an empty file or folder next to the target, so that renaming stays on one disk; delete it afterwards.

    It is locked meanwhile, which tells it from one that a killed process left: those are deleted here.
    """
    parent = target.parent
    if not parent.is_dir():
        raise OutputError(
            f"cannot write {target}: there is no folder {parent}. Create it first, or choose another place."
        )
    if not folder and target.is_dir():
        raise OutputError(f"cannot write {target}: it is a folder. Name a file.")
    with explaining(target):
        _clear_leftovers(target)
        aside, handle = _make_locked(target, folder=folder)
    try:
        yield aside
    finally:
        os.close(handle)
        _delete(aside)


def _make_locked(target: Path, *, folder: bool) -> tuple[Path, int]:
    """Create a temporary file or folder, and a handle that locks it until the process ends."""
    while True:
        make = tempfile.mkdtemp if folder else _make_file
        name = make(prefix=f".{target.name}.", suffix=PART, dir=target.parent)
        handle = os.open(name, os.O_RDONLY)
        if _lock(handle) is not False and os.fstat(handle).st_nlink:
            return Path(name), handle
        os.close(handle)  # another process took it for a leftover before it was locked


def _make_file(suffix: str, prefix: str, dir: Path) -> str:
    handle, name = tempfile.mkstemp(suffix, prefix, dir)
    os.close(handle)
    Path(name).chmod(0o666 & ~UMASK)
    return name


def _clear_leftovers(target: Path) -> None:
    """Delete what killed processes left of this target: temporary files and folders that nobody holds locked."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}{re.escape(PART)}")
    for path in [Path(entry) for entry in os.scandir(target.parent) if ours.fullmatch(entry.name)]:
        with contextlib.suppress(OSError):  # another user's, or deleted meanwhile
            handle = os.open(path, os.O_RDONLY)
            try:
                if _lock(handle):
                    _delete(path)
            finally:
                os.close(handle)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _lock(handle: int) -> bool | None:
    """Lock a file or folder as long as the handle is open; False if another process has, None if no locks exist."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without such locks
        return None
    return True


def flush(path: Path) -> None:
    """Force a file's bytes to the disk; without it, a rename may be there before them after a power cut."""
    with path.open("rb+") as stream:  # some systems flush only files open for writing
        os.fsync(stream.fileno())


def replace_folder(aside: Path, target: Path) -> None:
    """Rename a finished folder to the target; the old one is deleted only after that succeeded."""
    aside.chmod(0o777 & ~UMASK)
    if not target.exists():
        aside.rename(target)
        return
    shelter = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    old = shelter / target.name
    try:
        target.rename(old)
        aside.rename(target)
    except OSError as error:
        _put_back(old, target, error)
        shelter.rmdir()
        raise
    shutil.rmtree(shelter, ignore_errors=True)


def _put_back(old: Path, target: Path, reason: OSError) -> None:
    """Give an old folder its name back; if that fails too, raise OutputError that says where it is now."""
    if not os.path.lexists(old):  # it was never moved
        return
    try:
        old.rename(target)
    except OSError as error:
        raise OutputError(
            f"cannot write {target}: {reason.strerror or reason}. What was there before is now {old}: "
            f"moving it back failed too ({error.strerror or error}). Rename it to {target}."
        ) from error


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: arrays as lists, paths as text, dataclasses as objects, NaN as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if hasattr(value, "tolist"):  # numpy's and torch's arrays and scalars, without importing either
        return plain(value.tolist())
    return value

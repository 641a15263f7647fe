"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import pickle
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from twinpass.errors import Busy, InputError, MissingExtra, OutputError, TwinpassError, UserError
from twinpass.files import (
    DiskFull,
    cache_folder,
    cache_home,
    check_writable,
    explaining,
    human_bytes,
    is_sealed,
    keep_recent,
    locked,
    read_sealed,
    refuse_own_input,
    sealed,
    sha256,
    sharing,
    write_json,
    writing,
    writing_folder,
)
from twinpass.registry import Registry, suggest


def test_a_file_appears_only_when_it_is_finished(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with writing(target) as aside:
        aside.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    with pytest.raises(ZeroDivisionError), writing(target) as aside:
        aside.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_replaces_the_old_one_only_when_it_is_finished(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for content in ("first", "second"):
        with writing_folder(target) as aside:
            (aside / "file").write_text(content)
    with pytest.raises(ZeroDivisionError), writing_folder(target) as aside:
        (aside / "file").write_text("third")
        raise ZeroDivisionError
    assert (target / "file").read_text() == "second"
    assert list(tmp_path.iterdir()) == [target]


def refuse_renames(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Let this many renames succeed, and fail all that follow."""
    rename, calls = Path.rename, []

    def renamed(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > after:
            raise OSError(errno.EACCES, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)


def test_a_folder_that_can_be_neither_replaced_nor_put_back_is_kept(tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "file").write_text("the only copy")
    refuse_renames(monkeypatch, after=1)
    with pytest.raises(OutputError, match="moving it back failed") as raised, writing_folder(target) as new:
        (new / "file").write_text("new")
    (kept,) = tmp_path.rglob("file")
    assert kept.read_text() == "the only copy"
    assert str(kept.parent) in str(raised.value)


def test_a_folder_that_cannot_be_moved_away_is_unchanged(tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "out"
    target.mkdir()
    refuse_renames(monkeypatch, after=0)
    with pytest.raises(OutputError, match="Permission denied"), writing_folder(target):
        pass
    assert list(tmp_path.iterdir()) == [target]


HOLDER = """
import sys
from pathlib import Path
from twinpass.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_that_another_process_holds_is_refused_or_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        says = rf"a\.lock is locked by another process \(process {holder.pid} on {re.escape(platform.node())}\)"
        for _ in range(2):  # who is refused leaves the note as it was
            with pytest.raises(OutputError, match=says), locked(path, wait=False):
                pass
        holder.stdin.close()  # it ends: whoever waits gets the lock now
        with locked(path):
            assert path.exists()
    with locked(path, wait=False):
        pass


def test_a_lock_is_freed_by_a_kill_and_by_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
    with pytest.raises(ZeroDivisionError), locked(path, wait=False):
        raise ZeroDivisionError
    with locked(path, wait=False):
        pass


def test_what_another_process_works_on_comes_last() -> None:
    asked: list[tuple[str, bool]] = []

    def work(item: str, wait: bool) -> str:
        asked.append((item, wait))
        if item in "bd" and not wait:
            raise Busy(item)
        return item.upper()

    assert list(sharing("abcd", work)) == ["A", "C", "B", "D"]
    assert asked == [("a", False), ("b", False), ("c", False), ("d", False), ("b", True), ("d", True)]
    asked.clear()
    with pytest.raises(Busy, match="d"):
        list(sharing("abcd", work, waits=False))
    assert [item for item, _ in asked] == ["a", "b", "c", "d"], "all others are done first"


def test_a_lock_that_need_not_stay_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked(path, wait=False, keep=False):
        with pytest.raises(OutputError, match=r"the folder is locked by"), locked(path, wait=False, what="the folder"):
            pass
        assert path.exists()
    assert not path.exists()


@pytest.mark.parametrize("error", [DiskFull(Path("out"), "No space left", needed=5), MissingExtra("it", "all")])
def test_an_error_reaches_another_process_as_it_is(error: TwinpassError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_a_full_disk_is_explained_in_units_that_fit(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("twinpass.files.shutil.disk_usage", lambda _: SimpleNamespace(free=12_345))
    for error in (OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EDQUOT, "Disk quota exceeded")):
        says = rf"cannot write .*out: {error.strerror}: 12\.3 kB are free"
        with pytest.raises(DiskFull, match=says), explaining(tmp_path / "missing" / "out"):
            raise error
    full = DiskFull(tmp_path, "No space left on device", needed=2_500_000, advice="Make room.")
    assert str(full).endswith("12.3 kB are free, and about 2.5 MB more are needed. Make room.")
    sizes = [0, 999, 1000, 999_949, 999_960, 5e9, 7.25e13]
    assert [human_bytes(size) for size in sizes] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "999.9 kB",
        "1.0 MB",
        "5.0 GB",
        "72.5 TB",
    ]


def test_a_lock_where_nothing_can_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"), locked(tmp_path / "file" / "a.lock"):
        pass


def test_the_systems_refusals_are_explained(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there is no folder"), writing(tmp_path / "missing" / "out"):
        pass
    with pytest.raises(OutputError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(OutputError, match="No space left on device"), writing(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    check_writable(tmp_path / "fine")
    assert list(tmp_path.iterdir()) == []


def test_json_and_digests(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"ü": 1})
    content = (tmp_path / "a.json").read_bytes()
    assert content.decode() == '{\n  "ü": 1\n}\n'
    assert sha256(tmp_path / "a.json") == hashlib.sha256(content).hexdigest()


def test_what_json_has_no_word_for_is_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"loss": math.nan, "limits": (1.5, math.inf), "where": Path("here")})
    assert json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail) == {
        "loss": None,
        "limits": [1.5, None],
        "where": "here",
    }


def test_the_cache_is_in_the_folder_that_the_environment_names(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "here"))
    assert cache_folder("part") == tmp_path / "here" / "part"
    assert cache_folder("part").is_dir()
    monkeypatch.setenv("TWINPASS_CACHE", "~nobody-here/cache")
    with pytest.raises(InputError, match=r"^TWINPASS_CACHE=~nobody-here/cache: there is no home folder '~nobody-here'"):
        cache_home()


def test_of_what_is_cached_the_most_recently_used_stays(tmp_path: Path) -> None:
    for age in range(6):
        (tmp_path / f"{age}.blob").touch()
        os.utime(tmp_path / f"{age}.blob", (1000 - age, 1000 - age))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    os.utime(tmp_path / "folder", (1, 1))
    (tmp_path / "folder.lock").touch()
    keep_recent(tmp_path / "5.blob", most=3)
    assert {path.name for path in tmp_path.iterdir()} == {"5.blob", "0.blob", "1.blob", "folder.lock"}
    keep_recent(tmp_path / "nothing", most=1)
    assert len([*tmp_path.iterdir()]) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms have other places")
def test_the_cache_is_where_linux_keeps_caches(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("TWINPASS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_home() == tmp_path / "twinpass"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_home() == tmp_path / ".cache" / "twinpass"


def test_registry_and_errors() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("one", 1)
    assert (registry["one"], "one" in registry, list(registry), len(registry)) == (1, True, ["one"], 1)
    with pytest.raises(ValueError, match="registered already"):
        registry.add("one", 1)
    with pytest.raises(UserError, match=r"no number named 'on'. Did you mean 'one'"):
        registry["on"]
    assert suggest("two", registry) == ""
    assert issubclass(UserError, TwinpassError)
    assert "pip install 'twinpass[serve]'" in str(MissingExtra("this", "serve"))


LEFT = """
import os, signal, sys
from twinpass.files import writing, writing_folder
make, target, how = {"file": writing, "folder": writing_folder}[sys.argv[1]], sys.argv[2], sys.argv[3]
with make(target) as aside:
    (aside / "half" if sys.argv[1] == "folder" else aside).write_text("half")
    print("writing", flush=True)
    os.kill(os.getpid(), signal.SIGKILL) if how == "dies" else sys.stdin.read()
"""


def leave(kind: str, target: Path, how: str) -> subprocess.Popen[str]:
    """Start a process that writes, and wait until it has begun."""
    command = [sys.executable, "-c", LEFT, kind, str(target), how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="needs the locks of Unix")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_cleared_and_what_a_live_one_writes_is_not(tmp_path: Path, kind: str) -> None:
    target, other = tmp_path / "out.npy", tmp_path / "out"
    with leave(kind, target, "dies") as dead, leave(kind, other, "dies") as unrelated:
        dead.wait(), unrelated.wait()
    (tmp_path / ".out.npy.mine").touch()  # not ours: another name
    assert len(list(tmp_path.iterdir())) == 3
    with leave(kind, target, "lives") as live:
        (held,) = (path for path in tmp_path.glob(".out.npy.*.part"))  # the dead one's is gone
        check_writable(target)
        with writing(target) as aside:
            aside.write_text("whole")
        assert held.exists() and len(list(tmp_path.glob(".out.npy.*.part"))) == 1
        live.kill()
    with writing(target) as aside:
        aside.write_text("whole")
    assert sorted(path.name[:5] for path in tmp_path.iterdir()) == [".out.", ".out.", "out.n"]  # mine, and out's own


def test_an_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in" / "a.parquet"
    path.parent.mkdir()
    path.write_text("rows")
    symbolic, hard = tmp_path / "symbolic.parquet", tmp_path / "hard.parquet"
    symbolic.symlink_to(path)
    os.link(path, hard)
    for name in (path, symbolic, hard, tmp_path / "in" / ".." / "in" / "a.parquet", path.parent):
        with pytest.raises(OutputError, match=r"would replace the input .*a\.parquet"):
            refuse_own_input(name, [path])
    (tmp_path / "b.parquet").touch()
    for name in (tmp_path / "b.parquet", tmp_path / "new.parquet"):
        refuse_own_input(name, [path])


def test_a_sealed_document_shows_every_change(tmp_path: Path) -> None:
    document = {"b": [1.5, None, "\u00e4"], "a": {"n": 2**60}}
    path = tmp_path / "d.json"
    write_json(path, sealed(document))
    assert read_sealed(path) == sealed(document) and is_sealed(sealed(document))
    path.write_text(path.read_text(encoding="utf-8").replace("1.5", "1.4"), encoding="utf-8")
    with pytest.raises(InputError, match=r"d\.json is not what was written"):
        read_sealed(path)
    write_json(path, document)
    assert read_sealed(path) == document and is_sealed(document) is None and is_sealed([]) is None

"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import math
from pathlib import Path

import pytest

from twinpass.errors import MissingExtra, OutputError, TwinpassError, UserError
from twinpass.files import cache_folder, check_writable, sha256, write_json, writing, writing_folder
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


def test_the_cache_is_where_it_was_told_to_be(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "here"))
    assert cache_folder("part") == tmp_path / "here" / "part"
    assert cache_folder("part").is_dir()


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

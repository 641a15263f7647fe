"""Synonyms from WordNet's files: a tiny one made here, and the real one where it is installed."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from tests.text.tiny_wordnet import write_wordnet

from twinpass.errors import InputError, MissingExtra
from twinpass.text import wordnet as module
from twinpass.text.wordnet import EXCEPTIONS, FILES, SYSTEM, find_wordnet

nltk_data = pytest.importorskip("nltk.data", reason="needs the extra [augment]")


@pytest.fixture(autouse=True)
def nltk_as_it_was(monkeypatch) -> None:
    monkeypatch.setattr(nltk_data, "path", [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_wordnet(tmp_path / "dict")


def test_synonyms_share_a_sense_and_are_other_words(folder: Path) -> None:
    found = find_wordnet(str(folder)).synonyms
    assert found("cat") == ("Felis domesticus", "true cat")
    assert found("Cats") == ("Felis domesticus", "true cat")
    assert found("ran") == ("hasten", "operate", "race")
    assert found("BIG") == ("large",)
    assert found("rug") == ("mat",)
    assert found("unknown") == found("日本") == found("") == ()


def test_function_words_have_none(folder: Path) -> None:
    assert find_wordnet(str(folder)).synonyms("a") == ()


def test_the_fingerprint_is_of_the_files(folder: Path, tmp_path: Path) -> None:
    other = write_wordnet(tmp_path / "other")
    assert find_wordnet(str(folder)).fingerprint() == find_wordnet(str(other)).fingerprint()
    (other / "verb.exc").write_text("went go\n")
    assert find_wordnet(str(folder)).fingerprint() != find_wordnet(str(other)).fingerprint()


def test_it_is_found_in_nltks_data_as_a_folder_or_a_zip(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "SYSTEM", tmp_path / "none")
    with pytest.raises(InputError, match=r"apt-get install wordnet-base.*--wordnet DIR"):
        find_wordnet()
    write_wordnet(tmp_path / "unpacked" / "corpora" / "wordnet")
    (tmp_path / "packed" / "corpora").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "packed" / "corpora" / "wordnet.zip", "w") as archive:
        archive.writestr("wordnet/", "")
        for name in (*FILES, *EXCEPTIONS):
            archive.write(folder / name, f"wordnet/{name}")
    wanted = find_wordnet(str(folder)).fingerprint()
    for place in ("unpacked", "packed"):
        monkeypatch.setattr(nltk_data, "path", [str(tmp_path / place)])
        found = find_wordnet()
        assert found.synonyms("rug") == ("mat",)
        assert found.fingerprint() == wanted


def test_it_is_found_where_the_system_keeps_it(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "SYSTEM", folder)
    assert find_wordnet().synonyms("rug") == ("mat",)


def test_a_folder_without_the_files_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "index.verb").unlink()
    with pytest.raises(InputError, match=r"expected a folder of WordNet's files, got .*: it has no index\.verb"):
        find_wordnet(str(folder))
    with pytest.raises(InputError, match="expected a folder of WordNet's files"):
        find_wordnet(str(tmp_path / "none"))
    with pytest.raises(InputError, match="no home folder '~nobody-here'"):
        find_wordnet("~nobody-here/wordnet")


def test_without_nltk_the_extra_is_named(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "nltk"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"twinpass\[augment\]"):
        find_wordnet()


@pytest.mark.skipif(not (SYSTEM / "data.noun").is_file(), reason=f"needs WordNet in {SYSTEM} (wordnet-base)")
def test_the_real_one() -> None:
    found = find_wordnet(str(SYSTEM)).synonyms
    assert {"auto", "automobile", "motorcar"} <= {*found("car")}
    assert "sofa" in found("Couches")
    assert found("the") == found("he") == ()

"""A saved model folder knows its files: other weights are refused, other settings are a warning."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from twinpass.encoder.checksums import FILE
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ModelError
from twinpass.files import sha256


@pytest.fixture
def copy(model: str, tmp_path: Path) -> Path:
    """A copy of a saved model, to be damaged."""
    return Path(shutil.copytree(model, tmp_path / "copy"))


def flip(path: Path) -> None:
    """Change the last bit of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_the_list_holds_every_file_as_sha256sum_writes_it(copy: Path) -> None:
    lines = (copy / FILE).read_text().splitlines()
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.name != FILE)
    assert lines == [f"{sha256(path)}  {path.relative_to(copy).as_posix()}" for path in files]


def test_a_flipped_bit_in_the_weights_is_refused_until_the_list_is_deleted(copy: Path) -> None:
    flip(copy / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors is not the file that was saved.*delete .*SHA256SUMS"):
        Encoder.load(copy, device="cpu")
    (copy / FILE).unlink()
    assert Encoder.load(copy, device="cpu").dimensions == 32


def test_a_setting_that_was_edited_is_a_warning(copy: Path, model: str) -> None:
    path = copy / "twinpass.json"
    path.write_text(path.read_text() + "\n")
    with pytest.warns(UserWarning, match=r"twinpass\.json in .*: changed since the model was saved"):
        found = Encoder.load(copy, device="cpu").encode(["a dog"])
    np.testing.assert_array_equal(found, Encoder.load(model, device="cpu").encode(["a dog"]))


@pytest.mark.parametrize("content", ["", "zz", "0  ../model/config.json\n", "0  a\0b\n", "0  /etc/hostname\n"])
def test_a_damaged_list_does_not_lead_outside(copy: Path, content: str) -> None:
    (copy / FILE).write_text(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Encoder.load(copy, device="cpu")


def test_saving_over_a_model_renews_its_list(copy: Path) -> None:
    encoder = Encoder.load(copy, device="cpu")
    flip(copy / "model.safetensors")
    encoder.save(copy)
    assert Encoder.load(copy, device="cpu").fingerprint == encoder.fingerprint

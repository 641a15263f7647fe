"""What tests of the laboratory start from: generated text and a tiny encoder, made once."""

import pytest

from twinpass.recipes.smoke_data import make_data, make_encoder


@pytest.fixture(scope="session")
def smoke_data(tmp_path_factory):
    """A data folder and an encoder; a test that changes them takes a copy."""
    folder = tmp_path_factory.mktemp("smoke")
    return make_data(folder / "data"), make_encoder(folder / "encoder")

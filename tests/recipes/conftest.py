"""What tests of the laboratory start from: made-up text and a tiny encoder, made once."""

import pytest

from twinpass.recipes.made_up import make_data, make_encoder


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """A data folder and an encoder; a test that changes them takes a copy."""
    folder = tmp_path_factory.mktemp("made-up")
    return make_data(folder / "data"), make_encoder(folder / "encoder")

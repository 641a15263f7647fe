"""Views arrange a row's sentences into passes, and say when a corpus does not fit."""

from __future__ import annotations

import pytest

from twinpass.errors import ConfigError, InputError
from twinpass.text.views import VIEWS, choose_view, shared_dropout


def test_the_dropout_view_makes_two_passes_of_one_sentence() -> None:
    assert VIEWS["dropout"].passes(("x",)) == ("x", "x")


def test_a_shared_mask_makes_one_pass() -> None:
    assert shared_dropout(("x",)) == ("x",)


def test_pairs_and_triplets_make_a_pass_of_each_column() -> None:
    assert VIEWS["pairs"].passes(("x", "y")) == ("x", "y")
    assert VIEWS["triplets"].passes(("x", "y", "z")) == ("x", "y", "z")


@pytest.mark.parametrize(("width", "view"), [(1, "dropout"), (2, "pairs"), (3, "triplets")])
def test_the_number_of_columns_chooses(width: int, view: str) -> None:
    assert choose_view("auto", width=width, source="data.csv") == view
    assert choose_view(view, width=width, source="data.csv") == view


def test_a_view_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"pairs view takes 2 .* data\.csv has 3"):
        choose_view("pairs", width=3, source="data.csv")
    with pytest.raises(InputError, match="has 4 text columns"):
        choose_view("auto", width=4, source="data.csv")
    with pytest.raises(ConfigError, match="Did you mean 'pairs'"):
        choose_view("pair", width=2, source="data.csv")

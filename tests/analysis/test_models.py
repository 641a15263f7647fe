"""Models of an analysis and their variants."""

from __future__ import annotations

import pytest

from twinpass.analysis.models import Variant, parse_variant
from twinpass.errors import ConfigError


def test_variants_are_read() -> None:
    assert parse_variant("minilm") == Variant(source="minilm", label="minilm")
    assert parse_variant("a#whiten") == Variant(source="a", label="a#whiten", whiten=0)
    assert parse_variant("https://x/v1#m").source == "https://x/v1#m"
    for wrong in ("a#layers=0", "a#layers=many", "a#pooler=", "a#whiten=no"):
        with pytest.raises(ConfigError):
            parse_variant(wrong)

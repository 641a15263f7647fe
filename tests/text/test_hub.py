"""Data sets of the hub, with a stand-in for its library."""

from __future__ import annotations

import sys

import pytest
from tests.text.test_formats import read

from twinpass.errors import InputError, MissingExtra
from twinpass.text.corpus import open_corpus


class _Split(list[dict[str, object]]):
    @property
    def column_names(self) -> list[str]:
        return list(self[0]) if self else []

    def select_columns(self, names: list[str]) -> _Split:
        return _Split({name: row[name] for name in names} for row in self)


def test_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _Split({"sentence1": "a b", "sentence2": "c d", "score": float(n)} for n in range(3))
    asked = []

    class Library:
        @staticmethod
        def load_dataset(name: str, config: str | None) -> dict[str, _Split]:
            asked.append((name, config))
            return {"train": rows, "test": _Split(rows[:1])}

    monkeypatch.setitem(sys.modules, "datasets", Library)  # type: ignore[arg-type]
    corpus = open_corpus("hf:owner/name")
    assert corpus.scored and [row.score for row in corpus] == [0.0, 1.0, 2.0]
    assert next(iter(corpus)).where == "hf:owner/name:1"
    assert len(read(open_corpus("hf:owner/name/en:test"))) == 1
    assert asked == [("owner/name", None), ("owner/name", "en")]
    with pytest.raises(InputError, match=r"no split 'dev'. Known: train, test"):
        open_corpus("hf:owner/name:dev")
    with pytest.raises(InputError, match="does not name a data set"):
        open_corpus("hf:name")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"twinpass\[hub\]"):
        open_corpus("hf:owner/name")

"""Hard negatives: the rules against naive loops over made-up vectors, and the files that train reads."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import twinpass
from twinpass.config import Run
from twinpass.encoder.encoder import Encoded
from twinpass.errors import ConfigError, InputError, OutputError
from twinpass.search.index import Index
from twinpass.search.negatives import Rules
from twinpass.text.corpus import open_corpus
from twinpass.training.data import InMemory
from twinpass.vectors import unit
from twinpass.workflows.mine import Mined


class MadeUp:
    """An encoder whose vectors are in a table."""

    name, fingerprint, pooler, max_tokens, precision, runtime_name = "made-up", "f", "none", 8, "fp32", ""
    exported = static = kept_dimensions = None

    def __init__(self, table: dict[str, np.ndarray]) -> None:
        self.table = table

    def encode(self, texts, *, normalize=False):
        vectors = np.array([self.table[text] for text in texts], np.float32)
        return unit(vectors) if normalize else vectors

    def encode_stream(self, items, *, key=lambda item: item, normalize=False, window=3, **_):
        items = list(items)
        for start in range(0, len(items), window):
            block = items[start : start + window]
            yield Encoded(block, self.encode([key(item) for item in block], normalize=normalize), [])


def made_up(pairs: list[tuple[str, str]], more: tuple[str, ...] = (), seed: int = 0) -> MadeUp:
    random = np.random.default_rng(seed)
    texts = dict.fromkeys([text for pair in pairs for text in pair] + list(more))
    return MadeUp({text: random.normal(size=4) + 0.8 for text in texts})


def letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def cosine(encoder: MadeUp, left: str, right: str) -> float:
    a, b = (encoder.table[text].astype(float) for text in (left, right))
    return float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b))


def naive(encoder: MadeUp, pairs, candidates: list[str], rules: Rules) -> list[list[str]]:
    """The definition in words, as loops: every candidate of every pair is looked at."""
    result = []
    for query, positive in pairs:
        excluded = {letters(query)} | {letters(p) for q, p in pairs if letters(q) == letters(query)}
        ranked, seen = [], set()
        for text in sorted(dict.fromkeys(candidates), key=lambda text: -cosine(encoder, query, text)):
            if letters(text) not in excluded | seen:
                seen.add(letters(text))
                ranked.append(text)
        reference, found = cosine(encoder, query, positive), []
        for rank, text in enumerate(ranked, start=1):
            near = cosine(encoder, query, text)
            good = rules.first <= rank <= rules.last
            good &= near <= reference - rules.margin and near <= reference - rules.relative_margin * abs(reference)
            good &= rules.lowest is None or near >= rules.lowest
            good &= rules.highest is None or near <= rules.highest
            found += [text] * good
        result.append(found[: rules.negatives])
    return result


# Repeated queries, repeated positives, texts that differ in case, and queries that are another row's positive.
PAIRS = [(f"query {row % 9}", f"answer {row % 14}") for row in range(20)]
PAIRS += [
    ("query 1", "Answer 3!"),
    ("answer 2", "query 2"),
    ("QUERY 4", "answer 9"),
    ("query 5", "ANSWER 5"),
    ("?", "!"),
]


def mined_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    "rules",
    [
        Rules(),
        Rules(negatives=3, last=12, relative_margin=0),
        Rules(negatives=2, first=3, last=8, margin=0.1),
        Rules(negatives=2, last=5, relative_margin=0.2, lowest=0.1, highest=0.8),
        Rules(negatives=4, last=40, relative_margin=0.9),
    ],
)
def test_negatives_follow_the_rules(tmp_path: Path, rules: Rules):
    encoder, output = made_up(PAIRS), tmp_path / "mined.jsonl"
    options = {"min_score": rules.lowest, "max_score": rules.highest, "ranks": (rules.first, rules.last)}
    options |= {name: getattr(rules, name) for name in ("negatives", "margin", "relative_margin")}
    mined = twinpass.mine(PAIRS, output=output, model=encoder, **options)
    expected = naive(encoder, PAIRS, [positive for _, positive in PAIRS], rules)
    name = "negatives" if rules.negatives > 1 else "negative"
    wanted = [
        {"anchor": query, "positive": positive, name: texts if rules.negatives > 1 else texts[0]}
        for (query, positive), texts in zip(PAIRS, expected, strict=True)
        if texts
    ]
    assert mined_rows(output) == wanted
    assert (mined.pairs, mined.rows, mined.negatives) == (len(PAIRS), len(wanted), sum(map(len, expected)))
    assert mined.dropped == expected.count([]) and mined.fewer == sum(0 < len(e) < rules.negatives for e in expected)
    for kind in ("positives", "negatives"):
        count = len(wanted) if kind == "positives" else mined.negatives
        assert sum(bin[kind] for bin in mined.histogram) == count


def test_what_was_left_out_is_counted_by_reason(tmp_path: Path):
    angles = {"q": 0.0, "Q.": 0.01, "p": 0.5, "p2": 0.02, "near": 0.03, "good": 0.9, "far": 1.0, "FAR": 1.1}
    turned = {text: np.array([np.cos(angle), np.sin(angle)]) for text, angle in angles.items()}
    pairs = [("q", "p"), ("q", "p2")]
    candidates = ["Q.", "p", "p2", "near", "good", "far", "FAR"]
    mined = twinpass.mine(
        pairs[:1], output=tmp_path / "a.jsonl", model=MadeUp(turned), candidates=candidates, negatives=5, ranks=(1, 9)
    )
    assert mined.left_out == {
        "the same text as the query": 1,
        "the row's own positive": 1,
        "too near: within the margin of the positive": 2,
        "a repeated text": 1,
    }
    assert mined_rows(tmp_path / "a.jsonl")[0]["negatives"] == ["good", "far"]
    both = twinpass.mine(pairs, output=tmp_path / "b.jsonl", model=MadeUp(turned), candidates=candidates, ranks=(2, 9))
    assert both.left_out["another positive of the same query"] == 2 and both.left_out["before the first rank"] == 2
    shown = repr(both)
    assert "another positive of the same query" in shown and "█" in shown and "2 of 2 pairs" in shown


def test_random_ones_are_drawn_by_the_seed_from_those_that_are_allowed(tmp_path: Path):
    encoder = made_up(PAIRS)

    def drawn(seed: int) -> list[dict]:
        options = {"negatives": 2, "ranks": (2, 9), "choose": "random", "seed": seed}
        twinpass.mine(PAIRS, output=tmp_path / "x.jsonl", model=encoder, **options)
        return mined_rows(tmp_path / "x.jsonl")

    allowed = naive(encoder, PAIRS, [positive for _, positive in PAIRS], Rules(9, 2, 9))
    by_pair = {pair: set(texts) for pair, texts in zip(PAIRS, allowed, strict=True)}
    first = drawn(1)
    assert first == drawn(1) != drawn(2)
    for row in first:
        chosen = by_pair[row["anchor"], row["positive"]]
        assert set(row["negatives"]) <= chosen and len(row["negatives"]) == min(2, len(chosen))


def test_an_index_and_a_file_give_the_same_negatives(tmp_path: Path):
    more = tuple(f"other text {number}" for number in range(30))
    encoder = made_up(PAIRS, more)
    file = tmp_path / "more.txt"
    file.write_text("\n".join(more), encoding="utf-8")
    index = Index.build(tmp_path / "index", [*more, more[0]], encoder=encoder)
    rows = []
    for place, source in enumerate((more, file, index)):
        output = tmp_path / f"{place}.jsonl"
        twinpass.mine(PAIRS, output=output, model=encoder, candidates=source, negatives=2)
        rows.append(mined_rows(output))
    assert rows[0] == rows[1] == rows[2] and rows[0]
    assert {text for row in rows[0] for text in row["negatives"]} <= set(more)


def test_many_positives_of_one_query_do_not_hide_the_negatives(tmp_path: Path):
    pairs = [("the query", f"answer {row}") for row in range(40)] + [("a", "b"), ("c", "d")]
    encoder = made_up(pairs)
    for row in range(40):
        encoder.table[f"answer {row}"] = encoder.table["the query"] + 0.01
    mined = twinpass.mine(pairs, output=tmp_path / "x.jsonl", model=encoder, ranks=(1, 2))
    assert mined.rows >= 40
    assert {row["negative"] for row in mined_rows(tmp_path / "x.jsonl")[:40]} <= {"b", "d"}


@pytest.mark.parametrize("negatives", [1, 2])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_train_reads_the_output(tmp_path: Path, model: Path, suffix: str, negatives: int):
    pairs = [(f"how many {word}", f"people find {word}") for word in ("water", "oil", "words", "parts", "days", "cats")]
    output = tmp_path / f"triplets.{suffix}"
    options = {"negatives": negatives, "relative_margin": 0, "device": "cpu"}
    mined: Mined = twinpass.mine(pairs, output=output, model=model, **options)
    assert mined.rows >= 2 and mined.negatives >= mined.rows
    if negatives == 1:
        assert open_corpus(output).columns == ("anchor", "positive", "negative")
    run = Run(data=str(output), output=str(tmp_path / "m"), model=str(model), steps=1, batch_size=2, device="cpu")
    assert twinpass.train(run, report=False).finished


def test_several_negatives_in_a_table_are_columns(tmp_path: Path):
    encoder, output = made_up(PAIRS), tmp_path / "x.csv"
    twinpass.mine(PAIRS, output=output, model=encoder, negatives=3)
    with output.open(encoding="utf-8", newline="") as stream:
        names, *rows = csv.reader(stream)
    assert names == ["anchor", "positive", "negative_1", "negative_2", "negative_3"]
    expected = naive(encoder, PAIRS, [positive for _, positive in PAIRS], Rules(negatives=3))
    assert [[text for text in row[2:] if text] for row in rows] == [texts for texts in expected if texts]


def test_held_out_documentation_is_left_out(tmp_path: Path, model: Path):
    from twinpass.workflows.dev import split_documentation

    learned, held = split_documentation("docs:json,textwrap,argparse,heapq,shutil")
    output = tmp_path / "x.jsonl"
    mined = twinpass.mine(
        "docs-pairs:json,textwrap,argparse,heapq,shutil", dev="docs:json,textwrap,argparse,heapq,shutil",
        output=output, model=model, relative_margin=0, device="cpu",
    )  # fmt: skip
    texts = {text for row in mined_rows(output) for text in row.values()}
    assert held and mined.pairs == len(learned) and not texts & {text for pair in held for text in pair}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negatives": 0}, "expected 1 or more"),
        ({"ranks": (0, 5)}, "expected 1 <= first <= last"),
        ({"ranks": (5, 4)}, "expected 1 <= first <= last"),
        ({"ranks": (5, 6), "negatives": 3}, "hold 2, not 3"),
        ({"margin": -0.1}, "margin is -0.1"),
        ({"relative_margin": 1.0}, "relative_margin is 1.0"),
        ({"choose": "best"}, "expected nearest or random"),
        ({"min_score": 0.5, "max_score": 0.5}, "not below max_score"),
        ({"min_score": float("nan")}, "must be numbers"),
    ],
)
def test_impossible_rules_are_refused(tmp_path: Path, options: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        twinpass.mine(PAIRS, output=tmp_path / "x.jsonl", **options)


def test_unusable_data_is_refused_and_no_file_is_left(tmp_path: Path):
    output, encoder = tmp_path / "x.jsonl", made_up(PAIRS)
    with pytest.raises(InputError, match="no pair of the data in memory has a hard negative"):
        twinpass.mine(PAIRS, output=output, model=encoder, max_score=-0.99)
    with pytest.raises(InputError, match="row of another length"):
        twinpass.mine([("a", "b", "c")], output=output, model=encoder)
    with pytest.raises(InputError, match="has no pair"):
        twinpass.mine([], output=output, model=encoder)
    single = tmp_path / "single.txt"
    single.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(InputError, match="expected two, a query and its positive"):
        twinpass.mine(single, output=output, model=encoder)
    table = tmp_path / "pairs.csv"
    table.write_text("query,answer\na,b\nc,d\n", encoding="utf-8")
    mined = tmp_path / "mined.jsonl"
    again = r"has hard negatives already \({}\)\. .*--columns {} "
    for more in ('"negative": "c"', '"negatives": ["c", "d"]'):
        mined.write_text(f'{{"anchor": "a", "positive": "b", {more}}}\n', encoding="utf-8")
        with pytest.raises(InputError, match=again.format("negatives?", "anchor,positive")):
            twinpass.mine(mined, output=output, model=encoder)
    for header in ("query,positive,negative", "sent0,sent1,hard_neg", "Query,Positive,Negative 1,Negative 2"):
        first, second, *more = header.split(",")
        triplets = tmp_path / "triplets.csv"
        triplets.write_text(f"{header}\na{',b' * (len(more) + 1)}\n", encoding="utf-8")
        with pytest.raises(InputError, match=again.format(", ".join(more), f"{first},{second}")):
            twinpass.mine(triplets, output=output, model=encoder)
    with pytest.raises(ConfigError, match="only built-in text"):
        twinpass.mine(table, output=output, model=encoder, dev="docs:")
    with pytest.raises(OutputError):
        twinpass.mine(table, output=table, model=encoder)
    with pytest.raises(OutputError, match="expected a name that ends in"):
        twinpass.mine(PAIRS, output=tmp_path / "x.txt", model=encoder)
    assert not output.exists() and InMemory(PAIRS).width == 2

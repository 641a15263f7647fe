"""Mining hard negatives: texts near a query that are not its answer, as rows that `train` reads."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinpass.display import Displayed, Grid, counted
from twinpass.errors import ConfigError, InputError
from twinpass.files import refuse_own_input
from twinpass.progress import Advance, Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.search.negatives import RANKS, RELATIVE_MARGIN, Mining, Pair, Rules, key_of, negatives_of
from twinpass.text.sources import input_files
from twinpass.text.tables import check_table, write_table
from twinpass.workflows.dev import rows_to_learn_from

if TYPE_CHECKING:
    from twinpass.encoder.encoder import Encoder
    from twinpass.search.index import Index

Name = str | os.PathLike[str]
Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]

WINDOW = 1_024  # queries searched for at a time
BIN = 0.1  # width of a bar of the histogram, in cosine
BAR = 30  # characters of its longest bar


@dataclass(frozen=True, repr=False)
class Mined(Displayed):
    """What mining found: how many rows have negatives, how hard these are, and what was left out and why."""

    output: str
    pairs: int
    rows: int  # written
    fewer: int  # of the rows written, those with fewer negatives than asked for
    negatives: int
    candidates: int
    mean_rank: float
    positive_cosine: float  # means
    negative_cosine: float
    histogram: Sequence[Mapping[str, float]]  # {"from", "to", "positives", "negatives"}
    left_out: Mapping[str, int]  # neighbours that were not taken, by reason
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """Number of pairs without a negative, which are not written."""
        return self.pairs - self.rows

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON can hold them."""
        return super().to_dict() | {"dropped": self.dropped}

    def grids(self) -> Sequence[Grid]:
        """Return the histogram of cosines, and the counts of what was left out."""
        most = max((bin["negatives"] for bin in self.histogram), default=0) or 1
        rows = [
            [
                f"{bin['from']:.2f} to {bin['to']:.2f}",
                f"{bin['positives']:,}",
                f"{bin['negatives']:,}",
                "█" * round(BAR * bin["negatives"] / most),
            ]
            for bin in self.histogram
        ]
        found = (
            f"{self.rows:,} of {self.pairs:,} pairs have a hard negative ({self.negatives:,} in all, from "
            f"{self.candidates:,} candidates) -> {self.output}"
        )
        notes = []
        if self.negatives:
            notes.append(
                f"mean cosine with the query: negatives {self.negative_cosine:.3f}, positives "
                f"{self.positive_cosine:.3f}; mean rank of a negative {self.mean_rank:.1f}"
            )
        if self.fewer:
            notes.append(f"rows with fewer negatives than asked for: {self.fewer:,}")
        dropped = [["pairs without a negative (not written)", f"{self.dropped:,}"]] if self.dropped else []
        counts = [*dropped, *([f"neighbours: {reason}", f"{count:,}"] for reason, count in self.left_out.items())]
        return [
            Grid(found, ("cosine", "positives", "negatives", "how hard"), rows, notes, words=("how hard",)),
            Grid("left out", ("reason", "count"), counts),
        ]


def mine(
    data: Name | Iterable[Pair],
    *,
    output: Name,
    model: Encoder | Name | None = None,
    candidates: Index | Name | Iterable[str] | None = None,
    negatives: int = 1,
    ranks: tuple[int, int] = RANKS,
    margin: float = 0.0,
    relative_margin: float = RELATIVE_MARGIN,
    min_score: float | None = None,
    max_score: float | None = None,
    choose: str = "nearest",
    dev: str | None = None,
    seed: int = 42,
    columns: str | Sequence[str] | None = None,
    join: str | None = None,
    skip_bad_rows: bool = False,
    header: bool | None = None,
    progress: Progress = silent,
    log: Log = ignore,
    **loading: Any,
) -> Mined:
    """Write each pair with hard negatives: texts near the query that are not its positive.

    Candidates are the second texts of the pairs, or those of an index, a file or a list. A query's candidates are
    ranked by cosine, without its own positives, the query itself and texts equal to them but for case, spaces and
    punctuation. Those with a rank within `ranks` may become negatives if their cosine is at least `margin` and the
    share `relative_margin` of the positive's cosine below the positive's, and within `min_score` and `max_score`.
    `choose` takes the nearest `negatives` of them, or draws by `seed`. A pair with none is not written.

    `output` is a .jsonl, .csv or .parquet file with anchor, positive and negative; with several negatives a list
    `negatives` (jsonl) or the columns negative_1, negative_2 ... An index is asked with its own model. `dev` leaves
    out the held-out pairs, on which `train --dev docs:` scores; `loading` are options of Encoder.load.
    """
    rules = Rules(negatives, *ranks, margin, relative_margin, min_score, max_score, choose).check()
    check_table(output)
    for source in (data, candidates):
        if isinstance(source, (str, os.PathLike)):
            refuse_own_input(output, input_files(source))
    pairs, name, content = _read_pairs(
        data, dev, columns=columns, join=join, skip_bad_rows=skip_bad_rows, header=header
    )
    pool = _Pool.open(pairs, candidates, model, progress, log, loading)
    tally = Tally(rules)
    with progress("mining", total=len(pairs)) as advance:
        found = tally.counted(_mine_all(pairs, pool, rules, seed=seed, advance=advance))
        rows = (_row(pair, texts, rules.negatives, Path(output).suffix) for pair, texts in found)
        write_table(output, _not_empty(rows, name), columns=_columns(rules.negatives, Path(output).suffix))
    options = {**rules._asdict(), "dev": dev, "seed": seed, "columns": columns, "header": header}
    facts = provenance(model=pool.encoder, data=[(name, content)], options=options)
    return tally.result(str(output), candidates=len(pool.index), facts=facts)


class Tally:
    """Counts what is found as it goes by."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.pairs = self.rows = self.fewer = self.ranks = 0
        self.left_out: Counter[str] = Counter()
        self.positives, self.negatives = list[float](), list[float]()

    def counted(self, mined: Iterable[tuple[Pair, Mining]]) -> Iterator[tuple[Pair, list[str]]]:
        """Yield the pairs that have negatives, with their texts."""
        for pair, mining in mined:
            self.pairs += 1
            self.left_out.update(mining.left_out)
            if not mining.found:
                continue
            self.rows += 1
            self.fewer += len(mining.found) < self.rules.negatives
            self.ranks += sum(found.rank for found in mining.found)
            self.positives.append(mining.cosine)
            self.negatives += [found.cosine for found in mining.found]
            yield pair, [found.text for found in mining.found]

    def result(self, output: str, *, candidates: int, facts: Mapping[str, Any]) -> Mined:
        """Return all that was counted."""
        return Mined(
            output=output,
            pairs=self.pairs,
            rows=self.rows,
            fewer=self.fewer,
            negatives=len(self.negatives),
            candidates=candidates,
            mean_rank=self.ranks / len(self.negatives),
            positive_cosine=float(np.mean(self.positives)),
            negative_cosine=float(np.mean(self.negatives)),
            histogram=_histogram(self.positives, self.negatives),
            left_out=dict(self.left_out.most_common()),
            provenance=facts,
        )


def _histogram(positives: Sequence[float], negatives: Sequence[float]) -> list[dict[str, float]]:
    both = [*positives, *negatives]
    first, last = int(np.floor(min(both) / BIN)), int(np.floor(max(both) / BIN))
    counts = [Counter(np.floor(np.asarray(cosines) / BIN).astype(int).tolist()) for cosines in (positives, negatives)]
    return [
        {"from": round(bin * BIN, 2), "to": round((bin + 1) * BIN, 2), "positives": above[bin], "negatives": below[bin]}
        for above, below in [counts]
        for bin in range(last, first - 1, -1)
    ]


@dataclass(frozen=True)
class _Pool:
    """The candidates: an index, its texts where they are known, and the model that made it."""

    index: Index
    texts: Sequence[str] | None  # by id; None for an index of the user's

    @classmethod
    def open(
        cls,
        pairs: Sequence[Pair],
        candidates: Index | Name | Iterable[str] | None,
        model: Encoder | Name | None,
        progress: Progress,
        log: Log,
        loading: Mapping[str, Any],
    ) -> _Pool:
        from twinpass.search.index import Index
        from twinpass.text.corpus import open_corpus

        if isinstance(candidates, Index):
            return cls(candidates, None)
        if isinstance(candidates, (str, os.PathLike)):
            if Index.exists(candidates):
                return cls(Index.open(candidates, encoder=model, log=log, **loading), None)
            candidates = open_corpus(candidates).texts()
        texts = list(dict.fromkeys((positive for _, positive in pairs) if candidates is None else candidates))
        if not texts:
            raise InputError("there is no text to choose negatives from.")
        index = Index.build(None, texts, encoder=model, kind="exact", progress=progress, log=log, **loading)
        return cls(index, texts)

    @property
    def encoder(self) -> Encoder:
        return self.index.encoder

    @cached_property
    def place(self) -> dict[str, int]:
        """The id of each text."""
        return {text: place for place, text in enumerate(self.texts or ())}

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the unit vectors of texts, from the index if they are there."""
        if self.texts is not None and all(text in self.place for text in texts):
            return self.index.vectors([self.place[text] for text in texts])
        return self.encoder.encode(texts, normalize=True)

    def named(self, ids: Ids) -> Callable[[int], str]:
        """Return a function from these ids to their texts."""
        if self.texts is not None:
            return self.texts.__getitem__
        distinct = np.unique(ids[ids >= 0])
        entries = self.index.entries_numbered(distinct)
        texts = {number: entry.text for number, entry in zip(distinct.tolist(), entries, strict=True)}
        return texts.__getitem__


def _mine_all(
    pairs: Sequence[Pair], pool: _Pool, rules: Rules, *, seed: int, advance: Advance
) -> Iterator[tuple[Pair, Mining]]:
    """Yield each pair with its hard negatives, in order."""
    positives: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for query, positive in pairs:
        positives[key_of(query)].add(key_of(positive))
    number = 0
    for block in pool.encoder.encode_stream(pairs, key=itemgetter(0), normalize=True, window=WINDOW):
        cosines = (block.vectors * pool.vectors([positive for _, positive in block.items])).sum(axis=1)
        for pair, mining in zip(block.items, _mine_block(block, cosines, pool, rules, positives), strict=True):
            if rules.choose == "random" and len(mining.found) > rules.negatives:
                random = np.random.default_rng([seed, number])
                drawn = np.sort(random.choice(len(mining.found), rules.negatives, replace=False))
                mining = mining._replace(found=[mining.found[place] for place in drawn])
            yield pair, mining
            number += 1
        advance(len(block.items))


def _mine_block(
    block: Any, cosines: Vectors, pool: _Pool, rules: Rules, positives: Mapping[bytes, set[bytes]]
) -> list[Mining]:
    """Search for some queries; where positives and repeats took the first places, look further."""
    minings: dict[int, Mining] = {}
    rows, k = np.arange(len(block.items)), rules.last + 8
    while len(rows):
        scores, ids = pool.index.nearest(block.vectors[rows], min(k, len(pool.index)))
        text_of = pool.named(ids)
        for row, near, found in zip(rows.tolist(), scores.tolist(), ids.tolist(), strict=True):
            pair = block.items[row]
            neighbours = ((text_of(each), cosine) for each, cosine in zip(found, near, strict=True) if each >= 0)
            minings[row] = negatives_of(
                pair, neighbours, cosine=float(cosines[row]), positives=positives[key_of(pair[0])], rules=rules
            )
        short = [row for row in rows.tolist() if not minings[row].complete]
        rows, k = np.array(short if k < len(pool.index) else [], int), 4 * k
    return [minings[row] for row in range(len(block.items))]


def _read_pairs(
    data: Name | Iterable[Pair], dev: str | None, *, columns: str | Sequence[str] | None, **reading: Any
) -> tuple[list[Pair], str, str | None]:
    """Return the pairs, their name and a fingerprint of them."""
    from twinpass.text.corpus import open_corpus

    if not isinstance(data, (str, os.PathLike)):
        pairs, name, content = [tuple(pair) for pair in data], "the data in memory", None
        if any(len(pair) != 2 for pair in pairs):
            raise InputError("expected pairs of a query and its positive, got a row of another length.")
    else:
        name = os.fspath(data)
        names = [each.strip() for each in columns.split(",")] if isinstance(columns, str) else columns
        corpus = open_corpus(data, columns=names, pairs=True, negatives=names is None, **reading)
        if names is None and corpus.width > 2:
            own = ",".join(corpus.columns[:2])
            raise InputError(
                f"{name} has hard negatives already ({', '.join(corpus.columns[2:])}). Name the query's and the "
                f"positive's columns to mine again: --columns {own} (in Python: columns={own!r})."
            )
        if corpus.width != 2:
            raise InputError(
                f"{name} has {counted(corpus.width, 'text column')}; expected two, a query and its positive. Name them "
                "with --columns."
            )
        kept = rows_to_learn_from(name, dev=dev, columns=names)
        if dev is not None and kept is None:
            raise ConfigError(
                f"dev is {dev!r} and the data {name!r}: only built-in text (docs-pairs:) has a held-out part."
            )
        pairs, content = kept if kept is not None else [row.texts for row in corpus], corpus.fingerprint()
    if not pairs:
        raise InputError(f"{name} has no pair.")
    return [(query, positive) for query, positive in pairs], name, content


def _columns(negatives: int, suffix: str) -> list[str]:
    """Return the names of the columns that are written."""
    if negatives == 1:
        return ["anchor", "positive", "negative"]
    if suffix == ".jsonl":
        return ["anchor", "positive", "negatives"]
    return ["anchor", "positive", *(f"negative_{place}" for place in range(1, negatives + 1))]


def _row(pair: Pair, texts: list[str], negatives: int, suffix: str) -> dict[str, Any]:
    """Return a row of the output; a list of negatives is one value in jsonl and several columns elsewhere."""
    values = [*pair, texts] if negatives > 1 and suffix == ".jsonl" else [*pair, *texts]
    return dict(zip(_columns(negatives, suffix), values, strict=False))


def _not_empty(rows: Iterable[dict[str, Any]], source: str) -> Iterator[dict[str, Any]]:
    """Yield the rows; refuse, before a file is there, if there is none."""
    count = 0
    for count, row in enumerate(rows, start=1):  # noqa: B007 - the last count is what matters
        yield row
    if not count:
        raise InputError(
            f"no pair of {source} has a hard negative within these rules, so nothing was written. Widen the ranks, "
            "lower the margins, or give more candidates."
        )

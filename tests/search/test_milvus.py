"""The index on Milvus, with the real client, in a file of milvus-lite."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

from twinpass.errors import ConfigError, InputError, ModelError, OutputError
from twinpass.search.engines.milvus import Address, MilvusIndex
from twinpass.search.engines.milvus_filters import expression, keys_of
from twinpass.search.filters import parse, quoted
from twinpass.search.index import Block, Index

pytest.importorskip("pymilvus", reason="needs pymilvus (extra [milvus])")
pytest.importorskip("milvus_lite", reason="needs milvus-lite (extra [milvus])")

MODEL = {"name": "m", "fingerprint": "a" * 64}
COUNT, DIMENSIONS = 300, 8
STRANGE = ['"', "'", "\\", "a\nb", "ü €", 'x" or 1 == 1 or "', "{0}", "%", "true", "1.50", "", " "]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One file for all of this module: its server, in this process, is started once."""
    path = str(tmp_path_factory.mktemp("milvus") / "test.db")
    yield path
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(path)


@pytest.fixture
def address(file: str, request: pytest.FixtureRequest) -> Address:
    """A collection for each test."""
    return Address(file, "c_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:60])


def vectors(count: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, DIMENSIONS)).astype(np.float32)


def rows(count: int = COUNT, *, seed: int = 0, start: int = 0) -> list[Block]:
    """Blocks whose metadata is of every type, and sometimes absent."""
    made = vectors(count, seed=seed)
    numbers = range(start, start + count)
    metadata = [
        {
            "year": 2000 + n % 20 if n % 3 else str(2000 + n % 20),
            "odd": bool(n % 2),
            "odd one": STRANGE[n % len(STRANGE)],
            **({"rare": n} if n % 10 == 0 else {}),
        }
        for n in numbers
    ]
    texts = [f"text {n}" for n in numbers]
    return [Block(texts[at : at + 128], made[at : at + 128], metadata[at : at + 128]) for at in range(0, count, 128)]


@pytest.fixture(scope="module")
def both(file: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[MilvusIndex, Index]:
    """The same rows in both engines."""
    folder = tmp_path_factory.mktemp("faiss") / "index"
    told = MilvusIndex.from_blocks(Address(file, "both"), rows(), model=MODEL, kind="exact")
    return told, Index.from_blocks(folder, rows(), model=MODEL, kind="exact")


def plain(answers: list) -> list:
    return [[(hit.id, hit.text, hit.metadata) for hit in answer] for answer in answers]


def test_it_finds_what_the_index_of_one_machine_finds(both):
    queries = vectors(5, seed=9)
    found, wanted = (index.search(queries, 7) for index in both)
    assert plain(found) == plain(wanted)
    scores = [[[hit.score for hit in answer] for answer in answers] for answers in (found, wanted)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)


@pytest.mark.parametrize(
    "where",
    [
        "year=2003", "year!=2003", "year<2004.5", "year>=2018", "rare<=30", "rare!=30", "rare > -1e-3", "odd=true",
        "odd!=FALSE", ["year>2005", "odd=false", "rare<200"], *(f"odd one={quoted(value)}" for value in STRANGE),
        *(f"odd one!={quoted(value)}" for value in STRANGE[:6]), "odd one=1.5", "year=2003.0",
        "year='2003 or id >= 0'", "rare is null", "rare = null and odd = true", "not (rare is null or year < 2010)",
        "not (year < 2010 and odd = true)", "not rare < 100", "rare in (10, 20, null)", "rare not in (10, 20, null)",
        "year in (2003, '2004') or rare = 30", "odd one like 'a%'", "odd one like '%b'", "not odd one like '%o%'",
        "odd one like '_'", "odd one not like 'true'", "odd one < b and odd one >= ' '", "not odd one > 'x'",
        *(f"odd one >= {quoted(value)}" for value in STRANGE[:6]),
        *(f"odd one like {quoted('%' + value + '%')}" for value in ('"', "'", "\n", "ü €", 'x" or 1 == 1 or "')),
    ],
    ids=str,
)  # fmt: skip
def test_filters_mean_the_same_in_both_engines(both, where):
    queries = vectors(2, seed=3)
    found, wanted = (index.search(queries, COUNT, where=where) for index in both)
    assert plain(found) == plain(wanted)


def test_an_expression_holds_nothing_that_a_user_wrote():
    where = ['na"me=\'x" or id >= 0 or "\'', "na\"me!=';drop'", 'na"me<7']
    written = expression(parse(where), ['na"me'])
    assert set(written) <= set('()[]"=!<. 0123456789abcdefghijklmnopqrstuvwxyz')
    assert not any(word in written for word in ("drop", "id >= 0", "me"))


def test_what_must_be_compared_as_text_is_quoted():
    written = expression(parse("a like 'x\" or id >= 0 or \"' and a > '\\\"'"), ["a"])
    assert written == r"""((metadata["a"] like "x\" or id >= 0 or \"") and (metadata["a"] > "\\\""))"""
    with pytest.raises(ConfigError, match="Milvus cannot search for %"):
        expression(parse(r"a like '50\%'"), ["a"])


def test_the_rows_are_counted(address):
    index = MilvusIndex.from_blocks(address, rows(20), model=MODEL)
    index.remove(ids=[3])
    assert Index.verify(address.collection, milvus=address.uri).whole
    index._store.client.delete(index._rows, ids=[5])
    found = Index.verify(address.collection, milvus=address.uri)
    assert not found.whole and "holds 18 rows, expected 19" in found.damaged[0].problem


def test_keys_of_columns_keep_their_places():
    places = {"a": 0}
    assert {*keys_of({"b": 2, "a": None}, places)} == {"is1", "n1"}
    assert places == {"a": 0, "b": 1}
    assert keys_of({"b": 2.0}, places) == keys_of({"b": 2}, places) != keys_of({"b": "2"}, places)


def test_scores_below_the_least_are_skipped(both):
    queries = vectors(3, seed=5)
    found, wanted = (index.search(queries, 50, min_score=0.5) for index in both)
    assert plain(found) == plain(wanted) and all(hit.score >= 0.5 for answer in found for hit in answer)


def test_add_remove_and_info(address):
    index = MilvusIndex.from_blocks(address, rows(20), model=MODEL)
    assert index.add_blocks(rows(5, seed=1, start=20), facts={"data": "x"}).added == 5
    assert len(index) == 25 and index.search(vectors(5, seed=1)[3], 1)[0][0].text == "text 23"
    assert index.remove(ids=[0, 24]) == 2
    assert index.remove(texts=["text 3", "text 4", "not there"]) == 2
    assert index.remove(where="year=2005") == 1
    with pytest.raises(InputError, match="no row with the id 24"):
        index.remove(ids=[24])
    told = MilvusIndex(address).info()
    assert (told["rows"], told["removed"], told["dimensions"], told["kind"]) == (20, 5, DIMENSIONS, "auto")
    assert told["columns"] == ["year", "odd", "odd one", "rare"] and told["model"] == MODEL
    assert [(each["what"], each["rows"]) for each in told["history"]] == [
        ("build", 20), ("add", 5), ("remove", 2), ("remove", 2), ("remove", 1)
    ]  # fmt: skip
    assert {hit.text for hit in index.search(vectors(1), 100)[0]} == {
        f"text {n}" for n in range(24) if n not in (0, 3, 4, 5)
    }
    with pytest.raises(ConfigError, match="expected one of ids, texts and where"):
        index.remove()


def test_unique_keeps_one_of_each_text(address):
    index = MilvusIndex.from_blocks(address, [*rows(6), *rows(6)], model=MODEL, unique=True)
    assert len(index) == 6
    written = index.add_blocks([*rows(8, seed=2), *rows(8, seed=2)], unique=True)
    assert (written.added, written.skipped, len(index)) == (2, 14, 8)
    assert index.add_blocks(rows(2)).added == 2 and len(index) == 10  # without it, a text may come again


def test_a_build_replaces_only_when_told_and_readers_follow(address):
    index = MilvusIndex.from_blocks(address, rows(6), model=MODEL)
    with pytest.raises(OutputError, match="already"):
        MilvusIndex.from_blocks(address, rows(3), model=MODEL)
    MilvusIndex.from_blocks(address, rows(3, start=50), model=MODEL, overwrite=True)
    assert {hit.text for hit in index.search(vectors(1), 10)[0]} == {"text 50", "text 51", "text 52"}
    names = index._store.client.list_collections()
    assert sorted(name for name in names if name.startswith(address.collection)) == [
        f"{address.collection}_twinpass", f"{address.collection}_twinpass_000002"
    ]  # fmt: skip


def test_clients_of_one_server_see_each_others_changes(address):
    index = MilvusIndex.from_blocks(address, rows(4), model=MODEL)
    from milvus_lite.server_manager import server_manager_instance

    server = server_manager_instance.start_and_get_uri(address.uri)  # the one that runs already
    other = MilvusIndex(Address(server, address.collection, token="root:Milvus"))
    other.add_blocks(rows(2, start=4))
    assert len(index.search(vectors(1), 10)[0]) == 6
    assert other.info()["index"] == f"{address.collection} at {server}"


class Stop(Exception):
    pass


def stopping(blocks: list[Block]) -> Iterator[Block]:
    yield from blocks
    raise Stop


def test_what_stopped_midway_is_never_seen_and_can_be_done_again(address):
    with pytest.raises(Stop):
        MilvusIndex.from_blocks(address, stopping(rows(1200)), model=MODEL)
    with pytest.raises(InputError, match="there is no index"):
        MilvusIndex(address)
    index = MilvusIndex.from_blocks(address, rows(10), model=MODEL)
    reader = MilvusIndex(address)
    with pytest.raises(Stop):
        index.add_blocks(stopping(rows(1200, seed=1, start=10)))
    assert index.info()["unfinished_addition"] is True
    with pytest.raises(InputError, match="no row with the id 10"):
        index.remove(ids=[10])
    for each in (index, reader, MilvusIndex(address)):
        assert len(each.search(vectors(1), 100)[0]) == 10
    with pytest.raises(Stop):
        MilvusIndex.from_blocks(address, stopping(rows(1200)), model=MODEL, overwrite=True)
    assert len(MilvusIndex(address).search(vectors(1), 100)[0]) == 10
    index.add_blocks(rows(4, seed=1, start=10))
    assert len(index) == len(index.search(vectors(1), 100)[0]) == 14 and not index.info()["unfinished_addition"]


KILLED = """
import numpy as np
from twinpass.search.engines.milvus import Address, MilvusIndex
from twinpass.search.index import Block

made = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)

def blocks(count):
    for n in range(count):
        yield Block([f"{n} {m}" for m in range(1000)], made)
        print(n, flush=True)

address, model = Address({path!r}, "docs"), {model!r}
MilvusIndex.from_blocks(address, blocks(1), model=model)
print("old", flush=True)
MilvusIndex.from_blocks(address, blocks(10_000), model=model, overwrite=True)
"""


def test_killed_during_a_build_it_is_the_old_index_and_can_be_built_again(tmp_path):
    path = str(tmp_path / "killed.db")
    code = textwrap.dedent(KILLED).replace("{path!r}", repr(path)).replace("{model!r}", repr(MODEL))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if line == b"old\n":
            break
    for _ in range(2):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    index = MilvusIndex(Address(path, "docs"))
    assert len(index) == 1000
    again = MilvusIndex.from_blocks(Address(path, "docs"), rows(5), model=MODEL, overwrite=True)
    assert len(again) == 5 == len(index.search(vectors(1), 100)[0])


def test_mistakes_are_told(address, file, tmp_path):
    index = MilvusIndex.from_blocks(address, rows(3), model=MODEL, kind="hnsw")
    assert index.search(vectors(3)[2], 1)[0][0].text == "text 2"
    with pytest.raises(ModelError, match=r"built with the model m \(aaaaaaaaaaaa\), not with n \(bbbbbbbbbbbb\)"):
        index.check_model(name="n", fingerprint="b" * 64)
    index.check_model(name="n", fingerprint="a" * 64)
    for wrong, told in [
        (lambda: index.search(vectors(1)[:, :3], 1), "expected vectors of shape"),
        (lambda: index.search(vectors(1), 0), "k is 0"),
        (lambda: index.search(vectors(1), 10, where="yaer=3"), "Did you mean 'year'"),
        (lambda: index.add_blocks([Block(["x"], np.full((1, DIMENSIONS), np.nan))]), "non-finite"),
        (lambda: MilvusIndex.from_blocks(address, rows(3), model=MODEL, kind="ivf-pq"), "no kind of index"),
        (lambda: MilvusIndex.from_blocks(Address(file, "empty"), [], model=MODEL), "no text to index"),
        (lambda: MilvusIndex(Address(file, "nothing")), "there is no index nothing at"),
        (lambda: MilvusIndex(Address(str(tmp_path / "no.db"))), "there is no .*no.db"),
        (lambda: Address(file, "a-b"), "expected a collection name"),
        (lambda: Address("index"), "expected a file that ends in .db or a server"),
    ]:
        with pytest.raises((InputError, ConfigError), match=told):
            wrong()
    assert not (tmp_path / "no.db").exists()


def test_a_server_that_is_not_there_is_told():
    with pytest.raises(InputError, match=r"cannot reach Milvus at http://127\.0\.0\.1:9: "):
        MilvusIndex(Address("http://127.0.0.1:9"))


def test_long_texts_are_shortened_and_counted(address):
    long = "ü" * 40_000
    with pytest.warns(UserWarning, match="1 text is longer than the 65,535 bytes"):
        index = MilvusIndex.from_blocks(address, [Block([long, "short"], vectors(2))], model=MODEL)
    assert index.search(vectors(2)[0], 1)[0][0].text == "ü" * 32_767

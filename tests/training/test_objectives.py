"""Several hard negatives, classes, graded pairs, mixtures: a batch's loss is its formula, and runs resume exactly."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.test_processes import run_two
from tests.training.tiny_runs import build, gradient_in_process, gradient_of, make_sentences, spread, train_until_killed

from twinpass.config import Run
from twinpass.errors import ConfigError, InputError
from twinpass.files import sha256
from twinpass.log import Mixed, Started, Stepped, read_log
from twinpass.text.corpus import open_corpus
from twinpass.training.data import InMemory, read_data
from twinpass.training.loop import train
from twinpass.training.losses import ranked_pairs, same_class, several_negatives
from twinpass.training.objectives import false_negatives


def several(count: int) -> list[Any]:
    """Pairs with none, one, two or three hard negatives."""
    texts = make_sentences(5 * count, seed=1)
    return [(texts[5 * n], texts[5 * n + 1], texts[5 * n + 2 : 5 * n + 2 + n % 4]) for n in range(count)]


def labelled(count: int) -> list[Any]:
    return [(text, f"class {place % 3}") for place, text in enumerate(make_sentences(count))]


def graded(count: int) -> list[Any]:
    left, right = make_sentences(count, seed=2), make_sentences(count, seed=3)
    return [(a, b, place % 6 / 5) for place, (a, b) in enumerate(zip(left, right, strict=True))]


MIXTURE = {"nli": several(14), "wiki": make_sentences(20), "tickets": labelled(15), "sts": graded(13)}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "several negatives": (several(22), {"hard_negative_weight": 2.0}),
    "classes": (labelled(23), {"label": "1"}),
    "scores": (graded(21), {"score": "2"}),
    "mixture": (MIXTURE, {"mixture": ("nli", "wiki:0.5", "tickets label=1", "sts:2 score=2"), "steps": 9}),
}


@pytest.fixture(params=KINDS)
def kind(request) -> tuple[Any, dict[str, Any]]:
    return KINDS[request.param]


def stop_at(step: int) -> Any:
    return lambda event: (
        os.kill(os.getpid(), signal.SIGINT) if isinstance(event, Stepped) and event.step == step else None
    )


def test_a_stopped_run_ends_bit_identical(make_run, tmp_path: Path, kind) -> None:
    rows, fields = kind
    fields = {"steps": 5, "save_every": 2} | fields
    whole = train(make_run(output=str(tmp_path / "whole"), **fields), rows=rows)
    run = make_run(output=str(tmp_path / "stopped"), **fields)
    assert train(run, rows=rows, on_event=stop_at(3)).reason == "interrupted"
    resumed = train(Run.read(tmp_path / "stopped/run.json"), rows=rows, resume=True)
    assert (resumed.finished, resumed.loss) == (True, whole.loss)
    assert sha256(resumed.output / "model.safetensors") == sha256(whole.output / "model.safetensors")


def test_a_killed_mixture_goes_on_from_its_last_save(make_run, children, tmp_path: Path) -> None:
    rows, fields = KINDS["mixture"]
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as the child has
    try:
        whole = train(make_run(output=str(tmp_path / "whole"), save_every=4, **fields), rows=rows, evaluate=spread)
        run = make_run(output=str(tmp_path / "killed"), save_every=4, **fields)
        child = children.Process(target=train_until_killed, args=(run, rows, 6, "Stepped", False))
        child.start()
        child.join(timeout=600)
        assert child.exitcode == -signal.SIGKILL
        resumed = train(run, rows=rows, evaluate=spread, resume=True)
    finally:
        torch.set_num_threads(before)
    assert sha256(resumed.output / "model.safetensors") == sha256(whole.output / "model.safetensors")


def batch_of(rows: Any) -> list[int]:
    """Some rows of one part."""
    return [5, 2, 8, 11, 3, 0, 6] if not isinstance(rows, dict) else [49, 52, 57, 60, 53]


def test_chunks_change_neither_loss_nor_gradient(make_run, kind) -> None:
    rows, fields = kind
    fields = fields | {"dropout": 0.0, "steps": None}  # chunks of other sizes draw other dropout masks
    plain, chunked = (
        gradient_of(make_run(**fields, chunk_tokens=tokens), rows, batch_of(rows)) for tokens in (None, 30)
    )
    assert chunked[0] == pytest.approx(plain[0], rel=1e-5)
    for name, gradient in plain[1].items():
        np.testing.assert_allclose(chunked[1][name], gradient, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(gradient).max()))


def test_two_processes_compute_the_gradient_of_one(make_run, children, tmp_path: Path, kind) -> None:
    rows, fields = kind
    run, batch = make_run(**fields | {"dropout": 0.0, "clip": 1e9, "steps": None}), batch_of(rows)
    loss, gradients = gradient_of(run, rows, batch)
    run_two(children, gradient_in_process, run, rows, batch, after=(str(tmp_path / "found.npz"),))
    found = np.load(tmp_path / "found.npz")
    assert float(found["loss"]) == pytest.approx(loss, rel=1e-4)
    assert max(np.abs(gradient).max() for gradient in gradients.values()) > 1e-4
    for name, gradient in gradients.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=5e-5 * max(1.0, np.abs(gradient).max()))


def vectors_of(method: Any, texts: list[str]) -> torch.Tensor:
    vectors = torch.from_numpy(method.encoders[0].encode(texts))
    method.encoders[0].model.train()
    return vectors


def test_the_loss_of_a_batch_is_that_of_its_rows(make_run) -> None:
    """The tiny model, without dropout, against the losses on vectors that are encoded text by text."""
    batch, rows = np.array([7, 2, 3, 0]), several(9)
    method = build(make_run(dropout=0.0, hard_negative_weight=3.0), rows)
    hard = [(place, text) for place, row in enumerate(batch) for text in rows[row][2]]
    parts = [vectors_of(method, [rows[row][column] for row in batch]) for column in (0, 1)]
    owner, negatives = torch.tensor([place for place, _ in hard]), vectors_of(method, [text for _, text in hard])
    expected = several_negatives(*parts, negatives, owner, alpha=3.0).item()
    outcome = method.backward(0, batch)
    assert outcome.loss == pytest.approx(expected, rel=1e-4)
    assert (outcome.texts, outcome.negatives) == (8 + len(hard), 3 + len(hard))

    rows = labelled(12)
    method = build(make_run(dropout=0.0, label="1"), rows)
    expected = same_class(vectors_of(method, [rows[row][0] for row in batch]), torch.tensor([1, 2, 0, 0])).item()
    assert method.backward(0, batch).loss == pytest.approx(expected, rel=1e-4)

    rows = graded(12)
    method = build(make_run(dropout=0.0, score="2"), rows)
    parts = [vectors_of(method, [rows[row][column] for row in batch]) for column in (0, 1)]
    expected = ranked_pairs(*parts, torch.tensor([rows[row][2] for row in batch])).item()
    assert method.backward(0, batch).loss == pytest.approx(expected, rel=1e-4)


def letters(texts: list[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


@pytest.mark.parametrize("held", [None, np.array([1, 2, 4])])
def test_ragged_rows_keep_their_texts(held: np.ndarray | None) -> None:
    rows = [("a", "b"), ("c", "d", "e"), ("f", "g", ["h", "i"]), ("j", "k", []), ("l", "m", "n", "o")]
    data = read_data(InMemory(rows), letters, total=5, held=held)
    asked = np.array([4, 1, 2] if held is not None else [4, 0, 1, 3, 2])
    texts, owner, keys = data.negatives(asked)
    found = ["".join(map(chr, data.ids(int(text)))) for text in texts]
    assert found == ["n", "o", "e", "h", "i"]
    assert [int(asked[place]) for place in owner] == [4, 4, 1, 2, 2]
    assert len(set(keys.tolist())) == 5
    for column, expected in zip(data.columns(asked), (0, 1), strict=True):
        got = ["".join(map(chr, data.ids(int(text)))) for text in column]
        assert got == [rows[row][expected] for row in asked]


def test_a_hard_negative_that_is_a_row_s_own_text_is_masked() -> None:
    anchor, positive = (np.array(keys, np.uint64) for keys in ([1, 2], [3, 4]))
    hard = np.array([4, 9, 1, 5, 2], np.uint64)
    expected = [[False, False, False, False, True, False, False], [False, False, True, False, False, False, True]]
    assert false_negatives([anchor, positive, hard]).tolist() == expected


def test_a_list_columns_and_tuples_are_the_same_rows(tmp_path: Path) -> None:
    rows = [("a", "b", ["c", "d"]), ("e", "f", []), ("g", "h", ["i"])]
    listed, columns = tmp_path / "list.jsonl", tmp_path / "columns.csv"
    listed.write_text(
        "".join(json.dumps({"anchor": a, "positive": p, "negatives": n or None}) + "\n" for a, p, n in rows)
    )
    columns.write_text("anchor,positive,negative_1,negative_2\na,b,c,d\ne,f,,\ng,h,,i\n")
    read = [open_corpus(str(path), negatives=True) for path in (listed, columns)]
    expected = [("a", "b", "c", "d"), ("e", "f"), ("g", "h", "i")]
    for corpus in (*read, InMemory(rows)):
        assert (corpus.ragged, [row.texts for row in corpus]) == (True, expected)
    assert read[0].fingerprint() == read[1].fingerprint()


def test_bad_hard_negatives_are_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"anchor": "a", "positive": "b", "negatives": ["c", 3]}\n')
    with pytest.raises(InputError, match=r"expected text in column 'negatives', got 3 of type int \(.*bad\.jsonl:1\)"):
        open_corpus(str(path), negatives=True)
    three = tmp_path / "three.csv"
    three.write_text("anchor,positive,negative\na,b,\n")
    with pytest.raises(InputError, match=r"column 'negative', got an empty field"):
        open_corpus(str(three), negatives=True)


def test_four_columns_of_unknown_names_are_not_taken_for_negatives(make_run, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("title,body,team,city\nan a,b c,d e,f g\nh i,j k,l m,n o\n")
    with pytest.raises(InputError, match="several columns that could be the text"):
        train(make_run(data=str(path), header=True))
    run = make_run(data=str(path), columns=("title", "body", "team", "city"), steps=1)
    assert train(run).finished


@pytest.mark.parametrize(
    ("rows", "fields", "says"),
    [
        ([("a", "x"), ("b", "x")], {"label": "1"}, "has one class only .'x'."),
        ([("a", "x"), ("b", "y"), ("c", "z")], {"label": "1"}, "3 classes in 3 rows, and none of them has two"),
        ([("a", "x"), ("b", " ")], {"label": "1"}, "row 1: expected a label at position 1, got ' '"),
        ([("a", "x")], {"label": "name"}, "expected label to be a position"),
        ([("a", "b", "x")] * 2 + [("a", "b", "y")] * 2, {"label": "2"}, "classes view takes 1 text column"),
        ([("a", "b", 1.0), ("c", "d", 1)], {"score": "2"}, "have the same score"),
        ([("a", "b", "high")], {"score": "2"}, "row 0: expected a score at position 2, got 'high'"),
        ([("a", 1), ("b", 2)], {"score": "1"}, "scores view takes 2 text column"),
        ([("a", "b", 0.5)], {}, "row 0: expected texts, and from the third on lists of texts, got 0.5"),
    ],
)
def test_what_cannot_be_learned_is_refused(make_run, rows, fields, says: str) -> None:
    with pytest.raises(InputError, match=says):
        train(make_run(**fields), rows=rows)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"label": "a", "score": "b"}, "a label or from a score"),
        ({"view": "classes"}, "needs the column to learn from: name it with label"),
        ({"label": "a", "view": "pairs"}, "label makes the view 'classes'"),
        ({"label": "a", "batch_size": 3}, "batch_size must be 4 or more with label"),
        ({"score": "a", "batch_size": 1}, "batch_size must be 2 or more: a row is compared"),
        ({"label": "a", "dual_encoder": True}, "dual_encoder"),
        ({"score": "a", "positive": "crop:10"}, "cannot be combined with positive"),
        ({"score": "a", "similarity": "dot"}, "ranks the cosines"),
        ({"mixture": ("a.txt",), "label": "b"}, "this run has only a mixture"),
        ({"mixture": ("a.txt colums=b",)}, "Did you mean 'columns'"),
        ({"mixture": ("a.txt:0",)}, "a share of the steps above 0"),
        ({"mixture": ("a.txt batch_size=x",)}, "batch_size is a number"),
        ({"data": "a.txt", "mixture": ("b.txt label=c score=d",)}, "a label or from a score"),
        ({"method": "ct", "mixture": ("a.txt",)}, "ct does not use mixture"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Run(**fields).check()


def test_missing_labels_are_bad_rows(make_run, tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("text,category\nan a,x\nb,\nc,y\nd,x\ne,y\nf,lonely\n")
    run = make_run(data=str(path), label="category", columns=("text",), steps=1)
    with pytest.raises(InputError, match=r"expected a label in column 'category', got '' \(.*tickets\.csv:3\)"):
        train(run)
    events: list[Any] = []
    train(run.replace(skip_bad_rows=True), on_event=events.append)
    assert any("left out 1 row of" in note for note in events[0].notes)
    assert any("skipped 1 bad rows" in note for note in events[0].notes)
    assert (events[0].view, events[0].why) == ("classes", f"column 'category' of {path} has 3 classes")


def test_scores_that_are_not_used_say_how_to_use_them(make_run, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1,sentence2,similarity\n" + "".join(f"a {n},b {n},{n}\n" for n in range(9)))
    events: list[Any] = []
    for fields in ({}, {"score": "similarity"}):
        run = make_run(data=str(path), steps=1, **fields)
        train(run, on_event=events.append, overwrite=True)
    without, with_score = (event for event in events if isinstance(event, Started))
    assert any("with --score similarity it ranks the pairs" in note for note in without.notes)
    assert (with_score.view, with_score.notes[1:]) == ("scores", ())


def test_a_mixture_logs_each_part(make_run) -> None:
    rows, fields = KINDS["mixture"]
    events: list[Any] = []
    result = train(make_run(**fields), rows=rows, on_event=events.append)
    parts = [event for event in events if isinstance(event, Mixed)]
    assert [(part.name, part.view, part.rows) for part in parts] == [
        ("nli", "triplets", 14),
        ("wiki", "dropout", 20),
        ("tickets", "classes", 15),
        ("sts", "scores", 13),
    ]
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    steps = [event.part for event in events if isinstance(event, Stepped)]
    assert {part: steps.count(part) for part in MIXTURE} == {"nli": 2, "wiki": 1, "tickets": 2, "sts": 4}
    losses = read_log(result.output).losses
    assert {part: len(curve) for part, curve in losses.items()} == {"nli": 2, "wiki": 1, "tickets": 2, "sts": 4}
    assert [each["source"] for each in result.provenance["data"]] == list(MIXTURE)
    card = (result.output / "README.md").read_text()
    assert "62 rows of `nli + wiki + tickets + sts`" in card and "triplets + two dropout passes" in card


def test_the_run_s_own_data_is_the_first_part_and_counts_the_epochs(make_run, tmp_path: Path) -> None:
    wiki = tmp_path / "wiki.txt"
    wiki.write_text("\n".join(make_sentences(30)))
    run = make_run(mixture=(f"{wiki}:0.5",), steps=None, epochs=2, view="triplets", hard_negative_weight=2.0)
    events: list[Any] = []
    result = train(run, rows=several(16), on_event=events.append)
    parts = [event.part for event in events if isinstance(event, Stepped)]
    assert (parts.count("the data in memory"), parts.count(str(wiki)), result.steps) == (4, 2, 6)
    stored = Run.read(result.output / "run.json")
    assert (stored.view, stored.mixture) == ("triplets", (f"{wiki}:0.5",))


def test_the_epochs_shown_of_a_mixture_are_those_asked_for(make_run, tmp_path: Path) -> None:
    wiki = tmp_path / "wiki.txt"
    wiki.write_text("\n".join(make_sentences(30)))
    events: list[Any] = []
    train(
        make_run(mixture=(f"{wiki}:0.5",), batch_size=8, steps=None, epochs=2), rows=several(40), on_event=events.append
    )
    epochs = [event.epoch for event in events if isinstance(event, Stepped)]
    assert (len(epochs), events[0].epochs, epochs[-1]) == (15, 2.0, 2.0)
    assert epochs == [2 * step / 15 for step in range(1, 16)]
    train(
        make_run(mixture=(f"{wiki}:0.5",), batch_size=8, steps=4),
        rows=several(40),
        on_event=events.append,
        overwrite=True,
    )
    assert [each.epochs for each in events if isinstance(each, Started)][1] == 4 / 8, "of steps, epochs are counted"


def test_other_parts_are_not_resumed(make_run, tmp_path: Path) -> None:
    first, moved = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("\n".join(make_sentences(20)))
    moved.write_bytes(first.read_bytes())
    fields = {"steps": 4, "save_every": 2}
    train(make_run(mixture=(str(first),), **fields), rows=several(12), on_event=stop_at(2))
    with pytest.raises(ConfigError, match="mixture"):
        train(make_run(mixture=(f"{first}:0.5",), **fields), rows=several(12), resume=True)
    with pytest.raises(ConfigError, match=r"other settings|not the text"):
        train(make_run(mixture=(str(first),), **fields), rows=several(11), resume=True)
    moved.write_text("\n".join(make_sentences(21)))
    with pytest.raises(ConfigError, match="not the text"):
        train(make_run(mixture=(str(moved),), **fields), rows=several(12), resume=True)
    moved.write_bytes(first.read_bytes())
    assert train(make_run(mixture=(str(moved),), **fields), rows=several(12), resume=True).finished


def test_rows_of_a_part_that_is_not_there_are_refused(make_run) -> None:
    with pytest.raises(ConfigError, match="no part of the run's mixture is called so"):
        train(make_run(mixture=("a", "b")), rows={"c": ["x"]})


def test_a_part_without_a_turn_is_refused(make_run) -> None:
    rows, fields = KINDS["mixture"]
    with pytest.raises(ConfigError, match="has no turn in 2 steps"):
        train(make_run(**fields | {"steps": 2}), rows=rows)
    few = {"mixture": ("a", "b:0.001"), "batch_size": 4, "steps": None, "epochs": 1}
    with pytest.raises(ConfigError, match="b has no turn in 3 steps"):
        train(make_run(**few), rows={"a": make_sentences(12), "b": make_sentences(12)})

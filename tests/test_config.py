"""A run describes itself, reads back, and refuses what makes no sense."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

from twinpass.config import METHOD_DEFAULTS, PRESETS, SUP, UNSUP, USERS, Positive, Run, read_positive
from twinpass.errors import ConfigError


def test_a_run_is_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        UNSUP.seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        Run("data.txt")  # type: ignore[misc]


def test_every_field_explains_itself() -> None:
    for field in dataclasses.fields(Run):
        assert field.metadata["help"].endswith("."), field.name


@pytest.mark.parametrize(
    ("name", "batch", "rate", "epochs"),
    [
        ("unsup-bert-base", 64, 3e-5, 1),
        ("unsup-bert-large", 64, 1e-5, 1),
        ("unsup-roberta-base", 512, 1e-5, 1),
        ("unsup-roberta-large", 512, 3e-5, 1),
        ("sup-base", 512, 5e-5, 3),
        ("sup-large", 512, 1e-5, 3),
    ],
)
def test_presets_are_table_a1(name: str, batch: int, rate: float, epochs: int) -> None:
    run = PRESETS[name].check()
    assert (run.batch_size, run.learning_rate, run.epochs) == (batch, rate, epochs)
    assert run.view == ("dropout" if name.startswith("unsup") else "triplets")


def test_the_papers_other_defaults() -> None:
    assert (UNSUP.temperature, UNSUP.max_tokens, UNSUP.seed, UNSUP.eval_every) == (0.05, 32, 42, 250)
    assert (UNSUP.weight_decay, UNSUP.warmup, UNSUP.clip, SUP.hard_negative_weight) == (0.0, 0.0, 1.0, 1.0)


def test_json_round_trip() -> None:
    run = SUP.replace(data="nli.csv", columns=("sent0", "sent1"), steps=7, dropout=0.2, view="pairs")
    assert Run.from_json(run.to_json()) == run


def test_fields_left_out_take_their_defaults() -> None:
    assert Run.from_json('{"seed": 3}') == Run(seed=3)


def test_an_unknown_field_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'temperature'"):
        Run.from_json('{"temprature": 0.1}')
    with pytest.raises(ConfigError, match="Did you mean 'batch_size'"):
        UNSUP.replace(batchsize=3)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("seed", "7", "seed: expected a whole number, got '7'"),
        ("seed", True, "whole number"),
        ("dropout", "high", "dropout: expected a number or nothing"),
        ("columns", ["a", 3], "a list of texts or nothing"),
        ("keep_duplicates", 1, "true or false"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_on_reading(field: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Run.from_json(json.dumps({field: value}))


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="JSON object"):
        Run.from_json(text)


def test_reading_names_the_file(tmp_path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"sead": 1}')
    with pytest.raises(ConfigError, match=r"run\.json: a run has no field 'sead'"):
        Run.read(path)
    with pytest.raises(ConfigError, match="cannot read a run from"):
        Run.read(tmp_path / "none.json")


IMPOSSIBLE = [
    ({"view": "pairs", "share_dropout_mask": True}, "needs the dropout view"),
    ({"share_dropout_mask": True, "dual_encoder": True}, "one encoder for both views"),
    ({"view": "pairs", "hard_negative_weight": 2.0}, "needs hard negatives"),
    ({"hard_negative_weight": 0.0}, "above 0"),
    ({"mlm_weight": -0.1}, "not be negative"),
    ({"mlm_rate": 1.0}, "between 0 and 1"),
    ({"temperature": 0.0}, "above 0"),
    ({"temperature": float("nan")}, "a finite number"),
    ({"similarity": "dot", "temperature": 0.1}, "no temperature"),
    ({"similarity": "euclid"}, "one of cosine, dot"),
    ({"view": "triples"}, "one of auto, dropout, pairs, triplets"),
    ({"precision": "fp8"}, "one of fp32"),
    ({"dropout": 1.0}, r"\[0, 1\)"),
    ({"batch_size": 0}, "1 or more"),
    ({"view": "dropout", "batch_size": 1}, "2 or more"),
    ({"steps": 0}, "1 or more"),
    ({"seed": 2**31}, "below"),
    ({"max_tokens": 2}, "3 or more"),
    ({"warmup": 1.5}, "share of the steps"),
    ({"learning_rate": -1.0}, "above 0"),
    ({"eval_every": 0}, "1 or more"),
]


@pytest.mark.parametrize(("fields", "says"), IMPOSSIBLE)
def test_an_impossible_run_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Run(**fields).check()  # type: ignore[arg-type]


def test_the_dot_product_is_allowed_without_a_temperature() -> None:
    assert Run(similarity="dot").check().similarity == "dot"


def test_a_run_that_is_not_text_is_explained(tmp_path) -> None:
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="this is not text"):
        Run.read(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("text", "read"), [("crop:10", ("crop", 10)), ("delete-one", ("delete-one", 0)), ("next:3", ("next", 3))]
)
def test_a_positive_is_read_and_spoken(text: str, read: tuple[str, int]) -> None:
    assert read_positive(text) == Positive(*read)
    assert str(Positive(*read)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("crops:10", "Did you mean 'crop'"),
        ("deleteone", "Did you mean 'delete-one'"),
        ("", "Known: crop:N, delete:N, delete-one, synonym, mlm:N, next:N"),
        ("crop", "per cent from 1 to 99 after a colon, as in crop:10; got 'crop'"),
        ("crop:100", "from 1 to 99"),
        ("delete:1.5", "whole number"),
        ("mlm:-1", "whole number"),
        ("next:0", "sentences from 1 to 999"),
        ("synonym:3", "takes no amount"),
    ],
)
def test_a_positive_that_makes_no_sense_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Run(positive=text).check()


def test_a_misspelt_field_gets_a_suggestion_in_the_constructor_too() -> None:
    with pytest.raises(ConfigError, match=r"a run has no field 'temprature'. Did you mean 'temperature'"):
        Run(temprature=0.1)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"no method named 'simsce'. Did you mean 'simcse'"):
        Run(method="simsce")


def test_a_run_prints_only_what_differs_from_the_defaults() -> None:
    assert repr(Run()) == "Run()"
    assert repr(Run(seed=3, data="a.txt", temperature=0.05)) == "Run(data='a.txt', seed=3)"
    assert repr(Run(method="ct", batch_size=16, epochs=2)) == "Run(method='ct', epochs=2)"


def test_fields_that_are_not_given_follow_the_method() -> None:
    ct, sbert = Run(method="ct"), Run(method="sbert")
    assert (ct.batch_size, ct.learning_rate, ct.max_tokens, ct.pooler, ct.clip) == (16, 1e-5, 75, "avg", None)
    assert (sbert.columns, sbert.warmup, sbert.weight_decay) == (("premise", "hypothesis", "label"), 0.1, 0.01)
    assert Run(method="ct", batch_size=64).batch_size == 64
    assert ct.replace(method="sbert") == sbert
    assert Run(method="ct", max_tokens=9).replace(method="sbert").max_tokens == 9
    for name, its in METHOD_DEFAULTS.items():
        run = Run(method=name).check()
        assert Run.from_json(run.to_json()) == run and pickle.loads(pickle.dumps(run)).replace(seed=1).seed == 1
        assert {**its.fields}.items() <= dataclasses.asdict(run).items()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"method": "ct", "temperature": 0.1}, r"ct does not use temperature; got 0.1. Leave it out"),
        ({"method": "is-bert", "chunk_tokens": 40}, "is-bert does not use chunk_tokens"),
        ({"method": "infersent", "precision": "bf16"}, "infersent does not use precision"),
        ({"width": 9}, r"simcse does not use width; got 9. Leave it out \(it is for: infersent\)"),
    ],
)
def test_what_a_method_cannot_use_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Run(**fields).check()


def test_of_several_fields_that_a_method_cannot_use_the_first_is_named() -> None:
    with pytest.raises(ConfigError, match="ct does not use view"):
        Run(method="ct", mlm_rate=0.2, temperature=0.1, view="pairs", width=3).check()


def test_only_fields_and_methods_that_exist_have_users_and_defaults() -> None:
    fields = {field.name for field in dataclasses.fields(Run)}
    assert USERS.keys() <= fields and {method for users in USERS.values() for method in users} <= METHOD_DEFAULTS.keys()
    for name, its in METHOD_DEFAULTS.items():
        assert its.fields.keys() <= fields and all(name in USERS.get(field, [name]) for field in its.fields)


@pytest.mark.parametrize(
    ("name", "model", "pooler"),
    [
        ("unsup-bert-base", "bert-base-uncased", "cls_mlp_train"),
        ("unsup-bert-large", "bert-large-uncased", "cls_mlp_train"),
        ("unsup-roberta-base", "roberta-base", "cls_mlp_train"),
        ("unsup-roberta-large", "roberta-large", "cls_mlp_train"),
        ("sup-base", "bert-base-uncased", "cls_mlp"),
        ("sup-large", "bert-large-uncased", "cls_mlp"),
    ],
)
def test_presets_name_their_model_and_pooler(name: str, model: str, pooler: str) -> None:
    assert (PRESETS[name].model, PRESETS[name].pooler) == (model, pooler)
    assert Run().model == "minilm" and Run().pooler is None

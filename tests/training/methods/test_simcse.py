"""SimCSE: each view's loss is its equation, duplicates are not negatives, and made positives train and resume."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.text.tiny_wordnet import write_wordnet
from tests.training.tiny_runs import make_sentences

from twinpass import equations
from twinpass.config import POSITIVES, Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.files import sha256
from twinpass.log import Started, Stepped
from twinpass.text.views import VIEWS
from twinpass.training.data import text_hash
from twinpass.training.loop import train
from twinpass.training.objectives import OBJECTIVE, contrastive_loss, false_negatives, negatives_per_anchor

PASSES = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
H, POSITIVE, NEGATIVE = PASSES


def test_every_view_has_an_objective() -> None:
    assert list(OBJECTIVE) == list(VIEWS)


def test_the_dropout_objective_is_eq_4() -> None:
    run = Run(temperature=0.2)
    expected = equations.unsupervised(H, POSITIVE, temperature=0.2)
    assert torch.equal(contrastive_loss("dropout", [H, POSITIVE], run, None), expected)


def test_a_shared_mask_uses_the_one_pass_twice() -> None:
    expected = equations.unsupervised(H, H)
    assert torch.equal(contrastive_loss("dropout", [H], Run(share_dropout_mask=True), None), expected)


def test_the_triplets_objective_is_eq_8() -> None:
    run = Run(hard_negative_weight=2.0)
    expected = equations.weighted(H, POSITIVE, NEGATIVE, alpha=2.0)
    assert torch.equal(contrastive_loss("triplets", [H, POSITIVE, NEGATIVE], run, None), expected)


def test_the_dot_product_goes_without_a_temperature() -> None:
    expected = equations.info_nce(H, POSITIVE, similarity="dot", temperature=1.0)
    assert torch.equal(contrastive_loss("pairs", [H, POSITIVE], Run(similarity="dot"), None), expected)


def test_the_mask_reaches_the_equation() -> None:
    everything = torch.ones(4, 4, dtype=torch.bool)
    assert contrastive_loss("pairs", [H, POSITIVE], Run(), everything).item() == 0.0
    assert not math.isclose(contrastive_loss("pairs", [H, POSITIVE], Run(), None).item(), 0.0)


def keys(*texts: str) -> np.ndarray:
    return np.array([text_hash(text) for text in texts], dtype=np.uint64)


def naive(passes: list[list[str]]) -> list[list[bool]]:
    anchors, positives = passes[0], passes[1]
    count = len(anchors)
    table = []
    for i in range(count):
        own = {anchors[i], positives[i]}
        row = [j != i and (positives[j] in own or anchors[j] == anchors[i]) for j in range(count)]
        if len(passes) == 3:
            row += [passes[2][j] in own for j in range(count)]
        table.append(row)
    return table


CASES = [
    [["a", "b", "a", "c"], ["a", "b", "a", "c"]],
    [["a", "b", "c"], ["x", "y", "x"]],
    [["a", "a", "b"], ["x", "y", "z"]],
    [["a", "b", "c"], ["x", "a", "z"]],
    [["a", "b"], ["x", "y"], ["x", "a"]],
    [["a", "b", "b"], ["x", "y", "z"], ["q", "y", "b"]],
]


@pytest.mark.parametrize("passes", CASES)
def test_the_mask_is_the_naive_one(passes: list[list[str]]) -> None:
    assert false_negatives([keys(*column) for column in passes]).tolist() == naive(passes)


def test_one_shared_pass_counts_as_both_views() -> None:
    shared = false_negatives([keys("a", "b", "a")])
    assert shared.tolist() == false_negatives([keys("a", "b", "a")] * 2).tolist()


def test_negatives_are_counted_without_the_masked_ones() -> None:
    columns = [keys("a", "b", "a", "c")] * 2
    assert negatives_per_anchor(columns, None) == 3
    assert negatives_per_anchor(columns, false_negatives(columns)) == 2.5
    assert negatives_per_anchor([*columns, keys("p", "q", "r", "s")], None) == 7


def test_positives_go_with_single_sentences_only(make_run) -> None:
    for fields in ({"view": "triplets"}, {"share_dropout_mask": True}):
        with pytest.raises(ConfigError, match="positive makes pairs of single sentences"):
            Run(positive="delete-one", **fields).check()
    with pytest.raises(InputError, match="single sentences, and the data in memory has 2"):
        train(make_run(positive="delete-one"), rows=[("a", "b"), ("c", "d")])


def fields_of(kind: str, masked: Path, tmp_path: Path) -> dict[str, object]:
    """Return what a run needs besides the kind."""
    if kind == "mlm":
        return {"model": str(masked)}
    return {"wordnet": str(write_wordnet(tmp_path / "dict"))} if kind == "synonym" else {}


@pytest.mark.parametrize("kind", POSITIVES)
def test_every_kind_trains_and_resumes_bit_by_bit(make_run, masked, tmp_path, kind: str) -> None:
    if kind == "synonym":
        pytest.importorskip("nltk", reason="needs the extra [augment]")
    positive = f"{kind}:20" if POSITIVES[kind] else kind
    fields = {"positive": positive, "save_every": 2, **fields_of(kind, masked, tmp_path)}
    fields |= {"dual_encoder": kind == "next", "dropout": 0.0 if kind == "delete-one" else None}
    events = []

    def interrupt(event) -> None:
        events.append(event)
        if isinstance(event, Stepped) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    rows = make_sentences(24)
    run = make_run(output=str(tmp_path / "stopped"), **fields)
    assert train(run, rows=rows, on_event=interrupt).reason == "interrupted"
    resumed = train(run, rows=rows, resume=True)
    whole = train(make_run(output=str(tmp_path / "whole"), **fields), rows=rows)
    assert sha256(resumed.output / "model.safetensors") == sha256(whole.output / "model.safetensors")
    started = next(event for event in events if isinstance(event, Started))
    assert (started.view, started.pooler) == ("pairs", "cls_mlp_train")
    assert started.why == f"positives of the data in memory are made by {positive}"
    stored = Run.read(whole.output / "run.json")
    assert (stored.positive, stored.view) == (positive, "pairs")


def test_other_positives_are_not_resumed(make_run) -> None:
    train(make_run(positive="delete-one"), rows=make_sentences(20))
    with pytest.raises(ConfigError, match="positive: 'delete-one' then, 'crop:10' now"):
        train(make_run(positive="crop:10"), rows=make_sentences(20), resume=True)


def test_another_dictionary_is_other_text(make_run, tmp_path) -> None:
    pytest.importorskip("nltk", reason="needs the extra [augment]")
    first, second = write_wordnet(tmp_path / "a"), write_wordnet(tmp_path / "b")
    train(make_run(positive="synonym", wordnet=str(first)), rows=make_sentences(20))
    train(make_run(positive="synonym", wordnet=str(second)), rows=make_sentences(20), resume=True)
    (second / "verb.exc").write_text("went go\n")
    with pytest.raises(ConfigError, match="not the text"):
        train(make_run(positive="synonym", wordnet=str(second)), rows=make_sentences(20), resume=True)


def test_a_preset_without_supervision_takes_positives(make_run) -> None:
    result = train(make_run(view="dropout", positive="delete:30"), rows=make_sentences(20))
    assert Run.read(result.output / "run.json").view == "pairs"


def test_a_model_without_a_head_cannot_replace_words(make_run, tiny) -> None:
    with pytest.raises(ModelError, match="no masked-language-model head"):
        train(make_run(positive="mlm:15"), rows=make_sentences(20))


@pytest.mark.parametrize(("kind", "pooler"), [("sup", "cls_pretrained"), ("unsup", "cls")])
def test_a_released_checkpoint_keeps_its_own_pooler(make_run, tiny, monkeypatch, kind: str, pooler: str) -> None:
    """The authors' checkpoints are bare transformers; how they pool is known by their name."""
    name = f"princeton-nlp/{kind}-simcse-bert-base-uncased"
    with monkeypatch.context() as patch:
        for module in ("encoder.encoder", "training.methods.simcse"):
            patch.setattr(f"twinpass.{module}.find_folder", lambda *_, **__: tiny)
        result = train(make_run(model=name, steps=1), rows=make_sentences(9))
    assert Run.read(result.output / "run.json").pooler == pooler == Encoder.load(result.output).pooler

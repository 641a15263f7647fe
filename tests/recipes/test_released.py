"""Tables from released checkpoints: folders in the released layout, made here with tiny weights."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertModel

from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.recipes.lab import Lab
from twinpass.recipes.recipe import ALL, Fitted, Training
from twinpass.recipes.released import CHECKPOINTS, NOT_RELEASED, TABLES, Released, released
from twinpass.recipes.reproduce import reproduce, run_recipe
from twinpass.recipes.scales import SMOKE
from twinpass.recipes.tables import load_recipes

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")

UNSUP, SUP = "princeton-nlp/unsup-simcse-bert-base-uncased", "princeton-nlp/sup-simcse-bert-base-uncased"
SBERT = "sentence-transformers/bert-base-nli-mean-tokens"
ROWS = ("unsup/bert", "unsup/bert-whitening", "unsup/simcse-bert", "sup/sbert", "sup/simcse-bert", "unsup/is-bert")


@pytest.fixture(scope="module")
def checkpoints(smoke_data, tmp_path_factory):
    """The authors' layout: a bare transformer with its pooler, no twinpass.json; SBERT's as a pickle."""
    _, encoder = smoke_data
    root = tmp_path_factory.mktemp("released")
    for seed, name in enumerate(("bert-base-uncased", UNSUP, SUP, SBERT)):
        folder = root / name
        shutil.copytree(encoder, folder)
        torch.manual_seed(seed)
        BertModel(AutoConfig.from_pretrained(encoder)).save_pretrained(folder)
    weights = root / SBERT / "model.safetensors"
    torch.save(load_file(weights), root / SBERT / "pytorch_model.bin")
    weights.unlink()
    return root


@pytest.fixture
def lab(smoke_data, checkpoints, tmp_path):
    """The paper's scale, with the few rows of the smoke test."""
    scale = dataclasses.replace(SMOKE, name="paper")
    return Lab(scale=scale, data=smoke_data[0], output=tmp_path / "out", encoder=str(checkpoints), device="cpu")


def some_rows(name, keys):
    recipe = released(load_recipes()[name])
    return dataclasses.replace(recipe, rows=tuple(row for row in recipe.rows if row.key in keys))


def test_released_models_fill_a_table_beside_the_papers_numbers(lab):
    lab = dataclasses.replace(lab, trust_pickle=True)
    outcome = run_recipe(some_rows("table-5", ROWS), lab, seeds=[1, 2])
    rows = {row.row.key: row for row in outcome.rows}
    assert rows["unsup/is-bert"].note == NOT_RELEASED and not rows["unsup/is-bert"].cells["avg"].ours
    for key in set(ROWS) - {"unsup/is-bert"}:
        assert len(rows[key].cells["avg"].ours) == 1, "a checkpoint is measured once, whatever the seeds"
        assert rows[key].cells["avg"].difference is not None
    (stated,) = rows["sup/sbert"].checkpoints
    assert stated.startswith(f"{SBERT}, pooler avg, sha256 of pytorch_model.bin ")
    assert f"SimCSE-BERT-base: {rows['sup/simcse-bert'].checkpoints[0]}" in outcome.notes()
    assert outcome.to_dict()["rows"][3]["checkpoints"] == rows["unsup/simcse-bert"].checkpoints
    assert not rows["unsup/bert"].checkpoints, "BERT itself is no released sentence encoder"


def test_a_pickle_is_loaded_only_if_the_user_says_so(lab):
    (row,) = run_recipe(some_rows("table-5", ["sup/sbert"]), lab, seeds=[1]).rows
    assert "--trust-pickle" in row.note and not row.cells["avg"].ours


def test_poolers_follow_from_what_a_checkpoint_is(lab, checkpoints):
    """Unsupervised: [CLS] before the MLP. Supervised: [CLS] after the MLP, which lies in the checkpoint's pooler."""
    texts = ["the old cat sits", "a dog runs near water"]
    models = {row.key: row.models[ALL] for row in released(load_recipes()["table-5"]).rows if row.models}
    for key, name, pooler in (("unsup/simcse-bert", UNSUP, "cls"), ("sup/simcse-bert", SUP, "cls_pretrained")):
        ours = models[key].open(lab, 1).encode(texts)
        encoder = Encoder.load(checkpoints / name, pooler=pooler)
        model = BertModel.from_pretrained(checkpoints / name).eval()
        with torch.no_grad():
            output = model(**encoder.pad(encoder.tokenize(texts)))
        expected = output.last_hidden_state[:, 0] if pooler == "cls" else output.pooler_output
        np.testing.assert_allclose(ours, expected.numpy(), atol=1e-5)


def test_other_weights_under_a_name_are_measured_again(lab, checkpoints, tmp_path):
    shutil.copytree(checkpoints, tmp_path / "copy")
    lab = dataclasses.replace(lab, encoder=str(tmp_path / "copy"))
    recipe = some_rows("table-5", ["unsup/simcse-bert"])
    first = run_recipe(recipe, lab, seeds=[1]).rows[0]
    weights = tmp_path / "copy" / UNSUP / "model.safetensors"
    save_file({name: tensor * 1.5 for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    second = run_recipe(recipe, lab, seeds=[1]).rows[0]
    assert first.checkpoints != second.checkpoints and first.cells["avg"].ours != second.cells["avg"].ours


def test_nothing_is_trained():
    for name in TABLES:
        recipe = released(load_recipes()[name])
        parts = [part for row in recipe.rows for model in row.models.values() for part in model.parts()]
        assert not any(isinstance(part, Training) for part in parts)
        assert any(isinstance(part, Released) for part in parts)
    layers = [row.models[ALL] for row in released(load_recipes()["table-c1"]).rows if row.key.startswith("sbert-")]
    assert all(isinstance(layer, Fitted) and layer.of.pooler == "avg_first_last" for layer in layers) and layers
    assert len({name for name, _ in CHECKPOINTS.values()}) == len(CHECKPOINTS) == 11


def test_what_cannot_be_had_is_refused(checkpoints, smoke_data, tmp_path):
    with pytest.raises(
        ConfigError, match=r"table-3 is about trainings that nobody released\. --released knows table-5"
    ):
        reproduce("table-3", released=True, output=tmp_path)
    with pytest.raises(ConfigError, match="evaluated in full"):
        reproduce("table-5", released=True, scale="smoke", output=tmp_path)


def test_a_missing_checkpoint_is_named(lab, tmp_path):
    lab = dataclasses.replace(lab, encoder=str(tmp_path))
    (row,) = run_recipe(some_rows("table-5", ["unsup/declutr"]), lab, seeds=[1]).rows
    assert f"no folder {tmp_path / 'johngiorgi' / 'declutr-base'}" in row.note

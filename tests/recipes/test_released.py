"""Tables from released checkpoints: folders in the released layout, made here with tiny weights."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertModel, RobertaConfig, RobertaModel

from twinpass.cli.main import ENVIRONMENT, main
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.recipes.lab import Lab
from twinpass.recipes.model_specs import Fitted, Training
from twinpass.recipes.recipe import ALL
from twinpass.recipes.released import CHECKPOINTS, NOT_READ, NOT_RELEASED, TABLES, Released, released
from twinpass.recipes.report import Cell, Outcome, RowOutcome
from twinpass.recipes.reproduce import reproduce, run_recipe
from twinpass.recipes.scales import SMOKE
from twinpass.recipes.tables import load_recipes
from twinpass.recipes.tables.shared import INFERSENT

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
    assert f"Sup. SimCSE-BERT-base: {rows['sup/simcse-bert'].checkpoints[0]}" in outcome.notes()
    assert outcome.to_dict()["rows"][3]["checkpoints"] == rows["unsup/simcse-bert"].checkpoints


def test_rows_of_the_papers_encoders_state_them_too(lab):
    lab = dataclasses.replace(lab, released=True)
    bert, layer = run_recipe(some_rows("table-5", ["unsup/bert", "unsup/bert-whitening"]), lab, seeds=[1]).rows
    (stated,) = bert.checkpoints
    assert stated.startswith("bert-base-uncased, pooler avg_embeddings_last, sha256 of model.safetensors ")
    assert layer.checkpoints == [stated.replace("avg_embeddings_last", "avg_first_last")]


def test_a_checkpoint_that_is_not_read_is_not_called_unreleased():
    rows = {row.key: row for row in released(load_recipes()["table-5"]).rows}
    assert rows["sup/infersent"].why_quoted == NOT_READ[INFERSENT]
    assert rows["unsup/is-bert"].why_quoted == NOT_RELEASED


def test_a_report_of_released_checkpoints_says_so(lab):
    lab = dataclasses.replace(lab, released=True)
    outcome = run_recipe(some_rows("table-5", ["unsup/simcse-bert"]), lab, seeds=[1])
    assert outcome.notes()[0].startswith("released checkpoints: nothing was trained here")
    assert outcome.to_dict()["options"]["released"] is True


@pytest.mark.parametrize("name", ["table-8", "table-b2", "table-b3", "table-c1", "table-e1", "figure-3", "figure-g1"])
def test_every_table_takes_released_checkpoints(lab, name):
    """Its rows of BERT, with what is measured there: captions, other protocols, layers, transfer tasks, geometry."""
    lab = dataclasses.replace(lab, trust_pickle=True)
    recipe = released(load_recipes()[name])
    present = {UNSUP, SUP, SBERT}

    def is_here(row):
        parts = [part for model in row.models.values() for part in model.parts()]
        return any(isinstance(part, Released) and part.name in present for part in parts)

    of_bert = [row for row in recipe.rows if is_here(row)]
    plain = [row for row in of_bert if not isinstance(next(iter(row.models.values())), Fitted)]
    fitted = [row for row in of_bert if row not in plain][:1]  # one layer stands for all
    outcome = run_recipe(dataclasses.replace(recipe, rows=(*plain, *fitted)), lab, seeds=[1])
    assert plain and all(row.checkpoints and not row.note for row in outcome.rows), outcome.notes()
    assert all(cell.ours for row in outcome.rows for cell in row.cells.values())
    if name == "table-8":
        assert len(outcome.grids()[1].rows) == 12, "three captions of each query and model"


def test_the_verb_reads_checkpoints_of_both_layouts(lab, checkpoints, tmp_path, capsys, monkeypatch):
    """RoBERTa's lie under their names beside BERT's; what is not there is named, and the rest is measured."""
    for variable, value in ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)  # so that what main sets is unset after the test
    root = tmp_path / "checkpoints"
    shutil.copytree(checkpoints, root)
    name = "princeton-nlp/unsup-simcse-roberta-base"
    shutil.copytree(root / UNSUP, root / name)
    config = RobertaConfig(vocab_size=400, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    RobertaModel(config).save_pretrained(root / name)
    out = str(tmp_path / "out")
    arguments = ["--data", str(lab.data), "--encoder", str(root), "-o", out, "--seeds", "1", "--device", "cpu"]
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "table-8", "--released", "--trust-pickle", "--json", *arguments])
    assert not stop.value.code
    document = json.loads(capsys.readouterr().out)
    (table,) = document["recipes"]
    assert table["options"]["released"] and all(row["cells"]["shared"]["ours"] for row in table["rows"])
    assert (tmp_path / "out" / "reports" / "paper-released" / "table-8.md").is_file()
    lab = dataclasses.replace(lab, encoder=str(root))
    roberta = run_recipe(some_rows("table-5", ["unsup/simcse-roberta"]), lab, seeds=[1]).rows
    assert [row.checkpoints[0].startswith(f"{name}, pooler cls, ") for row in roberta] == [True], roberta


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
    second = run_recipe(recipe, dataclasses.replace(lab), seeds=[1]).rows[0]  # a lab hashes each checkpoint once
    assert first.checkpoints != second.checkpoints and first.cells["avg"].ours != second.cells["avg"].ours


def in_shards(folder):
    model = BertModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="5KB")


def in_a_subfolder(folder):
    """As sentence-transformers lays models out: a list of modules, the transformer in a folder of its own."""
    home = folder / "0_BERT"
    home.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(home / path.name)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    kinds = {home.name: "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))


def with_older_names(folder):
    """As transformers of 2021 wrote a fine-tuned model."""
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    old = {f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma"): tensor for name, tensor in state.items()}
    old = {name.replace("LayerNorm.bias", "LayerNorm.beta"): tensor for name, tensor in old.items()}
    old |= {"bert.embeddings.position_ids": torch.arange(64)[None], "mlp.dense.weight": torch.zeros(2, 2)}
    torch.save(old, folder / "pytorch_model.bin")
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["BertForCL"]}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("lay_out", "name", "key", "weights"),
    [
        (in_shards, SUP, "sup/simcse-bert", "model-00001-of-"),
        (in_a_subfolder, SBERT, "sup/sbert", "pytorch_model.bin"),
        (with_older_names, SUP, "sup/simcse-bert", "pytorch_model.bin"),
    ],
)
def test_other_layouts_of_a_checkpoint_are_the_same_model(lab, checkpoints, tmp_path, lay_out, name, key, weights):
    recipe, lab = some_rows("table-5", [key]), dataclasses.replace(lab, trust_pickle=True)
    (plain,) = run_recipe(recipe, lab, seeds=[1]).rows
    root = shutil.copytree(checkpoints, tmp_path / "copy")
    lay_out(root / name)
    (row,) = run_recipe(recipe, dataclasses.replace(lab, encoder=str(root)), seeds=[1]).rows
    assert not row.note and row.cells["avg"].ours == pytest.approx(plain.cells["avg"].ours)
    assert f"sha256 of {weights}" in row.checkpoints[0]
    assert ("and the other shards" in row.checkpoints[0]) == (lay_out is in_shards)


def test_a_row_whose_weights_are_missing_is_skipped_with_the_reason(lab, checkpoints, tmp_path):
    root = shutil.copytree(checkpoints, tmp_path / "copy")
    (root / SUP / "model.safetensors").unlink()
    recipe = some_rows("table-5", ["unsup/simcse-bert", "sup/simcse-bert"])
    found = run_recipe(recipe, dataclasses.replace(lab, encoder=str(root)), seeds=[1]).rows
    assert found[0].cells["avg"].ours and "model.safetensors" in found[1].note


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
    with pytest.raises(ConfigError, match="nothing to track"):
        reproduce("figure-3", released=True, track="dev", output=tmp_path)
    with pytest.raises(ConfigError, match="evaluated in full"):
        reproduce("table-5", released=True, scale="smoke", output=tmp_path)


def test_a_missing_checkpoint_is_named(lab, tmp_path):
    lab = dataclasses.replace(lab, encoder=str(tmp_path))
    (row,) = run_recipe(some_rows("table-5", ["unsup/declutr"]), lab, seeds=[1]).rows
    assert f"no folder {tmp_path / 'johngiorgi' / 'declutr-base'}" in row.note


def test_a_report_says_which_numbers_of_simcses_checkpoints_are_not_the_papers():
    recipe = some_rows("table-5", ["unsup/simcse-bert", "sup/sbert", "sup/simcse-bert"])
    own, other, supervised = recipe.rows
    stated = {own.key: f"{UNSUP}, pooler cls", other.key: f"{SBERT}, pooler avg", supervised.key: f"{SUP}, pooler cls"}
    exact = {
        row.key: {c: Cell(ours=(recipe.published(row, c),), paper=recipe.published(row, c)) for c in recipe.columns}
        for row in recipe.rows
    }
    cells = exact[own.key]
    cells["sts12"] = Cell(ours=(cells["sts12"].paper + 0.02,), paper=cells["sts12"].paper)
    cells["sts13"] = Cell(ours=(cells["sts13"].paper - 0.35,), paper=cells["sts13"].paper)
    exact[other.key]["avg"] = Cell(ours=(1.0,), paper=74.89)
    rows = [RowOutcome(row=row, cells=exact[row.key], checkpoints=[stated[row.key]]) for row in recipe.rows]
    outcome = Outcome(recipe=recipe, scale="paper", encoder=None, seeds=(42,), rows=rows, facts={})
    note = (
        "SimCSE's checkpoints: 15 of 16 numbers within 0.02 of the paper's; not: Unsup. SimCSE-BERT-base, STS13 -0.35"
    )
    assert note in outcome.notes()
    accuracies = dataclasses.replace(outcome, recipe=dataclasses.replace(recipe, measure="transfer"))
    assert not any("within 0.02" in note for note in accuracies.notes()), "one test question is more than that"

"""The tables and figures as data: complete, and true to the paper."""

import pytest

from twinpass.config import Run
from twinpass.errors import ConfigError
from twinpass.evaluation.protocols import PUBLISHED
from twinpass.recipes.corpora import FILES
from twinpass.recipes.makers import CORPORA
from twinpass.recipes.measures import MEASURES
from twinpass.recipes.model_specs import Baseline, Fitted, Trained, Training
from twinpass.recipes.recipe import ALL
from twinpass.recipes.scales import PAPER, SMALL, SMOKE, scale_baseline, scale_run
from twinpass.recipes.tables import load_recipes
from twinpass.training.methods import METHODS

RECIPES = load_recipes()
NAMES = [
    *(f"table-{number}" for number in range(1, 9)),
    *("table-a1", "table-b1", "table-b2", "table-b3", "table-c1", "table-d1", "table-d2", "table-e1"),
    *("figure-2", "figure-3", "figure-f1", "figure-g1", "in-text", "after-simcse", "more-kinds"),
]


def test_every_table_and_figure_of_the_paper_is_there():
    assert list(RECIPES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_keys_of_their_own_and_the_papers_numbers(name):
    recipe = RECIPES[name]
    for names in ([row.key for row in recipe.rows], [row.label for row in recipe.rows]):
        assert len(set(names)) == len(names)
    assert all(len(row.paper) in (0, len(recipe.columns)) for row in recipe.rows)
    without = {row.key for row in recipe.rows if not row.paper}
    extra = {row.key for row in recipe.rows if row.extra}
    without -= {"nli-and-unsup", "contradictions"}  # the paper says only that they did not help
    assert not recipe.has_numbers or without <= extra, "a row that the paper does not have is marked as such"
    assert extra == {
        "table-c1": {"bert", "sbert"},
        "table-5": {"unsup/glove-other"},
        "table-e1": {"unsup/glove-other"},
    }.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_a_row_names_what_exists(name):
    recipe = RECIPES[name]
    for row in recipe.rows:
        assert (row.measure or recipe.measure) in MEASURES
        assert set(row.models) <= {ALL, *recipe.columns}
        assert row.models or (row.source and row.why_quoted), "a row without a model says whom it quotes"
        for model in row.models.values():
            for each in model.parts():
                assert set(each.files) <= set(FILES)
                if isinstance(each, Training):
                    assert each.corpus in CORPORA
                if isinstance(each, Baseline):
                    assert each.baseline in METHODS
                if isinstance(each, Trained):
                    each.run.replace(data="x", output="y").check()


@pytest.mark.parametrize(
    ("recipe", "table"), [("table-5", "5"), ("table-b2", "B.2"), ("table-b3", "B.3"), ("table-e1", "E.1")]
)
def test_keys_of_the_big_tables_follow_the_published_rows(recipe, table):
    """A row's label and the published row under its key speak of one model."""
    published = [row for row in PUBLISHED if row.table == table]
    rows = [row for row in RECIPES[recipe].rows if not row.extra]
    assert [row.paper for row in rows] == [row.values for row in published]
    for row, printed in zip(rows, published, strict=True):
        assert row.source == printed.source
        if printed.training:
            assert row.key.startswith(("unsup", "sup")) and printed.training.startswith(row.key.split("/")[0][:3])


def test_numbers_of_table_c1_stand_by_their_rows():
    paper = {row.key: row.paper for row in RECIPES["table-c1"].rows}
    assert paper["bert-flow-nli"][-1] == 66.55
    assert paper["bert-whitening-target"][-1] == 64.26
    assert paper["sbert-flow-target"][-1] == 75.48
    assert paper["sbert-whitening-nli"][-1] == 77.00


def test_the_papers_own_scale_is_table_a1s():
    for row in RECIPES["table-a1"].rows:
        run = row.models[ALL].run
        assert (run.batch_size, run.learning_rate) == row.paper


def test_the_default_row_of_every_ablation_is_one_run():
    """The unsupervised default stands in Tables 1, 2, 3, 4 and 6, and is trained once; Figure 2 follows it in a run."""
    places = {
        "table-1": ("none", ALL),
        "table-2": ("simcse", "one"),
        "table-3": ("0.1", ALL),
        "table-4": ("unsup", "full"),
        "table-6": ("cls-mlp-train", "unsup"),
    }
    rows = {(name, row.key): row for name in RECIPES for row in RECIPES[name].rows}
    models = [rows[name, key].models[column] for name, (key, column) in places.items()]
    assert len({model.identity(PAPER) for model in models}) == 1
    assert rows["figure-2", "simcse"].models[ALL] == models[0].changed(track_geometry=10)
    followed = [
        model
        for recipe in RECIPES.values()
        for model in recipe.models(PAPER)
        if getattr(model, "run", Run()).track_geometry
    ]
    assert followed == [row.models[ALL] for row in RECIPES["figure-2"].rows], "no other table pays for it"


def test_following_a_run_costs_a_third_of_a_pass_for_every_sentence_each_time():
    model = next(row for row in RECIPES["figure-2"].rows if row.key == "simcse").models[ALL]
    plain = model.changed(track_geometry=None)
    assert model.passes(SMALL.tracking("dev")) == plain.passes(SMALL) + 13 * 2_909 // 3
    assert model.passes(SMALL) == plain.passes(SMALL) + 13 * 15_437 // 3
    assert model.passes(PAPER) == 2_000_000 + (1 + 15_625 // 10) * 15_437 // 3
    with pytest.raises(ConfigError, match="expected the splits to track to be all or dev, got 'test'"):
        SMALL.tracking("test")


def test_where_the_pooler_is_studied_a_scale_keeps_it():
    poolers = {
        (row.key, column): model._scaled(SMALL, encoder="mine", seed=7, device="cpu").pooler
        for row in RECIPES["table-6"].rows
        for column, model in row.models.items()
    }
    assert {key: pooler for (key, column), pooler in poolers.items() if column == "unsup"} == {
        "cls-mlp": "cls_mlp",
        "cls-mlp-train": "cls_mlp_train",
        "cls": "cls",
        "first-last": "avg_first_last",
    }
    dropout = next(iter(RECIPES["table-3"].rows[0].models.values()))
    assert dropout._scaled(SMALL, encoder="mine", seed=7, device="cpu").pooler == "avg_first_last"
    assert dropout._scaled(PAPER, encoder=None, seed=7, device="cpu").pooler == "cls_mlp_train"


def test_longer_trainings_get_text_enough():
    longer = SMALL.of_steps(1_000)
    assert (longer.steps, longer.rows, longer.batch_size) == (1_000, 64_000, 64)
    assert SMALL.of_steps(10).rows == SMALL.rows
    with pytest.raises(ConfigError, match="takes no number of steps"):
        PAPER.of_steps(10)


def test_a_scale_changes_size_and_nothing_else():
    run = next(iter(RECIPES["table-7"].rows[1].models.values())).run
    small = scale_run(run, SMALL, encoder="mine", seed=7, device="cpu")
    assert (small.model, small.steps, small.batch_size, small.seed) == ("mine", 120, 64, 7)
    assert (small.hard_negative_weight, small.temperature, small.learning_rate) == (0.5, 0.05, 5e-5)
    paper = scale_run(run, PAPER, encoder=None, seed=42, device="auto")
    assert paper == run.replace(seed=42, chunk_tokens=8192) and paper.batch_size == 512
    unsupervised = next(iter(RECIPES["table-3"].rows[0].models.values())).run
    assert scale_run(unsupervised, PAPER, encoder=None, seed=42, device="auto") == unsupervised.replace(seed=42)


def test_a_kept_batch_takes_fewer_steps():
    run = next(iter(RECIPES["table-1"].rows[0].models.values())).run.replace(batch_size=512)
    small = scale_run(run, SMALL, encoder="mine", seed=7, device="cpu", keeps_batch=True)
    assert small.batch_size == 512 and small.steps == 15 and small.chunk_tokens


def test_below_the_papers_scale_one_encoder_stands_for_bert():
    rows = RECIPES["table-5"].rows
    encoders = {row.key: model.encoder for row in rows for model in row.models.values()}
    assert encoders["unsup/simcse-bert"] == encoders["sup/ct-sbert"] == "bert-base-uncased"
    assert encoders["unsup/declutr"] == "roberta-base" and encoders["unsup/glove"] is None
    assert SMOKE.own_encoder and not PAPER.own_encoder


def test_layers_are_fitted_to_the_first_layer_and_the_last():
    """Appendix C: whitening and flow take first-last averages, of SBERT and RoBERTa too."""
    for name in ("table-5", "table-b2", "table-b3", "table-c1", "figure-3", "figure-f1", "figure-g1"):
        for row in RECIPES[name].rows:
            for model in row.models.values():
                if isinstance(model, Fitted):
                    assert model.of.pooler == "avg_first_last", f"{name}: {row.label}"


def test_figure_3_prints_the_averages_of_table_5_and_one_of_its_own():
    averages = {row.label: row.paper[-1] for row in RECIPES["figure-3"].rows}
    assert averages.pop("Next3Sent") == 63.1
    rounded = {label: round(value + 1e-9, 1) for label, value in averages.items()}
    assert rounded == {
        "Avg. BERT": 56.7,
        "BERT-flow": 66.6,
        "BERT-whitening": 66.3,
        "Unsup. SimCSE": 76.3,
        "SBERT": 74.9,
        "SBERT-flow": 76.6,
        "SBERT-whitening": 77.0,
        "Sup. SimCSE": 81.6,
    }


def test_a_sample_of_table_4_is_fewer_pairs_and_the_same_epochs():
    for row in RECIPES["table-4"].rows:
        if "sample" in row.models:
            sample, full = row.models["sample"], row.models["full"]
            assert sample.run == full.run and full.most is None
            assert sample.most == (None if row.key == "qqp" else 134_000), "the sample holds all of QQP"


def test_simcse_counts_duplicates_as_the_papers_sums_do():
    trained = {model for recipe in RECIPES for row in RECIPES[recipe].rows for model in row.models.values()}
    runs = [part.run for model in trained for part in model.parts() if isinstance(part, Trained)]
    assert runs and all(run.keep_duplicates for run in runs)


def test_rows_that_another_recipe_has_are_the_same_runs():
    """Several hard negatives, the mixture and the references are trained once for all recipes."""
    more = {row.key: row.models[ALL] for row in RECIPES["more-kinds"].rows}
    told = {row.key: row.models[ALL] for row in RECIPES["in-text"].rows}
    for scale in (PAPER, SMALL, SMOKE):
        assert more["contradictions"].identity(scale) == told["contradictions"].identity(scale)
        assert more["mixture"].identity(scale) == told["nli-and-unsup"].identity(scale)
        assert more["sup"].identity(scale) == told["one-encoder"].identity(scale)
    assert not RECIPES["more-kinds"].has_numbers


def test_a_narrow_encoder_has_shorter_vectors_and_a_shallow_one_a_shallow_student():
    more = {row.key: row.models[ALL] for row in RECIPES["more-kinds"].rows}
    sizes = {
        scale.name: more["matryoshka"]._scaled(scale, encoder="mine", seed=7, device="cpu").matryoshka
        for scale in (SMALL, SMOKE)
    }
    assert sizes == {"small": "384,192,96,48", "smoke": "8,4,2"}
    assert more["sup"]._scaled(SMOKE, encoder="mine", seed=7, device="cpu").matryoshka is None
    student = Run(method="distill")
    assert [scale_baseline(student, scale).layers for scale in (PAPER, SMALL, SMOKE)] == [6, 3, 1]


def test_the_queue_and_soft_negatives_are_all_that_differs_from_simcse():
    more = {
        row.key: row.models[ALL].run for row in RECIPES["more-kinds"].rows if row.key in ("queue", "soft-negatives")
    }
    same = ("pooler", "batch_size", "learning_rate", "max_tokens", "temperature", "epochs", "keep_duplicates")
    simcse = RECIPES["table-3"].rows[2].models[ALL].run
    for run in more.values():
        assert all(getattr(run, name) == getattr(simcse, name) for name in same)
    assert (more["queue"].repetition, more["queue"].queue) == (0.0, 2.5)


def test_extra_rows_stay_out_of_the_ordering():
    """Table C.1's rows without a layer are not in the paper's table, though SBERT's has numbers of Table 5."""
    from twinpass.recipes.report import Cell, Outcome, RowOutcome

    recipe = RECIPES["table-c1"]
    rows = [
        RowOutcome(row=row, cells={"avg": Cell(ours=(float(n),), paper=float(n))}) for n, row in enumerate(recipe.rows)
    ]
    outcome = Outcome(recipe=recipe, scale="small", encoder=None, seeds=(1,), rows=rows, facts={})
    assert len(rows) == 10 and outcome.agreement("avg").rows == 8
    assert any(
        note.endswith("ordering: BERT (first-last avg.), SBERT (numbers of Table 5)") for note in outcome.notes()
    )
    assert [row["extra"] for row in outcome.to_dict()["rows"]].count(True) == 2

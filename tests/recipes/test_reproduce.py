"""A reproduction: what it runs, what it leaves alone, what it says."""

import dataclasses
import json
import math
import random
import shutil
from contextlib import contextmanager, nullcontext
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

from twinpass.analysis.drawing import LIGHT, themed
from twinpass.config import Run
from twinpass.display import to_latex, to_markdown
from twinpass.errors import Busy, ConfigError, InputError, MissingExtra, OutOfMemory, OutputError, TrainingError
from twinpass.recipes.corpora import Corpora, Missing
from twinpass.recipes.figures import draw_outcome
from twinpass.recipes.lab import Lab
from twinpass.recipes.measures import MEASURES, Found
from twinpass.recipes.model_specs import Baseline, Fitted, Pooled, Raw, supervised, unsupervised
from twinpass.recipes.recipe import ALL, Recipe, one_model, quoted
from twinpass.recipes.report import Cell, Outcome, RowOutcome, number, order_agreement, ours, searched, write_report
from twinpass.recipes.reproduce import estimate, list_recipes, reproduce, run_recipe
from twinpass.recipes.scales import PAPER, SMALL, SMOKE
from twinpass.recipes.smoke_data import make_data
from twinpass.recipes.store import Store, key_of
from twinpass.recipes.tables import load_recipes
from twinpass.recipes.tables.after_simcse import RANKCSE
from twinpass.recipes.tables.shared import GLOVE, INFERSENT

# The data are generated, which every reading of them warns of.
pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")


@pytest.fixture
def lab(smoke_data, tmp_path):
    data, encoder = smoke_data
    return Lab(scale=SMOKE, data=data, output=tmp_path / "out", encoder=str(encoder), device="cpu")


def naive_tau(ours, paper):
    """Kendall's tau-b as its definition has it: concordant less discordant pairs, ties left out of the scale."""
    concordant = discordant = ties_ours = ties_paper = 0
    for (a, x), (b, y) in combinations(zip(ours, paper, strict=True), 2):
        sign = (a > b) - (a < b), (x > y) - (x < y)
        concordant += sign[0] * sign[1] > 0
        discordant += sign[0] * sign[1] < 0
        ties_ours += sign[0] == 0
        ties_paper += sign[1] == 0
    pairs = len(ours) * (len(ours) - 1) / 2
    return (concordant - discordant) / math.sqrt((pairs - ties_ours) * (pairs - ties_paper))


def test_tau_is_kendalls():
    rng = random.Random(0)
    for _ in range(20):
        ours = [rng.randrange(6) for _ in range(8)]
        paper = [rng.randrange(6) for _ in range(8)]
        assert order_agreement(ours, paper).tau == pytest.approx(naive_tau(ours, paper))


@pytest.mark.parametrize("subject", [unsupervised(), Baseline(baseline="sbert", corpus="nli-labelled")])
def test_ctrl_c_in_the_last_step_of_a_row_stops_the_others(lab, subject):
    """The row is finished, and the next one must not start."""

    def interrupt(event):
        if type(event).__name__ == "Stepped" and event.step == event.steps:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    stopped = Lab(**{**vars_of(lab), "on_event": interrupt})
    with pytest.raises(KeyboardInterrupt):
        subject.open(stopped, 5)
    assert lab.store.is_finished(subject.key(lab, 5))


def test_ordering_is_said_in_words_and_not_of_too_few_rows():
    assert order_agreement([1, 2, 3], [10, 20, 30]).words == "the paper's ordering"
    assert order_agreement([3, 2, 1], [10, 20, 30]).words == "the paper's ordering reversed"
    assert order_agreement([1, 2, None], [10, 20, 30]) is None
    assert order_agreement([1, 1, 1], [10, 20, 30]) is None


def test_rows_are_trained_once_and_found_again(lab):
    trained = []
    watched = Lab(**{**vars_of(lab), "on_event": lambda event: trained.append(type(event).__name__)})
    recipe = load_recipes()["table-7"]
    first = run_recipe(recipe, watched, seeds=[1, 2])
    assert trained.count("Stopped") == 10 and all(len(row.cells["stsb"].ours) == 2 for row in first.rows)
    trained.clear()
    again = run_recipe(recipe, watched, seeds=[1, 2])
    assert not trained
    assert first.facts["corpora"]["nli-triplets"]["rows"] == SMOKE.rows
    assert "text read: nli-triplets: 64 rows of nli_pairs.tsv" in again.notes()
    assert [row.cells for row in again.rows] == [row.cells for row in first.rows]


def test_a_row_that_asks_for_too_much_memory_is_left_out_and_the_next_is_tried(lab, monkeypatch):
    def measure(lab, subject, seed):
        if subject.pooler == "avg":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return Found({"avg": 1.0})

    monkeypatch.setitem(MEASURES, "sts", measure)
    rows = tuple(one_model(name, name, Raw(pooler=name)) for name in ("avg", "cls"))
    outcome = run_recipe(dataclasses.replace(load_recipes()["table-c1"], rows=rows), lab, seeds=[1])
    assert outcome.rows[0].note == "the memory of the machine ran out. Try another machine."
    assert outcome.rows[1].cells["avg"].mean == 1.0


def test_what_is_not_a_number_is_found_again_as_such(lab, monkeypatch):
    monkeypatch.setitem(MEASURES, "sts", lambda *_: Found({"avg": math.nan}))
    recipe = dataclasses.replace(load_recipes()["table-c1"], rows=(one_model("bert", "BERT", Raw(pooler="avg")),))
    for _ in range(2):
        found = run_recipe(recipe, lab, seeds=[1])
        assert math.isnan(found.rows[0].cells["avg"].mean) and "| - " in to_markdown(found.grids())


def vars_of(lab):
    names = ("scale", "data", "output", "encoder", "device", "wordnet", "log", "on_event")
    return {name: getattr(lab, name) for name in names}


@pytest.mark.parametrize("subject", [unsupervised(), Baseline(baseline="ct", corpus="wiki")])
def test_a_stopped_row_goes_on_where_it_was(lab, subject):
    """Ctrl-C in the middle of a training: the next try resumes it and ends with the same numbers."""
    steps = []

    def interrupt(event):
        if type(event).__name__ == "Stepped" and event.step == 1:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    stopped = Lab(**{**vars_of(lab), "on_event": interrupt})
    with pytest.raises(KeyboardInterrupt):
        subject.open(stopped, 5)
    assert not lab.store.is_finished(subject.key(lab, 5))
    resumed_lab = Lab(**{**vars_of(lab), "on_event": lambda event: steps.append(getattr(event, "first_step", None))})
    resumed = subject.open(resumed_lab, 5).encode(["the cat sits"])
    assert steps[0] == 1
    whole = Lab(**{**vars_of(lab), "output": lab.output.parent / "other"})
    assert (resumed == subject.open(whole, 5).encode(["the cat sits"])).all()
    assert not (lab.store.model(subject.key(lab, 5)) / "checkpoints").exists()


def test_a_key_says_all_that_shapes_the_weights(lab):
    keys = {
        unsupervised().key(lab, 1),
        unsupervised().key(lab, 2),
        unsupervised(dropout=0.2).key(lab, 1),
        unsupervised("wiki-documents").key(lab, 1),
        supervised().key(lab, 1),
        Raw(pooler="avg").key(lab, 1),
        Fitted(of=Raw(pooler="avg"), layer="whitening", on="nli").key(lab, 1),
        Fitted(of=Raw(pooler="avg"), layer="whitening", on="target").key(lab, 1),
    }
    assert len(keys) == 8
    assert unsupervised().key(lab, 1) == unsupervised().key(lab, 1)
    # The machine and the places of files do not shape weights.
    elsewhere = Lab(**{**vars_of(lab), "output": lab.output.parent / "elsewhere"})
    assert unsupervised().key(elsewhere, 1) == unsupervised().key(lab, 1)


def test_scores_of_another_protocol_are_measured_again(lab, monkeypatch):
    measured = []
    monkeypatch.setitem(MEASURES, "stsb-dev", lambda *_: measured.append(1) or Found({"stsb": 1.0}))
    recipe = Recipe(name="table-0", title="", rows=(one_model("a", "a", Raw(pooler="avg")),))
    for _ in range(2):
        run_recipe(recipe, lab, seeds=[1])
    assert len(measured) == 1
    run_recipe(recipe, dataclasses.replace(lab, scale=dataclasses.replace(SMOKE, captions=100)), seeds=[1])
    assert len(measured) == 2
    monkeypatch.setattr("twinpass.recipes.measures.PROTOCOL", 3)
    run_recipe(recipe, lab, seeds=[1])
    assert len(measured) == 3


def test_a_search_over_several_seeds_finds_one_setting(lab, monkeypatch):
    """The one that is second with both seeds, not the mean of two that are each first with one."""
    best = {(1, 64, 1e-5): 80.0, (1, 128, 3e-5): 79.0, (2, 512, 5e-5): 80.0, (2, 128, 3e-5): 79.0}
    best[1, 256, 1e-5] = math.nan

    def score(lab, model, seed):
        return Found({"stsb": best.get((seed, model.run.batch_size, model.run.learning_rate), 1.0)})

    monkeypatch.setitem(MEASURES, "stsb-dev", score)
    recipe = dataclasses.replace(load_recipes()["table-a1"], rows=load_recipes()["table-a1"].rows[:1])
    for _ in range(2):  # measured, then found again
        outcome = run_recipe(recipe, lab, seeds=[1, 2])
        cells = outcome.rows[0].cells
        assert (cells["batch_size"].ours, cells["learning_rate"].ours) == ((128.0,), (3e-5,))
        assert "40.50" in to_markdown(outcome.grids()), "the mean of 80 and 1"


def test_a_key_of_a_baseline_says_all_that_shapes_its_weights(lab, monkeypatch):
    declutr, ct = Baseline(baseline="declutr", corpus="wiki"), Baseline(baseline="ct", corpus="wiki")
    started = Baseline(baseline="ct", corpus="wiki", start=Baseline(baseline="sbert", corpus="nli-labelled"))
    known = declutr.key(lab, 1)
    assert len({known, declutr.key(lab, 2), ct.key(lab, 1), started.key(lab, 1)}) == 4
    reworded = Lab(**{**vars_of(lab), "scale": dataclasses.replace(SMOKE, about="other words")})
    assert declutr.key(reworded, 1) == known
    longer = Lab(**{**vars_of(lab), "scale": dataclasses.replace(SMOKE, steps=400)})
    assert ct.key(longer, 1) != ct.key(lab, 1)
    monkeypatch.setattr("twinpass.recipes.scales.SPAN", 16)
    assert declutr.key(lab, 1) != known


def test_an_encoder_of_the_hub_is_known_by_its_weights(lab, tmp_path, monkeypatch):
    cached = tmp_path / "cached"
    shutil.copytree(lab.encoder, cached)
    monkeypatch.setattr("twinpass.recipes.lab.find_folder", lambda name, **_: cached)

    def key():
        fresh = dataclasses.replace(lab, encoder="somebody/encoder")
        found = unsupervised().key(fresh, 1)
        assert list(fresh.contents) == ["somebody/encoder"]
        return found

    known = key()
    (cached / "pytorch_model.bin").write_bytes(b"the hub's cache gains a file that is not read")
    assert key() == known
    with (cached / "model.safetensors").open("ab") as weights:
        weights.write(b"another revision")
    assert key() != known


def test_an_encoder_is_known_by_its_files_and_not_by_its_path(lab, tmp_path):
    mine = tmp_path / "encoder"
    shutil.copytree(lab.encoder, mine)
    named = {**vars_of(lab), "encoder": str(mine)}
    (content,) = outcome_of(Lab(**named)).facts["options"]["encoder_content"].values()
    models = [unsupervised(), Raw(pooler="avg"), Baseline(baseline="ct", corpus="wiki"), RANKCSE]

    def keys(**changes):
        return [model.key(Lab(**named | changes), 1) for model in models]

    known = keys()
    moved = shutil.copytree(mine, tmp_path / "moved")
    (moved / ".git").mkdir()
    (moved / ".git" / "index").write_text("not loaded")
    (moved / "checkpoints").mkdir()
    (moved / "checkpoints" / "step-1").write_text("not loaded")
    assert keys(encoder=str(moved)) == known and key_of(content)
    (mine / "config.json").write_text((mine / "config.json").read_text() + " ")
    assert not {*keys()} & {*known}


def test_a_row_whose_text_is_missing_is_left_out_and_says_so(lab):
    said = []
    recipe = load_recipes()["table-4"]
    only = dataclasses.replace(recipe, rows=recipe.rows[-1:])
    found = run_recipe(only, Lab(**{**vars_of(lab), "log": said.append}), seeds=[1])
    (row,) = found.rows
    assert not row.cells["full"].ours and row.cells["full"].paper == 85.0
    assert "anli" in row.note and any("skipped" in line for line in said)


def test_target_layers_are_fitted_to_what_is_judged(lab):
    """On target, a whitening's own texts come out with the identity as covariance; on NLI they do not."""
    import numpy as np

    texts = [text for pair in lab.dev.pairs for text in pair][:400]
    target = Fitted(of=Raw(pooler="avg"), layer="whitening", on="target").open(lab, 1, texts=texts)
    nli = Fitted(of=Raw(pooler="avg"), layer="whitening", on="nli").open(lab, 1, texts=texts)
    covariances = [np.cov(model.encode(texts).T, bias=True) for model in (target, nli)]
    away = [np.abs(c - np.eye(len(c))).max() for c in covariances]
    assert away[0] < 0.05 < away[1]


def test_a_row_that_another_process_is_at_comes_last(lab, monkeypatch):
    """The lock is another's when the row's turn comes, and free once the other rows are done."""
    tried = []
    rows = tuple(one_model(name, name, Raw(pooler=name)) for name in ("avg", "cls", "avg_first_last"))
    recipe = dataclasses.replace(load_recipes()["table-c1"], rows=rows)
    with monkeypatch.context() as patched:
        patched.setitem(MEASURES, "sts", lambda *_: Found({"avg": 1.0}))
        patched.setattr(lab.store, "locked", lambda key: tried.append(key) or nullcontext())
        run_recipe(recipe, lab, seeds=[1])
    first = tried[0]
    other = FileLock(lab.store.folder / "models" / f".{first}.lock")
    other.acquire()
    measured = []

    def measure(lab, subject, seed):
        measured.append(subject.pooler)
        if len(measured) == 2:
            other.release()
        return Found({"avg": 1.0})

    for score in (lab.store.folder / "scores").iterdir():
        score.unlink()
    monkeypatch.setitem(MEASURES, "sts", measure)
    outcome = run_recipe(recipe, lab, seeds=[1])
    assert measured == ["cls", "avg_first_last", "avg"]
    assert [row.row.key for row in outcome.rows] == ["avg", "cls", "avg_first_last"]


def test_a_row_whose_model_another_process_trains_comes_last(lab, monkeypatch):
    """Two rows share a training: while another process is at it, neither is waited for."""
    subject = unsupervised()
    rows = (one_model("shared", "shared", subject), one_model("free", "free", Raw(pooler="avg")))
    recipe = dataclasses.replace(load_recipes()["table-3"], rows=rows)
    other = FileLock(lab.store.folder / "models" / f".{subject.key(lab, 1)}.lock")
    other.acquire()
    order, measure = [], MEASURES["stsb-dev"]

    def measured(lab, subject, seed):
        found = measure(lab, subject, seed)
        order.append(type(subject).__name__)
        if order == ["Raw"]:
            other.release()
        return found

    monkeypatch.setitem(MEASURES, "stsb-dev", measured)
    outcome = run_recipe(recipe, lab, seeds=[1])
    assert order == ["Raw", "Trained"] and all(row.cells["stsb"].ours for row in outcome.rows)


@pytest.mark.parametrize(
    ("name", "measure"),
    [("senteval/STS/STSBenchmark/sts-dev.csv", "stsb-dev"), ("flickr30k_captions.tsv", "retrieval")],
)
def test_a_score_is_measured_again_if_its_evaluation_set_has_changed(lab, tmp_path, monkeypatch, name, measure):
    mine, measured = shutil.copytree(lab.data, tmp_path / "data"), []
    monkeypatch.setitem(MEASURES, measure, lambda *_: measured.append(measure) or Found({"stsb": 1.0, "shared": 1.0}))
    row = one_model("raw", "raw", Raw(pooler="avg"))
    recipe = Recipe(name="table-8", title="", rows=(row,), measure=measure, columns={"stsb": "", "shared": ""})

    def run():
        run_recipe(recipe, Lab(**{**vars_of(lab), "data": mine}), seeds=[1])
        return len(measured)

    assert run() == 1 and run() == 1
    (mine / "senteval" / "another-file").write_text("of no task")
    assert run() == 1
    with (mine / name).open("a") as stream:
        stream.write("\n")
    assert run() == 2


def test_the_dev_set_that_chose_a_checkpoint_is_part_of_its_key(lab, tmp_path):
    mine = shutil.copytree(lab.data, tmp_path / "data")
    scale = dataclasses.replace(SMOKE, evaluations=2)
    models = [unsupervised(), Baseline(baseline="ct", corpus="wiki"), RANKCSE]

    def keys(scale):
        return [model.key(Lab(**{**vars_of(lab), "data": mine, "scale": scale}), 1) for model in models]

    before, without = keys(scale), keys(SMOKE)
    with (mine / "senteval/STS/STSBenchmark/sts-dev.csv").open("a") as stream:
        stream.write("\n")
    assert not {*before} & {*keys(scale)}
    assert without[0] == keys(SMOKE)[0], "at smoke no checkpoint is chosen"
    (mine / "senteval/STS/STSBenchmark/sts-dev.csv").unlink()
    found = run_recipe(
        dataclasses.replace(
            load_recipes()["table-3"], rows=(one_model("a", "a", models[0]), one_model("b", "b", models[1]))
        ),
        Lab(**{**vars_of(lab), "data": mine, "scale": scale}),
        seeds=[1],
    )
    assert all("sts-dev.csv" in row.note for row in found.rows), "missing, it is asked for by its name"


def test_other_word_vectors_under_the_same_name_are_another_model(lab, tmp_path):
    mine = tmp_path / "data"
    shutil.copytree(lab.data, mine)
    changed = Lab(**{**vars_of(lab), "data": mine})
    models = [GLOVE, INFERSENT]
    before = [model.key(changed, 1) for model in models]
    assert before == [model.key(changed, 1) for model in models]
    lines = (mine / "glove.txt").read_text().splitlines()
    (mine / "glove.txt").write_text("\n".join(lines[:5]))
    assert not {*before} & {model.key(changed, 1) for model in models}


@pytest.mark.parametrize("layer", ["whitening", "flow"])
def test_a_layer_is_fitted_once_and_found_again(lab, monkeypatch, layer):
    subject = Fitted(of=Raw(pooler="avg"), layer=layer, on="nli")
    texts = ["a cat sits", "a dog runs"]
    fitted = subject.open(lab, 1).encode(texts)
    monkeypatch.setattr("twinpass.encoder.layers.Fit.__call__", None)  # fitting anew would fail
    assert (subject.open(Lab(**vars_of(lab)), 1).encode(texts) == fitted).all()
    with pytest.raises(TypeError):
        dataclasses.replace(subject, on="target").open(lab, 1, texts=texts)


def test_the_papers_encoders_come_from_a_folder_where_one_is_given(lab, tmp_path):
    (tmp_path / "bert-base-uncased").mkdir()
    at_hand = Lab(**{**vars_of(lab), "scale": PAPER, "encoder": str(tmp_path)})
    assert unsupervised().run_in(at_hand, 1).model == str(tmp_path / "bert-base-uncased")
    assert Raw(pooler="avg").source(at_hand, 1) == str(tmp_path / "bert-base-uncased")
    assert at_hand.reports.name == "paper"
    before = Raw(pooler="avg").key(at_hand, 1)
    (tmp_path / "bert-base-uncased" / "0_Transformer").mkdir()
    (tmp_path / "bert-base-uncased" / "0_Transformer" / "config.json").write_text("{}")
    assert Raw(pooler="avg").key(Lab(**vars_of(at_hand)), 1) != before
    assert Lab(**{**vars_of(at_hand), "released": True}).reports.name == "paper-released"
    with pytest.raises(ConfigError, match=r"no folder .*roberta-base.*under their hub names"):
        Raw(pooler="avg", encoder="roberta-base").source(at_hand, 1)
    from_hub = Lab(**{**vars_of(lab), "scale": PAPER, "encoder": None})
    assert unsupervised().run_in(from_hub, 1).model == "bert-base-uncased"


def test_the_papers_scale_trains_in_half_precision_where_a_gpu_has_it(lab, monkeypatch):
    paper = Lab(**{**vars_of(lab), "scale": PAPER, "encoder": None})
    assert unsupervised().run_in(paper, 1).precision == "fp32"
    monkeypatch.setattr("twinpass.recipes.model_specs.choose_device", lambda name: torch.device("cuda"))
    for supported, precision in ((True, "bf16"), (False, "fp16")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda supported=supported: supported)
        assert unsupervised().run_in(paper, 1).precision == precision
    assert unsupervised().run_in(lab, 1).precision == "fp32"


def test_a_named_precision_reaches_every_training_and_its_key(lab, monkeypatch):
    sbert, infersent = (Baseline(baseline=name, corpus="nli-labelled") for name in ("sbert", "infersent"))
    half = Lab(**{**vars_of(lab), "precision": "bf16"})
    for model in (unsupervised(), supervised(), sbert):
        assert (model.run_in(lab, 1).precision, model.run_in(half, 1).precision) == ("fp32", "bf16")
        assert model.key(lab, 1) != model.key(half, 1)
    full = Lab(**{**vars_of(lab), "precision": "fp32"})
    assert unsupervised().key(full, 1) == unsupervised().key(lab, 1), "it is the default"
    infersent.run_in(half, 1).replace(output="x", model="y").check()  # InferSent has no precision to choose
    assert infersent.run_in(half, 1).precision == "fp32"
    paper = Lab(**{**vars_of(lab), "scale": PAPER, "encoder": None, "precision": "fp32"})
    monkeypatch.setattr("twinpass.recipes.model_specs.choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert unsupervised().run_in(paper, 1).precision == "fp32", "the named one is used, not what the GPU has"


def test_reports_of_another_precision_are_apart_and_say_so(lab, monkeypatch):
    monkeypatch.setitem(MEASURES, "stsb-dev", lambda *_: Found({"stsb": 1.0}))
    half = Lab(**{**vars_of(lab), "precision": "bf16"})
    assert (lab.reports.name, half.reports.name) == ("smoke-encoder", "smoke-bf16-encoder")
    recipe = Recipe(name="table-0", title="", rows=(one_model("a", "a", Raw(pooler="avg")),))
    for each, precision in ((lab, None), (half, "bf16")):
        outcome = run_recipe(recipe, each, seeds=[1])
        assert outcome.facts["options"]["precision"] == precision
        assert ("trained in bf16" in outcome.notes()[0]) is (precision is not None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scale": "smoke", "precision": "fp8"}, "no precision named 'fp8'"),
        ({"scale": "smoke", "precision": "fp16", "device": "cpu"}, "fp16 needs a GPU"),
        ({"released": True, "precision": "fp32"}, "not trained here"),
    ],
)
def test_a_precision_that_cannot_be_used_is_refused_before_anything_is_made(tmp_path, options, says):
    with pytest.raises(ConfigError, match=says):
        reproduce("table-5", output=tmp_path / "lab", **options)
    assert not (tmp_path / "lab").exists()


@pytest.mark.bf16
def test_a_table_can_be_trained_in_bf16(tmp_path):
    found = reproduce("table-7", scale="smoke", precision="bf16", device="cpu", output=tmp_path / "lab")
    assert all(math.isfinite(row.cells["stsb"].mean) for row in found["table-7"].rows)
    runs = [Run.read(path) for path in (tmp_path / "lab" / "models").glob("*/run.json")]
    assert runs and {run.precision for run in runs} == {"bf16"}
    assert (tmp_path / "lab" / "reports" / "smoke-bf16-tiny-encoder" / "table-7.json").is_file()


def more_kinds(*keys):
    recipe = load_recipes()["more-kinds"]
    return dataclasses.replace(recipe, rows=tuple(row for row in recipe.rows if row.key in keys))


def test_every_kind_of_data_and_model_has_a_number(lab):
    """Trained and measured; and drawn and written without a column of the paper's, which has none of them."""
    outcome = run_recipe(load_recipes()["more-kinds"], lab, seeds=[1])
    notes = {row.row.key: row.note for row in outcome.rows if row.note}
    assert all("[lora]" in note for note in notes.values()), notes
    assert all(math.isfinite(row.cells["stsb"].mean) for row in outcome.rows if not row.note)
    page = to_markdown(outcome.grids())
    assert "| STS-B |" in page and "paper" not in page and outcome.agreement("stsb") is None
    assert draw_outcome(outcome) is not None
    assert set(outcome.facts["corpora"]) == {"wiki", "nli-triplets", "nli-triplets-all", "trec", "stsb-train"}


def test_a_row_whose_package_is_missing_says_so(lab, monkeypatch):
    def missing():
        raise MissingExtra("LoRA", "lora")

    monkeypatch.setattr("twinpass.encoder.lora._peft", missing)
    (row,) = run_recipe(more_kinds("lora"), lab, seeds=[1]).rows
    assert not row.cells["stsb"].ours and "twinpass[lora]" in row.note


def test_a_first_eighth_is_that_of_the_whole_vector(lab):
    (row,) = more_kinds("sup-eighth").rows
    cut = row.models[ALL]
    whole, short = (model.open(lab, 1).encode(["the cat sits", "a dog"]) for model in (cut.of, cut))
    assert short.shape == (2, 2) and cut.is_random
    np.testing.assert_allclose(short, whole[:, :2] / np.linalg.norm(whole[:, :2], axis=1, keepdims=True), atol=1e-6)


def test_students_come_from_a_teacher_that_is_trained_once(lab):
    layers, static = (row.models[ALL] for row in more_kinds("layers", "static").rows)
    ended = []
    watched = Lab(**{**vars_of(lab), "on_event": lambda event: ended.append(type(event).__name__ == "Stopped")})
    run = Run.read(Path(layers.source(watched, 1)) / "run.json")
    assert (run.method, run.layers) == ("distill", 1) and run.model == static.of.source(watched, 1)
    made = Path(static.source(watched, 1))
    assert sum(ended) == 2, "the teacher and one student: a static one is not trained"
    before = made.stat().st_mtime_ns
    assert static.source(lab, 1) == str(made) and made.stat().st_mtime_ns == before, "it is found again"
    assert static.open(lab, 1).encode(["the cat sits"]).shape == (1, 16)


def test_seeds_are_spent_where_something_is_drawn(lab, monkeypatch):
    raw = Raw(pooler="avg")
    models = {
        "raw": raw,
        "whitening": Fitted(of=raw, layer="whitening", on="nli"),
        "flow": Fitted(of=raw, layer="flow", on="nli"),
        "trained": Fitted(of=unsupervised(), layer="whitening", on="nli"),
    }
    monkeypatch.setitem(MEASURES, "sts", lambda lab, model, seed: Found({"avg": float(seed)}))
    rows = tuple(one_model(name, name, model) for name, model in models.items())
    outcome = run_recipe(dataclasses.replace(load_recipes()["table-c1"], rows=rows), lab, seeds=[1, 2, 3])
    seeds = {row.row.key: row.cells["avg"].ours for row in outcome.rows}
    assert seeds == {"raw": (1,), "whitening": (1,), "flow": (1, 2, 3), "trained": (1, 2, 3)}


def test_ct_takes_its_authors_steps_at_the_papers_scale(lab):
    paper = Lab(**{**vars_of(lab), "scale": PAPER, "encoder": None})
    subject = Baseline(baseline="ct", corpus="wiki")
    run = subject.run_in(paper, 1)
    assert (run.steps, run.eval_every, run.batch_size) == (5_000, 500, 16)
    small = subject.run_in(lab, 1)
    assert small.steps == max(2, SMOKE.steps * SMOKE.batch_size // 16)
    only_ct = cut(load_recipes()["table-5"], 7)
    only_ct = dataclasses.replace(only_ct, rows=only_ct.rows[-1:])
    assert estimate(only_ct, PAPER).passes == 90_000


def test_cost_counts_shared_trainings_once():
    recipe = load_recipes()["table-4"]
    cost = estimate(recipe, SMALL)
    assert cost.trainings == 10 and cost.hours == pytest.approx(cost.passes / 13 / 3600)


def outcome_of(lab):
    recipe = Recipe(
        name="table-0",
        title="A & B",
        measure="stsb-dev",
        columns={"stsb": "STS-B"},
        protocol="STS-B dev",
        rows=(
            one_model("raw", "raw 50 %", Raw(pooler="avg"), 50.0),
            one_model("cls", "cls", Raw(pooler="cls"), 60.0),
            dataclasses.replace(
                quoted("theirs", "theirs", source="Somebody, 2020", why="it is a secret"), paper=(70.0,)
            ),
        ),
    )
    return run_recipe(recipe, lab, seeds=[1])


def test_reports_hold_ours_the_papers_and_the_difference(lab, tmp_path):
    outcome = outcome_of(lab)
    raw = outcome.rows[0].cells["stsb"]
    assert raw.difference == pytest.approx(raw.mean - 50.0)
    document = json.loads(json.dumps(outcome.to_dict()))
    assert document["rows"][0]["cells"]["stsb"]["paper"] == 50.0
    assert document["versions"]["torch"] and document["options"]["seeds"] == [1]
    markdown = to_markdown(outcome.grids())
    assert f"| raw 50 % | {raw.mean:.2f} | 50.00 | {raw.mean - 50:+.2f} |" in markdown
    assert "theirs: it is a secret" in markdown and "Somebody, 2020" in markdown
    latex = to_latex(outcome.grids())
    assert r"raw 50 \%" in latex and r"A \& B" in latex and latex.count(r"\\") == 4
    files = {path.name for path in write_report(outcome, tmp_path / "reports")}
    assert {"table-0.json", "table-0.md", "table-0.tex", "table-0-light.png", "table-0-dark.svg"} <= files


def test_a_wide_table_has_its_differences_in_a_table_of_their_own(lab):
    outcome = run_recipe(cut(load_recipes()["table-5"], 3), lab, seeds=[1])
    _, differences = outcome.grids()
    assert list(differences.columns) == ["", *outcome.recipe.columns.values()]
    assert [row[0] for row in differences.rows] == ["GloVe embeddings (avg.)", "BERT-base (first-last avg.)"]
    bert = outcome.rows[2].cells["avg"]
    assert differences.rows[1][-1] == f"{bert.mean - 56.7:+.2f}"
    in_text = run_recipe(cut(load_recipes()["in-text"], 1), lab, seeds=[1]).grids()[1]
    assert list(in_text.columns) == ["", "STS-B dev"], "of this row the paper prints no other number"


def test_a_report_names_the_evaluation_files_and_those_that_are_not_sentevals(lab):
    outcome = outcome_of(lab)
    files = outcome.to_dict()["evaluation"]
    assert "STS/STSBenchmark/sts-dev.csv" in files and all(len(digest) == 64 for digest in files.values())
    assert not any("SentEval's copy" in note for note in outcome.notes()), "it is generated, which the title says"
    (note,) = (note for note in dataclasses.replace(outcome, scale="small").notes() if "SentEval's copy" in note)
    assert note.startswith("3 evaluation files not SentEval's copy (STS/STSBenchmark/sts-")


def test_a_narrow_table_has_a_panel_for_each_column_and_a_wide_one_shows_its_average(lab):
    both = draw(run_recipe(cut(load_recipes()["table-6"], 2), lab, seeds=[1]))
    assert [axes.get_xlabel() for axes in both.axes] == ["Unsup.", "Sup."]
    labels = [text.get_text() for text in both.axes[0].get_yticklabels()]
    assert labels == ["[CLS] w/ MLP", "[CLS] w/ MLP (train)"]
    assert both.axes[0].yaxis_inverted(), "the first row stands above"
    wide = draw(run_recipe(cut(load_recipes()["table-c1"], 2), lab, seeds=[1]))
    assert [axes.get_xlabel() for axes in wide.axes] == ["Avg."]


@pytest.mark.filterwarnings("error")  # matplotlib warns where labels leave a panel no room
def test_every_table_leaves_its_dots_room_beside_the_labels():
    recipes = load_recipes()
    for recipe in (recipes[name] for name in recipes):
        if recipe.figure != "dots":
            continue
        rows = [
            RowOutcome(row=row, cells={c: Cell(ours=(50.0 + place,), paper=60.0) for c in recipe.columns})
            for place, row in enumerate(recipe.rows)
        ]
        outcome = Outcome(recipe=recipe, scale="small", encoder="one", seeds=(1,), rows=rows, facts={})
        with themed(LIGHT):
            figure = draw(outcome)
            figure.draw_without_rendering()
        for panel in figure.axes:
            inches = panel.get_position().width * figure.get_figwidth()
            assert inches > 0.8, f"{recipe.name}: {inches:.2f}"


def test_cosines_by_gold_score_are_grouped_as_analyze_groups_them(lab):
    lab = Lab(**{**vars_of(lab), "scale": dataclasses.replace(SMOKE, evaluated_rows=None)})
    outcome = run_recipe(cut(load_recipes()["figure-g1"], 1), lab, seeds=[1])
    found = next(iter(outcome.rows[0].more.values()))[0]
    cosines, gold = np.array(found["cosines"]), np.array(found["gold"])
    for place in range(5):
        inside = (gold > place) & (gold <= place + 1) if place else gold <= 1
        median = outcome.rows[0].cells[f"group{place}"].mean
        assert median == pytest.approx(np.median(cosines[inside]))
    assert [axes.get_title(loc="left") for axes in draw(outcome).axes] == ["Avg. BERT"]


def cut(recipe, rows):
    """The first rows of a recipe."""
    return dataclasses.replace(recipe, rows=recipe.rows[:rows])


def draw(outcome):
    return draw_outcome(outcome).draw(LIGHT)


def test_numbers_are_written_as_tables_have_them():
    assert number(82.456) == "82.46" and number(None) == "-" and number(3e-5) == "3e-05"
    assert number(-1.5, sign=True) == "-1.50" and number(0.0) == "0.00"
    assert Cell(ours=(1.0, 3.0)).deviation == pytest.approx(math.sqrt(2))
    assert ours(Cell(ours=(1.0, 3.0))) == "2.00 ± 1.41" and ours(Cell(ours=(0.9, 0.9001))) == "0.90 ± 0.00"
    assert ours(Cell(ours=(1e-5, 3e-5))) == "2e-05 ± 1e-05" and ours(Cell(ours=(64.0,))) == "64.00"


def test_notes_name_protocol_scale_and_seeds(lab):
    outcome = outcome_of(lab)
    assert outcome.notes()[0].startswith("STS-B dev; scale smoke, encoder ")
    assert not any("tau" in note for note in outcome.notes()), "two steps order nothing"
    assert outcome.agreement("stsb") is None and outcome.to_dict()["ordering"] == {}


@pytest.mark.parametrize("name", ["table-3", "table-8", "table-a1"])
def test_every_table_of_a_smoke_test_says_so_first_in_every_form(lab, name):
    """Whatever is copied from such a report, the sentence goes with it."""
    recipe = cut(load_recipes()[name], 1)
    outcome = run_recipe(recipe, lab, seeds=[1])
    assert all("a check of the machinery, not a result" in grid.title for grid in outcome.grids())
    assert len(outcome.grids()) == (1 if name == "table-3" else 2)
    *_, latex = write_report(
        dataclasses.replace(outcome, recipe=dataclasses.replace(recipe, figure="none")), lab.reports
    )
    tables = latex.read_text().split("\\begin{table}")[1:]
    assert all("a check of the machinery" in table.splitlines()[1] for table in tables) and tables
    written = json.loads(latex.with_suffix(".json").read_text())
    assert list(written)[:3] == ["recipe", "title", "about"] and written["about"].startswith("a check of the machinery")
    if name == "table-8":
        notes = " ".join(outcome.notes())
        assert "captions (the paper: 150,000)" in notes
        assert "they have: SBERT-base 0 of 6" in notes and "put in first" not in notes, "generated captions"
        titles = ("model", "query", "#", "cosine", "ours", "paper")
        assert tuple(outcome.grids()[1].columns) == titles and len(outcome.grids()[1].rows) == 6
    if name == "table-a1":
        assert [row[0] for row in outcome.grids()[1].rows] == [f"batch {size}" for size in (64, 128, 256, 512)]
        assert list(outcome.grids()[1].columns) == ["", "rate 1e-05", "rate 3e-05", "rate 5e-05"]


def test_a_smaller_corpus_is_the_same_every_time(smoke_data, tmp_path):
    data, _ = smoke_data
    first, second = (Corpora(data, tmp_path / name, rows=50).prepare("wiki") for name in "ab")
    assert first.read_bytes() == second.read_bytes() and len(first.read_text().splitlines()) == 50
    whole = (data / "wiki.txt").read_text().splitlines()
    documents = Corpora(data, tmp_path / "c", rows=50).prepare("wiki-documents")
    assert documents.read_text().splitlines() == whole[:50]


def test_documents_stay_apart_in_a_prepared_corpus(tmp_path):
    (tmp_path / "wiki.txt").write_text("a one\na two\n\nb one\nb two\nb three\n")
    corpora = Corpora(tmp_path, tmp_path / "prepared", rows=4)
    assert corpora.prepare("wiki-documents").read_text() == "a one\na two\n\nb one\nb two\n"
    lines = corpora.prepare("wiki").read_text().splitlines()
    assert len(lines) == 4 and all(lines)


def test_the_authors_own_triplets_are_taken_where_they_are(smoke_data, tmp_path):
    data, _ = smoke_data
    shutil.copytree(data, tmp_path / "data")
    made = Corpora(tmp_path / "data", tmp_path / "one", rows=None).prepare("nli-triplets").read_text()
    (tmp_path / "data" / "nli_for_simcse.csv").write_text("sent0,sent1,hard_neg\na,b,c\nd,e,f\n")
    released = Corpora(tmp_path / "data", tmp_path / "two", rows=None)
    found = [json.loads(line) for line in released.prepare("nli-triplets").read_text().splitlines()]
    assert [list(row.values()) for row in found] == [["a", "b", "c"], ["d", "e", "f"]] and len(made) > 100


def test_a_row_and_its_reference_share_their_triplets(smoke_data, tmp_path):
    """Table 7's neutral negatives and Table 4's ANLI change one thing each, whether triplets are released or made."""
    data, _ = smoke_data
    shutil.copytree(data, tmp_path / "data")
    sentence = (data / "wiki.txt").read_text().splitlines()[0]
    anli = [{"context": "x y", "hypothesis": h, "label": label} for h, label in (("x", "e"), ("z", "c"))]
    (tmp_path / "data" / "anli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in anli))
    # The released premise has another space than raw NLI, and one premise is not in the NLI text.
    released = f"sent0,sent1,hard_neg\n{sentence} .,follows,contradicts\nno such premise,e,f\n"
    for present in (False, True):
        if present:
            (tmp_path / "data" / "nli_for_simcse.csv").write_text(released)
        corpora = Corpora(tmp_path / "data", tmp_path / f"made-{present}", rows=None)
        base, both, more = (
            [tuple(json.loads(line).values()) for line in corpora.prepare(name).read_text().splitlines()]
            for name in ("nli-triplets", "nli-triplets-both", "nli-triplets-anli")
        )
        assert [row[:2] for row in both] == [row[:2] for row in base]
        assert more == [*base, ("x y", "x", "z")]
    assert both[1] == ("no such premise", "e", "f")
    assert both[0][2] in (f"{sentence} near water", f"nobody {sentence}")
    skipped = corpora.facts("nli-triplets-both")["skipped"]
    assert skipped == {"premise not in the NLI text: kept with its own contradiction": 1}


def test_triplets_of_another_text_than_the_nli_text_are_refused(smoke_data, tmp_path):
    """Each row would keep its contradiction, and the table would compare a row with itself."""
    data, _ = smoke_data
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "nli_for_simcse.csv").write_text("sent0,sent1,hard_neg\na,b,c\nd,e,f\n")
    corpora = Corpora(tmp_path / "data", tmp_path / "made", rows=None)
    for name in ("nli-triplets-both", "nli-triplets-all"):
        with pytest.raises(InputError, match=r"of 2 triplets of nli_for_simcse.csv, the premises of 2 are not in"):
            corpora.prepare(name)


def test_a_sample_with_anli_takes_the_reference_rows(smoke_data, tmp_path):
    """A smaller sample has the same share of both texts, and of the first one only rows of the reference."""
    data, _ = smoke_data
    shutil.copytree(data, tmp_path / "data")
    anli = [
        {"context": f"context {n}", "hypothesis": f"{label} {n}", "label": label} for n in range(100) for label in "ec"
    ]
    (tmp_path / "data" / "anli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in anli))

    def rows(name, count):
        corpora = Corpora(tmp_path / "data", tmp_path / f"made-{count}", rows=count)
        return [tuple(json.loads(line).values()) for line in corpora.prepare(name).read_text().splitlines()]

    whole, cut = rows("nli-triplets", None), rows("nli-triplets-anli", 60)
    of_base = [row for row in cut if not row[0].startswith("context")]
    assert len(cut) == 60 and len(of_base) == round(60 * len(whole) / (len(whole) + 100)) > 5
    assert set(of_base) <= set(rows("nli-triplets", 60)) and len(rows("nli-triplets-anli", None)) == len(whole) + 100


def test_a_target_layer_is_fitted_to_every_split(lab, monkeypatch):
    """The protocol: all the task's sentences, though only the test split is scored."""
    seen, fit = [], Fitted.open

    def watch(self, lab, seed, *, texts=()):
        seen.append(len(texts))
        return fit(self, lab, seed, texts=texts)

    monkeypatch.setattr(Fitted, "open", watch)
    MEASURES["sts"](lab, Fitted(of=Raw(pooler="avg"), layer="whitening", on="target"), 1)
    scored = {job.name: len(job.texts) for job in lab.jobs("sts")}
    every = {job.name: len(job.texts) for job in lab.jobs("sts", regressor=True)}
    assert seen == list(every.values())
    assert {name for name in every if every[name] > scored[name]} == {"STS-B", "SICK-R"}


def test_a_sample_is_cut_where_it_is_smaller_than_the_corpus(smoke_data, tmp_path):
    data, _ = smoke_data
    corpora = Corpora(data, tmp_path / "whole", rows=None)
    assert len(corpora.prepare("nli-all", most=50).read_text().splitlines()) == 50
    assert len(corpora.prepare("nli-all").read_text().splitlines()) > 50
    smaller = Corpora(data, tmp_path / "smaller", rows=40)
    assert smaller.prepare("nli-all", most=50) == smaller.prepare("nli-all")


def test_another_scale_or_data_folder_finds_no_rows_of_this_one(lab, tmp_path):
    """One output folder serves all scales, and a smoke test's rows are nobody else's."""
    text = lab.corpora.prepare("wiki").read_text()
    small = Lab(**{**vars_of(lab), "scale": SMALL})
    assert len(small.corpora.prepare("wiki").read_text()) > len(text)
    elsewhere = make_data(tmp_path / "elsewhere")
    (elsewhere / "wiki.txt").write_text("another text\n")
    other = Lab(**{**vars_of(lab), "data": elsewhere})
    assert other.corpora.prepare("wiki").read_text() == "another text\n"


def test_a_model_may_be_judged_under_another_pooler(lab):
    trained = Baseline(baseline="sbert", corpus="nli-labelled")
    pooled = Pooled(of=trained, pooler="avg_first_last")
    assert pooled.key(lab, 1) != trained.key(lab, 1) and pooled.is_random
    own, other = (subject.open(lab, 1).encode(["the cat sits"]) for subject in (trained, pooled))
    assert own.shape == other.shape and abs(own - other).max() > 1e-3


def test_a_run_that_cannot_go_on_leaves_its_row_out_and_a_full_disk_ends_all(lab, monkeypatch):
    recipe = load_recipes()["table-7"]

    def fail(error):
        def measure(lab, subject, seed):
            raise error

        return measure

    monkeypatch.setitem(MEASURES, "stsb-dev", fail(TrainingError("not a number")))
    found = run_recipe(recipe, lab, seeds=[1])
    assert {row.note for row in found.rows} == {"not a number"}
    monkeypatch.setitem(MEASURES, "stsb-dev", fail(OutputError("disk full")))
    with pytest.raises(OutputError, match="disk full"):
        run_recipe(recipe, lab, seeds=[1])


def test_missing_text_is_asked_for_by_name(tmp_path):
    with pytest.raises(Missing, match="wiki1m_for_simcse"):
        Corpora(tmp_path, tmp_path / "prepared", rows=None).prepare("wiki")


def test_small_wants_an_encoder(smoke_data, tmp_path):
    lab = Lab(scale=SMALL, data=smoke_data[0], output=tmp_path)
    with pytest.raises(ConfigError, match="--encoder"):
        unsupervised().key(lab, 1)


def test_a_store_keeps_scores_under_their_keys(tmp_path):
    store = Store(tmp_path)
    assert store.read_score("k") is None
    store.write_score("k", {"values": {"a": 1.0}})
    assert store.read_score("k") == {"values": {"a": 1.0}}
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}) != key_of({"a": 2, "b": 1})


@pytest.mark.parametrize("option", ["seeds", "steps"])
def test_nothing_to_do_is_refused(option, tmp_path):
    with pytest.raises(ConfigError, match=f"{option} is 0; expected at least"):
        reproduce("table-3", scale="smoke", output=tmp_path / "lab", **{option: 0})


def test_every_teacher_is_part_of_the_cost():
    recipe = load_recipes()["after-simcse"]
    assert estimate(recipe, PAPER).trainings == 7, "six methods, and RankCSE's teacher of BERT-large"
    assert estimate(recipe, SMALL).trainings == 6


def test_in_python_it_is_one_call(tmp_path, monkeypatch):
    """As the verb: generated data at smoke, reports on disk, and a result that prints and converts."""
    monkeypatch.setitem(MEASURES, "retrieval", lambda *_: Found({"shared": 4.0}, {}))
    seen, moved = [], []

    @contextmanager
    def progress(what, *, total=None):
        yield lambda count: moved.append((what, count, total))

    found = reproduce("table-8", scale="smoke", output=tmp_path / "lab", progress=progress, on_outcome=seen.append)
    assert seen == [found["table-8"]] and moved == [("rows of table-8", 1, 2)] * 2
    assert (tmp_path / "lab" / "reports" / "smoke-tiny-encoder" / "table-8.tex").is_file()
    assert "Supervised SimCSE-BERT-base" in repr(found) and "<td" in found._repr_html_()
    record = {"recipe": "table-8", "row": "sbert", "label": "SBERT-base", "column": "shared"}
    assert found.records()[0] == record | {"mean": 4.0, "deviation": None, "paper": None, "difference": None}
    assert found.to_dict()["recipes"][0]["rows"][1]["cells"]["shared"]["ours"] == [4.0]
    with pytest.raises(ConfigError, match="no table or figure was named"):
        reproduce(output=tmp_path)


def test_the_list_has_the_cost_of_every_recipe():
    listing = list_recipes("paper")
    assert len(listing.records()) == 23 and "depends on the GPU" in repr(listing)
    assert listing.to_dict()["recipes"][2] == {"name": "table-3", "title": "Dropout rates", "rows": 8} | {
        "trainings": 8,
        "passes": 16_000_000,
        "hours": None,
    }


@pytest.mark.parametrize(
    ("key", "corpus", "paper"),
    [("overlap-nli", "nli-entailment", 39.0), ("overlap-qqp", "qqp", 60.0), ("overlap-paranmt", "paranmt", 55.0)],
)
def test_lexical_overlap_of_pairs_is_a_row_without_a_model(lab, key, corpus, paper):
    """Section 4's figures, of generated text."""
    recipe = load_recipes()["in-text"]
    rows = tuple(row for row in recipe.rows if row.key == key)
    (row,) = run_recipe(dataclasses.replace(recipe, rows=rows), lab, seeds=[1]).rows
    pairs = [json.loads(line) for line in lab.corpora.prepare(corpus).read_text().splitlines()]
    f1 = [naive_f1(*pair.values()) for pair in pairs]
    assert row.cells["overlap"].ours == (pytest.approx(100 * sum(f1) / len(f1)),)
    assert row.cells["overlap"].paper == paper


def naive_f1(left, right):
    """F1 between bags of words."""
    left, right = left.split(), right.split()
    common = sum(min(left.count(word), right.count(word)) for word in set(left))
    return 2 * common / (len(left) + len(right))


def test_a_run_that_is_evaluated_as_it_trains_keeps_its_dev_curve(lab):
    often = Lab(**{**vars_of(lab), "scale": dataclasses.replace(SMOKE, evaluations=2)})
    more = MEASURES["stsb-dev"](often, unsupervised(), 1).more
    assert [step for step, _ in more["curve"]] == [0, 1, 2]
    assert more["score"] == pytest.approx(max(score for step, score in more["curve"] if step))
    assert "curve" not in MEASURES["stsb-dev"](lab, unsupervised(), 1).more


def test_rankcses_teacher_is_trained_first_and_shared_with_its_own_row(lab):
    recipe = load_recipes()["after-simcse"]
    rows = [dataclasses.replace(row, paper=()) for row in recipe.rows if row.key in ("diffcse", "rankcse")]
    quick = dataclasses.replace(recipe, rows=tuple(rows), measure="stsb-dev", columns={"stsb": "STS-B"})
    outcome = run_recipe(quick, lab, seeds=[1])
    ranked = rows[1].models[ALL]
    assert [len(ranked.teachers(scale)) for scale in (PAPER, SMOKE)] == [2, 1]
    run = Run.read(Path(ranked.source(lab, 1)) / "run.json")
    assert run.teacher == rows[0].models[ALL].source(lab, 1) and run.method == "rankcse"
    assert all(math.isfinite(row.cells["stsb"].mean) for row in outcome.rows)


def test_figure_2_follows_what_track_says(lab, tmp_path):
    """All of STS-B is another run than its dev set alone, and has a report of its own."""
    recipe = cut(load_recipes()["figure-2"], 1)
    dev = Lab(**{**vars_of(lab), "scale": SMOKE.tracking("dev")})
    every = lab
    found = [run_recipe(recipe, each, seeds=[1]) for each in (dev, every)]
    paths = [outcome.rows[0].more[ALL][0]["path"] for outcome in found]
    assert paths[0] != paths[1]
    assert "followed on STS-B dev alone" in str(found[0]) and "dev alone" not in str(found[1])
    captions = [draw_outcome(outcome).caption for outcome in found]
    assert "of STS-B dev's vectors" in captions[0] and "of STS-B's vectors" in captions[1]
    assert all(
        caption.endswith("1 seed. A check of the machinery, not a result; no ordering is claimed.")
        for caption in captions
    )
    assert dev.reports.name == every.reports.name.replace("smoke", "smoke-track-dev")
    model = recipe.rows[0].models[ALL]
    before = [model.key(each, 1) for each in (dev, every)]
    shutil.copytree(dev.data, tmp_path / "data")
    with (tmp_path / "data" / "senteval" / "STS" / "STSBenchmark" / "sts-test.csv").open("a") as stream:
        stream.write("g\tf\t2012\t1\t5.0\tanother pair\tone more pair\n")
    after = [model.key(dataclasses.replace(each, data=tmp_path / "data"), 1) for each in (dev, every)]
    assert before[0] == after[0] and before[1] != after[1], "another test split is another path"
    with pytest.raises(ConfigError, match="all or dev, got 'train'"):
        reproduce("figure-2", scale="smoke", track="train", output=tmp_path / "x")


def settings_of(monkeypatch, score):
    """Let each setting of a search score what a function of batch size, learning rate and seed says."""
    tried = []

    def measure(lab, model, seed):
        setting = (model.run.batch_size, model.run.learning_rate, seed)
        found = Found({"stsb": score(*setting)})
        tried.append(setting)
        return found

    monkeypatch.setitem(MEASURES, "stsb-dev", measure)
    return tried


def search(lab, seeds):
    (row,) = run_recipe(cut(load_recipes()["table-a1"], 1), lab, seeds=seeds).rows
    return row


def test_processes_share_a_search_by_setting_and_by_seed(lab, monkeypatch):
    """What another process trains is waited for only when nothing else is left: of this seed and of the next ones."""
    others, order = {(64, 1e-5, 1), (512, 5e-5, 2)}, []

    def score(batch, rate, seed):
        order.append(((batch, rate, seed), lab.store.waits))
        if (batch, rate, seed) in others and not lab.store.waits:
            raise Busy("another process")
        return batch + rate

    tried = settings_of(monkeypatch, score)
    row = search(lab, [1, 2])
    assert len({*tried}) == 24 and row.cells["batch_size"].ours == (512.0,)
    waited = [setting for setting, waits in order if waits]
    assert set(waited) == others and order.index(((64, 1e-5, 1), True)) > order.index(((512, 3e-5, 2), False))
    assert len(tried) == 24, "what is measured is not measured again for the settings that came last"


def test_a_setting_that_diverges_has_no_score_and_one_too_large_for_the_memory_is_tried_again(lab, monkeypatch):
    failing = {(128, 3e-5, 1): TrainingError("the loss is nan at step 3"), (512, 1e-5, 1): OutOfMemory("too little")}

    def score(*setting):
        if setting in failing:
            raise failing[setting]
        return sum(setting)

    tried = settings_of(monkeypatch, score)
    grid = search(lab, [1]).more[ALL][0]["grid"]
    assert len(grid) == 12 and [cell["stsb"] for cell in grid].count(None) == 2
    notes = run_recipe(cut(load_recipes()["table-a1"], 1), lab, seeds=[1]).notes()
    assert "Unsup. BERT base: no score of batch 128, rate 3e-05 (1 seed): the loss is nan at step 3" in notes
    assert "Unsup. BERT base: no score of batch 512, rate 1e-05 (1 seed): too little" in notes
    del failing[512, 1e-5, 1]
    tried.clear()
    grid = search(lab, [1]).more[ALL][0]["grid"]
    assert [cell["stsb"] for cell in grid].count(None) == 1 and (512, 1e-5, 1) in tried
    tried.clear()
    assert search(lab, [1]).more[ALL][0]["grid"] == grid and not tried, "divergence is a result, which is kept"


def test_a_search_is_drawn_with_a_line_for_each_batch_size(lab, monkeypatch):
    def score(batch, rate, seed):
        if batch == 512:
            raise TrainingError("the loss is nan")
        return batch + 1e6 * rate + seed

    settings_of(monkeypatch, score)
    (panel,) = draw(run_recipe(cut(load_recipes()["table-a1"], 1), lab, seeds=[1, 3])).axes
    assert panel.get_title(loc="left") == "Unsup. BERT base"
    drawn = {each.get_label(): [*each[0].get_ydata()] for each in panel.containers}
    assert drawn["batch 64"] == pytest.approx([76, 96, 116]) and drawn["batch 512"] == []
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1e-05", "3e-05", "5e-05"]
    assert panel.get_xlabel() == "learning rate"


def test_no_setting_is_best_where_all_failed(lab, monkeypatch):
    def score(*setting):
        raise TrainingError("the loss is nan")

    settings_of(monkeypatch, score)
    row = search(lab, [1, 2])
    assert all(not cell.ours for cell in searched(row).values())
    outcome = run_recipe(cut(load_recipes()["table-a1"], 1), lab, seeds=[1, 2])
    assert not outcome.is_measured and draw_outcome(outcome) is None, "an earlier report is not overwritten"
    assert math.isnan(row.cells["batch_size"].mean) and number(row.cells["batch_size"].mean) == "-"


def test_a_row_goes_on_with_the_seeds_that_no_other_process_trains(lab, monkeypatch):
    done = []

    def measure(lab, model, seed):
        if seed == 1 and not lab.store.waits:
            raise Busy("another process")
        done.append((model.run.hard_negative_weight, seed))
        return Found({"stsb": 1.0})

    monkeypatch.setitem(MEASURES, "stsb-dev", measure)
    recipe = load_recipes()["table-7"]
    pair = dataclasses.replace(recipe, rows=recipe.rows[1:3])
    outcome = run_recipe(pair, lab, seeds=[1, 2])
    assert done == [(0.5, 2), (1.0, 2), (0.5, 1), (1.0, 1)] and lab.store.waits
    assert [row.cells["stsb"].ours for row in outcome.rows] == [(1.0, 1.0)] * 2


def test_a_table_whose_last_rows_another_process_works_on_comes_after_the_next_table(lab, monkeypatch):
    tried, order = [], []

    def measure(lab, model, seed):
        name = model.run.hard_negative_weight, model.corpus
        tried.append(name)
        if name == (2.0, "nli-triplets") and not lab.store.waits:
            raise Busy("another process")
        if name == (0.5, "nli-triplets"):  # a failure is not tried again in the second turn
            raise TrainingError("the loss is nan")
        return Found({"stsb": 1.0})

    monkeypatch.setitem(MEASURES, "stsb-dev", measure)
    found = reproduce(
        "table-7",
        "table-3",
        scale="smoke",
        data=lab.data,
        encoder=lab.encoder,
        output=lab.output,
        device="cpu",
        on_outcome=lambda outcome: order.append(outcome.recipe.name),
    )
    assert order == ["table-3", "table-7"] and [each.recipe.name for each in found.outcomes] == ["table-7", "table-3"]
    assert tried.count((0.5, "nli-triplets")) == 1 and tried.count((1.0, "nli-triplets-both")) == 1
    assert tried[-1] == (2.0, "nli-triplets")
    assert [bool(row.cells["stsb"].ours) for row in found["table-7"].rows] == [True, False, True, True, True]


def test_a_report_says_of_which_seed_a_figure_is_and_names_no_seeds_where_nothing_is_random(lab):
    several = run_recipe(cut(load_recipes()["figure-g1"], 1), lab, seeds=[1, 2]).notes()
    assert not any("of seed" in note or "seeds" in note for note in several), "Avg. BERT is not trained"
    trained = dataclasses.replace(load_recipes()["figure-g1"], rows=(one_model("u", "u", unsupervised()),))
    notes = run_recipe(trained, lab, seeds=[1, 2]).notes()
    assert "2 seeds (1, 2)" in notes[0] and "the figure is that of seed 1" in notes


def test_counts_and_rates_are_printed_as_such_and_equal_notes_once(lab):
    cells = {"batch_size": Cell(ours=(512.0,), paper=64), "learning_rate": Cell(ours=(3e-5,), paper=1e-5)}
    rows = load_recipes()["table-a1"].rows[:3]
    none = {"batch_size": Cell(paper=64), "learning_rate": Cell(paper=1e-5)}
    outcome = Outcome(
        recipe=load_recipes()["table-a1"],
        scale="small",
        encoder=None,
        seeds=(1,),
        rows=[RowOutcome(row=rows[0], cells=cells), *(RowOutcome(row=row, cells=none, note="why") for row in rows[1:])],
        facts={},
    )
    assert [*outcome.grids()[0].rows[0]] == ["Unsup. BERT base", "512", "64", "3e-05", "1e-05"]
    assert outcome.agreement("batch_size") is None, "settings rank nothing"
    assert "Unsup. BERT large, Unsup. RoBERTa base: why" in outcome.notes()

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
from tests.tiny import make_checkpoint

from twinpass.encoder.any_model import Model
from twinpass.encoder.encoder import Encoder
from twinpass.encoder.vector_cache import Cache
from twinpass.errors import ConfigError, InputError, ModelError, OutputError
from twinpass.evaluation.compare import compare
from twinpass.evaluation.evaluate import Settings, evaluate, make_jobs, split_names, task_texts
from twinpass.evaluation.tasks import GROUPS, TASKS
from twinpass.recipes.smoke_data import write_task

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")


def test_seven_tasks_and_their_average(results):
    assert [task.task for task in results.tasks] == list(GROUPS["sts"])
    first = results.averages[0]
    assert first.protocol == "all, spearman, no regressor"
    rounded = [round(task.scores[0].value, 2) for task in results.tasks]
    assert first.value == pytest.approx(sum(rounded) / 7)
    assert first.low < first.value < first.high and len(results.averages) == 6
    for task in results.tasks:
        assert (task.scores[0].over, task.scores[0].metric) == ("all", "spearman")
        assert task.scores[0].low < task.scores[0].value < task.scores[0].high


def test_every_text_is_encoded_once(folder, tmp_path, letter_model):
    asked = []

    def encode(texts):
        asked.extend(texts)
        return letter_model.encode(texts)

    cache = Cache(tmp_path / "c.sqlite")
    for _ in range(2):
        evaluate(Model("m", encode, "p"), "STS13,SICK-R", data=folder, resamples=100, cache=cache)
    assert len(asked) == len(set(asked))


def test_a_name_an_encoder_and_its_function_are_scored_alike(tmp_path):
    bare = make_checkpoint(tmp_path / "bare")
    encoder = Encoder.load(bare, pooler="avg", device="cpu")
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\na cat\tthe cat\t5\na dog\tred street\t1\nold man\tyoung man\t3\n")
    options = {"tasks": [f"scored:{path}"], "resamples": 100, "cache": False}
    by_object = evaluate(encoder, **options)
    by_name = evaluate(str(bare), pooler="avg", device="cpu", **options)
    by_function = evaluate(encoder.encode, **options)
    assert by_object.fingerprint == by_name.fingerprint and by_function.fingerprint is None
    values = [[score.value for score in found.tasks[0].scores] for found in (by_object, by_name, by_function)]
    assert values[0] == values[1] == values[2]
    assert by_name.to_dict()["options"]["pooler"] == "avg"


def test_the_document_is_json_and_tells_what_each_score_is(results, folder):
    document = json.loads(json.dumps(results.to_dict(), allow_nan=False))
    assert document["confidence"] == {"level": 0.95, "resamples": 100, "seed": 1}
    assert document["options"]["data"] == str(folder) and document["versions"]["numpy"] and document["finished"]
    task = document["tasks"][0]
    assert {"metric", "over", "protocol", "value", "low", "high", "n"} == set(task["scores"][0])
    assert all(len(digest) == 64 for digest in task["files"].values())
    assert "Gao et al., 2021 (SimCSE)" in document["cells"]["all, spearman, no regressor"]


def test_every_score_is_a_row(results):
    rows = list(csv.DictReader(io.StringIO(results.to_csv())))
    assert float(rows[0]["value"]) == results.tasks[0].scores[0].value
    assert rows[-1]["task"] == "Avg."
    assert len(rows) == len(results.records()) == sum(len(task.scores) for task in results.tasks) + 6


@pytest.mark.parametrize(("suffix", "form"), [("json", "json"), ("csv", "csv"), ("md", "markdown"), ("tex", "latex")])
def test_results_are_written_in_the_form_their_name_says(results, tmp_path, suffix, form):
    path = tmp_path / f"out.{suffix}"
    results.save(path)
    assert path.read_text(encoding="utf-8") == results.to_text(form) + "\n"


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_encoded(tmp_path):
    def encode(texts):
        raise AssertionError("nothing should be encoded")

    with pytest.raises(OutputError, match="expected a name that ends in"):
        evaluate(encode, "docs-pairs:rich", output=tmp_path / "out.docx")
    with pytest.raises(ConfigError, match="--beside expects 'paper', got 'mine'"):
        evaluate(encode, "docs-pairs:rich", beside="mine")
    with pytest.raises(ConfigError, match=r"no option named 'resample'\. Did you mean 'resamples'"):
        evaluate(encode, "docs-pairs:rich", resample=100)


def test_packages_without_held_out_pairs_are_explained():
    with pytest.raises(InputError, match="docs-pairs:json: no pairs of these packages are held out"):
        evaluate(lambda texts: np.ones((len(texts), 2)), "docs-pairs:json")


def test_constant_vectors_are_explained(folder):
    constant = Model("constant", lambda texts: np.ones((len(texts), 3), dtype=np.float32))
    found = evaluate(constant, "STS-B", data=folder, resamples=100)
    assert np.isnan(found.tasks[0].scores[0].value)
    assert "nothing to correlate" in found.tasks[0].notes[0]
    assert "| constant | - |" in found.to_text("markdown")


def test_names_are_split_and_wrong_settings_explained(folder):
    assert split_names("sts, docs-pairs:numpy,scipy,MR,scored:a.tsv") == [
        "sts",
        "docs-pairs:numpy,scipy",
        "MR",
        "scored:a.tsv",
    ]
    with pytest.raises(ConfigError, match="needs data"):
        make_jobs("sts", Settings())
    with pytest.raises(ConfigError, match="no split 'middle'"):
        make_jobs("STS-B", Settings(data=folder, split="middle"))
    with pytest.raises(ConfigError, match="no task named"):
        make_jobs("", Settings(data=folder))


@pytest.mark.parametrize(("at_most", "kept"), [(1000, 1000), (400, 400), (1379, 1379), (5000, 1379)])
def test_at_most_so_many_rows_are_scored_evenly_spread(folder, at_most, kept):
    (whole,), (job,) = (make_jobs("STS-B", Settings(data=folder, max_rows=n)) for n in (None, at_most))
    pairs, every = (list(zip(j.texts[::2], j.texts[1::2], strict=True)) for j in (job, whole))
    assert len(pairs) == kept
    places = [every.index(pair) for pair in pairs]  # the first place of a pair that occurs twice
    assert pairs[0] == every[0] and max(places) > len(every) - 2 * len(every) / kept - 2


def test_the_texts_of_tasks_can_be_encoded_elsewhere(folder, tmp_path):
    texts = task_texts("STS13,STS-B", data=folder, output=tmp_path / "texts.txt")
    assert len(texts) == len(set(texts)) and "" not in texts
    assert (tmp_path / "texts.txt").read_text(encoding="utf-8").splitlines() == texts
    jobs = make_jobs(["STS13", "STS-B"], Settings(data=folder))
    assert set(texts) == {text for job in jobs for text in job.texts} - {""}


def test_transfer_shows_test_and_dev_apart(tmp_path, letter_model):
    write_task(TASKS["MRPC"], tmp_path)
    found = evaluate(letter_model, "MRPC", data=tmp_path, protocol="fast", resamples=100, beside="paper")
    (task,) = found.tasks
    assert [(s.metric, s.over) for s in task.scores] == [("accuracy", "test"), ("f1", "test"), ("accuracy", "dev")]
    assert all(s.protocol == "fast" for s in task.scores) and "L2 chosen on dev" in task.notes[0]
    assert task.scores[0].low <= task.scores[0].value <= task.scores[0].high and task.scores[0].n == 1725
    markdown = found.to_text("markdown")
    assert "letters, test" in markdown and "letters, dev" in markdown and "MRPC: test F1" in markdown
    assert "Skip-thought, unsupervised [Table E.1] | 73.00 |" in markdown


def test_without_resamples_there_are_scores_and_no_intervals(folder, letter_model):
    found = evaluate(letter_model, "sts", data=folder, resamples=0, cache=False)
    assert len(found.tasks) == 7 and found.averages
    for score in [*found.averages, *(score for task in found.tasks for score in task.scores)]:
        assert np.isfinite(score.value) and np.isnan(score.low) and np.isnan(score.high)
    assert json.loads(found.to_text("json"))["tasks"][0]["scores"][0]["low"] is None and found.to_text()
    with pytest.raises(ConfigError, match=r"resamples is -1; expected 0 \(no intervals\) or more"):
        evaluate(letter_model, "sts", data=folder, resamples=-1)
    with pytest.raises(ConfigError, match="a comparison needs at least 1"):
        compare(found, found, resamples=0)


def test_a_model_that_returns_nan_is_refused_by_name(folder):
    def broken(texts):
        return np.array([[np.nan if text == texts[3] else 1.0, 2.0] for text in texts], dtype=np.float32)

    with pytest.raises(ModelError, match=r"broken returned NaN or infinity for 1 of .* \(text 3, counted from 0\)"):
        evaluate(broken, "STS-B", data=folder, cache=False)


def test_scores_of_another_precision_than_fp32_are_labelled(folder, letter_model, tmp_path):
    int8 = dataclasses.replace(letter_model, computing={"precision": "int8", "runtime": "openvino"})
    found = evaluate(int8, "STS-B", data=folder, resamples=0, cache=False, output=tmp_path / "int8.json")
    document = json.loads((tmp_path / "int8.json").read_text())
    assert (document["model"]["name"], document["model"]["precision"]) == (letter_model.name, "int8")
    assert (document["options"]["precision"], document["options"]["runtime"]) == ("int8", "openvino")
    assert f"| {letter_model.name} (int8) |" in found.to_text("markdown")
    assert {record["model"] for record in found.records()} == {f"{letter_model.name} (int8)"}
    plain = evaluate(letter_model, "STS-B", data=folder, resamples=0, cache=False)
    assert "(fp32)" not in plain.to_text() and plain.records()[0]["model"] == letter_model.name
    both = compare(tmp_path / "int8.json", plain, resamples=100)
    assert both.first.startswith(f"{letter_model.name} (int8)") and both.second == letter_model.name

import csv
import io
import json

import numpy as np
import pytest

from twinpass.encoder.any_model import Model
from twinpass.encoder.vector_cache import Cache
from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.compare import SAME, compare, judged, read_judged
from twinpass.evaluation.evaluate import evaluate, make_jobs, split_names
from twinpass.evaluation.grids import make_grids
from twinpass.evaluation.jobs import Settings
from twinpass.evaluation.report import to_csv, to_latex, to_markdown
from twinpass.evaluation.results import to_document
from twinpass.evaluation.tasks import GROUPS, TASKS
from twinpass.recipes.smoke_data import write_task

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")


def letters(texts):
    return np.array([[text.count(c) for c in "abcdeghilmnorstuwy"] for text in texts], dtype=np.float32)


def noisy(texts):
    rng = np.random.default_rng(0)
    return letters(texts) + rng.normal(size=(len(texts), 18)).astype(np.float32) * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("senteval")
    for name in GROUPS["sts"]:
        write_task(TASKS[name], root)
    return root


@pytest.fixture(scope="module")
def results(folder):
    settings = Settings(data=folder, resamples=100, seed=1)
    return evaluate(Model("letters", letters), "sts", settings=settings)


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


def test_every_text_is_encoded_once(folder, tmp_path):
    asked = []

    def encode(texts):
        asked.extend(texts)
        return letters(texts)

    cache = Cache(tmp_path / "c.sqlite")
    for _ in range(2):
        evaluate(Model("m", encode, "p"), "STS13,SICK-R", settings=Settings(data=folder, resamples=100), cache=cache)
    assert len(asked) == len(set(asked))


def test_the_document_is_json_and_tells_what_each_score_is(results):
    document = json.loads(json.dumps(to_document(results)))
    assert document["confidence"] == {"level": 0.95, "resamples": 100, "seed": 1}
    task = document["tasks"][0]
    assert {"metric", "over", "protocol", "value", "low", "high", "n"} == set(task["scores"][0])
    assert all(len(digest) == 64 for digest in task["files"].values())
    assert "Gao et al., 2021 (SimCSE)" in document["cells"]["all, spearman, no regressor"]


def test_tables_in_every_form(results):
    grids = make_grids(results, all_cells=True, subsets=True, beside=True)
    markdown, latex = to_markdown(grids), to_latex(grids)
    assert "| SimCSE-BERT-base, unsupervised [Table 5] | 68.40 |" in markdown
    assert "wmean, spearman, no regressor: used by Li et al., 2020 (BERT-flow)" in markdown
    assert "MSRpar" in markdown and r"95 \% interval" in latex and latex.count(r"\begin{tabular}") == len(grids)
    assert all(len(cells) == len(grid.columns) for grid in grids for _, cells in grid.rows)
    rows = list(csv.DictReader(io.StringIO(to_csv(results))))
    assert float(rows[0]["value"]) == results.tasks[0].scores[0].value
    assert rows[-1]["task"] == "Avg."


def test_a_worse_model_is_told_from_a_better_and_not_from_itself(results, folder):
    worse = evaluate(Model("noisy", noisy), "sts", settings=Settings(data=folder, resamples=100))
    found = compare(judged(results), judged(worse), resamples=200)
    average = found[-1]
    assert average.task == "Avg. sts" and average.verdict == "letters is better" and average.p < 0.05
    assert average.low < average.difference < average.high
    same = compare(judged(results), judged(results), resamples=200)
    assert {entry.verdict for entry in same} == {SAME} and same[0].p == 1


def test_result_files_compare_as_the_models_do(results, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(to_document(results)))
    other = judged(results)._replace(name="other")
    before, after = (compare(one, other, resamples=100) for one in (judged(results), read_judged(path)))
    assert [entry.difference for entry in after] == [entry.difference for entry in before]
    assert {entry.verdict for entry in after} == {SAME}


def test_models_scored_on_other_pairs_are_not_compared(results, folder, tmp_path):
    other = evaluate(Model("m", letters), "STS-B", settings=Settings(data=folder, split="dev", resamples=100))
    with pytest.raises(InputError, match=r"STS-B: .* not scored on the same items \(1,379 and 1,500\)"):
        compare(judged(results), judged(other))
    (tmp_path / "x.json").write_text('{"tasks": [{"task": "STS-B"}]}')
    with pytest.raises(InputError, match="no result file with items"):
        read_judged(tmp_path / "x.json")
    empty = judged(other)._replace(items={})
    with pytest.raises(InputError, match="share no task"):
        compare(judged(results), empty)


def test_constant_vectors_are_explained(folder):
    constant = Model("constant", lambda texts: np.ones((len(texts), 3), dtype=np.float32))
    found = evaluate(constant, "STS-B", settings=Settings(data=folder, resamples=100))
    assert np.isnan(found.tasks[0].scores[0].value)
    assert "nothing to correlate" in found.tasks[0].notes[0]
    assert "| constant | - |" in to_markdown(make_grids(found))


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


def test_transfer_shows_test_and_dev_apart(tmp_path):
    write_task(TASKS["MRPC"], tmp_path)
    settings = Settings(data=tmp_path, protocol="fast", resamples=100)
    found = evaluate(Model("letters", letters), "MRPC", settings=settings)
    (task,) = found.tasks
    assert [(s.metric, s.over) for s in task.scores] == [("accuracy", "test"), ("f1", "test"), ("accuracy", "dev")]
    assert all(s.protocol == "fast" for s in task.scores) and "L2 chosen on dev" in task.notes[0]
    assert task.scores[0].low <= task.scores[0].value <= task.scores[0].high and task.scores[0].n == 1725
    markdown = to_markdown(make_grids(found, beside=True))
    assert "letters, test" in markdown and "letters, dev" in markdown and "MRPC: test F1" in markdown
    assert "Skip-thought, unsupervised [Table E.1] | 73.00 |" in markdown
    same = compare(judged(found), judged(found), resamples=100)
    assert (same[0].metric, same[0].verdict) == ("accuracy", SAME)

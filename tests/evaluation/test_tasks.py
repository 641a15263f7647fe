import warnings

import pytest

from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.reading import SHA256, read_task
from twinpass.evaluation.tasks import TASKS, choose, list_tasks
from twinpass.recipes.made_up_tasks import write_task

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")


def test_groups_and_names_are_chosen_once_in_order():
    assert [t.name for t in choose("sts,STS12,MR")] == [*(t.name for t in choose("sts")), "MR"]
    assert len(choose("transfer")) == 7
    assert [t.name for t in choose(" stsb , sick-r,sst2")] == ["STS-B", "SICK-R", "SST-2"]


def test_a_wrong_name_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean 'MRPC'"):
        choose("MRCP")
    with pytest.raises(ConfigError, match="no task named"):
        choose(" , ")


def test_the_list_of_tasks_prints_and_converts():
    listed = list_tasks()
    assert "CC BY-NC-SA 3.0" in repr(listed) and "test 1,379" in repr(listed)
    assert [task["name"] for task in listed.to_dict()["tasks"]] == list(TASKS)
    assert listed.records()[0]["citation"] == "Agirre et al., 2012"


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete_data(name):
    task = TASKS[name]
    assert task.licence and task.citation and task.parts
    assert all(len(SHA256[file]) == 64 for part in task.parts for file in part.files)
    assert (task.kind == "transfer") == (task.classes > 0)


def test_protocol_counts():
    totals = {name: sum(part.rows for part in TASKS[name].parts) for name in TASKS}
    years = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
    folds = {"MR": 10662, "CR": 3775, "SUBJ": 10000, "MPQA": 10606}
    assert {**totals, **years, **folds} == totals


@pytest.mark.parametrize("name", TASKS)
def test_every_task_reads_from_senteval(name, shared):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = read_task(TASKS[name], shared / "data" / "senteval")
    assert [len(rows.texts) for rows in data.parts.values()] == [part.rows for part in TASKS[name].parts]
    assert all(len(texts) == len(TASKS[name].texts) for rows in data.parts.values() for texts in rows.texts)


def test_empty_sentences_are_kept(shared):
    for name, empty in (("CR", 4), ("MPQA", 3)):
        data = read_task(TASKS[name], shared / "data" / "senteval")
        assert sum(texts == ("",) for rows in data.parts.values() for texts in rows.texts) == empty


@pytest.mark.parametrize("name", ["STS13", "STS-B", "CR", "TREC", "MRPC"])
def test_right_counts_with_other_contents_only_warn(name, tmp_path):
    write_task(TASKS[name], tmp_path / "downstream")
    with pytest.warns(UserWarning, match="right number of rows for .* but is not SentEval's copy"):
        data = read_task(TASKS[name], tmp_path)
    assert all(len(digest) == 64 for digest in data.sha256.values())


def test_a_truncated_file_is_refused_with_both_counts(tmp_path):
    write_task(TASKS["SICK-R"], tmp_path)
    path = tmp_path / "SICK" / "SICK_trial.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:301]))
    with pytest.raises(InputError, match=r"expected 500 rows, got 300 in .*SICK_trial"):
        read_task(TASKS["SICK-R"], tmp_path)
    read_task(TASKS["SICK-R"], tmp_path, parts=("test",))


def test_a_truncated_parallel_file_is_refused(tmp_path):
    write_task(TASKS["STS13"], tmp_path)
    path = tmp_path / "STS" / "STS13-en-test" / "STS.gs.OnWN.txt"
    path.write_text(path.read_text()[:-200])
    with pytest.raises(InputError, match=r"has 562 lines and .*OnWN"):
        read_task(TASKS["STS13"], tmp_path)


def test_a_missing_subset_is_named(tmp_path):
    write_task(TASKS["STS13"], tmp_path)
    (tmp_path / "STS" / "STS13-en-test" / "STS.input.FNWN.txt").unlink()
    with pytest.raises(InputError, match=r"STS13 needs .*FNWN.txt, and there is no such file"):
        read_task(TASKS["STS13"], tmp_path)
    with pytest.raises(InputError, match="no folder"):
        read_task(TASKS["STS13"], tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\tb", "tab-separated columns, got 2"),
        ("1\ta\tb\tmany\tx", r"trial.txt:2: expected a number, got 'many'"),
        ("1\ta\tb\tnan\tx", "expected a number"),
        (b"1\t\xff\tb\t1\tx", "is not utf-8"),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(line, message, tmp_path):
    write_task(TASKS["SICK-R"], tmp_path)
    path = tmp_path / "SICK" / "SICK_trial.txt"
    lines = path.read_bytes().split(b"\n")
    lines[1] = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=message):
        read_task(TASKS["SICK-R"], tmp_path)


def test_a_strange_class_is_refused(tmp_path):
    write_task(TASKS["MRPC"], tmp_path)
    path = tmp_path / "MRPC" / "msr_paraphrase_test.txt"
    path.write_text(path.read_text().replace("\n1\t", "\n7\t", 1))
    with pytest.raises(InputError, match="expected classes 0 to 1, got 7"):
        read_task(TASKS["MRPC"], tmp_path)
    write_task(TASKS["TREC"], tmp_path)
    path = tmp_path / "TREC" / "TREC_10.label"
    path.write_text("WHO:x who\n" + path.read_text())
    with pytest.raises(InputError, match=r"TREC_10.label:1: expected one of ABBR"):
        read_task(TASKS["TREC"], tmp_path)

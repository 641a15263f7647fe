"""Corpora of released files: read as they are released, renewed where they change, and told of in the report."""

import dataclasses
import json
import os
import shutil

import pytest

from twinpass.errors import InputError
from twinpass.recipes.accounts import account_for, say
from twinpass.recipes.corpora import Corpora
from twinpass.recipes.lab import Lab
from twinpass.recipes.makers import CORPORA, PAIR, unquote, write_rows
from twinpass.recipes.measures import MEASURES
from twinpass.recipes.recipe import Recipe, one_subject
from twinpass.recipes.report import notes, to_document
from twinpass.recipes.reproduce import Outcome
from twinpass.recipes.scales import PAPER, SMOKE
from twinpass.recipes.subjects import ROBERTA, Baseline, Fitted, Raw, Trained, Words, supervised, unsupervised
from twinpass.recipes.tables.table_8 import PAPER_ANSWERS, QUERIES

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")
DECLUTR = Baseline(baseline="declutr", corpus="wiki-documents")
NEXT = unsupervised("wiki-documents", positive="next:1", view="pairs")


@pytest.fixture
def data(made_up, tmp_path):
    """A copy of the made-up data, to be changed."""
    return shutil.copytree(made_up[0], tmp_path / "data")


@pytest.fixture
def make_lab(made_up, data, tmp_path):
    def make(**fields):
        usual = {"scale": SMOKE, "data": data, "output": tmp_path / "out", "device": "cpu"}
        return Lab(**(usual | {"encoder": str(made_up[1])} | fields))

    return make


def rows_of(path):
    """The texts of each row of a prepared corpus."""
    return [list(json.loads(line).values()) for line in path.read_text("utf-8").splitlines()]


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def whole(folder, **options):
    return Corpora(folder, folder / "prepared", rows=None, **options)


def test_the_released_paraphrases_are_two_columns_without_a_header(tmp_path):
    write(tmp_path / "para-nmt-5m-processed.txt", 'so , "yes" .\tyes .', "one column", "\tempty", "a b\tb a")
    corpora = whole(tmp_path)
    assert rows_of(corpora.prepare("paranmt")) == [['so , "yes" .', "yes ."], ["a b", "b a"]]
    left_out = corpora.account("paranmt")["left_out"]
    assert left_out == {"wrong number of columns": 1, "empty field": 1}


def test_a_corpus_of_pairs_takes_no_row_of_another_width(tmp_path):
    with pytest.raises(InputError, match=r"1 text\(s\), and 2 are wanted"):
        write_rows(tmp_path / "x.jsonl", [("a", "b"), ("a b",)], PAIR)
    write(tmp_path / "pairs" / "paranmt_6k.tsv", "only one column", "of text")
    with pytest.raises(InputError, match="2 are wanted"):
        whole(tmp_path).prepare("paranmt")
    assert not [*(tmp_path / "prepared").iterdir()], "nothing is left half-written"


@pytest.mark.parametrize("gap", ["", "   "])
def test_documents_apart_by_a_blank_line_can_be_trained_on(make_lab, data, gap):
    lines = (data / "wiki.txt").read_text().splitlines()
    write(data / "wiki.txt", *lines[:20], gap, *lines[20:])
    lab = make_lab()
    assert "\n\n" in lab.corpora.prepare("wiki-documents").read_text()
    for subject in (NEXT, DECLUTR):
        assert lab.model(subject, 1).encode(["the cat sits"]).shape == (1, 16)


def test_how_rows_are_skipped_is_no_part_of_a_key(make_lab, monkeypatch):
    """The corpus's content is in the key, so reading it the strict way could only fail."""
    lab = make_lab()
    keys = [lab.key(subject, 1) for subject in (NEXT, DECLUTR)]
    strict = dataclasses.replace(CORPORA["wiki-documents"], parted=False)
    monkeypatch.setitem(CORPORA._entries, "wiki-documents", strict)
    assert [lab.key(subject, 1) for subject in (NEXT, DECLUTR)] == keys


def test_released_triplets_with_an_empty_field_are_left_out_and_counted(tmp_path):
    said = []
    write(tmp_path / "nli_for_simcse.csv", "sent0,sent1,hard_neg", "a,b,c", "d,,f", '"g, h",i,j')
    corpora = whole(tmp_path, log=said.append)
    assert rows_of(corpora.prepare("nli-triplets")) == [["a", "b", "c"], ["g, h", "i", "j"]]
    assert said == ["  prepared nli-triplets: 2 rows of nli_for_simcse.csv; left out 1 (empty field)"]
    corpora.prepare("nli-triplets")
    assert len(said) == 1, "it is prepared once"


def test_a_corpus_is_prepared_anew_where_its_sources_change(data, tmp_path):
    corpora = Corpora(data, tmp_path / "prepared", rows=50)
    made, wiki = corpora.prepare("nli-triplets"), corpora.prepare("wiki")
    write(data / "nli_for_simcse.csv", "sent0,sent1,hard_neg", "a,b,c")
    assert rows_of(corpora.prepare("nli-triplets")) == [["a", "b", "c"]]
    write(data / "nli_for_simcse.csv", "sent0,sent1,hard_neg", "x,y,z")
    os.utime(data / "nli_for_simcse.csv", ns=(1, 1))  # of the same size
    assert rows_of(corpora.prepare("nli-triplets")) == [["x", "y", "z"]]
    assert corpora.prepare("wiki") == wiki, "the text of another corpus did not change"
    (data / "nli_for_simcse.csv").unlink()
    assert corpora.prepare("nli-triplets") == made


def test_nli_text_that_changed_is_read_again(data, tmp_path):
    corpora = Corpora(data, tmp_path / "prepared", rows=None)
    assert len(rows_of(corpora.prepare("nli-neutral"))) > 100
    write(data / "nli_pairs.tsv", "premise\thypothesis\tlabel", "a man\ta person\tneutral")
    assert rows_of(corpora.prepare("nli-neutral")) == [["a man", "a person"]]
    assert corpora.prepare("nli-sentences").read_text("utf-8").splitlines() == ["a man", "a person"]


def test_a_corpus_without_its_account_is_made_again(data, tmp_path):
    """A process that was killed between the two files."""
    corpora = Corpora(data, tmp_path / "prepared", rows=50)
    path = corpora.prepare("wiki")
    known = corpora.account("wiki")
    path.with_suffix(".json").unlink()
    assert corpora.account("wiki") is None
    assert corpora.prepare("wiki") == path and corpora.account("wiki") == known


def test_glues_questions_come_before_quoras(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    write(tmp_path / "quora_duplicate_questions.tsv", header, "0\t1\t2\tquora\ttoo\t1")
    corpora = whole(tmp_path)
    assert rows_of(corpora.prepare("qqp")) == [["quora", "too"]]
    lines = [
        '1\t2\t3\t"What is ""it""?"\tSay "it"\t1',
        "2\t3\t4\tno\tduplicate\t0",
        '3\t4\t5\t"over',
        'two lines"\tHow?\t1',
        '4\t5\t6\t"Yes" or "no"\t"Stray\t1',
    ]
    write(tmp_path / "QQP" / "train.tsv", header, *lines)
    assert rows_of(corpora.prepare("qqp")) == [['What is "it"?', 'Say "it"'], ['"Yes" or "no"', '"Stray']]
    assert corpora.account("qqp") == {
        "sources": ["QQP/train.tsv"],
        "rows": 2,
        "left_out": {"wrong number of columns": 2},
    }


def test_a_field_is_unquoted_as_the_csv_module_does():
    import csv
    import io

    for text in ['"', 'a "b" c', '""', "plain", '"whole"']:
        quoted = io.StringIO()
        csv.writer(quoted, delimiter="\t", lineterminator="").writerow([text])
        assert unquote(quoted.getvalue()) == text


def test_bad_rows_are_counted_over_the_whole_file_however_few_are_wanted(tmp_path):
    write(tmp_path / "wiki.txt", "a", "", "b", "c", "  ", "d")
    corpora = Corpora(tmp_path, tmp_path / "prepared", rows=2)
    for name in ("wiki", "wiki-documents"):
        corpora.prepare(name)
        assert corpora.account(name) == {"sources": ["wiki.txt"], "rows": 2, "left_out": {"blank line": 2}}


def tokenised(text):
    """As Flickr30k is released."""
    return text.replace(".", " .").replace(",", " ,")


def test_table_8_finds_the_papers_captions_in_tokens(make_lab, data, monkeypatch):
    """An encoder to which the paper's captions lie nearest counts all six, and never the query itself."""
    answers = [text for query in QUERIES for text in PAPER_ANSWERS[query]["simcse"]]
    captions = [*map(tokenised, [*QUERIES, *answers]), "Something else .", "Another thing ."]
    (data / "flickr30k_captions.tsv").unlink()
    write(data / "results_20130124.token", *(f"{place}.jpg#0\t{text}" for place, text in enumerate(captions)))

    def encode(texts):
        import numpy as np

        places = [next((n for n, q in enumerate(QUERIES) if near(text, q)), 2) for text in texts]
        return np.eye(3, dtype=np.float32)[places]

    def near(text, query):
        known = [query, *PAPER_ANSWERS[query]["simcse"]]
        return text in known or text in map(tokenised, known)

    from twinpass.encoder.any_model import Model

    monkeypatch.setattr(Lab, "model", lambda *_, **__: Model("toy", encode))
    found = MEASURES["retrieval"](make_lab(), supervised(), 1)
    assert found.values == {"shared": 6.0}
    assert not {each["text"] for answers in found.more.values() for each in answers} & {*map(tokenised, QUERIES)}


def recipe_of(*subjects, measure="stsb-dev"):
    rows = tuple(one_subject(str(place), str(place), subject) for place, subject in enumerate(subjects))
    return Recipe(
        name="table-0", title="", measure=measure, columns={"stsb": "STS-B"}, rows=rows, paper={}, protocol="dev"
    )


def test_an_account_names_every_text_that_a_recipe_used(make_lab):
    lab = make_lab()
    sample = Trained(run=unsupervised().run, corpus="qqp", most=10)
    layer = Fitted(of=Raw(pooler="avg"), layer="whitening", on="nli")
    not_at_this_scale = unsupervised("paranmt", model=ROBERTA)
    recipe = recipe_of(sample, layer, DECLUTR, Words(), not_at_this_scale, supervised("nli-triplets-anli"))
    lab.corpora.prepare("qqp", most=10)
    lab.corpora.prepare("wiki-documents")
    lab.corpora.prepare("paranmt")
    lab.corpora.sized(SMOKE.fitting_sentences).prepare("nli-sentences")
    found = account_for(recipe, lab.corpora, SMOKE)
    assert [say(name, account) for name, account in found.items()] == [
        "qqp, at most 10: 10 rows of pairs/qqp_6k.tsv",
        "nli-sentences, at most 120: 120 rows of nli_pairs.tsv",
        "wiki-documents: 64 rows of wiki.txt",
        "glove: glove.txt",
    ]
    captions = account_for(recipe_of(Raw(pooler="avg"), measure="retrieval"), lab.corpora, SMOKE)
    assert captions["flickr"]["sources"] == ["flickr30k_captions.tsv"]


def test_a_stand_in_is_seen_in_the_report(make_lab):
    """At the paper's scale a small file stands for the paper's without a word, unless the report says it."""
    lab = make_lab(scale=PAPER, encoder=None)
    lab.corpora.prepare("qqp")
    recipe = recipe_of(unsupervised("qqp"))
    facts = {"corpora": account_for(recipe, lab.corpora, PAPER)}
    outcome = Outcome(recipe=recipe, scale="paper", encoder=None, seeds=(1,), rows=[], facts=facts)
    rows = len(rows_of(lab.corpora.prepare("qqp")))
    assert f"text qqp: {rows} rows of pairs/qqp_6k.tsv" in notes(outcome)
    account = {"sources": ["pairs/qqp_6k.tsv"], "rows": rows, "left_out": {}}
    assert to_document(outcome)["corpora"] == {"qqp": account}


def test_what_was_left_out_is_said_by_reason():
    account = {"sources": ["a", "b"], "rows": 1234, "left_out": {"blank line": 2, "no gold label": 1785}}
    assert say("nli", account) == "nli: 1,234 rows of a and b; left out 2 (blank line), 1,785 (no gold label)"


def test_captions_that_the_papers_models_found_are_among_the_first(make_lab, data):
    found = "The dogs run in the green field ."  # as released, in tokens
    lines = [f"{n}.jpg#0\tcaption number {n} ." for n in range(300)]
    write(data / "flickr30k_captions.tsv", *lines, f"300.jpg#0\t{found}")
    captions = make_lab().captions()
    assert captions[:2] == [found, "caption number 0 ."] and len(captions) == SMOKE.captions == 200

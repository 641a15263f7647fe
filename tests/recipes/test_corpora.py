"""Corpora of released files: read as they are released, made again where they change, and named in the report."""

import dataclasses
import json
import os
import shutil

import pytest

from twinpass.errors import InputError
from twinpass.recipes.corpora import IN_SENTEVAL, Corpora, Missing, describe_text
from twinpass.recipes.lab import Lab
from twinpass.recipes.makers import CORPORA, PAIR, read_captions, unquote, write_rows
from twinpass.recipes.measures import MEASURES, captions
from twinpass.recipes.model_specs import Baseline, Fitted, Raw, Trained, Words, supervised, unsupervised
from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.report import Outcome
from twinpass.recipes.reproduce import text_facts
from twinpass.recipes.scales import PAPER, ROBERTA, SMOKE
from twinpass.recipes.tables.shared import IS_BERT
from twinpass.recipes.tables.table_8 import IN_FLICKR, PAPER_ANSWERS, QUERIES

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")
DECLUTR = Baseline(baseline="declutr", corpus="wiki-documents")
NEXT = unsupervised("wiki-documents", positive="next:1", view="pairs")


@pytest.fixture
def data(smoke_data, tmp_path):
    """A copy of the generated data, to be changed."""
    return shutil.copytree(smoke_data[0], tmp_path / "data")


@pytest.fixture
def make_lab(smoke_data, data, tmp_path):
    def make(**fields):
        usual = {"scale": SMOKE, "data": data, "output": tmp_path / "out", "device": "cpu"}
        return Lab(**(usual | {"encoder": str(smoke_data[1])} | fields))

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
    skipped = corpora.facts("paranmt")["skipped"]
    assert skipped == {"wrong number of columns": 1, "empty field": 1}


def test_a_corpus_of_pairs_takes_no_row_of_another_width(tmp_path):
    with pytest.raises(InputError, match=r"expected 2 texts \(sent0, sent1\), got 1"):
        write_rows(tmp_path / "x.jsonl", [("a", "b"), ("a b",)], PAIR)
    write(tmp_path / "pairs" / "paranmt_6k.tsv", "only one column", "of text")
    with pytest.raises(InputError, match="expected 2 texts"):
        whole(tmp_path).prepare("paranmt")
    assert not [*(tmp_path / "prepared").iterdir()], "nothing is left half-written"


@pytest.mark.parametrize("gap", ["", "   "])
def test_documents_apart_by_a_blank_line_can_be_trained_on(make_lab, data, gap):
    lines = (data / "wiki.txt").read_text().splitlines()
    write(data / "wiki.txt", *lines[:20], gap, *lines[20:])
    lab = make_lab()
    assert "\n\n" in lab.corpora.prepare("wiki-documents").read_text()
    for model in (NEXT, DECLUTR):
        assert model.open(lab, 1).encode(["the cat sits"]).shape == (1, 16)


def test_how_rows_are_skipped_is_no_part_of_a_key(make_lab, monkeypatch):
    """The corpus's content is in the key, so reading it the strict way could only fail."""
    lab = make_lab()
    keys = [model.key(lab, 1) for model in (NEXT, DECLUTR)]
    strict = dataclasses.replace(CORPORA["wiki-documents"], blank_lines=False)
    monkeypatch.setitem(CORPORA, "wiki-documents", strict)
    assert [model.key(lab, 1) for model in (NEXT, DECLUTR)] == keys


def test_released_triplets_with_an_empty_field_are_skipped_and_counted(tmp_path):
    said = []
    write(tmp_path / "nli_for_simcse.csv", "sent0,sent1,hard_neg", "a,b,c", "d,,f", '"g, h",i,j')
    corpora = whole(tmp_path, log=said.append)
    assert rows_of(corpora.prepare("nli-triplets")) == [["a", "b", "c"], ["g, h", "i", "j"]]
    assert said == ["  prepared nli-triplets: 2 rows of nli_for_simcse.csv; skipped 1 (empty field)"]
    corpora.prepare("nli-triplets")
    assert len(said) == 1, "it is prepared once"


def test_a_corpus_is_prepared_again_where_its_sources_change(data, tmp_path):
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


def test_every_contradiction_of_a_premise_is_a_hard_negative(data, tmp_path):
    """The rows are those of the triplets, the drawn contradiction first."""
    corpora = Corpora(data, tmp_path / "prepared", rows=50)
    triplets, several = (rows_of(corpora.prepare(name)) for name in ("nli-triplets", "nli-triplets-all"))
    assert [[a, b, hard[0]] for a, b, hard in several] == triplets
    assert {len(hard) for _, _, hard in several} == {1, 2}
    assert all(text.startswith("nobody") for _, _, hard in several for text in hard)
    write(tmp_path / "nli_pairs.tsv", "premise\thypothesis\tlabel", *(f"p\t{n}\tcontradiction" for n in (1, 2, 2, 3)))
    with (tmp_path / "nli_pairs.tsv").open("a") as stream:
        stream.write("p\tso\tentailment\n")
    ((premise, entailed, hard),) = rows_of(whole(tmp_path).prepare("nli-triplets-all"))
    assert (premise, entailed, sorted(hard)) == ("p", "so", ["1", "2", "3"])


def test_classes_are_what_stands_before_the_colon(tmp_path):
    path = write(
        tmp_path / "senteval/downstream/TREC/train_5500.label", "DESC:manner How does it run ?", "no label here"
    )
    path.write_bytes(path.read_bytes() + b"\nHUM:ind Who is Andr\xe9 ?\nLOC:city\n")
    corpora = whole(tmp_path)
    assert rows_of(corpora.prepare("trec")) == [["How does it run ?", "DESC"], ["Who is André ?", "HUM"]]
    assert corpora.facts("trec")["skipped"] == {"no class before a question": 2}


def test_graded_pairs_keep_their_scores(data, tmp_path):
    corpora = Corpora(data, tmp_path / "prepared", rows=50)
    lines = (data / "senteval/STS/STSBenchmark/sts-train.csv").read_text("utf-8").splitlines()
    fields = [line.split("\t") for line in lines]
    known = {(left, right, float(score)) for *_, score, left, right in fields}
    made = rows_of(corpora.prepare("stsb-train"))
    assert len(made) == 50 and {(left, right, float(score)) for left, right, score in made} <= known


@pytest.mark.parametrize("name", ["trec", "stsb-train"])
def test_a_split_that_is_missing_is_asked_for_by_its_path(tmp_path, name):
    (tmp_path / "senteval" / "downstream").mkdir(parents=True)
    with pytest.raises(Missing, match=f"no {name} text .*senteval/downstream/{IN_SENTEVAL[name]}"):
        whole(tmp_path).prepare(name)


def test_a_text_with_a_class_or_a_score_is_encoded_once():
    passes = {name: CORPORA[name].passes for name in ("wiki", "trec", "stsb-train", "nli-labelled", "nli-triplets")}
    assert passes == {"wiki": 2, "trec": 1, "stsb-train": 2, "nli-labelled": 2, "nli-triplets": 3}


def test_two_corpora_in_one_run_are_both_part_of_its_key(make_lab, data):
    one, both = supervised(), dataclasses.replace(supervised(), also="wiki")
    lab = make_lab()
    run = both.run_in(lab, 1)
    assert run.mixture == (str(lab.corpora.prepare("wiki", most=SMOKE.rows)),)
    assert [name for name, _ in both.corpora(SMOKE)] == ["nli-triplets", "wiki"]
    assert one.identity(SMOKE) != both.identity(SMOKE) and one.key(lab, 1) != (before := both.key(lab, 1))
    write(data / "wiki.txt", *(f"another sentence {n}" for n in range(80)))
    assert both.key(make_lab(), 1) != before
    assert (both.passes(PAPER), both.passes(SMOKE)) == (2 * one.passes(PAPER), one.passes(SMOKE))


@pytest.mark.parametrize("senteval", ["senteval/downstream", "SentEval/data/downstream", "downstream", "."])
def test_a_small_sample_of_nli_takes_no_more_of_snlis_other_splits(tmp_path, senteval):
    pairs = [f"premise {n}\thypothesis {n}\tneutral" for n in range(1000)]
    write(tmp_path / "nli_pairs.tsv", "premise\thypothesis\tlabel", *pairs)
    for name in ("s1.dev", "s2.dev", "s1.test", "s2.test"):
        write(tmp_path / senteval / "SNLI" / name, *(f"other {name} {n}" for n in range(10)))

    def others(name, rows):
        texts = Corpora(tmp_path, tmp_path / f"{rows}", rows=rows).prepare(name).read_text("utf-8").splitlines()
        return sum(text.startswith("other") for text in texts), len(texts)

    assert others("nli-sentences", None) == (40, 2040)
    assert others("nli-sentences", 10) == (0, 10), "a hundredth of the pairs, so a hundredth of the 40"
    assert others("nli-training-sentences", None) == (0, 2000), "IS-BERT learns from the training pairs alone"
    assert IS_BERT.corpus == "nli-training-sentences"


def test_a_corpus_of_another_maker_is_made_again(data, tmp_path, monkeypatch):
    corpora = Corpora(data, tmp_path / "prepared", rows=50)
    before = corpora.prepare("wiki")
    monkeypatch.setattr("twinpass.recipes.corpora.MAKERS", "another")
    assert corpora.prepare("wiki") != before


def test_a_corpus_without_its_facts_is_made_again(data, tmp_path):
    """A process that was killed between the two files."""
    corpora = Corpora(data, tmp_path / "prepared", rows=50)
    path = corpora.prepare("wiki")
    known = corpora.facts("wiki")
    path.with_suffix(".facts.json").unlink()
    assert corpora.facts("wiki") is None
    assert corpora.prepare("wiki") == path and corpora.facts("wiki") == known


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
    assert corpora.facts("qqp") == {"sources": ["QQP/train.tsv"], "rows": 2, "skipped": {"wrong number of columns": 2}}


def test_a_field_is_unquoted_as_the_csv_module_does():
    import csv
    import io

    for text in ['"', 'a "b" c', '""', "plain", '"whole"']:
        quoted = io.StringIO()
        csv.writer(quoted, delimiter="\t", lineterminator="").writerow([text])
        assert unquote(quoted.getvalue()) == text


def test_bad_rows_are_counted_over_the_whole_file_however_few_are_kept(tmp_path):
    write(tmp_path / "wiki.txt", "a", "", "b", "c", "  ", "d")
    corpora = Corpora(tmp_path, tmp_path / "prepared", rows=2)
    for name in ("wiki", "wiki-documents"):
        corpora.prepare(name)
        assert corpora.facts(name) == {"sources": ["wiki.txt"], "rows": 2, "skipped": {"blank line": 2}}


def tokenised(text):
    """As Flickr30k is released."""
    return text.replace(".", " .").replace(",", " ,")


@pytest.mark.parametrize("in_file", [{}, IN_FLICKR], ids=["as printed", "in full"])
def test_table_8_finds_the_papers_captions_in_tokens(make_lab, data, monkeypatch, in_file):
    """An encoder to which the paper's captions lie nearest counts all six, and never the query itself."""
    answers = [text for query in QUERIES for text in PAPER_ANSWERS[query]["simcse"]]
    released = {text: tokenised(in_file.get(text, text)) for text in (*QUERIES, *answers)}
    texts = [*released.values(), "Something else .", "Another thing ."]
    (data / "flickr30k_captions.tsv").unlink()
    write(data / "results_20130124.token", *(f"{place}.jpg#0\t{text}" for place, text in enumerate(texts)))

    def encode(texts):
        import numpy as np

        places = [next((n for n, q in enumerate(QUERIES) if near(text, q)), 2) for text in texts]
        return np.eye(3, dtype=np.float32)[places]

    def near(text, query):
        known = [query, *PAPER_ANSWERS[query]["simcse"]]
        return text in known or text in map(released.get, known)

    from twinpass.encoder.any_model import Model

    monkeypatch.setattr(Trained, "open", lambda *_, **__: Model("toy", encode))
    found = MEASURES["retrieval"](make_lab(), supervised(), 1)
    assert found.values == {"shared": 6.0}
    assert found.more["captions"] == 8, "the queries themselves are not searched"
    assert found.more["there"] == 6, "of the paper's captions, SimCSE's are here"
    texts = {each["text"] for answers in found.more["found"].values() for each in answers}
    assert not texts & {*map(released.get, QUERIES)}


def recipe_of(*models, measure="stsb-dev"):
    rows = tuple(one_model(str(place), str(place), model) for place, model in enumerate(models))
    return Recipe(name="table-0", title="", measure=measure, columns={"stsb": "STS-B"}, rows=rows, protocol="dev")


def test_the_facts_name_every_text_that_a_recipe_used(make_lab):
    lab = make_lab()
    sample = Trained(run=unsupervised().run, corpus="qqp", most=10)
    layer = Fitted(of=Raw(pooler="avg"), layer="whitening", on="nli")
    not_at_this_scale = unsupervised("paranmt", model=ROBERTA)
    recipe = recipe_of(sample, layer, DECLUTR, Words(), not_at_this_scale, supervised("nli-triplets-anli"))
    lab.corpora.prepare("qqp", most=10)
    lab.corpora.prepare("wiki-documents")
    lab.corpora.prepare("paranmt")
    lab.corpora.sized(SMOKE.fitting_sentences).prepare("nli-sentences")
    found = text_facts(recipe, lab)
    assert [describe_text(name, facts) for name, facts in found.items()] == [
        "qqp, at most 10: 10 rows of pairs/qqp_6k.tsv",
        "nli-sentences, at most 120: 120 rows of nli_pairs.tsv",
        "wiki-documents: 64 rows of wiki.txt",
        "glove: glove.txt",
    ]
    searched = text_facts(recipe_of(Raw(pooler="avg"), measure="retrieval"), lab)
    assert searched["flickr"]["sources"] == ["flickr30k_captions.tsv"]


def test_a_stand_in_is_seen_in_the_report(make_lab):
    """At the paper's scale a small file stands for the paper's without a word, unless the report says it."""
    lab = make_lab(scale=PAPER, encoder=None)
    lab.corpora.prepare("qqp")
    recipe = recipe_of(unsupervised("qqp"))
    facts = {"corpora": text_facts(recipe, lab)}
    outcome = Outcome(recipe=recipe, scale="paper", encoder=None, seeds=(1,), rows=[], facts=facts)
    rows = len(rows_of(lab.corpora.prepare("qqp")))
    assert f"text read: qqp: {rows} rows of pairs/qqp_6k.tsv" in outcome.notes()
    found = {"sources": ["pairs/qqp_6k.tsv"], "rows": rows, "skipped": {}}
    assert outcome.to_dict()["corpora"] == {"qqp": found}


def test_skipped_rows_are_counted_by_reason():
    facts = {"sources": ["a", "b"], "rows": 1234, "skipped": {"blank line": 2, "no gold label": 1785}}
    assert describe_text("nli", facts) == "nli: 1,234 rows of a and b; skipped 2 (blank line), 1,785 (no gold label)"


def test_captions_that_the_papers_models_found_are_among_the_first(make_lab, data):
    found = "The dogs run in the green field ."  # as released, in tokens
    lines = [f"{n}.jpg#0\tcaption number {n} ." for n in range(300)]
    write(data / "flickr30k_captions.tsv", *lines, f"300.jpg#0\t{found}")
    searched = list(captions(make_lab()))
    assert searched[:2] == [found, "caption number 0 ."] and len(searched) == SMOKE.captions == 200


CAPTIONS = {"1.jpg": ["A man.", "Someone.", "A person."], "2.jpg": ["A dog.", "A pet."]}


@pytest.mark.parametrize("released", [True, False])
def test_any_two_captions_of_an_image_are_a_pair(released, tmp_path):
    path = tmp_path / "results_20130124.token"
    if released:
        lines = [f"{image}#{n}\t{text}" for image, texts in CAPTIONS.items() for n, text in enumerate(texts)]
    else:
        rows = [("train", image, *texts, *[""] * (3 - len(texts))) for image, texts in CAPTIONS.items()]
        lines = ["\t".join(row) for row in [("split", "image", "cap1", "cap2", "cap3"), *rows]]
    path.write_text("\n".join(lines) + "\n")
    assert read_captions(path) == CAPTIONS
    pairs = [["A man.", "Someone."], ["A man.", "A person."], ["Someone.", "A person."], ["A dog.", "A pet."]]
    assert rows_of(whole(tmp_path).prepare("flickr")) == pairs
    some = rows_of(whole(tmp_path).prepare("flickr", most=2))
    assert len(some) == 2 and some == [pair for pair in pairs if pair in some]


def test_a_caption_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "a.token").write_text("1.jpg#0\tA man.\nno tab here\n")
    with pytest.raises(InputError, match=r"a\.token:2: too few columns.*Expected an image, a tab and a caption"):
        read_captions(tmp_path / "a.token")
    (tmp_path / "b.tsv").write_text("image\tcomment\n1.jpg\tA man.\n")
    with pytest.raises(InputError, match="no column of captions"):
        read_captions(tmp_path / "b.tsv")

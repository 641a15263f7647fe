import dataclasses
import zlib

import numpy as np
import pytest
import torch
from tests.evaluation.naive import fit_one

from twinpass.evaluation.protocols import FAST
from twinpass.evaluation.reading import Data, Rows, read_task
from twinpass.evaluation.tasks import TASKS
from twinpass.evaluation.transfer import score_transfer
from twinpass.recipes.smoke_data import write_task

QUICK = dataclasses.replace(FAST, folds=2, max_epochs=3, l2=(1e-5, 1e-3))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def word_encode(texts, dimensions=12):
    """Mean of a random vector for each word, a longer one for the words that tell the class."""
    vectors = {
        w: np.random.default_rng(zlib.crc32(w.encode())).normal(size=dimensions) * (4 if "class" in w else 1)
        for t in texts
        for w in t.split()
    }
    means = [np.mean([vectors[w] for w in t.split()] or [np.zeros(dimensions)], axis=0) for t in texts]
    return np.array(means, dtype=np.float32)


def small(name, rows=240):
    """A task of made-up sentences whose first word gives the class away."""
    rng = np.random.default_rng(3)
    task = TASKS[name]
    parts = {}
    for part in task.parts:
        labels = [part.label if part.label is not None else i % task.classes for i in range(rows)]
        words = [" ".join(rng.choice(list("abcdefgh"), rng.integers(1, 6))) for _ in labels]
        first = [f"class{label} {w}" for label, w in zip(labels, words, strict=True)]
        texts = list(zip(*[first] * len(task.texts), strict=True))
        if len(task.texts) == 2:
            texts = [(a, a if y else w) for (a, _), y, w in zip(texts, labels, words, strict=True)]
        parts[part.name] = Rows(texts, [float(y) for y in labels])
    return Data(task, parts, {})


@pytest.mark.parametrize("name", ["MR", "CR", "SUBJ", "MPQA", "SST-2", "TREC", "MRPC"])
def test_every_task_learns_what_can_be_learnt(name):
    protocol = dataclasses.replace(FAST, folds=3)
    scores = score_transfer(word_encode, small(name), protocol=protocol)
    assert scores.test_accuracy > 80
    assert scores.test_accuracy == pytest.approx(100 * scores.items.values()["accuracy"], abs=0.02)
    assert ("f1" in scores.items.values()) == (TASKS[name].classes == 2)


def test_nested_folds_equal_the_procedure_written_out():
    """SentEval's inner k-fold in plain loops: sort, split, pick the L2 by inner folds, refit, test."""
    selection = pytest.importorskip("sklearn.model_selection")
    data = small("MR", rows=37)
    rng = np.random.default_rng(0)
    noise = {t: rng.normal(size=6) for rows in data.parts.values() for (t,) in rows.texts}

    def encode(texts):
        return np.array([noise[t] + ("class1" in t) for t in texts], dtype=np.float32)

    ours = score_transfer(encode, data, protocol=QUICK)

    rows = [(t.split(), y) for part in data.parts.values() for (t,), y in zip(*part, strict=True)]
    rows = sorted(rows, key=lambda row: (len(row[0]), row[1]))
    x = torch.from_numpy(encode([" ".join(words) for words, _ in rows])).double()
    y = torch.tensor([int(label) for _, label in rows])
    folds = selection.StratifiedKFold(n_splits=2, shuffle=True, random_state=1111)
    dev, test = [], []
    for train, tested in folds.split(x, y):
        scores = []
        for l2 in QUICK.l2:
            inner = [fit_one(x, y, train[a], train[b], l2, 2, QUICK)[1] for a, b in folds.split(x[train], y[train])]
            scores.append(round(100 * np.mean(inner), 2))
        dev.append(max(scores))
        order = np.random.RandomState(1111).permutation(len(train))
        held = int(0.05 * len(train))
        best = QUICK.l2[int(np.argmax(scores))]
        parts = train[order[held:]], train[order[:held]]
        layer, _ = fit_one(x, y, *parts, best, 2, QUICK, drawn=len(train))
        test.append(round(100 * (layer(x[tested]).argmax(1) == y[tested]).double().mean().item(), 2))
    assert ours.dev_accuracy == pytest.approx(round(np.mean(dev), 2), abs=0.011)
    assert ours.test_accuracy == pytest.approx(round(np.mean(test), 2), abs=0.011)


@pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")
def test_a_task_read_from_files(tmp_path):
    write_task(TASKS["CR"], tmp_path)
    scores = score_transfer(word_encode, read_task(TASKS["CR"], tmp_path), protocol=QUICK)
    assert len(scores.items.gold) == 3775 and scores.test_accuracy > 90

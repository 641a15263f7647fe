import sys

import numpy as np
import pytest

from twinpass.encoder.any_model import Model
from twinpass.errors import ConfigError, InputError, MissingExtra
from twinpass.evaluation.compare import compare
from twinpass.evaluation.evaluate import evaluate
from twinpass.evaluation.mteb import MtebEncoder, run_task


def letters(texts):
    return np.array([[text.count(c) for c in "abcdefghinorst"] for text in texts], dtype=np.float32)


MODEL = Model("my letters", letters, "print")


def test_batches_become_vectors_and_similarities_cosines():
    encoder = MtebEncoder(MODEL)
    vectors = encoder.encode([{"text": ["ab", "ba"]}, {"text": ["cd"]}], hf_split="test", batch_size=2)
    np.testing.assert_array_equal(vectors, letters(["ab", "ba", "cd"]))
    np.testing.assert_allclose(encoder.similarity(vectors, vectors)[0], [1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(vectors[:2], vectors[1:]), [1, 0], atol=1e-6)


def test_without_mteb_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(MissingExtra, match=r"twinpass\[hub\]"):
        evaluate(MODEL, "mteb:STSBenchmark", resamples=100, cache=False)


def test_mteb_runs_our_model_on_its_task():
    pytest.importorskip("mteb")
    from mteb.models.models_protocols import EncoderProtocol

    mocks = pytest.importorskip("mteb.mocks.mock_tasks")
    assert isinstance(MtebEncoder(MODEL), EncoderProtocol)
    assert MtebEncoder(MODEL).mteb_model_meta.name == "twinpass/my-letters"
    for kind in ("MockSTSTask", "MockRetrievalTask", "MockClassificationTask"):
        result = run_task(MODEL, getattr(mocks, kind)())
        assert result.task == f"mteb:{kind}" and np.isfinite(result.scores[0].value)


def test_a_name_mteb_does_not_know_is_refused():
    pytest.importorskip("mteb")
    with pytest.raises(ConfigError, match="no task of mteb named"):
        evaluate(MODEL, "mteb:NoSuchTask", resamples=100, cache=False)


def test_scores_without_items_are_shown_and_not_compared(monkeypatch):
    from twinpass.evaluation.results import Score, TaskResult

    score = Score(metric="cosine_spearman", over="test default", protocol="mteb", value=50.0)
    made = TaskResult(task="mteb:X", kind="mteb", split="test", scores=[score], items={}, samples={})
    monkeypatch.setattr("twinpass.evaluation.evaluate.run_mteb", lambda model, task: made)
    results = evaluate(MODEL, "mteb:X", resamples=100, cache=False)
    assert "mteb:X, x 100 (test)" in results.to_text("markdown")
    with pytest.raises(InputError, match="share no task: none against none"):
        compare(results, results)

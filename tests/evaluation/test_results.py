import dataclasses

import numpy as np
import pytest

from twinpass.evaluation.protocols import PUBLISHED
from twinpass.evaluation.results import Score, TaskResult

pytestmark = pytest.mark.filterwarnings("ignore:.*is not SentEval's copy")


def test_tables_in_every_form(results):
    shown = dataclasses.replace(results, cells=True, subsets=True, beside="paper")
    grids, markdown, latex = shown.grids(), shown.to_text("markdown"), shown.to_text("latex")
    assert "| SimCSE-BERT-base, unsupervised [Table 5] | 68.40 |" in markdown
    assert "wmean, spearman, no regressor: used by Li et al., 2020 (BERT-flow)" in markdown
    assert "MSRpar" in markdown and r"95 \% interval" in latex and latex.count(r"\begin{tabular}") == len(grids)
    assert all(len(row) == len(grid.columns) for grid in grids for row in grid.rows)
    assert "SimCSE-BERT-base" in repr(shown) and "<td" in shown._repr_html_()
    assert len(shown.to_dict()["beside"]) == len(PUBLISHED) and "beside" not in results.to_dict()


def test_an_average_of_sts_adds_no_column_to_transfer(results):
    """Seven STS tasks and one of transfer, beside the published rows: every row is as long as its header."""
    test, dev = (Score(metric="accuracy", over=over, protocol="full", value=80.0) for over in ("test", "dev"))
    samples = {"test": {"accuracy": np.full(100, 0.8)}}
    mr = TaskResult(task="MR", kind="transfer", split="test", scores=[test, dev], items={}, samples=samples)
    both = dataclasses.replace(results, tasks=[*results.tasks, mr], beside="paper")
    sts, transfer = both.grids()
    assert sts.columns[-1] == "Avg." and list(transfer.columns) == ["", "MR"]
    assert {len(row) for row in transfer.rows} == {2} and len(transfer.rows) > 20
    assert {len(row) for row in sts.rows} == {9}

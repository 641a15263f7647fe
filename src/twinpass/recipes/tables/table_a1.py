"""Table A.1: batch sizes and learning rates by grid search on STS-B's development set (Appendix A)."""

import math
from collections.abc import Mapping
from typing import Any

from twinpass.recipes.recipe import Recipe, Row, one_model
from twinpass.recipes.scales import BERT, BERT_LARGE, ROBERTA, ROBERTA_LARGE
from twinpass.recipes.tables.shared import preset

GRID = {"batch_size": (64, 128, 256, 512), "learning_rate": (1e-5, 3e-5, 5e-5)}


def setting_name(values: Mapping[str, Any]) -> str:
    """Return how messages name a setting of the grid."""
    return f"batch {values['batch_size']}, rate {values['learning_rate']:g}"


def _searched(name: str, label: str, encoder: str, *paper: float) -> Row:
    return one_model(label.lower().replace(".", "").replace(" ", "-"), label, preset(name, encoder), *paper)


RECIPE = Recipe(
    name="table-a1",
    title="Batch sizes and learning rates",
    measure="grid",
    columns={"batch_size": "batch size", "learning_rate": "learning rate"},
    protocol="the best of 4 batch sizes and 3 learning rates by STS-B dev, Spearman x 100",
    rows=(
        _searched("unsup-bert-base", "Unsup. BERT base", BERT, 64, 3e-5),
        _searched("unsup-bert-large", "Unsup. BERT large", BERT_LARGE, 64, 1e-5),
        _searched("unsup-roberta-base", "Unsup. RoBERTa base", ROBERTA, 512, 1e-5),
        _searched("unsup-roberta-large", "Unsup. RoBERTa large", ROBERTA_LARGE, 512, 3e-5),
        # The paper prints one column for BERT and RoBERTa.
        _searched("sup-base", "Sup. BERT base", BERT, 512, 5e-5),
        _searched("sup-base", "Sup. RoBERTa base", ROBERTA, 512, 5e-5),
        _searched("sup-large", "Sup. BERT large", BERT_LARGE, 512, 1e-5),
        _searched("sup-large", "Sup. RoBERTa large", ROBERTA_LARGE, 512, 1e-5),
    ),
    figure="settings",
    counts=True,
    trainings_per_model=math.prod(map(len, GRID.values())),
)

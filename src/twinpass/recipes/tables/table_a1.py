"""Table A.1: batch sizes and learning rates by grid search on STS-B's development set (Appendix A)."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.scales import BERT, BERT_LARGE, ROBERTA, ROBERTA_LARGE
from twinpass.recipes.tables.shared import preset

BATCH_SIZES = (64, 128, 256, 512)
LEARNING_RATES = (1e-5, 3e-5, 5e-5)

RECIPE = Recipe(
    name="table-a1",
    title="Batch sizes and learning rates",
    measure="grid",
    columns={"batch_size": "batch size", "learning_rate": "learning rate"},
    protocol="the best of 4 batch sizes and 3 learning rates by STS-B dev, Spearman x 100",
    rows=(
        one_model("unsup-bert-base", "Unsup. BERT base", preset("unsup-bert-base", BERT)),
        one_model("unsup-bert-large", "Unsup. BERT large", preset("unsup-bert-large", BERT_LARGE)),
        one_model("unsup-roberta-base", "Unsup. RoBERTa base", preset("unsup-roberta-base", ROBERTA)),
        one_model("unsup-roberta-large", "Unsup. RoBERTa large", preset("unsup-roberta-large", ROBERTA_LARGE)),
        one_model("sup-base", "Sup. base", preset("sup-base", BERT)),
        one_model("sup-large", "Sup. large", preset("sup-large", BERT_LARGE)),
    ),
    paper={
        "unsup-bert-base": (64, 3e-5),
        "unsup-bert-large": (64, 1e-5),
        "unsup-roberta-base": (512, 1e-5),
        "unsup-roberta-large": (512, 3e-5),
        "sup-base": (512, 5e-5),
        "sup-large": (512, 1e-5),
    },
    figure="none",
    trainings_per_model=len(BATCH_SIZES) * len(LEARNING_RATES),
)

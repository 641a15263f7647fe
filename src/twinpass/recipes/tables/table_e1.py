"""Table E.1: the seven transfer tasks."""

from twinpass.recipes.recipe import Recipe, one_model, quoted
from twinpass.recipes.tables import shared as m
from twinpass.recipes.tables.shared import TRANSFER_COLUMNS, printed

RECIPE = Recipe(
    name="table-e1",
    title="Transfer tasks",
    measure="transfer",
    columns=TRANSFER_COLUMNS,
    protocol="seven transfer tasks, logistic regression on frozen vectors, test accuracy in per cent",
    rows=printed(
        "E.1",
        one_model("unsup/glove", "GloVe embeddings (avg.)", m.GLOVE_ALL_WORDS, source=m.SBERT_PAPER),
        m.extra_glove("without stop words", m.GLOVE),
        quoted(
            "unsup/skip-thought",
            "Skip-thought",
            source=m.IS_BERT_PAPER,
            why="its books are no longer available; any encoder can be evaluated with `twinpass evaluate`",
        ),
        one_model("unsup/bert-avg", "Avg. BERT embeddings", m.BERT_LAST, source=m.SBERT_PAPER),
        one_model("unsup/bert-cls", "BERT-[CLS] embedding", m.BERT_CLS, source=m.SBERT_PAPER),
        one_model("unsup/is-bert", "IS-BERT-base", m.IS_BERT, source=m.IS_BERT_PAPER),
        one_model("unsup/simcse-bert", "Unsup. SimCSE-BERT-base", m.SIMCSE),
        one_model("unsup/simcse-bert-mlm", "Unsup. SimCSE-BERT-base w/ MLM", m.with_mlm(m.SIMCSE)),
        one_model("unsup/simcse-roberta", "Unsup. SimCSE-RoBERTa-base", m.SIMCSE_ROBERTA),
        one_model("unsup/simcse-roberta-mlm", "Unsup. SimCSE-RoBERTa-base w/ MLM", m.with_mlm(m.SIMCSE_ROBERTA)),
        one_model("unsup/simcse-roberta-large", "Unsup. SimCSE-RoBERTa-large", m.SIMCSE_ROBERTA_LARGE),
        one_model(
            "unsup/simcse-roberta-large-mlm", "Unsup. SimCSE-RoBERTa-large w/ MLM", m.with_mlm(m.SIMCSE_ROBERTA_LARGE)
        ),
        one_model("sup/infersent", "InferSent-GloVe", m.INFERSENT, source=m.SBERT_PAPER),
        m.USE,
        one_model("sup/sbert", "SBERT-base", m.SBERT, source=m.SBERT_PAPER),
        one_model("sup/simcse-bert", "Sup. SimCSE-BERT-base", m.SUP_SIMCSE),
        one_model("sup/simcse-bert-mlm", "Sup. SimCSE-BERT-base w/ MLM", m.with_mlm(m.SUP_SIMCSE)),
        one_model("sup/sroberta", "SRoBERTa-base", m.SROBERTA),
        one_model("sup/simcse-roberta", "Sup. SimCSE-RoBERTa-base", m.SUP_SIMCSE_ROBERTA),
        one_model("sup/simcse-roberta-mlm", "Sup. SimCSE-RoBERTa-base w/ MLM", m.with_mlm(m.SUP_SIMCSE_ROBERTA)),
        one_model("sup/simcse-roberta-large", "Sup. SimCSE-RoBERTa-large", m.SUP_SIMCSE_ROBERTA_LARGE),
        one_model(
            "sup/simcse-roberta-large-mlm", "Sup. SimCSE-RoBERTa-large w/ MLM", m.with_mlm(m.SUP_SIMCSE_ROBERTA_LARGE)
        ),
    ),
)

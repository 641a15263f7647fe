"""Table 5: the seven STS tasks, every model of the paper."""

from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.tables import shared as m
from twinpass.recipes.tables.shared import STS_COLUMNS, printed

RECIPE = Recipe(
    name="table-5",
    title="STS tasks",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, all, no regressor",
    rows=printed(
        "5",
        one_model("unsup/glove", "GloVe embeddings (avg.)", m.GLOVE, source=m.SBERT_PAPER),
        m.extra_glove("with stop words", m.GLOVE_ALL_WORDS),
        one_model("unsup/bert", "BERT-base (first-last avg.)", m.BERT_AVERAGE),
        one_model("unsup/bert-flow", "BERT-base-flow", m.on_nli("flow", m.BERT_FIRST_LAST)),
        one_model("unsup/bert-whitening", "BERT-base-whitening", m.on_nli("whitening", m.BERT_FIRST_LAST)),
        one_model("unsup/is-bert", "IS-BERT-base", m.IS_BERT, source=m.IS_BERT_PAPER),
        one_model("unsup/ct-bert", "CT-BERT-base", m.CT_BERT),
        one_model("unsup/simcse-bert", "Unsup. SimCSE-BERT-base", m.SIMCSE),
        one_model("unsup/roberta", "RoBERTa-base (first-last avg.)", m.ROBERTA_AVERAGE),
        one_model("unsup/roberta-whitening", "RoBERTa-base-whitening", m.on_nli("whitening", m.ROBERTA_FIRST_LAST)),
        one_model("unsup/declutr", "DeCLUTR-RoBERTa-base", m.DECLUTR),
        one_model("unsup/simcse-roberta", "Unsup. SimCSE-RoBERTa-base", m.SIMCSE_ROBERTA),
        one_model("unsup/simcse-roberta-large", "Unsup. SimCSE-RoBERTa-large", m.SIMCSE_ROBERTA_LARGE),
        one_model("sup/infersent", "InferSent-GloVe", m.INFERSENT, source=m.SBERT_PAPER),
        m.USE,
        one_model("sup/sbert", "SBERT-base", m.SBERT, source=m.SBERT_PAPER),
        one_model("sup/sbert-flow", "SBERT-base-flow", m.on_nli("flow", m.SBERT_FIRST_LAST)),
        one_model("sup/sbert-whitening", "SBERT-base-whitening", m.on_nli("whitening", m.SBERT_FIRST_LAST)),
        one_model("sup/ct-sbert", "CT-SBERT-base", m.CT_SBERT),
        one_model("sup/simcse-bert", "Sup. SimCSE-BERT-base", m.SUP_SIMCSE),
        one_model("sup/sroberta", "SRoBERTa-base", m.SROBERTA, source=m.SBERT_PAPER),
        one_model("sup/sroberta-whitening", "SRoBERTa-base-whitening", m.on_nli("whitening", m.SROBERTA_FIRST_LAST)),
        one_model("sup/simcse-roberta", "Sup. SimCSE-RoBERTa-base", m.SUP_SIMCSE_ROBERTA),
        one_model("sup/simcse-roberta-large", "Sup. SimCSE-RoBERTa-large", m.SUP_SIMCSE_ROBERTA_LARGE),
    ),
)

"""Table 5: the seven STS tasks, every model of the paper."""

from twinpass.recipes.recipe import Recipe, one_subject
from twinpass.recipes.tables import models as m
from twinpass.recipes.tables.published import STS_COLUMNS, by_key

RECIPE = Recipe(
    name="table-5",
    title="STS tasks",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, all, no regressor",
    rows=(
        one_subject("unsup/glove", "GloVe embeddings (avg.)", m.GLOVE, source=m.SBERT_PAPER),
        one_subject("unsup/bert", "BERT-base (first-last avg.)", m.BERT_AVERAGE),
        one_subject("unsup/bert-flow", "BERT-base-flow", m.on_nli("flow", m.BERT_FIRST_LAST)),
        one_subject("unsup/bert-whitening", "BERT-base-whitening", m.on_nli("whitening", m.BERT_FIRST_LAST)),
        one_subject("unsup/is-bert", "IS-BERT-base", m.IS_BERT, source=m.IS_BERT_PAPER),
        one_subject("unsup/ct-bert", "CT-BERT-base", m.CT_BERT),
        one_subject("unsup/simcse-bert", "SimCSE-BERT-base", m.SIMCSE),
        one_subject("unsup/roberta", "RoBERTa-base (first-last avg.)", m.ROBERTA_AVERAGE),
        one_subject("unsup/roberta-whitening", "RoBERTa-base-whitening", m.on_nli("whitening", m.ROBERTA_FIRST_LAST)),
        one_subject("unsup/declutr", "DeCLUTR-RoBERTa-base", m.DECLUTR),
        one_subject("unsup/simcse-roberta", "SimCSE-RoBERTa-base", m.SIMCSE_ROBERTA),
        one_subject("unsup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SIMCSE_ROBERTA_LARGE),
        one_subject("sup/infersent", "InferSent-GloVe", m.INFERSENT, source=m.SBERT_PAPER),
        m.USE,
        one_subject("sup/sbert", "SBERT-base", m.SBERT, source=m.SBERT_PAPER),
        one_subject("sup/sbert-flow", "SBERT-base-flow", m.on_nli("flow", m.SBERT_FIRST_LAST)),
        one_subject("sup/sbert-whitening", "SBERT-base-whitening", m.on_nli("whitening", m.SBERT_FIRST_LAST)),
        one_subject("sup/ct-sbert", "CT-SBERT-base", m.CT_SBERT),
        one_subject("sup/simcse-bert", "SimCSE-BERT-base", m.SUP_SIMCSE),
        one_subject("sup/sroberta", "SRoBERTa-base", m.SROBERTA, source=m.SBERT_PAPER),
        one_subject("sup/sroberta-whitening", "SRoBERTa-base-whitening", m.on_nli("whitening", m.SROBERTA_FIRST_LAST)),
        one_subject("sup/simcse-roberta", "SimCSE-RoBERTa-base", m.SUP_SIMCSE_ROBERTA),
        one_subject("sup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SUP_SIMCSE_ROBERTA_LARGE),
    ),
    paper=by_key(
        "5",
        "unsup/glove unsup/bert unsup/bert-flow unsup/bert-whitening unsup/is-bert unsup/ct-bert unsup/simcse-bert "
        "unsup/roberta unsup/roberta-whitening unsup/declutr unsup/simcse-roberta unsup/simcse-roberta-large "
        "sup/infersent sup/use sup/sbert sup/sbert-flow sup/sbert-whitening sup/ct-sbert sup/simcse-bert sup/sroberta "
        "sup/sroberta-whitening sup/simcse-roberta sup/simcse-roberta-large",
    ),
)

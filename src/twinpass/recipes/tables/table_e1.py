"""Table E.1: the seven transfer tasks."""

from twinpass.recipes.recipe import Recipe, one_subject, quoted
from twinpass.recipes.tables import models as m
from twinpass.recipes.tables.published import TRANSFER_COLUMNS, by_key

RECIPE = Recipe(
    name="table-e1",
    title="Transfer tasks",
    measure="transfer",
    columns=TRANSFER_COLUMNS,
    protocol="seven transfer tasks, logistic regression on frozen vectors, test accuracy in per cent",
    rows=(
        one_subject("unsup/glove", "GloVe embeddings (avg.)", m.GLOVE, source=m.SBERT_PAPER),
        quoted(
            "unsup/skip-thought",
            "Skip-thought",
            source=m.IS_BERT_PAPER,
            why="its books are no longer given out; any encoder can be judged with `twinpass evaluate`",
        ),
        one_subject("unsup/bert-avg", "Avg. BERT embeddings", m.BERT_LAST, source=m.SBERT_PAPER),
        one_subject("unsup/bert-cls", "BERT-[CLS] embedding", m.BERT_CLS, source=m.SBERT_PAPER),
        one_subject("unsup/is-bert", "IS-BERT-base", m.IS_BERT, source=m.IS_BERT_PAPER),
        one_subject("unsup/simcse-bert", "SimCSE-BERT-base", m.SIMCSE),
        one_subject("unsup/simcse-bert-mlm", "  w/ MLM", m.with_mlm(m.SIMCSE)),
        one_subject("unsup/simcse-roberta", "SimCSE-RoBERTa-base", m.SIMCSE_ROBERTA),
        one_subject("unsup/simcse-roberta-mlm", "  w/ MLM", m.with_mlm(m.SIMCSE_ROBERTA)),
        one_subject("unsup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SIMCSE_ROBERTA_LARGE),
        one_subject("unsup/simcse-roberta-large-mlm", "  w/ MLM", m.with_mlm(m.SIMCSE_ROBERTA_LARGE)),
        one_subject("sup/infersent", "InferSent-GloVe", m.INFERSENT, source=m.SBERT_PAPER),
        m.USE,
        one_subject("sup/sbert", "SBERT-base", m.SBERT, source=m.SBERT_PAPER),
        one_subject("sup/simcse-bert", "SimCSE-BERT-base", m.SUP_SIMCSE),
        one_subject("sup/simcse-bert-mlm", "  w/ MLM", m.with_mlm(m.SUP_SIMCSE)),
        one_subject("sup/sroberta", "SRoBERTa-base", m.SROBERTA),
        one_subject("sup/simcse-roberta", "SimCSE-RoBERTa-base", m.SUP_SIMCSE_ROBERTA),
        one_subject("sup/simcse-roberta-mlm", "  w/ MLM", m.with_mlm(m.SUP_SIMCSE_ROBERTA)),
        one_subject("sup/simcse-roberta-large", "SimCSE-RoBERTa-large", m.SUP_SIMCSE_ROBERTA_LARGE),
        one_subject("sup/simcse-roberta-large-mlm", "  w/ MLM", m.with_mlm(m.SUP_SIMCSE_ROBERTA_LARGE)),
    ),
    paper=by_key(
        "E.1",
        "unsup/glove unsup/skip-thought unsup/bert-avg unsup/bert-cls unsup/is-bert unsup/simcse-bert "
        "unsup/simcse-bert-mlm unsup/simcse-roberta unsup/simcse-roberta-mlm unsup/simcse-roberta-large "
        "unsup/simcse-roberta-large-mlm sup/infersent sup/use sup/sbert sup/simcse-bert sup/simcse-bert-mlm "
        "sup/sroberta sup/simcse-roberta sup/simcse-roberta-mlm sup/simcse-roberta-large "
        "sup/simcse-roberta-large-mlm",
    ),
)

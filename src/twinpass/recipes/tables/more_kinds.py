"""Kinds of training data and of models that are in no paper's table, beside SimCSE: each has a row to be checked by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinpass.config import UNSUP, Run
from twinpass.encoder.any_model import Model
from twinpass.encoder.dimensions import shorten
from twinpass.files import sha256, writing_folder
from twinpass.recipes.model_specs import Baseline, ModelSpec, Pooled, Trained, supervised
from twinpass.recipes.recipe import Recipe, one_model
from twinpass.recipes.scales import BERT, Scale
from twinpass.recipes.tables.shared import BERT_FIRST_LAST, CONTRADICTIONS, NLI_AND_WIKI, SIMCSE, SUP_SIMCSE

if TYPE_CHECKING:
    from twinpass.recipes.lab import Lab

EIGHTH = 8  # a size that the row of Matryoshka trains, of vectors of 768, 384 and, at smoke, 16 numbers


@dataclass(frozen=True, kw_only=True)
class Shortened(ModelSpec):
    """A trained model, of whose vectors the first eighth is kept."""

    of: Trained

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return the training and the part that is kept."""
        return {"of": self.of.description(lab, seed), "kept": f"1/{EIGHTH}"}

    def open(self, lab: Lab, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Load the trained model, and cut its vectors."""
        whole = self.of.open(lab, seed)

        def encode(texts: Sequence[str]) -> NDArray[np.float32]:
            vectors = np.asarray(whole.encode(texts))
            return shorten(vectors, vectors.shape[1] // EIGHTH)

        return Model(f"{whole.name}, first eighth", encode)


@dataclass(frozen=True, kw_only=True)
class StaticStudent(ModelSpec):
    """A table of token vectors made from a trained model, weighted by how rare a token is in a corpus."""

    of: Trained
    corpus: str = "wiki"

    def corpora(self, scale: Scale) -> Iterator[tuple[str, int | None]]:
        """Yield the text that tokens are counted in."""
        yield self.corpus, scale.rows

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return the teacher and the hash of the text."""
        return {"static": self.of.description(lab, seed), "corpus": sha256(self._text(lab))}

    def source(self, lab: Lab, seed: int) -> str:
        """Make the table, or find it made."""
        from twinpass.encoder.encoder import Encoder
        from twinpass.encoder.static import save_static
        from twinpass.encoder.token_table import make_table, student_settings

        key = self.key(lab, seed)
        folder = lab.store.model(key)
        with lab.store.locked(key):
            if not folder.is_dir():
                teacher = Encoder.load(self.of.source(lab, seed), device=lab.device)
                table, made = make_table(teacher, self._text(lab).read_text("utf-8").splitlines())
                about = {"name": teacher.name, "fingerprint": teacher.fingerprint}
                with writing_folder(folder) as aside:
                    settings = student_settings(teacher)
                    save_static(aside, table, teacher.tokens.rules(), settings, source=about, made=made)
        return str(folder)

    def _text(self, lab: Lab) -> Path:
        return lab.corpora.prepare(self.corpus)


def _like_simcse(method: str, **fields: object) -> Trained:
    """Another method by the settings of unsupervised SimCSE, so that the two differ in one thing."""
    usual = Run(method=method, model=BERT, keep_duplicates=True)
    same = ("pooler", "batch_size", "learning_rate", "max_tokens")
    run = usual.replace(**{name: getattr(UNSUP, name) for name in same} | fields)
    return Trained(run=run, corpus="wiki")


CLASSES = supervised("trec", view="classes", columns=("text",), label="label", batch_size=64, learning_rate=3e-5)
SCORES = supervised("stsb-train", view="scores", columns=("sent0", "sent1"), score="score", batch_size=64)
MATRYOSHKA = supervised(matryoshka="384,192,96,48")
LORA = supervised(lora=16, learning_rate=2e-4)  # small matrices need a higher rate than whole ones
MLM = Baseline(baseline="mlm", corpus="wiki")  # measured as the raw encoder is
QUEUE = _like_simcse("esimcse", repetition=0.0)
SOFT_NEGATIVES = _like_simcse("sncse")

RECIPE = Recipe(
    name="more-kinds",
    title="More kinds of data and models",
    protocol=(
        "STS-B dev, Spearman x 100, no regressor. Rows differ in what they learn from: graded pairs are the training "
        "split of STS-B itself, and classes say nothing of similarity within a class. First eighth: of the numbers of "
        "a vector"
    ),
    rows=(
        one_model("raw", "BERT-base (first-last avg.)", BERT_FIRST_LAST),
        one_model("mlm", "BERT-base, MLM alone", Pooled(of=MLM, pooler="avg_first_last")),
        one_model("unsup", "Unsup. SimCSE", SIMCSE),
        one_model("queue", "Unsup. SimCSE, momentum queue", QUEUE),
        one_model("soft-negatives", "Unsup. SimCSE, soft negatives", SOFT_NEGATIVES),
        one_model("sup", "Sup. SimCSE", SUP_SIMCSE),
        one_model("contradictions", "Sup. SimCSE, several hard negatives", CONTRADICTIONS),
        one_model("mixture", "Sup. and unsup. SimCSE in one run", NLI_AND_WIKI),
        one_model("lora", "Sup. SimCSE, LoRA", LORA),
        one_model("matryoshka", "Sup. SimCSE, Matryoshka", MATRYOSHKA),
        one_model("matryoshka-eighth", "Sup. SimCSE, Matryoshka, first eighth", Shortened(of=MATRYOSHKA)),
        one_model("sup-eighth", "Sup. SimCSE, first eighth", Shortened(of=SUP_SIMCSE)),
        one_model("classes", "Classes (TREC)", CLASSES),
        one_model("scores", "Graded pairs (STS-B train)", SCORES),
        one_model(
            "layers",
            "Student of sup. SimCSE, fewer layers",
            Baseline(baseline="distill", corpus="wiki", start=SUP_SIMCSE),
        ),
        one_model("static", "Student of sup. SimCSE, static", StaticStudent(of=SUP_SIMCSE)),
    ),
)

"""The paper's numbers from the checkpoints that authors released: no training, minutes instead of days.

A table's trained models are replaced by their released checkpoints. Layers are still fitted here: none were released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twinpass.encoder.any_model import Model
from twinpass.encoder.folder import path_of
from twinpass.encoder.load import RELEASED
from twinpass.errors import ConfigError
from twinpass.recipes.model_specs import Fitted, ModelSpec, Pooled, Training
from twinpass.recipes.recipe import Recipe, Row
from twinpass.recipes.tables import shared as m

if TYPE_CHECKING:
    from twinpass.recipes.lab import Lab

# How each is pooled follows from what it is, never from its folder's name. SBERT's and CT's authors average the last
# layer, as DeCLUTR's do; SimCSE's supervised models keep their MLP in the checkpoint's own pooler.
CHECKPOINTS: dict[ModelSpec, tuple[str, str]] = {
    model: (name, RELEASED.get(name, "avg"))
    for model, name in (
        (m.SIMCSE, "princeton-nlp/unsup-simcse-bert-base-uncased"),
        (m.SIMCSE_ROBERTA, "princeton-nlp/unsup-simcse-roberta-base"),
        (m.SIMCSE_ROBERTA_LARGE, "princeton-nlp/unsup-simcse-roberta-large"),
        (m.SUP_SIMCSE, "princeton-nlp/sup-simcse-bert-base-uncased"),
        (m.SUP_SIMCSE_ROBERTA, "princeton-nlp/sup-simcse-roberta-base"),
        (m.SUP_SIMCSE_ROBERTA_LARGE, "princeton-nlp/sup-simcse-roberta-large"),
        (m.SBERT, "sentence-transformers/bert-base-nli-mean-tokens"),
        (m.SROBERTA, "sentence-transformers/roberta-base-nli-mean-tokens"),
        (m.CT_BERT, "Contrastive-Tension/BERT-Base-CT"),
        (m.CT_SBERT, "Contrastive-Tension/BERT-Base-NLI-CT"),
        (m.DECLUTR, "johngiorgi/declutr-base"),
    )
}
# Tables and figures that released checkpoints can fill.
TABLES = ("table-5", "table-8", "table-b2", "table-b3", "table-c1", "table-e1", "figure-3", "figure-f1", "figure-g1")
TRAIN_IT = "run the table without --released to train it"
NOT_RELEASED = f"no checkpoint of it was released; {TRAIN_IT}"
NOT_READ: dict[ModelSpec, str] = {
    m.INFERSENT: f"its authors released a pickle for their own code, which is not read here; {TRAIN_IT}"
}


@dataclass(frozen=True, kw_only=True)
class Released(ModelSpec):
    """A checkpoint that its authors released, by its hub name."""

    name: str
    pooler: str
    stands_for: ModelSpec

    @property
    def encoder(self) -> str | None:
        """The paper's encoder that it was trained from."""
        return self.stands_for.encoder

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return its name, its pooler and a hash of its files: others under its name are another model."""
        content = lab.encoder_content(self.source(lab, seed))
        return {"released": self.name, "pooler": self.pooler, "content": content}

    def source(self, lab: Lab, seed: int) -> str:
        """Return its hub name, or its folder under the lab's folder of encoders."""
        if lab.encoder is None:
            return self.name
        folder = path_of(lab.encoder) / self.name
        if not folder.is_dir():
            raise ConfigError(f"no folder {folder}. Copy the checkpoint there, or leave out --encoder to download it.")
        return str(folder)

    def open(self, lab: Lab, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Load the checkpoint with the pooler of its authors."""
        return lab.open(self.source(lab, seed), pooler=self.pooler)

    def stated(self, lab: Lab) -> str:
        """Return its name, its pooler and the SHA-256 of its weights."""
        return lab.state_weights(self.name, self.pooler, self.source(lab, 0))


def released(recipe: Recipe) -> Recipe:
    """Return a recipe whose trained models are the released ones; a row without one is quoted."""
    if recipe.name not in TABLES:
        raise ConfigError(
            f"{recipe.name} is about trainings that nobody released. --released knows {', '.join(TABLES)}."
        )
    return replace(recipe, rows=tuple(map(_released_row, recipe.rows)))


def _released_row(row: Row) -> Row:
    models = {column: found for column, model in row.models.items() if (found := _replaced(model)) is not None}
    why = next((NOT_READ[model] for model in row.models.values() if model in NOT_READ), NOT_RELEASED)
    return replace(row, models=models, why_quoted=row.why_quoted if models or not row.models else why)


def _replaced(model: ModelSpec) -> ModelSpec | None:
    """Return a model without any training of ours, or None where that cannot be had."""
    if isinstance(model, Pooled):
        of = _replaced(model.of)
        return replace(of, pooler=model.pooler) if isinstance(of, Released) else None
    if isinstance(model, Fitted):
        of = _replaced(model.of)
        return None if of is None else replace(model, of=of)
    if isinstance(model, Training):
        found = CHECKPOINTS.get(model)
        return None if found is None else Released(name=found[0], pooler=found[1], stands_for=model)
    return model

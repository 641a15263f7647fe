"""Methods that build on unsupervised SimCSE, by the average of the seven STS tasks that each paper prints.

Checked: SimCSE's 76.25 is Table 5. The abstracts of ESimCSE (2.02 above SimCSE) and PromptBERT (2.29 above) give 78.27
and 78.54, that of SNCSE has 78.97, and that of DiffCSE says 2.3 above. RankCSE's 80.36 (ListMLE) is
quoted by others and not checked against the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinpass.config import Run
from twinpass.recipes.model_specs import ModelSpec, Trained
from twinpass.recipes.recipe import Recipe, Row, one_model
from twinpass.recipes.scales import BERT, BERT_LARGE, Scale
from twinpass.recipes.tables.shared import SIMCSE, STS_COLUMNS, preset

if TYPE_CHECKING:
    from twinpass.recipes.lab import Lab


@dataclass(frozen=True, kw_only=True)
class Ranked(Trained):
    """RankCSE, whose teachers are trained first."""

    of: Trained  # the teacher
    second: Trained | None = None  # another one, where the scale has its encoder

    def teachers(self, scale: Scale) -> list[Trained]:
        """Return the teachers at a scale."""
        return [each for each in (self.of, self.second) if each is not None and scale.runs(each.encoder)]

    def parts(self) -> Iterator[ModelSpec]:
        """Yield the model, then its teachers and what they are made from."""
        yield from super().parts()
        if self.second is not None:
            yield from self.second.parts()

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return its run, the hash of its corpus, and its teachers."""
        teachers = [teacher.description(lab, seed) for teacher in self.teachers(lab.scale)]
        return {**super().description(lab, seed), "teachers": teachers}

    def source(self, lab: Lab, seed: int) -> str:
        """Train the teachers, and then the model."""
        names = ",".join(teacher.source(lab, seed) for teacher in self.teachers(lab.scale))
        run = self.run_in(lab, seed).replace(teacher=names)
        return lab.train(self.key(lab, seed), run, dev=self.dev(lab, run))


def _built_on_simcse(method: str) -> Trained:
    run = Run(method=method, model=BERT, keep_duplicates=True)
    return Trained(run=run, corpus="wiki", keeps_pooler=run.pooler == "mask")


def _row(key: str, label: str, model: ModelSpec, average: float) -> Row:
    return one_model(key, label, model, *[None] * (len(STS_COLUMNS) - 1), average)


# The generator is the encoder's own masked language model, which every scale has; the authors use a DistilBERT.
DIFFCSE = _built_on_simcse("diffcse")
RANKCSE = Ranked(
    run=_built_on_simcse("rankcse").run, corpus="wiki", of=DIFFCSE, second=preset("unsup-bert-large", BERT_LARGE)
)

RECIPE = Recipe(
    name="after-simcse",
    title="Methods after SimCSE",
    measure="sts",
    columns=STS_COLUMNS,
    protocol="seven STS tasks, test, Spearman x 100, all, no regressor; BERT-base, each number from its own paper",
    rows=(
        _row("simcse", "SimCSE (Gao et al., 2021)", SIMCSE, 76.25),
        _row("esimcse", "ESimCSE (Wu et al., 2022)", _built_on_simcse("esimcse"), 78.27),
        _row("promptbert", "PromptBERT (Jiang et al., 2022)", _built_on_simcse("promptbert"), 78.54),
        _row("diffcse", "DiffCSE (Chuang et al., 2022)", DIFFCSE, 78.49),
        _row("sncse", "SNCSE (Wang et al., 2022)", _built_on_simcse("sncse"), 78.97),
        _row("rankcse", "RankCSE, ListMLE (Liu et al., 2023)", RANKCSE, 80.36),
    ),
)

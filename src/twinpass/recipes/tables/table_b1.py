"""Table B.1: the protocols of ten papers, and what one model of ours scores by each."""

from twinpass.evaluation.protocols import PAPERS
from twinpass.recipes.recipe import ALL, Recipe, Row
from twinpass.recipes.tables.shared import SIMCSE

RECIPE = Recipe(
    name="table-b1",
    title="Protocols of STS evaluation",
    measure="protocols",
    columns={"avg": "Avg. of unsup. SimCSE-BERT-base"},
    protocol="seven STS tasks, test, x 100, by the protocol of each row",
    rows=tuple(
        Row(
            key=f"{paper}, {cell.name}",
            label=f"{paper}: {cell.name}",
            models={ALL: SIMCSE},
            pick=f"{paper}, {cell.name}",
        )
        for paper, cells in PAPERS.items()
        for cell in cells
    ),
)

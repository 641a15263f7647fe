"""The page that `demo` writes beside its models: OUTPUT/report.html."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.files import plain

if TYPE_CHECKING:
    from twinpass.analysis.page import Section


MadeFrom = tuple[str, str, "str | None"]  # what, its name, its fingerprint
DEMO_MODELS = {"base": "before", "pairs": "trained on pairs", "dropout": "trained on single sentences"}


def write_demo_report(
    output: Path, document: Mapping[str, Any], facts: Mapping[str, Any], command: str | None = None
) -> None:
    """Write the report of the demo: both runs, the scores of all three models, the questions."""
    from twinpass.analysis.neighbours import Comparison, Neighbour
    from twinpass.analysis.report import comparisons_section
    from twinpass.analysis.training_report import FILE, write_training_report

    def found(answer: Mapping[str, Any], name: str) -> list[Neighbour]:
        others = {near["text"] for other in answer if other not in (name, "query") for near in answer[other]}
        return [Neighbour(near["text"], near["cosine"], near["text"] in others) for near in answer[name]]

    comparisons = [
        Comparison(
            query=answer["query"],
            by_model={DEMO_MODELS[name]: found(answer, name) for name in answer if name != "query"},
        )
        for answer in document["answers"]
    ]
    base = ("base model", facts["options"]["model"], document["base fingerprint"])
    write_training_report(
        output / FILE,
        title="The demo: searching this machine's documentation",
        folders={DEMO_MODELS[name]: output / name for name in document["scores"] if name != "base"},
        protocol=document["protocol"],
        scores={DEMO_MODELS[name]: scores for name, scores in document["scores"].items()},
        more=[comparisons_section("Questions", comparisons), _again([base], facts, command)],
    )


def _again(made_from: list[MadeFrom], facts: Mapping[str, Any], command: str | None) -> Section:
    from twinpass.analysis.again import again_section

    return again_section(command, fingerprints=made_from, facts=plain(facts))

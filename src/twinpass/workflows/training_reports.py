"""The page that `train` and `demo` leave beside what they trained: OUTPUT/report.html."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.files import plain

if TYPE_CHECKING:
    from twinpass.analysis.html import Section
    from twinpass.log import Result


MadeFrom = tuple[str, str, "str | None"]  # what, its name, its fingerprint
DEMO_MODELS = {"base": "before", "pairs": "trained on pairs", "dropout": "trained on single sentences"}


def write_run_report(
    result: Result, *, protocol: str | None, facts: Mapping[str, Any], command: str | None = None
) -> None:
    """Write the report of one finished run into its output folder."""
    from twinpass.analysis.training_report import FILE, write_training_report

    rows = {"before": result.before, f"best (step {result.best_step})": result.best}
    rows[f"last (step {result.steps})"] = result.last
    write_training_report(
        result.output / FILE,
        title=f"Training report: {result.output.name}",
        folders={result.output.name: result.output},
        protocol=protocol,
        scores={name: scores for name, scores in rows.items() if scores},
        more=[_again(_ingredients(result, facts["options"]["run"].data), facts, command)],
    )


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
    from twinpass.analysis.report import provenance_section

    return provenance_section(command, fingerprints=made_from, facts=plain(facts))


def _ingredients(result: Result, data: str) -> list[MadeFrom]:
    """Return the text a run learned from and the weights it came to, with their fingerprints."""
    from twinpass.files import sha256
    from twinpass.training import checkpoint

    newest = checkpoint.newest(result.output)
    text = checkpoint.read_progress(newest).data_fingerprint if newest is not None else None
    weights = sorted(result.output.glob("model*.safetensors"))
    return [("data", data, text), *(("weights", path.name, sha256(path)) for path in weights)]

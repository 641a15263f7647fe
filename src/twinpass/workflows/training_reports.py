"""The page that `train` leaves beside what it trained: OUTPUT/report.html."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinpass.files import plain

if TYPE_CHECKING:
    from twinpass.analysis.html import Section
    from twinpass.log import Result


MadeFrom = tuple[str, str, "str | None"]  # what, its name, its fingerprint


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

"""Average STS scores read back from result files, for the colours of Figure 3."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinpass.errors import InputError

CELL = "all, spearman, no regressor"  # the paper's protocol (appendix B)


@dataclass(frozen=True)
class Averages:
    """Avg. STS by the fingerprint and by the name of the model that was scored."""

    by_fingerprint: dict[str, float]
    by_name: dict[str, float]

    def find(self, *, fingerprint: str | None, name: str) -> float | None:
        """Return a model's average: by what it is if that is known, else by how it is called."""
        if fingerprint is not None and fingerprint in self.by_fingerprint:
            return self.by_fingerprint[fingerprint]
        return self.by_name.get(name)


def read_averages(paths: Sequence[Path]) -> Averages:
    """Read the files that `evaluate -o FILE.json` wrote; each must hold the average of the seven STS tasks."""
    averages = Averages({}, {})
    for path in paths:
        name, fingerprint, value = _read(path)
        averages.by_name[name] = value
        if fingerprint:
            averages.by_fingerprint[fingerprint] = value
    return averages


def _read(path: Path) -> tuple[str, str | None, float]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        model, scores = document["model"], document["averages"]
        name, fingerprint = str(model["name"]), model.get("fingerprint")
        found = [float(score["value"]) for score in scores if score["protocol"] == CELL]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is not a result file. Make one with: twinpass evaluate MODEL --data FOLDER -o FILE.json"
        ) from error
    if not found:
        raise InputError(
            f"{path} has no average of the seven STS tasks ({CELL}). Evaluate with --tasks sts, all of it."
        )
    return name, fingerprint, found[0]

"""The model card: what a finished model was made from, how, and how well it does."""

from __future__ import annotations

import dataclasses
import platform
from importlib.metadata import version

import torch

from twinpass import __version__
from twinpass.config import Run
from twinpass.files import writing
from twinpass.log import Result, Scores
from twinpass.training.setup import Parts

_PATTERN = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-embeddings, SimCSE, twinpass]
---

# {name}

A sentence encoder ({dimensions} dimensions, pooler `{pooler}`) trained with the {view} view of SimCSE from `{model}`.

```python
from twinpass import Encoder

vectors = Encoder.load("{output}").encode(["A sentence.", "Another one."])
```

## Data

{rows:,} rows of `{source}`, SHA-256 of the content `{fingerprint}`.{overlap}

## Scores

{scores}

## Run

{steps} steps ({reason}), {seconds:.0f} s, {rate:.0f} sentences/s, {masked:,} duplicates masked as false negatives.
Everything that decides what was computed is in `run.json`; what differs from the defaults:

{changes}

## Versions

twinpass {twinpass}, torch {torch}, transformers {transformers}, Python {python}, {threads} threads on {device}.
"""


def write_card(parts: Parts, result: Result, *, protocol: str = "") -> None:
    """Write OUTPUT/README.md."""
    overlap = parts.data.overlap
    text = _PATTERN.format(
        name=result.output.name,
        dimensions=parts.encoder.dimensions,
        pooler=parts.encoder.pooler,
        view=parts.run.view,
        model=parts.run.model,
        output=result.output,
        rows=len(parts.data),
        source=parts.rows.source,
        fingerprint=parts.progress.data_fingerprint,
        overlap="" if overlap is None else f" Lexical overlap of its pairs: {overlap:.0%} (F1 of bags of words).",
        scores=_score_table(result, protocol),
        steps=result.steps,
        reason=result.reason,
        seconds=result.seconds,
        rate=result.sentences_per_second,
        masked=result.masked,
        changes=_changes(parts.run),
        twinpass=__version__,
        torch=version("torch"),
        transformers=version("transformers"),
        python=platform.python_version(),
        threads=torch.get_num_threads(),
        device=parts.encoder.device,
    )
    with writing(result.output / "README.md") as aside:
        aside.write_text(text, encoding="utf-8")


def _score_table(result: Result, protocol: str) -> str:
    if not result.last:
        return "The model was not evaluated in training."
    lines = [f"Protocol: {protocol}\n"] if protocol else []
    lines += ["| | before | best | last |", "|---|---|---|---|"]
    lines += [f"| {name} | {_cells(name, result)} |" for name in result.last]
    lines += [f"\nThe best was at step {result.best_step} and is the one kept here."] if result.best_step else []
    return "\n".join(lines)


def _cells(name: str, result: Result) -> str:
    def cell(scores: Scores) -> str:
        return f"{scores[name]:.4f}" if name in scores else "-"

    return " | ".join(cell(scores) for scores in (result.before, result.best, result.last))


def _changes(run: Run) -> str:
    changed = [
        f"- {field.name}: `{getattr(run, field.name)!r}`"
        for field in dataclasses.fields(run)
        if getattr(run, field.name) != field.default
    ]
    return "\n".join(changed)

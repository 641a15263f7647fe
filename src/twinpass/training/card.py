"""The model card: the data, method, scores and versions of a finished model."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

from twinpass import __version__
from twinpass.config import Run
from twinpass.display import to_markdown
from twinpass.files import writing
from twinpass.log import Result
from twinpass.training.setup import Parts

_PATTERN = """---
library_name: {library}
pipeline_tag: sentence-similarity
tags: [sentence-embeddings, {method}, twinpass]
---

# {name}

A sentence encoder ({dimensions} dimensions, pooler `{pooler}`) trained from `{model}` with {title}{view}.

```python
{opened}("{output}").encode(["A sentence.", "Another one."])
```

## Data

{rows:,} rows of `{source}`, SHA-256 of the content `{fingerprint}`.{overlap}

## Scores

{scores}

## Run

{steps} steps ({reason}), {seconds:.0f} s, {rate:.0f} sentences/s, {masked:,} duplicates masked as false negatives.
All settings are in `run.json`; those that differ from the defaults:

{changes}

## Versions

twinpass {twinpass}, torch {torch}, transformers {transformers}, Python {python}, {threads} threads on {device}.
"""
_OPENED = "from twinpass import Encoder\n\nvectors = Encoder.load"
_OPENED_LSTM = "from twinpass.encoder.any_model import open_model\n\nvectors = open_model"


def write_card(parts: Parts, result: Result) -> None:
    """Write OUTPUT/README.md."""
    run, method = parts.run, parts.method
    kept, overlap, is_lstm = method.models[result.kept], method.data.overlap, run.pooler is None
    view = {"dropout": "two dropout passes", "pairs": "pairs", "triplets": "triplets"}.get(run.view)
    text = _PATTERN.format(
        name=result.output.name,
        library="twinpass" if is_lstm else "sentence-transformers",
        method={"simcse": "SimCSE"}.get(run.method, run.method),
        dimensions=kept.dimensions,
        pooler=run.pooler or "maximum over time",
        title=method.title,
        view=f", {view}" if run.method == "simcse" else "",
        model=run.model,
        opened=_OPENED_LSTM if is_lstm else _OPENED,
        output=result.output,
        rows=method.examples,
        source=method.rows.source,
        fingerprint=parts.progress.data_fingerprint,
        overlap="" if overlap is None else f" Lexical overlap of its pairs: {overlap:.0%} (F1 of bags of words).",
        scores=_score_table(result),
        steps=result.steps,
        reason=result.reason,
        seconds=result.seconds,
        rate=result.sentences_per_second,
        masked=result.masked,
        changes=_changes(run),
        twinpass=__version__,
        torch=version("torch"),
        transformers=version("transformers"),
        python=platform.python_version(),
        threads=torch.get_num_threads(),
        device=method.device,
    )
    with writing(result.output / "README.md") as aside:
        aside.write_text(text, encoding="utf-8")


def _score_table(result: Result) -> str:
    if not result.last:
        return "The model was not evaluated in training."
    kept = f"The best was at step {result.best_step} and is the one kept here." if result.best_step else ""
    return f"{to_markdown(result.grids())}\n{kept}".rstrip()


def _changes(run: Run) -> str:
    return "\n".join(f"- {name}: `{value!r}`" for name, value in ({"method": run.method} | run.changes).items())

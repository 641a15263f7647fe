"""The model card: the data, method, scores and versions of a finished model."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

from twinpass import __version__
from twinpass.display import to_markdown
from twinpass.files import writing
from twinpass.log import Result
from twinpass.training.setup import Parts

_VIEWS = {"dropout": "two dropout passes", "pairs": "pairs", "triplets": "triplets"}


def write_card(parts: Parts, result: Result) -> None:
    """Write OUTPUT/README.md."""
    run, method, output = parts.run, parts.method, result.output
    library, opened = "sentence-transformers", "from twinpass import Encoder\n\nvectors = Encoder.load"
    if run.pooler is None:  # an LSTM
        library, opened = "twinpass", "from twinpass.encoder.any_model import open_model\n\nvectors = open_model"
    view = f", {_VIEWS[run.view]}" if run.method == "simcse" else ""
    overlap = method.data.overlap
    alike = "" if overlap is None else f" Lexical overlap of its pairs: {overlap:.0%} (F1 of bags of words)."
    changes = "\n".join(f"- {name}: `{value!r}`" for name, value in ({"method": run.method} | run.changes).items())
    text = f"""---
library_name: {library}
pipeline_tag: sentence-similarity
tags: [sentence-embeddings, {"SimCSE" if run.method == "simcse" else run.method}, twinpass]
---

# {output.name}

A sentence encoder ({method.models[result.kept].dimensions} dimensions, pooler `{run.pooler or "maximum over time"}`) \
trained from `{run.model}` with {method.title}{view}.

```python
{opened}("{output}").encode(["A sentence.", "Another one."])
```

## Data

{method.examples:,} rows of `{method.rows.source}`, SHA-256 of the content `{parts.progress.data_fingerprint}`.{alike}

## Scores

{_score_table(result)}

## Run

{result.steps} steps ({result.reason}), {result.seconds:.0f} s, {result.sentences_per_second:.0f} sentences/s, \
{result.masked:,} duplicates masked as false negatives.
All settings are in `run.json`; those that differ from the defaults:

{changes}

## Versions

twinpass {__version__}, torch {version("torch")}, transformers {version("transformers")}, \
Python {platform.python_version()}, {torch.get_num_threads()} threads on {method.device}.
"""
    with writing(output / "README.md") as aside:
        aside.write_text(text, encoding="utf-8")


def _score_table(result: Result) -> str:
    if not result.last:
        return "The model was not evaluated in training."
    kept = "" if result.best_step is None else f"The best was at step {result.best_step} and is the one kept here."
    return f"{to_markdown(result.grids())}\n{kept}".rstrip()

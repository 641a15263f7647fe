"""The card of a finished model: what it was trained from and on, its scores, its settings and versions."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from twinpass import __version__
from twinpass.config import NEW_MODEL
from twinpass.display import to_markdown
from twinpass.encoder.card import LICENCE, USE, Card, describe_base, front_matter, library_of, use_section
from twinpass.log import Result
from twinpass.training.setup import Parts

_VIEWS = {"dropout": "two dropout passes", "pairs": "pairs", "triplets": "triplets"}
_VIEWS |= {"classes": "classes", "scores": "graded pairs"}
# The names by which the hub knows what dev sets measure: by the first word of a protocol, and by a score's own name.
_MAIN_METRICS = {"Spearman": "spearman_cosine", "R@1": "cosine_recall@1"}
_METRICS = {"pearson": "pearson_cosine", "R@5": "cosine_recall@5", "MRR": "cosine_mrr"}


def write_card(parts: Parts, result: Result) -> None:
    """Write OUTPUT/README.md."""
    run, method, output = parts.run, parts.method, result.output
    given = method.start.encoder
    model = run.model if given is None else given.name
    base = None if model.startswith(NEW_MODEL) else describe_base(model)
    view = f", {' + '.join(_VIEWS[view] for view in method.views)}" if method.views else ""
    overlap = method.overlap
    alike = "" if overlap is None else f" Lexical overlap of its pairs: {overlap:.0%} (F1 of bags of words)."
    changes = "\n".join(f"- {name}: `{value!r}`" for name, value in ({"method": run.method} | run.changes).items())
    Card(
        title=output.name,
        about=f"A sentence encoder ({method.models[result.kept].dimensions} dimensions, pooler "
        f"`{run.pooler or 'maximum over time'}`) trained from `{model}` with {method.title}{view}.",
        sections={
            USE: use_section(output, str(output)),
            "Data": f"{method.examples:,} rows of `{method.rows.source}`, SHA-256 of the content "
            f"`{parts.progress.data_fingerprint}`.{alike}",
            "Scores": _score_table(result),
            "Run": f"""\
{result.steps} steps ({result.reason}), {result.seconds:.0f} s, {result.sentences_per_second:.0f} sentences/s, \
{result.masked:,} duplicates masked as false negatives.
All settings are in `run.json` of the training folder; those that differ from the defaults:

{changes}""",
            LICENCE: base.licence_section()
            if base
            else "The weights were trained from nothing; you choose their licence.",
            "Versions": f"twinpass {__version__}, torch {version('torch')}, transformers {version('transformers')}, "
            f"Python {platform.python_version()}, {torch.get_num_threads()} threads on {method.device}.",
        },
        data=front_matter(library_of(output), base, run.method, **_hub_scores(output.name, run.dev, result)),
    ).write(output)


def _score_table(result: Result) -> str:
    if not result.last:
        return "The model was not evaluated in training."
    kept = "" if result.best_step is None else f"The best was at step {result.best_step} and is the one kept here."
    return f"{to_markdown(result.grids())}\n{kept}".rstrip()


def _hub_scores(name: str, dev: str | None, result: Result) -> dict[str, Any]:
    """Return the kept model's scores as the hub's front matter has them."""
    from huggingface_hub import EvalResult

    scores = result.best or result.last
    if not scores:
        return {}
    data = Path(dev).name if dev else "a function of the user's"
    main = next((metric for word, metric in _MAIN_METRICS.items() if result.protocol.startswith(word)), "score")
    results = [
        EvalResult(
            task_type="sentence-similarity",
            dataset_type=data,
            dataset_name=data,
            metric_type=main if metric == "score" else _METRICS.get(metric, metric),
            metric_name=result.protocol or None if metric == "score" else metric,
            metric_value=round(value, 4),
        )
        for metric, value in scores.items()
    ]
    return {"model_name": name, "eval_results": results}

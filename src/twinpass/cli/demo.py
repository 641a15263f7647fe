"""The verb `demo`: the main job on the built-in corpus, from text to a better search, in a few minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinpass.cli.console import Console, command_line, verb
from twinpass.cli.demo_page import PageOptions, is_trained, serve_demo
from twinpass.cli.options import DEFAULT_MODEL
from twinpass.errors import ConfigError, OutputError
from twinpass.provenance import provenance
from twinpass.workflows.dev import BUILT_IN, PAIRS, rows_to_learn_from, split_documentation
from twinpass.workflows.training_reports import DEMO_MODELS, write_demo_report

if TYPE_CHECKING:
    from rich.table import Table

    from twinpass.encoder.encoder import Encoder
    from twinpass.evaluation.dev import PairRetrieval
    from twinpass.training.setup import Given

QUERIES = (
    "make two arrays the same shape",
    "wait until another thread is done",
    "draw random numbers that can be repeated",
)
MEASURES = {"score": "R@1", "r_at_5": "R@5", "mrr": "MRR", "alignment": "alignment", "uniformity": "uniformity"}
DEMO_DATA = "the demo's part of "  # in run.json, where it tells that a demo wrote the folder
SEARCHED = 4_000  # descriptions that the questions are asked of, at most
LEARNED = "pairs"  # whose neighbours are shown beside the base model's


@verb
def demo(
    console: Console,
    page: PageOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the two trained models.")] = Path(
        "twinpass-demo"
    ),
    packages: Annotated[
        str, typer.Option(help="Python packages whose documentation to use, with commas between; all by default.")
    ] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="The model to start from.")] = DEFAULT_MODEL,
    steps: Annotated[int, typer.Option(min=1, help="Training steps for each of the two models.")] = 60,
    batch_size: Annotated[int, typer.Option(min=2, help="Rows in a batch.")] = 64,
) -> None:
    """Train on this machine's Python documentation and search it, before and after.

    The task: given a function's one-line summary, find its description among up to 1,000 that training never saw.
    The built-in model is measured, trained on pairs (supervised) and on single sentences (unsupervised SimCSE),
    measured again, and asked three questions. With --serve, a page to search the documentation follows; where a
    demo has left its models already, it follows at once.
    """
    _check_output(output)
    with page.listening() as bound:
        served = {} if bound is None else {"url": page.address(bound)}
        facts = provenance(options={"packages": packages, "model": model, "steps": steps, "batch_size": batch_size})
        if bound is not None and is_trained(output / LEARNED):
            console.log(f"{output / LEARNED} is trained already; choose another --output to train anew.")
            console.result(facts | served)
        else:
            _train_and_ask(console, output, packages, model, steps, batch_size, facts | served)
        if bound is not None:
            serve_demo(console, page, bound, output / LEARNED, packages)


def _train_and_ask(
    console: Console, output: Path, packages: str, model: str, steps: int, batch_size: int, facts: dict[str, Any]
) -> None:
    """Carry out the demo and print what it found beside the given facts."""
    from twinpass.encoder.encoder import Encoder
    from twinpass.evaluation.dev import PairRetrieval

    started = time.monotonic()
    console.log("1/4  reading the documentation of the installed Python packages ...")
    pairs, held_out = split_documentation(PAIRS + packages)
    sentences = rows_to_learn_from(BUILT_IN + packages, dev=PAIRS + packages) or []
    console.log(f"     {len(sentences):,} sentences, {len(pairs):,} pairs to learn from, {len(held_out):,} held out")
    task = PairRetrieval(held_out, source=f"the held-out part of {PAIRS}{packages}")
    base = Encoder.load(model, device=console.device)
    fingerprint = base.fingerprint
    runs = _train_both(
        console, task, {"pairs": pairs, "dropout": sentences}, packages, output, model, steps, batch_size
    )
    console.log("4/4  asking both models three questions ...")
    texts = list(dict.fromkeys(text for _, text in [*held_out, *pairs]))
    texts = texts[:: -(-len(texts) // SEARCHED)]  # evenly over the packages: encoding all would take minutes
    answers = _answers({"base": base, LEARNED: Encoder.load(output / LEARNED, device=console.device)}, texts)
    document = {
        "protocol": task.protocol,
        "base fingerprint": fingerprint,
        "scores": runs,
        "answers": answers,
        "seconds": time.monotonic() - started,
    }
    write_demo_report(output, document, facts, command_line())
    console.log(_next_steps(output, time.monotonic() - started))
    console.result(facts | document, human=_picture(runs, answers, task.protocol))


def _check_output(output: Path) -> None:
    """Refuse to overwrite what no demo has written."""
    folders = [output / name for name in DEMO_MODELS if name != "base"]
    others = [folder for folder in folders if _holds_files(folder) and not _is_of_a_demo(folder)]
    if not any(_is_of_a_demo(folder) for folder in folders):
        others += [place for place in [output / "report.html"] if place.exists()]
    if others:
        raise OutputError(
            f"{others[0]} is already there and no demo wrote it, so the demo leaves it alone. "
            "Choose another place with --output."
        )


def _holds_files(place: Path) -> bool:
    return place.is_file() or any(path.is_file() for path in place.rglob("*"))


def _is_of_a_demo(folder: Path) -> bool:
    from twinpass.config import Run

    try:
        return Run.read(folder / "run.json").data.startswith(DEMO_DATA)
    except (ConfigError, ValueError):  # ValueError: not even text
        return False


def _train_both(
    console: Console,
    task: PairRetrieval,
    data: dict[str, Given],
    packages: str,
    output: Path,
    model: str,
    steps: int,
    batch_size: int,
) -> dict[str, dict[str, float]]:
    """Train on pairs, then on single sentences, each from the same base; return the scores of all three."""
    from twinpass.cli.training_view import TrainingView
    from twinpass.config import Run
    from twinpass.evaluation.dev import PairRetrieval
    from twinpass.training.loop import train

    found: dict[str, dict[str, float]] = {}
    for number, (view, rows) in enumerate(data.items(), start=2):
        console.log(f"{number}/4  training on {len(rows):,} {'pairs' if view == 'pairs' else 'sentences'} ...")
        run = Run(
            data=f"{DEMO_DATA}{PAIRS if view == 'pairs' else BUILT_IN}{packages}",
            model=model,
            output=str(output / view),
            view=view,
            steps=steps,
            batch_size=batch_size,
            max_tokens=64,
            learning_rate=5e-5 if view == "pairs" else 3e-5,  # Table A.1's for base models
            eval_every=steps,
            save_every=steps,
            seed=console.seed,
            device=console.device,
        )
        evaluate = PairRetrieval(task.pairs, source=task.source, known=found.get("base"))
        with TrainingView(console) as view_of_it:
            result = train(run, evaluate=evaluate, on_event=view_of_it.show, rows=rows, overwrite=True)
        if result.interrupted:
            raise KeyboardInterrupt
        found.setdefault("base", result.before)
        found[view] = result.last
    return found


def _answers(encoders: dict[str, Encoder], texts: list[str], *, k: int = 3) -> list[dict[str, Any]]:
    """Return each query's nearest texts by each model."""
    from twinpass.search.exact import nearest

    rows = {name: nearest(each.encode(QUERIES), each.encode(texts), k=k) for name, each in encoders.items()}
    return [
        {
            "query": query,
            **{
                name: [{"text": texts[row], "cosine": float(score)} for score, row in zip(*both, strict=True)]
                for name, both in ((name, (scores[place], found[place])) for name, (scores, found) in rows.items())
            },
        }
        for place, query in enumerate(QUERIES)
    ]


def _picture(scores: dict[str, dict[str, float]], answers: list[dict[str, Any]], protocol: str) -> Any:
    from rich.console import Group

    return Group(_score_table(scores, protocol), *(_answer_table(answer) for answer in answers))


def _score_table(scores: dict[str, dict[str, float]], protocol: str) -> Table:
    from rich.table import Table

    table = Table(title=protocol, title_justify="left")
    table.add_column("model")
    for measure in MEASURES.values():
        table.add_column(measure, justify="right")
    for name, values in scores.items():
        table.add_row(
            DEMO_MODELS[name], *(f"{values[key]:.{1 if key in ('score', 'r_at_5', 'mrr') else 3}f}" for key in MEASURES)
        )
    return table


def _answer_table(answer: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(title=f"query: {answer['query']}", title_justify="left", show_lines=True)
    for title in ("before", "trained on pairs"):
        table.add_column(title, ratio=1)
    for before, after in zip(answer["base"], answer[LEARNED], strict=True):
        table.add_row(*(f"{found['cosine']:.2f}  {found['text']}" for found in (before, after)))
    return table


def _next_steps(output: Path, seconds: float) -> str:
    return (
        f"done in {seconds:.0f} s. The models are in {output}; look at {output / 'report.html'}. Try next:\n"
        f'  twinpass similarity {output / LEARNED} "open a file" "read from disk"\n'
        f"  twinpass encode {output / LEARNED} docs: -o vectors.npy\n"
        f"  twinpass demo --serve -o {output}\n"
        f"  twinpass train your-sentences.txt -o my-model"
    )

"""The demo: the main job on the built-in corpus, from text to a better search, in a few minutes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinpass.display import Displayed, Grid
from twinpass.errors import ConfigError, OutputError
from twinpass.files import plain
from twinpass.progress import Log, Progress, ignore, silent
from twinpass.provenance import provenance
from twinpass.workflows.dev import BUILT_IN, PAIRS, rows_to_learn_from, split_documentation

if TYPE_CHECKING:
    from twinpass.encoder.any_model import Encode
    from twinpass.encoder.encoder import Encoder
    from twinpass.evaluation.dev import PairRetrieval
    from twinpass.log import OnEvent
    from twinpass.search.index import Index

Vectors = dict[str, Any]  # by text
Watch = Callable[[], AbstractContextManager["OnEvent | None"]]  # opens what shows the events of one training run
QUERIES = (
    "make two arrays the same shape",
    "wait until another thread is done",
    "draw random numbers that can be repeated",
)
MODELS = {"base": "before", "pairs": "trained on pairs", "dropout": "trained on single sentences"}
MEASURES = {"score": "R@1", "r_at_5": "R@5", "mrr": "MRR", "alignment": "alignment", "uniformity": "uniformity"}
DEMO_DATA = "the demo's part of "  # in run.json: marks a folder that a demo wrote
SEARCHED = 2_000  # descriptions that the questions are asked of, at most; the held-out half is encoded already
INDEXED = 10_000  # sentences behind the page: about a minute of encoding on a laptop's processor
LEARNED = "pairs"  # the model whose neighbours are shown beside the base model's


@dataclass(frozen=True, repr=False)
class Demo(Displayed):
    """What the demo found: scores of three models, and the answers of two to three questions."""

    output: Path
    protocol: str = ""  # what the scores are; empty where models of an earlier demo are only served
    base_fingerprint: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    answers: Sequence[Mapping[str, Any]] = ()
    seconds: float = 0.0
    url: str | None = None  # of the page, with `serve`
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def grids(self) -> Sequence[Grid]:
        """Return the table of scores, and one table of neighbours for each question."""
        if not self.scores:
            return []
        digits = {key: 1 if key in ("score", "r_at_5", "mrr") else 3 for key in MEASURES}
        rows = [
            [MODELS[name], *(f"{values[key]:.{digits[key]}f}" for key in MEASURES)]
            for name, values in self.scores.items()
        ]
        return [Grid(self.protocol, ["model", *MEASURES.values()], rows), *map(_answer_grid, self.answers)]


def demo(
    output: str | Path = "twinpass-demo",
    *,
    packages: str = "",
    model: str = "minilm",
    steps: int = 30,
    batch_size: int = 64,
    seed: int = 42,
    device: str = "auto",
    serve: bool = False,
    port: int = 8_000,
    open_browser: bool = False,
    command: str | None = None,
    found: Callable[[Demo], None] = lambda result: None,
    started: Callable[[str], None] = lambda url: None,
    watch: Watch = contextlib.nullcontext,
    progress: Progress = silent,
    log: Log = ignore,
) -> Demo:
    """Train on this machine's Python documentation and search it, before and after.

    The task: given a function's one-line summary, find its description among up to 1,000 that training never saw. The
    model is measured, trained on pairs and on single sentences, measured again, and asked three questions; both models
    and a report are left in `output`. `packages` are comma-separated names; all installed ones by default.

    With `serve`, a page to search the documentation with the new model follows until Ctrl-C; models that an earlier
    demo left in `output` are served at once. `found` is called with the result before that, `started` with the address.
    """
    output = Path(output)
    _check_output(output)
    facts = provenance(options={"packages": packages, "model": model, "steps": steps, "batch_size": batch_size})
    with contextlib.ExitStack() as stack:
        bound, url = None, None
        if serve:  # a missing extra or a port that is taken is reported before minutes of work
            from twinpass.service.server import address, listen

            bound = stack.enter_context(listen("127.0.0.1", port))
            url = address(bound)
        if serve and all((output / LEARNED / name).is_file() for name in ("twinpass.json", "run.json")):
            log(f"{output / LEARNED} is trained already; choose another --output to train again.")
            result = Demo(output, url=url, provenance=facts)
        else:
            findings = _train_and_ask(output, packages, model, steps, batch_size, seed, device, watch, log)
            result = Demo(output, **findings, url=url, provenance=facts)
            _write_report(result, command)
            log(_next_steps(output, result.seconds))
        found(result)
        if bound is not None and url is not None:
            from twinpass.encoder.encoder import Encoder
            from twinpass.service.app import create_app
            from twinpass.service.server import run_server

            encoder = Encoder.load(output / LEARNED, device=device)
            app = create_app(encoder, _open_index(output / "index", encoder, packages, progress, log))
            log("serving the page (Ctrl-C stops) at:")
            started(url)
            if open_browser:
                import webbrowser

                webbrowser.open(url)  # the socket listens already: the browser waits until it is answered
            run_server(app, bound)
            log("stopped.")
    return result


def _train_and_ask(
    output: Path, packages: str, model: str, steps: int, batch_size: int, seed: int, device: str, watch: Watch, log: Log
) -> dict[str, Any]:
    """Do the four steps of the demo and return what they found."""
    from twinpass.config import Run
    from twinpass.encoder.encoder import Encoder
    from twinpass.evaluation.dev import PairRetrieval
    from twinpass.training.loop import train

    began = time.monotonic()
    log("1/4  reading the documentation of the installed Python packages ...")
    pairs, held_out = split_documentation(PAIRS + packages)
    sentences = rows_to_learn_from(BUILT_IN + packages, dev=PAIRS + packages) or []
    log(f"     {len(sentences):,} sentences, {len(pairs):,} pairs to learn from, {len(held_out):,} held out")
    task = PairRetrieval(held_out, source=f"the held-out part of {PAIRS}{packages}")
    base = Encoder.load(model, device=device)
    scores: dict[str, dict[str, float]] = {}
    vectors: dict[str, Vectors] = {}
    data: dict[str, Sequence[str] | Sequence[tuple[str, ...]]] = {"pairs": pairs, "dropout": sentences}
    for number, (view, rows) in enumerate(data.items(), start=2):
        log(f"{number}/4  training on {len(rows):,} {'pairs' if view == 'pairs' else 'sentences'} ...")
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
            seed=seed,
            device=device,
        )
        evaluate = _Remembering(PairRetrieval(task.pairs, source=task.source, known=scores.get("base")))
        with watch() as on_event:
            result = train(run, evaluate=evaluate, on_event=on_event, rows=rows, overwrite=True)
        if result.interrupted:
            raise KeyboardInterrupt
        scores = {"base": result.before, **scores, view: result.last}
        vectors = {"base": evaluate.vectors[0], view: evaluate.vectors[-1]} | vectors
    log("4/4  asking both models three questions ...")
    asked = list(dict.fromkeys(text for _, text in held_out))[:SEARCHED]
    others = list(dict.fromkeys(text for _, text in pairs))
    room = max(1, SEARCHED - len(asked))
    texts = list(dict.fromkeys([*asked, *others[:: -(-len(others) // room)]]))  # evenly over the packages
    learned = Encoder.load(output / LEARNED, device=device)
    return {
        "protocol": task.protocol,
        "base_fingerprint": base.fingerprint,
        "scores": scores,
        "answers": _ask({"base": base, LEARNED: learned}, texts, vectors),
        "seconds": time.monotonic() - began,
    }


class _Remembering:
    """A dev set that keeps the vectors of each evaluation by text, so that none is computed twice."""

    def __init__(self, task: PairRetrieval) -> None:
        self.task, self.protocol = task, task.protocol
        self.vectors: list[Vectors] = []

    def __call__(self, encode: Encode) -> dict[str, float]:
        def keep(texts: Sequence[str]) -> Any:
            found = encode(texts)
            self.vectors.append(dict(zip(texts, found, strict=True)))
            return found

        return self.task(keep)


def _ask(
    encoders: Mapping[str, Encoder], texts: list[str], known: Mapping[str, Vectors], *, k: int = 3
) -> list[dict[str, Any]]:
    """Return each query's nearest texts by each model; `known` are vectors that need not be computed again."""
    import numpy as np

    from twinpass.search.engines.exact import nearest

    answers: list[dict[str, Any]] = [{"query": query} for query in QUERIES]
    for name, encoder in encoders.items():
        new = [*QUERIES, *(text for text in texts if text not in known[name])]
        vectors = {**known[name], **dict(zip(new, encoder.encode(new), strict=True))}
        queries, searched = (np.stack([vectors[text] for text in these]) for these in (QUERIES, texts))
        scores, rows = nearest(queries, searched, k=k)
        for answer, each, found in zip(answers, scores, rows, strict=True):
            answer[name] = [
                {"text": texts[row], "cosine": float(score)} for score, row in zip(each, found, strict=True)
            ]
    return answers


def _answer_grid(answer: Mapping[str, Any]) -> Grid:
    columns = [MODELS[name] for name in ("base", LEARNED)]
    both = zip(answer["base"], answer[LEARNED], strict=True)
    rows = [[f"{found['cosine']:.2f}  {found['text']}" for found in pair] for pair in both]
    return Grid(f"query: {answer['query']}", columns, rows, words=columns, lines=True)


def _check_output(output: Path) -> None:
    """Refuse to overwrite what no demo has written."""
    folders = [output / name for name in MODELS if name != "base"]
    filled = [place for place in folders if place.is_file() or any(path.is_file() for path in place.rglob("*"))]
    others = [folder for folder in filled if not _is_of_a_demo(folder)]
    if (output / "report.html").exists() and not any(map(_is_of_a_demo, folders)):
        others.append(output / "report.html")
    if others:
        raise OutputError(
            f"{others[0]} is already there and no demo wrote it, so it is not overwritten. "
            "Choose another place with --output."
        )


def _is_of_a_demo(folder: Path) -> bool:
    from twinpass.config import Run

    try:
        return Run.read(folder / "run.json").data.startswith(DEMO_DATA)
    except (ConfigError, ValueError):  # ValueError: not UTF-8
        return False


def _write_report(result: Demo, command: str | None) -> None:
    """Write the report of the demo: both runs, the scores of all three models, the questions."""
    from twinpass.analysis.neighbours import Comparison, Neighbour
    from twinpass.analysis.report import comparisons_section, provenance_section
    from twinpass.analysis.training_report import FILE, write_training_report

    comparisons = []
    for answer in result.answers:
        both = {near["text"] for near in answer["base"]} & {near["text"] for near in answer[LEARNED]}
        by_model = {
            MODELS[name]: [Neighbour(near["text"], near["cosine"], near["text"] in both) for near in answer[name]]
            for name in ("base", LEARNED)
        }
        comparisons.append(Comparison(query=answer["query"], by_model=by_model))
    base = ("base model", result.provenance["options"]["model"], result.base_fingerprint)
    write_training_report(
        result.output / FILE,
        title="The demo: searching this machine's documentation",
        folders={MODELS[name]: result.output / name for name in result.scores if name != "base"},
        protocol=result.protocol,
        scores={MODELS[name]: dict(scores) for name, scores in result.scores.items()},
        more=[
            comparisons_section("Questions", comparisons),
            provenance_section(command, fingerprints=[base], facts=plain(result.provenance)),
        ],
    )


def _next_steps(output: Path, seconds: float) -> str:
    return (
        f"done in {seconds:.0f} s. The models are in {output}; look at {output / 'report.html'}. Try next:\n"
        f'  twinpass similarity "open a file" "read from disk" -m {output / LEARNED}\n'
        f"  twinpass encode docs: -m {output / LEARNED} -o vectors.npy\n"
        f"  twinpass demo --serve -o {output}\n"
        f"  twinpass train your-sentences.txt -o my-model"
    )


def _open_index(folder: Path, encoder: Encoder, packages: str, progress: Progress, log: Log) -> Index:
    """Return the index that an earlier demo made with this model and these packages, or make it."""
    from twinpass.search.index import Index
    from twinpass.text.corpus import open_corpus

    if Index.exists(folder):
        index = Index.open(folder)
        first = index.manifest.history[0]
        if index.model["fingerprint"] == encoder.fingerprint and first.get("packages") == packages:
            return index
    texts = list(dict.fromkeys(open_corpus(BUILT_IN + packages).texts()))
    chosen = texts[:: -(-len(texts) // INDEXED)]  # evenly over the packages
    log(f"indexing {len(chosen):,} of {len(texts):,} sentences of the documentation ...")
    return Index.build(folder, chosen, encoder=encoder, overwrite=True, facts={"packages": packages}, progress=progress)

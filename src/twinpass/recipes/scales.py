"""How big a reproduction is: the paper's own size, small enough for two cores, or a smoke test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinpass.config import Run
from twinpass.errors import ConfigError
from twinpass.recipes.subjects import BERT
from twinpass.registry import Registry

# On a GPU: by estimate 512 triplets of BERT-base take 30 GB at once and 5 in chunks; the loss is the whole batch's.
GPU_CHUNKED_ABOVE, GPU_CHUNK = 128, 8192
EPOCHS = {"infersent": 20}  # at most; the other baselines take one
# CT's authors' code: ten rounds of 500 batches, each followed by a look at STS-B dev.
CT_STEPS, CT_LOOKS = 5_000, 500
SPAN = 32  # tokens of DeCLUTR's spans below the paper's scale: its own of 512 want documents of 2,048
CHUNKED_ABOVE, CHUNK = 64, 4096  # batches above so many rows are encoded in chunks of so many tokens


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What is made smaller, and how much; None leaves the paper's value."""

    name: str
    says: str
    steps: int | None = None
    batch_size: int | None = None  # at most
    rows: int | None = None  # of each training corpus
    fitting_sentences: int | None = None  # that a layer is fitted to
    judged_rows: int | None = None  # of each part of an evaluation task
    transfer_protocol: str = "full"
    captions: int | None = None  # that are searched
    word_vectors_width: int = 2048  # of InferSent's BiLSTM, each direction
    passes_per_second: float | None = None  # for the estimate of cost

    @property
    def own_encoder(self) -> bool:
        """Tell whether one encoder stands for all of the paper's."""
        return self.name != "paper"

    def need_encoder(self, encoder: str | None) -> str:
        """Return the encoder that stands for the paper's, or say that one is to be named."""
        if encoder is None:
            raise ConfigError(
                f"the scale {self.name!r} trains one small encoder in place of the paper's: name it with --encoder "
                "(a folder or a hub name; a near-raw one, such as distilbert-base-cased, shows most)."
            )
        return encoder

    def encoder_for(self, papers: str, given: str | None) -> str:
        """Return what stands for one of the paper's encoders: the given one, or at its own scale that one itself."""
        if self.own_encoder:
            return self.need_encoder(given)
        if given is None:
            return papers
        folder = Path(given) / papers
        if not folder.is_dir():
            raise ConfigError(
                f"no folder {folder}. At the scale {self.name!r} --encoder names a folder in which the paper's "
                f"encoders lie under their names on the hub ({papers} is wanted here); without it they are fetched."
            )
        return str(folder)


SCALES: Registry[Scale] = Registry("scale")
PAPER = SCALES.add("paper", Scale(name="paper", says="the paper's own configuration, on a GPU"))
# 30 steps of 64 move a raw encoder far enough to tell methods apart; a row takes 3 to 5 minutes of one core.
SMALL = SCALES.add(
    "small",
    Scale(
        name="small",
        says="30 steps of 64, an hour or two on 2 cores",
        steps=30,
        batch_size=64,
        rows=20_000,
        fitting_sentences=10_000,
        captions=20_000,
        word_vectors_width=256,
        passes_per_second=13.0,
    ),
)
SMOKE = SCALES.add(
    "smoke",
    Scale(
        name="smoke",
        says="a tiny encoder and made-up text: does it run?",
        steps=2,
        batch_size=8,
        rows=64,
        fitting_sentences=120,
        judged_rows=60,
        captions=200,
        transfer_protocol="fast",
        word_vectors_width=8,
        passes_per_second=2000.0,
    ),
)


def scale_run(run: Run, scale: Scale, *, encoder: str | None, seed: int, device: str, keeps_batch: bool = False) -> Run:
    """Return the run as a scale has it: with another encoder, fewer steps, smaller batches."""
    run = run.replace(model=scale.encoder_for(run.model, encoder), seed=seed, device=device)
    if not scale.own_encoder:
        return run.replace(chunk_tokens=GPU_CHUNK if run.batch_size > GPU_CHUNKED_ABOVE else None)
    batch = run.batch_size if keeps_batch else min(run.batch_size, scale.batch_size or run.batch_size)
    seen = (scale.steps or 1) * (scale.batch_size or batch)
    steps = max(2, round(seen / batch))
    return run.replace(
        steps=steps,
        batch_size=batch,
        chunk_tokens=CHUNK if batch > CHUNKED_ABOVE else None,
        epochs=1,
        eval_every=steps,
        save_every=steps,
        track_geometry=None if run.track_geometry is None else min(run.track_geometry, steps),
    )


def scale_baseline(run: Run, scale: Scale) -> Run:
    """Return a baseline's run as a scale has it: as many rows as SimCSE sees there, in the baseline's own batches."""
    run = run.replace(epochs=EPOCHS.get(run.method, 1))
    if not scale.own_encoder:
        return run.replace(steps=CT_STEPS, eval_every=CT_LOOKS) if run.method == "ct" else run
    seen = (scale.steps or 1) * (scale.batch_size or 1)
    run = run.replace(steps=max(2, seen // run.batch_size))
    if run.method == "infersent":
        return run.replace(width=scale.word_vectors_width)
    return run.replace(max_tokens=SPAN) if run.method == "declutr" else run


def runs_at(scale: Scale, encoder: str | None) -> bool:
    """Tell whether rows of this encoder of the paper's are run: all at the paper's scale, one family below it."""
    return not scale.own_encoder or encoder in (None, BERT)

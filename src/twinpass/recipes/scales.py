"""The scales of a reproduction: the paper's own, one for two CPU cores, and a smoke test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from twinpass.config import Run
from twinpass.encoder.folder import path_of
from twinpass.errors import ConfigError
from twinpass.registry import Registry

# The encoders that the paper trains.
BERT, BERT_LARGE = "bert-base-uncased", "bert-large-uncased"
ROBERTA, ROBERTA_LARGE = "roberta-base", "roberta-large"
ENCODERS = (BERT, BERT_LARGE, ROBERTA, ROBERTA_LARGE)

# On a GPU: by estimate 512 triplets of BERT-base take 30 GB at once and 5 in chunks; the loss is the whole batch's.
GPU_CHUNKED_ABOVE, GPU_CHUNK = 128, 8192
EPOCHS = {"infersent": 20}  # at most; the other baselines train for one
# CT's authors' code: ten rounds of 500 batches, each followed by an evaluation on STS-B dev.
CT_STEPS, CT_EVAL_EVERY = 5_000, 500
SPAN = 32  # tokens of DeCLUTR's spans below the paper's scale: its own 512 need documents of 2,048 tokens
STSB_SENTENCES = {"all": 15_437, "dev": 2_909}  # distinct ones that a run followed on STS-B encodes each time
CHUNKED_ABOVE, CHUNK = 64, 4096  # rows above which a batch is encoded in chunks, and tokens per chunk


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What is reduced, and to how much; None keeps the paper's value."""

    name: str
    about: str
    steps: int | None = None
    batch_size: int | None = None  # at most
    evaluations: int = 1  # on the dev set in a training: the best of them is kept, or, of one, the last step
    pooler: str | None = None  # to train SimCSE with, where the pooler is not what is studied
    rows: int | None = None  # of each training corpus
    fitting_sentences: int | None = None  # NLI sentences that a layer is fitted to
    evaluated_rows: int | None = None  # of each part of an evaluation task, and of the dev set
    transfer_protocol: str = "full"
    captions: int | None = None  # that Table 8 searches
    tracked: Literal["all", "dev"] = "all"  # the splits of STS-B that Figure 2 follows, every 10 steps
    seeds: int = 3  # where the user names no number
    lstm_width: int = 2048  # of InferSent's BiLSTM, each direction
    student_layers: int = 6  # of a distilled student: half of BERT-base's
    shorter: str | None = None  # sizes of shorter vectors (Matryoshka), where the encoder's are too short for a run's
    passes_per_second: float | None = None  # for the estimate of cost

    @property
    def own_encoder(self) -> bool:
        """Whether one encoder of the user's takes the place of all of the paper's."""
        return self.name != "paper"

    def tracking(self, splits: str) -> Scale:
        """Return the scale with other splits of STS-B followed in Figure 2."""
        if splits not in STSB_SENTENCES:
            raise ConfigError(f"expected the splits to track to be all or dev, got {splits!r}.")
        return replace(self, tracked="all" if splits == "all" else "dev")

    def of_steps(self, steps: int) -> Scale:
        """Return the scale with longer or shorter trainings, and text enough that no row of it is seen twice."""
        if not self.own_encoder:
            raise ConfigError(f"the scale {self.name!r} trains as long as the paper does: it takes no number of steps.")
        batch = self.batch_size or 1
        return replace(
            self,
            about=f"{steps:,} steps of {batch}",
            steps=steps,
            rows=None if self.rows is None else max(self.rows, steps * batch),
        )

    def runs(self, encoder: str | None) -> bool:
        """Tell whether rows of this encoder of the paper are run: all at the paper's scale, one family below it."""
        return not self.own_encoder or encoder in (None, BERT)

    def check_encoder(self, given: str | None) -> None:
        """Raise ConfigError now if the given encoder cannot be used: later, every row would be skipped for it."""
        if self.own_encoder:
            from twinpass.encoder.load import find_folder

            find_folder(self._need(given))
        elif given is not None:
            self._folder(given)

    def encoder_for(self, papers: str, given: str | None) -> str:
        """Return what is used for one of the paper's encoders: the given one, or at the paper's scale that one."""
        if self.own_encoder:
            return self._need(given)
        return papers if given is None else self._folder(given, papers)

    def _need(self, given: str | None) -> str:
        if given is None:
            raise ConfigError(
                f"the scale {self.name!r} trains one small encoder in place of the paper's: pass it with --encoder "
                "(a folder or a hub name; a pretrained one without sentence training, such as distilbert-base-cased, "
                "shows the largest differences)."
            )
        return given

    def _folder(self, given: str, papers: str = "") -> str:
        folder = path_of(given) / papers
        if not folder.is_dir():
            raise ConfigError(
                f"no folder {folder}. At the scale {self.name!r}, --encoder is a folder that holds the paper's "
                "encoders, and for --released the checkpoints, under their hub names; without it they are downloaded."
            )
        return str(folder)


SCALES: Registry[Scale] = Registry("scale")
PAPER = SCALES.add("paper", Scale(name="paper", about="the paper's own configuration, on a GPU"))
# The first-last average starts higher than an untrained [CLS] (62.8 against 33.8 on STS-B dev with DistilBERT), and
# Table 6 finds that poolers hardly differ after training. After 30 steps the order of rows still changes; from 60 on
# it has settled. A row takes 10 to 20 minutes of one core.
SMALL = SCALES.add(
    "small",
    Scale(
        name="small",
        about="120 steps of 64, a few hours on 2 cores",
        steps=120,
        evaluations=4,
        pooler="avg_first_last",
        batch_size=64,
        rows=20_000,
        fitting_sentences=10_000,
        lstm_width=256,
        student_layers=3,
        passes_per_second=13.0,
    ),
)
SMOKE = SCALES.add(
    "smoke",
    Scale(
        name="smoke",
        about="a tiny random encoder and generated text: does it run?",
        steps=2,
        batch_size=8,
        rows=64,
        fitting_sentences=120,
        evaluated_rows=60,
        captions=200,
        transfer_protocol="fast",
        lstm_width=8,
        student_layers=1,
        shorter="8,4,2",
        passes_per_second=2000.0,
        seeds=1,
    ),
)


def scale_run(
    run: Run,
    scale: Scale,
    *,
    encoder: str | None,
    seed: int,
    device: str,
    keeps_batch: bool = False,
    keeps_pooler: bool = False,
) -> Run:
    """Return a run at a scale: with another encoder, fewer steps, smaller batches, and perhaps another pooler."""
    run = run.replace(model=scale.encoder_for(run.model, encoder), seed=seed, device=device)
    if not scale.own_encoder:
        return run.replace(chunk_tokens=GPU_CHUNK if run.batch_size > GPU_CHUNKED_ABOVE else None)
    batch = run.batch_size if keeps_batch else min(run.batch_size, scale.batch_size or run.batch_size)
    seen = (scale.steps or 1) * (scale.batch_size or batch)
    steps = max(2, round(seen / batch))
    return run.replace(
        pooler=run.pooler if keeps_pooler or scale.pooler is None else scale.pooler,
        steps=steps,
        batch_size=batch,
        chunk_tokens=CHUNK if batch > CHUNKED_ABOVE else None,
        epochs=1,
        eval_every=max(1, steps // scale.evaluations),
        save_every=steps,
        matryoshka=None if run.matryoshka is None else scale.shorter or run.matryoshka,
        track_geometry=None if run.track_geometry is None else min(run.track_geometry, steps),
    )


def scale_baseline(run: Run, scale: Scale) -> Run:
    """Return a baseline's run at a scale: as many rows as SimCSE sees there, in the baseline's own batches."""
    run = run.replace(epochs=EPOCHS.get(run.method, 1))
    if run.method == "distill":
        run = run.replace(layers=scale.student_layers)
    if not scale.own_encoder:
        return run.replace(steps=CT_STEPS, eval_every=CT_EVAL_EVERY) if run.method == "ct" else run
    seen = (scale.steps or 1) * (scale.batch_size or 1)
    steps = max(2, seen // run.batch_size)
    if run.method == "infersent":  # its learning rate follows its evaluations
        return run.replace(steps=steps, width=scale.lstm_width)
    run = run.replace(steps=steps, eval_every=max(1, steps // scale.evaluations))
    return run.replace(max_tokens=SPAN) if run.method == "declutr" else run

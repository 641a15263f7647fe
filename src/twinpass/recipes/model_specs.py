"""The models that rows of recipes are about.

A model is described with the paper's own encoder and settings. It knows what it starts from, which text it learns
from, and how it is made in a Lab, whose scale reduces it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from twinpass.config import SUP, UNSUP, USERS, Run
from twinpass.encoder.any_model import Model
from twinpass.encoder.runtime import choose_device, mixed_precision
from twinpass.encoder.vector_cache import encode_once
from twinpass.encoder.wordvectors import stop_words_hash
from twinpass.errors import ConfigError
from twinpass.evaluation.dev import ScoredPairs
from twinpass.files import sha256
from twinpass.recipes.makers import CORPORA
from twinpass.recipes.scales import BERT, CT_STEPS, STSB_SENTENCES, Scale, scale_baseline, scale_run
from twinpass.recipes.store import describe, key_of

if TYPE_CHECKING:
    from twinpass.recipes.lab import Lab

# Fields of a run that do not shape its weights, or that the hash of its corpus covers.
NOT_IN_KEYS = ("output", "data", "mixture", "skip_bad_rows", "device")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model that a row is about."""

    trains: ClassVar[bool] = False  # whether making it is a training of its own
    files: ClassVar[tuple[str, ...]] = ()  # the kinds of files that it reads as they are

    @property
    def inner(self) -> ModelSpec | None:
        """The model that it is made from, if any."""
        of: ModelSpec | None = getattr(self, "of", None)
        return of

    @property
    def encoder(self) -> str | None:
        """The paper's encoder that it starts from; word vectors have none."""
        return None if self.inner is None else self.inner.encoder

    @property
    def is_random(self) -> bool:
        """Whether another seed makes another model; every training draws at random."""
        return self.trains or (self.inner is not None and self.inner.is_random)

    @property
    def fitted_to_target(self) -> bool:
        """Whether it is fitted to the very sentences that it is evaluated on, so that each task has its own."""
        return False

    def parts(self) -> Iterator[ModelSpec]:
        """Yield the model, then the models that it is made from."""
        yield self
        if self.inner is not None:
            yield from self.inner.parts()

    def corpora(self, scale: Scale) -> Iterator[tuple[str, int | None]]:
        """Yield the corpora that it learns from, without those of its inner model, each with its number of rows."""
        yield from ()

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return everything that shapes its vectors in a lab."""
        described: dict[str, Any] = describe(self)
        return described

    def key(self, lab: Lab, seed: int) -> str:
        """Return the name under which a lab keeps it."""
        return key_of(self.description(lab, seed))

    def source(self, lab: Lab, seed: int) -> str:
        """Return the folder or file of the model, or its hub name; it is trained first if need be."""
        raise ConfigError(f"{type(self).__name__} has no model folder, so nothing can start from it.")

    def open(self, lab: Lab, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Return it as a model that encodes; `texts` are what a layer on target is fitted to."""
        return lab.open(self.source(lab, seed))

    def stated(self, lab: Lab) -> str:
        """Return the name and fingerprint of the checkpoint that it is, for reports of released ones; else nothing."""
        return ""

    def changed(self, **changes: object) -> ModelSpec:
        """Return the same training with other fields of its run."""
        raise ConfigError(f"{type(self).__name__} has no run to change.")


@dataclass(frozen=True, kw_only=True)
class Raw(ModelSpec):
    """A pretrained encoder as it is; without a pooler, the start of a training."""

    pooler: str | None = None
    encoder: str = BERT

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return what is shared by all models, and which encoder it is in this lab."""
        return super().description(lab, seed) | {"encoder_used": lab.encoder_content(self.source(lab, seed))}

    def source(self, lab: Lab, seed: int) -> str:
        """Return the folder or hub name of the encoder that the lab uses for it."""
        return lab.scale.encoder_for(self.encoder, lab.encoder)

    def open(self, lab: Lab, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Load the encoder."""
        return lab.open(self.source(lab, seed), pooler=self.pooler)

    def stated(self, lab: Lab) -> str:
        """Return its name, its pooler and the SHA-256 of its weights, where nothing is trained."""
        if not lab.released:
            return ""
        return lab.state_weights(self.encoder, self.pooler, self.source(lab, 0))


@dataclass(frozen=True, kw_only=True)
class Words(ModelSpec):
    """The average of GloVe's word vectors."""

    vectors: str = "glove"
    pooler: str = "avg"
    files = ("glove",)

    def source(self, lab: Lab, seed: int) -> str:
        """Return the file of word vectors."""
        return str(lab.corpora.find(self.vectors)[0])

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return what is shared by all models, and which file it is now."""
        described = super().description(lab, seed) | {"file": lab.corpora.stamp(lab.corpora.find(self.vectors))}
        return described | ({} if self.pooler == "avg" else {"stop_words": stop_words_hash()})

    def open(self, lab: Lab, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Read the word vectors."""
        return lab.open(self.source(lab, seed), pooler=self.pooler)


@dataclass(frozen=True, kw_only=True)
class PairText(ModelSpec):
    """No model, but the pairs of a corpus themselves."""

    corpus: str

    def corpora(self, scale: Scale) -> Iterator[tuple[str, int | None]]:
        """Yield the corpus."""
        yield self.corpus, scale.rows

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return the hash of the pairs."""
        return {"pairs": sha256(lab.corpora.prepare(self.corpus))}


@dataclass(frozen=True, kw_only=True)
class Training(ModelSpec):
    """What every model has that is trained here."""

    corpus: str
    trains = True

    def limit(self, scale: Scale) -> int | None:
        """Return the number of rows that its corpus is cut to."""
        return scale.rows

    def corpora(self, scale: Scale) -> Iterator[tuple[str, int | None]]:
        """Yield its corpus."""
        yield self.corpus, self.limit(scale)

    def text(self, lab: Lab) -> Path:
        """Return the file that it learns from."""
        return lab.corpora.prepare(self.corpus, most=self.limit(lab.scale))

    def rows_at(self, scale: Scale) -> int:
        """Return how many rows it learns from, where the data folder holds the paper's corpora."""
        paper = CORPORA[self.corpus].paper_rows
        return min(paper, self.limit(scale) or paper)

    def passes(self, scale: Scale) -> int:
        """Estimate how many sentences its training sends through the encoder."""
        rows = self.rows_at(scale) if scale.steps is None else scale.steps * (scale.batch_size or 1)
        return rows * CORPORA[self.corpus].passes

    def identity(self, scale: Scale) -> str:
        """Return what tells trainings apart at a scale: two may differ only in what the scale reduces."""
        return key_of(describe(self))


def run_description(run: Run) -> dict[str, Any]:
    """Return the fields of a run that decide its weights; defaults are left out, so that a new field changes no key."""
    given, default = describe(run), describe(Run())
    return {name: v for name, v in given.items() if name not in NOT_IN_KEYS and v != default.get(name)}


@dataclass(frozen=True, kw_only=True)
class Trained(Training):
    """SimCSE, or a variant of it that a Run can describe."""

    run: Run
    keeps_batch: bool = False  # where the batch size is what is studied, a smaller scale takes fewer steps instead
    keeps_pooler: bool = False  # where the pooler is what is studied, a smaller scale must not choose another
    most: int | None = None  # a sample of at most this many rows of the corpus
    also: str | None = None  # another corpus, whose batches take turns with those of the first

    @property
    def encoder(self) -> str | None:
        """The encoder of its run."""
        return self.run.model

    def limit(self, scale: Scale) -> int | None:
        """Return the number of rows of its sample, or of the scale where that is smaller."""
        return min((limit for limit in (scale.rows, self.most) if limit is not None), default=None)

    def changed(self, **changes: object) -> Trained:
        """Return the same training with other fields of its run; a batch size given here is kept at every scale."""
        kept = self.keeps_batch or "batch_size" in changes
        return dataclasses.replace(self, run=self.run.replace(**changes), keeps_batch=kept)

    def corpora(self, scale: Scale) -> Iterator[tuple[str, int | None]]:
        """Yield its corpus, and the other one."""
        yield from super().corpora(scale)
        if self.also is not None:
            yield self.also, self.limit(scale)

    def passes(self, scale: Scale) -> int:
        """Estimate how many sentences its training sends through the encoder."""
        passes = super().passes(scale) * (self.run.epochs if scale.steps is None else 1)
        if self.also is not None and scale.steps is None:
            passes *= 2
        if self.run.track_geometry is None:
            return passes
        steps = scale.steps or self.rows_at(scale) * self.run.epochs // self.run.batch_size
        times, sentences = 1 + steps // self.run.track_geometry, STSB_SENTENCES[scale.tracked]
        # What is only encoded, without a backward pass, takes a third of the time.
        return passes + times * min(sentences, 2 * (scale.evaluated_rows or sentences)) // 3

    def identity(self, scale: Scale) -> str:
        """Return what tells trainings apart at a scale."""
        run = self._scaled(scale, encoder="one" if scale.own_encoder else None, seed=0, device="auto")
        return key_of([describe(run), self.corpus, self.rows_at(scale), *filter(None, [self.also])])

    def run_in(self, lab: Lab, seed: int) -> Run:
        """Return the run as a lab trains it."""
        run = self._scaled(lab.scale, encoder=lab.encoder, seed=seed, device=lab.device)
        if run.positive == "synonym":
            run = run.replace(wordnet=lab.wordnet)
        if lab.precision is not None:
            run = run.replace(precision=lab.precision)
        elif not lab.scale.own_encoder:  # as the paper's authors trained
            run = run.replace(precision=mixed_precision(choose_device(lab.device)))
        mixture = () if self.also is None else (str(self._other_text(lab, self.also)),)
        run = run.replace(data=str(self.text(lab)), mixture=mixture)
        return run.replace(skip_bad_rows=CORPORA[self.corpus].blank_lines)

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return its run, the encoder that it starts from, the hash of its corpus, and what chose its checkpoint."""
        run = self.run_in(lab, seed)
        described: dict[str, Any] = {"run": run_description(run), "corpus": sha256(self.text(lab))}
        described["run"] |= {"model": lab.encoder_content(run.model)}
        if self.also is not None:
            described["also"] = sha256(self._other_text(lab, self.also))
        if run.track_geometry is not None:
            every = lab.scale.tracked == "all"
            described["tracked"] = lab.evaluation_content("STS-B") if every else lab.scale.tracked
        dev = self.dev(lab, run)
        return described if dev is None else described | {"dev": lab.dev_content}

    def dev(self, lab: Lab, run: Run) -> ScoredPairs | None:
        """Return what the run is evaluated on as it trains; where once is enough, that comes after training."""
        if run.track_geometry is not None:
            return lab.tracked_dev
        return None if lab.scale.own_encoder and lab.scale.evaluations == 1 else lab.dev

    def source(self, lab: Lab, seed: int) -> str:
        """Train it, resume an earlier try, or find it done."""
        run = self.run_in(lab, seed)
        return lab.train(self.key(lab, seed), run, dev=self.dev(lab, run))

    def _other_text(self, lab: Lab, corpus: str) -> Path:
        return lab.corpora.prepare(corpus, most=self.limit(lab.scale))

    def _scaled(self, scale: Scale, *, encoder: str | None, seed: int, device: str) -> Run:
        kept = {"keeps_batch": self.keeps_batch, "keeps_pooler": self.keeps_pooler}
        return scale_run(self.run, scale, encoder=encoder, seed=seed, device=device, **kept)


@dataclass(frozen=True, kw_only=True)
class Baseline(Training):
    """Another paper's method, trained here."""

    baseline: str
    start: ModelSpec = Raw()

    @property
    def inner(self) -> ModelSpec:
        """What it starts from."""
        return self.start

    def passes(self, scale: Scale) -> int:
        """Estimate how many sentences its training sends through the encoder."""
        if self.baseline == "ct" and scale.steps is None:
            return CT_STEPS * 2 * (1 + 8)  # two anchors a step, each with eight candidates
        return super().passes(scale)

    def run_in(self, lab: Lab, seed: int) -> Run:
        """Return the run as a lab trains it, without the model that it starts from."""
        run = Run(
            method=self.baseline,
            data=str(self.text(lab)),
            skip_bad_rows=CORPORA[self.corpus].blank_lines,
            seed=seed,
            device=lab.device,
        )
        if lab.precision is not None and self.baseline in USERS["precision"]:  # InferSent's LSTM knows only fp32
            run = run.replace(precision=lab.precision)
        return scale_baseline(run, lab.scale)

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return its run, what it starts from, and the hash of its corpus."""
        run, start = run_description(self.run_in(lab, seed)), self.start.description(lab, seed)
        return {"run": run, "start": start, "corpus": sha256(self.text(lab)), "dev": lab.dev_content}

    def source(self, lab: Lab, seed: int) -> str:
        """Train it, resume an earlier try, or find it done."""
        run = self.run_in(lab, seed).replace(model=self.start.source(lab, seed))
        return lab.train(self.key(lab, seed), run, dev=lab.dev)


@dataclass(frozen=True, kw_only=True)
class Pooled(ModelSpec):
    """A trained model with another pooler than it was trained with."""

    of: Training
    pooler: str

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return the training and the pooler."""
        return {"of": self.of.description(lab, seed), "pooler": self.pooler}

    def open(self, lab: Lab, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Load the trained model with the pooler."""
        return lab.open(self.of.source(lab, seed), pooler=self.pooler)


@dataclass(frozen=True, kw_only=True)
class Fitted(ModelSpec):
    """A model with a layer fitted to its vectors: of NLI sentences, or of the sentences that it is evaluated on."""

    of: ModelSpec
    layer: Literal["whitening", "flow"]
    on: Literal["nli", "target"]

    @property
    def is_random(self) -> bool:
        """A flow starts at random; whitening does not."""
        return self.layer == "flow" or self.of.is_random

    @property
    def fitted_to_target(self) -> bool:
        """Whether the layer is fitted on target."""
        return self.on == "target"

    def corpora(self, scale: Scale) -> Iterator[tuple[str, int | None]]:
        """Yield the NLI sentences, if the layer is fitted to them."""
        if self.on == "nli":
            yield "nli-sentences", scale.fitting_sentences

    def description(self, lab: Lab, seed: int) -> dict[str, Any]:
        """Return the inner model, the layer, and what it is fitted to."""
        texts = "target, all splits" if self.on == "target" else sha256(_nli_sentences(lab))
        return {"of": self.of.description(lab, seed), "layer": self.layer, "on": texts, "seed": seed}

    def open(self, lab: Lab, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Load the inner model, and fit the layer or find it fitted."""
        from twinpass.encoder.layers import FITS, apply_layer, kept_layer

        base = self.of.open(lab, seed)
        if self.on == "nli":
            texts = _nli_sentences(lab).read_text("utf-8").splitlines()
        key = key_of([self.key(lab, seed), key_of(list(texts))])

        def encode(texts: Sequence[str]) -> NDArray[np.float32]:
            return encode_once(base, texts, cache=lab.cache)(texts)

        with lab.store.locked(key):
            layer = kept_layer(lab.store.layer(key), lambda: FITS[self.layer](encode(texts), seed=seed))
        return Model(f"{base.name} + {self.layer} ({self.on})", lambda texts: apply_layer(layer, encode(texts)))


def _nli_sentences(lab: Lab) -> Path:
    """Return the file of NLI sentences, of all labels equally, that a layer is fitted to."""
    return lab.corpora.sized(lab.scale.fitting_sentences).prepare("nli-sentences")


# The sums of the paper's equations run over the whole batch, duplicates included.
_PAPERS: dict[str, object] = {"model": BERT, "keep_duplicates": True}


def unsupervised(corpus: str = "wiki", **changes: object) -> Trained:
    """Unsupervised SimCSE of BERT-base as in Table A.1, with some fields changed."""
    return Trained(run=UNSUP.replace(**_PAPERS | {"pooler": "cls_mlp_train"} | changes), corpus=corpus)


def supervised(corpus: str = "nli-triplets", **changes: object) -> Trained:
    """Supervised SimCSE of BERT-base as in Table A.1, with some fields changed."""
    return Trained(run=SUP.replace(**_PAPERS | {"pooler": "cls_mlp"} | changes), corpus=corpus)

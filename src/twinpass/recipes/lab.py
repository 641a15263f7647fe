"""The laboratory: makes what a subject describes, and gives it as a model that encodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinpass.config import Run
from twinpass.encoder.any_model import Model, open_model
from twinpass.encoder.runtime import choose_device, mixed_precision
from twinpass.encoder.vector_cache import Cache, encode_once
from twinpass.errors import ConfigError, InputError
from twinpass.evaluation.dev import ScoredPairs, read_dev
from twinpass.evaluation.evaluate import make_jobs
from twinpass.evaluation.jobs import Job, Settings
from twinpass.evaluation.reading import find_root
from twinpass.files import sha256
from twinpass.log import OnEvent
from twinpass.provenance import provenance
from twinpass.recipes.corpora import Corpora
from twinpass.recipes.makers import CORPORA
from twinpass.recipes.scales import Scale, scale_baseline, scale_run
from twinpass.recipes.store import Store, describe, key_of
from twinpass.recipes.subjects import Baseline, Fitted, Pooled, Raw, Subject, Trained, Words
from twinpass.text.bare import bare
from twinpass.training.loop import train

Vectors = NDArray[np.float32]
# Fields of a run that do not shape its weights, or by the content of its corpus, which is in the key.
SAID_ELSEWHERE = ("output", "data", "skip_bad_rows", "device")

CACHE = 24 << 30  # bytes: at the paper's scale the vectors of NLI's sentences by four encoders
RESAMPLES = 100  # intervals over seeds say more here than those over pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lab:
    """Where a reproduction reads and writes, how big it is, and who watches."""

    scale: Scale
    data: Path
    output: Path
    encoder: str | None = None
    device: str = "auto"
    wordnet: str | None = None
    log: Callable[[str], None] = lambda line: None
    on_event: OnEvent | None = None

    @cached_property
    def store(self) -> Store:
        """What was already made."""
        return Store(self.output)

    @cached_property
    def reports(self) -> Path:
        """The folder of reports: one for each scale and encoder, so that none stands in the place of another."""
        name = f"-{Path(self.encoder).name}" if self.encoder and self.scale.own_encoder else ""
        return self.output / "reports" / f"{self.scale.name}{name}"

    @cached_property
    def corpora(self) -> Corpora:
        """The text to train on."""
        # A folder of its own for each source and size: another scale or data folder must not find this one's rows.
        cut = key_of([str(self.data.resolve()), self.scale.rows])[:8]
        folder = self.output / "data" / f"{self.scale.name}-{cut}"
        return Corpora(self.data, folder, rows=self.scale.rows, log=self.log)

    @cached_property
    def cache(self) -> Cache:
        """Vectors by model and text: a layer is fitted to, and judged on, vectors that are there already."""
        return Cache(self.store.folder / "vectors.sqlite", max_bytes=CACHE)

    @cached_property
    def senteval(self) -> Path:
        """The folder of the evaluation sets."""
        return self.corpora.find("senteval")[0]

    @cached_property
    def dev(self) -> ScoredPairs:
        """STS-B's development set."""
        path = find_root(self.senteval) / "STS" / "STSBenchmark" / "sts-dev.csv"
        found = read_dev(path, name="STS-B dev")
        if not isinstance(found, ScoredPairs):
            raise InputError(f"{path} has no scores; STS-B's own file is wanted.")
        return found

    @cached_property
    def encoder_content(self) -> str | None:
        """What the files of the given encoder hold, in short; an encoder that changed under its name is refused."""
        if self.encoder is None or not self.scale.own_encoder or not Path(self.encoder).is_dir():
            return None
        files = sorted(path for path in Path(self.encoder).iterdir() if path.is_file())
        content = key_of([[path.name, sha256(path)] for path in files])
        self.store.recognise(self.encoder, content)
        return content

    def jobs(self, tasks: str, *, regressor: bool = False) -> list[Job]:
        """Return the evaluation tasks of a group, read once."""
        if (tasks, regressor) not in self._jobs:
            settings = Settings(
                data=self.senteval,
                protocol=self.scale.transfer_protocol,
                most=self.scale.judged_rows,
                regressor=regressor,
                resamples=RESAMPLES,
            )
            self._jobs[tasks, regressor] = make_jobs(tasks, settings)
        return self._jobs[tasks, regressor]

    @cached_property
    def _jobs(self) -> dict[tuple[str, bool], list[Job]]:
        return {}

    def key(self, subject: Subject, seed: int) -> str:
        """Return the key of a subject at this scale: of all that shapes its vectors."""
        return key_of(self._description(subject, seed))

    def _description(self, subject: Subject, seed: int) -> dict[str, Any]:
        if isinstance(subject, Trained):
            return {
                "run": self._shaping(subject, seed),
                "corpus": sha256(self.corpora.prepare(subject.corpus, most=subject.most)),
            }
        if isinstance(subject, Baseline):
            start = self._encoder(subject) if subject.start is None else self._description(subject.start, seed)
            run = describe(self._baseline_run(subject, seed))
            return {
                "run": {name: value for name, value in run.items() if name not in (*SAID_ELSEWHERE, "model")},
                "start": start,
                "corpus": sha256(self.corpora.prepare(subject.corpus)),
            }
        if isinstance(subject, Fitted):
            texts = "target, all splits" if subject.on == "target" else sha256(self._fitting_text)
            inner = self._description(subject.of, seed)
            return {"of": inner, "layer": subject.layer, "on": texts, "seed": seed}
        if isinstance(subject, Pooled):
            return {"of": self._description(subject.of, seed), "pooler": subject.pooler}
        described: dict[str, Any] = describe(subject)
        return described | {"encoder_used": self._encoder(subject)}

    def _shaping(self, subject: Trained, seed: int) -> dict[str, Any]:
        """Return a run's fields that shape its weights; a default is left out, so that a new option changes no key."""
        run, usual = describe(self._run(subject, seed)), describe(Run())
        return {n: v for n, v in run.items() if n not in SAID_ELSEWHERE and v != usual.get(n)}

    def model(self, subject: Subject, seed: int, *, texts: Sequence[str] = ()) -> Model:
        """Make what the subject describes and return it; `texts` are what a layer on target is fitted to."""
        if isinstance(subject, Trained):
            return self._open(self._trained(subject, seed))
        if isinstance(subject, Baseline):
            return self._open(self._baseline(subject, seed))
        if isinstance(subject, Fitted):
            return self._fitted(subject, seed, texts)
        if isinstance(subject, Pooled):
            return self._open(self._start(subject.of, seed), pooler=subject.pooler)
        if isinstance(subject, Words):
            return open_model(str(self.corpora.find(subject.vectors)[0]))
        return self._open(self._encoder(subject), pooler=subject.pooler)

    def folder(self, subject: Trained, seed: int) -> Path:
        """Return the output folder of a training, which holds its log."""
        return self._trained(subject, seed)

    def captions(self) -> list[str]:
        """Return the distinct captions that Table 8 looks in, those that the paper's models found before the others."""
        from twinpass.recipes.tables.table_8 import PAPER_ANSWERS
        from twinpass.text.captions import read_captions

        (path,) = self.corpora.find("flickr")
        texts = dict.fromkeys(text for image in read_captions(path).values() for text in image)
        theirs = {bare(text) for rows in PAPER_ANSWERS.values() for answers in rows.values() for text in answers}
        return sorted(texts, key=lambda text: bare(text) not in theirs)[: self.scale.captions]

    def _open(self, name: str | Path, *, pooler: str | None = None) -> Model:
        return open_model(str(name), pooler=pooler, device=self.device)

    def _encoder(self, subject: Raw | Baseline | Words) -> str:
        if isinstance(subject, Words):
            return str(self.corpora.find(subject.vectors)[0])
        if isinstance(subject, Baseline) and subject.baseline == "infersent":
            return str(self.corpora.find("glove")[0])
        return self.scale.encoder_for(subject.encoder, self.encoder)

    def _run(self, subject: Trained, seed: int) -> Run:
        run = scale_run(
            subject.run,
            self.scale,
            encoder=self.encoder,
            seed=seed,
            device=self.device,
            keeps_batch=subject.keeps_batch,
        )
        if run.positive == "synonym":
            run = run.replace(wordnet=self.wordnet)
        if not self.scale.own_encoder:  # as the paper's authors trained
            run = run.replace(precision=mixed_precision(choose_device(self.device)))
        data = str(self.corpora.prepare(subject.corpus, most=subject.most))
        return run.replace(data=data, skip_bad_rows=CORPORA[subject.corpus].parted)

    def _trained(self, subject: Trained, seed: int) -> Path:
        """Train, go on where an earlier try stopped, or find it done."""
        run, key = self._run(subject, seed), self.key(subject, seed)
        folder = self.store.model(key)
        with self.store.locked(key):
            if not self.store.is_finished(key):
                # Below the paper's scale there is one look, at the end; a tracked run is looked at as it goes.
                judged = self.dev if not self.scale.own_encoder or run.track_geometry else None
                run = run.replace(output=str(folder))
                result = train(run, evaluate=judged, on_event=self.on_event, resume=True)
                if not result.finished:
                    raise KeyboardInterrupt
                facts = {"run": describe(run), "result": describe_result(result)}
                self.store.finish(key, provenance(options=facts))
                if result.interrupted:  # in the last step: the model is complete, and the next one must not start
                    raise KeyboardInterrupt
        return folder

    def _baseline(self, subject: Baseline, seed: int) -> Path:
        key = self.key(subject, seed)
        folder = self.store.model(key)
        start = self._encoder(subject) if subject.start is None else str(self._start(subject.start, seed))
        with self.store.locked(key):
            if not self.store.is_finished(key):
                run = self._baseline_run(subject, seed).replace(model=start, output=str(folder))
                result = train(run, evaluate=self.dev, on_event=self.on_event, resume=True, overwrite=True)
                if not result.finished:
                    raise KeyboardInterrupt
                facts = {"run": describe(run), "result": describe_result(result)}
                self.store.finish(key, provenance(options=facts))
                if result.interrupted:  # in the last step: the model is complete, and the next one must not start
                    raise KeyboardInterrupt
        return folder

    def _baseline_run(self, subject: Baseline, seed: int) -> Run:
        run = Run(
            method=subject.baseline,
            data=str(self.corpora.prepare(subject.corpus)),
            skip_bad_rows=CORPORA[subject.corpus].parted,
            seed=seed,
            device=self.device,
        )
        return scale_baseline(run, self.scale)

    def _start(self, subject: Subject, seed: int) -> Path:
        if isinstance(subject, Trained):
            return self._trained(subject, seed)
        if isinstance(subject, Baseline):
            return self._baseline(subject, seed)
        raise ConfigError(f"a baseline cannot start from {type(subject).__name__}.")

    def _fitted(self, subject: Fitted, seed: int, texts: Sequence[str]) -> Model:
        from twinpass.encoder.postprocess import FITS, apply_layer, kept_layer

        base = self.model(subject.of, seed)
        if subject.on == "nli":
            texts = self._fitting_text.read_text("utf-8").splitlines()
        key = key_of([self.key(subject, seed), key_of(list(texts))])
        with self.store.locked(key):
            layer = kept_layer(
                self.store.layer(key), lambda: FITS[subject.layer](self._vectors(base, texts), seed=seed)
            )
        name = f"{base.name} + {subject.layer} ({subject.on})"
        return Model(name, lambda wanted: apply_layer(layer, self._vectors(base, wanted)))

    @property
    def _fitting_text(self) -> Path:
        """The NLI sentences, of every label alike, that a layer is fitted to."""
        return self.corpora.sized(self.scale.fitting_sentences).prepare("nli-sentences")

    def _vectors(self, base: Model, texts: Sequence[str]) -> Vectors:
        return encode_once(base, texts, cache=self.cache)(texts)


def describe_result(result: Any) -> dict[str, Any]:
    """Return what a training came to, as JSON takes it."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in vars(result).items()}

"""The laboratory: where a reproduction reads and writes, and how its models are trained and opened."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path

from twinpass.config import Run
from twinpass.encoder.any_model import Model, open_model
from twinpass.encoder.vector_cache import Cache
from twinpass.errors import InputError
from twinpass.evaluation.dev import ScoredPairs, read_dev
from twinpass.evaluation.evaluate import Job, Settings, make_jobs
from twinpass.evaluation.reading import find_root
from twinpass.files import sha256
from twinpass.log import OnEvent
from twinpass.progress import Log, ignore
from twinpass.recipes.corpora import Corpora
from twinpass.recipes.scales import SCALES, Scale
from twinpass.recipes.store import Store, key_of

CACHE = 24 << 30  # bytes: at the paper's scale the vectors of NLI's sentences by four encoders
RESAMPLES = 100  # few: deviations over seeds say more here than intervals over pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lab:
    """The folders, scale, encoder and device of a reproduction, and who watches it."""

    scale: Scale
    data: Path
    output: Path
    encoder: str | None = None
    device: str = "auto"
    precision: str | None = None  # of trainings; None: fp32, and at the paper's scale what the device has
    wordnet: str | None = None
    trust_pickle: bool = False
    log: Log = ignore
    on_event: OnEvent | None = None

    @cached_property
    def store(self) -> Store:
        """What was already made."""
        return Store(self.output)

    @cached_property
    def reports(self) -> Path:
        """The folder of reports: one for each scale, steps, precision and encoder, so that none overwrites another."""
        name = f"-{Path(self.encoder).name}" if self.encoder and self.scale.own_encoder else ""
        steps = f"-{self.scale.steps}-steps" if self.scale.steps != SCALES[self.scale.name].steps else ""
        precision = f"-{self.precision}" if self.precision else ""
        return self.output / "reports" / f"{self.scale.name}{steps}{precision}{name}"

    @cached_property
    def corpora(self) -> Corpora:
        """The text to train on."""
        # A folder for each data folder and size: another scale or data folder must not find these rows.
        cut = key_of([str(self.data.resolve()), self.scale.rows])[:8]
        folder = self.output / "data" / f"{self.scale.name}-{cut}"
        return Corpora(self.data, folder, rows=self.scale.rows, log=self.log)

    @cached_property
    def cache(self) -> Cache:
        """Vectors by model and text: a layer is fitted to, and evaluated on, vectors that are there already."""
        return Cache(self.store.folder / "vectors.sqlite", max_bytes=CACHE)

    @cached_property
    def senteval(self) -> Path:
        """The folder of the evaluation sets."""
        return self.corpora.find("senteval")[0]

    @cached_property
    def dev(self) -> ScoredPairs:
        """STS-B's development set, cut to the rows that the scale evaluates."""
        return self._stsb("dev")

    @cached_property
    def stsb(self) -> ScoredPairs:
        """All of STS-B, the data of Figures 2, 3, F.1 and G.1: 1,491 of its pairs are positives."""
        return self._stsb("train", "dev", "test")

    @cached_property
    def tracked_dev(self) -> ScoredPairs:
        """The development set, with alignment and uniformity over the splits that the scale tracks."""
        over = self.stsb if self.scale.tracked == "all" else None
        return ScoredPairs(self.dev.pairs, self.dev.gold, source="STS-B dev", geometry_over=over)

    def _stsb(self, *splits: str) -> ScoredPairs:
        pairs: list[tuple[str, str]] = []
        gold: list[float] = []
        for split in splits:
            path = find_root(self.senteval) / "STS" / "STSBenchmark" / f"sts-{split}.csv"
            found = read_dev(path)
            if not isinstance(found, ScoredPairs):
                raise InputError(f"{path} has no scores; expected the file of STS-B.")
            pairs += found.pairs[: self.scale.evaluated_rows]
            gold += found.gold[: self.scale.evaluated_rows]
        return ScoredPairs(pairs, gold, source=f"STS-B {', '.join(splits)}")

    @cached_property
    def encoder_content(self) -> str | None:
        """A hash of the given encoder's files; an encoder that changed under its name is refused."""
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
                max_rows=self.scale.evaluated_rows,
                regressor=regressor,
                resamples=RESAMPLES,
            )
            self._jobs[tasks, regressor] = make_jobs(tasks, settings)
        return self._jobs[tasks, regressor]

    @cached_property
    def _jobs(self) -> dict[tuple[str, bool], list[Job]]:
        return {}

    def open(self, source: str, *, pooler: str | None = None) -> Model:
        """Return a model that encodes on the lab's device."""
        return open_model(source, pooler=pooler, device=self.device, trust_pickle=self.trust_pickle)

    def train(self, key: str, run: Run, *, dev: ScoredPairs | None) -> str:
        """Train a run, resume an earlier try, or find it done; return the model's folder."""
        from twinpass.training.loop import train

        folder = str(self.store.model(key))
        with self.store.locked(key):
            if not self.store.is_finished(key):
                run = run.replace(output=folder)
                result = train(run, evaluate=dev, on_event=self.on_event, resume=True, overwrite=True)
                if not result.finished:
                    raise KeyboardInterrupt
                self.store.finish(key, result.to_dict())
                if result.interrupted:  # in the last step: the model is complete, and the next one must not start
                    raise KeyboardInterrupt
        return folder

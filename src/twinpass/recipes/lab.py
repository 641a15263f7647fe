"""The laboratory: where a reproduction reads and writes, and how its models are trained and opened."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path

from twinpass.config import Run
from twinpass.encoder.any_model import Model, open_model
from twinpass.encoder.folder import hash_folder, hash_weights, path_of, weight_files
from twinpass.encoder.load import find_folder
from twinpass.encoder.vector_cache import Cache
from twinpass.errors import InputError
from twinpass.evaluation.dev import ScoredPairs, read_dev
from twinpass.evaluation.evaluate import Job, Settings, make_jobs
from twinpass.evaluation.reading import find_root
from twinpass.evaluation.tasks import choose
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
    released: bool = False  # whether checkpoints of the authors' are evaluated, and nothing is trained
    log: Log = ignore
    on_event: OnEvent | None = None

    @cached_property
    def store(self) -> Store:
        """What was already made."""
        return Store(self.output)

    @cached_property
    def reports(self) -> Path:
        """The folder of reports: one for each scale, steps, splits tracked, precision and name of an encoder."""
        name = f"-{Path(self.encoder).name}" if self.encoder and self.scale.own_encoder else ""
        steps = f"-{self.scale.steps}-steps" if self.scale.steps != SCALES[self.scale.name].steps else ""
        tracked = f"-track-{self.scale.tracked}" if self.scale.tracked != SCALES[self.scale.name].tracked else ""
        how = "-released" if self.released else f"-{self.precision}" if self.precision else ""
        return self.output / "reports" / f"{self.scale.name}{steps}{tracked}{how}{name}"

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

    def encoder_content(self, source: str) -> str:
        """Return a hash of an encoder, by which keys know it: of its folder's files, or of a hub model's weights."""
        if source not in self.contents:
            folder = self.folder_of(source)
            # The hub's cache may gain files that are not read.
            local = folder == path_of(source)
            self.contents[source] = hash_folder(folder) if local else f"{source} {hash_weights(folder)}"
        return self.contents[source]

    def folder_of(self, source: str) -> Path:
        """Return the folder of an encoder or a checkpoint; one on the hub is downloaded if need be."""
        return find_folder(source, trust_pickle=self.trust_pickle)

    def state_weights(self, name: str, pooler: str | None, source: str) -> str:
        """Return how a report states a checkpoint: its name, its pooler and the SHA-256 of its weights."""
        if source not in self._weights:
            first, *others = weight_files(folder := self.folder_of(source))
            digest = hash_weights(folder) if others else sha256(first)
            self._weights[source] = f"sha256 of {first.name}{' and the other shards' * bool(others)} {digest}"
        return f"{name}, pooler {pooler}, {self._weights[source]}"

    def evaluation_content(self, tasks: str) -> dict[str, str]:
        """Return the SHA-256 of each file of some evaluation tasks that is there; `flickr` is the captions."""
        if tasks not in self._evaluation_contents:
            files = {}
            if tasks == "flickr":
                files = {path.name: path for path in self.corpora.find("flickr")}
            elif tasks:
                root = find_root(self.senteval)
                files = {name: root / name for task in choose(tasks) for part in task.parts for name in part.files}
            found = {name: sha256(path) for name, path in files.items() if path.is_file()}
            self._evaluation_contents[tasks] = found
        return self._evaluation_contents[tasks]

    @property
    def dev_content(self) -> str:
        """The hash of STS-B's development set, on which the best checkpoint is chosen; `dev` says if it is missing."""
        return self.evaluation_content("STS-B").get("STS/STSBenchmark/sts-dev.csv", "")

    @cached_property
    def contents(self) -> dict[str, str]:
        """The hash of every encoder that was used so far, by its folder or hub name."""
        return {}

    @cached_property
    def _weights(self) -> dict[str, str]:
        return {}

    @cached_property
    def _evaluation_contents(self) -> dict[str, dict[str, str]]:
        return {}

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

"""Is every file of an index what was written? `twinpass index verify` reads them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twinpass.display import Displayed, Grid
from twinpass.errors import InputError
from twinpass.search.checksums import damage
from twinpass.search.engines.approximate import EXACT
from twinpass.search.manifest import ENGINE, FILE, Manifest, Part, check_is_index, read_manifest, stamp
from twinpass.search.segment import Segment
from twinpass.search.snapshot import ATTEMPTS, read_removed

OK, UNKNOWN, DAMAGED = "ok", "no checksum", "damaged"


@dataclass(frozen=True)
class Verdict:
    """What was found out about one file: ok, damaged, or no checksum (nothing wrong was found)."""

    file: str
    state: str
    bytes: int | None = None
    problem: str = ""


@dataclass(frozen=True, repr=False)
class Verification(Displayed):
    """The state of every file of an index; `whole` if none is damaged."""

    index: str
    files: Sequence[Verdict]

    @property
    def damaged(self) -> list[Verdict]:
        """The files that are not what was written."""
        return [each for each in self.files if each.state == DAMAGED]

    @property
    def whole(self) -> bool:
        """Whether no file is damaged."""
        return not self.damaged

    def check(self) -> None:
        """Raise InputError that names every damaged file."""
        if found := self.damaged:
            listed = "\n".join(each.problem for each in found)
            raise InputError(f"{self.index}: {len(found)} of {len(self.files)} files are damaged.\n{listed}")

    def to_dict(self) -> dict[str, object]:
        """Return the states as JSON can hold them."""
        return super().to_dict() | {"whole": self.whole, "damaged": len(self.damaged)}

    def records(self) -> list[dict[str, object]]:
        """Return one dictionary per file."""
        return [vars(each).copy() for each in self.files]

    def grids(self) -> Sequence[Grid]:
        """Return one row per file."""
        rows = [(each.file, "" if each.bytes is None else f"{each.bytes:,}", each.state) for each in self.files]
        notes = []
        if any(each.state == UNKNOWN for each in self.files):
            notes.append(
                "no checksum: an earlier version wrote it. Texts, ids and lengths of vectors were checked. "
                f"To record checksums: twinpass index compact {self.index}"
            )
        return [Grid("", ("file", "bytes", "state"), rows, notes=notes, words=("state",))]


def verify_folder(folder: Path) -> Verification:
    """Read every file of an index and compare it with its checksum; an index that is being changed is read again."""
    check_is_index(folder)
    for _ in range(ATTEMPTS):
        before = stamp(folder)
        found = Verification(str(folder), _verdicts(folder))
        if found.whole or stamp(folder) == before:
            break
    return found


def _verdicts(folder: Path) -> list[Verdict]:
    try:
        manifest = read_manifest(folder)
    except InputError as error:
        return [Verdict(FILE, DAMAGED, problem=str(error))]
    found = [Verdict(FILE, OK, (folder / FILE).stat().st_size)]
    for part in manifest.parts:
        found += _verdicts_of(folder, part, manifest)
    if manifest.removed is not None:
        known = manifest.removed_file is not None
        found.append(_verdict(folder, folder / manifest.removed, partial(read_removed, folder, manifest), known=known))
    return found


def _verdicts_of(folder: Path, part: Part, manifest: Manifest) -> list[Verdict]:
    place = folder / part.name
    if part.files:
        return [
            _verdict(folder, place / name, partial(checksum.check, place / name), known=True)
            for name, checksum in part.files.items()
        ]

    def check() -> None:
        Segment(place, part, dimensions=manifest.dimensions).check()

    found = [_verdict(folder, place, check, known=False)]
    if part.kind != EXACT:
        found.append(_verdict(folder, place / ENGINE, lambda: (place / ENGINE).stat(), known=False))
    return found


def _verdict(folder: Path, path: Path, check: Callable[[], object], *, known: bool) -> Verdict:
    name = path.relative_to(folder).as_posix()
    try:
        check()
        size = path.stat().st_size if path.is_file() else None
    except FileNotFoundError:
        return Verdict(name, DAMAGED, problem=damage(path, "it is missing"))
    except OSError as error:
        return Verdict(name, DAMAGED, problem=damage(path, f"it cannot be read ({error.strerror or error})"))
    except InputError as error:
        return Verdict(name, DAMAGED, problem=str(error))
    return Verdict(name, OK if known else UNKNOWN, size)

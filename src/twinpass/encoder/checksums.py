"""The checksums of a saved model folder: a file SHA256SUMS, as `sha256sum -c` reads it too.

Weights carry no checksum of their own, and one flipped bit in them is another model. So a folder that is saved here
lists its files, and loading it compares them. Other weights than those that were saved are refused. The other files
are meant to be read and edited, so a change in them is only a warning.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from twinpass.errors import ModelError
from twinpass.files import sha256

FILE = "SHA256SUMS"
_WEIGHTS = (".safetensors", ".bin")


def write_checksums(folder: Path) -> None:
    """List every file of a folder that was just written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != FILE)
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / FILE).write_text("".join(lines), encoding="utf-8")


def check_checksums(folder: Path) -> None:
    """Refuse weights that are not those which were saved, and warn of other files that were changed."""
    path = folder / FILE
    if not path.is_file():
        return
    changed = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        place = folder / name
        inside = name and "\0" not in name and place.resolve().is_relative_to(folder.resolve())
        if inside and place.is_file() and sha256(place) != digest:
            changed.append(name)
    if damaged := [name for name in changed if name.endswith(_WEIGHTS)]:
        raise ModelError(
            f"{folder / damaged[0]} is not the file that was saved: its SHA-256 is not the one in {FILE}. It is "
            "damaged, or another program has written it. Copy or save the model again; if the change is wanted, "
            f"delete {path}."
        )
    if changed:
        warnings.warn(
            f"{', '.join(changed[:3])} in {folder}: changed since the model was saved, by hand or by damage, so "
            f"vectors may differ. If the change is wanted, delete {path}.",
            stacklevel=2,
        )

"""A WordNet of a few senses, made when a test asks for one."""

from __future__ import annotations

from pathlib import Path

PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
SENSES = {
    "noun": [["cat", "true_cat", "Felis_domesticus"], ["angstrom", "a"], ["rug", "mat"]],
    "verb": [["run", "hasten", "race"], ["run", "operate"]],
    "adj": [["big", "large"]],
    "adv": [],
}
IRREGULAR = {"verb": "ran run\n"}


def write_wordnet(folder: Path) -> Path:
    """Write files in WordNet's own format (wndb(5WN)): senses at byte offsets, and an index of the words."""
    folder.mkdir(parents=True)
    for part, letter in PARTS.items():
        data, index = "  1 a licence\n", {}
        for words in SENSES[part]:
            offset = len(data)
            spoken = " ".join(f"{word} 0" for word in words)
            data += f"{offset:08d} 03 {letter} {len(words):02x} {spoken} 000 | a gloss  \n"
            for word in words:
                index.setdefault(word.lower(), []).append(f"{offset:08d}")
        lines = [f"{w} {letter} {len(o)} 0 {len(o)} 0 {' '.join(o)}  \n" for w, o in sorted(index.items())]
        (folder / f"data.{part}").write_text(data)
        (folder / f"index.{part}").write_text("  1 a licence\n" + "".join(lines))
        (folder / f"{part}.exc").write_text(IRREGULAR.get(part, ""))
    return folder

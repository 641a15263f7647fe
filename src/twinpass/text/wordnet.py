"""Synonyms from WordNet's files, read by nltk; nothing is downloaded.

The files are looked for in the folder that the user names, else in nltk's data folders (corpora/wordnet, a folder or
a zip), else where Debian's package wordnet-base puts them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from twinpass.errors import InputError, MissingExtra
from twinpass.files import with_home

SYSTEM = Path("/usr/share/wordnet")
FILES = tuple(f"{kind}.{part}" for part in ("adj", "adv", "noun", "verb") for kind in ("data", "index"))
EXCEPTIONS = tuple(f"{part}.exc" for part in ("adj", "adv", "noun", "verb"))
# Function words; WordNet has them in another sense only (a: angstrom, he: helium).
FUNCTION_WORDS = frozenset(
    """
    a am an are as at be been being but by can could did do does for had has have he her his i if in is it its
    may me might must my no not of on or our she should so than that the their them they this to us was we were
    what who will with would you your
    """.split()  # noqa: SIM905 -- a list would be sixty lines
)


class WordNet:
    """The dictionary under a root, a folder or zip as nltk names it."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.synonyms = lru_cache(1 << 16)(self._look_up)

    def fingerprint(self) -> str:
        """Return a SHA-256 of the dictionary's files."""
        digest = hashlib.sha256()
        for name in (*FILES, *EXCEPTIONS):
            with self.root.join(name).open() as stream:
                digest.update(hashlib.sha256(stream.read()).digest())
        return digest.hexdigest()

    def _look_up(self, word: str) -> tuple[str, ...]:
        """Return every other word that shares a sense with this one, sorted; underscores become spaces."""
        if word.lower() in FUNCTION_WORDS:
            return ()
        # "dog" is not a synonym of "dogs", though WordNet lists "dogs" under it.
        itself = {word.lower(), *(self._reader.morphy(word.lower(), part) for part in "nvar")}
        names = {name for sense in self._reader.synsets(word) for name in sense.lemma_names()}
        return tuple(sorted(name.replace("_", " ") for name in names if name.lower() not in itself))

    @cached_property
    def _reader(self) -> Any:
        """nltk's reader, which takes a second or two to open the files."""
        from nltk.corpus.reader import WordNetCorpusReader

        class Reader(WordNetCorpusReader):  # type: ignore[misc]
            """Works without the files that synonyms do not need and that Debian's package lacks."""

            def open(self, file: str) -> Any:
                if file == "lexnames":  # the names of the lexicographers' files
                    return io.StringIO("".join(f"{number} lexicographer.{number} 0\n" for number in range(100)))
                return super().open(file)

            def map_wn(self, version: str = "wordnet") -> None:
                """Map no senses of other versions: that needs index.sense, and only other languages need it."""

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files of other languages, which are not needed
            return Reader(self.root, None)


def find_wordnet(named: str | None = None) -> WordNet:
    """Return the WordNet in the named folder, in nltk's data or in the system's folder; InputError if there is none."""
    try:
        import nltk.data
    except ImportError as error:
        raise MissingExtra("synonyms of WordNet", "augment") from error
    if named is not None:
        folder = with_home(named).resolve()
        if missing := next(_missing(folder), None):
            raise InputError(
                f"expected a folder of WordNet's files, got {folder}: it has no {missing}. Name the folder that has it."
            )
        return WordNet(_authorise(folder))
    for place in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        with contextlib.suppress(LookupError):
            return WordNet(nltk.data.find(place))
    if next(_missing(SYSTEM), None) is None:
        return WordNet(_authorise(SYSTEM))
    raise InputError(
        f"WordNet was found neither in nltk's data nor in {SYSTEM}. Install it (Debian: apt-get install "
        "wordnet-base), or name the folder of its files with --wordnet DIR."
    )


def _missing(folder: Path) -> Iterator[str]:
    return (name for name in (*FILES, *EXCEPTIONS) if not (folder / name).is_file())


def _authorise(folder: Path) -> Any:
    """Add a folder to those that nltk may read, and return nltk's name for it."""
    import nltk.data

    if str(folder) not in nltk.data.path:
        nltk.data.path.append(str(folder))
    return nltk.data.FileSystemPathPointer(str(folder))

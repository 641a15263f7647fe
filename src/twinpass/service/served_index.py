"""The served index: searched in a few threads, refreshed when others change it, and changed in one thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from twinpass.errors import InputError, ModelError, OutputError
from twinpass.search.index import Index
from twinpass.search.results import Added, Id
from twinpass.service.errors import Refusal
from twinpass.service.limits import Limits
from twinpass.service.served_model import Encoded, ServedModel
from twinpass.service.workers import Full, Workers

T = TypeVar("T")
LOG = logging.getLogger("uvicorn.error")

SEARCH_THREADS = 4


class ServedIndex:
    """An index and the model that encodes its queries."""

    def __init__(self, index: Index, model: ServedModel, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self.lock = threading.Lock()  # held while the index is refreshed, or read in more than one call
        self._index, self._changes, self._problem = index, 0, ""
        self._fingerprint = index.model["fingerprint"]
        self._searching = Workers(SEARCH_THREADS, name="searching", line=limits.max_searches)
        self._changing = Workers(1, name="changing", line=limits.max_changes)
        self.threads = (self._searching, self._changing)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return the result of work on the index; refuse it if too much waits already, or if the index is damaged."""
        try:
            return await self._searching.run(work)
        except Full:
            message = f"{self.limits.max_searches} searches are waiting already. Try again later."
            raise Refusal(503, message, code="search_busy", headers={"Retry-After": "1"}) from None
        except (InputError, OSError) as error:  # not the client's mistake, and the message names files of the server
            LOG.error("the index cannot be read: %s", error)
            message = "the index cannot be read. See the server's log."
            raise Refusal(500, message, code="index_damaged") from None

    def fresh(self) -> tuple[Index, object]:
        """Return the index with what others changed, and a version that changes with it; call it in a thread."""
        index = self._index
        with self.lock:
            try:
                self._changes += index.refresh()
                self._problem = ""
            except (InputError, OSError) as error:  # moved, deleted or damaged meanwhile: what is open stays readable
                if str(error) != self._problem:
                    LOG.warning("the index is served as it was before, because it cannot be read now: %s", error)
                self._problem = str(error)
            if index.model["fingerprint"] != self._fingerprint:
                message = "the index was rebuilt with another model. Restart the service."
                raise Refusal(503, message, code="index_changed")
            return index, (self._changes, len(index))

    def check_addable(self) -> None:
        """Refuse to add vectors of a model that only resembles the index's own: the export of it, say."""
        try:
            self._index.check_model(name=self.model.name, fingerprint=self.model.fingerprint)
        except ModelError:
            message = (
                "the index was built with another form of the served model, so texts cannot be added to it here. "
                "Serve the model itself."
            )
            raise Refusal(409, message, code="model_differs") from None

    async def add(
        self, texts: Sequence[str], encoded: Encoded, metadata: Sequence[Mapping[str, Any]] | None, *, unique: bool
    ) -> tuple[Added, int]:
        """Add texts with their vectors, all or nothing; return what was added, and how many texts there are now."""

        def add(index: Index) -> tuple[Added, int]:
            most = self.limits.max_texts
            if len(index) + len(texts) > most:
                message = f"the index holds {len(index):,} texts; with {len(texts):,} more it exceeds {most:,}."
                raise Refusal(413, f"{message} Remove some, or raise --max-texts.", code="index_full")
            columns = {*index.columns, *(column for each in metadata or () for column in each)}
            if len(columns) > self.limits.max_columns:
                message = f"the index would have {len(columns):,} metadata columns; at most {self.limits.max_columns}."
                raise Refusal(413, message, param="metadata", code="too_many_columns")
            added = index.add(texts, vectors=encoded.vectors, metadata=metadata, unique=unique)
            return added, len(index)

        return await self._change(add)

    async def remove(self, **chosen: Any) -> tuple[int, int]:
        """Remove texts, as Index.remove; return how many, and how many texts there are now."""

        def remove(index: Index) -> tuple[int, int]:
            if "ids" in chosen:
                chosen["ids"] = [as_id(index, each) for each in chosen["ids"]]
                try:
                    index.entries(chosen["ids"])
                except InputError:
                    raise no_text(*chosen["ids"]) from None
            removed = index.remove(**chosen)
            return removed, len(index)

        return await self._change(remove)

    async def _change(self, change: Callable[[Index], T]) -> T:
        """Change the index in its thread, one change after another, while searches go on."""

        def work() -> T:
            index, _ = self.fresh()
            done = change(index)
            with self.lock:
                self._changes += 1  # the index has refreshed itself
            return done

        try:
            return await self._changing.run(work)
        except InputError as error:
            if str(self._index.place) not in str(error):  # the client's mistake: a text without an id, for example
                raise
            raise self._unchangeable(error) from None
        except Full:
            message = f"{self.limits.max_changes} changes are waiting already. Try again later."
            raise Refusal(503, message, code="index_busy", headers={"Retry-After": "1"}) from None
        except (OutputError, OSError) as error:
            if isinstance(error, OutputError) and error.__cause__ is None:  # the index is locked
                message = "another process is changing the index. Try again later."
                raise Refusal(409, message, code="index_locked", headers={"Retry-After": "1"}) from None
            raise self._unchangeable(error) from None

    @staticmethod
    def _unchangeable(error: Exception) -> Refusal:
        """Log why the index cannot be changed, which names files of the server, and return the refusal."""
        LOG.error("the index cannot be changed: %s", error)
        return Refusal(500, "the index cannot be changed. See the server's log.", code="index_not_changed")


def as_id(index: Index, given: Id) -> Id:
    """Return an id as the index has it: a row's number, unless the index has an id column."""
    if index.id_column is not None or isinstance(given, int):
        return given
    if given.isascii() and given.isdigit() and len(given) < 19:
        return int(given)
    raise no_text(given)


def no_text(*ids: Id) -> Refusal:
    """Return the refusal of ids of which the index does not have all."""
    message = (
        f"the index has no text with the id {ids[0]!a}." if len(ids) == 1 else "the index has not all of these ids."
    )
    return Refusal(404, message, code="no_such_text")

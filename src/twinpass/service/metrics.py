"""What the service counts, for Prometheus; every app has a registry of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one service; the library adds `_total` to the names of counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests answered.", "method", "route", "status")
        self.seconds = Histogram(
            "twinpass_request_seconds", "From request to answer.", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.batches = Histogram(
            "twinpass_batch_texts", "Texts encoded together.", buckets=SIZES, registry=self.registry
        )
        self.encoding = self._counter("encoding_seconds", "Time spent encoding.")
        self.tokens = self._counter("tokens", "Tokens encoded, without padding.")
        self.texts = self._counter("texts", "Texts accepted.")
        self.shared = self._counter("texts_shared", "Texts that another request had already sent for encoding.")
        self.truncated = self._counter("texts_truncated", "Texts longer than the model reads.")
        self.dropped = self._counter("texts_dropped", "Texts not encoded because their client had gone.")

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"twinpass_{name}", meaning, labels, registry=self.registry)

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Add a number that is read whenever the metrics are."""
        Gauge(f"twinpass_{name}", meaning, registry=self.registry).set_function(read)

    def page(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return generate_latest(self.registry)

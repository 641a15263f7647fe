"""Counters in Prometheus's text format, without a dependency: three kinds, one page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counter:
    """A number that only grows, for each combination of labels."""

    kind = "counter"

    def __init__(self, name: str, meaning: str, *labels: str) -> None:
        self.name, self.meaning, self.labels = name, meaning, labels
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, amount: float = 1, *labels: str) -> None:
        """Count so many more under these labels."""
        self.values[labels] = self.values.get(labels, 0) + amount

    def lines(self) -> Iterator[str]:
        """Yield a line for each combination of labels met so far."""
        for labels, value in self.values.items():
            yield f"{self.name}{_braces(self.labels, labels)} {value:.15g}"


class Gauge:
    """A number that is asked for when somebody looks."""

    kind = "gauge"

    def __init__(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        self.name, self.meaning, self.read = name, meaning, read

    def lines(self) -> Iterator[str]:
        """Yield the number as it is now."""
        yield f"{self.name} {self.read():.15g}"


class Histogram:
    """How often something was at most so large, for each value of at most one label."""

    kind = "histogram"

    def __init__(self, name: str, meaning: str, edges: Sequence[float], *labels: str) -> None:
        self.name, self.meaning, self.edges, self.labels = name, meaning, edges, labels
        self.counts: dict[tuple[str, ...], list[int]] = {}
        self.sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Count one more of this size."""
        counts = self.counts.setdefault(labels, [0] * (len(self.edges) + 1))
        counts[bisect_left(self.edges, value)] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + value

    def lines(self) -> Iterator[str]:
        """Yield the cumulative buckets, the sum and the count of each combination of labels."""
        for labels, counts in self.counts.items():
            total = 0
            for edge, count in zip([*map(str, self.edges), "+Inf"], counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_braces((*self.labels, 'le'), (*labels, edge))} {total}"
            yield f"{self.name}_sum{_braces(self.labels, labels)} {self.sums[labels]:.15g}"
            yield f"{self.name}_count{_braces(self.labels, labels)} {total}"


class Metrics:
    """Everything the service counts."""

    def __init__(self) -> None:
        self.requests = Counter("twinpass_requests_total", "Requests answered.", "method", "route", "status")
        self.seconds = Histogram("twinpass_request_seconds", "From request to answer.", SECONDS, "route")
        self.batches = Histogram("twinpass_batch_texts", "Texts encoded together.", SIZES)
        self.encoding = Counter("twinpass_encoding_seconds_total", "Time spent encoding.")
        self.tokens = Counter("twinpass_tokens_total", "Tokens encoded, without padding.")
        self.texts = Counter("twinpass_texts_total", "Texts asked for.")
        self.shared = Counter("twinpass_texts_shared_total", "Texts that were on their way already.")
        self.truncated = Counter("twinpass_texts_truncated_total", "Texts longer than the model reads.")
        self.dropped = Counter("twinpass_texts_dropped_total", "Texts nobody waited for any more.")
        self.gauges: list[Gauge] = []

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Show this number too."""
        self.gauges.append(Gauge(name, meaning, read))

    def page(self) -> str:
        """Return everything as Prometheus reads it."""
        shown = [each for each in vars(self).values() if isinstance(each, (Counter, Histogram))]
        lines: list[str] = []
        for each in [*shown, *self.gauges]:
            lines += [f"# HELP {each.name} {each.meaning}", f"# TYPE {each.name} {each.kind}", *each.lines()]
        return "\n".join(lines) + "\n"


def _braces(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}" if names else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

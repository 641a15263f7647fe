"""How much the service takes on."""

from __future__ import annotations

from dataclasses import dataclass

from twinpass.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused, and what is waited for; the defaults suit a model of MiniLM's size on a CPU."""

    batch_tokens: int = 4_096  # encoded together: as Encoder does
    queue: int = 4_096  # texts accepted and not answered yet
    requests: int = 1_024  # requests read or answered at the same time
    inputs: int = 2_048  # texts in one request: OpenAI's own limit
    characters: int = 100_000  # of one text; a model reads a few thousand of them
    body: int = 4 << 20  # bytes
    cells: int = 250_000  # cosines in one answer
    seconds: float = 60.0  # from the request to its answer

    def __post_init__(self) -> None:
        if self.queue < self.inputs:
            raise ConfigError(
                f"a queue of {self.queue} texts can never take a request of {self.inputs}. "
                "Raise --max-queue, or lower --max-inputs."
            )

"""Which model a baseline leaves behind: the best by dev, or the last where there is no dev set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from twinpass.log import Evaluated, Scores
from twinpass.training.baselines.base import Baseline, Candidate
from twinpass.training.generators import keeping_states
from twinpass.training.watch import Evaluate, as_scores

NOTED = ("before", "best", "last", "best_step", "name")


class Keeper:
    """Scores a baseline's candidates and remembers the best one's weights."""

    def __init__(self, baseline: Baseline, evaluate: Evaluate | None) -> None:
        self.baseline = baseline
        self.evaluator = evaluate
        self.before: Scores = {}
        self.best: Scores = {}
        self.last: Scores = {}
        self.best_step: int | None = None
        self.name = list(baseline.candidates())[-1]
        self.weights: dict[str, Tensor] = {}

    def evaluate(self, step: int) -> Evaluated | None:
        """Score every candidate; the best of them stands for the step."""
        if self.evaluator is None:
            return None
        candidates = self.baseline.candidates()
        if step == 0:  # where they are still the same
            candidates = dict(list(candidates.items())[:1])
        scored = {name: self._score(candidate) for name, candidate in candidates.items()}
        name = max(scored, key=lambda each: _rank(scored[each]))
        gain = self._note(step, name, scored[name])
        return Evaluated(step=step, score=scored[name]["score"], scores=scored[name], best=gain)

    def memory(self) -> dict[str, Any]:
        """Return what was noted, without the weights."""
        return {name: getattr(self, name) for name in NOTED}

    def remember(self, memory: Mapping[str, Any], weights: dict[str, Tensor]) -> None:
        """Take back what `memory` returned, and the best weights."""
        for name in NOTED:
            setattr(self, name, memory[name])
        self.weights = weights

    def chosen(self) -> Candidate:
        """Return the candidate to keep, with the weights it was best with."""
        candidate = self.baseline.candidates()[self.name]
        if self.weights:
            candidate.model.load_state_dict(self.weights)
        return candidate

    def _note(self, step: int, name: str, scores: Scores) -> bool:
        if step == 0:
            self.before = scores
            return False
        self.last = scores
        gain = scores["score"] > self.best.get("score", -math.inf)
        if gain:
            self.best, self.best_step, self.name = scores, step, name
            model = self.baseline.candidates()[name].model
            self.weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        self.baseline.note_evaluation(gain=gain)
        return gain

    def _score(self, candidate: Candidate) -> Scores:
        """Ask the evaluator, and let nothing it draws at random touch the training."""
        if self.evaluator is None:
            return {}
        device = next(candidate.model.parameters()).device
        with keeping_states(device):
            return as_scores(self.evaluator(candidate.encode))


def _rank(scores: Scores) -> float:
    """Return a score to compare by: one that is no number is below all others."""
    return -math.inf if math.isnan(scores["score"]) else scores["score"]

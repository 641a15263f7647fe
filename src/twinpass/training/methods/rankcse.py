"""RankCSE (Liu et al., 2023): sentences are ranked by their likeness to each other as a teacher ranks them.

With S_ij = cos(h_i, h'_j) and S'_ij = cos(h'_i, h_j), the two passes rank the batch alike, and as the teacher does:

    consistency    mean over i of JS( softmax_j(S_ij / tau) || softmax_j(S'_ij / tau) )
    T_ij           cos(t_i, t_j) of the teacher's vectors; of two teachers a T1_ij + (1 - a) T2_ij
    listnet        mean over i of -sum_j softmax_j(T_ij / (tau2 / 2)) log softmax_j(S_ij / tau2)
    listmle        mean over i and k of -log( exp(S_ip(k) / tau2) / sum_m>=k exp(S_ip(m) / tau2) ),
                   p the order in which T_i. falls
    l              InfoNCE + beta * consistency + gamma * listmle (or listnet)

In the two lists that are distilled a sentence ranks the other sentences, itself left out (j != i): the teacher gives it
the cosine 1, which says nothing. Teachers do not change, read as many tokens as the student, and run without dropout.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

from twinpass.config import Run
from twinpass.encoder.encoder import Encoder
from twinpass.errors import ConfigError
from twinpass.text.rows import Rows
from twinpass.training.method import METHODS, Numbers, Start
from twinpass.training.methods.distill import Targets
from twinpass.training.methods.simcse import OfSentences


@METHODS.register("rankcse")
class RankCSE(OfSentences):
    """SimCSE whose two passes agree on a ranking of the batch, which is that of a teacher."""

    title = "RankCSE (Liu et al., 2023)"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        run = self.run
        names = teacher_names(run.teacher)
        self.objective = f"RankCSE (Liu et al.): the ranking of {' and '.join(names)} by {run.ranking}"
        self.weights = [1.0] if len(names) == 1 else [run.teacher_share, 1 - run.teacher_share]
        looks = (run.steps or self.schedule().steps_in(run.epochs)) * min(self.per_step, self.examples)
        self.targets = []
        digest = hashlib.sha256()
        for teacher in map(self._load_teacher, names):
            digest.update(teacher.fingerprint.encode())
            data = self.read_again(self.tokenizer(teacher))
            self.targets.append(Targets(teacher, data, self.processes, looks=looks))
        self.begins_with("teacher", " and ".join(names), digest)

    @classmethod
    def read(cls, run: Run, rows: Rows, *, model: str, device: torch.device) -> tuple[Run, Rows]:
        """Read every text as a sentence; a run without a teacher is refused before anything is loaded."""
        teacher_names(run.teacher)
        return super().read(run, rows, model=model, device=device)

    def compare(self, vectors: Tensor, mask: Tensor | None, step: int, examples: Numbers) -> Tensor:
        """Add the consistency of the two passes, and the teacher's ranking, to the contrastive loss."""
        run = self.run
        h, h_pos = (normalize(each, dim=1) for each in vectors)
        similarity = h @ h_pos.T
        lists = without_diagonal(similarity), without_diagonal(self._likeness(examples))
        learn = list_mle if run.ranking == "listmle" else list_net
        ranked = learn(*lists, temperature=run.ranking_temperature)
        agreed = consistency(similarity, temperature=run.temperature)
        loss = super().compare(vectors, mask, step, examples)
        return loss + run.consistency_weight * agreed + run.ranking_weight * ranked

    def _likeness(self, examples: Numbers) -> Tensor:
        """Return T (N, N) of a batch: every process encodes its own sentences."""
        (own,) = self.data.columns(self.processes.share(examples))
        total = torch.zeros(len(examples), len(examples), device=self.device)
        for share, targets in zip(self.weights, self.targets, strict=True):
            vectors = torch.from_numpy(targets.of(own)).to(self.device)
            vectors = normalize(self.processes.gather(vectors[None], len(examples))[0], dim=1)
            total += share * vectors @ vectors.T
        return total

    def _load_teacher(self, name: str) -> Encoder:
        run = self.run
        return Encoder.load(
            name,
            pooler=run.teacher_pooler,
            device=str(self.device),
            trust_pickle=run.trust_pickle,
            trust_remote_code=run.trust_remote_code,
        )


def teacher_names(named: str | None) -> list[str]:
    """Return the names of one teacher or two, or raise ConfigError."""
    names = [name.strip() for name in (named or "").split(",") if name.strip()]
    if len(names) not in (1, 2):
        raise ConfigError(
            f"rankcse learns the ranking of one teacher or two; got {named!r}. Name them with --teacher (a folder or a "
            "hub name, two comma-separated), for example a model that SimCSE trained."
        )
    return names


def consistency(similarity: Tensor, *, temperature: float) -> Tensor:
    """Return the mean Jensen-Shannon divergence of the two passes' rankings; `similarity` is S (N, N), and S' its T."""
    p, q = (log_softmax(each / temperature, dim=1) for each in (similarity, similarity.T))
    middle = torch.logaddexp(p, q) - torch.log(torch.tensor(2.0, dtype=p.dtype, device=p.device))
    divergence = p.exp() * (p - middle) + q.exp() * (q - middle)
    return divergence.sum(dim=1).mean() / 2


def list_net(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """Return the cross-entropy of the probabilities to be ranked first; both are (N, M) similarities."""
    expected = (teacher / (temperature / 2)).softmax(dim=1)
    return -(expected * log_softmax(student / temperature, dim=1)).sum(dim=1).mean()


def list_mle(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """Return minus the mean log-likelihood of the teacher's order, place by place; both are (N, M) similarities."""
    order = teacher.argsort(dim=1, descending=True, stable=True)
    scores = student.gather(1, order) / temperature
    left = scores.flip(1).logcumsumexp(dim=1).flip(1)  # over what is not ranked yet
    return (left - scores).mean() if scores.numel() else scores.sum()


def without_diagonal(square: Tensor) -> Tensor:
    """Return (N, N - 1): every row without its own place."""
    n = len(square)
    return square[~torch.eye(n, dtype=torch.bool, device=square.device)].view(n, n - 1)

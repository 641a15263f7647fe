"""SNCSE (Wang et al., 2022): a sentence's negation is less like it than its positive, and not as unlike as others.

The negation shares nearly all words with its sentence, and not the meaning: a soft negative. Beside the contrastive
loss, the bidirectional margin loss keeps the difference of the two cosines between -beta and -alpha:

    d_i = cos(h_i, n_i) - cos(h_i, h_i+)                      n_i: the vector of the negation of sentence i
    l_i = InfoNCE_i + lambda * ( max(0, d_i + alpha) + max(0, -d_i - beta) )

As in the authors' code, the vector is the state of the mask token, and an MLP follows in training only; h is in the
template `This sentence : "[X]" means [MASK] .`, h+ and n are in `This sentence of "[X]" means [MASK] .`. With another
pooler (`--pooler cls_mlp_train`) it is plain SimCSE with soft negatives. Sentences are negated by rules
(`text/negation.py`), for English.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import cosine_similarity, relu

from twinpass.text.negation import negate
from twinpass.training.chunked import Ids
from twinpass.training.method import METHODS, Numbers, Start
from twinpass.training.methods.promptbert import OfTemplates, training_mlp


@METHODS.register("sncse")
class SNCSE(OfTemplates):
    """SimCSE with the negation of every sentence in a third pass."""

    title = "SNCSE (Wang et al., 2022)"
    objective = "SNCSE (Wang et al.): negated sentences as soft negatives, held between two margins"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        tokenize = self.tokenizer(self.encoders[0])
        self.negations = self.read_again(lambda texts: tokenize([negate(text) for text in texts]))
        self.mlp = training_mlp(self.encoders[0], self.run.seed) if self.run.pooler == "mask" else None
        self.heads = {} if self.mlp is None else {"mlp": self.mlp}

    def passes(self, step: int, own: Numbers) -> list[Ids]:
        """Return the sentences twice, and their negations, which are compared with the first."""
        negations = [self.negations.ids(text) for text in self.negations.columns(own)[0]]
        return [*super().passes(step, own), self.in_second_template(negations)]

    def project(self, vectors: Tensor, passes: Sequence[Ids]) -> Tensor:
        """Apply the MLP, where the encoder has none of its own."""
        return vectors if self.mlp is None else self.mlp(vectors)

    def compare(self, vectors: Tensor, mask: Tensor | None, step: int, examples: Numbers) -> Tensor:
        """Add the margin loss to the contrastive loss."""
        run = self.run
        margins = bidirectional_margin(*vectors, alpha=run.margin_low, beta=run.margin_high)
        return super().compare(vectors, mask, step, examples) + run.soft_negative_weight * margins


def bidirectional_margin(h: Tensor, h_pos: Tensor, h_soft: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Return the mean of max(0, d + alpha) + max(0, -d - beta); all are (N, d)."""
    difference = cosine_similarity(h, h_soft) - cosine_similarity(h, h_pos)
    return (relu(difference + alpha) + relu(-difference - beta)).mean()

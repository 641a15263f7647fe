"""Layers that are fitted to vectors after training and saved with the model; also: dropping a transformer's layers.

whitening         (x - mu) W: no direction longer than another (Su et al., 2021)
flow              an invertible network to a standard normal (Li et al., 2020)
centring          x - mu
top-components    x - mu without its part in the longest directions (Mu and Viswanath, 2018)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from twinpass.encoder.encoder import Encoder
from twinpass.encoder.flow import fit_flow
from twinpass.encoder.model import Dense, SentenceModel
from twinpass.encoder.parts import read_layer, write_layer
from twinpass.errors import ConfigError, InputError, ModelError
from twinpass.files import writing_folder
from twinpass.progress import Advance
from twinpass.registry import Registry

Vectors = NDArray[np.float32]
Exact = NDArray[np.float64]

BLOCK = 65_536  # vectors in float64 at a time
ADVISED_PER_DIMENSION = 10  # sentences: with as many as dimensions, a covariance is mostly chance

_Make = Callable[[Vectors, int | None, int, Advance], nn.Module]  # vectors, the option's value, seed, advance


@dataclass(frozen=True)
class Fit:
    """A kind of layer, and how one is made for vectors."""

    name: str
    make: _Make
    takes: str | None = None  # the option that this layer alone takes

    def __call__(
        self,
        vectors: Vectors,
        *,
        keep: int | None = None,
        components: int | None = None,
        seed: int = 42,
        advance: Advance = lambda count: None,
    ) -> nn.Module:
        """Return a layer that is fitted to vectors (n, d), n >= 2; `advance` is called with how many were used."""
        self.check(keep=keep, components=components)
        if len(vectors) < 2:
            raise InputError(f"{self.name} needs at least two different sentences, got {len(vectors)}.")
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise InputError(
                f"{len(bad):,} of {len(vectors):,} vectors hold a non-finite value, the first in row {bad[0] + 1}. "
                "The model is damaged, or computes in too low a precision."
            )
        if not np.ptp(vectors, axis=0).any():
            raise InputError(f"all {len(vectors):,} vectors are the same, so there is nothing to fit {self.name} to.")
        return self.make(vectors, keep if self.takes == "keep" else components, seed, advance)

    def check(self, *, keep: int | None = None, components: int | None = None) -> None:
        """Refuse an option that this layer does not take."""
        for option, value in (("keep", keep), ("components", components)):
            if value is not None and option != self.takes:
                raise ConfigError(f"{self.name} does not take {option!r}, which is for another layer. Remove it.")


def with_layer(encoder: Encoder, layer: nn.Module) -> Encoder:
    """Return an encoder that shares everything with this one and applies one more layer at the end.

    The end is after a Normalize, if there is one: a layer is fitted to what the encoder returns.
    """
    old = encoder.model
    layers = nn.Sequential(*old.layers.children(), layer)
    transformer: nn.Module = old.transformer
    model = SentenceModel(transformer, pooler=encoder.pooler, head=old.head, layers=layers, place=old.place)
    model.train(old.training)
    kept: dict[str, Any] = {"name": encoder.name, "precision": encoder.precision, "runtime": encoder.runtime_name}
    return Encoder(model, encoder.tokens, encoder.settings, device=encoder.device, **kept)


def apply_layer(layer: nn.Module, vectors: Vectors) -> Vectors:
    """Map vectors (n, d) by a layer, as the encoder that has it does."""
    device = next(layer.parameters()).device
    with torch.inference_mode():
        mapped: Vectors = layer(torch.tensor(vectors, dtype=torch.float32, device=device)).cpu().numpy()
    return mapped


def kept_layer(folder: Path, fit: Callable[[], nn.Module]) -> nn.Module:
    """Return the layer stored in a folder; if there is none, fit it and store it there, whole or not at all."""
    if folder.is_dir():
        return read_layer(folder, "layer").eval()
    layer = fit()
    with writing_folder(folder) as aside:
        write_layer(aside / "layer", layer)
    return layer


class Whitening(NamedTuple):
    """Subtract a mean (d,), multiply by a matrix (d, k): the result has the identity as covariance."""

    mean: Exact
    matrix: Exact


def fit_whitening(vectors: Vectors, *, keep: int | None = None) -> Whitening:
    """Fit to vectors (n, d): mean mu, covariance's SVD U diag(s) U^T, W = U diag(1 / sqrt(s)), first `keep` columns.

    Directions in which the vectors do not vary are dropped: there is nothing to scale.
    """
    if len(vectors) < 2:
        raise ConfigError(f"whitening needs at least two vectors, got {len(vectors)}.")
    mean, directions, variances = principal_directions(vectors)
    # Directions without variance come out as rounding noise; 1e-10 of the largest is far above it in float64.
    rank = int((variances > 1e-10 * variances[0]).sum())
    if keep is not None and not 1 <= keep <= len(variances):
        raise ConfigError(f"whitening keeps between 1 and {len(variances)} dimensions, not {keep}.")
    kept = min(rank, keep or rank)
    return Whitening(mean, directions[:, :kept] / np.sqrt(variances[:kept]))


def whiten(vectors: Vectors, whitening: Whitening) -> Vectors:
    """Return (x - mu) W for every row x."""
    return ((vectors - whitening.mean) @ whitening.matrix).astype(np.float32)


def principal_directions(vectors: Vectors) -> tuple[Exact, Exact, Exact]:
    """Return mean (d,), directions (d, d) as columns and variances (d,) along them, the largest first."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), BLOCK):  # all at once, a million vectors would be copied in float64
        centred = vectors[start : start + BLOCK] - mean
        scatter += centred.T @ centred
    directions, variances, _ = np.linalg.svd(scatter / len(vectors))
    return mean, directions, variances


def linear_layer(mean: Exact, matrix: Exact) -> Dense:
    """Return (x - mean) matrix as a layer that sentence-transformers knows too: x matrix - mean matrix."""
    layer = Dense(*matrix.shape, activation="Identity")
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(matrix.T))
        layer.linear.bias.copy_(torch.from_numpy(-mean @ matrix))
    return layer.eval()


def _whitening(vectors: Vectors, keep: int | None, seed: int, advance: Advance) -> nn.Module:
    """Whiten to the first `keep` directions, or to all that vary."""
    count, dimensions = vectors.shape
    found = fit_whitening(vectors, keep=keep)
    if count < dimensions:
        warnings.warn(
            f"whitening {dimensions} dimensions is fitted to only {count:,} sentences, so much of it is chance. "
            f"{ADVISED_PER_DIMENSION * dimensions:,} or more are advised.",
            stacklevel=3,
        )
    kept = found.matrix.shape[1]
    if kept < (keep or dimensions):
        warnings.warn(f"the vectors vary in {kept} directions only, so {kept} dimensions are kept.", stacklevel=3)
    advance(count)
    return linear_layer(*found)


def _centring(vectors: Vectors, option: int | None, seed: int, advance: Advance) -> nn.Module:
    """Subtract the mean."""
    advance(len(vectors))
    return linear_layer(vectors.mean(axis=0, dtype=np.float64), np.eye(vectors.shape[1]))


def _top_components(vectors: Vectors, components: int | None, seed: int, advance: Advance) -> nn.Module:
    """Subtract the mean, then remove the longest directions."""
    dimensions = vectors.shape[1]
    hundredth = max(1, dimensions // 100)  # the authors' rule of thumb
    removed = hundredth if components is None else components
    if not 1 <= removed < dimensions:
        raise ConfigError(f"of {dimensions} dimensions 1 to {dimensions - 1} can be removed, not {removed}.")
    mean, directions, _ = principal_directions(vectors)
    top = directions[:, :removed]
    advance(len(vectors))
    return linear_layer(mean, np.eye(dimensions) - top @ top.T)


FITS: Registry[Fit] = Registry("layer to fit")
FITS.add("whitening", Fit("whitening", _whitening, takes="keep"))
FITS.add("flow", Fit("flow", lambda vectors, option, seed, advance: fit_flow(vectors, seed=seed, advance=advance)))
FITS.add("centring", Fit("centring", _centring))
FITS.add("top-components", Fit("top-components", _top_components, takes="components"))


def keep_layers(encoder: Encoder, count: int) -> None:
    """Drop every transformer layer above the first `count` of a loaded encoder."""
    transformer: Any = encoder.model.transformer
    total = int(transformer.config.num_hidden_layers)
    if not 1 <= count <= total:
        raise ConfigError(f"{encoder.name} has {total} layers; keep between 1 and {total} of them, not {count}.")
    stacks = [part for part in transformer.modules() if isinstance(part, nn.ModuleList) and len(part) == total]
    if len(stacks) != 1:
        raise ModelError(f"{encoder.name} does not keep its layers in one list, so none can be dropped.")
    del stacks[0][count:]
    transformer.config.num_hidden_layers = count

"""A model as one OpenVINO graph, head and layers included: in fp32, or quantised to int8.

Post-training quantisation: 300 texts show in which range the states of every layer lie; weights and states of the
matrix products are then rounded to 8 bits. How near the vectors stay is measured on other texts of the same corpus.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from twinpass.encoder.encoder import TOKEN_BUDGET, Encoder, TruncationWarning, Vectors
from twinpass.encoder.folder import Exported, save_exported
from twinpass.encoder.runtime.openvino import core, load_openvino
from twinpass.errors import InputError, MissingExtra, ModelError
from twinpass.progress import Progress, silent
from twinpass.text.batch import cut
from twinpass.vectors import unit

if TYPE_CHECKING:
    import torch
    from torch import nn

CALIBRATION_TEXTS = 300
HELD_OUT_TEXTS = 500
MINIMUM_COSINE = 0.99
SEED = 42
# Share of the states' range that is moved into the weights (SmoothQuant's alpha). Of 0.5, 0.7, 0.8, 0.85, 0.95 (the
# library's default) and none, 0.8 gave the nearest vectors: mean cosine 0.9981 for the built-in model on STS sentences.
SMOOTHING = 0.8
NEAR = 1e-4  # how far a vector of the fp32 graph may be from torch's, of length one


class Texts(NamedTuple):
    """Texts to calibrate with, and other texts to measure on."""

    calibration: list[str]
    held_out: list[str]


@dataclass(frozen=True)
class Agreement:
    """The cosines between two models' vectors of the same texts."""

    mean: float
    first_percentile: float
    lowest: float
    texts: int

    @classmethod
    def of(cls, one: Vectors, other: Vectors) -> Agreement:
        """Compare row by row."""
        cosines = np.einsum("ij,ij->i", unit(one.astype(np.float64)), unit(other.astype(np.float64)))
        low = float(np.percentile(cosines, 1))
        return cls(mean=float(cosines.mean()), first_percentile=low, lowest=float(cosines.min()), texts=len(cosines))


def draw_texts(texts: Iterable[str], *, count: int = CALIBRATION_TEXTS, seed: int = SEED) -> Texts:
    """Draw distinct texts from a stream: `count` to calibrate with, 500 to measure on, fewer of both if it is short.

    The draw depends on the seed and on which texts there are, not on their order.
    """
    wanted, kept = count + HELD_OUT_TEXTS, dict[bytes, str]()
    salt = str(seed).encode()

    def smallest() -> list[bytes]:
        return sorted(kept)[:wanted]

    for text in texts:
        if text.strip():
            kept[hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16, key=salt).digest()] = text
            if len(kept) > 2 * wanted:
                kept = {key: kept[key] for key in smallest()}
    drawn = [kept[key] for key in smallest()]
    if len(drawn) < 2:
        raise InputError(f"expected at least two distinct texts to calibrate with and to measure on, got {len(drawn)}.")
    calibration = min(count, len(drawn) // 2)
    return Texts(drawn[:calibration], drawn[calibration:])


def positional(encoder: Encoder) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Return the model with its named inputs in a fixed order, as tracers need them, and two texts as its inputs."""
    from torch import nn

    encoder.check_whole("exporting")
    features = {name: tensor.cpu() for name, tensor in encoder.pad(encoder.tokenize(["two", "texts of one"])).items()}

    class Positional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = encoder.model

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            vectors: torch.Tensor = self.model(dict(zip(features, inputs, strict=True)))
            return vectors

    return Positional().eval(), features


def make_graph(encoder: Encoder) -> Any:
    """Return the encoder's model as an OpenVINO model that takes any number of texts of any length, in fp32."""
    import torch

    from twinpass.encoder.parts import quiet
    from twinpass.encoder.runtime.pytorch import evaluating

    openvino = load_openvino()
    model, features = positional(encoder)
    try:
        with evaluating(encoder.model), torch.no_grad(), quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = openvino.convert_model(model, example_input=tuple(features.values()))
    except Exception as error:
        raise not_exported(encoder, "OpenVINO", f"{type(error).__name__}: {error}".strip().splitlines()[0]) from error
    for place, name in zip(graph.inputs, features, strict=True):
        place.get_tensor().set_names({name})
    graph.outputs[0].get_tensor().set_names({"vectors"})
    graph.reshape({name: openvino.PartialShape([-1, -1]) for name in features})
    run = core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    check_graph(encoder, lambda inputs: run(inputs)[0], to="OpenVINO")
    return graph


def check_graph(encoder: Encoder, run: Callable[[Mapping[str, Any]], Any], *, to: str) -> None:
    """Raise ModelError unless the graph gives torch's vectors for other shapes than those it was traced with."""
    texts = ["a", "one more text of some length, and a part after the comma", "many words " * 100]
    ids = encoder.tokenize(texts)
    with encoder.runtime.session() as forward:
        for rows in (ids[:1], ids[2:], ids[:2], ids):
            inputs = encoder.tokens.arrays(rows)
            apart = how_far(run(inputs), forward(inputs))
            if not apart < NEAR:
                shape = "x".join(map(str, inputs["input_ids"].shape))
                raise not_exported(encoder, to, f"for a batch of {shape} tokens its vectors would be {apart:.1g} apart")


def how_far(got: Vectors, expected: Vectors) -> float:
    """Return the largest difference between two models' vectors, relative to the length of the longest."""
    return float(np.abs(got - expected).max() / max(1.0, float(np.linalg.norm(expected, axis=1).max())))


def not_exported(encoder: Encoder, to: str, reason: str) -> ModelError:
    """Return the refusal of a model that has no faithful graph."""
    return ModelError(f"{encoder.name} cannot be exported to {to} ({reason}). Use it with the torch runtime.")


def quantize_graph(encoder: Encoder, graph: Any, calibration: Sequence[str], *, progress: Progress = silent) -> Any:
    """Return the graph with its matrix products in int8, calibrated on texts."""
    load_openvino()
    if importlib.util.find_spec("nncf") is None:
        raise MissingExtra("quantising to int8", "openvino")
    with _silent_nncf() as nncf:
        from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, AdvancedSmoothQuantParameters

        ids = encoder.tokenize(calibration)
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        batches = cut(lengths, token_budget=TOKEN_BUDGET)
        with progress("calibrating", total=2 * len(ids)) as advance:  # once for the smoothing, once for the ranges

            def inputs(batch: Any) -> dict[str, Any]:
                advance(len(batch))
                return encoder.tokens.arrays([ids[place] for place in batch])

            return nncf.quantize(
                graph,
                nncf.Dataset(batches, inputs),
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(batches),
                advanced_parameters=AdvancedQuantizationParameters(
                    smooth_quant_alphas=AdvancedSmoothQuantParameters(matmul=SMOOTHING)
                ),
            )


@contextlib.contextmanager
def _silent_nncf() -> Iterator[Any]:
    """Import nncf, and hide what it prints and logs."""
    logger = logging.getLogger("nncf")
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nncf

        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield nncf
        finally:
            logger.setLevel(level)


def write_graph(graph: Any) -> Callable[[Path], None]:
    """Return a function that writes a graph; equal graphs give equal bytes, whatever was converted before them."""

    def write(path: Path) -> None:
        for place, node in enumerate(graph.get_ordered_ops()):
            node.set_friendly_name(f"{node.get_type_name()}_{place}")
        graph.set_friendly_name("model")
        load_openvino().save_model(graph, os.fspath(path), compress_to_fp16=False)

    return write


@contextlib.contextmanager
def made_aside(encoder: Encoder, graph: Any, *, precision: str) -> Iterator[Encoder]:
    """Yield an encoder that runs the graph from a temporary folder, to be measured before it is saved."""
    with tempfile.TemporaryDirectory(prefix="twinpass.") as folder:
        target = Path(folder) / "model"
        save_exported(target, encoder, write_graph(graph), precision=precision, measured={}, card="")
        made = Encoder.load(target, max_tokens=encoder.max_tokens)
        made.name = encoder.name
        yield made


def copy_graph(made: Encoder) -> Callable[[Path], None]:
    """Return a function that writes the graph of an exported model once more."""
    exported = made.exported
    assert exported is not None

    def write(path: Path) -> None:
        for suffix in (".xml", ".bin"):
            shutil.copyfile(exported.path.with_suffix(suffix), path.with_suffix(suffix))

    return write


def measure_agreement(encoder: Encoder, made: Encoder, texts: Sequence[str]) -> Agreement:
    """Compare the vectors of two models of the same texts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        return Agreement.of(made.encode(texts), encoder.encode(texts))


def measure_rates(encoders: Mapping[str, Encoder], texts: Sequence[str], *, seconds: float = 1.0) -> dict[str, float]:
    """Return the sentences per second of each: they take turns for some seconds each, and the best turn counts."""
    best, spent = dict.fromkeys(encoders, 0.0), dict.fromkeys(encoders, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for encoder in encoders.values():
            encoder.encode(texts[:8])  # compiled, and warm
        while min(spent.values()) < seconds:
            for name, encoder in encoders.items():
                start = time.perf_counter()
                encoder.encode(texts)
                taken = max(time.perf_counter() - start, 1e-9)
                spent[name] += taken
                best[name] = max(best[name], len(set(texts)) / taken)
    return best


def too_far(encoder: Encoder, agreement: Agreement, minimum: float) -> ModelError | None:
    """Return the refusal of an int8 model whose vectors are too far from fp32's, or None."""
    if agreement.mean >= minimum:
        return None
    return ModelError(
        f"{encoder.name} in int8: the mean cosine to its fp32 vectors is {agreement.mean:.4f} on {agreement.texts:,} "
        f"held-out texts; expected at least {minimum:g}. Nothing was written. Calibrate on text like yours, accept it "
        "with --min-cosine (in Python: minimum_cosine=), or use fp32."
    )


def save_straight(encoder: Encoder, target: Path, *, precision: str) -> Exported:
    """Write the model as the runtime openvino needs it: int8 is calibrated on the built-in corpus and measured."""
    graph = make_graph(encoder)
    measured: dict[str, Any] = {}
    if precision == "int8":
        from twinpass.text.docs.docstrings import docs_sentences

        texts = draw_texts(docs_sentences())
        graph = quantize_graph(encoder, graph, texts.calibration)
        with made_aside(encoder, graph, precision=precision) as made:
            agreement = measure_agreement(encoder, made, texts.held_out)
        if refusal := too_far(encoder, agreement, MINIMUM_COSINE):
            raise refusal
        measured = {"cosine": asdict(agreement), "calibration": {"source": "docs:", "texts": len(texts.calibration)}}
    card = f"# {encoder.name} in {precision} for OpenVINO\n\nMade by twinpass, for its own cache.\n"
    return save_exported(target, encoder, write_graph(graph), precision=precision, measured=measured, card=card)

"""A model as one ONNX file, head and layers included, for other software; twinpass itself does not run it.

::

    model.onnx        token ids to sentence vectors; inputs by name, output "sentence_embedding"
    tokenizer.json    what the library tokenizers reads; truncates to the model's limit, and pads
"""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from twinpass.encoder.card import ONNX
from twinpass.encoder.encoder import Encoder, Vectors
from twinpass.encoder.export import check_graph, not_exported, positional
from twinpass.encoder.folder import TOKENIZER
from twinpass.errors import MissingExtra

OUTPUT = "sentence_embedding"
OPSET = 17  # of 2022: what runtimes of today read


def need_onnx() -> None:
    """Raise MissingExtra unless the optional part is installed."""
    if any(importlib.util.find_spec(library) is None for library in ("onnx", "onnxruntime")):
        raise MissingExtra("exporting to ONNX", "onnx")


def write_onnx(encoder: Encoder, folder: Path) -> None:
    """Write the graph of a model and its tokenizer; vectors are checked against torch's for several shapes."""
    import torch

    from twinpass.encoder.parts import quiet
    from twinpass.encoder.runtime.pytorch import evaluating

    need_onnx()
    model, features = positional(encoder)
    path = folder / ONNX
    axes = {name: {0: "texts", 1: "tokens"} for name in features} | {OUTPUT: {0: "texts"}}
    try:
        with evaluating(encoder.model), torch.no_grad(), quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # By tracing, as the graph of OpenVINO: the newer exporter takes ten times as long, for the same vectors.
            torch.onnx.export(
                model,
                tuple(features.values()),
                os.fspath(path),
                input_names=list(features),
                output_names=[OUTPUT],
                dynamic_axes=axes,
                opset_version=OPSET,
                dynamo=False,
            )
    except Exception as error:
        raise not_exported(encoder, "ONNX", f"{type(error).__name__}: {error}".strip().splitlines()[0]) from error
    session = _open(path)
    check_graph(encoder, lambda inputs: session.run([OUTPUT], dict(inputs))[0], to="ONNX")
    tokens, limit = encoder.tokens, encoder.max_tokens
    rules = tokens.rules()
    if limit is not None:
        side = tokens.tokenizer.truncation_side.capitalize()
        rules["truncation"] = {"direction": side, "max_length": limit, "strategy": "LongestFirst", "stride": 0}
    rules["padding"] = {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": tokens.pad_id,
        "pad_type_id": 0,
        "pad_token": tokens.tokenizer.backend_tokenizer.id_to_token(tokens.pad_id) or "[PAD]",
    }
    (folder / TOKENIZER).write_text(json.dumps(rules, ensure_ascii=False), encoding="utf-8")


def run_onnx(folder: Path, texts: list[str], *, prompt: str, lowercase: bool) -> Vectors:
    """Return vectors as other software gets them: by onnxruntime and tokenizers, from the written files alone."""
    from tokenizers import Tokenizer

    prepared = [prompt + text for text in texts]
    rows = Tokenizer.from_file(os.fspath(folder / TOKENIZER)).encode_batch(
        [text.lower() for text in prepared] if lowercase else prepared
    )
    session = _open(folder / ONNX)
    values = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    inputs = {
        each.name: np.array([getattr(row, values[each.name]) for row in rows], dtype=np.int64)
        for each in session.get_inputs()
    }
    (vectors,) = session.run([OUTPUT], inputs)
    return np.asarray(vectors, dtype=np.float32)


def _open(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])

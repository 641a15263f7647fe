"""The command on a processor that announces more than it executes: a limit where that helps, exit 2 where not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.tiny import WORDS

import twinpass
from twinpass import processor
from twinpass.processor import LIMIT, LIMITS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")

PRETENDED = Path(__file__).parents[1] / "pretended_processor"
HELPED = "bf16 works with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (no limit: died of SIGILL; limit AVX512_CORE_BF16: works)"


@pytest.fixture
def on_processor(command, tmp_path):
    """Run a command on a processor that lies, in a process of its own with real children."""

    def on_processor(kind: str, *arguments: object, **more: str):
        path = os.pathsep.join([str(PRETENDED), *filter(None, [os.environ.get("PYTHONPATH")])])
        pretended = {"PRETENDED_PROCESSOR": kind, "PYTHONPATH": path, LIMIT: "", **more}
        return command(*arguments, env=pretended | {"TWINPASS_CACHE": str(tmp_path / "cache")})

    return on_processor


@pytest.mark.parametrize("verb", ["encode", "train"])
def test_bf16_never_dies_by_a_signal(on_processor, model, sentences, tmp_path, verb):
    output = tmp_path / ("vectors.npy" if verb == "encode" else "trained")
    work = [verb, sentences, "-m", model, "-o", output, "--precision", "bf16", "--device", "cpu"]
    work += ["--steps", "1", "--batch-size", "2"] if verb == "train" else []
    refused = on_processor("none", *work)
    assert refused.code == 2 and not output.exists()
    assert "twinpass: error: bf16 cannot be used on this processor" in refused.err and "Use fp32" in refused.err
    (kept,) = (tmp_path / "cache" / "processor").iterdir()
    kept.unlink()
    helped = on_processor("amx", *work, "--debug")
    assert helped.code == 0, helped.err
    assert output.exists() and HELPED in helped.err and "set by twinpass" in helped.err


@pytest.mark.int8  # the model is quantised in this process
def test_int8_never_dies_by_a_signal(on_processor, model, sentences, tmp_path):
    pytest.importorskip("nncf")
    refused = on_processor("none", "quantize", model, sentences, "-o", tmp_path / "refused")
    assert refused.code == 2 and not (tmp_path / "refused").exists()
    assert "twinpass: error: int8 cannot be used on this processor" in refused.err and "Use fp32" in refused.err
    for kept in (tmp_path / "cache" / "processor").iterdir():
        kept.unlink()
    made = tmp_path / "int8"
    twinpass.quantize(model, WORDS, output=made, texts=10, minimum_cosine=0)
    work = ["encode", sentences, "-m", made, "-o", tmp_path / "vectors.npy"]
    helped = on_processor("amx", *work)
    assert helped.code == 0, helped.err
    refused = on_processor("amx", *work, **{LIMIT: "AVX512_CORE_AMX"})  # the user's own
    assert refused.code == 2 and "limit AVX512_CORE_AMX: died of SIGILL" in refused.err


def test_every_way_of_asking_for_debug_shows_the_limit(on_processor, model, sentences, tmp_path):
    work = ["encode", sentences, "-m", model, "-o", tmp_path / "vectors.npy", "--precision", "bf16"]
    assert HELPED in on_processor("amx", "--debug", *work).err
    assert HELPED in on_processor("amx", *work, TWINPASS_DEBUG="1").err
    assert HELPED not in on_processor("amx", *work).err


def test_doctor_shows_announced_executed_and_the_limit(on_processor):
    document = json.loads(on_processor("amx", "doctor", "--json").out)["processor"]
    assert document["announced"] == processor.announced() and document["name"] == processor.processor_name()
    assert document["executed"]["bf16"]["works"] and document["executed"]["bf16"]["limit"] == LIMITS[0]
    assert document["limit"] == {"variable": LIMIT, "value": LIMITS[0], "set_by": "twinpass"}
    page = on_processor("amx", "doctor").out
    assert f"executed: {HELPED}" in page and f"limit: {LIMIT}={LIMITS[0]}, set by twinpass" in page

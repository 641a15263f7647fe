"""What a processor announces and what it executes: every outcome of the probe, pretended, and the real one."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from twinpass import processor
from twinpass.errors import ConfigError
from twinpass.processor import BF16, INT8, LIMIT, OLD_LIMIT, WORKS, Probe

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")


def kill(name: str) -> str:
    return f"import os, signal; os.kill(os.getpid(), signal.{name})"


DIE = kill("SIGILL")
LIES = f"import os\nif os.environ.get({LIMIT!r}) != 'ENOUGH':\n    {DIE}"  # runs under the right limit only


def probe(code: str, library: str = "torch", limits: tuple[str, ...] = ("ENOUGH",)) -> Probe:
    return Probe(name="sums", library=library, limits=limits, code=code)


def lies_unless(*limits: str) -> str:
    return f"import os\nif os.environ.get({LIMIT!r}) not in {limits!r}:\n    {DIE}"


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """A process that knows nothing yet, with no limit set and an empty cache."""
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    for name in (LIMIT, OLD_LIMIT):
        monkeypatch.setenv(name, "")  # noted, so that what a test sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setattr(processor, "_limit_of_ours", None)
    monkeypatch.setattr(processor, "_not_limited", frozenset())
    forget()
    yield
    forget()


def forget() -> None:
    """What a new process does."""
    processor._outcome.cache_clear()


@pytest.fixture
def unloaded(monkeypatch):
    for library in ("torch", "openvino"):
        monkeypatch.delitem(sys.modules, library, raising=False)


@pytest.fixture
def no_child(monkeypatch):
    """Call it to make every further child an error."""

    def forbid():
        monkeypatch.setattr(processor, "_try", lambda *_: pytest.fail("a child was started"))

    return forbid


def test_what_works_needs_no_limit(unloaded):
    verdict = processor.prepare(probe("1 + 1"))
    assert verdict.works and verdict.limit is None and verdict.tried == {None: WORKS}
    assert LIMIT not in os.environ and processor.active_limit() == (None, None)
    processor.check(probe("1 + 1"))
    assert str(verdict) == "sums works (no limit: works)"


def test_a_limit_that_helps_is_set_before_the_library_is_loaded(unloaded):
    verdict = processor.prepare(probe(LIES))
    assert verdict.tried == {None: "died of SIGILL", "ENOUGH": WORKS}
    assert verdict.works and verdict.limit == "ENOUGH"
    assert os.environ[LIMIT] == "ENOUGH" and processor.active_limit() == ("ENOUGH", "twinpass")
    processor.check(probe(LIES))
    assert processor.examine(probe(LIES)) == verdict  # a limit of ours is not taken for the user's


def test_what_never_works_is_refused_with_what_was_tried_and_what_to_use(unloaded):
    with pytest.raises(ConfigError) as refusal:
        processor.check(probe(DIE))
    for part in ("sums", "no limit: died of SIGILL", "limit ENOUGH: died of SIGILL", "Use fp32"):
        assert part in str(refusal.value)
    assert processor.processor_name() in str(refusal.value) and LIMIT not in os.environ


@pytest.mark.parametrize("name", [LIMIT, OLD_LIMIT])
def test_a_limit_of_the_user_is_neither_replaced_nor_widened(unloaded, monkeypatch, name):
    monkeypatch.setenv(name, "MINE")
    verdict = processor.prepare(probe(LIES))
    assert verdict.tried == {"MINE": "died of SIGILL"} and os.environ[name] == "MINE"
    assert processor.active_limit() == ("MINE", "environment")
    with pytest.raises(ConfigError, match="limit MINE: died of SIGILL"):
        processor.check(probe(LIES))
    monkeypatch.setenv(name, "ENOUGH")
    processor.check(probe(LIES))
    assert processor.active_limit() == ("ENOUGH", "environment")


@pytest.mark.parametrize("answer", [True, None], ids=["it uses more", "it does not tell"])
def test_a_limit_that_comes_too_late_is_refused(monkeypatch, answer):
    mkldnn = SimpleNamespace(_is_mkldnn_fp16_supported=lambda: answer) if answer else SimpleNamespace()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(ops=SimpleNamespace(mkldnn=mkldnn)))
    with pytest.raises(ConfigError, match=f"already chosen .* Set {LIMIT}=ENOUGH before Python starts"):
        processor.check(probe(LIES))
    assert LIMIT not in os.environ and processor.active_limit() == (None, None)


def test_a_limit_counts_while_the_library_has_not_computed(monkeypatch):
    mkldnn = SimpleNamespace(_is_mkldnn_fp16_supported=lambda: os.environ[LIMIT] != "ENOUGH")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(ops=SimpleNamespace(mkldnn=mkldnn)))
    processor.check(probe(LIES))
    assert processor.active_limit() == ("ENOUGH", "twinpass")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the limit is one of x86")
def test_torch_reads_a_limit_that_is_set_after_it_was_imported():
    """What `_takes_effect` rests on."""
    code = f"import os, torch; os.environ[{LIMIT!r}] = 'AVX2'; print(torch.ops.mkldnn._is_mkldnn_bf16_supported())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "False"


def test_limits_are_tried_in_order_until_one_helps(unloaded):
    verdict = processor.prepare(probe(lies_unless("LOW"), limits=("HIGH", "LOW", "LOWER")))
    assert verdict.tried == {None: "died of SIGILL", "HIGH": "died of SIGILL", "LOW": WORKS}
    assert verdict.limit == "LOW" and os.environ[LIMIT] == "LOW"


def test_two_libraries_share_one_limit_if_both_run_under_it(unloaded):
    first = probe(lies_unless("HIGH", "LOW"), library="torch", limits=("HIGH", "LOW"))
    second = probe(lies_unless("LOW"), library="openvino", limits=("HIGH", "LOW"))
    processor.check(second)
    assert processor.active_limit() == ("LOW", "twinpass")
    processor.check(first)  # needs HIGH or less, and has LOW
    assert os.environ[LIMIT] == "LOW"


def test_a_limit_for_the_other_library_that_is_not_enough_is_refused(unloaded):
    processor.check(probe(lies_unless("HIGH", "LOW"), library="torch", limits=("HIGH", "LOW")))
    with pytest.raises(ConfigError, match=f"openvino has already chosen .* Set {LIMIT}=LOW before"):
        processor.check(probe(lies_unless("LOW"), library="openvino", limits=("HIGH", "LOW")))


def test_a_library_that_had_computed_before_the_limit_was_set_for_the_other_is_refused(unloaded, monkeypatch):
    mkldnn = SimpleNamespace(_is_mkldnn_fp16_supported=lambda: True)  # whatever is set now
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(ops=SimpleNamespace(mkldnn=mkldnn)))
    processor.check(probe(LIES, library="openvino"))
    assert processor.active_limit() == ("ENOUGH", "twinpass")
    with pytest.raises(ConfigError, match="torch has already chosen"):
        processor.check(probe(LIES, library="torch"))


@pytest.mark.parametrize("compiled", [True, False])
def test_openvino_reads_the_limit_when_its_plugin_is_loaded(unloaded, monkeypatch, tmp_path, compiled):
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace())
    (tmp_path / "maps").write_text("7f00 r-xp /lib/libopenvino_intel_cpu_plugin.so\n" if compiled else "")
    monkeypatch.setattr(processor, "_LOADED", tmp_path / "maps")
    if compiled:
        with pytest.raises(ConfigError, match="openvino has already chosen"):
            processor.check(probe(LIES, library="openvino"))
        assert LIMIT not in os.environ
    else:
        processor.check(probe(LIES, library="openvino"))


def test_the_outcome_is_kept_for_the_next_process(unloaded, no_child, tmp_path):
    processor.examine(probe(LIES))
    (kept,) = (tmp_path / "cache" / "processor").iterdir()
    document = json.loads(kept.read_text())
    assert document["outcomes"] == {"": "died of SIGILL", "ENOUGH": WORKS}
    assert {*document["machine"]} == {"processor", "announced", "kernel", "torch"}
    forget()
    no_child()
    assert processor.examine(probe(LIES)).limit == "ENOUGH"


@pytest.mark.parametrize(
    "other",
    [("processor_name", lambda: "another"), ("announced", lambda: ["amx_bf16"]), ("installed", lambda _: "0.0")],
    ids=["processor", "flags", "library"],
)
def test_another_machine_or_library_is_tried_anew(unloaded, monkeypatch, tmp_path, other):
    processor.examine(probe("1 + 1"))
    forget()
    monkeypatch.setattr(processor, *other)
    assert processor.examine(probe(DIE)).works is False
    assert len([*(tmp_path / "cache" / "processor").iterdir()]) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"outcomes": []}', "\x00"])
def test_a_damaged_file_is_as_good_as_none(unloaded, tmp_path, content):
    processor.examine(probe("1 + 1"))
    (kept,) = (tmp_path / "cache" / "processor").iterdir()
    kept.write_text(content)
    forget()
    assert processor.examine(probe("1 + 1")).works
    assert json.loads(kept.read_text())["outcomes"] == {"": WORKS}


def test_a_cache_that_cannot_be_written_to_does_not_stop_it(unloaded, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "file"))
    assert processor.examine(probe("1 + 1")).works


@pytest.mark.parametrize(
    ("code", "said"), [("raise ValueError('no such thing')", "ValueError: no such thing"), (kill("SIGKILL"), "SIGKILL")]
)
def test_what_says_nothing_about_the_processor_is_refused_and_not_kept(unloaded, tmp_path, code, said):
    with pytest.raises(ConfigError, match=said):
        processor.check(probe(code))
    assert not (tmp_path / "cache").exists()


def test_a_child_that_cannot_be_started_is_told(unloaded, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"not tried, .*No such file"):
        processor.check(probe("1 + 1"))


def test_a_child_that_hangs_is_stopped(unloaded, monkeypatch):
    monkeypatch.setattr(processor, "TIMEOUT", 0.01)
    hanging = probe("import threading; threading.Event().wait()")
    assert "no limit: not tried, the child took more than" in str(processor.examine(hanging))


def test_a_missing_library_is_not_tried(monkeypatch, no_child):
    no_child()
    monkeypatch.setattr(processor, "installed", lambda name: None)
    assert str(processor.examine(BF16)) == "bf16 was not tried: torch is not installed"
    verdict = processor.examine(INT8)
    assert not verdict.works and str(verdict) == "int8 was not tried: openvino is not installed"


def test_deaths_have_names():
    assert processor._death(-signal.SIGILL) == "SIGILL"
    assert processor._death(0xC000001D) == "exception 0xC000001D"
    assert processor._death(-200) == "signal 200"
    assert processor._death(1) is None


def test_flags_are_those_that_bf16_and_int8_depend_on(monkeypatch):
    flags = "fpu sse2 amx_tile amx_bf16 avx512f avx512_bf16 avx512_vnni"
    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"flags": flags, "model name": "A Processor"})
    assert processor.announced() == ["amx_bf16", "amx_tile", "avx512_bf16", "avx512_vnni"]
    assert processor.processor_name() == "A Processor"
    monkeypatch.setattr(processor, "_cpuinfo", dict)  # not Linux
    assert processor.announced() == [] and processor.processor_name()


def test_this_machine_gets_a_verdict(tmp_path):
    """The real probe: whatever the processor, the child's end is understood and kept."""
    for probed in (BF16, INT8):
        if processor.installed(probed.library) is None:
            continue
        verdict = processor.examine(probed)
        assert verdict.tried[None] in (WORKS, "died of SIGILL")
        assert [*(tmp_path / "cache" / "processor").glob(f"{probed.name}-*.json")]


@pytest.mark.int8
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors name their kernels differently")
def test_the_probe_of_int8_computes_in_int8():
    pytest.importorskip("openvino")
    products = """
facts = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
kinds = {(each["layerType"].astype(str), each["runtimePrecision"].astype(str)) for each in facts}
assert kinds & {("FullyConnected", "u8"), ("FullyConnected", "i8")}, kinds
"""
    verdict = processor.examine(replace(INT8, code=INT8.code + products))
    assert verdict.works, verdict

"""Makes a processor that announces more than it executes, for every interpreter that finds this file on its path.

PRETENDED_PROCESSOR says which: with `amx`, a process that enters bf16 on the CPU dies unless the limit was set
when torch was loaded; with `none`, it dies in any case.
"""

import importlib.util
import os
import signal
import sys


class LyingProcessor:
    def __init__(self, kind):
        self.kind = kind

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        execute = spec.loader.exec_module
        saved = os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_BF16" and self.kind == "amx"

        def exec_module(module):
            execute(module)
            if not saved:
                module.autocast.__enter__ = dying(module, module.autocast.__enter__)

        spec.loader.exec_module = exec_module
        return spec


def dying(torch, enter):
    def __enter__(self):  # noqa: N807
        if (self.device, self.fast_dtype) == ("cpu", torch.bfloat16) and self._enabled:
            os.kill(os.getpid(), signal.SIGILL)
        return enter(self)

    return __enter__


if kind := os.environ.get("PRETENDED_PROCESSOR"):
    sys.meta_path.insert(0, LyingProcessor(kind))

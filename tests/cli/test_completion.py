"""The Tab key: values of options and names of recipes, without heavy imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from twinpass.cli import completion


def press_tab(words: list[str], *, shell: str = "bash") -> list[str]:
    """Return what the shell is offered for the last of these words."""
    environment = os.environ | {
        "_TWINPASS_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": " ".join(["twinpass", *words]),
        "COMP_CWORD": str(len(words)),
    }
    code = (
        "import sys, atexit\n"
        "from twinpass.cli.main import main\n"
        "heavy = ('torch', 'numpy', 'transformers', 'pyarrow')\n"
        "atexit.register(lambda: print(*[name for name in heavy if name in sys.modules], file=sys.stderr))\n"
        "main([])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.stderr.strip() == "", ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["train", "--preset", "sup"], {"sup-base", "sup-large"}),
        (["train", "--method", "m"], {"mlm"}),
        (["encode", "--pooler", "avg_f"], {"avg_first_last"}),
        (["index", "build", "--kind", "h"], {"hnsw"}),
        (["evaluate", "--tasks", "sts,tr"], {"sts,transfer"}),
        (["reproduce", "figure"], {"figure-2", "figure-3", "figure-f1", "figure-g1"}),
        (["eval"], {"evaluate"}),
    ],
)
def test_values_are_offered(words: list[str], offered: set[str]) -> None:
    assert {*press_tab(words)} >= offered


def test_the_names_are_those_of_the_library() -> None:
    from twinpass.encoder.layers import FITS
    from twinpass.encoder.pooling import POOLERS
    from twinpass.evaluation.results import FORMATS
    from twinpass.recipes.scales import SCALES
    from twinpass.recipes.tables import load_recipes
    from twinpass.search.writer import KINDS

    assert {*completion.POOLERS} == {*POOLERS}
    assert {*completion.RECIPES} == {*load_recipes()}
    assert {*completion.SCALES} == {*SCALES}
    assert {*completion.KINDS} == {*KINDS}
    assert {*completion.LAYERS} == {*FITS}
    assert {*completion.FORMATS} == {*FORMATS}


def test_the_program_installs_it(run) -> None:
    assert "--install-completion" in run("--help").out

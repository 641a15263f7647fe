"""What costs nothing must stay free: importing twinpass, --help, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import twinpass
from twinpass.cli.main import VERBS

HEAVY = ("torch", "transformers", "numpy", "scipy", "pyarrow", "faiss", "matplotlib", "accelerate", "rich")
REPORT = f"print('LOADED', *sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
GROUPS = {"index": ["build", "load", "add", "remove", "compact", "info"]}  # verbs with verbs of their own
COMMAND = "from twinpass.cli.main import main\ntry: main({arguments!r})\nexcept SystemExit: pass\n"


def loaded(code: str, **environment: str) -> tuple[str, list[str]]:
    """Run code in a fresh interpreter; return what it printed and the heavy modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n" + REPORT],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout, done.stderr.split("LOADED", 1)[1].split()


def test_import_is_light():
    assert loaded("import twinpass") == ("", [])


def test_help_is_light_and_names_every_verb():
    out, heavy = loaded(COMMAND.format(arguments=["--help"]), COLUMNS="120")
    assert heavy == []
    assert all(f"  {verb} " in out and line.about in out for verb, line in VERBS.items())


def test_help_of_every_verb_is_light():
    names = [[verb] for verb in VERBS if verb not in GROUPS]
    names += [[verb, own] for verb, verbs in GROUPS.items() for own in verbs]
    out, heavy = loaded("".join(COMMAND.format(arguments=[*name, "--help"]) for name in names))
    assert heavy == []
    assert out.count("--json") == len(names)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_light(shell: str):
    out, heavy = loaded(COMMAND.format(arguments=[]), _TWINPASS_COMPLETE=f"source_{shell}")
    assert heavy == []
    assert "_TWINPASS_COMPLETE" in out


def test_completion_finds_verbs():
    out, heavy = loaded(
        "sys.argv = ['twinpass']\n" + COMMAND.format(arguments=[]),
        _TWINPASS_COMPLETE="complete_bash",
        COMP_WORDS="twinpass sim",
        COMP_CWORD="1",
    )
    assert (out.split(), heavy) == (["similarity"], [])


def test_completion_finds_options_of_a_verb():
    out, heavy = loaded(
        COMMAND.format(arguments=[]),
        _TWINPASS_COMPLETE="complete_bash",
        COMP_WORDS="twinpass encode --norm",
        COMP_CWORD="2",
    )
    assert (out.split(), heavy) == (["--normalize"], [])


def test_public_names_are_there():
    assert sorted(twinpass.__all__) == dir(twinpass)
    for name in twinpass.__all__:
        assert getattr(twinpass, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Encodr'"):
        _ = twinpass.Encodr


UNNEEDED = ("torch", "transformers", "safetensors", "huggingface_hub", "scipy", "pandas", "matplotlib", "accelerate")
UNNEEDED += ("datasets", "sympy", "PIL", "nncf", "onnxruntime", "ray", "pymilvus")


def unneeded(code: str) -> tuple[str, list[str]]:
    """Run code in a fresh interpreter; return what it printed and which modules it loaded without need."""
    out, _ = loaded(f"{code}\nprint('UNNEEDED', *sorted(set({UNNEEDED!r}) & set(sys.modules)))")
    printed, _, names = out.partition("UNNEEDED")
    return printed, names.split()


def test_similarity_with_an_exported_model_needs_no_torch(exported: str):
    out, heavy = unneeded(COMMAND.format(arguments=["similarity", "-m", exported, "a cat", "a dog"]))
    assert float(out) <= 1
    assert heavy == []


def test_search_with_an_exported_model_needs_no_torch(exported: str, sentences: Path, tmp_path: Path):
    folder = str(tmp_path / "index")
    twinpass.Index.build(folder, str(sentences), encoder=exported)
    out, heavy = unneeded(COMMAND.format(arguments=["search", folder, "a cat", "--json"]))
    assert "the cat sat on the mat" in out
    assert heavy == []


def test_serve_with_an_exported_model_needs_no_torch(exported: str):
    serve = (
        "from fastapi.testclient import TestClient\nimport twinpass, twinpass.service.server\n"
        f"with TestClient(twinpass.create_app({exported!r})) as client:\n"
        "    print(client.get('/health').status_code)\n"
        "    print(len(client.post('/v1/embeddings', json={'input': 'a cat'}).json()['data'][0]['embedding']))\n"
    )
    assert unneeded(serve) == ("200\n32\n", [])

"""The notebooks of examples/ run from top to bottom, with a tiny model and few steps."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat (pip install 'twinpass[test]')")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient (pip install 'twinpass[test]')")
    pytest.importorskip("ipykernel", reason="needs ipykernel (pip install 'twinpass[test]')")
    traitlets = pytest.importorskip("traitlets.config")  # of nbclient
    import twinpass

    source = os.fspath(Path(twinpass.__file__).parents[1])  # the kernel is a process of its own
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TWINPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert 'MODEL = "minilm"' in first.source
    first.source = f"MODEL = {model!r}\nSTEPS = 2"
    waits = {"timeout": 1200, "startup_timeout": 600, "resources": {"metadata": {"path": tmp_path}}}
    with tempfile.TemporaryDirectory() as folder:  # names of sockets are short
        # Not over ports: they are chosen before the kernel starts, and another process may take one meanwhile.
        config = traitlets.Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"})
        nbclient.NotebookClient(notebook, config=config, **waits).execute()
    tables = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "text/html" in output.get("data", {})
    ]
    assert len(tables) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat (pip install 'twinpass[test]')")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)

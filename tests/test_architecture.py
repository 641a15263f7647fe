"""The house keeps its plan: who may import whom, and what stays light."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "twinpass"
# From left to right; a room imports only rooms of an earlier row, and itself.
ROWS = [
    {"equations", "registry", "errors", "log", "display", "files", "processor", "progress", "provenance", "vectors"},
    {"config"},
    {"text"},
    {"encoder"},
    {"training", "evaluation", "analysis", "search", "bulk"},
    {"recipes", "simcse"},
    {"service"},
    {"workflows"},
    {"cli"},
]
ROW_OF = {room: row for row, rooms in enumerate(ROWS) for room in rooms}
HEAVY = {"torch", "transformers", "numpy", "scipy", "pyarrow", "faiss", "matplotlib", "accelerate", "rich"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "twinpass"
        for alias in node.names
    }
    parts = [module.split(".") for module in modules]
    return {part[1] for part in parts if part[0] == "twinpass" and len(part) > 1 and part[1] in ROW_OF}


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in ROW_OF)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_what_stands_to_its_left(path: Path) -> None:
    room = room_of(path)
    for other in imported_rooms(ast.parse(path.read_text(encoding="utf-8"))) - {room}:
        same_row_of_the_ground = ROW_OF[room] == ROW_OF[other] == 0
        assert same_row_of_the_ground or ROW_OF[other] < ROW_OF[room], f"{room} must not import {other}"


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) == "cli"], ids=lambda path: path.name)
def test_verbs_import_nothing_heavy_at_the_top_unless_imported_late_themselves(path: Path) -> None:
    tops = ast.parse(path.read_text(encoding="utf-8")).body
    names = {alias.name.split(".")[0] for node in tops if isinstance(node, ast.Import) for alias in node.names}
    names |= {(node.module or "").split(".")[0] for node in tops if isinstance(node, ast.ImportFrom)}
    assert not names & HEAVY


def test_files_stay_small() -> None:
    long = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > 450} == {}

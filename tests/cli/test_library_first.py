"""Whatever a verb does, the library does: every verb calls a public name of twinpass."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module

import pytest

import twinpass
from twinpass.cli.main import VERBS


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_a_public_function_behind_it(name: str) -> None:
    public, *parts = VERBS[name].calls.split(".")
    assert public in twinpass.__all__
    found = getattr(twinpass, public)
    for part in parts:
        found = getattr(found, part)
    assert callable(found) and inspect.getdoc(found)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_calls_its_public_function(name: str) -> None:
    last = VERBS[name].calls.split(".")[-1]
    tree = ast.parse(inspect.getsource(import_module(f"twinpass.cli.{name}")))
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert last in named

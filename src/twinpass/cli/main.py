"""The command line: a table of verbs, each imported only when it runs.

Exit codes: 0 success, 2 user error, 130 stopped by Ctrl-C, 1 any other failure.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import twinpass
from twinpass.cli.console import exit_codes, remember_command, remember_debug


class Verb(NamedTuple):
    """A verb's line in the help, and the public name of the library that does its work."""

    about: str
    calls: str


# A verb is a function of the same name in the module twinpass.cli.<verb>, decorated with console.verb;
# or, under that name, a dictionary of such functions: a verb with verbs of its own.
VERBS = {
    "demo": Verb("Train on this machine's Python documentation and search it.", "demo"),
    "encode": Verb("Encode a file of sentences into a file of vectors.", "encode_file"),
    "similarity": Verb("Compare sentences by the cosine of their vectors.", "Encoder.similarity"),
    "train": Verb("Train a sentence encoder with SimCSE or another method.", "train"),
    "sweep": Verb("Train every combination of some settings, and show the best.", "sweep"),
    "fit": Verb("Fit whitening, a flow or another layer to a model's vectors.", "fit"),
    "distill": Verb("Make a smaller student of a model: fewer layers, or static.", "distill"),
    "quantize": Verb("Make a model faster on a CPU: int8, calibrated and measured.", "quantize"),
    "export": Verb("Write a model to share: safetensors, ONNX, OpenVINO, the hub.", "export"),
    "triplets": Verb("Make training triplets from NLI data (SNLI, MNLI, ANLI).", "triplets"),
    "mine": Verb("Find hard negatives for training pairs.", "mine"),
    "evaluate": Verb("Score a model on STS, transfer tasks and your own data.", "evaluate"),
    "compare": Verb("Test whether two models differ, by a paired bootstrap.", "compare"),
    "analyze": Verb("Measure and draw the embedding space of models.", "analyze"),
    "index": Verb("Build and maintain an index of texts and their vectors.", "Index"),
    "search": Verb("Find the texts of an index that are nearest to a query.", "Index.results"),
    "dedupe": Verb("List near-duplicate texts.", "Index.dedupe"),
    "cluster": Verb("Group texts by meaning.", "Index.cluster"),
    "serve": Verb("Serve a model over HTTP, compatible with OpenAI clients.", "serve"),
    "reproduce": Verb("Run a table or figure of the paper, ours beside theirs.", "reproduce"),
    "doctor": Verb("Show this machine and what is installed.", "doctor"),
}

# Read by the libraries when they are imported, which happens only once a verb runs.
ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "true",  # set explicitly: else tokenizers warns after a fork
}

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class VerbGroup(TyperGroup):
    """The verbs of the table, with the same error handling for all."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, verb in VERBS.items():  # stand-ins: enough for --help, completion and suggestions
            self.add_command(TyperCommand(name, help=verb.about))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the verb that is to run."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name else None, rest

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the options before the verb."""
        with exit_codes({}):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with exit_codes(ctx.meta):
            return super().invoke(ctx)


def load_verb(name: str) -> Any:
    """Import a verb's module and return its command."""
    identifier = name.replace("-", "_")
    found = getattr(importlib.import_module(f"twinpass.cli.{identifier}"), identifier)
    if callable(found):
        single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=HELP)
        single.command(name)(found)
        return typer.main.get_command(single)
    group = typer.Typer(help=VERBS[name].about, add_completion=False, rich_markup_mode=None, context_settings=HELP)
    for own_verb, function in found.items():
        group.command(own_verb)(function)
    return typer.main.get_command(group)


app = typer.Typer(cls=VerbGroup, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=HELP)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"twinpass {twinpass.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def twinpass_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Sentence embeddings by contrastive learning: train, evaluate, analyze, search and serve."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb and exit with its code."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # At the end Python searches all that was imported for garbage, which takes a second; nothing is left to free.
    atexit.register(gc.freeze)
    remember_command(sys.argv[1:] if arguments is None else arguments)
    app(args=arguments, prog_name="twinpass")

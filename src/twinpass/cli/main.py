"""The command line: a table of verbs, each loaded only when it is run.

Exit codes: 0 done, 2 the user's mistake, 130 stopped from the keyboard, 1 anything else.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import twinpass
from twinpass.cli.console import exit_codes, remember_command, remember_debug

# A verb is a function of the same name in the module twinpass.cli.<verb>, decorated with console.verb;
# or, under that name, a table of such functions: a verb with verbs of its own.
VERBS = {
    "demo": "Train on this machine's documentation and search it.",
    "encode": "Turn sentences into vectors, in a file.",
    "similarity": "Compare sentences by the cosine of their vectors.",
    "train": "Train a sentence encoder with SimCSE.",
    "fit": "Fit whitening, a flow or another layer to a model's vectors.",
    "triplets": "Make training triplets of inference data (SNLI, MNLI, ANLI).",
    "evaluate": "Score a model on STS, transfer and your own data.",
    "compare": "Compare two models pair by pair: is there a difference?",
    "analyze": "Look at the space a model makes, in figures and one page.",
    "index": "Keep texts and their vectors in an index that grows.",
    "search": "Find the texts of an index that are nearest to a query.",
    "dedupe": "List texts that say nearly the same.",
    "cluster": "Sort texts into groups by what they say.",
    "serve": "Serve a model over HTTP, as OpenAI's clients speak it.",
    "reproduce": "Run a table or figure of the paper, ours beside theirs.",
    "doctor": "Look at this machine and at what is installed.",
}

# Read by the libraries when they are first imported, which no verb does before it runs.
ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "true",  # said aloud, or the tokenizers warn after a fork
}

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class VerbGroup(TyperGroup):
    """The verbs of the table, with one way of failing for all."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, line in VERBS.items():  # stand-ins: enough for --help, completion and suggestions
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb itself, now that it is to run."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name else None, rest

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options before the verb."""
        with exit_codes({}):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with exit_codes(ctx.meta):
            return super().invoke(ctx)


def load_verb(name: str) -> Any:
    """Import a verb's module and make a command of its function."""
    identifier = name.replace("-", "_")
    found = getattr(importlib.import_module(f"twinpass.cli.{identifier}"), identifier)
    if callable(found):
        single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=HELP)
        single.command(name)(found)
        return typer.main.get_command(single)
    group = typer.Typer(help=VERBS[name], add_completion=False, rich_markup_mode=None, context_settings=HELP)
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show where a failure came from.")
    ] = False,
) -> None:
    """Sentence embeddings by contrastive learning: train, judge, look at, search and serve."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb and leave with its exit code."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    remember_command(sys.argv[1:] if arguments is None else arguments)
    app(args=arguments, prog_name="twinpass")

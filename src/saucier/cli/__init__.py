"""The command line: each verb is a public function of `saucier.api`, whose signature gives it its options.

Nothing but typer is imported before a verb runs: `--help` is quick. Exit codes: 0 done, 1 the work failed, 2 the input
is wrong. What is wrong is said in one line on standard error; an error of ours keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saucier.api import inference, inspection, knowledge, measuring, models, retrieval, text, training
from saucier.arguments import is_override
from saucier.cli.derive import derive_verb
from saucier.errors import InputError, SaucierError

if TYPE_CHECKING:
    from saucier.jobs.writing.written import Written

FAILED, INTERRUPTED = 1, 130
TRACED = warnings.formatwarning
"""How Python writes a warning: with the file and the line of the code."""


Words = dict[str, Any]


def read_prompt(words: Words, as_json: bool) -> Words:
    """Take the text from standard input where none is given, and let it appear while it is written."""
    alone = not (words.get("prompt") or words.get("masks") or words.get("file"))
    prompt = read_input(words["model"]).removesuffix("\n") if alone else words.get("prompt", "")
    return words | {"prompt": prompt} | ({} if as_json else {"speak": partial(print, end="", flush=True)})


def read_text(words: Words, as_json: bool) -> Words:
    """Take the text from standard input where none is given."""
    return words if words.get("text") else words | {"text": read_input(words["folder"])}


def read_input(folder: str) -> str:
    """Return standard input, which a person may have to type: so a folder that is not there is said first."""
    from saucier.checkpoints.hub import resolve_folder

    resolve_folder(folder)
    return sys.stdin.read()


def split_words(words: Words, as_json: bool) -> Words:
    """Tell changes `key.sub=value` from the files among which they are."""
    given = words.get("rows", ())
    return words | {"rows": [one for one in given if not is_override(one)],
                    "set": [one for one in given if is_override(one)]}


def show_written(words: Words, found: Written) -> None:
    """Print texts that did not appear while they were written."""
    typer.echo("" if found.spoken else found.view())


app = typer.Typer(name="saucier", invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="Every transformer from one small kitchen: pretrain, evaluate, use and look inside.")
VERBS: dict[str, Callable[..., None]] = {
    "clean": derive_verb(text.clean, "clean"),
    "cook": derive_verb(training.cook, "cook"),
    "train": derive_verb(training.train, "train"),
    "evaluate": derive_verb(measuring.evaluate, "evaluate", prepare=split_words),
    "bench": derive_verb(measuring.bench, "bench"),
    "generate": derive_verb(inference.write, "generate", prepare=read_prompt, show=show_written),
    "finetune": derive_verb(training.finetune, "finetune"),
    "predict": derive_verb(inference.predict, "predict"),
    "embed": derive_verb(inference.embed_files, "embed"),
    "backtranslate": derive_verb(inference.backtranslate, "backtranslate"),
    "augment": derive_verb(inference.augment, "augment"),
    "rerun": derive_verb(training.rerun, "rerun"),
    "recipes": derive_verb(inspection.list_recipes, "recipes"),
    "families": derive_verb(inspection.list_families, "families"),
    "show": derive_verb(inspection.show, "show"),
    "diff": derive_verb(inspection.diff, "diff"),
    "doctor": derive_verb(inspection.diagnose, "doctor"),
    "plan": derive_verb(inspection.plan, "plan"),
    "prompt": derive_verb(inference.prompt, "prompt"),
    "attention": derive_verb(inspection.attention, "attention"),
    "attention-map": derive_verb(inspection.attention_map, "attention-map"),
    "compare": derive_verb(training.compare, "compare"),
    "compress": derive_verb(training.compress, "compress"),
    "scaling": derive_verb(inspection.scaling, "scaling"),
    "score": derive_verb(measuring.score, "score"),
    "convert": derive_verb(models.convert, "convert"),
    "export": derive_verb(models.export, "export"),
    "merge": derive_verb(models.merge, "merge"),
    "push": derive_verb(models.push, "push"),
    "number": derive_verb(inspection.number_formats, "number"),
    "index": derive_verb(knowledge.index, "index"),
    "search": derive_verb(knowledge.search, "search"),
    "ask": derive_verb(knowledge.ask, "ask"),
}
"""Verb -> what runs it, in the order of the help; the tokenizer's and the schema come last."""
DASHED = ("clean", "number", "predict")
"""Verbs of which a word may begin with a dash: -.jsonl and -0.5 are no options."""
for name, verb in VERBS.items():
    app.command(name, context_settings={"ignore_unknown_options": True} if name in DASHED else None)(verb)
tokenizer = typer.Typer(invoke_without_command=True, rich_markup_mode=None,
                        help="Train a tokenizer, or see how one splits a text.")
tokenizer.command("train")(derive_verb(text.train_tokenizer, "train"))
tokenizer.command("inspect")(derive_verb(text.inspect_tokenizer, "inspect", prepare=read_text))
app.add_typer(tokenizer, name="tokenizer")
retrieve = typer.Typer(invoke_without_command=True, rich_markup_mode=None,
                       help="Train, measure and mine for models that find passages.")
retrieve.command("train")(derive_verb(retrieval.train_retriever, "train"))
retrieve.command("evaluate")(derive_verb(retrieval.evaluate_retriever, "evaluate"))
retrieve.command("mine")(derive_verb(retrieval.mine_negatives, "mine"))
app.add_typer(retrieve, name="retrieve")
app.command("schema")(derive_verb(inspection.recipe_schema, "schema"))


def version(requested: bool) -> None:
    """Print the version and stop."""
    if requested:
        import saucier

        typer.echo(f"saucier {saucier.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option(
        "--version", callback=version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Every transformer from one small kitchen: pretrain, evaluate, use and look inside."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@retrieve.callback()
def retrieve_options(context: typer.Context) -> None:
    """Train, measure and mine for models that find passages."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@tokenizer.callback()
def tokenizer_options(context: typer.Context) -> None:
    """Train a tokenizer, or see how one splits a text."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    warnings.formatwarning = format_warning
    try:
        code = typer.main.get_command(app)(list(sys.argv[1:] if arguments is None else arguments), prog_name="saucier",
                                           standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SaucierError as error:
        complain(str(error))
        return error.exit_code
    except typer.TyperException as error:
        complain(f"{error.format_message()}; `--help` shows what there is")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        wrong = InputError("is too long for the name of a file", where=str(error.filename), remedy="give another")
        complain(str(wrong))
        return wrong.exit_code


def complain(text: str) -> None:
    """Say on standard error what is wrong; a line for each fault."""
    for line in text.splitlines():
        print(f"error: {line}", file=sys.stderr)


def format_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                   line: str | None = None) -> str:
    """Write a warning of ours for a person, and any other for an engineer."""
    return f"note: {message}\n" if category is UserWarning else TRACED(message, category, filename, lineno, line)

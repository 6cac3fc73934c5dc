"""The command line: one file for each verb, which imports nothing but typer before the verb runs: `--help` is quick.

Exit codes: 0 done, 1 the work failed, 2 the input is wrong. What is wrong is said in one line on standard error; an
error of ours keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from saucier.cli import (
    attention,
    attention_map,
    backtranslate,
    clean,
    compare,
    convert,
    cook,
    diff,
    doctor,
    evaluate,
    families,
    finetune,
    generate,
    merge,
    number,
    plan,
    predict,
    prompt,
    recipes,
    rerun,
    scaling,
    schema,
    score,
    show,
    tokenizer,
    train,
)
from saucier.errors import InputError, SaucierError

FAILED, INTERRUPTED = 1, 130
TRACED = warnings.formatwarning
"""How Python writes a warning: with the file and the line of the code."""

app = typer.Typer(name="saucier", invoke_without_command=True, add_completion=False, rich_markup_mode=None,
                  pretty_exceptions_enable=False,
                  help="Every transformer from one small kitchen: pretrain, evaluate, use and look inside.")
VERBS: tuple[Callable[..., None], ...] = (
    clean.clean, cook.cook, train.train, evaluate.evaluate, generate.generate, finetune.finetune, predict.predict,
    backtranslate.backtranslate, rerun.rerun, recipes.recipes, families.families, show.show, diff.diff,
    doctor.doctor, plan.plan, prompt.prompt, attention.attention, attention_map.attention_map, compare.compare,
    scaling.scaling, score.score, convert.convert, merge.merge, number.number)
"""In the order of the help; a group and the schema come last."""
for verb in VERBS:
    dashed = verb in (clean.clean, number.number)  # -.jsonl and -0.5 are no options
    app.command(context_settings={"ignore_unknown_options": True} if dashed else None)(verb)
app.add_typer(tokenizer.app, name="tokenizer")
app.command()(schema.schema)


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

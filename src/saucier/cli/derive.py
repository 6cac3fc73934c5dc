"""A verb of the command line, made from the signature of the public function that does its work.

Names, defaults, limits and help are read from there (`saucier.arguments.Help`). Positional parameters are arguments,
the others are options; what defaults to True is `--no-NAME`; a list is an option that can be given again.
"""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from saucier.arguments import UNIONS, Help, split_annotation
from saucier.cli.completion import COMPLETERS

if TYPE_CHECKING:
    from saucier.result import Result

Words = dict[str, Any]
"""What a person gave, by parameter; what was not given is not among it."""
FOR_PYTHON = "From Python:"
"""Begins the part of a docstring that `--help` leaves out."""
PLAIN = (bool, int, float)
"""Kinds that typer reads by itself; whatever else is text."""


def derive_verb(function: Callable[..., Any], name: str, *, prepare: Callable[[Words, bool], Words] | None = None,
                show: Callable[[Words, Any], None] | None = None) -> Callable[..., None]:
    """Return the function that typer reads a verb from.

    `prepare` adds what a shell has in its own way (standard input), and is given whether JSON is wanted; `show` prints
    the result for a person where that is more than its view. A function with `quiet` speaks while it works: its result
    is printed for `--json` alone.
    """
    parameters = inspect.signature(function).parameters
    given = {one.name: split_annotation(one.annotation) for one in parameters.values()}
    seen = [make_parameter(one, kind, about) for one in parameters.values()
            for kind, about in [given[one.name]] if about is not None and about.shell]
    negated = {one.name for one in parameters.values() if one.default is True}

    def verb(*, as_json: bool = False, **all_words: Any) -> None:
        words = {key: not value if key in negated else value for key, value in all_words.items() if value is not None}
        if prepare is not None:
            words = prepare(words, as_json)
        speaks = "quiet" in parameters
        found = function(**words, **({"quiet": True} if speaks and as_json else {}))
        if as_json or not speaks:
            print_result(found, partial(show, words) if show else None, as_json=as_json)
        if found.failed:
            raise typer.Exit(1)

    as_json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
    seen.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=as_json))
    verb.__name__, verb.__doc__ = name, shell_help(function)
    verb.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    verb.__annotations__ = {one.name: one.annotation for one in seen}
    return verb


def make_parameter(one: inspect.Parameter, kind: Any, about: Help) -> inspect.Parameter:
    """Return a parameter as typer reads it: optional ones are None where they are not given."""
    several, plain = shell_kind(kind)
    required = one.default is one.empty
    limits: dict[str, Any] = {"min": about.minimum, "max": about.maximum} if plain in (int, float) else {}
    if one.kind is one.KEYWORD_ONLY or about.option is not None:
        names = [about.option or f"--{'no-' if one.default is True else ''}{one.name.replace('_', '-')}"]
        info: Any = typer.Option(*names, metavar=about.metavar, help=about.text, rich_help_panel=about.section,
                                 show_default=not several and one.default not in (None, "", False), **limits)
    else:
        info = typer.Argument(metavar=about.metavar, help=about.text, show_default=False,
                              autocompletion=COMPLETERS.get(about.metavar), **limits)
    found = list[str] if several else plain
    default = one.empty if required else None if several or one.default is None else one.default
    if plain is bool:
        default, found = False, bool
    annotation = Annotated[found if required or plain is bool else found | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def shell_kind(kind: Any) -> tuple[bool, type]:
    """Return whether an argument takes several words, and what each is read as."""
    inside = get_args(kind) if get_origin(kind) in UNIONS else (kind,)
    several = any(get_origin(one) in (collections.abc.Sequence, collections.abc.Mapping) for one in inside)
    return several, next((one for one in PLAIN if one in inside and not several), str)


def shell_help(function: Callable[..., Any]) -> str:
    """Return what `--help` says first: the docstring up to what is for Python alone."""
    return (inspect.getdoc(function) or "").partition(FOR_PYTHON)[0].rstrip()


def print_result(found: Result, show: Callable[[Any], None] | None, *, as_json: bool) -> None:
    """Print a result for a program, or for a person."""
    if show is not None and not as_json:  # the end of what appeared while it was made comes before remarks
        show(found)
    for line in found.remarks():
        typer.echo(line, err=True)
    if as_json and isinstance(lines := found.to_json(), str):
        typer.echo(lines, nl=False)
    elif as_json:
        from saucier.jobs.run.console import print_json

        print_json(lines)
    elif show is None and isinstance(view := found.view(), str):
        typer.echo(view)
    elif show is None:
        from saucier.jobs.run.console import print_table

        print_table(found.view())

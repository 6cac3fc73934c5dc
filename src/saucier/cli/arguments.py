"""Options that several verbs share, and how `RECIPE [FILE...] [key.sub=value ...]` is understood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from saucier.recipes import Recipe


def refuse_page(option: typer.CallbackParam, value: bool) -> bool:
    """Refuse an option that printed a page of the documentation until version 0.2. Raises `InputError`."""
    from saucier.errors import InputError

    if value:
        raise InputError("pages of the documentation are written by tools/book.py now", where=option.opts[0],
                         remedy="run `make book` in the repository")
    return value


def new_folder(value: Path | None) -> Path | None:
    """Return the folder of an option. Raises `InputError` where none can be written, before any work is done."""
    from saucier.files import refuse_unwritable

    if value is not None:
        refuse_unwritable(value, folder=True)
    return value


def new_file(value: Path | None) -> Path | None:
    """Return the file of an option. Raises `InputError` where none can be written, before any work is done."""
    from saucier.files import refuse_unwritable

    if value is not None:
        refuse_unwritable(value, folder=False)
    return value


MaybeWhat = Annotated[str | None, typer.Argument(metavar="[RECIPE]",
                                                 help="A recipe's name or file, or a run folder to go on with; not "
                                                 "needed with --from.")]
Start = Annotated[Path | None,
                  typer.Option("--from", metavar="MODEL",
                               help="Begin with the weights and the tokenizer of this model or run.")]
EncoderFrom = Annotated[Path | None,
                        typer.Option("--encoder", metavar="MODEL",
                                     help="Learn from pairs with an encoder-decoder whose encoder begins with the "
                                     "weights of this model.")]
DecoderFrom = Annotated[Path | None,
                        typer.Option("--decoder", metavar="MODEL", help="The same for the decoder; may be the same.")]
Shared = Annotated[bool, typer.Option("--shared", help="With these: both sides share their weights.")]
SourceEncoder = Annotated[int | None,
                          typer.Option(min=1, metavar="LAYERS",
                                       help="With --from: put a new encoder of so many blocks before that of an "
                                       "encoder-decoder, and learn from pairs in two stages.")]
SyntheticFiles = Annotated[list[str] | None,
                           typer.Option("--synthetic", metavar="FILE",
                                        help="Learn from these pairs too, which `saucier backtranslate` made. Can be "
                                        "given again.")]
What = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or file, or a run folder to go on with.")]
Words = Annotated[list[str] | None,
                  typer.Argument(metavar="[key.sub=value]...",
                                 help="Changes to the recipe, such as training.steps=200.")]
DataFiles = Annotated[list[str] | None,
                      typer.Option("--data", metavar="FILE...",
                                   help="Text to learn from: txt, jsonl, csv, tsv, parquet, compressed or not, globs, "
                                   "- for standard input. Without it: Python's own documentation.")]
HeldOutFiles = Annotated[list[str] | None,
                         typer.Option("--held-out", metavar="FILE",
                                      help="Text to measure with, instead of a part of the data. Can be given again.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", callback=new_folder,
                                          help="The run folder; runs/NAME by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Base = Annotated[str | None, typer.Option(metavar="MODEL", help="The base model of an adapter; the one that it names "
                                          "without.")]
NoCalibrate = Annotated[bool,
                        typer.Option("--no-calibrate",
                                     help="Do not measure this machine first; the plan then gives no time.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder with a model and its tokenizer.")]


def print_found(values: Callable[[], Any], shown: Callable[[], RenderableType], *, as_json: bool) -> None:
    """Print what was found: as plain values for a program, else as a table or lines for a person."""
    from saucier.jobs.run.console import print_json, print_table

    if as_json:
        print_json(values())
    elif isinstance(made := shown(), str):
        typer.echo(made)
    else:
        print_table(made)


def synthetic_override(files: Sequence[str] | None) -> list[str]:
    """Return the change to the recipe that names synthetic pairs; none without files."""
    import json

    from saucier.text.reading.sources import make_absolute

    return [f"data.synthetic.files={json.dumps([make_absolute(name) for name in files])}"] if files else []


@dataclass(frozen=True, slots=True)
class Sides:
    """The models that the sides of an encoder-decoder begin with."""

    encoder: Path | None
    decoder: Path | None
    shared: bool

    @property
    def given(self) -> bool:
        """Whether there is one. Raises `InputError` for --shared alone."""
        from saucier.errors import InputError

        if self.shared and self.encoder is None and self.decoder is None:
            raise InputError("there are no sides to share weights", where="--shared",
                             remedy="give --encoder or --decoder")
        return self.encoder is not None or self.decoder is not None


def read_recipe_words(what: str | None, words: Sequence[str] | None, data: Sequence[str] | None,
                      held_out: Sequence[str] | None, *, start: Path | None = None, sides: Sides | None = None,
                      source_layers: int | None = None) -> tuple[Recipe, Path | None]:
    """Return the recipe that a person means, and the run folder where they gave one. Raises `InputError`.

    With a model to start from the recipe may be left out; the first word is then a change to it.
    """
    import json

    from saucier.errors import InputError
    from saucier.recipes import recipe
    from saucier.recipes.source import is_override, split_overrides
    from saucier.text.reading.sources import make_absolute

    words = list(words or ())
    warm = sides if sides is not None and sides.given else None
    free = start is not None or warm is not None
    if what is not None and (is_override(what) or (free and data and Path(what).is_file())):
        what, words = None, [str(what), *words]
    if warm is not None and (what is not None or start is not None):
        raise InputError("the recipe follows from the models of the sides", where="--encoder, --decoder",
                         remedy="leave out the recipe and --from, or set warm_start in the recipe")
    if source_layers is not None and (what is not None or start is None):
        raise InputError("a new encoder is put before that of a model to go on from", where="--source-encoder",
                         remedy="give --from MODEL, and no recipe")
    if what is None and not free:
        raise InputError("which recipe?", where="command line", remedy="`saucier recipes` lists them; or give --from")
    overrides, files = split_overrides(words, data or (), wrong="not a change to the recipe",
                                       remedy="write key.sub=value, or --data FILE for text")
    if files:
        overrides.append(f"data.files={json.dumps([make_absolute(name) for name in files])}")
    if held_out:
        names = {"kind": "files", "files": [make_absolute(name) for name in held_out]}
        overrides.append(f"data.held_out={json.dumps(names)}")
    if warm is not None:
        from saucier.jobs.pretraining.initialization import warm_start_recipe

        return warm_start_recipe(warm.encoder, warm.decoder, shared=warm.shared, overrides=overrides), None
    if what is None:
        from saucier.jobs.pretraining.initialization import continued_recipe

        assert start is not None, "looked at above"
        return continued_recipe(start, overrides, source_layers=source_layers), None
    folder = Path(what)
    if folder.is_dir() and (folder / "recipe.yaml").is_file():
        return recipe(folder / "recipe.yaml", overrides), folder
    return recipe(what, overrides), None

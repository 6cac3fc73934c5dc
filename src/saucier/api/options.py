"""Arguments that several public functions share, each with its help."""

from typing import TYPE_CHECKING, Annotated, Literal

from saucier.api.requests import refuse_folder, refuse_missing_files, refuse_missing_model
from saucier.arguments import Changes, Help, Place, Rows, not_imported

if TYPE_CHECKING:
    from saucier.recipes import Recipe
else:
    Recipe = not_imported("saucier.recipes.recipe", "Recipe")

Out = Annotated[Place | None, Help("The run folder; runs/NAME by default.", metavar="DIR", check=refuse_folder)]
RecipeChanges = Annotated[Changes, Help("Changes to the recipe, such as training.steps=200.",
                                        metavar="key.sub=value")]
TextData = Annotated[Rows | None, Help(
    "Text to learn from: txt, jsonl, csv, tsv, parquet, compressed or not, globs, - for standard input. Without it: "
    "Python's own documentation.", metavar="FILE...", check=refuse_missing_files)]
HeldOutText = Annotated[Rows | None, Help(
    "Text to measure with, instead of a part of the data. Can be given again.", metavar="FILE",
    check=refuse_missing_files)]
Base = Annotated[Place | None, Help("The base model of an adapter; the one that it names without.", metavar="MODEL",
                                     check=refuse_missing_model)]
Calibrate = Annotated[bool, Help("Do not measure this machine first; the plan then gives no time.")]
Quiet = Annotated[bool, Help("Say nothing while it works; on a terminal a bar still shows how training goes.",
                             shell=False)]
Run = Annotated[Place, Help("A run folder, or a folder with a model and its tokenizer.", metavar="RUN",
                             check=refuse_missing_model)]
Delimiter = Annotated[str | None, Help(
    "What divides the columns of tables: a letter, or comma, semicolon, tab, bar; guessed without it.", metavar="MARK")]
Encoding = Annotated[str | None, Help("How the files are written, such as cp1252; guessed without it.",
                                      metavar="NAME")]
BadRows = Annotated[Literal["refuse", "drop"] | None, Help(
    "What happens to rows that cannot be used: refuse, all at once; or drop: leave them out, count and list them.",
    metavar="refuse|drop")]
RecipeOrRun = Place | Recipe | None
"""A recipe's name or file, a recipe, or a run folder."""
InferenceDtype = Annotated[str, Help("auto, float32, bfloat16.", choices=("auto", "float32", "bfloat16"))]
NumberFormat = Annotated[Literal["auto", "float32", "bfloat16", "int8", "int4"] | None, Help(
    "Read the matrices in this number format, by kernels in C on the CPU; auto: what `saucier bench` chose for the "
    "model on this machine, or what loses nothing.", metavar="auto|float32|bfloat16|int8|int4")]
Device = Annotated[str, Help("auto, cpu, cuda, mps.")]
SourceLanguage = Annotated[str | None, Help("Multilingual models: the language of the source, as de.")]
TargetLanguage = Annotated[str | None, Help("Multilingual models: the language to write.")]

"""Public functions that look at models, recipes and results, and train nothing."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from saucier.api.options import (
    Base,
    Calibrate,
    Delimiter,
    Device,
    Encoding,
    HeldOutText,
    RecipeChanges,
    RecipeOrRun,
    Run,
    SourceLanguage,
    TargetLanguage,
    TextData,
)
from saucier.api.requests import (
    TextFiles,
    file_names,
    format_changes,
    optional_path,
    read_request,
    refuse_file,
    refuse_folder,
    refuse_missing_files,
    refuse_missing_model,
    refuse_missing_runs,
)
from saucier.arguments import Files, Help, Place, public
from saucier.errors import InputError
from saucier.files import is_file

if TYPE_CHECKING:
    from saucier.cost.planning import Plan
    from saucier.diagnosis.doctor import Diagnosis
    from saucier.jobs.attention_views import Attention
    from saucier.jobs.comparison.scaling import Fit
    from saucier.lens.anatomy import AdapterDescription, Description
    from saucier.lens.diff import Differences
    from saucier.lens.growth import Growth
    from saucier.lens.heat_map import HeatMap
    from saucier.lens.kernel_plan import KernelPlan
    from saucier.lens.layouts import Layouts
    from saucier.lens.number_formats import GivenNumbers
    from saucier.lens.pattern_pictures import Patterns
    from saucier.recipes.listing import RecipeList, RecipeSchema


@public
def recipe_schema() -> "RecipeSchema":
    """Print the JSON Schema of recipes; an editor that has it completes and checks them."""
    from saucier.recipes.catalogue import schema
    from saucier.recipes.listing import RecipeSchema

    return RecipeSchema(schema())


@public
def list_recipes() -> "RecipeList":
    """List the recipes: family, objective, parameters and what they are for."""
    from saucier.recipes.listing import RecipeList

    return RecipeList.of_ours()


@public
def list_families(
    model_type: Annotated[str, Help("One of them, with its fields. Default: the list.", metavar="MODEL_TYPE")] = "",
) -> "Layouts":
    """List the published layouts that can be opened and written, with their classes; or all about one of them."""
    from saucier.families import LAYOUTS
    from saucier.lens.layouts import Layouts, find_layout

    return Layouts((find_layout(model_type),), whole=True) if model_type else Layouts(tuple(LAYOUTS.values()))


@public
def show(
    model: Annotated[Place, Help("A recipe's name or file, a run folder, or a saved model.", metavar="NAME|FILE")],
    set: RecipeChanges = (),
    *,
    length: Annotated[int | None, Help("Tokens in a row; the recipe's length by default.", minimum=1)] = None,
    batch: Annotated[int | None, Help("Rows in training; the recipe's (micro-)batch by default.", minimum=1)] = None,
    plan: Annotated[bool, Help("Show the kernel calls that a saved model is lowered to, or why it is not; exit code 1 "
                               "then.")] = False,
) -> "Description | AdapterDescription | KernelPlan":
    """Draw a model as a tree: parts, shapes, parameters, FLOPs a token, and the memory it needs.

    From Python: raises `InputError` for what is no recipe and no model.
    """
    if plan:
        from saucier.lens.kernel_plan import describe_kernel_plan

        return describe_kernel_plan(Path(model))
    from saucier.lens.anatomy import describe

    return describe(str(model), format_changes(set), length=length, batch=batch)


@public
def diff(left: Annotated[Place, Help("A recipe's name or file, a run folder, or a saved model.", metavar="A")],
         right: Annotated[Place, Help("Another one.", metavar="B")]) -> "Differences":
    """Lay two recipes or models side by side, and show only what differs."""
    from saucier.lens.diff import Differences, differences
    from saucier.lens.subject import comparable_values, find_subject

    found = differences(*comparable_values(find_subject(str(left)), find_subject(str(right))))
    return Differences((str(left), str(right)), tuple(found))


@public
def plan(
    recipe: Annotated[RecipeOrRun, Help("A recipe's name or file, or a run folder to go on with.", metavar="RECIPE")],
    set: RecipeChanges = (),
    *,
    data: TextData = None,
    held_out: HeldOutText = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    seconds: Annotated[float, Help("How long to measure this machine; its start takes some more.", minimum=0.1)] = 5.0,
    calibrate: Calibrate = True,
) -> "Plan":
    """Say what a recipe will cost on this machine: parameters, tokens, FLOPs, memory and time.

    From Python: raises `InputError` for a recipe that is wrong.
    """
    if isinstance(recipe, Place) and is_file(Path(recipe) / "config.json"):
        raise InputError("a saved model has no training to plan", where=str(recipe),
                         remedy=f"saucier show {recipe} says what it costs to run")
    files = TextFiles.of(data, held_out, None, delimiter=delimiter, encoding=encoding)
    found, _ = read_request(recipe, format_changes(set), files)
    from saucier.cost.planning import make_plan  # reads numpy: after what the words may be wrong in

    return make_plan(found, seconds=seconds if calibrate else None)


@public
def diagnose(
    model: Annotated[Place, Help("A model folder, a run, or a hub id.", metavar="MODEL", check=refuse_missing_model)],
    *,
    text: Annotated[Files | None, Help("Text to hold the laws on; Python's documentation without it. Can be given "
                                       "again.", metavar="FILE", check=refuse_missing_files)] = None,
    dtype: Annotated[str, Help("float32, bfloat16, float16, float64; its tolerance goes with it.",
                               choices=("auto", "float32", "bfloat16", "float16", "float64"))] = "float32",
    device: Device = "auto",
    base: Base = None,
) -> "Diagnosis":
    """Prove that a model gives a row the same numbers alone, batched, padded, cached, packed; and look at its parts.

    Exit code 1 where a law fails.
    """
    from saucier.diagnosis.doctor import diagnose as work

    return work(str(model), files=file_names(text), dtype=dtype, device=device,
                base=None if base is None else str(base))


@public
def scaling(
    runs: Annotated[Files, Help("Run folders, or folders of comparisons.", metavar="RUN", check=refuse_missing_runs)],
    *,
    by: Annotated[str, Help("both (parameters and tokens), parameters, tokens or flops.",
                            choices=("both", "parameters", "tokens", "flops"))] = "both",
    predict: Annotated[Files | None, Help("Leave this run out and predict it; the largest ones by default. Can be "
                                          "given again.", metavar="RUN", check=refuse_missing_runs)] = None,
    out: Annotated[Place | None, Help("Draw it into DIR/scaling.html.", metavar="DIR", check=refuse_folder)] = None,
    page: Annotated[Place | None, Help("Write it into a page of Markdown, its picture beside it.", metavar="FILE.md",
                                       check=refuse_file)] = None,
) -> "Fit":
    """Fit a scaling law to finished runs, and predict the largest of them, which it was not fitted to."""
    from saucier.jobs.comparison import scaling as work
    from saucier.jobs.comparison.report import write_law_page, write_scaling_page

    folders, predicted = (work.finished_runs([Path(name) for name in file_names(names)]) for names in (runs, predict))
    points = work.read_points(list(dict.fromkeys([*folders, *predicted])))
    left_out = [one for one in points if Path(one.name) in predicted] if predicted else \
        work.select_largest_runs(points)
    found = work.fit_law(work.LAWS[by], [one for one in points if one not in left_out], left_out)
    if page is not None:
        write_law_page(found, Path(page))
    if out is not None:
        write_scaling_page(found, Path(out))
    return found


@public
def attention(
    model: Annotated[Place, Help("A recipe's name or file, a run, or a model's folder.", metavar="MODEL")],
    set: RecipeChanges = (),
    *,
    text: Annotated[str | None, Help("Show what the trained model attends to in this text; without it, which tokens "
                                     "may see which.", metavar="TEXT")] = None,
    second: Annotated[str | None, Help("The second text of a pair, for an encoder.", metavar="TEXT")] = None,
    target: Annotated[str | None, Help("What the decoder of an encoder-decoder reads; what it writes itself without "
                                       "it.", metavar="TEXT")] = None,
    length: Annotated[int, Help("The most tokens that are read or drawn.", minimum=1, maximum=2048)] = 64,
    side: Annotated[Literal["encoder", "decoder", "cross"] | None, Help("encoder, decoder or cross alone.",
                                                                        metavar="SIDE")] = None,
    layer: Annotated[int | None, Help("One layer alone, from 0.", minimum=0)] = None,
    head: Annotated[int | None, Help("One head alone, from 0.", minimum=0)] = None,
    global_tokens: Annotated[int, Help("First tokens that are global, where a model has such.", option="--global",
                                       minimum=0)] = 1,
    prefix: Annotated[int | None, Help("First tokens that all may see, where a model has a prefix; without it none of "
                                       "a text, else a quarter.", minimum=0)] = None,
    training: Annotated[bool, Help("As in training: random blocks are drawn, and passes that are measured go backwards "
                                   "too.")] = False,
    lengths: Annotated[str | None, Help("Measure time and memory at these lengths.", metavar="N,N,...")] = None,
    base: Base = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    out: Annotated[Place | None, Help("Draw into an SVG, PNG or PDF file; of a text also a page with all heads, "
                                      "FILE.html.", metavar="FILE", check=refuse_file)] = None,
) -> "Attention | Patterns | Growth":
    """Show what a trained model attends to in a text, or which tokens see which, or what growing lengths cost.

    Without a text the picture is read off the built attention, with random weights.

    From Python: an `Attention` has the weights of every head as numbers, and a notebook shows it as the page.
    """
    path = optional_path(out)
    if text is not None:
        refuse_given({"set": set or None, "training": training or None, "lengths": lengths}, "of random weights",
                     "leave it out, or leave out text")
        refuse_attended(str(model), text, path)
        from saucier.jobs.attention_views import TextRequest, attend_to_text

        request = TextRequest(text, second, target, length, side, layer, head, global_tokens, prefix)
        return attend_to_text(str(model), request, base=None if base is None else str(base),
                              languages=(source_language, target_language), out=path)
    refuse_given({"second": second, "target": target, "side": side, "base": base, "source_language": source_language,
                  "target_language": target_language}, "of a text", "give text too")
    from saucier.lens.subject import find_subject

    found = find_subject(str(model), format_changes(set))
    if lengths is not None:
        from saucier.lens.growth import follow_growth, read_lengths

        return follow_growth(found.model, found.name, read_lengths(lengths), training=training, out=path)
    for option, value in (("--global", global_tokens), ("--prefix", prefix or 0)):
        if value > length:
            raise InputError(f"{value} of {length} tokens", where=option,
                             remedy=f"give {length} or fewer, or a longer --length")
    from saucier.lens.attention_patterns import PatternText
    from saucier.lens.pattern_pictures import draw_patterns

    return draw_patterns(found.model, found.name,
                         PatternText(length, global_tokens, length // 4 if prefix is None else prefix),
                         layer=layer, head=head, training=training, out=path)


def refuse_attended(model: str, text: str, out: Path | None) -> None:
    """Raise `InputError` for what cannot be shown of a text, as far as it is seen without opening the model."""
    from saucier.lens.heat_map import SUFFIXES
    from saucier.recipes import names

    if not text.strip():
        raise InputError("the text is empty", where="text", remedy="give some text")
    if out is not None and out.suffix not in (".html", *SUFFIXES):
        raise InputError(f"cannot draw a {out.suffix or 'file without suffix'}", where=str(out),
                         remedy=f"use .html for a page with all heads, or {', '.join(SUFFIXES)} for a picture of one")
    if not Path(model).exists() and model in names():
        raise InputError("a recipe has no trained weights, so it attends to nothing in a text", where=model,
                         remedy="give a model's folder or a run; or leave out the text, and see the pattern")
    refuse_missing_model(model)


def refuse_given(values: dict[str, Any], what: str, remedy: str) -> None:
    """Raise `InputError` for an argument that says nothing here."""
    for name, value in values.items():
        if value is not None:
            raise InputError(f"is a setting {what}", where=name, remedy=remedy)


@public
def attention_map(
    run: Run,
    source: Annotated[str, Help("The text that the encoder reads.", metavar="SOURCE")],
    target: Annotated[str | None, Help("The text to be written; the model's own translation without it.",
                                       metavar="TARGET")] = None,
    *,
    out: Annotated[Place | None, Help("Draw it into an SVG, PNG or PDF file.", metavar="FILE",
                                      check=refuse_file)] = None,
    layer: Annotated[int, Help("Which attention to the encoder, from 0; negative ones count from the last.")] = -1,
    head: Annotated[int | None, Help("One head alone; the mean of all without it.", minimum=0)] = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
) -> "HeatMap":
    """Draw which tokens of a source a model looks at while it writes each token of a target."""
    from saucier.jobs.run.language_pairs import read_direction
    from saucier.jobs.writing.writer import attention_map as work
    from saucier.lens.heat_map import save_picture
    from saucier.opened import open_model

    opened = open_model(Path(run), dtype="float32")
    way = read_direction(opened, source_language, target_language)
    found = work(opened, source, target, layer=layer, head=head, way=way)
    return found if out is None else save_picture(found, Path(out))


@public
def number_formats(values: Annotated[Files, Help("Numbers: 0.1, -1e-3, 1/3, inf, nan.", metavar="VALUE")]
                   ) -> "GivenNumbers":
    """Show sign, exponent and fraction of a number in float32, bfloat16 and float16, and the rounding error."""
    from saucier.lens.number_formats import GivenNumbers, read_number

    return GivenNumbers(tuple(map(read_number, file_names(values))))

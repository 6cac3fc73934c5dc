"""`saucier cook`: the whole job."""

from __future__ import annotations

from saucier.cli.arguments import (
    DataFiles,
    DecoderFrom,
    EncoderFrom,
    HeldOutFiles,
    MaybeWhat,
    NoCalibrate,
    Out,
    Shared,
    Sides,
    SourceEncoder,
    Start,
    Steps,
    SyntheticFiles,
    Words,
)


def cook(what: MaybeWhat = None, words: Words = None, *, data: DataFiles = None, held_out: HeldOutFiles = None,
         steps: Steps = None, out: Out = None, start: Start = None, encoder: EncoderFrom = None, decoder: DecoderFrom = None,
         shared: Shared = False, synthetic: SyntheticFiles = None,
         source_encoder: SourceEncoder = None, no_calibrate: NoCalibrate = False) -> None:
    """Read text, train a tokenizer and a model, evaluate, sample and report. A run that was stopped goes on.

    With --steps a run that has ended gets more. With --from another run goes on from a model that is there; a recipe
    for that is made where none is given.
    """
    from saucier.cli.arguments import read_recipe_words, synthetic_override

    words = [*(words or ()), *([] if steps is None else [f"training.steps={steps}"])]
    recipe, given = read_recipe_words(what, [*words, *synthetic_override(synthetic)], data, held_out,
                                      start=start, sides=Sides(encoder, decoder, shared), source_layers=source_encoder)
    from saucier.jobs.pretraining.cook import JobOptions
    from saucier.jobs.pretraining.cook import cook as work
    from saucier.jobs.run.folder import PRETRAINING, default_folder

    folder = out or given or default_folder(recipe, PRETRAINING)
    work(recipe, folder, JobOptions(calibrate=not no_calibrate, start=start))

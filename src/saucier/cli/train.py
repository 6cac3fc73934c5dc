"""`saucier train`: as cook, up to the trained model."""

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
    SyntheticFiles,
    Words,
)


def train(what: MaybeWhat = None, words: Words = None, *, data: DataFiles = None, held_out: HeldOutFiles = None,
          out: Out = None, start: Start = None, encoder: EncoderFrom = None, decoder: DecoderFrom = None,
          shared: Shared = False, synthetic: SyntheticFiles = None,
          source_encoder: SourceEncoder = None, no_calibrate: NoCalibrate = False) -> None:
    """Train a model and stop there; `saucier cook` on the same folder evaluates, samples and reports."""
    from saucier.cli.arguments import read_recipe_words, synthetic_override

    recipe, given = read_recipe_words(what, [*(words or ()), *synthetic_override(synthetic)], data, held_out,
                                      start=start, sides=Sides(encoder, decoder, shared), source_layers=source_encoder)
    from saucier.jobs.pretraining.cook import JobOptions
    from saucier.jobs.pretraining.cook import cook as work
    from saucier.jobs.run.folder import PRETRAINING, default_folder

    work(recipe, out or given or default_folder(recipe, PRETRAINING),
         JobOptions(calibrate=not no_calibrate, evaluate=False, start=start))

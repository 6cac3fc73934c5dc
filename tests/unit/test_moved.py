"""Import paths that the docs once showed lead to the new place."""

from __future__ import annotations

import importlib

import pytest

from saucier import config as c
from saucier.moved import MOVED


@pytest.mark.parametrize(("path", "name", "place", "new"), [
    ("saucier.loading", "load", "saucier.folders.load", "load"),
    ("saucier.adapters", "open_adapter", "saucier.folders.load", "open_adapter"),
    ("saucier.adapters", "save_adapter", "saucier.folders.save", "save_adapter"),
    ("saucier.adaptation.config", "Lora", "saucier.adaptation.tuning", "Lora"),
    ("saucier.adaptation.nf4", "quantize", "saucier.adaptation.quantization.normal_float", "quantize"),
    ("saucier.adaptation.nf4", "QuantizedLinear", "saucier.adaptation.quantization.maps", "QuantizedLinear"),
    ("saucier.adaptation.merging", "merge", "saucier.adaptation.lora", "merge"),
    ("saucier.adaptation.surgery.config", "Windows", "saucier.adaptation.surgery.operations", "Windows"),
    ("saucier.inspection.doctor", "examine", "saucier.diagnosis.doctor", "examine_model"),
    ("saucier.runs.diagnosis", "diagnose", "saucier.diagnosis.doctor", "diagnose"),
    ("saucier.runs.clean", "Wishes", "saucier.jobs.cleaning.clean", "CleaningOptions"),
    ("saucier.runs.clean", "orders", "saucier.jobs.cleaning.clean", "orders"),
    ("saucier.runs.clean_engine", "CleanBlock", "saucier.jobs.cleaning.clean", "CleanBlock"),
    ("saucier.runs.clean_rules", "cleaning", "saucier.jobs.cleaning.clean", "cleaning"),
    ("saucier.tasks.metrics.intervals", "Mean", "saucier.tasks.metrics.metric", "Mean"),
    ("saucier.text.spelling", "spelled", "saucier.text.tokenizer.model_inputs", "spell_words"),
])
def test_an_old_path_leads_to_the_new_place(path: str, name: str, place: str, new: str) -> None:
    """It is the same object, and the warning names where it is now."""
    with pytest.warns(DeprecationWarning, match=rf"{path}.{name} is now {place}.{new}"):
        found = getattr(importlib.import_module(path), name)
    assert found is getattr(importlib.import_module(place), new)
    assert path in MOVED


def test_an_old_class_of_the_config_is_a_kind_now() -> None:
    """What the docs showed builds the same config; other names are no attributes."""
    with pytest.warns(DeprecationWarning, match=r"BothWays\(\) is now Direction\(kind='both'\)"):
        assert c.BothWays() == c.Direction(kind="both")
    with pytest.warns(DeprecationWarning, match="FromFinalStates"):
        assert c.FromFinalStates() == c.InitialState(kind="final")
    with pytest.raises(AttributeError, match="no attribute 'BothWay'"):
        _ = c.BothWay


def test_what_never_was_is_an_error_as_always() -> None:
    """The finder claims no other path, and invents no name."""
    with pytest.raises(ModuleNotFoundError, match=r"saucier\.runs\.nonsense"):
        importlib.import_module("saucier.runs.nonsense")
    with pytest.warns(DeprecationWarning, match="nonsense"), pytest.raises(AttributeError, match="nonsense"):
        importlib.import_module("saucier.loading").nonsense  # noqa: B018  (looking it up is the test)

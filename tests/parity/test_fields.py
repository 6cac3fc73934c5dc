"""A value in a published config that its reference reads is obeyed exactly, or refused by its name: field by field.

One field of a drawn legal config takes another value, the reference is built, and its numbers and texts are compared
with ours. What the tables of a layout say of the field, which `saucier families` shows, must be what was found.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.parity import draws

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

from tests.parity import field_experiment as experiment  # noqa: E402
from tests.parity import writing_experiment as writing  # noqa: E402
from tests.parity.field_values import ABSENT, fields, values  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

from saucier.errors import InputError  # noqa: E402
from saucier.families.layouts import LAYOUTS  # noqa: E402
from saucier.inspection.published import rulings  # noqa: E402

FAMILIES = sorted(path.stem for path in Path(draws.__path__[0]).glob("*.py") if path.stem != "__init__")
WRITES = re.compile("ConditionalGeneration|CausalLM|LMHead|MaskedLM|Decoder|PreTraining|MTModel")
HEADS = re.compile(".*label.*|classif.*|summary.*|.*pad_token_id|problem.*|tie_.*|is_decoder|[sec].*_token_id")
WIDE = 100
"""Sizes above this are not built: what a missing one stands for is compared as a tree."""
APART = {
    "position_embedding_type": "only version 4 of the reference reads it; test_positions_of_version_4 has its numbers",
    "per_layer_config": "the reference's own way to say layers one by one; refused",
}
"""Fields of which the experiment cannot find anything, and why."""
STORED = ("t5", "mt5", "switch_transformers")
"""The reference ties their output matrix whatever `tie_word_embeddings` says, unless the files hold another one."""
FOUND: list[tuple[str, str, dict[str, Any], str]] = [
    ("albert", "AlbertForMaskedLM", {"hidden_act": ABSENT}, "obeyed"),
    ("fnet", "FNetForMaskedLM", {"hidden_act": ABSENT}, "obeyed"),
    ("mt5", "MT5ForConditionalGeneration", {"feed_forward_proj": ABSENT, "dense_act_fn": ABSENT,
                                            "is_gated_act": ABSENT}, "obeyed"),
    ("m2m_100", "M2M100ForConditionalGeneration", {"scale_embedding": ABSENT, "activation_function": ABSENT}, "obeyed"),
    ("mixtral", "MixtralForCausalLM", {"rms_norm_eps": ABSENT}, "obeyed"),
    ("bart", "BartForConditionalGeneration", {"num_hidden_layers": 1}, "obeyed"),
    ("t5", "T5ForConditionalGeneration", {"dense_act_fn": "tanh"}, "obeyed"),
    ("t5", "T5ForConditionalGeneration", {"is_gated_act": True, "dense_act_fn": "gelu"}, "refused"),
    ("t5", "T5ForConditionalGeneration", {"scale_decoder_outputs": None}, "obeyed"),
    ("marian", "MarianForCausalLM", {"decoder_vocab_size": 61 + 40}, "obeyed"),
    ("llama", "LlamaForCausalLM", {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0,
                                                       "partial_rotary_factor": 0.5}}, "refused"),
    ("bert", "BertForSequenceClassification", {"num_labels": 4, "id2label": {"0": "yes", "1": "no"}}, "obeyed"),
    ("electra", "ElectraForMaskedLM", {"embedding_size": 0}, "refused"),
    ("gpt_neo", "GPTNeoForCausalLM", {"attention_types": [[["local"], 2]]}, "obeyed"),
    ("reformer", "ReformerForMaskedLM", {"num_hidden_layers": 1}, "refused"),
    ("xlm", "XLMWithLMHeadModel", {"vocab_size": ABSENT, "n_words": 122}, "obeyed"),
    ("switch_transformers", "SwitchTransformersForConditionalGeneration", {"num_decoder_layers": None}, "obeyed"),
    ("bert", "BertForMaskedLM", {"hidden_dropout_prob": 1.0}, "refused"),
    ("marian", "MarianForCausalLM", {"decoder_ffn_dim": 0}, "refused"),
]
"""Faults that the whole experiment found, and what became of them."""


def main_class(family: str) -> str:
    """Return the class of a family that every value is tried with: one that writes, where there is one."""
    classes = experiment.drawn(family, 0)[1]
    return next((name for name in classes if WRITES.search(name)), classes[0])


def tried(family: str, published: str, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield every field with every value; a missing size is not built."""
    config, start = experiment.drawn(family, seed)[0], experiment.base(family, published, seed)
    layout, kind = LAYOUTS[config.model_type], CONFIG_MAPPING[config.model_type]
    vocab = (config.decoder if family == "encoder_decoder" else config).vocab_size
    default = kind().to_dict() if family != "encoder_decoder" else {}
    for field in fields(layout, family):
        own = start.document.get(field, getattr(config, field, None))
        for value in values(kind, field, own, vocab):
            size = default.get(field) if value == ABSENT else 0
            if value == ABSENT and (field not in start.document or (isinstance(size, int) and size > WIDE)):
                continue
            yield field, value


def contradiction(family: str, published: str, field: str, value: Any, outcome: experiment.Outcome) -> str:
    """Return what is wrong with an outcome: a fault, or that the tables say something else; empty where nothing is."""
    if outcome.kind == experiment.ILLEGAL or field in APART:
        return ""
    if family in STORED and field == "tie_word_embeddings":
        return ""
    if outcome.kind == experiment.FAULT:
        return outcome.told
    layout = LAYOUTS[experiment.drawn(family, 0)[0].model_type]
    said = {found.name: found for found in rulings(layout, published)}.get(field)
    refused = outcome.kind == experiment.REFUSED
    if said is None:
        return "" if refused else "it is obeyed, and no table knows it"
    if not said.acts:
        return "it is refused, and the tables say that it changes no number" * refused or (
            "it changes numbers, and the tables say that it does not" * outcome.acts)
    listed = said.values is None or value in (None, ABSENT) or value in said.values
    return "" if listed or refused else "it is obeyed, and the tables refuse it"


def faults_of(family: str, published: str, seed: int, tries: list[dict[str, Any]], folder: Path) -> list[str]:
    """Run experiments, and return a line for each that is wrong."""
    start, wrong = experiment.base(family, published, seed), []
    for changes in tries:
        outcome = experiment.attempt(start, seed, changes, folder)
        for field, value in changes.items():
            if told := contradiction(family, published, field, value, outcome):
                wrong.append(f"{published} {json.dumps(changes)}: {told}")
                break
    return wrong


@pytest.mark.parametrize(("family", "published", "changes", "kind"), FOUND)
def test_what_was_at_fault(family: str, published: str, changes: dict[str, Any], kind: str, tmp_path: Path) -> None:
    start = experiment.base(family, published, 0)
    outcome = experiment.attempt(start, 0, changes, tmp_path)
    assert outcome.kind == kind, outcome.told
    assert kind == "obeyed" or any(name in outcome.told for name in changes)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_field_in_another_value(family: str, tmp_path: Path) -> None:
    """A value drawn for each family; all of them are below."""
    published = main_class(family)
    known = {key.foreign for key in LAYOUTS[experiment.drawn(family, 0)[0].model_type].keys}
    every = [(field, value) for field, value in tried(family, published, 0) if field in known]
    if every:
        field, value = random.Random(family).choice(every)
        assert not faults_of(family, published, 0, [{field: value}], tmp_path)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "encoder_decoder"])
def test_a_missing_field_stands_for_the_references_default(family: str) -> None:
    """As trees, so that large sizes are compared too; a field that must be said is refused by its name."""
    config, published = experiment.drawn(family, 0)[0], main_class(family)
    layout = LAYOUTS[config.model_type]
    document = {**config.to_dict(), "architectures": [published]}
    for key in (*layout.keys, *layout.classes[published].keys):
        short = {name: value for name, value in document.items() if name not in (key.foreign, *key.instead)}
        try:
            found = experiment.tree_of(short, published)
            default = getattr(CONFIG_MAPPING[config.model_type].from_dict(dict(short)), key.foreign, None)
        except (InputError, *experiment.FAILS):  # it must be said, or its default does not go with the others
            continue
        if default is not None:
            said = json.loads(json.dumps({**short, key.foreign: default}, default=str))
            assert in_full(found) == in_full(experiment.tree_of(said, published)), key.foreign


def in_full(tree: Any) -> Any:
    """Say in a tree what it says by leaving it out: the width of a head, and the number of heads of keys."""
    width = tree.dim

    def walked(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [walked(one) for one in value]
        if not isinstance(value, dict):
            return value
        walk = {name: walked(one) for name, one in value.items()}
        if "head_dim" not in walk:
            return walk
        return {**walk, "head_dim": walk["head_dim"] or width // walk["heads"],
                "kv_heads": walk["kv_heads"] or walk["heads"]}

    return walked(tree.model_dump())


@pytest.mark.parametrize("said", [
    {"renormalize_logits": True, "suppress_tokens": [5, 6, 7], "num_beams": 3},
    {"num_beams": 2, "length_penalty": -1.5}, {"encoder_no_repeat_ngram_size": 2},
    {"num_beam_groups": 2, "num_beams": 4, "diversity_penalty": 0.5},
    {"forced_eos_token_id": None}])
@pytest.mark.parametrize("file", writing.FILES[:2])
def test_what_a_folder_says_of_generation(file: str, said: dict[str, Any], tmp_path: Path) -> None:
    outcome = writing.attempt_writing(writing.writer("bart", 0), file, said, tmp_path / "folder")
    assert outcome.kind != experiment.FAULT, outcome.told


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_in_every_value(family: str, tmp_path: Path) -> None:
    published = main_class(family)
    start = experiment.base(family, published, 0)
    assert experiment.attempt(start, 0, {}, tmp_path).kind == experiment.OBEYED
    tries = [{field: value} for field, value in tried(family, published, 0)]
    assert not faults_of(family, published, 0, tries, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_fields_of_heads_in_every_class(family: str, tmp_path: Path) -> None:
    wrong = []
    for published in experiment.drawn(family, 0)[1]:
        rng = random.Random(published)
        tries = [{field: value} for field, value in tried(family, published, 0)
                 if HEADS.fullmatch(field) or rng.random() < 0.05]
        wrong += faults_of(family, published, 0, tries, tmp_path)
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_of_fields(family: str, tmp_path: Path) -> None:
    rng, published = random.Random(family), main_class(family)
    every = list(tried(family, published, 1))
    tries = [dict(rng.sample(every, 2)) for _ in range(60)]
    assert not faults_of(family, published, 1, tries, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", writing.WRITERS)
def test_everything_of_generation(family: str, tmp_path: Path) -> None:
    start, wrong = writing.writer(family, 0), []
    for file, field, value, beams in writing.cases(family):
        said = {field: value} if beams == 1 else {field: value, "num_beams": beams}
        outcome = writing.attempt_writing(start, file, said, tmp_path / "folder")
        if outcome.kind == experiment.FAULT:
            wrong.append(f"{file} {json.dumps(said)}: {outcome.told}")
    assert not wrong

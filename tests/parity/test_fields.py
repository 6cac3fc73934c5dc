"""A value in a published config that its reference reads is obeyed exactly, or refused by its name: field by field.

One field of a drawn legal config takes another value, the reference is built, and its numbers and texts are compared
with ours. What the tables of a layout say of the field, which `saucier families` shows, must be what was found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

from tests.parity import field_experiment as experiment  # noqa: E402
from tests.parity import field_trials as trials  # noqa: E402
from tests.parity import writing_experiment as writing  # noqa: E402
from tests.parity.field_values import ABSENT  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

from saucier.errors import InputError  # noqa: E402
from saucier.families import LAYOUTS  # noqa: E402

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
    ("ctrl", "CTRLLMHeadModel", {"n_embd": 4}, "refused"),
    ("bart", "BartForConditionalGeneration", {"num_hidden_layers": -1}, "refused"),
    ("deberta", "DebertaForMaskedLM", {"pos_att_type": []}, "refused"),
    ("deberta_v2", "DebertaV2ForMaskedLM", {"legacy": True}, "obeyed"),
    ("xlnet", "XLNetLMHeadModel", {"mem_len": -1}, "refused"),
    ("xlnet", "XLNetLMHeadModel", {"mem_len": 0}, "obeyed"),
]
"""Faults that the whole experiment found, and what became of them."""
SAID: list[tuple[str, str, dict[str, Any]]] = [
    ("bert", "BertLMHeadModel", {"tie_word_embeddings": False}),
    ("opt", "OPTForCausalLM", {"tie_word_embeddings": False}),
    ("t5", "T5ForConditionalGeneration", {"relative_attention_num_buckets": 7, "relative_attention_max_distance": 19}),
    ("electra", "ElectraForMultipleChoice", {"summary_type": "mean"}),
    ("xlnet", "XLNetForSequenceClassification", {"summary_type": "mean"}),
    ("encoder_decoder", "EncoderDecoderModel", {"pad_token_id": 0}),  # widths of 24 and 16
]
"""What our tree can say beside what most published configs say."""


@pytest.mark.sampled
@pytest.mark.parametrize(("family", "published", "changes", "kind"), FOUND)
def test_what_was_at_fault(family: str, published: str, changes: dict[str, Any], kind: str, tmp_path: Path) -> None:
    start = experiment.base(family, published, 0)
    outcome = experiment.attempt(start, 0, changes, tmp_path)
    assert outcome.kind == kind, outcome.told
    assert kind == "obeyed" or any(name in outcome.told for name in changes)


@pytest.mark.parametrize(("family", "published", "changes"), SAID)
def test_what_a_layout_can_say_opens(family: str, published: str, changes: dict[str, Any], tmp_path: Path) -> None:
    outcome = experiment.attempt(experiment.base(family, published, 0), 0, changes, tmp_path)
    assert outcome.kind == experiment.OBEYED, outcome.told


def test_the_pair_of_these_tests_has_sides_of_unequal_widths() -> None:
    config = experiment.drawn("encoder_decoder", 0)[0]
    assert config.encoder.hidden_size != config.decoder.hidden_size


@pytest.mark.sampled
@pytest.mark.parametrize("family", trials.FAMILIES)
def test_one_field_in_another_value(family: str, tmp_path: Path) -> None:
    """A value drawn for each family; all of them are below."""
    known = {key.foreign for key in LAYOUTS[experiment.drawn(family, 0)[0].model_type].keys}
    every = [trial for trial in trials.alone(family) if known.issuperset(trial.changes)]
    if every:
        assert not wrong(trials.found_of([random.Random(family).choice(every)], tmp_path))


@pytest.mark.sampled
@pytest.mark.parametrize("family", [family for family in trials.FAMILIES if family != "encoder_decoder"])
def test_a_missing_field_stands_for_the_references_default(family: str) -> None:
    """As trees, so that large sizes are compared too; a field that must be said is refused by its name."""
    config, published = experiment.drawn(family, 0)[0], trials.main_class(family)
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


@pytest.mark.slow
@pytest.mark.parametrize("said", [
    {"renormalize_logits": True, "suppress_tokens": [5, 6, 7], "num_beams": 3},
    {"num_beams": 2, "length_penalty": -1.5}, {"encoder_no_repeat_ngram_size": 2},
    {"num_beam_groups": 2, "num_beams": 4, "diversity_penalty": 0.5},
    {"forced_eos_token_id": None}])
@pytest.mark.parametrize("file", writing.FILES[:2])
def test_what_a_folder_says_of_generation(file: str, said: dict[str, Any], tmp_path: Path) -> None:
    outcome = writing.attempt_writing(writing.writer("bart", 0), file, said, tmp_path / "folder")
    assert outcome.kind != experiment.FAULT, outcome.told


@pytest.mark.nightly
@pytest.mark.parametrize("family", trials.FAMILIES)
def test_every_field_in_every_value(family: str, tmp_path: Path) -> None:
    start = experiment.base(family, trials.main_class(family), 0)
    assert experiment.attempt(start, 0, {}, tmp_path).kind == experiment.OBEYED
    found = list(trials.found_of(trials.alone(family), tmp_path))
    assert not wrong(found)
    assert not trials.never_obeyed(found)


@pytest.mark.nightly
@pytest.mark.parametrize("family", trials.FAMILIES)
def test_fields_of_heads_in_every_class(family: str, tmp_path: Path) -> None:
    assert not wrong(trials.found_of(trials.of_heads(family), tmp_path))


@pytest.mark.nightly
@pytest.mark.parametrize("family", trials.FAMILIES)
def test_pairs_of_fields(family: str, tmp_path: Path) -> None:
    assert not wrong(trials.found_of(trials.in_pairs(family), tmp_path))


@pytest.mark.nightly
@pytest.mark.parametrize("family", writing.WRITERS)
def test_everything_of_generation(family: str, tmp_path: Path) -> None:
    assert not wrong(trials.of_generation(family, tmp_path / "folder"))


def wrong(found: Iterable[trials.Found]) -> list[str]:
    """Return a line for each experiment that is wrong."""
    return [str(one) for one in found if one.wrong]

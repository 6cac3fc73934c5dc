"""Every option that the reference's `generate` reads is obeyed to the number, or refused by its name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

from tests.parity import field_experiment as experiment  # noqa: E402
from tests.parity import writing_experiment as writing  # noqa: E402

import saucier  # noqa: E402
from saucier.checkpoints.published_names import read_generation_defaults  # noqa: E402
from saucier.errors import InputError  # noqa: E402
from saucier.generation.options import GenerationOptions, resolve_options  # noqa: E402
from saucier.generation.rules import Prompt, make_search_rules  # noqa: E402
from saucier.generation.search import apply_processors  # noqa: E402

EVERY = sorted(transformers.GenerationConfig().to_dict())
VOCAB, LENGTH, LIMIT = 23, 6, 9
DRAWN: dict[str, list[Any]] = {
    "repetition_penalty": [1.0, 0.7, 1.6], "no_repeat_ngram_size": [0, 1, 2, 3],
    "bad_words_ids": [None, [[3]], [[1, 2], [4], [5, 6, 7]]], "min_length": [0, 5, 9], "min_new_tokens": [None, 0, 2],
    "forced_eos_token_id": [None, None, 5, [5, 6]], "remove_invalid_values": [False, True],
    "suppress_tokens": [None, [8, 9]], "begin_suppress_tokens": [None, [10, 11]], "do_sample": [True, True, False],
    "temperature": [1.0, 0.6, 2.5], "top_k": [0, 1, 2, 7, 50], "top_p": [1.0, 0.3, 0.9], "num_beams": [1, 4],
    "renormalize_logits": [False, True], "eos_token_id": [None, 2, [2, 3, 4]]}
"""What shapes the scores, with the values that are drawn."""


@pytest.fixture(scope="module")
def reference() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=1, vocab_size=VOCAB, n_positions=16, bos_token_id=None, eos_token_id=None))


def theirs(reference: Any, said: dict[str, Any], prompt: torch.Tensor) -> Any:
    """Return the reference's list of what changes the scores."""
    config = transformers.GenerationConfig(**said, max_length=LIMIT)
    reference._prepare_special_tokens(config, True, device="cpu")
    mask = {"attention_mask": torch.ones_like(prompt)}
    return reference._get_logits_processor(config, input_ids_seq_length=prompt.shape[1], encoder_input_ids=prompt,
                                           device="cpu", model_kwargs=mask)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(150))
def test_scores_are_changed_as_the_reference_changes_them(reference: Any, seed: int) -> None:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    said = {name: rng.choice(values) for name, values in DRAWN.items()}
    options = resolve_options(said, {})
    prompt = torch.randint(0, VOCAB, (2, LENGTH), generator=generator)
    ours = make_search_rules(options, Prompt(prompt), limit=LIMIT, tokenizer=None)
    other = theirs(reference, said, prompt)
    for length in range(LENGTH, LIMIT):
        ids = torch.randint(0, VOCAB, (2, length), generator=generator)
        ids[:, :LENGTH] = prompt
        scores = torch.randn(2, VOCAB, generator=generator) * 3
        if said["remove_invalid_values"]:
            scores[0, 1], scores[1, 7], scores[1, 8] = float("nan"), float("inf"), -float("inf")
        got, want = apply_processors(ours.processors, ids, scores), other(ids, scores.clone())
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, msg=lambda told: f"{told} {said}")


def test_every_option_of_the_reference_is_tried() -> None:
    assert set(EVERY) <= set(writing.VALUES)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in GenerationOptions.model_fields])
def test_an_option_of_the_reference_that_is_given_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InputError) as error:
        resolve_options({name: 1}, {})
    assert error.value.where == name
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("said", [
    {"guidance_scale": 0.0}, {"max_time": 0.0}, {"cache_implementation": "quantized"}, {"typical_p": 0.0},
    {"prompt_lookup_num_tokens": 0}, {"top_h": 0.0}])
def test_a_default_of_zero_that_the_reference_follows_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        resolve_options({}, {**said, "do_sample": True})
    assert error.value.where == next(iter(said))


def test_what_asks_for_nothing_is_no_fault() -> None:
    resolve_options({}, {"guidance_scale": 1.0, "max_time": None, "cache_implementation": "static",
                         "num_beam_groups": 1, "typical_p": 0.5, "use_mtp": False, "diversity_penalty": 0.0,
                         "encoder_repetition_penalty": 1.0})


def test_a_folder_that_asks_for_drawing_draws_from_fifty_tokens_as_in_the_reference(tmp_path: Path) -> None:
    start, folder = writing.writer("gpt2", 0), tmp_path / "folder"
    for said, count in (({"do_sample": True}, 50), ({"do_sample": True, "top_k": None}, 50),
                        ({"do_sample": True, "top_k": 0}, 0), ({"do_sample": False}, None)):
        experiment.store(writing.weights(start), start.document, folder, said)
        assert read_generation_defaults(folder, {}).get("top_k") == count
    assert writing.attempt_writing(start, writing.FILES[0], {"do_sample": True}, folder).kind == experiment.OBEYED


def test_a_model_of_ours_that_draws_from_all_tokens_says_so_in_a_published_folder(tmp_path: Path) -> None:
    start = writing.writer("gpt2", 0)
    experiment.store(writing.weights(start), start.document, tmp_path / "one", None)
    model = saucier.load(tmp_path / "one")
    model.generation = {"do_sample": True}
    model.save(tmp_path / "two")
    assert read_generation_defaults(tmp_path / "two", {}) == {"do_sample": True, "top_k": 0}

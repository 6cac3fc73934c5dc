"""The contract of `saucier.generate`: rows, masks, seeds, streaming, stop strings, and one clear line for bad input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.unit.generation.models import SIZES, left_mask, prompt, small

import saucier
from saucier import InputError
from saucier.generation import TextStream
from saucier.model import Transformer


class Letters:
    """A tokenizer of one letter a token, but for the tokens 1 and 2, which are the two bytes of é."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        pieces = {1: b"\xc3", 2: b"\xa9"}
        return b"".join(pieces.get(number, bytes([62 + number])) for number in ids).decode(errors="replace")


@pytest.fixture(scope="module")
def gpt2() -> Transformer:
    return small("gpt2")


@pytest.fixture(scope="module")
def t5() -> Transformer:
    return small("t5")


def test_prompt_stays_in_front(gpt2: Transformer) -> None:
    got = saucier.generate(gpt2, prompt(), max_new_tokens=5)
    assert got.shape == (3, 12)
    assert got.dtype == torch.int64
    assert torch.equal(got[:, :7], prompt())
    got[0, 0] = 3  # the caller's own tensor, not one of inference mode


def test_a_source_is_not_repeated(t5: Transformer) -> None:
    got = saucier.generate(t5, prompt(), max_new_tokens=5, decoder_start_token_id=4)
    assert got.shape == (3, 6)
    assert got[:, 0].tolist() == [4, 4, 4]


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "transformer"])
def test_greedy_is_the_likeliest_token_each_time(family: str) -> None:
    """Without a cache: the whole text goes through the model for every token."""
    model, source = small(family), prompt(1)
    pair = model.config.encoder is not None
    text = torch.zeros(1, 1, dtype=torch.long) if pair else source
    with torch.no_grad():
        for _ in range(8):
            logits = (model(source, decoder_input_ids=text) if pair else model(text)).logits
            text = torch.cat([text, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(saucier.generate(model, source, max_new_tokens=8, decoder_start_token_id=0), text)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "transformer"])
def test_padding_changes_nothing(family: str, beams: int) -> None:
    model, ids, mask = small(family), prompt(), left_mask()
    options = {"max_new_tokens": 8, "num_beams": beams, "decoder_start_token_id": 0}
    padded = saucier.generate(model, ids.masked_fill(mask == 0, 0), mask, **options)
    for row in range(3):
        alone = saucier.generate(model, ids[row : row + 1, mask[row].bool()], **options)[0]
        assert padded[row, -8:].tolist() == alone[-8:].tolist()


def test_padding_is_found_without_a_mask(gpt2: Transformer) -> None:
    ids, mask = prompt().masked_fill(left_mask() == 0, 0), left_mask()
    assert torch.equal(saucier.generate(gpt2, ids, pad_token_id=0), saucier.generate(gpt2, ids, mask))


def test_the_encoder_runs_once(t5: Transformer) -> None:
    assert t5.encoder is not None
    calls: list[int] = []
    handle = t5.encoder.register_forward_hook(lambda *given: calls.append(len(given[1][0])))
    try:
        saucier.generate(t5, prompt(), max_new_tokens=6, num_beams=4, decoder_start_token_id=0)
    finally:
        handle.remove()
    assert calls == [3]  # three sources, not twelve rows, and not once a token


def test_only_the_last_position_gets_logits(gpt2: Transformer) -> None:
    assert gpt2.head is not None
    lengths: list[int] = []
    handle = gpt2.head.register_forward_hook(lambda *given: lengths.append(given[1][0].shape[1]))
    try:
        saucier.generate(gpt2, prompt(), max_new_tokens=4)
    finally:
        handle.remove()
    assert lengths == [1, 1, 1, 1]


def test_rows_end_and_are_filled(gpt2: Transformer) -> None:
    free = saucier.generate(gpt2, prompt(), max_new_tokens=10)
    end = int(free[0, 9])
    got = saucier.generate(gpt2, prompt(), max_new_tokens=10, eos_token_id=end, pad_token_id=0)
    place = free[0, 7:].tolist().index(end) + 7
    assert got[0, : place + 1].tolist() == free[0, : place + 1].tolist()
    assert set(got[0, place + 1 :].tolist()) <= {0}


def test_seeds(gpt2: Transformer) -> None:
    def draw(**options: Any) -> list[list[int]]:
        return saucier.generate(gpt2, prompt(), max_new_tokens=8, do_sample=True, **options).tolist()  # type: ignore[no-any-return]

    assert draw(seed=1) == draw(seed=1)
    assert draw(seed=1) != draw(seed=2)
    assert draw() != draw()
    torch.manual_seed(3)
    first = draw()
    torch.manual_seed(3)
    assert draw() == first


def test_a_seed_leaves_the_global_generator_alone(gpt2: Transformer) -> None:
    before = torch.get_rng_state()
    saucier.generate(gpt2, prompt(), do_sample=True, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_several_samples_of_a_prompt(gpt2: Transformer) -> None:
    got = saucier.generate(gpt2, prompt(2), max_new_tokens=8, do_sample=True, num_return_sequences=3, seed=0)
    assert torch.equal(got[:, :7], prompt(2).repeat_interleave(3, 0))
    assert len({tuple(row) for row in got[:3].tolist()}) > 1


def test_top_k_of_one_and_a_tiny_top_p_are_greedy(gpt2: Transformer) -> None:
    greedy = saucier.generate(gpt2, prompt())
    assert torch.equal(saucier.generate(gpt2, prompt(), do_sample=True, top_k=1), greedy)
    assert torch.equal(saucier.generate(gpt2, prompt(), do_sample=True, top_p=1e-6), greedy)


@pytest.mark.parametrize("engine", [None, "native"])
def test_a_listener_hears_every_token(gpt2: Transformer, engine: str | None) -> None:
    heard: list[torch.Tensor] = []
    got = saucier.generate(gpt2, prompt(), max_new_tokens=5, listener=heard.append, engine=engine)
    assert torch.equal(torch.stack(heard, 1), got[:, 7:])


def test_text_is_streamed_in_whole_characters() -> None:
    pieces: list[str] = []
    stream = TextStream(Letters(), pieces.append)
    for token in (7, 1, 2, 8, 1):
        stream(torch.tensor([token]))
    stream.close()
    assert "".join(pieces) == Letters().decode([7, 1, 2, 8, 1])
    assert pieces == ["E", "é", "F", "\N{REPLACEMENT CHARACTER}"]


def test_stop_strings_end_a_row_with_the_token_that_completes_them(gpt2: Transformer) -> None:
    options = {"max_new_tokens": 12, "pad_token_id": 0, "tokenizer": Letters()}
    free = Letters().decode(saucier.generate(gpt2, prompt(1), **options)[0, 7:].tolist())
    stop = free[3:5]
    got = saucier.generate(gpt2, prompt(1), stop_strings=stop, **options)[0, 7:].tolist()
    assert Letters().decode(got) == free[: free.index(stop) + 2]
    beams = saucier.generate(gpt2, prompt(1), stop_strings=(stop, "ZZ"), num_beams=3, **options)[0, 7:].tolist()
    assert stop not in Letters().decode(beams)[:-1]


def test_defaults_come_from_the_model_and_the_call_goes_first() -> None:
    model = small("gpt2")
    model.generation = {"max_new_tokens": 3, "transformers_version": "5", "top_k": None}
    assert saucier.generate(model, prompt()).shape[1] == 10
    assert saucier.generate(model, prompt(), max_new_tokens=None).shape[1] == 10
    assert saucier.generate(model, prompt(), max_new_tokens=5).shape[1] == 12
    assert saucier.generate(model, prompt(), max_length=9).shape[1] == 9


def test_defaults_that_cannot_be_followed_are_refused_by_name() -> None:
    model = small("gpt2")
    model.generation = {"typical_p": 0.4, "num_beam_groups": 1, "use_cache": True, "assistant_lookbehind": 10}
    saucier.generate(model, prompt())  # nothing is drawn, so nothing reads typical_p
    with pytest.raises(saucier.InputError, match=r"^typical_p: 0\.4"):
        saucier.generate(model, prompt(), do_sample=True)
    model.generation = {"num_beam_groups": 2}
    with pytest.raises(saucier.InputError, match=r"^num_beam_groups: 2"):
        saucier.generate(model, prompt())


def test_training_goes_on_afterwards() -> None:
    model = small("gpt2", dropout=0.5).train()
    assert torch.equal(saucier.generate(model, prompt()), saucier.generate(model, prompt()))
    assert model.training
    assert model.decoder is not None
    assert model.decoder.training
    loss = model(prompt()).logits.sum()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_an_empty_prompt_begins_with_bos(gpt2: Transformer) -> None:
    got = saucier.generate(gpt2, bos_token_id=5, max_new_tokens=4)
    assert torch.equal(got, saucier.generate(gpt2, torch.tensor([[5]]), max_new_tokens=4))
    assert saucier.generate(gpt2, torch.zeros(2, 0, dtype=torch.long), bos_token_id=5, max_new_tokens=1).shape == (2, 2)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "beams": ({"num_beams": 0}, r"num_beams: .*greater than 0, not 0; 1 is no beam search"),
    "top_p 0": ({"top_p": 0}, r"top_p: .*greater than 0"),
    "top_p above 1": ({"top_p": 1.5}, r"top_p: .*less than or equal to 1, not 1\.5"),
    "temperature": ({"temperature": 0.0, "do_sample": True}, r"temperature: .*leave do_sample=False"),
    "no tokens": ({"max_new_tokens": 0}, "max_new_tokens: .*greater than 0"),
    "unknown": ({"num_beam": 2}, "num_beam: unknown option of generate; did you mean 'num_beams'"),
    "too long": (
        {"max_new_tokens": 42},
        "max_new_tokens: 7 tokens of prompt and 42 new ones are more than .* use max_new_tokens=41",
    ),
    "too few beams": (
        {"num_beams": 2, "num_return_sequences": 3},
        "num_return_sequences: 3 sequences of 2 beams; use num_beams=3",
    ),
    "greedy copies": ({"num_return_sequences": 2}, "num_return_sequences: .*do_sample=True"),
    "stop without tokenizer": ({"stop_strings": ["x"], "pad_token_id": 0}, "stop_strings: .*give tokenizer="),
    "stop without fill": ({"stop_strings": ["x"], "tokenizer": Letters()}, "pad_token_id: rows that end early"),
    "empty stop": ({"stop_strings": [""], "pad_token_id": 0}, "empty entry"),
    "streamed beams": ({"num_beams": 2, "listener": print}, "listener: .*num_beams=1"),
    "length reached": ({"max_length": 7}, "max_length: the prompt has 7 tokens already"),
    "mask's shape": (
        {"attention_mask": torch.ones(3, 6)},
        r"attention_mask: mask of shape \[3, 6\] for ids of \[3, 7\]",
    ),
    "padding at the right": (
        {"attention_mask": left_mask().flip(1)},
        "attention_mask: row 1 ends with padding; pad prompts on the left",
    ),
    "empty row": (
        {"attention_mask": torch.tensor([[1], [0], [1]]).expand(3, 7)},
        "attention_mask: row 1 holds no token",
    ),
    "foreign token": ({"input_ids": torch.tensor([[1, 40]])}, "input_ids: token 40 is outside the vocabulary of 40"),
    "foreign end": ({"eos_token_id": [3, 40]}, "eos_token_id: token 40 is outside the vocabulary of 40"),
    "foreign bad word": ({"bad_words_ids": [[3, -1]]}, "bad_words_ids: token -1 is outside"),
    "floats": ({"input_ids": torch.ones(1, 2)}, "input_ids: ids of shape"),
    "one row": ({"input_ids": torch.tensor([1, 2])}, "input_ids: the prompt has 1 dimensions; give ids"),
    "nothing": ({"input_ids": None}, "input_ids: the prompt is empty; give ids"),
    "no rows": ({"input_ids": torch.zeros(0, 3, dtype=torch.long)}, "input_ids: ids of shape"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_bad_input_gets_one_line(gpt2: Transformer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        saucier.generate(gpt2, **{"input_ids": prompt()} | options)
    assert "\n" not in str(caught.value)


def test_models_that_do_not_write(t5: Transformer) -> None:
    from saucier.families import FAMILIES

    bert = saucier.build(FAMILIES["bert"](**SIZES, length=16))
    with pytest.raises(InputError, match="has no decoder"):
        saucier.generate(bert, prompt())
    with pytest.raises(InputError, match="decoder_start_token_id: nothing to begin the text with"):
        saucier.generate(t5, prompt())
    for start in (-1, -(10**9), SIZES["vocab"]):
        with pytest.raises(InputError, match=f"decoder_start_token_id: token {start} is outside the vocabulary"):
            saucier.generate(t5, prompt(), decoder_start_token_id=start)
    with pytest.raises(InputError, match="needs a source"):
        saucier.generate(t5, decoder_start_token_id=0)
    with pytest.raises(InputError, match="decoder_start_token_id: token 99 is outside"):
        saucier.generate(t5, prompt(), decoder_start_token_id=99)


def test_the_last_position_can_be_used(gpt2: Transformer) -> None:
    assert saucier.generate(gpt2, prompt(), max_new_tokens=41).shape == (3, 48)

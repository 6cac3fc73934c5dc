"""Prefixes and prompts: alone = padded = cached, gradients for them alone, the definition by hand, generation."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import family
from tests.tolerances import assert_close
from torch import Tensor

import saucier
from saucier import InputError
from saucier.adaptation import tuning as a
from saucier.adaptation.prefix import drop_prefix_network
from saucier.adaptation.rewrite import list_trainable, rewrite, unrewrite
from saucier.model import Transformer, build
from saucier.parts.prefix import PrefixKeys, SoftPrompt

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])
DECODERS = ("gpt2", "llama", "opt", "bloom", "mistral", "gptj", "t5_decoder")
ENCODERS = ("bert", "roberta", "deberta_v2", "albert", "modernbert")
PAIRS = ("t5", "bart")
BY_DISTANCE = ("bloom", "mistral")
"""Decoders in which padding at the left would stand between."""
KINDS: dict[str, a.Tuning] = {"prefix": a.Prefix(length=3), "network": a.Prefix(length=3, hidden=7),
                              "prompt": a.Prompt(length=3)}
SIDES: dict[str, a.Tuning] = {"target": a.Prompt(length=3, side=a.BeforeTarget()),
                              "both": a.Prompt(length=3, side=a.BeforeBoth())}
BOTH = [(body, kind) for body in (*DECODERS, *ENCODERS, *PAIRS) for kind in KINDS] + \
    [(body, kind) for body in PAIRS for kind in SIDES]
"""Every body with every kind that it can have."""


def tuned(body: str, kind: str) -> Transformer:
    """Return a model whose prefix or prompt says something."""
    model = build(family(body), seed=3).eval()
    rewrite(model, by=(KINDS | SIDES)[kind], seed=1)
    with torch.no_grad():
        for parameter in list_trainable(model).values():
            parameter.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(len(parameter.shape)))
    return model


def extra(model: Transformer, rows: int = 2) -> dict[str, Tensor]:
    pair = model.config.encoder is not None and model.config.decoder is not None
    found = {"decoder_input_ids": torch.tensor([[3, 8, 4, 6]]).expand(rows, -1)} if pair else {}
    if "prefix" in str(model.config.decoder.layers if model.config.decoder else ""):
        found["prefix_length"] = torch.full((rows,), 2)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(("body", "kind"), BOTH)
def test_padding_changes_nothing(body: str, kind: str) -> None:
    """Alone, in a batch, padded at the right or at the left (where places follow the text)."""
    model = tuned(body, kind)
    with torch.no_grad():
        alone = model(IDS[:1, :3], **extra(model, 1)).last_hidden_state
        right = IDS.clone()
        right[0, 3:] = 0
        mask = torch.tensor([[1, 1, 1, 0, 0], [1] * 5])
        batch = model(right, mask, **extra(model)).last_hidden_state
        length = alone.shape[1]
        assert_close(batch[:1, :length], alone)
        if body in DECODERS and body != "t5_decoder":
            left = torch.cat([torch.zeros(1, 2, dtype=torch.long), IDS[:1, :3]], dim=1)
            mask = torch.tensor([[0, 0, 1, 1, 1]])
            places = (mask.cumsum(1) - 1).clamp(min=0)
            if body in BY_DISTANCE:
                with pytest.raises(InputError, match="this model counts the distance"):
                    model(left, mask, places=places)
            else:
                assert_close(model(left, mask, places=places).last_hidden_state[:, 2:], alone)
        plain = unrewrite(model)(IDS[:1, :3], **extra(model, 1)).last_hidden_state
    assert plain.shape == alone.shape and (plain - alone).abs().max() > 1e-3


@pytest.mark.parametrize(("body", "kind"), [one for one in BOTH if one[0] in ("gpt2", "llama", "t5", "bart", "bert")])
def test_only_they_learn(body: str, kind: str) -> None:
    model = tuned(body, kind).train()
    model(IDS, **extra(model)).last_hidden_state.square().sum().backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert touched == set(list_trainable(model)) and all(name.startswith("front.") for name in touched)


@pytest.mark.sampled
@pytest.mark.parametrize(("body", "kind"), [one for one in BOTH if one[0] in ("gpt2", "llama", "opt", "t5", "bart")])
def test_generation_reads_them_once(body: str, kind: str) -> None:
    """With a cache as without, one row alone as beside a longer one, and with beams."""
    model = tuned(body, kind)
    ids, mask = torch.tensor([[0, 0, 5, 6, 7], [9, 3, 2, 4, 1]]), torch.tensor([[0, 0, 1, 1, 1], [1] * 5])
    if body in PAIRS:
        ids, mask = ids.flip(1), mask.flip(1)
    start = {"decoder_start_token_id": 2} if body in PAIRS else {}
    options = {"max_new_tokens": 6, "pad_token_id": 0, "eos_token_id": None, **start}
    together = saucier.generate(model, ids, mask, **options)
    alone = saucier.generate(model, torch.tensor([[7, 6, 5]] if body in PAIRS else [[5, 6, 7]]), **options)
    assert torch.equal(together[0, -6:], alone[0, -6:])
    if body not in PAIRS:
        assert torch.equal(saucier.generate(model, ids, mask, use_cache=False, **options), together)
        again, text = [], torch.tensor([[5, 6, 7]])
        with torch.no_grad():
            for _ in range(6):
                again.append(int(model(text).logits[0, -1].argmax()))
                text = torch.cat([text, torch.tensor([[again[-1]]])], dim=1)
        assert again == alone[0, -6:].tolist()
    assert saucier.generate(model, ids, mask, num_beams=2, **options).shape == together.shape
    with pytest.raises(InputError, match="a prefix or a prompt before the text"):
        saucier.generate(model, ids, mask, compile=True, **options)


def test_packed_texts_share_them_and_nothing_else() -> None:
    for kind in ("prefix", "prompt"):
        model = tuned("gpt2", kind)
        with torch.no_grad():
            apart = [model(IDS[:1, start:stop]).last_hidden_state for start, stop in ((0, 3), (3, 5))]
            packed = model(IDS[:1], documents=torch.tensor([[0, 0, 0, 1, 1]]), places=torch.tensor([[0, 1, 2, 0, 1]]))
        assert_close(packed.last_hidden_state, torch.cat(apart, dim=1))


@pytest.mark.parametrize("body", PAIRS)
def test_a_prompt_before_the_target_is_tokens_of_its_own(body: str) -> None:
    """With the vectors of real tokens it gives the numbers, and the next tokens, of a target that begins with them."""
    model = build(family(body), seed=3).eval()
    first, written = torch.tensor([[4, 9, 6]]).expand(2, -1), torch.tensor([[3, 8, 4], [5, 2, 7]])
    with torch.no_grad():
        expected = model(IDS, decoder_input_ids=torch.cat([first, written], dim=1), output_hidden_states=True,
                         output_attentions=True)
        rewrite(model, by=a.Prompt(length=3, start=a.FromTokens(ids=(4, 9, 6)), side=a.BeforeTarget()))
        found = model(IDS, decoder_input_ids=written, output_hidden_states=True, output_attentions=True)
    assert found.logits is not None and expected.logits is not None
    assert_close(found.logits, expected.logits[:, 3:])
    for one, other in zip(found.decoder_hidden_states or (), expected.decoder_hidden_states or (), strict=True):
        assert_close(one, other[:, 3:])
    for one, other in zip(found.cross_attentions or (), expected.cross_attentions or (), strict=True):
        assert_close(one, other[:, :, 3:])
    assert saucier.generate(model, IDS, decoder_start_token_id=3, max_new_tokens=1, eos_token_id=None,
                            pad_token_id=0)[0, -1] == expected.logits[0, 3].argmax()
    documents = torch.zeros_like(IDS)
    with pytest.raises(InputError, match="packed pairs"):
        model(IDS, documents=documents, decoder_input_ids=written, decoder_documents=documents[:, :3])


def test_one_stack_has_one_side() -> None:
    with pytest.raises(InputError, match="this model has one side"):
        rewrite(build(family("gpt2")), by=a.Prompt(side=a.BeforeTarget()))


def test_a_prompt_is_tokens_of_its_own() -> None:
    """With the vectors of real tokens it gives the numbers of those tokens before the text."""
    model = build(family("gpt2"), seed=3).eval()
    with torch.no_grad():
        expected = model(torch.cat([torch.tensor([[11, 12, 11]]).expand(2, -1), IDS], dim=1)).logits[:, 3:]
        rewrite(model, by=a.Prompt(length=3, start=a.FromTokens(ids=(11, 12))))
        assert_close(model(IDS).logits, expected)


def test_a_prefix_is_what_a_cache_of_tokens_would_hold() -> None:
    model = build(family("llama"), seed=3).eval()
    first = torch.tensor([[11, 12, 13]])
    with torch.no_grad():
        cache = model.new_cache(1, 3)
        model(first, cache=cache)
        expected = model(torch.cat([first, IDS[:1]], dim=1)).logits[:, 3:]
        rewrite(model, by=a.Prefix(length=3))
        assert isinstance(model.front, PrefixKeys)
        pairs = zip(cache.keys, cache.values, strict=True)
        held = [one[0].transpose(0, 1).flatten(1) for pair in pairs for one in pair]
        model.front.made.values.copy_(torch.cat(held, dim=1))
        assert_close(model(IDS[:1]).logits, expected)


def test_the_network_is_dropped_and_its_values_stay() -> None:
    model = tuned("gpt2", "network")
    with torch.no_grad():
        before = model(IDS).logits
        drop_prefix_network(model)
        assert torch.equal(model(IDS).logits, before)
    assert [*list_trainable(model)] == ["front.made.values"] and model.provenance.rewrites[0].by.hidden is None


def test_a_prompt_begins_as_tokens_of_the_vocabulary() -> None:
    model = build(family("gpt2"), seed=3)
    rewrite(model, by=a.Prompt(length=4, start=a.FromVocabulary(first=6)), seed=2)
    assert isinstance(model.front, SoftPrompt)
    table = model.embed.tokens.weight
    assert all(any(torch.equal(vector, row) for row in table[:6]) for vector in model.front.vectors)


@pytest.mark.parametrize(("body", "message"), [
    ("reformer", "cut into chunks"), ("longformer", "which tokens stand where"), ("xlnet", "remembers earlier"),
    ("fnet", "no attention"),
])
def test_models_they_do_not_fit(body: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rewrite(build(family(body), seed=1), by=a.Prefix())


def test_places_that_are_taken() -> None:
    model = tuned("gpt2", "prefix")
    with pytest.raises(InputError, match="61 positions"):
        saucier.generate(model, IDS[:1], max_new_tokens=60)
    with pytest.raises(InputError, match="one before the text already"):
        rewrite(model, by=a.Prompt())

"""Trained models in another shape: short texts keep their numbers, and what is pooled or tiled is so by definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.laws.zoo import family, scrambled, tokens
from tests.tolerances import MODEL, assert_close
from torch import Tensor

from saucier import config as c
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import (
    Blocks,
    GroupedHeads,
    Hashes,
    Layers,
    MixedKeys,
    Operation,
    OperationOptions,
    Positions,
    RandomFeatures,
    Tokens,
    Windows,
)
from saucier.errors import InputError
from saucier.families.reformer import reformer
from saucier.model import Transformer, build

WINDOW, BLOCKS = Windows(width=16), Blocks(size=4, drawn=1)


def padded(model: Transformer, pad: int, length: int) -> tuple[Tensor, Tensor]:
    """Two texts of which the second is shorter by five, padded on the right."""
    ids = tokens(model.config, 2, length).clamp(min=4)
    ids[1, length - 5:] = pad
    return ids, (ids != pad).long()


@pytest.mark.parametrize("by", [(WINDOW,), (Positions(length=100), WINDOW), (BLOCKS,), (Positions(length=100), BLOCKS)],
                         ids=["window", "longer window", "blocks", "longer blocks"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_texts_shorter_than_what_is_seen_keep_their_numbers(name: str, by: tuple[Operation, ...]) -> None:
    before = scrambled(family(name))
    pad = 1 if name == "roberta" else 0
    after, same = operate(before, by=by, pad=pad)
    assert same == (9 if WINDOW in by else 28)
    ids, mask = padded(before, pad, int(same))
    with torch.no_grad():
        one, other = before(ids, mask), after(ids, mask)
        assert_close(other.last_hidden_state[mask.bool()], one.last_hidden_state[mask.bool()], MODEL)
        ids = tokens(before.config, 2, int(same) + 12).clamp(min=4)
        assert (after(ids).last_hidden_state - before(ids).last_hidden_state).abs().max() > 0.01


def test_global_tokens_read_by_maps_that_begin_as_those_of_all() -> None:
    before = scrambled(family("roberta"))
    after, _ = operate(before, by=(Windows(width=16, tokens=c.AtMostFirst(kind="first_token")),), pad=1)
    ids = tokens(before.config, 2, 9).clamp(min=4)
    with torch.no_grad():
        assert_close(after(ids).last_hidden_state, before(ids).last_hidden_state, MODEL)
    names = dict(after.named_parameters())
    assert torch.equal(names["encoder.blocks.1.attention.inner.global_qkv.weight"],
                       names["encoder.blocks.1.attention.inner.qkv.weight"])
    assert names["encoder.blocks.1.attention.inner.global_qkv.weight"].data_ptr() != names[
        "encoder.blocks.1.attention.inner.qkv.weight"].data_ptr()


def test_a_decoder_looks_back_a_window() -> None:
    before = scrambled(family("gpt2"))
    after, same = operate(before, by=(Windows(width=6),))
    ids = tokens(before.config, 2, 9)
    with torch.no_grad():
        one, other = before(ids).logits, after(ids).logits
    assert same == 6
    assert_close(other[:, :6], one[:, :6], MODEL)
    assert (other[:, 6:] - one[:, 6:]).abs().max() > 0.01


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "bart"])
def test_positions_are_copied_block_behind_block(name: str) -> None:
    """Row by row: token i has the vector of token i modulo the old length; RoBERTa's and BART's two rows stay first."""
    before = scrambled(family(name))
    after, same = operate(before, by=(Positions(length=150),))
    old, new = before.embed.positions.weight, after.embed.positions.weight
    ahead = {"bert": 0, "gpt2": 0, "roberta": 2, "bart": 2}[name]
    room = len(old) - ahead
    assert (len(new), same) == (150 + ahead, room)
    assert torch.equal(new[:ahead], old[:ahead])
    for place in range(150):
        assert torch.equal(new[ahead + place], old[ahead + place % room])


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
@pytest.mark.parametrize("count", [1, 2])
def test_grouped_heads_are_those_of_a_model_whose_groups_agree(name: str, count: int) -> None:
    """Keys and values of each head in the old model set to the mean of its group by hand: the same numbers."""
    before = scrambled(family(name))
    after, same = operate(before, by=(GroupedHeads(count=count),))
    with torch.no_grad():
        for part, parameter in before.named_parameters():
            rows = 24 if ".qkv." in part else 0
            if ".qkv." in part or ".kv." in part:
                for start in (rows, rows + 24):
                    heads = parameter[start:start + 24].view(4, 6, -1)
                    for group in torch.arange(4).chunk(count):
                        heads[group] = heads[group].mean(dim=0, keepdim=True).clone()
        ids = tokens(before.config, 2, 9)
        given = {"input_ids": ids, **({"decoder_input_ids": ids} if before.config.encoder and before.config.decoder
                                      else {})}
        assert_close(after(**given).last_hidden_state, before(**given).last_hidden_state, MODEL)
    assert same == 0


def test_layers_are_left_out_and_come_again() -> None:
    before = scrambled(family("bert"))
    ids = tokens(before.config, 2, 9)
    with torch.no_grad():
        states = before(ids, output_hidden_states=True).hidden_states
        first, _ = operate(before, by=(Layers(order=(0,)),))
        assert torch.equal(first(ids).last_hidden_state, states[1])
        again, _ = operate(before, by=(Layers(order=(0, 1, 0, 1)),))
        assert len(again.encoder.blocks) == 4
        assert torch.equal(again(ids, output_hidden_states=True).hidden_states[2], states[2])
        back, _ = operate(again, by=(Layers(order=(2, 3)),))
        assert torch.equal(back(ids).last_hidden_state, states[2])


def test_layers_that_differ_keep_what_they_are() -> None:
    before = scrambled(family("longformer"))
    after, _ = operate(before, by=(Layers(order=(1, 0, 1)),))
    assert [part.visibility for part in after.config.encoder.attentions()] == [
        before.config.encoder.attentions()[number].visibility for number in (1, 0, 1)]


def kernels(model: Transformer) -> list[Any]:
    """Return what the attentions of the only stack are computed by."""
    stack = model.config.encoder or model.config.decoder
    assert stack is not None
    return [part.kernel for part in stack.attentions()]


def test_hashes_in_one_chunk_are_full_attention_and_many_rounds_come_near_to_it() -> None:
    before = scrambled(family("reformer"))
    ids = tokens(before.config, 2, 48)
    whole, same = operate(before, by=(Hashes(chunk=64),))
    assert same == min(kernel.chunks.length for kernel in kernels(before) if isinstance(kernel, c.Hashing))
    gaps = []
    for rounds in (1, 64):
        few, _ = operate(whole, by=(Hashes(chunk=8, rounds=rounds),))
        assert {(kernel.chunks.length, kernel.rounds) for kernel in kernels(few) if isinstance(kernel, c.Hashing)} == {
            (8, rounds)}
        with torch.no_grad():
            gaps.append(float((few(ids).last_hidden_state - whole(ids).last_hidden_state).abs().mean()))
    assert 0 < gaps[1] < 0.5 * gaps[0]


def test_chunks_of_all_layers_fill_what_is_padded() -> None:
    layers = tuple(c.Chunks(length=length, multiple=24) for length in (8, 12))
    before = scrambled(reformer(16, 2, heads=2, head_dim=8, vocab=40, hidden=32, local=layers[0],
                                lsh=c.Hashing(chunks=layers[1]), positions=c.Learned(length=80)))
    after, _ = operate(before, by=(Hashes(chunk=20),))
    local, lsh = kernels(after)
    assert (local.multiple, lsh.chunks.multiple) == (40, 40)
    assert after(tokens(after.config, 2, 45)).last_hidden_state.shape[1] == 45


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_random_features_come_near_to_the_softmax(name: str) -> None:
    """The nearer, the more there are: Choromanski et al. 2021, §4.3; large scores need many more, so they are small."""
    before = build(family(name)).eval()
    ids = tokens(before.config, 2, 12)
    gaps = []
    for count in (16, 4096):
        after, same = operate(before, by=(RandomFeatures(count=count),))
        assert same == 0
        with torch.no_grad():
            gaps.append(float((after(ids).last_hidden_state - before(ids).last_hidden_state).abs().mean()))
    assert 0 < gaps[1] < 0.25 * gaps[0]  # one over the root of 256, were the model linear


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_mixtures_are_means_of_neighbours_and_as_many_as_tokens_are_all_of_them(name: str) -> None:
    before = scrambled(family(name))
    room = 64 if name == "bert" else 62
    after, same = operate(before, by=(MixedKeys(rank=room),))
    ids = tokens(before.config, 2, room).clamp(min=4)
    with torch.no_grad():
        assert_close(after(ids).last_hidden_state, before(ids).last_hidden_state, MODEL)
    assert same == 0
    few, _ = operate(before, by=(MixedKeys(rank=10),))
    keys = dict(few.named_parameters())["encoder.blocks.1.attention.inner.mixtures.keys"]
    assert_close(keys.sum(dim=1), torch.ones(10))
    assert (keys > 0).sum(dim=0).tolist() == [1] * room
    assert {6, 7} == set((keys > 0).sum(dim=1).tolist())


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "t5", "bart"])
def test_fewer_tokens_give_the_numbers_of_those_that_are_kept(name: str) -> None:
    before = scrambled(family(name))
    kept = (0, 1, 2, 3, 5, 8, 13, 21, 34)
    before.provenance = replace(
        before.provenance, document={**before.provenance.document, "pad_token_id": 1},
        generation={**before.provenance.generation, "eos_token_id": [3, 8]})
    after, same = operate(before, by=(Tokens(kept=kept),))
    places = torch.randint(2, len(kept), (2, 7), generator=torch.Generator().manual_seed(0))
    old = torch.tensor(kept)[places]
    pair = before.config.encoder is not None and before.config.decoder is not None
    with torch.no_grad():
        one = before(old, **({"decoder_input_ids": old} if pair else {}))
        other = after(places, **({"decoder_input_ids": places} if pair else {}))
    assert same == float("inf")
    assert torch.equal(other.last_hidden_state, one.last_hidden_state)
    assert_close(other.logits, one.logits[..., list(kept)], MODEL)
    assert after.generation["eos_token_id"] == [3, 5]
    assert (after.provenance.document["pad_token_id"], before.generation["eos_token_id"]) == (1, [3, 8])
    assert after.config.embed.vocab == 9


def test_ids_that_the_config_names_are_renumbered_or_missed() -> None:
    longer, _ = operate(scrambled(family("bert")), by=(
        Windows(width=16, tokens=c.AtSeparator(kind="before_separator", token=7)), Tokens(kept=(0, 1, 5, 7))))
    assert {part.visibility.terms[1].otherwise.token for part in longer.config.encoder.attentions()} == {3}
    with pytest.raises(InputError, match="names token 7"):
        operate(scrambled(family("bert")), by=(
            Windows(width=16, tokens=c.AtSeparator(kind="before_separator", token=7)), Tokens(kept=(0, 1, 5))))


def test_the_model_that_is_given_stays_as_it_is() -> None:
    before = scrambled(family("bert"))
    weights = {name: value.clone() for name, value in before.state_dict().items()}
    after, _ = operate(before, by=(Positions(length=100), WINDOW))
    with torch.no_grad():
        for parameter in after.parameters():
            parameter.zero_()
    assert all(torch.equal(value, weights[name]) for name, value in before.state_dict().items())


REFUSED = {
    "odd window": ("bert", Windows(width=9), r"--attention: a window of 9 .* give an even number"),
    "a window on windows": ("longformer", WINDOW, "is of kind or already"),
    "an encoder-decoder": ("bart", WINDOW, "only an encoder alone"),
    "blocks of a decoder": ("gpt2", BLOCKS, "only an encoder alone"),
    "global tokens of a decoder": ("gpt2", Windows(width=8, tokens=c.AtMostFirst(kind="first_token")),
                                   "--global: a decoder has no"),
    "fewer positions": ("bert", Positions(length=40), "--positions: 40 positions are fewer than the 64 that there are"),
    "no table": ("t5", Positions(length=400), "no table of positions"),
    "mixtures of a decoder": ("gpt2", MixedKeys(rank=8), "only an encoder alone"),
    "more mixtures than positions": ("bert", MixedKeys(rank=65), "--attention: 65 mixtures of 64 positions"),
    "hashes of other attention": ("bert", Hashes(), "--attention: no attention of the model hashes"),
    "features of windows": ("longformer", RandomFeatures(), "favor"),
    "tokens that are not there": ("bert", Tokens(kept=(0, 40)), "--vocabulary: the model has no table"),
    "clusters": ("transfo_xl", Tokens(kept=(0, 1)), "--vocabulary: the model has no table"),
    "heads": ("bert", GroupedHeads(count=3), "4 heads do not divide into 3 groups; give one of 1, 2, 4"),
    "a layer too many": ("bert", Layers(order=(0, 2)), "--layers: there is no layer 2: they are numbered from 0 to 1"),
    "shared layers": ("albert", Layers(order=(0,)), "share their weights"),
    "no second stack": ("bert", Layers(order=(0,), decoder=True), "--decoder-layers: the model has one stack"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused(name: str) -> None:
    model, by, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        operate(scrambled(family(model)), by=(by,))


def test_words_become_operations() -> None:
    asked = OperationOptions("window:512", "question", positions=4096, kv_heads=2, layers="0-2,2", decoder_layers="1")
    assert asked.operations(separator=7) == (
        Layers(order=(0, 1, 2, 2)), Layers(order=(1,), decoder=True), GroupedHeads(count=2), Positions(length=4096),
        Windows(width=512, tokens=c.AtSeparator(kind="before_separator", token=7)))
    assert OperationOptions("blocks").operations() == (Blocks(size=64, drawn=3),)
    assert OperationOptions("blocks:16:0").operations() == (Blocks(size=16, drawn=0),)
    assert OperationOptions("features:64").operations() == (RandomFeatures(count=64),)
    assert OperationOptions("mixtures:8").operations() == (MixedKeys(rank=8),)
    assert OperationOptions("hashes:32:4").operations() == (Hashes(chunk=32, rounds=4),)
    assert OperationOptions("hashes").operations() == (Hashes(chunk=64, rounds=None),)
    assert OperationOptions().operations() == ()


@pytest.mark.parametrize(("asked", "words"),
                         [(OperationOptions("window:0"), "--attention: 'window:0' is no size"),
                          (OperationOptions("window"), "is no size"),
                          (OperationOptions("window:many"), "holds no whole numbers"),
                          (OperationOptions("blocks:0"), "is no size"),
                          (OperationOptions("windows:5"), "unknown attention 'windows'.*window"),
                          (OperationOptions("window:8", "clss"), "unknown global.*cls"),
                          (OperationOptions(tokens="cls"), "--global: global tokens stand beside a window"),
                          (OperationOptions("blocks", "cls"), "--global"),
                          (OperationOptions(layers="0,x"), "--layers: 'x' is no number"),
                          (OperationOptions(layers="3-1"), "'3-1' is no number"),])
def test_words_that_cannot_be_read_are_refused(asked: OperationOptions, words: str) -> None:
    with pytest.raises(InputError, match=words):
        asked.operations()

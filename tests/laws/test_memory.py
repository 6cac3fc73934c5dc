"""A text in segments with a memory is the text in one pass, and a memory holds what it says."""

from __future__ import annotations

import pytest
import torch
from tests.laws.test_leaks import assert_same_pattern, reachable, watch
from tests.laws.zoo import FAMILY_OPTIONS, SMALL, scrambled, tokens
from tests.tolerances import assert_close
from torch import Tensor

import saucier
from saucier import InputError
from saucier import config as c
from saucier.families import FAMILIES
from saucier.model import Transformer

LENGTH = 12
CUTS = {"one by one": [1] * 12, "halves": [6, 6], "uneven": [2, 7, 3]}


def transformer_xl(memory: int) -> c.Transformer:
    """A small Transformer-XL; every query sees as many keys, itself included, as the memory is long."""
    return FAMILIES["transfo_xl"](**SMALL, **{**FAMILY_OPTIONS["transfo_xl"], "memory": memory})


def one_way() -> c.Transformer:
    """A small XLNet that sees only the past and forgets nothing."""
    return FAMILIES["xlnet"](**SMALL, hidden=40, memory=None, visibility=c.Causal() & c.Permutation())


def pre_norm() -> c.Transformer:
    """A decoder with norms before its attentions, which then stand before the memory too, and shared biases."""
    attention = c.SelfAttention(projection=c.Projection(heads=4), visibility=c.Causal(),
                                positions=c.TransformerXL(shared_biases=True))
    block = c.Block(sublayers=(c.PreNorm(inner=attention), c.SandwichNorm(inner=c.FeedForward(hidden=20))))
    return c.Transformer(dim=24, embed=c.Embedding(vocab=37), head=c.LanguageHead(), decoder=c.Stack(
        layers=c.Repeat(block=block, times=3), final_norm=c.LayerNorm(), memory=c.SegmentMemory()))


MODELS = {"transformer-xl": transformer_xl(5), "transformer-xl, memory of one": transformer_xl(1), "xlnet": one_way(),
          "pre-norm": pre_norm()}


def in_segments(model: Transformer, ids: Tensor, sizes: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Read a text piece by piece; return all hidden vectors and the last memory."""
    found, mems = [], None
    for piece in ids.split(sizes, dim=1):
        output = model(piece, mems=mems, use_mems=True)
        found.append(output.last_hidden_state)
        mems = output.mems
    return torch.cat(found, dim=1), mems


@pytest.mark.slow
@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("name", MODELS)
def test_segments_with_a_memory_are_one_long_pass(name: str, sizes: list[int]) -> None:
    """Dai et al. 2019, §3.2: the same numbers as reading anew, wherever the text is cut."""
    model = scrambled(MODELS[name])
    ids = tokens(model.config, 3, LENGTH)
    with torch.no_grad():
        whole = model(ids, use_mems=True)
        found, mems = in_segments(model, ids, sizes)
    assert_close(found, whole.last_hidden_state)
    assert len(mems) == len(whole.mems) == len((model.config.decoder or model.config.encoder).blocks())
    for first, second in zip(mems, whole.mems, strict=True):
        assert_close(first, second)


def test_without_its_memory_a_segment_is_another() -> None:
    """The memory is read: the law above is no law of models that see nothing."""
    model = scrambled(MODELS["xlnet"])
    ids = tokens(model.config, 1, LENGTH)
    with torch.no_grad():
        past = model(ids[:, :6]).mems
        assert (model(ids[:, 6:], mems=past).last_hidden_state - model(ids[:, 6:]).last_hidden_state).abs().max() > 0.1


@pytest.mark.parametrize("name", MODELS)
def test_no_gradient_reaches_an_earlier_segment(name: str) -> None:
    """Dai et al. 2019, §3.2: SG(.), the stopped gradient."""
    model = scrambled(MODELS[name])
    ids = tokens(model.config, 2, 4)
    assert all(not past.requires_grad for past in model(ids, use_mems=True).mems)


def test_activations_that_are_computed_again_read_the_memory_of_their_own_block() -> None:
    model = scrambled(MODELS["transformer-xl"]).train()
    ids = tokens(model.config, 2, 4)
    mems = [torch.randn(5, 2, 24, generator=torch.Generator().manual_seed(block)) for block in range(2)]
    found = []
    for activations in (c.Activations(kind="keep"), c.Activations(kind="recompute")):
        model.decoder.activations = activations
        model.zero_grad()
        torch.manual_seed(0)  # for dropout
        model(ids, mems=mems, use_mems=True, compute_logits=False).last_hidden_state.square().sum().backward()
        found.append([one.grad.clone() for one in model.parameters() if one.grad is not None])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_memory_keeps_the_last_positions_or_the_first_of_each_segment() -> None:
    stack = c.SegmentMemory(length=5, reuse=3)
    config = one_way()
    config = config.model_copy(update={"encoder": config.encoder.model_copy(update={"memory": stack})})
    model = scrambled(config)
    ids = tokens(config, 2, 4)
    with torch.no_grad():
        first = model(ids, output_hidden_states=True)
        second = model(ids.flip(1), mems=first.mems, output_hidden_states=True)
    for layer in range(2):
        assert torch.equal(first.mems[layer], first.hidden_states[layer][:, :3].transpose(0, 1))
        joined = torch.cat([first.hidden_states[layer][:, :3], second.hidden_states[layer][:, :3]], dim=1)
        assert torch.equal(second.mems[layer], joined[:, -5:].transpose(0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer-xl", "pre-norm"])
def test_text_written_beside_a_memory_is_that_of_reading_anew(name: str) -> None:
    model = scrambled(MODELS[name])
    ids = tokens(model.config, 2, 4)
    found = saucier.generate(model, ids, max_new_tokens=6)
    by_hand = ids
    for _ in range(6):
        with torch.no_grad():
            by_hand = torch.cat([by_hand, model(by_hand).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(found, by_hand)


@pytest.mark.slow
def test_the_second_stream_writes_beside_a_memory_what_it_writes_reading_anew() -> None:
    """XLNet, looking back only: the last two tokens are read again, since the first was read without the second."""
    model = scrambled(MODELS["xlnet"])
    ids = tokens(model.config, 2, 4)
    found = saucier.generate(model, ids, max_new_tokens=6)
    by_hand = ids
    for _ in range(6):
        longer = torch.cat([by_hand, torch.zeros_like(by_hand[:, :1])], dim=1)
        hidden = torch.zeros(2, longer.shape[1], longer.shape[1])
        hidden[:, :, -1] = 1
        with torch.no_grad():
            logits = model(longer, perm_mask=hidden, target_mapping=hidden[:, :1]).logits
        by_hand = torch.cat([by_hand, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(found, by_hand)


def test_what_does_not_go_with_a_memory_is_refused() -> None:
    model = scrambled(MODELS["transformer-xl"])
    ids = tokens(model.config, 2, 4)
    with pytest.raises(InputError, match="key-value cache"):
        model(ids, cache=model.new_cache(2, 8))
    with pytest.raises(InputError, match="documents"):
        model(ids, documents=torch.zeros_like(ids))
    with pytest.raises(InputError, match="give 2 of"):
        model(ids, mems=[torch.zeros(5, 2, 24)])
    with pytest.raises(InputError, match="one length"):
        saucier.generate(model, ids, torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]]))
    plain = scrambled(FAMILIES["gpt2"](**SMALL))
    with pytest.raises(InputError, match="no memory"):
        plain(ids, mems=[torch.zeros(5, 2, 24)] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_permutation_leaks_nothing_to_the_one_who_asks(layers: int, weights: bool) -> None:
    """In any order, a query at a place sees the tokens before it in the order, and not the token there (C fig 8)."""
    watched = watch(FAMILIES["xlnet"](**{**SMALL, "layers": layers}, hidden=40))
    ids = tokens(watched.model.config, 1, 9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(4))
    earlier = order[:, None] > order[None, :]
    given = {"perm_mask": (~earlier)[None].float(), "target_mapping": torch.eye(9)[None]}
    asking = watched.influence(watched.model(ids, **given, output_attentions=weights))[0]
    content = reachable(earlier, layers - 1) if layers > 1 else torch.eye(9, dtype=torch.bool)
    assert_same_pattern(asking, (earlier.double() @ content.double()) > 0)
    assert not asking.diagonal().any()


def test_places_that_are_no_single_ones_are_refused() -> None:
    model = scrambled(MODELS["xlnet"])
    ids = tokens(model.config, 1, 4)
    for row in ([0.5, 0.5, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]):
        with pytest.raises(InputError, match=r"single 1|holds 0\.5"):
            model(ids, target_mapping=torch.tensor([[row]]))
    with pytest.raises(InputError, match="second stream"):
        scrambled(MODELS["pre-norm"])(ids, target_mapping=torch.tensor([[[1.0, 0, 0, 0]]]))
    with pytest.raises(InputError, match="perm_mask"):
        scrambled(MODELS["pre-norm"])(ids, perm_mask=torch.zeros(1, 4, 4))

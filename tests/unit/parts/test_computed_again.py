"""Gradients of stacks that keep little: reversible streams and recomputed blocks give those of the ordinary pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tests.laws.zoo import decoders, encoders, pairs
from tests.unit.training.toy import gpt, recipe, study
from torch import Tensor

from saucier import config as c
from saucier.cost.memory import estimate_memory
from saucier.model import Transformer, build
from saucier.parts import stack
from saucier.parts.stack import choose_activations

VOCAB = 31
ATTENTIONS: dict[str, c.SelfAttention] = {
    "rotary": c.SelfAttention(projection=c.Projection(heads=2), positions=c.Rotary(), visibility=c.Causal(),
                              kernel=c.Softmax(dropout=0.2)),
    "t5": c.SelfAttention(projection=c.Projection(heads=2), positions=c.T5Bias(buckets=8, max_distance=20)),
    "shared-biases": c.SelfAttention(projection=c.Projection(heads=2), positions=c.TransformerXL(shared_biases=True)),
    "hashed": c.SelfAttention(projection=c.Projection(heads=2), visibility=c.Causal(), kernel=c.Hashing(
        chunks=c.Chunks(length=4, dropout=0.2), rounds=2, buckets=c.FixedBuckets(factors=(6,)))),
}


def reversible(attention: c.SelfAttention, layers: int = 3, dropout: float = 0.3) -> Transformer:
    """A language model of two streams, in training mode."""
    inner = (attention, c.FeedForward(hidden=24, dropout=dropout))
    block = c.Block(sublayers=tuple(c.PreNorm(inner=part, dropout=dropout) for part in inner))
    body = c.Stack(layers=c.Repeat(block=block, times=layers), residual=c.Streams(kind="reversible"),
                   final_norm=c.LayerNorm())
    return build(c.Transformer(dim=16, embed=c.Embedding(vocab=VOCAB), decoder=body, head=c.LanguageHead(tied=False)),
                 seed=3).train()


def ids(rows: int = 2, length: int = 13) -> Tensor:
    return torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))


def gradients(model: Transformer, **inputs: Tensor) -> list[Tensor]:
    """The gradients of a weighted sum of the logits, from the same draws each time."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    logits = model(**inputs).logits
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)
    (logits * weights).sum().backward()
    return [weight.grad for weight in model.parameters()]


def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams keep everything, as other stacks do."""
    monkeypatch.setattr(stack, "is_reversible_pass", lambda *_: False)


def assert_equal(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    assert all(one is not None for one in found)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-4)])
def test_streams_give_the_ordinary_gradients(name: str, dtype: torch.dtype, tolerance: float,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, hashes that are drawn anew in each layer, and what the stack's layers share."""
    model = reversible(ATTENTIONS[name]).to(dtype)
    found = gradients(model, input_ids=ids())
    ordinary(monkeypatch)
    assert_equal(found, gradients(model, input_ids=ids()), tolerance)


def test_streams_of_a_padded_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = reversible(ATTENTIONS["rotary"]).double()
    mask = (torch.arange(13) < torch.tensor([[13], [4]])).long()
    found = gradients(model, input_ids=ids(), attention_mask=mask)
    ordinary(monkeypatch)
    assert_equal(found, gradients(model, input_ids=ids(), attention_mask=mask), 1e-11)


def test_streams_behind_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder learns through all cross-attentions."""
    heads = c.Projection(heads=2)
    feed_forward = c.FeedForward(hidden=24)
    parts = (ATTENTIONS["rotary"], feed_forward, c.CrossAttention(projection=heads), feed_forward)
    block = c.Block(sublayers=tuple(c.PreNorm(inner=part, dropout=0.1) for part in parts))
    reader = c.Block(sublayers=(c.PreNorm(inner=c.SelfAttention(projection=heads)),))
    model = build(c.Transformer(dim=16, embed=c.Embedding(vocab=VOCAB),
                                encoder=c.Stack(layers=c.Repeat(block=reader, times=1)),
                                decoder=c.Stack(layers=c.Repeat(block=block, times=2),
                                                residual=c.Streams(kind="reversible")),
                                head=c.LanguageHead(tied=False))).double().train()
    inputs = {"input_ids": ids(), "decoder_input_ids": ids(length=9)}
    found = gradients(model, **inputs)
    ordinary(monkeypatch)
    assert_equal(found, gradients(model, **inputs), 1e-11)


@pytest.mark.parametrize("inside", [False, True])
def test_streams_in_bfloat16_products(inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast is as it was, whether the backward pass begins inside it or behind it: streams are float32 both ways.

    The gradients differ from the ordinary ones as those of another draw of rounding do.
    """
    model = reversible(ATTENTIONS["rotary"], dropout=0.0)

    def run() -> list[Tensor]:
        model.zero_grad(set_to_none=True)
        torch.manual_seed(7)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total = model(ids()).logits.float().square().sum()
            if inside:
                total.backward()
        if not inside:
            total.backward()
        return [weight.grad for weight in model.parameters()]

    found = run()
    ordinary(monkeypatch)
    for one, other in zip(found, run(), strict=True):
        assert float((one - other).norm()) < 0.02 * float(other.norm())


def test_weights_may_be_frozen_and_gradients_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model = reversible(ATTENTIONS["rotary"]).double().eval()
    model.embed.requires_grad_(False)
    for block in model.decoder.blocks:
        block["attention"].requires_grad_(False)
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(model(ids()).logits.square().sum(), learned)
    ordinary(monkeypatch)
    assert_equal(list(found), list(torch.autograd.grad(model(ids()).logits.square().sum(), learned)), 1e-9)
    assert all(weight.grad is None for weight in model.parameters())


def test_the_draws_that_follow_are_those_of_the_ordinary_pass() -> None:
    """The backward pass puts the generators back where they stood."""
    model = reversible(ATTENTIONS["hashed"])
    torch.manual_seed(7)
    logits = model(ids()).logits
    before = torch.get_rng_state()
    logits.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


class Held:
    """A tensor that a graph keeps."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@contextmanager
def saved() -> Iterator[weakref.WeakSet[Held]]:
    """Collect what graphs keep; what belongs to no graph any more is gone."""
    kept: weakref.WeakSet[Held] = weakref.WeakSet()

    def pack(x: Tensor) -> Held:
        held = Held(x.detach())  # with its graph it would keep itself
        if not isinstance(x, torch.nn.Parameter):
            kept.add(held)
        return held

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor):
        yield kept


def kept_bytes(make: Callable[[int], Transformer], layers: int) -> int:
    """How much a forward pass keeps for the backward pass, weights left out and each storage counted once."""
    model = make(layers)
    with saved() as kept:
        logits = model(ids(4, 32)).logits
    assert logits.requires_grad
    storages = {held.tensor.untyped_storage().data_ptr(): held.tensor.untyped_storage().nbytes() for held in kept}
    return sum(storages.values())


@pytest.mark.parametrize("name", ATTENTIONS)
def test_what_streams_keep_does_not_grow_with_depth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kitaev et al. 2020, §3: activation memory without a factor for the number of layers."""
    def make(layers: int) -> Transformer:
        return reversible(ATTENTIONS[name], layers)

    assert kept_bytes(make, 2) == kept_bytes(make, 8)
    ordinary(monkeypatch)
    assert kept_bytes(make, 8) > 3 * kept_bytes(make, 2)


ZOO = ("decoder-experts", "decoder-abreast", "decoder-shared", "decoder-part-t5-gqa", "decoder-post", "encoder-crowded",
       "encoder-convolution", "encoder-part-disentangled", "pair-two-crosses", "decoder-hybrid")
"""Parts that count, share, draw or hand something on in a pass, in stacks of blocks."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_recomputed_blocks_give_the_same_bits(name: str) -> None:
    """With packed rows, tables that layers share, experts with limited room, recurrent layers."""
    config = everything_but_recipes()[name]
    model = build(config).train()
    inputs = {"input_ids": ids(3, 12) % config.embed.vocab,
              "attention_mask": (torch.arange(12) < torch.tensor([[12], [4], [12]])).long()}
    if config.encoder and config.decoder:
        inputs["decoder_input_ids"] = ids(3, 12) % config.output_embed.vocab

    def run() -> list[Tensor | None]:
        model.zero_grad(set_to_none=True)
        torch.manual_seed(7)
        model(**inputs).last_hidden_state.square().sum().backward()
        return [weight.grad for weight in model.parameters()]

    wanted = run()
    choose_activations([model], c.Activations(kind="recompute"))
    for one, other in zip(run(), wanted, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def test_recomputed_blocks_keep_what_they_read() -> None:
    def make(layers: int) -> Transformer:
        model = build(gpt_of(layers)).train()
        choose_activations([model], c.Activations(kind="recompute"))
        return model

    a_block = 4 * 32 * 32 * 4
    assert kept_bytes(make, 8) - kept_bytes(make, 2) == 6 * a_block
    assert kept_bytes(lambda layers: build(gpt_of(layers)).train(), 8) > 4 * kept_bytes(make, 8)


def everything_but_recipes() -> dict[str, c.Transformer]:
    groups = {"decoder": decoders(), "encoder": encoders(), "pair": pairs()}
    return {f"{group}-{name}": config for group, found in groups.items() for name, config in found.items()}


def gpt_of(layers: int) -> c.Transformer:
    from saucier.families import FAMILIES

    return FAMILIES["gpt2"](dim=32, layers=layers, heads=4, length=32, vocab=VOCAB)


def test_a_run_that_recomputes_learns_the_same(tmp_path: Path) -> None:
    from saucier.training.loop import train

    models = [gpt(), gpt()]
    for number, (model, activations) in enumerate(zip(models, ({"kind": "keep"}, {"kind": "recompute"}), strict=True)):
        train(model, study(), recipe(4, activations=activations), run_folder=tmp_path / str(number), reporters=[])
    assert all(torch.equal(one, other) for one, other in zip(*(model.parameters() for model in models), strict=True))


def test_the_estimate_counts_what_is_kept() -> None:
    def counted(config: c.Transformer, activations: c.Activations) -> int:
        return estimate_memory(config, batch=1, length=1, training=True, activations=activations).activations

    keep, recompute = c.Activations(kind="keep"), c.Activations(kind="recompute")
    two, eight = (reversible(ATTENTIONS["rotary"], layers).config for layers in (2, 8))
    assert counted(two, keep) == counted(eight, keep) == counted(eight, recompute)
    assert counted(gpt_of(8), recompute) - counted(gpt_of(2), recompute) == 6 * 32 * 4
    assert counted(gpt_of(8), keep) == 4 * counted(gpt_of(2), keep)

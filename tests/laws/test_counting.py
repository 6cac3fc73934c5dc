"""What is counted from the config is what the built model has: parameters of every recipe, and FLOPs of the zoo."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import VOCAB, everything, longest, tokens
from torch.utils.flop_counter import FlopCounterMode

from saucier import config as c
from saucier.config.questions import list_recurrent_parts
from saucier.config.visibility import visible_keys
from saucier.diagnosis.part_laws import unmasked_flops
from saucier.model import build
from saucier.recipes import names, recipe

MODELS = everything()
LENGTH = 12
EXTRA_PRODUCTS = ("shaw", "music", "relative", "longformer", "global", "disentangled", "deberta", "xlnet", "transfo",
                  "part-xl", "pair-led", "led-nano", "crowded", "favor", "-etc", "funnel")
"""Positions with matrix products of their own, which the count leaves out; maps for global tokens, whose work depends
on how many a batch has; experts that have no room for some tokens; and features,
of which a pass makes the weights of pairs only where they are asked for."""


def built_parameters(config: c.Transformer) -> int:
    """Return the number of parameters of the built model, shared ones once; nothing is allocated."""
    return sum(parameter.numel() for parameter in build(config, device="meta").parameters())


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_counted_parameters_are_the_built_ones(name: str) -> None:
    """Every recipe, published sizes included, on the meta device."""
    config = recipe(name).model
    assert c.parameters(config) == built_parameters(config)


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_the_anatomy_adds_up(name: str) -> None:
    """Every node of the tree is the sum of its children, and the leaves hold everything, for every part."""
    config = MODELS[name]
    tree = c.anatomy(config, LENGTH)
    assert tree.parameters == built_parameters(config) == c.parameters(config)
    assert tree.flops == c.flops_per_token(config, LENGTH)
    check_sums(tree)


def check_sums(node: c.Node) -> None:
    """Check one node and what is below it; shared blocks hold their weights once and do their work often."""
    for child in node.children:
        check_sums(child)
    if node.children:
        stored = 1 if node.kind == "share" else node.times
        assert node.parameters == stored * sum(child.parameters for child in node.children)
        assert node.flops == pytest.approx(node.times * sum(child.flops for child in node.children))


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in MODELS if not any(word in name for word in EXTRA_PRODUCTS)])
def test_counted_flops_are_the_executed_ones(name: str) -> None:
    """PyTorch's own counter of matrix products agrees, once masked scores are counted as if none were masked."""
    config = MODELS[name]
    length = longest(config)
    model = build(config)
    ids = tokens(config, 1, length)
    target = {"decoder_input_ids": ids} if config.encoder and config.decoder else {}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(ids, **target, output_attentions=True)
    once = 2 * config.dim**2 if config.pooler and config.pooler.dense else 0
    once += 2 * config.dim * (config.head.longest + 1) if isinstance(config.head, c.LengthHead) else 0
    once += 2 * config.dim * config.head.classes if isinstance(config.head, c.PretrainingHead) else 0
    once += sum(2 * config.dim * sum(part.all_states(config.dim)) for part in list_recurrent_parts(config.decoder)
                if part.start.kind in ("last_layer", "mean"))
    if isinstance(config.head, c.EmbeddingHead):
        once += sum(2 * given * one.width for given, one in zip(config.head.widths(config.dim), config.head.maps,
                                                                strict=False))
    assert counter.get_total_flops() == pytest.approx(length * unmasked_flops(config, length) + once, rel=1e-9)


@pytest.mark.parametrize(("visibility", "length"), [(visibility, length) for length in (1, 2, 7) for visibility in (
    c.Full(), c.Causal(), c.Window(1), c.Window(3), c.Window(50), c.Causal() & c.Window(3), c.Causal() & c.Window(50),
    c.Dilated(size=2, dilation=3), c.Causal() & c.Dilated(size=3, dilation=2), c.Causal() & c.Strided(stride=3),
    c.Strided(stride=2), c.Columns(stride=3, count=2), c.Causal() & c.Columns(stride=3, count=2))])
def test_visible_keys_are_counted_exactly(visibility: c.Visibility, length: int) -> None:
    """The average number of keys of a query is that of the mask."""
    from tests.laws.test_leaks import allowed

    assert visible_keys(visibility, length) == pytest.approx(float(allowed(visibility, length).sum()) / length)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in MODELS
                                  if MODELS[name].decoder and not MODELS[name].decoder.memory])  # it has no cache
def test_the_counted_cache_is_the_allocated_one(name: str) -> None:
    """Bytes of a cache, after a step that fills the encoder's keys too."""
    config, model = MODELS[name], build(MODELS[name])
    cache = model.new_cache(3, 8)
    ids = torch.zeros(3, 2, dtype=torch.long) % VOCAB
    with torch.no_grad():
        if config.encoder:
            model(torch.zeros(3, 5, dtype=torch.long), decoder_input_ids=ids, cache=cache)
        else:
            model(ids, cache=cache)
    assert cache.bytes == c.cache_bytes(config, batch=3, length=8, source_length=5, bytes_per_value=4)

"""A plan gives what the dense softmax gives under the same mask, in values and gradients, and in linear memory.

Shapes, paddings, documents, global tokens and visibilities are drawn; the dense path is the one beside it.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from tests.tolerances import PART
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from saucier import config as c
from saucier.config.questions import counts_repeats, list_terms
from saucier.config.visibility import build_bigbird_visibility
from saucier.families.unpublished import FixedFactors, Form, StridedFactors
from saucier.parts import context as context_module
from saucier.parts.attention import SelfAttention
from saucier.parts.context import Context
from saucier.parts.masks import Span, find_ragged
from saucier.parts.positions import T5BiasTable
from saucier.parts.sparse import dispatch
from saucier.parts.sparse.candidates import RowShape
from saucier.parts.sparse.plan import Planner, RowFacts, count_places
from saucier.parts.stack import Stack

DIM, HEADS = 24, 4
BIG_BIRD_ETC = (c.BlockWindow(size=8) + c.RandomBlocks(size=8, count=2)) | c.Global(otherwise=c.FirstTokens(count=5))
NEVER, ALWAYS = 10**9, 0


def drawn_visibility(chance: random.Random, depth: int = 2) -> c.Visibility:
    """Draw from the whole algebra that plans can be made of."""
    size, reach = chance.choice([1, 3, 8, 40]), chance.randint(0, 2)
    leaves: list[c.Visibility] = [c.Window(chance.choice([1, 2, 17, 60])), c.Causal(), c.Prefix(), c.Global(),
                                  c.SameLength(), c.Full(), c.BlockWindow(size=size, reach=reach),
                                  c.GlobalBlocks(size=size), build_bigbird_visibility(chance.choice([4, 16]), 2, 4096),
                                  c.Beyond(length=chance.choice([10, 500]), inner=c.Window(5)),
                                  c.Dilated(size=chance.choice([1, 4, 20]), dilation=chance.choice([1, 2, 7])),
                                  c.Strided(stride=chance.choice([1, 3, 16, 400])),
                                  c.Columns(stride=chance.choice([1, 5, 40]), count=2),
                                  c.Combined(kind="by_head", terms=(c.Window(5), c.Causal() & c.Strided(stride=8)))]
    if not depth or chance.random() < 0.4:
        return chance.choice(leaves)
    terms = (drawn_visibility(chance, depth - 1), drawn_visibility(chance, depth - 1))
    return chance.choice([c.Combined(kind="and", terms=terms), c.Combined(kind="or", terms=terms),
                          c.Combined(kind="plus", terms=terms)])


def drawn_span(chance: random.Random, rows: int) -> Span:
    """Draw a pass: its length, and what hides keys; queries may be the last of the keys alone."""
    keys = chance.choice([1, 7, 130, 257, 300])
    queries = chance.choice([keys, keys, 1, max(1, keys // 2)])
    generator = torch.Generator().manual_seed(chance.randrange(10**6))
    places = torch.arange(keys)
    padding = documents = None
    if chance.random() < 0.6:
        begin, end = sorted(torch.randint(0, keys + 1, (2,), generator=generator).tolist())
        padding = torch.stack([(places >= begin) & (places < end), *[places < keys] * (rows - 1)])
        if chance.random() < 0.5:  # holes
            padding &= torch.rand(rows, keys, generator=generator) < 0.8
    if chance.random() < 0.4:
        documents = torch.randint(0, 3, (rows, keys), generator=generator)
        documents = documents.cumsum(1) // 40 if chance.random() < 0.7 else documents
    named = torch.rand(rows, keys, generator=generator) < chance.choice([0.0, 0.02, 0.2])
    return Span(queries, keys, keys - queries, places.device, padding,
                None if documents is None else documents[:, keys - queries:], documents,
                prefix=torch.randint(0, keys + 1, (rows,), generator=generator), named=named,
                memory=chance.choice([0, 5]))


def attended(config: c.SelfAttention, span: Span, length: int, monkeypatch: pytest.MonkeyPatch,
             dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], bool]:
    """Return what one attention gives at real queries, with the gradients, and whether a plan was used."""
    monkeypatch.setattr(context_module, "LEAST_LENGTH", length)
    monkeypatch.setattr(dispatch, "LARGEST_SHARE", 1e9)
    rows = span.named.shape[0] if span.named is not None else 2
    generator = torch.Generator().manual_seed(span.keys)
    head, groups = DIM // HEADS, config.projection.kv_heads or HEADS
    query, key, value = (torch.randn(rows, heads, keys, head, generator=generator).to(dtype).requires_grad_()
                         for heads, keys in ((HEADS, span.queries), (groups, span.keys), (groups, span.keys)))
    slope = torch.randn(query.shape, generator=generator).to(dtype)
    attention = SelfAttention(config, DIM).eval()
    context = Context(span, torch.arange(span.queries)[None], rows=rows)
    learned = [query, key, value]
    if isinstance(config.positions, c.T5Bias):
        table = T5BiasTable(config.positions, HEADS).to(dtype)
        torch.nn.init.normal_(table.weight, generator=generator)
        context.shared, context.bias = table(context), table.of_pairs(context)
        learned.append(table.weight)
    mixed = attention.attend(query, key, value, context)
    if span.padding is not None:
        mixed = mixed * span.padding[:, None, span.start:, None]
    found = torch.autograd.grad((mixed * slope).sum(), learned, allow_unused=True)
    found = [torch.zeros(()) if one is None else one for one in found]
    return [mixed.detach(), *found], any(isinstance(one, tuple) and one[0] == "plan" for one in context.made)


def gaps_that_count(visibility: c.Visibility) -> bool:
    """Say whether keys count more than once beside gaps, which stays dense."""
    return counts_repeats(visibility) and any(isinstance(term, c.Dilated | c.Strided)
                                              for term in list_terms(visibility))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(100))
def test_a_plan_gives_what_the_dense_softmax_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random visibilities over random passes, with what distances add to the scores: the same values and gradients."""
    chance = random.Random(seed)
    projection = c.Projection(heads=HEADS, kv_heads=chance.choice([None, 2, 1]))
    config = c.SelfAttention(projection=projection, visibility=drawn_visibility(chance))
    span = drawn_span(chance, rows=2)
    config = config.model_copy(update={"positions": chance.choice([
        c.NoPositions(), c.Alibi(), c.T5Bias(buckets=8, max_distance=40, bidirectional=chance.random() < 0.5)])})
    dense, without = attended(config, span, NEVER, monkeypatch)
    sparse, used = attended(config, span, ALWAYS, monkeypatch)
    assert not without
    assert used or gaps_that_count(config.visibility)
    for expected, found in zip(dense, sparse, strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found, expected, rtol=PART, atol=PART)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.bfloat16, 0.05)],
                         ids=["float64", "bfloat16"])
def test_every_number_format_is_masked(dtype: torch.dtype, near: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused kernel takes the bits of its mask as they are, so they are in the format that it reads."""
    config = c.SelfAttention(projection=c.Projection(heads=HEADS), visibility=c.Window(5) | c.Global())
    span = Span(70, 70, 0, torch.device("cpu"), named=torch.arange(70).expand(2, -1) == 3)
    dense, sparse = (attended(config, span, length, monkeypatch, dtype)[0] for length in (NEVER, ALWAYS))
    for expected, found in zip(dense, sparse, strict=True):
        torch.testing.assert_close(found, expected, rtol=near, atol=near)


def assert_scaled(found: Tensor, expected: Tensor) -> None:
    """Fail where two tensors differ by more than the tolerance of a part, on the scale of the largest value."""
    scale = max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(found / scale, expected / scale, rtol=PART, atol=PART)


def scrambled(config: c.SelfAttention, dim: int) -> SelfAttention:
    """Return an attention with random weights, as it is in training."""
    attention, generator = SelfAttention(config, dim), torch.Generator().manual_seed(0)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return attention


@pytest.mark.slow
@pytest.mark.parametrize("visibility", [c.Window(9) | c.Global(), c.Causal() & c.Window(30),
                                        build_bigbird_visibility(8, 1, 4096)], ids=["global", "causal", "blocks"])
@pytest.mark.parametrize("maps", [False, True], ids=["shared maps", "own maps"])
def test_a_whole_attention_with_padding_packed_away(visibility: c.Visibility, maps: bool,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows packed without their padding, global tokens with maps of their own: as with the dense softmax."""
    if maps and not c.global_terms(visibility):
        visibility = visibility | c.Global()
    config = c.SelfAttention(projection=c.Projection(heads=HEADS), visibility=visibility,
                             global_maps=c.GlobalMaps() if maps else None)
    attention, length = scrambled(config, DIM), 150
    mask = torch.arange(length) < torch.tensor([[150], [70], [1]])
    layout, named = find_ragged(mask), torch.zeros(3, length, dtype=torch.bool)
    named[:2, [0, 40]] = True
    found: list[list[Tensor]] = []
    for least in (NEVER, ALWAYS):
        monkeypatch.setattr(context_module, "LEAST_LENGTH", least)
        monkeypatch.setattr(dispatch, "LARGEST_SHARE", 1e9)
        x = torch.randn(1, 221, DIM, generator=torch.Generator().manual_seed(1)).requires_grad_()
        context = Context(Span(length, length, 0, x.device, named=named), torch.arange(length)[None], layout=layout,
                          rows=3)
        output = attention(x, context)
        inputs = [x, *(one for one in attention.parameters())]
        found.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    for expected, sparse in zip(*found, strict=True):
        assert_scaled(sparse, expected)


@pytest.mark.slow
@pytest.mark.parametrize("visibility", [build_bigbird_visibility(8, 2, 4096), BIG_BIRD_ETC],
                         ids=["internal", "extended"])
def test_drawn_blocks_are_read_as_they_are_drawn(visibility: c.Visibility, monkeypatch: pytest.MonkeyPatch) -> None:
    """BigBird in training, with global blocks and with added tokens: each head reads what was drawn for it."""
    config = c.SelfAttention(projection=c.Projection(heads=HEADS, kv_heads=2), visibility=visibility)
    attention = scrambled(config, DIM)
    found = []
    for least in (NEVER, ALWAYS):
        monkeypatch.setattr(context_module, "LEAST_LENGTH", least)
        monkeypatch.setattr(dispatch, "LARGEST_SHARE", 1e9)
        x = torch.randn(2, 333, DIM, generator=torch.Generator().manual_seed(1)).requires_grad_()
        context = Context(Span(333, 333, 0, x.device), torch.arange(333)[None], rows=2)
        output = attention(x, context)
        found.append([output, *torch.autograd.grad(output.square().sum(), [x, *attention.parameters()])])
    for expected, sparse in zip(*found, strict=True):
        assert_scaled(sparse, expected)


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 17, 20])
@pytest.mark.parametrize("training", [False, True], ids=["reading", "training"])
@pytest.mark.parametrize("named", [False, True], ids=["first", "named"])
def test_added_tokens_in_any_block_read_all_keys(count: int, training: bool, named: bool,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Added tokens of more than one block, or in middle blocks: each head reads the rest of what it did not draw."""
    tokens = c.AtMostFirst(kind="no_tokens") if named else c.FirstTokens(count=count)
    visibility = (c.BlockWindow(size=8) + c.RandomBlocks(size=8, count=2)) | c.Global(otherwise=tokens)
    config = c.SelfAttention(projection=c.Projection(heads=HEADS, kv_heads=2), visibility=visibility)
    attention = scrambled(config, DIM).train(training)
    mask = torch.zeros(2, 333, dtype=torch.bool)
    mask[:, 100:100 + count] = True
    mask[1, 300] = True
    found = []
    for least in (NEVER, ALWAYS):
        monkeypatch.setattr(context_module, "LEAST_LENGTH", least)
        monkeypatch.setattr(dispatch, "LARGEST_SHARE", 1e9)
        x = torch.randn(2, 333, DIM, generator=torch.Generator().manual_seed(1)).requires_grad_()
        span = Span(333, 333, 0, x.device, named=mask if named else None)
        context = Context(span, torch.arange(333)[None], rows=2)
        output = attention(x, context)
        found.append([output, *torch.autograd.grad(output.square().sum(), [x, *attention.parameters()])])
        assert any(isinstance(one, tuple) and one[0] == "plan" for one in context.made) == (least == ALWAYS)
    for expected, sparse in zip(*found, strict=True):
        assert_scaled(sparse, expected)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["strided", "fixed"])
def test_what_the_patterns_cost_grows_as_the_root_of_the_length(number: int) -> None:
    """Pairs that are computed, at a stride of the root of the length: four times the text costs eight times as much."""
    pairs = []
    for length in (4096, 16384):
        stride = math.isqrt(length)
        factors = (StridedFactors(stride=stride), FixedFactors(stride=stride, count=1))[number]
        row = RowShape(Form(kind="merged").turn(factors.terms())[0], length, length, end=length)
        tiles = list(Planner(row, RowFacts(), torch.device("cpu")).tiles(rows=True))
        pairs.append(sum(count_places(tile.queries) * sum(map(count_places, tile.keys)) for tile in tiles))
        assert pairs[-1] <= 5 * length * stride
    assert pairs[1] <= 10 * pairs[0]


class Largest(TorchDispatchMode):
    """Remembers the bytes of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        found = function(*given, **(named or {}))
        for one in found if isinstance(found, tuple | list) else [found]:
            if isinstance(one, Tensor):
                self.bytes = max(self.bytes, one.untyped_storage().nbytes())
        return found


STRIDED = (c.Causal() & c.Window(17), c.Causal() & c.Strided(stride=16))
FIXED = (c.Causal() & c.BlockWindow(size=16, reach=0), c.Causal() & c.Columns(stride=16, count=3))
SPARSE_TRANSFORMER = {
    "strided, merged": STRIDED[0] | STRIDED[1], "fixed, merged": FIXED[0] | FIXED[1],
    "strided, first": STRIDED[0], "strided, second": STRIDED[1], "fixed, second": FIXED[1],
    "strided, by head": c.Combined(kind="by_head", terms=STRIDED),
    "fixed, by head": c.Combined(kind="by_head", terms=FIXED),
    "dilated by head": c.Combined(kind="by_head", terms=(c.Window(9), c.Dilated(size=9, dilation=2),
                                                         c.Dilated(size=9, dilation=3),
                                                         c.Dilated(size=9, dilation=4))) | c.Global(
        otherwise=c.AtMostFirst(kind="first_token"))}


@pytest.mark.sampled
@pytest.mark.parametrize("name", SPARSE_TRANSFORMER)
@pytest.mark.parametrize("length", [255, 256, 270])
def test_the_published_forms_of_gaps(name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse Transformer's two patterns in its three forms, and windows dilated by head, at lengths that do not fit."""
    config = c.SelfAttention(projection=c.Projection(heads=HEADS, kv_heads=2), visibility=SPARSE_TRANSFORMER[name])
    span = Span(length, length, 0, torch.device("cpu"), named=None)
    dense, _ = attended(config, span, NEVER, monkeypatch)
    sparse, used = attended(config, span, ALWAYS, monkeypatch)
    assert used
    for expected, found in zip(dense, sparse, strict=True):
        torch.testing.assert_close(found, expected, rtol=PART, atol=PART)


@pytest.mark.slow
@pytest.mark.parametrize("visibility", [c.Window(33) | c.Global(otherwise=c.AtMostFirst(kind="first_token")),
                                        c.Causal() & c.Window(64),
                                        build_bigbird_visibility(32, 1, 4096)], ids=["global", "causal", "blocks"])
def test_memory_grows_with_the_length_alone(visibility: c.Visibility) -> None:
    """Four times the text needs no tensor of more than four times the size, forward and backward."""
    attention = scrambled(c.SelfAttention(projection=c.Projection(heads=2), visibility=visibility), 16)
    largest = []
    for length in (2048, 8192):
        x = torch.randn(1, length, 16, requires_grad=True)
        with Largest() as seen:
            context = Context(Span(length, length, 0, x.device), torch.arange(length)[None])
            attention(x, context).sum().backward()
        largest.append(seen.bytes)
    assert largest[1] <= 4.2 * largest[0]
    assert largest[1] < 8192 * 8192 / 4, "a mask of single bytes would be larger"


@pytest.mark.slow
@pytest.mark.parametrize("reversible", [False, True], ids=["plain", "reversible"])
def test_a_stack_with_the_bias_of_t5_makes_no_table_of_all_pairs(reversible: bool,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows in a stack that shares T5's bias: the numbers and gradients of the dense path, and linear memory."""
    attention = c.SelfAttention(projection=c.Projection(heads=2), visibility=c.Window(33),
                                positions=c.T5Bias(buckets=8, max_distance=20))
    block = c.Block(sublayers=(c.PreNorm(inner=attention), c.PreNorm(inner=c.FeedForward(hidden=16))))
    layers = c.Repeat(block=block, times=2)
    streams = c.Streams(kind="reversible" if reversible else "one")
    stack = Stack(c.Stack(layers=layers, residual=streams), 16).train()
    generator, found = torch.Generator().manual_seed(0), []
    for parameter in stack.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    for least in (NEVER, 512):
        monkeypatch.setattr(context_module, "LEAST_LENGTH", least)
        x = torch.randn(1, 2048, 16, generator=torch.Generator().manual_seed(1)).requires_grad_()
        with Largest() as seen:
            output = stack(x, Context(Span(2048, 2048, 0, x.device), torch.arange(2048)[None]))
            gradients = torch.autograd.grad(output.square().sum(), [x, *stack.parameters()])
        found.append([output, *gradients])
    for expected, sparse in zip(*found, strict=True):
        assert_scaled(sparse, expected)
    assert seen.bytes < 2048 * 2048, "the bias of all pairs would be eight times larger"


@pytest.mark.slow
def test_dropped_weights_keep_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout the mean over many draws is the attention without, and the gradient belongs to the same draw."""
    monkeypatch.setattr(context_module, "LEAST_LENGTH", ALWAYS)
    config = c.SelfAttention(projection=c.Projection(heads=2), visibility=c.Window(5), kernel=c.Softmax(dropout=0.3))
    attention, x = scrambled(config, 8), torch.randn(1, 40, 8, generator=torch.Generator().manual_seed(0))

    def once(x: Tensor) -> Tensor:
        result: Tensor = attention(x, Context(Span(40, 40, 0, x.device), torch.arange(40)[None]))
        return result

    attention.eval()
    expected = once(x)
    attention.train()
    torch.manual_seed(1)
    with torch.no_grad():
        mean = torch.stack([once(x) for _ in range(600)]).mean(0)
    torch.testing.assert_close(mean, expected.detach(), rtol=0, atol=0.05)
    moved = x.double().requires_grad_()
    attention.double()

    def same_draw(x: Tensor) -> Tensor:
        torch.manual_seed(2)
        return once(x).sin().sum()

    (gradient,) = torch.autograd.grad(same_draw(moved), moved)
    step = torch.zeros_like(moved)
    step[0, 7, 3] = 1e-6
    with torch.no_grad():
        slope = (same_draw(moved + step) - same_draw(moved - step)) / 2e-6
    torch.testing.assert_close(gradient[0, 7, 3], slope, rtol=1e-5, atol=1e-6)


def test_a_token_from_a_cache_reads_its_window_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written one by one behind 700 keys, tokens read the keys of their window, and give what dense attention gives."""
    config = c.SelfAttention(projection=c.Projection(heads=HEADS, kv_heads=2), visibility=c.Causal() & c.Window(20))
    span = Span(1, 700, 699, torch.device("cpu"))
    (tile,) = Planner(RowShape(config.visibility, 1, 700, start=699, end=700), RowFacts(), span.device).tiles(rows=True)
    assert [count_places(run) for run in tile.keys] == [20]
    dense, _ = attended(config, span, NEVER, monkeypatch)
    sparse, used = attended(config, span, ALWAYS, monkeypatch)
    assert used
    for expected, found in zip(dense, sparse, strict=True):
        torch.testing.assert_close(found, expected, rtol=PART, atol=PART)


def test_a_query_that_sees_nothing_gives_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first positions under fixed columns see no key: zeros, and gradients that are finite and zero there."""
    monkeypatch.setattr(context_module, "LEAST_LENGTH", ALWAYS)
    attention = scrambled(c.SelfAttention(projection=c.Projection(heads=2), visibility=FIXED[1]), 8).eval()
    query, key, value = (torch.randn(1, 2, 70, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
                         for seed in range(3))
    mixed = attention.attend(query, key, value, Context(Span(70, 70, 0, query.device), torch.arange(70)[None]))
    gradients = torch.autograd.grad(mixed.square().sum(), (query, key, value))
    assert not mixed[:, :, :13].any() and mixed[:, :, 13:].any(-1).all()
    assert all(gradient.isfinite().all() for gradient in gradients) and not gradients[0][:, :, :13].any()

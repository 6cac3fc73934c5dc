"""Attention against its definition, written as plain loops in float64 (Vaswani et al. 2017, §3.2)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer, build
from saucier.parts.attention import SelfAttention
from saucier.parts.context import Context
from saucier.parts.masks import Span
from saucier.parts.positions import alibi_slopes
from saucier.parts.positions import find_t5_bucket as t5_bucket

DIM, LENGTH, BATCH = 24, 7, 2


def naive(module: SelfAttention, x: Tensor, visible: Tensor, *, relative: object = None) -> tuple[Tensor, Tensor]:
    """Loop over rows, heads, queries and keys; `relative(head, i, j, q)` is added to score and value."""
    query_width, key_width, width = module.widths
    projected = x @ module.qkv.weight.T + (module.qkv.bias if module.qkv.bias is not None else 0)
    heads, groups = query_width // width, key_width // width
    mixed = torch.zeros(*x.shape[:2], query_width, dtype=x.dtype)
    weights = torch.zeros(x.shape[0], heads, x.shape[1], x.shape[1], dtype=x.dtype)
    for b in range(x.shape[0]):
        for h in range(heads):
            g = h * groups // heads
            q = projected[b, :, h * width:(h + 1) * width]
            k = projected[b, :, query_width + g * width:query_width + (g + 1) * width]
            v = projected[b, :, query_width + key_width + g * width:query_width + key_width + (g + 1) * width]
            for i in range(x.shape[1]):
                keys = [j for j in range(x.shape[1]) if visible[b, i, j]]
                if not keys:
                    continue
                key_add, value_add, score_add = relative(h, i, q[i]) if relative else (lambda j: 0, lambda j: 0,
                                                                                       lambda j: 0)  # type: ignore[operator]
                scores = torch.stack([(q[i] @ (k[j] + key_add(j))) * module.scale + score_add(j) for j in keys])
                probabilities = (scores - scores.max()).exp()
                probabilities = probabilities / probabilities.sum()
                for p, j in zip(probabilities, keys, strict=True):
                    weights[b, h, i, j] = p
                    mixed[b, i, h * width:(h + 1) * width] += p * (v[j] + value_add(j))
    return mixed @ module.out.weight.T + (module.out.bias if module.out.bias is not None else 0), weights


def attention(config: c.SelfAttention, seed: int = 0) -> SelfAttention:
    torch.manual_seed(seed)
    module = SelfAttention(config, DIM).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module


def context(*, padding: Tensor | None = None, documents: Tensor | None = None, prefix: Tensor | None = None,
            weights: bool = False) -> Context:
    span = Span(LENGTH, LENGTH, 0, torch.device("cpu"), padding, documents, documents, prefix)
    return Context(span, torch.arange(LENGTH)[None], want_weights=weights)


INPUT = torch.randn(BATCH, LENGTH, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
EVERYWHERE = torch.ones(BATCH, LENGTH, LENGTH, dtype=torch.bool)
PAST = EVERYWHERE.tril()


@pytest.mark.slow
@pytest.mark.parametrize("want_weights", [False, True])
@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize(("visibility", "visible"), [(c.Full(), EVERYWHERE), (c.Causal(), PAST)])
def test_equals_the_definition(kv_heads: int | None, visibility: c.Visibility, visible: Tensor,
                               want_weights: bool) -> None:
    module = attention(c.SelfAttention(projection=c.Projection(heads=4, kv_heads=kv_heads), visibility=visibility))
    here = context(weights=want_weights)
    expected, weights = naive(module, INPUT, visible)
    torch.testing.assert_close(module(INPUT, here), expected, atol=1e-10, rtol=0)
    if want_weights:
        torch.testing.assert_close(here.attentions[0], weights, atol=1e-10, rtol=0)


def visible_by_rule(rule: object) -> Tensor:
    return torch.tensor([[[bool(rule(b, i, j)) for j in range(LENGTH)] for i in range(LENGTH)]
                         for b in range(BATCH)])  # type: ignore[operator]


DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0, 1]])
PADDING = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1]]).bool()
PREFIX = torch.tensor([3, 0])
CASES = {
    "window": (c.Window(3), {}, lambda b, i, j: abs(i - j) < 3),
    "causal window": (c.Causal() & c.Window(3), {}, lambda b, i, j: 0 <= i - j < 3),
    "either": (c.Causal() | c.Window(2), {}, lambda b, i, j: j <= i or abs(i - j) < 2),
    "prefix": (c.Prefix(), {"prefix": PREFIX}, lambda b, i, j: j <= i or j < PREFIX[b]),
    "padding": (c.Full(), {"padding": PADDING}, lambda b, i, j: PADDING[b, j]),
    "causal padding": (c.Causal(), {"padding": PADDING}, lambda b, i, j: PADDING[b, j] and j <= i),
    "documents": (c.Causal(), {"documents": DOCUMENTS}, lambda b, i, j: j <= i and DOCUMENTS[b, i] == DOCUMENTS[b, j]),
    "documents, full": (c.Full(), {"documents": DOCUMENTS}, lambda b, i, j: DOCUMENTS[b, i] == DOCUMENTS[b, j]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("want_weights", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_visibility_and_batch_masks(case: str, want_weights: bool) -> None:
    visibility, given, rule = CASES[case]
    module = attention(c.SelfAttention(projection=c.Projection(heads=3, bias=False, output_bias=False),
                                       visibility=visibility))
    expected, _ = naive(module, INPUT, visible_by_rule(rule))
    torch.testing.assert_close(module(INPUT, context(**given, weights=want_weights)), expected, atol=1e-10,
                               rtol=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("want_weights", [False, True])
def test_a_query_that_sees_nothing_gives_zeros_forward_and_backward(want_weights: bool) -> None:
    module = attention(c.SelfAttention(projection=c.Projection(heads=3, bias=False, output_bias=False),
                                       visibility=c.Causal()))
    x = INPUT.clone().requires_grad_()
    out = module(x, context(padding=PADDING, weights=want_weights))
    assert out[1, :2].abs().max() == 0
    out.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_shaw_positions(kv_heads: int) -> None:
    module = attention(c.SelfAttention(projection=c.Projection(heads=4, kv_heads=kv_heads),
                                       positions=c.Shaw(max_distance=2)))
    table = module.positions

    def relative(h: int, i: int, q: Tensor) -> object:
        def row(j: int) -> int:
            return max(-2, min(2, j - i)) + 2
        return (lambda j: table.keys[row(j)], lambda j: table.values[row(j)],
                lambda j: 0)  # type: ignore[union-attr,index]

    expected, _ = naive(module, INPUT, EVERYWHERE, relative=relative)
    torch.testing.assert_close(module(INPUT, context()), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("want_weights", [False, True])
def test_music_transformer_skew_equals_the_quadratic_form(want_weights: bool) -> None:
    module = attention(c.SelfAttention(projection=c.Projection(heads=4), positions=c.MusicTransformer(length=10),
                                       visibility=c.Causal()))
    table = module.positions.weight  # type: ignore[union-attr]

    def relative(h: int, i: int, q: Tensor) -> object:
        return (lambda j: table[h, 10 - 1 - (i - j)], lambda j: 0, lambda j: 0)  # type: ignore[index]

    expected, _ = naive(module, INPUT, PAST, relative=relative)
    torch.testing.assert_close(module(INPUT, context(weights=want_weights)), expected, atol=1e-10, rtol=0)


def test_alibi_slopes_are_the_published_ones() -> None:
    assert alibi_slopes(8) == [2.0 ** -(i + 1) for i in range(8)]
    twelve = alibi_slopes(12)
    assert twelve[:8] == alibi_slopes(8) and twelve[8:] == [2 ** -0.5, 2 ** -1.5, 2 ** -2.5, 2 ** -3.5]


def test_alibi_is_minus_slope_times_distance() -> None:
    module = attention(c.SelfAttention(projection=c.Projection(heads=4), positions=c.Alibi(), visibility=c.Causal()))

    def relative(h: int, i: int, q: Tensor) -> object:
        return (lambda j: 0, lambda j: 0, lambda j: -alibi_slopes(4)[h] * (i - j))

    expected, _ = naive(module, INPUT, PAST, relative=relative)
    torch.testing.assert_close(module(INPUT, context()), expected, atol=1e-6, rtol=0)  # slopes are float32


def test_rotary_scores_depend_only_on_the_distance_and_rotate_by_the_angle() -> None:
    from saucier.parts.positions import build_rotation, rotate

    config, width = c.Rotary(base=100.0), 8
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(2, 1, 1, 1, width, generator=generator).double()

    def turned(x: Tensor, position: int) -> Tensor:
        return rotate(x, build_rotation(config, torch.tensor([[position]]), width))

    near, far = (turned(q, 5 + s) * turned(k, 2 + s) for s in (0, 90))
    torch.testing.assert_close(near.sum(), far.sum(), atol=2e-5, rtol=0)
    angle = 3 * 100.0 ** (-2 / width)  # pair 1 is values 1 and 1 + width/2
    x = torch.zeros(1, 1, 1, width).double()
    x[..., 1] = 1.0
    got = turned(x, 3)[0, 0, 0]
    assert math.isclose(float(got[1]), math.cos(angle), abs_tol=1e-6) and math.isclose(float(got[5]), math.sin(angle),
                                                                                       abs_tol=1e-6)


def test_partial_rotary_leaves_the_rest_alone() -> None:
    from saucier.parts.positions import build_rotation, rotate

    x = torch.randn(1, 2, 4, 8)
    turned = rotate(x, build_rotation(c.Rotary(share=0.5), torch.arange(4)[None], 8))
    assert torch.equal(turned[..., 4:], x[..., 4:]) and not torch.allclose(turned[:, :, 1:, :4], x[:, :, 1:, :4])


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_buckets_are_exact_when_near_and_logarithmic_when_far(bidirectional: bool) -> None:
    config = c.T5Bias(buckets=32, max_distance=128, bidirectional=bidirectional)
    half = 16 if bidirectional else 32
    exact = half // 2

    def bucket(distance: int) -> int:
        """The definition, one distance at a time."""
        offset = 0
        if bidirectional:
            offset = half if distance > 0 else 0
            distance = abs(distance)
        else:
            distance = max(-distance, 0)
        if distance < exact:
            return offset + distance
        return offset + min(half - 1, exact + int(math.log(distance / exact) / math.log(128 / exact) * (half - exact)))

    distances = [d for d in range(-300, 301)
                 if abs(d) not in (16, 32, 64)]  # there the logarithm is whole, and rounding decides
    assert t5_bucket(config, torch.tensor(distances)).tolist() == [bucket(d) for d in distances]


def test_sinusoidal_positions_are_equation_19() -> None:
    from saucier.parts.positions import SinusoidalPositions

    table = SinusoidalPositions(c.Sinusoidal(), 6)(torch.arange(9)[None])[0]
    for position in range(9):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert math.isclose(float(table[position, 2 * i]), math.sin(angle), abs_tol=1e-6)
            assert math.isclose(float(table[position, 2 * i + 1]), math.cos(angle), abs_tol=1e-6)


def test_packed_rows_equal_padded_rows() -> None:
    """Every position kind gives the same with and without padding work, in values and gradients."""
    mask = torch.tensor([[1] * 9, [1] * 3 + [0] * 6, [1] * 5 + [0] * 4])
    ids = torch.randint(0, 30, (3, 9), generator=torch.Generator().manual_seed(0))
    for positions in (c.NoPositions(), c.Rotary(), c.T5Bias(buckets=8, max_distance=8), c.Alibi(),
                      c.Shaw(max_distance=3)):
        model = encoder(positions)
        for parameter in model.parameters():
            parameter.grad = None
        packed = model(ids, mask).last_hidden_state
        padded = model(ids, mask, output_attentions=True).last_hidden_state
        assert packed is not None and padded is not None
        assert packed[1, 3:].abs().max() == 0, "packing must have happened"
        torch.testing.assert_close(packed[mask.bool()], padded[mask.bool()], atol=1e-10, rtol=0)


def encoder(positions: object) -> Transformer:
    attention_part = c.SelfAttention(projection=c.Projection(heads=4), positions=positions)  # type: ignore[arg-type]
    block = c.Block(sublayers=(c.PreNorm(inner=attention_part), c.PreNorm(inner=c.FeedForward(hidden=32))))
    config = c.Transformer(dim=24, embed=c.Embedding(vocab=30), encoder=c.Stack(layers=c.Repeat(block=block, times=2)))
    return build(config, dtype=torch.float64).eval()

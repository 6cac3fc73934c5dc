"""Rotary positions against their definitions, pair by pair in float64."""

from __future__ import annotations

import math

import pytest
import torch

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.positions import build_rotation, compute_frequencies, rotate

WIDTH, BASE = 12, 500.0


def angle_by_pair(scaling: c.Scaling, positions: list[int]) -> list[float]:
    """The angle a position of every pair."""
    found, _ = compute_frequencies(c.Rotary(base=BASE, scaling=scaling), torch.tensor([positions]), WIDTH)
    return found.tolist()


PLAIN = [BASE ** (-2 * pair / WIDTH) for pair in range(WIDTH // 2)]


def test_neighbours_are_complex_numbers_times_a_unit_one() -> None:
    """Su et al. 2021, §3.4.2: the pair (x_2i, x_2i+1) is multiplied by exp(i·m·θ_i)."""
    x = torch.randn(1, 2, 3, WIDTH + 4, generator=torch.Generator().manual_seed(0)).double()
    config = c.Rotary(base=BASE, share=WIDTH / (WIDTH + 4), pairs=c.Pairs(kind="neighbours"))
    turned = rotate(x, build_rotation(config, torch.tensor([[4, 0, 9]]), WIDTH + 4))
    for row, position in enumerate((4, 0, 9)):
        for pair, angle in enumerate(PLAIN):
            value = complex(*x[0, 1, row, 2 * pair:2 * pair + 2].tolist())
            wanted = value * complex(math.cos(position * angle), math.sin(position * angle))
            got = complex(*turned[0, 1, row, 2 * pair:2 * pair + 2].tolist())
            assert abs(got - wanted) < 1e-5
    assert torch.equal(turned[..., WIDTH:], x[..., WIDTH:])


def test_the_two_pairings_differ_by_a_permutation() -> None:
    x, places = torch.randn(2, 3, 5, WIDTH), torch.arange(5)[None]
    order = [value for pair in range(WIDTH // 2) for value in (pair, pair + WIDTH // 2)]
    halves = rotate(x, build_rotation(c.Rotary(), places, WIDTH))
    neighbours = rotate(x[..., order], build_rotation(c.Rotary(pairs=c.Pairs(kind="neighbours")), places, WIDTH))
    torch.testing.assert_close(halves[..., order], neighbours, atol=1e-6, rtol=0)


def test_linear_scaling_is_a_slower_count() -> None:
    assert angle_by_pair(c.LinearScaling(factor=4), [7]) == pytest.approx([angle / 4 for angle in PLAIN])


def test_dynamic_scaling_grows_the_base_with_the_longest_text() -> None:
    """Peng et al. 2023, eq 9 and §3.3: s = factor·seen/length - (factor - 1), base' = base·s^(W/(W-2))."""
    scaling = c.DynamicScaling(factor=3, length=10)
    assert angle_by_pair(scaling, [0, 9]) == pytest.approx(PLAIN)
    base = BASE * (3 * 25 / 10 - 2) ** (WIDTH / (WIDTH - 2))
    assert angle_by_pair(scaling, [3, 24]) == pytest.approx([base ** (-2 * i / WIDTH) for i in range(WIDTH // 2)])


def test_llama3_scaling_divides_long_waves_keeps_short_ones_and_mixes_between() -> None:
    scaling = c.Llama3Scaling(factor=8, low=1, high=4, length=64)
    wanted = []
    for angle in PLAIN:
        rounds = 64 * angle / (2 * math.pi)
        mix = (rounds - 1) / 3
        wanted.append(angle if rounds > 4 else angle / 8 if rounds < 1 else (1 - mix) * angle / 8 + mix * angle)
    kinds = [64 * angle / (2 * math.pi) for angle in PLAIN]
    assert min(kinds) < 1 < max(kinds) and any(1 < kind < 4 for kind in kinds), "all three cases occur"
    assert angle_by_pair(scaling, [5]) == pytest.approx(wanted)


@pytest.mark.parametrize("rounded", [True, False])
def test_yarn_divides_by_a_ramp_over_the_pairs(rounded: bool) -> None:
    """Peng et al. 2023, eq 11–13; the code release counts the ramp in pairs, rounded outwards."""
    scaling = c.Yarn(factor=4, length=200, fast=20, slow=1.5, rounded=rounded)

    def pair(rounds: float) -> float:  # 2π·base^(2i/W)·rounds = length, solved for i
        return WIDTH / 2 * math.log(200 / (2 * math.pi * rounds), BASE)

    first, last = (math.floor(pair(20)), math.ceil(pair(1.5))) if rounded else (pair(20), pair(1.5))
    wanted = []
    for index, angle in enumerate(PLAIN):
        divided = min(max((index - first) / (last - first), 0), 1)
        wanted.append(angle * (1 - divided) + angle / 4 * divided)
    assert angle_by_pair(scaling, [5]) == pytest.approx(wanted)
    assert wanted[0] == PLAIN[0] and wanted[-1] == pytest.approx(PLAIN[-1] / 4)


def test_yarn_sharpens_scores_by_the_logarithm_of_the_factor() -> None:
    """Peng et al. 2023, eq 15: the root of 1/t is 0.1·ln(s) + 1, here on queries and on keys."""
    places, x = torch.arange(6)[None], torch.randn(1, 1, 6, WIDTH).double()
    turned = rotate(x, build_rotation(c.Rotary(base=BASE, scaling=c.Yarn(factor=4, length=200)), places, WIDTH))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1) * (0.1 * math.log(4) + 1), atol=1e-6, rtol=1e-6)
    given = c.Rotary(base=BASE, scaling=c.Yarn(factor=4, length=200, attention=0.5))
    torch.testing.assert_close(rotate(x, build_rotation(given, places, WIDTH)).norm(dim=-1), x.norm(dim=-1) / 2,
                               atol=1e-6, rtol=1e-6)


def test_longrope_has_two_sets_of_divisors() -> None:
    short, long = (1.0, 1.0, 1.5, 2.0, 2.0, 3.0), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    scaling = c.LongRope(short=short, long=long, length=16, attention=1.2)
    assert angle_by_pair(scaling, [0, 15]) == pytest.approx([a / s for a, s in zip(PLAIN, short, strict=True)])
    assert angle_by_pair(scaling, [0, 16]) == pytest.approx([a / s for a, s in zip(PLAIN, long, strict=True)])
    x = torch.randn(1, 1, 1, WIDTH).double()
    turned = rotate(x, build_rotation(c.Rotary(base=BASE, scaling=scaling), torch.tensor([[3]]), WIDTH))
    torch.testing.assert_close(turned.norm(), x.norm() * 1.2, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("scaling", "said"), [
    (c.LongRope(short=(1.0,), long=(1.0, 1.0), length=4), "1 short and 2 long divisors for 6 pairs"),
    (c.Llama3Scaling(factor=2, low=4, high=4), "kept above 4"), (c.Yarn(factor=2, length=8, fast=1), "kept above 1"),
])
def test_what_cannot_be_scaled_is_refused(scaling: c.Scaling, said: str) -> None:
    attention = c.SelfAttention(projection=c.Projection(heads=2), positions=c.Rotary(scaling=scaling))
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=attention),)), times=1))
    with pytest.raises(InputError, match=said) as caught:
        c.check(c.Transformer(dim=2 * WIDTH, embed=c.Embedding(vocab=5), encoder=stack))
    assert caught.value.where == "encoder.blocks.0.attention.positions.scaling"


def test_a_share_of_six_sevenths_is_exact() -> None:
    assert c.Rotary(share=6 / 7).width(7) == 6 and c.Rotary(share=4 / 9).width(9) == 4

"""What the two sides of an encoder-decoder share: the token table, the source as a target, fixed positions."""

from __future__ import annotations

import math

import pytest
import torch

from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import build
from saucier.parts.inputs import derive_target
from saucier.parts.positions import SinusoidalPositions

SOURCE = torch.tensor([[5, 6, 7, 2], [8, 2, 1, 1]])


def bart(**changes: object) -> c.Transformer:
    return FAMILIES["bart"](8, 1, heads=2, vocab=20, length=10).model_copy(update=changes)


def test_a_shifted_source_begins_with_the_start_token() -> None:
    assert derive_target(c.ShiftedSource(start=3), SOURCE).tolist() == [[3, 5, 6, 7], [3, 8, 2, 1]]


def test_a_rotated_source_begins_with_its_last_real_token() -> None:
    """Source: Liu et al. 2020, §2.1: a text ends with the token of its language, and a target begins with it."""
    assert derive_target(c.RotatedSource(padding=1), SOURCE).tolist() == [[2, 5, 6, 7], [2, 8, 2, 1]]


def test_a_model_without_a_target_reads_the_source_twice() -> None:
    model = build(bart(), seed=1).eval()
    mask = SOURCE != 1
    with torch.no_grad():
        found = model(SOURCE, mask).logits
        wanted = model(SOURCE, mask, decoder_input_ids=derive_target(c.ShiftedSource(start=2), SOURCE)).logits
    assert torch.equal(found, wanted)


def test_without_a_default_target_the_decoder_must_be_given_one() -> None:
    with pytest.raises(InputError, match="needs both sides"):
        build(bart(default_target=None))(SOURCE)


def test_a_label_is_read_where_the_source_ends() -> None:
    """Source: Lewis et al. 2020, §3.1. The decoder's vector at the place of the source's end token."""
    head = c.ClassificationHead(pick=c.EndToken(token=2), classes=3)
    model = build(bart(head=head), seed=1).eval()
    with torch.no_grad():
        output = model(SOURCE, SOURCE != 1)
        wanted = model.head.output(torch.stack([output.last_hidden_state[0, 3], output.last_hidden_state[1, 1]]))
    torch.testing.assert_close(output.logits, wanted)


def test_a_tied_table_is_one_parameter() -> None:
    model = build(bart())
    names = [name for name, _ in model.named_parameters() if name.endswith("tokens.weight")]
    assert names == ["embed.tokens.weight"]
    assert model.decoder_embed.tokens.weight is model.embed.tokens.weight is model.head.weight


@pytest.mark.parametrize(("change", "message"), [
    ({"embed": c.Embedding(vocab=20, tied=True)}, "nothing to be tied to"),
    ({"decoder_embed": c.Embedding(vocab=21, tied=True)}, "different sizes"),
    ({"encoder": None, "decoder_embed": None}, "reads its source twice|no encoder output"),
])
def test_what_cannot_be_tied_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(bart(**change))


def entry(layout: c.Config, position: int, place: int, dim: int) -> float:
    """One value of a table of fixed positions, by the definition of each layout."""
    half = dim // 2
    match layout:
        case c.SinusoidLayout(kind="interleaved"):
            wave, turn = place // 2, (math.sin, math.cos)[place % 2]
            return turn(position / 10000 ** (2 * wave / dim))
        case c.SinusoidLayout(kind="halves"):
            sines = dim - half
            wave, turn = (place, math.sin) if place < sines else (place - sines, math.cos)
            return turn(position / 10000 ** (2 * wave / dim))
        case _:
            if place == 2 * half:
                return 0.0
            wave, turn = (place, math.sin) if place < half else (place - half, math.cos)
            return turn(position / 10000 ** (wave / max(half - 1, 1)))


@pytest.mark.parametrize("dim", [6, 7, 16])
@pytest.mark.parametrize("layout", [c.SinusoidLayout(kind="interleaved"), c.SinusoidLayout(kind="halves"),
                                    c.SinusoidLayout(kind="full_range")])
def test_fixed_positions_are_the_definition_also_far_away(layout: c.SinusoidLayout, dim: int) -> None:
    places = [0, 1, 5, 1023, 100_000]
    table = SinusoidalPositions(c.Sinusoidal(layout=layout), dim)(torch.tensor([places]))[0]
    wanted = torch.tensor([[entry(layout, position, place, dim) for place in range(dim)] for position in places])
    torch.testing.assert_close(table, wanted, atol=1e-6, rtol=0)


def test_padding_has_no_position() -> None:
    """The vector of padding is zero, and real tokens are counted from behind its id."""
    model = build(FAMILIES["m2m_100"](8, 1, heads=2, vocab=20))
    positions = SinusoidalPositions(model.config.embed.positions, 8)
    assert not positions(torch.tensor([[1, 2, 3]]))[0, 0].any()
    assert positions(torch.tensor([[1, 2, 3]]))[0, 1].any()


def test_a_table_with_an_end_refuses_what_is_beyond_it() -> None:
    positions = SinusoidalPositions(c.Sinusoidal(length=4), 6)
    with pytest.raises(InputError, match="position 4 is beyond the 4 positions"):
        positions(torch.tensor([[4]]))


@pytest.mark.parametrize(("positions", "room"), [
    (c.NoPositions(), None), (c.Sinusoidal(), None), (c.Sinusoidal(length=9), 9), (c.Learned(length=9), 9),
    (c.Learned(length=9, places=c.CountedPlaces(kind="in_order", offset=2)), 7),
    (c.Learned(length=9, places=c.SkipPadding(padding=1)), 7)])
def test_the_longest_input_is_known(positions: c.Config, room: int | None) -> None:
    assert c.longest_input(positions) == room

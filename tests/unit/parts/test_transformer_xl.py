"""Transformer-XL's and XLNet's attention against their definitions, written pair by pair in float64."""

from __future__ import annotations

import math

import pytest
import torch
from tests.tolerances import PART, assert_close
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer, build
from saucier.parts.attention import SelfAttention

DIM, HEADS, HEAD, MEMORY, LENGTH, ROWS = 12, 3, 4, 4, 5, 2


def model(positions: c.TransformerXL, visibility: c.Visibility, *, queries: bool = False) -> Transformer:
    """One block of nothing but an attention (in double precision), with a memory."""
    attention = c.SelfAttention(projection=c.Projection(heads=HEADS, bias=False, output_bias=False),
                                positions=positions, visibility=visibility)
    block = c.Block(sublayers=(c.PostNorm(inner=attention),))
    made = build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=9, segments=c.TablelessSegments(kind="scores")),
                               encoder=c.Stack(
        layers=c.Repeat(block=block, times=1), memory=c.SegmentMemory(),
        queries=c.QueryVector() if queries else None))).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return made


def sines(distance: int) -> list[float]:
    """The vector of a distance. Source: Dai et al. 2019, §3.3 and code release: all sines, then all cosines."""
    angles = [distance / 10000 ** (2 * pair / DIM) for pair in range(DIM // 2)]
    return [*(math.sin(angle) for angle in angles), *(math.cos(angle) for angle in angles)]


def naive(attention: SelfAttention, biases: tuple[Tensor, Tensor], rows: dict[str, Tensor],
          config: c.TransformerXL) -> Tensor:
    """The weights [H, Q, K] of one text, score by score.

    `rows`: queries [Q, D], keys [K, D], their places [Q] and [K], segments likewise, and seen [Q, K].
    """
    query_map, key_map, _ = attention.qkv.weight.split(DIM)
    positions = attention.positions
    weights = torch.zeros(HEADS, len(rows["queries"]), len(rows["keys"]), dtype=torch.float64)
    for head in range(HEADS):
        part = slice(head * HEAD, (head + 1) * HEAD)
        for i, q in enumerate(rows["queries"]):
            scores = []
            for j, k in enumerate(rows["keys"]):
                distance = int(rows["query_places"][i] - rows["key_places"][j]) * int(rows.get("sign", torch.tensor(1)))
                if config.clamp:
                    distance = max(-config.clamp, min(config.clamp, distance))
                relative = positions.map.weight[part] @ torch.tensor(sines(distance), dtype=torch.float64)
                query, key = query_map[part] @ q, key_map[part] @ k
                score = (query + biases[0][head]) @ key + (query + biases[1][head]) @ relative
                if config.segments:
                    other = int(rows["query_segments"][i] != rows["key_segments"][j])
                    score = score + (query + positions.segment_bias[head]) @ positions.segments[other, head]
                scores.append(score / math.sqrt(HEAD) if rows["seen"][i, j] else torch.tensor(-math.inf).double())
            weights[head, i] = torch.stack(scores).softmax(0)
    return weights


CONFIGS = {"plain": c.TransformerXL(), "clamp": c.TransformerXL(clamp=2), "shared": c.TransformerXL(shared_biases=True),
           "segments": c.TransformerXL(segments=True), "mirrored": c.TransformerXL(mirrored=True)}


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_those_of_the_definition(name: str) -> None:
    """With a memory, in both rows; the second row of a mirrored batch counts its distances the other way."""
    config = CONFIGS[name]
    made = model(config, c.Causal() if name in ("plain", "clamp") else c.Full())
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 9, (ROWS, LENGTH), generator=generator)
    segments = torch.randint(0, 2, (ROWS, LENGTH), generator=generator)
    past = torch.randn(MEMORY, ROWS, DIM, generator=generator).double()
    output = made(ids, token_type_ids=segments, mems=[past], output_attentions=True)
    attention = made.encoder.blocks[0]["attention"].inner
    held = made.encoder.biases if config.shared_biases else attention.positions.biases
    for row in range(ROWS):
        text = made.embed.tokens(ids[row])
        places = torch.arange(MEMORY + LENGTH)
        seen = torch.ones(LENGTH, MEMORY + LENGTH, dtype=torch.bool)
        rows = {"queries": text, "keys": torch.cat([past[:, row], text]), "query_places": places[MEMORY:],
                "key_places": places, "query_segments": segments[row],
                "key_segments": torch.cat([torch.zeros(MEMORY, dtype=torch.long), segments[row]]),
                "seen": seen.tril(MEMORY) if name in ("plain", "clamp") else seen,
                "sign": torch.tensor(-1 if config.mirrored and row >= ROWS // 2 else 1)}
        assert_close(output.attentions[0][row], naive(attention, (held.content, held.place), rows, config), PART, name)


def test_the_second_stream_is_that_of_the_definition() -> None:
    """Queries that know a place and not its token: Yang et al. 2019, §2.3, eq 3–5, and §2.4 with a memory."""
    config = c.TransformerXL(segments=True)
    made = model(config, c.Permutation(), queries=True)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 9, (ROWS, LENGTH), generator=generator)
    segments = torch.randint(0, 2, (ROWS, LENGTH), generator=generator)
    past = torch.randn(MEMORY, ROWS, DIM, generator=generator).double()
    orders = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(ROWS)])
    hidden = orders[:, :, None] <= orders[:, None, :]
    asked = torch.tensor([[3, 0], [1, 4]])
    mapping = torch.nn.functional.one_hot(asked, LENGTH).double()
    given = {"token_type_ids": segments, "mems": [past], "perm_mask": hidden.double(), "target_mapping": mapping}
    output = made(ids, **given, output_attentions=True, output_hidden_states=True)
    attention, biases = made.encoder.blocks[0]["attention"].inner, made.encoder.blocks[0]["attention"].inner.positions
    text_weights, asked_weights = output.attentions[0]
    for row in range(ROWS):
        text, places = made.embed.tokens(ids[row]), torch.arange(MEMORY + LENGTH)
        visible = torch.cat([torch.ones(LENGTH, MEMORY, dtype=torch.bool), ~hidden[row]], dim=1)
        itself = torch.nn.functional.pad(torch.eye(LENGTH, dtype=torch.bool), (MEMORY, 0))
        keys = {"keys": torch.cat([past[:, row], text]), "key_places": places,
                "key_segments": torch.cat([torch.zeros(MEMORY, dtype=torch.long), segments[row]])}
        pair = (biases.biases.content, biases.biases.place)
        rows = {**keys, "queries": text, "query_places": places[MEMORY:], "query_segments": segments[row],
                "seen": visible | itself}
        assert_close(text_weights[row], naive(attention, pair, rows, config), PART, "text")
        at = asked[row]
        rows = {**keys, "queries": made.encoder.queries.weight.expand(2, -1), "query_places": at + MEMORY,
                "query_segments": segments[row][at], "seen": visible[at]}
        assert_close(asked_weights[row][:, at], naive(attention, pair, rows, config), PART, "queries")
    assert_close(made(ids, **given).last_hidden_state, output.last_hidden_state, PART, "without weights")
    assert [state.shape[1] for state in output.hidden_states] == [LENGTH, 2, LENGTH, 2]

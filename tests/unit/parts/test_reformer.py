"""Reformer's parts against their definitions in float64: chunks, hashes, two streams, position grids."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer, build
from saucier.parts.hashing import draw_hash_directions, hash_vectors, normalize_keys

LENGTH, DIM, HEADS, WIDTH = 12, 8, 2, 4


def one_layer(kernel: c.Chunks | c.Hashing, *, causal: bool, streams: bool = False) -> Transformer:
    """A model of one attention, in float64; with two streams, of an attention and a feed-forward."""
    attention = c.SelfAttention(projection=c.Projection(heads=HEADS), kernel=kernel,
                                visibility=c.Causal() if causal else c.Full())
    sublayers = [c.PreNorm(inner=attention), *([c.PreNorm(inner=c.FeedForward(hidden=9))] if streams else [])]
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=tuple(sublayers)), times=2 if streams else 1),
                    residual=c.Streams(kind="reversible") if streams else c.Streams(kind="one"))
    return build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=31), encoder=stack), seed=1).double().eval()


def buckets_of(vectors: Tensor, kernel: c.Hashing, rounds: int, length: int) -> Tensor:
    """The bucket of each position in each round. Shapes: vectors [B, H, L, E] -> [B, H, R, L]."""
    shape = vectors.shape[1], vectors.shape[3], rounds
    return hash_vectors(vectors, kernel, draw_hash_directions(kernel, shape, kernel.factors(length), vectors.device),
                        length)


def heads_of(model: Transformer, hidden: Tensor, maps: int) -> list[Tensor]:
    """What the maps of the one attention give. Shapes: hidden [L, D] -> maps times [H, L, E]."""
    residual = model.encoder.blocks[0]["attention"]
    made = residual.inner.qkv(residual.norm(hidden[None]))[0]
    return [part.view(-1, HEADS, WIDTH).transpose(0, 1) for part in made.split(DIM, dim=-1)[:maps]]


def added(model: Transformer, hidden: Tensor, mixed: Tensor) -> Tensor:
    """The residual and the output map. Shapes: mixed [H, L, E] -> [L, D]."""
    residual = model.encoder.blocks[0]["attention"]
    return hidden + residual.inner.out(mixed.transpose(0, 1).flatten(1))


def ids(rows: int = 1, length: int = LENGTH) -> Tensor:
    return torch.randint(0, 31, (rows, length), generator=torch.Generator().manual_seed(5))


def mixture(scores: dict[int, float], counts: Counter[int], value: Tensor) -> Tensor:
    """Softmax over keys that count several times, then the mixed value, from its definition."""
    weights = {key: torch.tensor(scores[key], dtype=torch.float64).exp() * counts[key] for key in counts}
    return sum(weight * value[key] for key, weight in weights.items()) / sum(weights.values())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("size", "before", "after"), [(3, 1, 0), (3, 1, 1), (4, 0, 0), (6, 1, 1), (12, 1, 0)])
def test_chunks_see_their_neighbours_on_a_ring(size: int, before: int, after: int, causal: bool) -> None:
    if causal and after:
        return
    model = one_layer(c.Chunks(length=size, before=before, after=after), causal=causal)
    tokens, real = ids(), torch.ones(LENGTH, dtype=torch.bool)
    real[5] = False
    hidden = model.embed.tokens(tokens[0])
    query, key, value = heads_of(model, hidden, 3)
    count, mixed = LENGTH // size, torch.zeros(HEADS, LENGTH, WIDTH, dtype=torch.float64)
    for head in range(HEADS):
        for place in range(LENGTH):
            near = [(place // size + step) % count for step in range(-before, after + 1)] if count > 1 else [0]
            seen = Counter(number for chunk in near for number in range(chunk * size, (chunk + 1) * size)
                           if real[number] and (number <= place or not causal))
            scores = {number: float(query[head, place] @ key[head, number]) / WIDTH**0.5 for number in seen}
            mixed[head, place] = mixture(scores, seen, value[head]) if seen else 0.0
    with torch.no_grad():
        found = model(tokens, real[None].long()).last_hidden_state[0]
    torch.testing.assert_close(found[real], added(model, hidden, mixed)[real], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("repeats", [c.Repeats(kind="count"), c.Repeats(kind="divide")])
def test_hashes_are_a_softmax_over_the_chunks_of_all_rounds(rounds: int, causal: bool,
                                                            repeats: c.Repeats) -> None:
    """Kitaev et al. 2020, §2: sorted by bucket, a position sees its chunk and the one before it, itself last of all."""
    size, kernel = 3, c.Hashing(chunks=c.Chunks(length=3), rounds=rounds, buckets=c.FixedBuckets(factors=(4,)), seed=2,
                                repeats=repeats)
    model = one_layer(kernel, causal=causal)
    tokens = ids()
    hidden = model.embed.tokens(tokens[0])
    vectors, value = heads_of(model, hidden, 2)
    buckets = buckets_of(vectors[None], kernel, rounds, LENGTH)[0]
    mixed = torch.zeros(HEADS, LENGTH, WIDTH, dtype=torch.float64)
    for head in range(HEADS):
        line = [place for turn in range(rounds)
                for place in sorted(range(LENGTH), key=lambda place: (int(buckets[head, turn, place]), place))]
        chunks = [line[start:start + size] for start in range(0, len(line), size)]
        for place in range(LENGTH):
            seen = Counter(other for number, chunk in enumerate(chunks) if place in chunk
                           for other in chunks[number - 1] + chunk if other <= place or not causal)
            if set(seen) != {place}:
                del seen[place]
            if repeats.kind == "divide":
                seen = Counter(dict.fromkeys(seen, 1))
            scores = {other: float(vectors[head, place] @ normalize_keys(vectors[head, other])) for other in seen}
            mixed[head, place] = mixture(scores, seen, value[head])
    with torch.no_grad():
        found = model(tokens).last_hidden_state[0]
    torch.testing.assert_close(found, added(model, hidden, mixed), rtol=1e-9, atol=1e-9)


def test_hashes_are_full_attention_where_every_chunk_is_seen() -> None:
    kernel = c.Hashing(chunks=c.Chunks(length=4, before=1, after=1), buckets=c.FixedBuckets(factors=(8,)), seed=0)
    model, whole = (one_layer(k, causal=False) for k in (kernel, c.Hashing(chunks=c.Chunks(length=LENGTH))))
    with torch.no_grad():
        torch.testing.assert_close(model(ids(2)).last_hidden_state, whole(ids(2)).last_hidden_state, rtol=1e-10,
                                   atol=1e-10)


def distance_to_full(rounds: int, seeds: int = 6, *, repeats: c.Repeats) -> float:
    """How far attention by so many hashes is from that to all positions, on the mean over seeds, relative to that."""
    tokens, chunks, far = ids(length=96), c.Chunks(length=8), []
    for seed in range(seeds):
        kernel = c.Hashing(chunks=chunks, rounds=rounds, seed=seed, repeats=repeats,
                           buckets=c.FixedBuckets(factors=(4,)))
        models = [one_layer(one, causal=True) for one in (kernel, c.Hashing(chunks=c.Chunks(length=96)))]
        for model in models:
            model.encoder.blocks[0]["attention"].inner.qkv.weight.mul_(100)  # so that some keys are preferred
        found, wanted = (model(tokens).last_hidden_state - model.embed.tokens(tokens) for model in models)
        far.append(float((found - wanted).norm() / wanted.norm()))
    return sum(far) / len(far)


@pytest.mark.slow
@torch.no_grad()
def test_more_hashes_come_closer_to_full_attention() -> None:
    """Kitaev et al. 2020, §2 and figure 4: with rounds the chance falls that a pair is in no common bucket.

    What is left where keys count as often as they are met does not vanish; where each counts once, it does.
    """
    one, four, sixteen = (distance_to_full(rounds, repeats=c.Repeats(kind="count")) for rounds in (1, 4, 16))
    assert four < 0.7 * one
    assert sixteen < 0.7 * four
    divided, counted = (distance_to_full(64, repeats=c.Repeats(kind=kind)) for kind in ("divide", "count"))
    assert divided < 0.02 < counted


def newest_from_a_cache(repeats: c.Repeats) -> float:
    """How far the newest of 40 tokens, read beside a cache by 64 hashes, is from full attention, relative to that."""
    found = []
    for chunks, rounds in ((c.Chunks(length=4), 64), (c.Chunks(length=40), 1)):
        kernel = c.Hashing(chunks=chunks, rounds=rounds, seed=3, repeats=repeats, buckets=c.FixedBuckets(factors=(6,)))
        config = one_layer(kernel, causal=True).config
        model = build(config.model_copy(update={"encoder": None, "decoder": config.encoder}), seed=1).double().eval()
        model.decoder.blocks[0]["attention"].inner.qkv.weight.mul_(100)
        tokens, cache = ids(length=40), model.new_cache(1, 40)
        model(tokens[:, :39], cache=cache)
        found.append(model(tokens[:, 39:], cache=cache).last_hidden_state[0, 0] - model.embed.tokens(tokens[0, 39]))
    return float((found[0] - found[1]).norm() / found[1].norm())


@pytest.mark.slow
@torch.no_grad()
def test_keys_count_once_beside_a_cache_too() -> None:
    assert newest_from_a_cache(c.Repeats(kind="divide")) < 0.02 < newest_from_a_cache(c.Repeats(kind="count"))


@torch.no_grad()
def test_chunks_that_reach_the_whole_row_are_full_attention() -> None:
    """Two chunks and the ring: whatever the buckets, each position meets all others once.

    Of several rounds the first chunk stands beside the last of the round before, as published.
    """
    kernel = c.Hashing(chunks=c.Chunks(length=6), rounds=1, seed=5, buckets=c.FixedBuckets(factors=(4,)))
    for causal in (False, True):
        one, full = one_layer(kernel, causal=causal), one_layer(c.Hashing(chunks=c.Chunks(length=12)), causal=causal)
        torch.testing.assert_close(one(ids()).last_hidden_state, full(ids()).last_hidden_state, rtol=1e-10, atol=1e-10)


def test_a_hash_is_a_direction() -> None:
    kernel = c.Hashing(buckets=c.FixedBuckets(factors=(6,)), seed=4)
    vectors = torch.randn(1, 2, 9, 5, generator=torch.Generator().manual_seed(0))
    buckets = buckets_of(vectors, kernel, 3, 9)
    assert int(buckets.max()) < 6
    assert torch.equal(buckets_of(vectors * 7, kernel, 3, 9), buckets)
    assert torch.equal(buckets_of(-vectors, kernel, 3, 9), (buckets + 3) % 6)
    two = buckets_of(vectors, c.Hashing(buckets=c.FixedBuckets(factors=(2, 4)), seed=4), 3, 9)
    assert 6 <= int(two.max()) < 8


@pytest.mark.parametrize(("length", "chunk", "longest", "factors"), [
    (256, 64, 4096, (8,)), (4096, 64, 4096, (128,)), (65536, 64, 65536, (32, 64)), (128, 4, 128, (8, 8)), (24, 4, 48,
                                                                                                           (8,))])
def test_buckets_follow_from_the_length(length: int, chunk: int, longest: int, factors: tuple[int, ...]) -> None:
    """About two for each chunk; two factors where there are many. Kitaev et al. 2020, code release."""
    kernel = c.Hashing(chunks=c.Chunks(length=chunk), buckets=c.BucketsByLength(longest=longest))
    assert kernel.factors(length) == factors


def test_two_streams_and_the_way_back() -> None:
    """Kitaev et al. 2020, §3, eq 9 and 10."""
    model = one_layer(c.Chunks(length=3), causal=False, streams=True)
    tokens = ids(2)
    with torch.no_grad():
        output = model(tokens, output_hidden_states=True)
        from saucier.parts.context import Context
        from saucier.parts.masks import Span

        context = Context(Span(LENGTH, LENGTH, 0, tokens.device), torch.arange(LENGTH)[None])
        first, second = output.last_hidden_state.chunk(2, dim=-1)
        assert torch.equal(second, output.hidden_states[-1])
        for number, block in reversed(list(enumerate(model.encoder.blocks))):
            second = second - block["feed_forward"].change(first, context)
            first = first - block["attention"].change(second, context)
            torch.testing.assert_close(second, output.hidden_states[number], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(first, model.embed.tokens(tokens), rtol=1e-12, atol=1e-12)


def test_a_grid_gives_row_and_column() -> None:
    embed = c.Embedding(vocab=31, positions=c.Axial(shape=(3, 5), widths=(2, 6)))
    config = one_layer(c.Chunks(length=3), causal=False).config.model_copy(update={"embed": embed})
    model = build(config)
    table = model.embed.positions(torch.arange(15)[None])[0]
    for place in range(15):
        wanted = torch.cat([model.embed.positions.rows[place // 5], model.embed.positions.columns[place % 5]])
        assert torch.equal(table[place], wanted)
    from saucier.errors import InputError

    with pytest.raises(InputError, match="position 15"):
        model(torch.zeros(1, 16, dtype=torch.long))


REFUSED = {
    "visibility": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.Chunks(length=3), visibility=c.Window(2)),
                   "full or causal"),
    "after": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.Chunks(length=3, after=1),
                              visibility=c.Causal()), "after: 0"),
    "groups": (c.SelfAttention(projection=c.Projection(heads=2, kv_heads=1), kernel=c.Hashing()), "kv_heads"),
    "positions": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.Chunks(), positions=c.Alibi()),
                  "embedding"),
    "multiple": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.Chunks(length=3, multiple=4)), "multiple"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_chunks_cannot_do_is_refused(name: str) -> None:
    from saucier.errors import InputError

    attention, remedy = REFUSED[name]
    block = c.Block(sublayers=(c.PreNorm(inner=attention),))
    stack = c.Stack(layers=c.Repeat(block=block, times=1))
    with pytest.raises(InputError, match=remedy):
        build(c.Transformer(dim=8, embed=c.Embedding(vocab=9), encoder=stack))


@pytest.mark.parametrize("change", ["post", "odd"])
def test_streams_need_pairs_that_add(change: str) -> None:
    from saucier.errors import InputError

    place = c.PostNorm if change == "post" else c.PreNorm
    inner = [place(inner=c.FeedForward(hidden=4))] * (2 if change == "post" else 1)
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=tuple(inner)), times=1),
                    residual=c.Streams(kind="reversible"))
    with pytest.raises(InputError, match="even number"):
        build(c.Transformer(dim=8, embed=c.Embedding(vocab=9), encoder=stack))

"""No position sees what it may not, and every position sees all that it may: proved by the pattern of gradients.

The gradient of output i by the embedding of input j is zero exactly where no path of allowed attentions leads from j
to i. What is allowed is written down here once more, pair by pair, apart from the code under test.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tests.laws import zoo
from torch import Tensor

from saucier import config as c
from saucier.config.visibility import build_bigbird_visibility
from saucier.diagnosis.part_laws import Watched
from saucier.errors import InputError

LENGTH = 9
PREFIX = 4
GLOBAL = (2, 6)
"""The tokens that the batch names global."""
VISIBILITIES: dict[str, c.Visibility] = {"full": c.Full(), "causal": c.Causal(), "prefix": c.Prefix(),
                                         "window": c.Window(2), "window-1": c.Window(1),
                                         "causal-window": c.Causal() & c.Window(3),
                                         "prefix-window": c.Prefix() & c.Window(3),
                                         "causal-or-window": c.Causal() | c.Window(2), "permutation": c.Permutation(),
                                         "same-length": c.SameLength(),
                                         "causal-same-length": c.Causal() & c.SameLength(), "global": c.Global(),
                                         "window-or-global": c.Window(2) | c.Global(),
                                         "causal-and-global": c.Causal() & c.Global(),
                                         "blocks": c.BlockWindow(size=2, reach=1),
                                         "own-block": c.BlockWindow(size=4, reach=0),
                                         "global-blocks": c.BlockWindow(size=2, reach=0) | c.GlobalBlocks(size=2),
                                         "bigbird": build_bigbird_visibility(1, 1, 64),
                                         "bigbird-short": build_bigbird_visibility(2, 1, 64),
                                         "causal-blocks": c.Causal() & build_bigbird_visibility(1, 1, 64),
                                         "random": c.Window(1) + c.RandomBlocks(size=2, count=2, length=64),
                                         "dilated": c.Dilated(size=2, dilation=3),
                                         "strided": c.Causal() & c.Strided(stride=3),
                                         "columns": (c.Causal() & c.Columns(stride=4, count=2)) | c.Window(1),
                                         "by-head": c.Combined(kind="by_head", terms=(c.Causal() & c.Window(2),
                                                                    c.Causal() & c.Strided(stride=4))),
                                         "nested": (c.Causal() & c.Window(2)) | (c.Prefix() & c.Window(4)),}
ATTENTIONS: dict[str, c.SelfAttention] = {
    name: c.SelfAttention(projection=zoo.GROUPED, positions=positions)
    for name, positions in {"none": c.NoPositions(), "shaw": c.Shaw(max_distance=3), "rotary": c.Rotary(),
                            "t5": c.T5Bias(buckets=8, max_distance=20), "alibi": c.Alibi(),
                            "xl": c.TransformerXL()}.items()}


def may_see(visibility: c.Visibility, query: int, key: int) -> bool:
    """Say for one pair what a visibility means."""
    match visibility:
        case c.Permutation():  # nothing is hidden from single queries here; tests/laws/test_memory.py has that
            return True
        case c.SameLength():  # without a memory
            return key >= query
        case c.Full():
            return True
        case c.Causal():
            return key <= query
        case c.Prefix():
            return key <= query or key < PREFIX
        case c.Window(size=size):
            return -size < key - query < size
        case c.Global():
            return query in GLOBAL or key in GLOBAL
        case c.BlockWindow(size=size, reach=reach):
            return abs(query // size - key // size) <= reach
        case c.Dilated(size=size, dilation=step):
            return key in [query + step * away for away in range(1 - size, size)]
        case c.Strided(stride=step):
            return query % step == key % step
        case c.Columns(stride=step, count=count):
            return step - count <= key % step
        case c.Combined(kind="by_head", terms=terms):  # of all heads together
            return any(may_see(term, query, key) for term in terms)
        case c.GlobalBlocks(size=size):
            return bool({query // size, key // size} & {0, (LENGTH - 1) // size})
        case c.RandomBlocks(size=size):  # outside training
            return key // size == 0 and 0 < query // size < (LENGTH - 1) // size
        case c.Beyond(length=limit, inner=inner):
            return limit >= LENGTH or may_see(inner, query, key)
        case c.Combined(kind="and", terms=terms):
            return all(may_see(term, query, key) for term in terms)
        case c.Combined(kind="or", terms=terms) | c.Combined(kind="plus", terms=terms):
            return any(may_see(term, query, key) for term in terms)


def allowed(visibility: c.Visibility, length: int = LENGTH) -> Tensor:
    """Return [Q, K], True where the query may see the key."""
    return torch.tensor([[may_see(visibility, query, key) for key in range(length)] for query in range(length)])


def reachable(direct: Tensor, layers: int) -> Tensor:
    """Return what reaches what through this many layers; the residual always leads a position to itself."""
    one = (direct | torch.eye(len(direct), dtype=torch.bool)).double()
    return torch.linalg.matrix_power(one, layers) > 0


def watch(config: c.Transformer) -> Watched:
    """Return a model of this config whose embeddings are kept."""
    return Watched(zoo.scrambled(config))


def assert_same_pattern(found: Tensor, expected: Tensor) -> None:
    """Fail with the first pair that leaks, or that should be seen and is not."""
    leaks, blind = (found & ~expected).nonzero().tolist(), (expected & ~found).nonzero().tolist()
    assert not leaks, f"output {leaks[0][0]} sees input {leaks[0][1]}"
    assert not blind, f"output {blind[0][0]} does not see input {blind[0][1]}"


@pytest.mark.sampled
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", VISIBILITIES)
@pytest.mark.parametrize("weights", [False, True], ids=["fused", "explicit"])
def test_every_visibility_shows_what_it_says(name: str, attention: str, layers: int, weights: bool) -> None:
    """Both attention paths, every kind of position that can be used in both directions."""
    visibility = VISIBILITIES[name]
    positions = ATTENTIONS[attention].positions
    if isinstance(positions, c.T5Bias) and c.is_causal(visibility):
        positions = positions.model_copy(update={"bidirectional": False})
    changed = ATTENTIONS[attention].model_copy(update={"visibility": visibility, "positions": positions})
    watched = watch(zoo.decoder(changed, layers=layers))
    ids = zoo.tokens(watched.model.config, 1, LENGTH)
    named = {"global_attention_mask": global_mask()} if c.global_terms(visibility) else {}
    output = watched.model(ids, prefix_length=torch.tensor([PREFIX]), output_attentions=weights, **named)
    assert_same_pattern(watched.influence(output)[0], reachable(allowed(visibility), layers))


def global_mask() -> Tensor:
    """Return the mask [1, LENGTH] that names the global tokens."""
    return torch.tensor([[int(place in GLOBAL) for place in range(LENGTH)]])


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("weights", [False, True], ids=["fused", "explicit"])
def test_global_tokens_with_maps_of_their_own_see_all_and_are_seen_by_all(weights: bool, layers: int) -> None:
    """Longformer's attention shows what its visibility says, and nothing of padding."""
    visibility = c.Window(2) | c.Global()
    attention = c.SelfAttention(projection=zoo.GROUPED, visibility=visibility, global_maps=c.GlobalMaps())
    watched = watch(zoo.encoder(attention, layers=layers))
    ids, mask = zoo.tokens(watched.model.config, 1, LENGTH), (torch.arange(LENGTH) < LENGTH - 1)[None].long()
    output = watched.model(ids, mask, global_attention_mask=global_mask(), output_attentions=weights)
    real = slice(0, LENGTH - 1)
    expected = reachable(allowed(visibility)[real, real], layers)
    assert_same_pattern(watched.influence(output)[0][real, real], expected)
    assert not watched.influence(output)[0][real, LENGTH - 1].any()


@pytest.mark.sampled
@pytest.mark.parametrize("name", zoo.decoders())
def test_no_decoder_sees_the_future(name: str) -> None:
    """Every decoder of the zoo: nothing from later tokens, something from the token itself."""
    watched = watch(zoo.decoders()[name])
    found = watched.influence(watched.model(zoo.tokens(watched.model.config, 1, LENGTH)))[0]
    assert not found.triu(1).any()
    assert found.diagonal().all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", zoo.decoders())
def test_documents_of_a_packed_row_do_not_meet(name: str) -> None:
    """Packed rows: a document ends where the next begins, also where documents alternate."""
    watched = watch(zoo.decoders()[name])
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, -1]])
    found = watched.influence(watched.model(zoo.tokens(watched.model.config, 1, LENGTH), documents=documents))[0]
    same = documents[0][:, None] == documents[0][None]
    assert not (found & ~same).any()
    assert not found.triu(1).any()


@pytest.mark.slow
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_documents_meet_within_themselves(attention: str) -> None:
    """An encoder's packed row: each document sees all of itself and nothing else, even when it is in two pieces."""
    watched = watch(zoo.encoder(ATTENTIONS[attention]))
    documents = torch.tensor([[0, 0, 1, 1, 0, 2, 1, 2, 2]])
    found = watched.influence(watched.model(zoo.tokens(watched.model.config, 1, LENGTH), documents=documents))[0]
    assert_same_pattern(found, documents[0][:, None] == documents[0][None])


@pytest.mark.sampled
@pytest.mark.parametrize("name", {**zoo.decoders(), **zoo.encoders(), **zoo.pairs()})
def test_rows_do_not_meet(name: str) -> None:
    """The first row of a batch depends on no other row, with and without padding."""
    watched = watch({**zoo.decoders(), **zoo.encoders(), **zoo.pairs()}[name])
    ids = zoo.tokens(watched.model.config, 2, 6)
    for mask in (None, torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])):
        watched.seen.clear()
        two = bool(watched.model.config.encoder and watched.model.config.decoder)
        output = watched.model(ids, mask, decoder_input_ids=ids,
                               decoder_attention_mask=mask) if two else watched.model(ids, mask)
        embedded = [seen for seen in watched.seen if seen.shape[0] == 2]
        states = output.last_hidden_state[0, :4].square().sum()
        gradients = torch.autograd.grad(states, watched.seen)
        if embedded:
            assert all(not gradient[1].any() for gradient in gradients)
        else:  # packed: the tokens of the first row come first
            assert all(not gradient[0, 4:].any() for gradient in gradients)


@pytest.mark.sampled
@pytest.mark.parametrize("name", zoo.pairs())
def test_a_decoder_sees_the_whole_source_and_only_its_own_past(name: str) -> None:
    """Encoder-decoder: every target position sees every source token, and no later target token.

    Where a text is written whole, every position sees all others, too.
    """
    watched = watch(zoo.pairs()[name])
    source, target = zoo.tokens(watched.model.config, 1, 7), zoo.tokens(watched.model.config, 1, LENGTH, seed=1)
    by_source, by_target = watched.influence(watched.model(source, decoder_input_ids=target))
    assert by_source.all()
    assert by_target.all() if whole(watched.model.config) else not by_target.triu(1).any()
    assert by_target.diagonal().all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", zoo.pairs())
def test_a_decoder_does_not_see_padding_of_the_source(name: str) -> None:
    """Cross-attention: the padded end of a source moves nothing."""
    watched = watch(zoo.pairs()[name])
    source, target = zoo.tokens(watched.model.config, 1, 10), zoo.tokens(watched.model.config, 1, LENGTH, seed=1)
    mask = (torch.arange(10) < 9)[None].long()
    by_source, _ = watched.influence(watched.model(source, mask, decoder_input_ids=target))
    assert by_source[:, :9].all()
    assert by_source.shape[1] == 9 or not by_source[:, 9:].any()


@pytest.mark.sampled
@pytest.mark.parametrize("name", zoo.of_packed_pairs(zoo.pairs()))
def test_packed_targets_see_their_own_sources(name: str) -> None:
    """Packed pairs: target document n sees source document n, whole, and no other."""
    watched = watch(zoo.pairs()[name])
    sources, targets = torch.tensor([[0, 0, 0, 1, 1, 2, 2]]), torch.tensor([[0, 0, 1, 1, 1, 1, 2, 2, 2]])
    source, target = zoo.tokens(watched.model.config, 1, 7), zoo.tokens(watched.model.config, 1, LENGTH, seed=1)
    output = watched.model(source, documents=sources, decoder_input_ids=target, decoder_documents=targets)
    by_source, by_target = watched.influence(output)
    assert_same_pattern(by_source, targets[0][:, None] == sources[0][None])
    assert not (by_target & (targets[0][:, None] != targets[0][None])).any()
    assert by_target.triu(1).any() == whole(watched.model.config)


def whole(config: c.Transformer) -> bool:
    """Say whether a text is written whole, over a decoder that sees both ways."""
    return isinstance(config.head, c.LengthHead)


@pytest.mark.sampled
@pytest.mark.parametrize("name", zoo.of_any_place({**zoo.decoders(), **zoo.encoders()}))
def test_packed_documents_give_what_they_give_alone(name: str) -> None:
    """With positions that start again, a packed row holds the numbers of its documents one by one."""
    model = zoo.scrambled({**zoo.decoders(), **zoo.encoders()}[name])
    ids, ends = zoo.tokens(model.config, 1, LENGTH), [0, 4, 5, LENGTH]
    documents = torch.tensor([[0] * 4 + [1] + [2] * 4])
    places = torch.tensor([[0, 1, 2, 3, 0, 0, 1, 2, 3]])
    with torch.no_grad():
        found = model(ids, documents=documents, places=places).last_hidden_state
        for start, end in pairwise(ends):
            torch.testing.assert_close(found[:, start:end], model(ids[:, start:end]).last_hidden_state, rtol=1e-5,
                                       atol=1e-5)


def test_documents_on_one_side_only_are_refused() -> None:
    """Packed sources beside unpacked targets would let every target read every source."""
    model = zoo.scrambled(zoo.pairs()["transformer"])
    ids = zoo.tokens(model.config, 1, 4)
    with pytest.raises(InputError, match="documents"):
        model(ids, documents=torch.zeros(1, 4, dtype=torch.long), decoder_input_ids=ids)
    with pytest.raises(InputError, match="documents"):
        model(ids, decoder_input_ids=ids, decoder_documents=torch.zeros(1, 4, dtype=torch.long))

"""MobileBERT's parts against their definitions in float64: the narrow block, trigrams, and the half-tied output."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.model import Transformer, build
from saucier.parts.block import NarrowBlock
from saucier.parts.context import Context
from saucier.parts.masks import Span

DIM, WIDTH, HEADS, LENGTH = 10, 6, 2, 5
ATTENTION = c.SelfAttention(projection=c.Projection(heads=HEADS))


def noisy(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    module = module.double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module


def block(reads: c.Reads) -> NarrowBlock:
    norm = c.Unnormed(kind="no_norm")
    inside = (c.PostNorm(inner=ATTENTION, norm=norm), c.PostNorm(inner=c.FeedForward(hidden=7), norm=norm))
    config = c.Block(sublayers=inside, bottleneck=c.Bottleneck(width=WIDTH, reads=reads, norm=norm))
    built = noisy(NarrowBlock(config, DIM))
    assert isinstance(built, NarrowBlock)
    return built


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax attention of one row, head by head, pair by pair."""
    mixed = torch.zeros_like(value)
    size = WIDTH // HEADS
    for head in range(HEADS):
        own = slice(head * size, (head + 1) * size)
        for i in range(LENGTH):
            weights = torch.stack([query[i, own] @ key[j, own] / size**0.5 for j in range(LENGTH)]).softmax(0)
            mixed[i, own] = sum(weights[j] * value[j, own] for j in range(LENGTH))
    return mixed


@pytest.mark.parametrize("reads", [c.Reads(kind="narrow"), c.Reads(kind="shared"), c.Reads(kind="wide")])
def test_a_narrow_block_is_what_the_paper_draws(reads: c.Reads) -> None:
    """Sun et al. 2020, fig 1c: down, attention of what it reads, feed-forward, up, and a residual around it all."""
    module = block(reads)
    x = torch.randn(1, LENGTH, DIM, dtype=torch.float64)
    around, attention, forward = module.bottleneck, module.inside["attention"], module.inside["feed_forward"]
    stream = around.down_norm(around.down(x))
    if reads.kind == "narrow":
        query, key, value = attention.inner.qkv(stream)[0].split(WIDTH, dim=-1)
    else:
        source = around.attention_norm(around.attention(x)) if reads.kind == "shared" else x
        query, key = attention.inner.qkv.query_key(source)[0].split(WIDTH, dim=-1)
        value = attention.inner.qkv.value(x)[0]
    first = attention.norm(stream + attention.inner.out(attend(query, key, value)))
    second = forward.norm(first + forward.inner.down(torch.nn.functional.gelu(forward.inner.up(first))))
    context = Context(Span(LENGTH, LENGTH, 0, torch.device("cpu")), torch.arange(LENGTH)[None])
    torch.testing.assert_close(module(x, context), around.norm(x + around.up(second)), atol=1e-12, rtol=0)
    assert context.read is None


def trigrams() -> Transformer:
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=c.FeedForward(hidden=4)),)), times=1))
    language = c.LanguageHead(columns=DIM - 4)
    return build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=9, projection=c.ProjectNarrow(kind="trigram", width=4)),
                               encoder=stack,
                               head=language)).eval()


def test_trigrams_hold_the_next_token_the_token_and_the_one_before() -> None:
    """Sun et al. 2020, §3.2; nothing stands beyond the ends."""
    model = trigrams()
    ids = torch.tensor([[3, 7, 1]])
    table, nothing = model.embed.tokens.weight, torch.zeros(4)
    states = model(ids, output_hidden_states=True).hidden_states[0][0]
    for i in range(3):
        after = table[ids[0, i + 1]] if i < 2 else nothing
        before = table[ids[0, i - 1]] if i else nothing
        expected = model.embed.project(torch.cat([after, table[ids[0, i]], before]))
        torch.testing.assert_close(states[i], expected, atol=1e-6, rtol=0)


def test_the_output_matrix_is_the_token_table_and_columns_of_its_own() -> None:
    model = trigrams()
    out = model(torch.tensor([[3, 7, 1]]))
    matrix = torch.cat([model.embed.tokens.weight, model.head.columns], dim=1)
    torch.testing.assert_close(out.logits, out.last_hidden_state @ matrix.T, atol=1e-6, rtol=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == c.parameters(model.config)


def test_a_bottleneck_in_a_decoder_is_refused() -> None:
    inside = (c.PostNorm(inner=ATTENTION.model_copy(update={"visibility": c.Causal()})),)
    narrow = c.Block(sublayers=inside, bottleneck=c.Bottleneck(width=WIDTH))
    stack = c.Stack(layers=c.Repeat(block=narrow, times=1))
    with pytest.raises(InputError, match="no cache"):
        build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=5), decoder=stack), device="meta")

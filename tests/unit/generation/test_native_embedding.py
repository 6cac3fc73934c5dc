"""What stands before and behind a stack of the native kernels: tokens become vectors in C, and torch's threads rest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tests.tolerances import PART, assert_close
from tests.unit.generation.test_native import draw, golden
from tests.unit.generation.test_native_encoder import batch, hidden_vectors

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.native_encoder import NativeEmbedding, NativeLinear, use_native
from saucier.generation.packed_weights import copy_modules
from saucier.parts.embedding import Embedding
from saucier.parts.inputs import Side

EMBEDDINGS = {
    "two segments": c.Embedding(vocab=120, positions=c.Learned(length=24), segments=c.SegmentTable(count=2),
                                norm=c.LayerNorm()),
    "waves": c.Embedding(vocab=120, positions=c.Sinusoidal(), scale=5.5),
    "waves that end": c.Embedding(vocab=120, positions=c.Sinusoidal(length=30), norm=c.RMSNorm()),
    "waves that end, behind rows": c.Embedding(vocab=120, positions=c.Sinusoidal(
        length=150, places=c.CountedPlaces(kind="in_order", offset=2))),
    "after padding": c.Embedding(vocab=120, positions=c.Learned(length=26, places=c.SkipPadding(padding=1))),
    **{f"narrow, {kind}": c.Embedding(vocab=120, positions=c.Learned(length=24), segments=c.SegmentTable(count=2),
                                      norm=c.LayerNorm(), projection=c.ProjectNarrow(kind=kind, width=12))
       for kind in ("tokens", "sum", "normed", "undropped")}}


def build_embedding(embed: c.Embedding, dtype: str = "float32") -> saucier.Transformer:
    """Build an encoder of one block with random weights."""
    attention = c.SelfAttention(projection=c.Projection(heads=4))
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=attention),)), times=1))
    model = saucier.build(c.Transformer(dim=32, embed=embed, encoder=stack)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model.to(getattr(torch, dtype))


@pytest.mark.parametrize("case", EMBEDDINGS)
def test_embeddings_of_each_kind(case: str) -> None:
    """With what a batch gives beside ids, and told alike what is beyond a table."""
    model = build_embedding(EMBEDDINGS[case])
    view, (ids, mask) = use_native(model, Native()), batch(model)
    assert isinstance(view.embed, NativeEmbedding) and type(model.embed) is Embedding
    more = {"position_ids": torch.arange(20).flip(0).expand(3, -1)}
    more |= {"token_type_ids": torch.arange(60).view(3, 20) % 2} if model.config.embed.segments else {}
    for given in ({}, more, {"inputs_embeds": torch.randn(3, 20, model.embed.tokens.embedding_dim)}):
        inputs = given if "inputs_embeds" in given else {"input_ids": ids, **given}
        assert_close(hidden_vectors(view, mask, **inputs), hidden_vectors(model, mask, **inputs), PART, case)
    for length in {"waves": (40, 300), "waves that end, behind rows": (40, 148)}.get(case, ()):
        longer, seen = draw(2, length), torch.ones(2, length)
        assert_close(hidden_vectors(view, seen, input_ids=longer), hidden_vectors(model, seen, input_ids=longer), PART,
                     case)
    if case != "waves":
        longer, seen = draw(2, 160), torch.ones(2, 160)
        told = list[str]()
        for one in (model, view):
            with pytest.raises(InputError) as raised:
                hidden_vectors(one, seen, input_ids=longer)
            told.append(str(raised.value))
        assert told[0] == told[1]


def test_embeddings_in_bfloat16_are_those_of_exact_sums() -> None:
    model = build_embedding(EMBEDDINGS["two segments"], "bfloat16")
    ids, _ = batch(model)
    found = use_native(model, Native()).embed(Side(ids))
    assert found.dtype == torch.bfloat16
    exact = copy_modules(model).float().embed(Side(ids))
    assert torch.equal(found, exact.bfloat16())


def test_a_decoder_beside_the_encoder_keeps_its_maps() -> None:
    """The kernels take what is behind the stack that they read, and no second copy of a decoder."""
    view = use_native(golden("bart").eval(), Native())
    assert view.decoder is not None and view.pooler is None
    assert not any(isinstance(one, NativeLinear) for one in view.modules())
    view = use_native(golden("bert-next-sentence").eval(), Native())
    assert [name for name, one in view.named_modules() if isinstance(one, NativeLinear)] == ["pooler.dense",
                                                                                           "head.output"]


def test_rows_that_no_table_has_are_told() -> None:
    """Also such that 32 bits would take for others."""
    view, ids = use_native(build_embedding(EMBEDDINGS["two segments"]), Native()), draw(1, 6)
    for given in ({"position_ids": torch.full((1, 6), 2**32)}, {"token_type_ids": torch.full((1, 6), 2)},
                  {"token_type_ids": torch.full((1, 6), -1)}):
        with pytest.raises((InputError, IndexError)):
            hidden_vectors(view, torch.ones(1, 6), input_ids=ids, **given)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in Linux's table of processes")
def test_reading_texts_starts_no_threads_of_torch() -> None:
    """They wait busily, beside those of the kernels. A thread of Python has its own: here they would be new ones."""
    attention = c.SelfAttention(projection=c.Projection(heads=4))
    block = c.Block(sublayers=(c.PostNorm(inner=attention), c.PostNorm(inner=c.FeedForward(hidden=512))))
    embed = EMBEDDINGS["two segments"].model_copy(update={"positions": c.Learned(length=128)})
    stack = c.Stack(layers=c.Repeat(block=block, times=1))
    config = c.Transformer(dim=256, embed=embed, encoder=stack, pooler=c.Pooler())
    ids = draw(8, 128)
    mask = (torch.arange(128) < torch.tensor([[128, 90, 70, 50, 30, 20, 10, 5]]).T).long()

    def count_started(view: saucier.Transformer) -> int:
        with torch.inference_mode():
            before = set(Path("/proc/self/task").iterdir())
            view(ids, mask)
            return len(set(Path("/proc/self/task").iterdir()) - before)

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for head in (c.ClassificationHead(classes=3), c.EmbeddingHead(pooling=(c.Pooling(kind="mean"),))):
            model = saucier.build(config.model_copy(update={"head": head})).eval()
            view = use_native(model, Native())
            with torch.inference_mode():
                view(ids, mask)  # starts the kernels' own
            with ThreadPoolExecutor(1) as alone:
                assert alone.submit(count_started, view).result() == 0
            with ThreadPoolExecutor(1) as alone:
                assert alone.submit(count_started, model).result() >= 1
    finally:
        torch.set_num_threads(threads)

"""LoRA as a rewrite: it starts as no change, trains only its pairs, merges to the same numbers and unmerges to the
same bits, on fused and separate maps of every kind of body."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import family
from tests.tolerances import assert_close
from torch import Tensor

from saucier import InputError
from saucier.adaptation import tuning as a
from saucier.adaptation.lora import list_named_pairs, merge, unmerge
from saucier.adaptation.rewrite import BottleneckAdapter, list_trainable, rewrite, share, unrewrite
from saucier.adaptation.target_modules import select_targets
from saucier.model import Transformer, build

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])
BODIES = ("bert", "gpt2", "llama", "t5", "bart", "albert", "mixtral", "deberta", "reformer", "t5_shared", "mobilebert",
          "longformer")


def made(name: str) -> Transformer:
    return build(family(name), seed=3).eval()


def read(model: Transformer) -> Tensor:
    inputs = {"decoder_input_ids": IDS.flip(1)} if model.config.encoder and model.config.decoder else {}
    if model.config.encoder is not None and model.config.decoder is None:
        inputs = {"attention_mask": torch.ones_like(IDS)}
    return model(IDS, **inputs).last_hidden_state  # type: ignore[no-any-return]


def learned(model: Transformer) -> None:
    """Give the pairs values, as training would."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, _, pair in list_named_pairs(model).values():
            pair.up.weight.normal_(0.0, 0.05, generator=generator)
            pair.down.weight.normal_(0.0, 0.05, generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
def test_starts_as_no_change_and_comes_back(body: str) -> None:
    """The first outputs are the bits of the model without pairs; so are the last ones, when all is taken back."""
    model = made(body)
    with torch.no_grad():
        before = read(model)
        names, flags = [*model.state_dict()], [p.requires_grad for p in model.parameters()]
        rewrite(model, by=a.Lora(where=("linear",), rank=3))
        assert torch.equal(read(model), before)
        learned(model)
        assert not torch.equal(read(model), before)
        merged = merge(model)
        together = read(model)
        assert names == [*model.state_dict()]
        unmerge(merged)
        apart = read(model)
        assert_close(together, apart)
        unrewrite(model)
        assert torch.equal(read(model), before)
    assert names == [*model.state_dict()] and flags == [p.requires_grad for p in model.parameters()]


def test_unmerge_restores_every_bit() -> None:
    model = rewrite(made("llama"), by=a.Lora(where=("linear",)))
    learned(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    unmerge(merge(model))
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("body", ["bert", "gpt2", "llama", "t5"])
def test_only_the_pairs_get_gradients(body: str) -> None:
    model = rewrite(made(body), by=a.Lora(rank=2)).train()
    learned(model)
    read(model).square().sum().backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert touched == set(list_trainable(model))
    assert touched and all(".pairs." in name for name in touched)


def test_a_pair_on_rows_of_a_fused_matrix_is_the_one_on_a_separate_map() -> None:
    """Queries alone are changed, by the product as the paper writes it; keys and values keep their bits."""
    model = made("llama")
    attention = model.decoder.blocks[0]["attention"].inner
    x = torch.randn(2, 3, 24, generator=torch.Generator().manual_seed(0))
    before = attention.qkv(x)
    rewrite(model, by=a.Lora(where=("*.blocks.0.*.query",), rank=2, alpha=6))
    learned(model)
    ((_, _, pair),) = list_named_pairs(model).values()
    after = attention.qkv(x)
    query, _, _ = attention.widths
    expected = before[..., :query] + x @ pair.down.weight.T @ pair.up.weight.T * (6 / 2)
    assert_close(after[..., :query], expected)
    assert torch.equal(after[..., query:], before[..., query:])


def test_scaling_by_the_root_of_the_rank() -> None:
    pairs = [next(iter(list_named_pairs(rewrite(made("bert"),
                                                by=a.Lora(rank=4, alpha=6, scaling=scaling))).values()))[2]
             for scaling in (a.ByRank(), a.ByRootOfRank())]
    assert [pair.scale for pair in pairs] == [1.5, 3.0]


def test_the_token_table() -> None:
    """A changed table leaves the output layer that shares it alone, as in PEFT; so it cannot be merged."""
    model = made("gpt2")
    before = model(IDS).logits
    rewrite(model, by=a.Lora(where=("tokens",), rank=2))
    assert torch.equal(model(IDS).logits, before)
    learned(model)
    ((_, table, pair),) = list_named_pairs(model).values()
    expected = table.base.weight[IDS] + (pair.up.weight @ pair.down.weight[:, IDS.flatten()]).T.view(2, 5, -1) * 8.0
    assert_close(model.embed.tokens(IDS), expected)
    assert model.head is not None and model.head.weight is table.base.weight
    with pytest.raises(InputError, match="the output layer that shares it is not"):
        merge(model)


def test_counts_and_shares() -> None:
    model = rewrite(made("bert"), by=a.Lora(where=("query", "value"), rank=2))
    assert share(model)[0] == 2 * 2 * (2 * 24 + 2 * 24)


def names(body: str, *where: str) -> list[str]:
    return [place.name for place in select_targets(made(body), where)]


def test_where() -> None:
    block = "encoder.blocks.0.attention.inner"
    assert names("bert", "query")[0] == f"{block}.qkv.query" and len(names("bert", "query")) == 2
    assert names("bert", "qkv") == [f"encoder.blocks.{n}.attention.inner.qkv" for n in (0, 1)]
    assert names("bert", "*.0.*.qkv") == [f"{block}.qkv"]
    assert names("bert", "*.0.*qkv.*") == [f"{block}.qkv.{part}" for part in ("query", "key", "value")]
    assert names("bert", "/blocks\\.1.*(up|down)$/") == [f"encoder.blocks.1.feed_forward.inner.{end}"
                                                         for end in ("up", "down")]
    assert len(names("bert", "linear")) == 12 and len(names("bert", "linear", "!attention")) == 4
    assert names("llama", "gate", "up")[:2] == [f"decoder.blocks.0.feed_forward.inner.up.{part}"
                                                for part in ("gate", "up")]
    assert len(names("t5", "key")) == 2 + 4


@pytest.mark.parametrize(("where", "message"), [
    (("queri",), "unknown role 'queri'; did you mean 'query'"),
    (("gate",), "'gate' meets no map of this model; roles:"),
    (("*.nowhere",), "meets no map"), (("/(/",), "write another expression"), (("query", "!query"), "no map is meant"),
    (("query", "*.qkv"), "both whole and in parts"),
])
def test_places_that_are_not_there(where: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", "\\(") if "(/" in message else message):
        rewrite(made("bert"), by=a.Lora(), where=where)


def test_what_cannot_be_done_twice_or_backwards() -> None:
    model = rewrite(made("bert"), by=a.Lora())
    with pytest.raises(InputError, match="has a pair already"):
        rewrite(model, by=a.Lora(where=("query",)))
    rewrite(model, by=a.Lora(where=("key",)))
    assert len(list_named_pairs(model)) == 6
    with pytest.raises(InputError, match="no LoRA to merge"):
        merge(made("bert"))


def test_freezing() -> None:
    model = rewrite(made("bert"), by=a.Freeze(where=("embeddings",), lower=1))
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith(("embed.", "encoder.blocks.0."))}
    rewrite(model, by=a.Freeze(where=("head", "pooler.*")))
    assert all(name.startswith("encoder.blocks.1.") for name in list_trainable(model))
    assert len(list_trainable(unrewrite(model))) == len([*model.parameters()])
    with pytest.raises(InputError, match="which is one matrix"):
        rewrite(model, by=a.Freeze(where=("query",)))


def test_biases_alone() -> None:
    model = rewrite(made("bert"), by=a.Bias())
    assert {name.rsplit(".", 1)[1] for name in list_trainable(model)} == {"bias"}


@pytest.mark.parametrize("body", ["bert", "gpt2", "t5", "mixtral", "mobilebert", "reformer", "gptj", "t5_shared"])
def test_bottlenecks(body: str) -> None:
    """They start as no change, learn alone (with the norms), and their sum is the definition's."""
    model = made(body)
    with torch.no_grad():
        before = read(model)
        rewrite(model, by=a.Adapter(width=3))
        assert torch.equal(read(model), before)
    behind = [module for module in model.modules() if isinstance(module, BottleneckAdapter)]
    assert len(behind) == sum(len(block.sublayers) for stack in (model.config.encoder, model.config.decoder) if stack
                              for block in stack.blocks())
    x = torch.randn(2, behind[0].down.in_features, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for one in behind:
            one.up.weight.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(2))
    one = behind[0]
    expected = x + torch.nn.functional.gelu(x @ one.down.weight.T) @ one.up.weight.T
    assert_close(one(x), expected)
    read(model.train()).square().sum().backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert touched <= set(list_trainable(model)) and all("norm" in name or ".adapter." in name for name in touched)
    unrewrite(model.eval())
    with torch.no_grad():
        assert torch.equal(read(model), before)


def test_a_bottleneck_has_the_size_that_the_paper_keeps_for_all_tasks() -> None:
    """64, and both sublayers have one (Houlsby et al. 2019, §3.2)."""
    model = rewrite(made("bert"), by=a.Adapter())
    behind = [module.down for module in model.modules() if isinstance(module, BottleneckAdapter)]
    assert {one.out_features for one in behind} == {64} and len(behind) == 4


def test_bottlenecks_behind_feed_forwards_alone() -> None:
    model = rewrite(made("bert"), by=a.Adapter(width=3, placement=a.Pfeiffer(), train=()))
    names = {name.split(".adapter")[0] for name in list_trainable(model)}
    assert names == {f"encoder.blocks.{n}.feed_forward.dropout" for n in (0, 1)}
    with pytest.raises(InputError, match="has bottlenecks already"):
        rewrite(model, by=a.Adapter())
    with pytest.raises(InputError, match="adapter is no sum of weights"):
        merge(model)

"""Heads and neurons that are really taken out: the numbers are those of the model with them set to zero, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.laws.zoo import decoder, family, scrambled, tokens
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Heads, Neurons
from saucier.adaptation.surgery.units import list_places
from saucier.config.counting.model import parameters
from saucier.errors import InputError
from saucier.folders.load import load
from saucier.model import Transformer, build

EXACT = 1e-12
"""In float64: the same sums, of which some terms are missing and were zero."""


def exact(config: c.Transformer) -> Transformer:
    """Return a model in float64 whose every weight counts."""
    return scrambled(config).double().eval()


@contextmanager
def masked(model: Transformer, kept: Mapping[str, Sequence[int]], map_name: str) -> Iterator[None]:
    """Multiply what the other heads or neurons give to the last map by zero."""
    def hook_for(numbers: Sequence[int], width: int) -> Any:
        def zero(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            parts = given[0].unflatten(-1, (-1, width))
            keep = torch.zeros(parts.shape[-2], 1, dtype=parts.dtype)
            keep[list(numbers)] = 1.0
            return ((parts * keep).flatten(-2), *given[1:])
        return zero

    with ExitStack() as stack:
        for path, numbers in kept.items():
            inner: Any = model.get_submodule(f"{path}.inner")
            width = getattr(inner, "head_dim", 1)
            stack.callback(inner.get_submodule(map_name).register_forward_pre_hook(hook_for(numbers, width)).remove)
        yield


def run(model: Transformer, length: int = 9) -> Tensor:
    ids = tokens(model.config, 2, length).clamp(min=4)
    both = model.config.encoder is not None and model.config.decoder is not None
    with torch.no_grad():
        return model(input_ids=ids, **({"decoder_input_ids": ids.flip(0)} if both else {})).last_hidden_state


def attentions(config: c.Transformer) -> dict[str, c.Config]:
    return {path: place.inner for path, place in list_places(config).items()
            if isinstance(place.inner, c.SelfAttention | c.CrossAttention)}


HEADED = ["bert", "roberta", "gpt2", "bart", "t5", "t5_decoder", "bloom", "xlnet", "deberta", "deberta_v2",
          "mobilebert", "longformer", "big_bird", "modernbert", "roformer", "llama", "nystromformer", "mpnet",
          "electra", "gptj", "sparse_transformer", "etc", "led", "transfo_xl", "switch_transformers"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", HEADED)
def test_a_model_without_heads_is_the_one_whose_heads_give_zero(name: str) -> None:
    before = exact(family(name))
    found = attentions(before.config)
    grouped = name == "llama"  # four heads, two of which share keys and values each
    choices = [(0, 2), (1, 3)] if grouped or name == "transfo_xl" else [(0, 3), (1,), (0, 1, 2), (2,)]
    kept = {path: choices[0 if name == "transfo_xl" else number % len(choices)] for number, path in enumerate(found)}
    after, same = operate(before, by=[Heads(kept=kept)])
    with masked(before, kept, "out"):
        expected = run(before)
    assert same == 0
    assert torch.allclose(run(after), expected, rtol=EXACT, atol=EXACT)
    assert not torch.allclose(run(before), expected, rtol=1e-3, atol=1e-3)
    counted = sum(parameter.numel() for parameter in after.parameters())
    assert counted == parameters(after.config) < parameters(before.config)


def test_what_is_gone_is_the_maps_of_the_heads() -> None:
    """Two of four heads of six: half of three maps and their biases, and of the output map without its bias."""
    before = build(family("bert"))
    after, _ = operate(before, by=[Heads(kept={"encoder.blocks.1.attention": (0, 2)})])
    assert parameters(before.config) - parameters(after.config) == 3 * (12 * 24 + 12) + 24 * 12
    heads = [one.projection.heads for one in after.config.encoder.attentions()]
    assert heads == [4, 2] and isinstance(after.config.encoder.layers, c.Cycle)
    whole, same = operate(before, by=[Heads(kept={"encoder.blocks.1.attention": (0, 1, 2, 3)})])
    assert same == float("inf") and whole.config == before.config


def test_biases_that_layers_share_go_with_the_heads_of_all() -> None:
    before = exact(decoder(c.SelfAttention(projection=c.Projection(heads=4), visibility=c.Causal(),
                                           positions=c.TransformerXL(shared_biases=True))))
    kept = dict.fromkeys(attentions(before.config), (1, 3))
    after, _ = operate(before, by=[Heads(kept=kept)])
    with masked(before, kept, "out"):
        assert torch.allclose(run(after), run(before), rtol=EXACT, atol=EXACT)
    assert after.decoder.biases.content.shape == (2, 6)
    for other in ({"decoder.blocks.0.attention": (1,)}, {**kept, "decoder.blocks.0.attention": (0, 1)}):
        with pytest.raises(InputError, match="share a pair of biases"):
            operate(before, by=[Heads(kept=other)])


FED = ["bert", "gpt2", "bart", "t5", "llama", "modernbert", "mobilebert"]


@pytest.mark.parametrize("name", FED)
def test_a_model_without_neurons_is_the_one_whose_neurons_give_zero(name: str) -> None:
    before = exact(family(name))
    found = {path: place.inner for path, place in list_places(before.config).items()
             if isinstance(place.inner, c.FeedForward | c.GatedFeedForward)}
    kept = {path: tuple(range(number % 2, inner.hidden, 2 + number)) for number, (path, inner) in
            enumerate(found.items())}
    after, _ = operate(before, by=[Neurons(kept=kept)])
    with masked(before, kept, "down"):
        expected = run(before)
    assert torch.allclose(run(after), expected, rtol=EXACT, atol=EXACT)
    assert [place.inner.hidden for path, place in list_places(after.config).items() if path in kept] == [
        len(one) for one in kept.values()]
    assert sum(parameter.numel() for parameter in after.parameters()) == parameters(after.config)


@pytest.mark.parametrize("name", ["t5", "bloom"])
def test_heads_known_by_their_number_keep_it_through_a_second_pruning(name: str) -> None:
    before = exact(family(name))
    paths = [path for path, one in attentions(before.config).items() if isinstance(one, c.SelfAttention)]
    first, _ = operate(before, by=[Heads(kept={paths[0]: (0, 2, 3)})])
    second, _ = operate(first, by=[Heads(kept={paths[0]: (1, 2), paths[1]: (1,)})])
    at_once, _ = operate(before, by=[Heads(kept={paths[0]: (2, 3), paths[1]: (1,)})])
    assert second.config == at_once.config
    assert torch.equal(run(second), run(at_once))


def test_a_table_that_all_layers_read_alike_loses_its_columns() -> None:
    before = exact(family("t5"))
    kept = dict.fromkeys(attentions(before.config), (1, 3))
    after, _ = operate(before, by=[Heads(kept=kept)])
    assert after.encoder.shared.weight.shape == (32, 2)
    assert {one.positions.kept for one in after.config.encoder.attentions()} == {None}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "t5", "bloom", "bart"])
def test_what_is_saved_in_our_layout_is_loaded_again(name: str, tmp_path: Path) -> None:
    before = exact(family(name)).float()
    places = list_places(before.config)
    heads = {path: (0, 2) if number % 2 else (1,) for number, path in enumerate(attentions(before.config))}
    neurons = {path: tuple(range(3 + place.layer)) for path, place in places.items()
               if isinstance(place.inner, c.FeedForward | c.GatedFeedForward)}
    after, _ = operate(before, by=[Heads(kept=heads), Neurons(kept=neurons)])
    assert after.save(tmp_path / "m") == "saucier"
    again = load(tmp_path / "m")
    assert again.config == after.config
    assert torch.equal(run(again), run(after))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reference"), [("t5", "T5ForConditionalGeneration"), ("llama", "LlamaForCausalLM")])
def test_equal_heads_of_their_own_width_are_in_the_published_layout(name: str, reference: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    before = exact(family(name)).float()
    kept = dict.fromkeys(attentions(before.config), (0, 1))
    neurons = {path: (0, 2, 3, 7) for path, place in list_places(before.config).items()
               if isinstance(place.inner, c.FeedForward | c.GatedFeedForward)}
    after, _ = operate(before, by=[Heads(kept=kept), Neurons(kept=neurons)])
    assert after.save(tmp_path / "m") == name
    theirs = getattr(transformers, reference).from_pretrained(tmp_path / "m").eval()
    ids = tokens(before.config, 2, 9).clamp(min=4)
    given = {"input_ids": ids, **({"decoder_input_ids": ids} if name == "t5" else {})}
    with torch.no_grad():
        assert torch.allclose(theirs(**given).logits, after(**given).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_bert_with_fewer_neurons_is_published_and_with_fewer_heads_it_is_not(tmp_path: Path) -> None:
    before = exact(family("bert")).float()
    narrow, _ = operate(before, by=[Neurons(kept={f"encoder.blocks.{one}.feed_forward": (0, 5, 9) for one in (0, 1)})])
    assert narrow.save(tmp_path / "narrow") == "bert"
    heads, _ = operate(before, by=[Heads(kept=dict.fromkeys(attentions(before.config), (0, 1)))])
    with pytest.raises(InputError, match="head_dim"):
        heads.save(tmp_path / "heads", layout="bert")
    assert heads.save(tmp_path / "heads") == "saucier"
    own, _ = operate(before, by=[Heads(kept={"encoder.blocks.0.attention": (0, 1)})])
    with pytest.raises(InputError, match=r"encoder\.layers have shapes of their own, and a published config has one"):
        own.save(tmp_path / "own", layout="bert")


@pytest.mark.parametrize(("name", "by", "message"), [
    ("bert", Heads(kept={"encoder.blocks.0.attention": (4,)}), "no head 4: they are numbered from 0 to 3"),
    ("bert", Heads(kept={"encoder.blocks.0.attention": ()}), "no head stays.*leave the whole layer out"),
    ("bert", Heads(kept={"encoder.blocks.0.attention": (1, 1)}), "named twice"),
    ("bert", Heads(kept={"encoder.blocks.2.attention": (1,)}), "no sublayer with heads.*encoder.blocks.1.attention"),
    ("bert", Heads(kept={"encoder.blocks.0.feed_forward": (1,)}), "no sublayer with heads"),
    ("bert", Neurons(kept={"encoder.blocks.0.attention": (1,)}), "no sublayer with neurons"),
    ("bert", Neurons(kept={"encoder.blocks.0.feed_forward": (96,)}), "no neuron 96"),
    ("albert", Heads(kept={"encoder.blocks.0.attention": (1,)}), "share their weights"),
    ("t5_shared", Heads(kept={"decoder.blocks.0.attention": (1,)}), "share their weights"),
    ("llama", Heads(kept={"decoder.blocks.0.attention": (0, 1, 2)}), "unequal numbers would be left"),
    ("reformer", Heads(kept={"decoder.blocks.1.attention": (0,)}), "not known to be independent"),
    ("fnet", Heads(kept={"encoder.blocks.0.attention": (0,)}), "the model has no sublayers with heads"),
])
def test_what_cannot_be_done_is_refused(name: str, by: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        operate(build(family(name)), by=[by])


def test_a_decoder_with_unequal_heads_writes_from_its_cache() -> None:
    before = exact(family("llama"))
    after, _ = operate(before, by=[Heads(kept={"decoder.blocks.0.attention": (2, 3)})])
    ids = tokens(after.config, 1, 7)
    with torch.no_grad():
        cache = after.new_cache(1, 7)
        steps = [after(ids[:, place:place + 1], cache=cache).logits for place in range(7)]
        assert torch.allclose(torch.cat(steps, dim=1), after(ids).logits, rtol=1e-10, atol=1e-10)

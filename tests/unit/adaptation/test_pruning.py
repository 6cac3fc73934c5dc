"""Pruning by scores: scores are what their definitions say, and what is least goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.laws.zoo import family, scrambled, tokens
from tests.unit.text.test_extension import trained
from torch import Tensor

from saucier import config as c
from saucier.adaptation.pruning import methods as p
from saucier.adaptation.pruning.choice import Ranks, choose_kept, every_nth, ideal_layer_drop, layers_by_place
from saucier.adaptation.pruning.prune import prune, prune_model
from saucier.adaptation.pruning.relevance import constant_ratios
from saucier.adaptation.pruning.scores import SCORES, Evidence, mask_units
from saucier.adaptation.pruning.sparsity import find_zeros, measure_sparsity
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Heads, Layers
from saucier.adaptation.surgery.units import Place, list_places
from saucier.errors import InputError
from saucier.folders.load import load
from saucier.lens.attention_weights import AttentionWeights, Tokens
from saucier.lens.head_roles import describe_heads
from saucier.model import Transformer, build
from saucier.text.config import WordPiece


def exact(name: str) -> Transformer:
    return scrambled(family(name)).double().eval()


def batches(model: Transformer, count: int = 2) -> list[dict[str, Tensor]]:
    """Rows of unequal length, with padding, for one stack or for two."""
    found = []
    for number in range(count):
        ids = tokens(model.config, 3, 8 + number).clamp(min=4).roll(number, 0)
        mask = torch.ones_like(ids)
        mask[1, 5:] = 0
        batch = {"input_ids": ids, "attention_mask": mask}
        if model.paired:
            batch |= {"decoder_input_ids": ids.flip(1), "decoder_attention_mask": mask}
        found.append(batch)
    return found


def row_losses(model: Transformer, batch: Mapping[str, Tensor]) -> Tensor:
    """A loss for each row: the mean square of what it gives, some of it weighted. Shapes: -> [B]."""
    hidden = model(**batch).last_hidden_state
    weights = torch.linspace(-1, 1, hidden.shape[-1], dtype=hidden.dtype)
    mask = batch["decoder_attention_mask" if model.paired else "attention_mask"][..., None].to(hidden)
    return ((hidden * weights).tanh() * mask).flatten(1).sum(1)


def mean_loss(model: Transformer, batch: Mapping[str, Tensor]) -> Tensor:
    return row_losses(model, batch).mean()


def places(model: Transformer, *, heads: bool = True) -> dict[str, Place]:
    kinds = c.SelfAttention | c.CrossAttention if heads else c.FeedForward | c.GatedFeedForward
    return {path: one for path, one in list_places(model.config).items() if isinstance(one.inner, kinds)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "bart", "t5", "llama"])
@pytest.mark.parametrize("heads", [True, False], ids=["heads", "neurons"])
def test_importance_is_the_finite_difference_by_the_mask(name: str, heads: bool) -> None:
    """C eq 54, row by row, against two passes on each side of a mask of 1."""
    model = exact(name)
    found = places(model, heads=heads)
    given = batches(model)
    scores = SCORES[p.Importance](model, found, p.Importance(normalized=False), Evidence(given, mean_loss))
    step = 1e-5
    for path in list(found)[::2]:
        count = len(scores[path])
        for unit in range(0, count, max(1, count // 3)):
            expected = 0.0
            for batch in given:
                sides = []
                for factor in (1 + step, 1 - step):
                    with mask_units(model, found) as masks, torch.no_grad():
                        masks.fixed = {path: torch.ones(count, dtype=torch.float64)}
                        masks.fixed[path][unit] = factor
                        sides.append(row_losses(model, batch))
                expected += float(((sides[0] - sides[1]) / (2 * step)).abs().sum())
            assert float(scores[path][unit]) == pytest.approx(expected / 6, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_importance_is_a_head_times_its_gradient(name: str) -> None:
    """C eq 55: |Att(x)ᵀ ∂L(x)/∂Att(x)|, with the outputs and gradients taken at the last map by hooks of our own."""
    model = exact(name)
    found, given = places(model), batches(model, 1)
    scores = SCORES[p.Importance](model, found, p.Importance(normalized=False), Evidence(given, mean_loss))
    normalized = SCORES[p.Importance](model, found, p.Importance(), Evidence(given, mean_loss))
    outputs: dict[str, Tensor] = {}

    def keep(path: str) -> Any:
        def hook(module: Any, args: tuple[Tensor, ...]) -> None:
            args[0].retain_grad()
            outputs[path] = args[0]
        return hook

    hooks = [model.get_submodule(f"{path}.inner.out").register_forward_pre_hook(keep(path)) for path in found]
    row_losses(model, given[0]).sum().backward()
    for hook in hooks:
        hook.remove()
    for path, place in found.items():
        width = place.inner.projection.widths(24)[2]
        product = (outputs[path] * outputs[path].grad).unflatten(-1, (-1, width))
        expected = product.sum((1, 3)).abs().mean(0)
        assert torch.allclose(scores[path], expected, rtol=1e-10)
        assert torch.allclose(normalized[path], expected / expected.norm(), rtol=1e-10)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_confidence_is_the_mean_or_median_of_the_largest_weights(name: str) -> None:
    model = exact(name)
    found, given = places(model), batches(model)
    last = int(given[0]["input_ids"][0, 0])
    for average in ("mean", "median"):
        scores = SCORES[p.Confidence](model, found, p.Confidence(average=average, excluded=(last,)), Evidence(given))
        path = "encoder.blocks.1.attention"
        largest = []
        for batch in given:
            with torch.no_grad():
                out = model(**batch, output_attentions=True)
            weights = (out.encoder_attentions or out.attentions)[1]
            for row in range(3):
                for query in range(batch["input_ids"].shape[1]):
                    if batch["attention_mask"][row, query]:
                        others = weights[row, :, query][:, batch["input_ids"][row] != last]
                        largest.append(others.max(dim=-1).values)
        every = torch.stack(largest)
        expected = every.mean(0) if average == "mean" else every.median(0).values
        assert torch.allclose(scores[path], expected, rtol=1e-10)
    crossed = [path for path in scores if path.endswith("cross")]
    assert len(crossed) == (2 if name == "t5" else 0) and all(len(scores[path]) == 4 for path in crossed)


def test_what_is_left_out_and_what_is_left_alone_is_measured_by_the_loss_of_that_model() -> None:
    model = exact("bert")
    found, given = places(model), batches(model)
    evidence = Evidence(given, mean_loss)
    without = SCORES[p.Ablation](model, found, p.Ablation(), evidence)
    alone = SCORES[p.Alone](model, found, p.Alone(), evidence)
    path = "encoder.blocks.1.attention"
    for head in range(4):
        smaller, _ = operate(model, by=[Heads(kept={path: tuple(one for one in range(4) if one != head)})])
        single, _ = operate(model, by=[Heads(kept={path: (head,)})])
        assert float(without[path][head]) == pytest.approx(
            evidence.mean_loss(smaller.eval()) - evidence.mean_loss(model), rel=1e-9)
        assert float(alone[path][head]) == pytest.approx(-evidence.mean_loss(single.eval()), rel=1e-9)


def test_relevance_of_a_model_without_biases_is_conserved() -> None:
    """With every ratio constant a LLaMA is linear: token vectors times their derivatives add up to the output."""
    model = exact("llama")
    ids = tokens(model.config, 1, 7)
    with torch.no_grad():
        plain = model(ids).logits
    vectors = model.embed.tokens(ids).detach().requires_grad_()
    with constant_ratios(model):
        logits = model(inputs_embeds=vectors).logits
        assert torch.allclose(logits, plain, rtol=1e-12, atol=1e-12)
        top = logits[0, -1].max()
        (gradient,) = torch.autograd.grad(top, vectors)
    assert float((vectors.detach() * gradient).sum()) == pytest.approx(float(top.detach()), rel=1e-9)


@pytest.mark.parametrize("name", ["bert", "bart", "llama", "deberta"])
def test_relevance_gives_each_layer_the_whole(name: str) -> None:
    model = exact(name)
    scores = SCORES[p.Relevance](model, places(model), p.Relevance(), Evidence(batches(model)))
    for one in scores.values():
        assert float(one.abs().sum()) == pytest.approx(1.0)
        assert one.std() > 0.01


def test_the_least_go_by_scope() -> None:
    scores = {"encoder.blocks.0.attention": torch.tensor([1.0, 2.0, 3.0, 4.0]),
              "encoder.blocks.1.attention": torch.tensor([8.0, 7.0, 6.0, 5.0])}
    had = dict.fromkeys(scores, 4)

    def kept(kind: Any, share: float = 0.5, **more: Any) -> list[tuple[int, ...]]:
        ranks = Ranks(p.Scope(kind=kind), share, had, more.pop("together", {}), **more)
        return list(choose_kept(scores, ranks).values())

    assert kept("model") == [(3,), (0, 1, 2)]  # one head of the first layer stays, though it is below all others
    assert kept("layer") == [(2, 3), (0, 1)]
    assert kept("stack", 0.25) == [(1, 2, 3), (1, 2, 3)]
    assert kept("layer", together=dict.fromkeys(scores, 2)) == [(2, 3), (0, 1)]
    assert kept("layer", 0.75, multiple=2) == [(2, 3), (0, 1)]


@pytest.mark.parametrize(("name", "unit"), [("bert", 1), ("bart", 1), ("llama", 2)])
def test_half_of_the_heads_are_gone(name: str, unit: int) -> None:
    model = exact(name)
    found = prune(model, p.HeadPruning(share=0.5, rounds=3 - unit), batches=batches(model), loss=mean_loss)
    every = sum(len(one) for one in found.removed.values())
    total = sum(one.inner.projection.heads for one in places(model).values())
    assert every == total // 2 and found.after < found.before
    heads = [one.inner.projection.heads for one in places(found.model).values()]
    assert sum(heads) == total // 2 and min(heads) >= unit and not any(one % unit for one in heads)
    kept = {path: tuple(one for one in range(4) if one not in found.removed.get(path, ())) for path in places(model)}
    again, _ = operate(model, by=[Heads(kept=kept)])
    assert again.config == found.model.config
    assert "gone" in found.lines()[0]
    assert model.config == family(name)


@pytest.mark.slow
def test_equal_numbers_in_a_stack_are_in_the_layout_of_t5(tmp_path: Path) -> None:
    model = exact("t5").float()
    by = p.HeadPruning(share=0.5, scope=p.Scope(kind="stack"))
    found = prune(model, by, batches=batches(model), loss=mean_loss)
    assert {one.inner.projection.heads for one in places(found.model).values()} == {2}
    assert found.model.save(tmp_path / "m") == "t5"
    apart = prune_model(model, by.model_copy(update={"scope": p.Scope(kind="layer")}), batches=batches(model),
                        loss=mean_loss)
    assert apart.save(tmp_path / "apart") == ("saucier" if any(
        getattr(one.positions, "kept", None) for one in apart.config.encoder.attentions()) else "t5")


def test_the_first_round_takes_the_least_and_the_second_is_scored_without_it() -> None:
    model = exact("bert")
    given, path = batches(model), "encoder.blocks.1.attention"
    by = p.HeadPruning(share=0.5, rounds=2, where=(path,))
    evidence = Evidence(given, mean_loss)
    first = SCORES[p.Importance](model, {path: places(model)[path]}, by.score, evidence)[path]
    least = int(first.argmin())
    left = [one for one in range(4) if one != least]
    smaller, _ = operate(model, by=[Heads(kept={path: tuple(left)})])
    second = SCORES[p.Importance](smaller, {path: places(smaller)[path]}, by.score, evidence)[path]
    assert prune(model, by, batches=given, loss=mean_loss).removed == {
        path: tuple(sorted((least, left[int(second.argmin())])))}


def test_neurons_go_by_importance_and_by_magnitude_in_equal_widths(tmp_path: Path) -> None:
    model = exact("bert").float()
    for score in (p.Importance(), p.Magnitude()):
        found = prune(model, p.NeuronPruning(share=0.55, score=score), batches=batches(model), loss=mean_loss)
        widths = {one.inner.hidden for one in places(found.model, heads=False).values()}
        assert widths == {48}  # 44 of 96 stay, filled up to a multiple of 8
        assert found.model.save(tmp_path / score.kind) == "bert"
    up, down = (model.get_parameter(f"encoder.blocks.0.feed_forward.inner.{one}.weight") for one in ("up", "down"))
    sizes = up.square().sum(1) + down.square().sum(0)
    gone = prune(model, p.NeuronPruning(share=0.5, score=p.Magnitude())).removed["encoder.blocks.0.feed_forward"]
    assert gone == tuple(sorted(sizes.argsort()[:48].tolist()))


@pytest.mark.parametrize(("kind", "two", "four"), [
    ("top", {11, 12}, {9, 10, 11, 12}), ("even", {10, 12}, {6, 8, 10, 12}), ("odd", {9, 11}, {5, 7, 9, 11}),
    ("symmetric", {6, 7}, {5, 6, 7, 8}), ("bottom", {1, 2}, {1, 2, 3, 4})])
def test_layers_of_poor_mans_bert(kind: Any, two: set[int], four: set[int]) -> None:
    """C VI-B.1-B: for 12 layers and K = 2 counted from 1 top {11, 12}, even {10, 12}, odd {9, 11}; C fig 16 at 4."""
    assert layers_by_place(12, p.LayersByPlace(kind=kind, count=2)) == two
    assert layers_by_place(12, p.LayersByPlace(kind=kind, count=4)) == four


def test_layers_of_layer_drop() -> None:
    assert every_nth(12, p.EveryNth(rate=0.5)) == {2, 4, 6, 8, 10, 12}
    assert every_nth(12, p.EveryNth(rate=0.2)) == {5, 10}
    assert every_nth(12, p.EveryNth(rate=0.3)) == {3, 6, 9, 12}
    assert ideal_layer_drop(6, 12) == 0.5 and ideal_layer_drop(8, 12) == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="13 layers of 12"):
        ideal_layer_drop(13, 12)


def deep(layers: int = 4) -> Transformer:
    shallow = scrambled(family("bert")).double().eval()
    return operate(shallow, by=[Layers(order=tuple(number % 2 for number in range(layers)))])[0].eval()


def test_layers_that_change_least_go() -> None:
    """The third layer is made to change nothing: it adds zeros, and its norms find vectors that are normed already."""
    model = deep()
    with torch.no_grad():
        for number in (1, 2):
            for name, parameter in model.encoder.blocks[number].named_parameters():
                if number == 2 and (".out." in name or ".down." in name):
                    parameter.zero_()
                elif "norm" in name:
                    parameter.fill_(float("weight" in name))
    given = batches(model)
    for tokens_ in ("first", "all"):
        found = prune(model, p.LayerPruning(choice=p.LeastContribution(count=1, tokens=tokens_)), batches=given)
        assert found.removed == {"encoder": (2,)} and len(found.model.encoder.blocks) == 3
    similar = p.LayerPruning(choice=p.SimilarLayers(above=0.999))
    assert prune(model, similar, batches=given).removed == {"encoder": (2,)}


def test_layers_are_searched_by_the_loss_of_the_model_without_them() -> None:
    model, given = deep(3), None
    given = batches(model)
    losses = {layer: Evidence(given, mean_loss).mean_loss(operate(model, by=[Layers(order=tuple(
        one for one in range(3) if one != layer))])[0].eval()) for layer in range(3)}
    found = prune(model, p.LayerPruning(choice=p.Searched(count=1)), batches=given, loss=mean_loss)
    assert found.removed == {"encoder": (min(losses, key=lambda one: losses[one]),)}


def test_a_decoder_of_two_stacks_loses_layers() -> None:
    model = exact("bart")
    made = prune_model(model, p.LayerPruning(choice=p.LayersByPlace(kind="top", count=1), decoder=True))
    assert (len(made.encoder.blocks), len(made.decoder.blocks)) == (2, 1)


@pytest.mark.parametrize("scope", ["model", "matrix"])
def test_the_smallest_weights_are_zero_and_the_shapes_stay(scope: Any) -> None:
    model = scrambled(family("bert"))
    found = prune(model, p.MagnitudePruning(share=0.4, scope=scope))
    names = [name for name, one in model.named_parameters() if name.startswith("encoder.") and one.dim() == 2]
    old, new = (torch.cat([one.get_parameter(name).detach().abs().flatten() for name in names])
                for one in (model, found.model))
    assert found.model.config == model.config and found.before == found.after
    if scope == "model":
        assert int((new == 0).sum()) == int(0.4 * len(old))
        assert float(old[new == 0].max()) <= float(old[new != 0].min())
    else:
        up = found.model.get_parameter("encoder.blocks.0.feed_forward.inner.up.weight")
        assert int((up == 0).sum()) == int(0.4 * up.numel())
    assert set(find_zeros(found.model)) == set(names)
    assert found.sparsity.zeros == measure_sparsity(model).zeros + int((new == 0).sum())
    assert 0.6 < found.sparsity.sparse / found.sparsity.dense < 0.85
    assert "no faster" in found.lines()[-1]


def test_zeros_are_saved(tmp_path: Path) -> None:
    model = scrambled(family("bert"))
    model.save(tmp_path / "whole")
    pruned = prune_model(load(tmp_path / "whole"), p.MagnitudePruning(share=0.4))
    assert pruned.save(tmp_path / "pruned") == "bert"
    again = load(tmp_path / "pruned", head="auto")
    for name, one in pruned.named_parameters():
        assert torch.equal(one, again.get_parameter(name)), name


@pytest.mark.parametrize(("name", "by", "message"), [
    ("bert", p.HeadPruning(share=0.5), "importance is of a loss on some texts, and there are none"),
    ("bert", p.HeadPruning(share=0.5, score=p.Magnitude(), where=("decoder.*",)), "meets no sublayer with heads"),
    ("albert", p.HeadPruning(share=0.5, score=p.Magnitude()), "share their weights"),
    ("albert", p.LayerPruning(choice=p.LayersByPlace(kind="top", count=1)), "share their weights"),
    ("bert", p.LayerPruning(choice=p.LayersByPlace(kind="top", count=2)), "2 layers go, and there are 2"),
    ("bert", p.LayerPruning(choice=p.EveryNth(rate=0.1)), "no layer would go"),
    ("bert", p.LayerPruning(choice=p.LayersByPlace(kind="top", count=1), decoder=True), "one stack"),
    ("bert", p.VocabularyPruning(texts=("a.txt",)), "there is none"),
    ("fnet", p.HeadPruning(share=0.5, score=p.Magnitude()), "no sublayers with heads"),
    ("bert", p.MagnitudePruning(share=0.5, where=("wheel",)), "unknown role"),
])
def test_what_cannot_be_pruned_is_refused(name: str, by: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prune(build(family(name)), by)


def test_a_vocabulary_is_trimmed_with_its_tokenizer(tmp_path: Path) -> None:
    """The texts are spelled as before, with new ids, and give the same numbers; all single characters stay."""
    tokenizer = trained(WordPiece(vocab=90))
    config = family("bert")
    model = scrambled(config.model_copy(update={"embed": config.embed.model_copy(update={
        "vocab": tokenizer.vocab_size})})).double().eval()
    (tmp_path / "texts.txt").write_text("the cook tastes the soup\n", encoding="utf-8")
    found = prune(model, p.VocabularyPruning(texts=(str(tmp_path / "texts.txt"),)), tokenizer=tokenizer)
    fewer = found.tokenizer
    assert fewer is not None and fewer.vocab_size < tokenizer.vocab_size
    gone = tokenizer.vocab_size - fewer.vocab_size
    assert found.before - found.after == gone * (24 + 1)  # a row of the table, and an output's bias
    old, new = (torch.tensor([one.encode("the cook tastes")]) for one in (tokenizer, fewer))
    with torch.no_grad():
        assert torch.equal(model(old).last_hidden_state, found.model(new).last_hidden_state)
    single = {one for one in tokenizer.backend.get_vocab() if len(one.removeprefix("##")) == 1}
    assert single <= set(fewer.backend.get_vocab())
    assert len(found.removed["tokens"]) == gone


def test_roles_of_heads_that_are_left_are_told() -> None:
    model = exact("bert").float()
    by = p.HeadPruning(share=0.5, score=p.Magnitude())
    made = prune_model(model, by).eval()
    ids = tokens(made.config, 1, 8)
    with torch.no_grad():
        weights = made(ids, output_attentions=True).attentions
    heads = [one.inner.projection.heads for one in places(made).values()]
    assert [one.shape[1] for one in weights] == heads and sum(heads) == 4
    row = [str(number) for number in ids[0].tolist()]
    side = Tokens(tuple(row), tuple(ids[0].tolist()), (False,) * 8, (0,) * 8)
    roles = [role for layer, one in enumerate(weights) for role in describe_heads(AttentionWeights(
        "encoder", layer, "softmax", side, side, one[0].numpy(), heads=tuple(range(one.shape[1]))))]
    assert [(one.layer, one.head) for one in roles] == [
        (layer, head) for layer, count in enumerate(heads) for head in range(count)]

"""Distillation: every loss against its equation, written out in float64; micro-batches; what the teacher is not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.teaching import (
    IDS,
    MASK,
    both,
    bound,
    classes,
    learned,
    make,
    plain,
    read_layers,
    text_batch,
)
from torch import Tensor

from saucier import config as architecture
from saucier.model import Transformer
from saucier.objectives.base import IGNORED
from saucier.objectives.config import distillation as c
from saucier.objectives.distillation import Distilled
from saucier.objectives.labels import ClassLabels
from saucier.objectives.masked import NextSentence
from saucier.objectives.observed_pass import ObservedPass, Wanted, recording
from saucier.objectives.prediction import Prediction

EXACT = 1e-9
LABELS = torch.tensor([2, 0, 1])
REAL = [(row, place) for row in range(3) for place in range(7) if MASK[row, place]]


def measure(*losses: c.Loss, models: tuple[Transformer, Transformer] | None = None,
            **options: object) -> tuple[dict[str, float], Distilled, tuple[Transformer, Transformer]]:
    models = models or both(classes())
    config = c.Distillation(losses=losses, **options)
    objective = bound(ClassLabels(), config, models)
    batch = text_batch(labels=LABELS)
    return learned(objective(models[0], batch), objective, batch), objective, models


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
def test_soft_and_hard_targets_are_those_of_the_equations(temperature: float) -> None:
    """C eq 35–39: T for the soft ones, T = 1 for the hard ones."""
    models = both(classes())
    student, teacher = (plain(one).tolist() for one in models)
    cross = entropy = hard = 0.0
    for own, other, label in zip(student, teacher, LABELS.tolist(), strict=True):
        def chance(logits: list[float], which: int, heat: float) -> float:
            powers = [float(torch.tensor(one / heat, dtype=torch.float64).exp()) for one in logits]
            return powers[which] / sum(powers)

        for number in range(3):
            p, q = chance(other, number, temperature), chance(own, number, temperature)
            cross -= p * float(torch.tensor(q, dtype=torch.float64).log())
            entropy -= p * float(torch.tensor(p, dtype=torch.float64).log())
        hard -= float(torch.tensor(chance(own, label, 1.0), dtype=torch.float64).log())
    soft = c.SoftTargets(temperature=temperature, weight=0.7)
    found, *_ = measure(soft, c.HardTargets(weight=0.3), models=models)
    assert found["labels"] == pytest.approx(0.3 * hard / 3, rel=1e-6)
    assert found["soft_targets"] == pytest.approx(0.7 * temperature**2 * (cross - entropy) / 3, rel=EXACT)
    found, *_ = measure(soft.model_copy(update={"factor": c.NoFactor()}), models=models)
    assert found["soft_targets"] == pytest.approx(0.7 * (cross - entropy) / 3, rel=EXACT)
    found, *_ = measure(soft.model_copy(update={"divergence": c.CrossEntropy()}), models=models)
    assert found["soft_targets"] == pytest.approx(0.7 * temperature**2 * cross / 3, rel=EXACT)
    assert "labels" not in found


def test_at_a_high_temperature_soft_targets_match_logits() -> None:
    """The gradient times T² goes to (z_S − z_T) / C for logits of mean 0. Source: Hinton et al. 2015, §2.1, eq 4."""
    models = both(classes())
    gradients = {}
    for heat in (10.0, 1000.0):
        objective = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(temperature=heat),)), models)
        student = models[0](IDS, MASK)
        student.logits.retain_grad()
        loss = objective.losses[0]
        passes = [ObservedPass({}, one, {}) for one in (student, models[1](IDS, MASK))]
        loss(*passes, text_batch(labels=LABELS), heads=models, project=None).backward()
        gradients[heat] = student.logits.grad
    own, other = (plain(one) - plain(one).mean(-1, keepdim=True) for one in models)
    expected = (own - other) / 3
    errors = {heat: float((found - expected).abs().max()) for heat, found in gradients.items()}
    assert errors[1000.0] < 1e-3 * float(expected.abs().max())
    assert errors[1000.0] < errors[10.0] / 50


def test_hidden_states_and_embeddings_are_mapped_to_the_teachers_width() -> None:
    """C eq 42, 43: W is D_S × D_T; layer m learns from g(m) = 2 m."""
    found, objective, (student, teacher) = measure(c.HiddenStates(weight=2.0), c.Embeddings())
    maps = objective.modules["distillation"]
    assert {name: tuple(one.shape) for name, one in maps.state_dict().items()} == {
        "hidden_states.weight": (32, 16), "embeddings.weight": (32, 16)}  # as torch stores a 16 × 32 map
    ours, theirs = (read_layers(one, text_batch()) for one in (student, teacher))
    expected = {"hidden_states": [(0, 1), (1, 3)], "embeddings": [(2, 4)]}  # the last entry is the embedding
    for name, pairs in expected.items():
        matrix, total = maps[name].weight.detach().T, 0.0
        for own, other in pairs:
            for row, place in REAL:
                made = ours[own]["state"][row, place] @ matrix
                total += float(((made - theirs[other]["state"][row, place]) ** 2).mean())
        assert found[name] == pytest.approx((2.0 if name == "hidden_states" else 1.0) * total / len(REAL), rel=EXACT)


def test_equal_widths_need_no_map_and_are_compared_as_they_are() -> None:
    """C eq 46, feature maps: the mean over T tokens and N features."""
    models = make(head=classes(), seed=1), make(layers=4, head=classes(), seed=2)
    found, objective, _ = measure(c.HiddenStates(layers=c.LastLayer()), models=models)
    assert objective.modules == {}
    ours, theirs = (read_layers(one, text_batch())[depth]["state"] for one, depth in zip(models, (1, 3), strict=True))
    expected = sum(float(((ours - theirs)[row, place] ** 2).sum()) for row, place in REAL) / (len(REAL) * 16)
    assert found["hidden_states"] == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize(("heads", "count"), [("equal", 4), ("mean", 4), ("grouped", 8)])
@pytest.mark.parametrize("compare", ["scores", "maps", "divergence"])
def test_attentions_are_those_of_the_equations(compare: str, heads: str, count: int) -> None:
    """C eq 41, the mean over heads and pairs; C eq 47, the mean over queries and heads."""
    models = make(head=classes(), seed=1), make(dim=32, layers=4, heads=count, head=classes(), seed=2)
    rule = {"compare": {"kind": compare}, "heads": {"kind": heads}}
    found, *_ = measure(c.Attentions.model_validate(rule), models=models)
    total = 0.0
    for own, other in ((0, 1), (1, 3)):
        ours, theirs = (read_layers(one, text_batch())[depth] for one, depth in zip(models, (own, other), strict=True))
        first, second = ((one["scores" if compare == "scores" else "weights"]) for one in (ours, theirs))
        if heads == "mean":
            first, second = first.mean(1, keepdim=True), second.mean(1, keepdim=True)
        if heads == "grouped":
            second = torch.stack([second[:, 2 * head:2 * head + 2].mean(1) for head in range(4)], dim=1)
        for row, length in enumerate(MASK.sum(1).tolist()):
            a, b = (one[row, :, :length, :length] for one in (first, second))
            total += float((b * (b / a).log()).sum() / len(a) if compare == "divergence"
                           else ((a - b) ** 2).sum() / len(a))
    lengths = MASK.sum(1)
    count = int(lengths.sum() if compare == "divergence" else (lengths**2).sum())
    assert found["attentions"] == pytest.approx(total / count, rel=1e-8)


def relation(vectors: Tensor, heads: int) -> list[Tensor]:
    """Return the relations of one row's vectors [L, W], cut into heads."""
    pieces = vectors.chunk(heads, dim=1)
    return [(one @ one.T / one.shape[1] ** 0.5).softmax(-1) for one in pieces]


@pytest.mark.parametrize(("loss", "kinds", "heads"), [
    (c.ValueRelations(), ("values",), 4), (c.ValueRelations(heads=2), ("values",), 2),
    (c.AttentionRelations(heads=8), ("queries", "keys", "values"), 8),
    (c.AttentionRelations(heads=16, vectors=("queries",), layers=c.ListedLayers(pairs=((2, 3),))), ("queries",), 16)])
def test_relations_are_those_of_the_papers(loss: c.Loss, kinds: tuple[str, ...], heads: int) -> None:
    """MiniLM §3.2 and MiniLMv2 §3: a mean over heads and queries, the last layer unless listed."""
    found, objective, models = measure(loss)
    ours = read_layers(models[0], text_batch())[1]
    theirs = read_layers(models[1], text_batch())[2 if heads == 16 else 3]
    total = 0.0
    for kind in kinds:
        for row, length in enumerate(MASK.sum(1).tolist()):
            first, second = (one[kind][row, :, :length].transpose(0, 1).flatten(1) for one in (ours, theirs))
            for q, p in zip(relation(first, heads), relation(second, heads), strict=True):
                total += float((p * (p / q).log()).sum()) / heads
    assert found[loss.kind] == pytest.approx(total / int(MASK.sum()), rel=1e-8)
    assert objective.modules == {}


def test_distilberts_triple_loss_equals_a_hand_written_one() -> None:
    """5 · KL at T = 2 over all real tokens · T² + 2 · masked words + 1 · cosine of the last layer, as in its code."""
    student, teacher = make("distilbert", seed=1), make("bert", layers=4, seed=2)
    labels = torch.full_like(IDS, IGNORED)
    labels[0, 2], labels[1, 1], labels[2, 5] = 9, 31, 17
    batch = text_batch(labels=labels)
    objective = bound(Prediction(), c.Distillation(losses=(
        c.SoftTargets(weight=5.0, temperature=2.0, places=c.EveryToken()), c.HardTargets(weight=2.0),
        c.HiddenStates(distance=c.CosineDistance(), layers=c.LastLayer()))), (student, teacher))
    loss = objective(student, batch)
    found = loss.over(objective.count(batch))
    found.backward()
    gradients = [parameter.grad.clone() for parameter in student.parameters()]
    for parameter in student.parameters():
        parameter.grad = None

    own = student(IDS, MASK, output_hidden_states=True)
    with torch.no_grad():
        other = teacher(IDS, MASK, output_hidden_states=True)
    kept = MASK.bool()
    soft = F.kl_div((own.logits[kept] / 2.0).log_softmax(-1), (other.logits[kept] / 2.0).softmax(-1),
                    reduction="batchmean") * 2.0**2
    hard = F.cross_entropy(own.logits.view(-1, 50), labels.view(-1), ignore_index=IGNORED)
    first, second = own.hidden_states[-1][kept], other.hidden_states[-1][kept]
    cosine = F.cosine_embedding_loss(first, second, first.new_ones(len(first)))
    expected = 5.0 * soft + 2.0 * hard + 1.0 * cosine
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    for ours, parameter in zip(gradients, student.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-5, atol=1e-7)


EVERYTHING = (c.SoftTargets(temperature=2.0), c.HardTargets(), c.HiddenStates(), c.Embeddings(), c.Attentions(),
              c.ValueRelations(), c.AttentionRelations(heads=8), c.HiddenStates(distance=c.CosineDistance()))


def test_micro_batches_add_up_to_the_whole_batch() -> None:
    models = both(classes())
    objective = bound(ClassLabels(), c.Distillation(losses=EVERYTHING), models)
    batch = text_batch(labels=LABELS)
    counted = objective.count(batch)
    assert list(counted) == list(objective.parts)
    assert "hidden_states_2" in counted
    parameters = [*models[0].parameters(), *objective.modules["distillation"].parameters()]
    whole = torch.autograd.grad(objective(models[0], batch).over(counted), parameters, allow_unused=True)
    pieces = [{name: value[part] for name, value in batch.items()} for part in (slice(0, 1), slice(1, 3))]
    summed = sum(objective(models[0], one).over(counted) for one in pieces)
    assert {name: sum(objective.count(one)[name] for one in pieces) for name in counted} == counted
    for one, other in zip(whole, torch.autograd.grad(summed, parameters, allow_unused=True), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_the_teacher_stays_as_it_is_and_is_no_module() -> None:
    models = both(classes())
    models[1].train()
    before = {name: value.clone() for name, value in models[1].state_dict().items()}
    objective = bound(ClassLabels(), c.Distillation(losses=EVERYTHING), models)
    optimizer = torch.optim.SGD([*models[0].parameters(), *objective.modules["distillation"].parameters()], lr=0.1)
    first = None
    for _ in range(5):
        optimizer.zero_grad()
        loss = objective(models[0], batch := text_batch(labels=LABELS)).over(objective.count(batch))
        loss.backward()
        optimizer.step()
        first = first or float(loss.detach())
    assert float(loss) < first
    assert not any(one.training for one in models[1].modules())
    assert not any(one.requires_grad or one.grad is not None for one in models[1].parameters())
    assert all(torch.equal(value, before[name]) for name, value in models[1].state_dict().items())
    assert set(objective.modules) == {"distillation"}
    held = {id(one) for one in models[1].parameters()}
    assert not any(id(one) in held for part in (models[0], *objective.modules.values()) for one in part.parameters())


def test_an_observed_pass_gives_the_same_and_leaves_nothing_behind() -> None:
    model = make(head=classes()).train()
    expected = model(IDS, MASK).logits
    with recording(model, Wanted(attentions={"encoder": frozenset({2})})) as recorder:
        found = model(IDS, MASK, output_attentions=True)
    torch.testing.assert_close(found.logits, expected, rtol=EXACT, atol=EXACT)
    assert [*recorder.found] == [("encoder", 2)]
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    scores = recorder.found["encoder", 2].scores
    weights = scores.masked_fill(MASK[:, None, None] == 0, float("-inf")).softmax(-1)
    torch.testing.assert_close(weights, found.attentions[1], rtol=EXACT, atol=EXACT)


def test_activations_that_are_computed_again_give_the_same_gradients() -> None:
    found = []
    for kind in ("keep", "recompute"):
        models = both(classes())
        models[0].train()
        for stack in (models[0].encoder,):
            stack.activations = architecture.Activations(kind=kind)
        objective = bound(ClassLabels(), c.Distillation(losses=EVERYTHING), models)
        batch = text_batch(labels=LABELS)
        objective(models[0], batch).over(objective.count(batch)).backward()
        found.append([one.grad for one in models[0].parameters()])
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=EXACT, atol=EXACT)


def test_held_out_rows_are_measured_by_the_task_with_each_distance_as_a_figure() -> None:
    models = both(classes())
    objective = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(weight=3.0), c.HiddenStates(weight=2.0)),
                                                    schedule=c.Joint()), models, steps=10)
    batch = text_batch(labels=LABELS)
    with torch.no_grad():
        measured = objective.held_out()(models[0], batch)
        alone = ClassLabels()(models[0], batch)
    assert list(measured.parts) == ["labels"]
    assert float(measured.parts["labels"].total) == float(alone.parts["labels"].total)
    assert set(measured.figures) == {"correct", "soft_targets", "hidden_states"}
    with torch.no_grad():
        whole = objective(models[0], batch)
    for name, weight in (("soft_targets", 3.0), ("hidden_states", 2.0)):
        assert float(whole.parts[name].total) == pytest.approx(weight * float(measured.figures[name].total), rel=EXACT)


def test_joint_transfer_comes_before_the_targets() -> None:
    models = both(classes())
    losses = (c.SoftTargets(), c.HardTargets(), c.HiddenStates(), c.Attentions())
    objective = bound(ClassLabels(), c.Distillation(losses=losses, schedule=c.Joint(transfer=0.4)), models, steps=10)
    batch = text_batch(labels=LABELS)
    stages = [set(objective.at(step)(models[0], batch).parts) for step in range(10)]
    assert stages == [{"hidden_states", "attentions"}] * 4 + [{"labels", "soft_targets"}] * 6


def test_progressive_transfer_goes_up_layer_by_layer_and_freezes_what_is_below() -> None:
    models = both(classes())
    losses = (c.HardTargets(), c.HiddenStates(), c.Embeddings(), c.Attentions(compare=c.MapsDivergence()))
    objective = bound(ClassLabels(), c.Distillation(losses=losses, schedule=c.Progressive(transfer=0.5)), models,
                      steps=8)
    batch = text_batch(labels=LABELS)
    seen = []
    for step in range(8):
        now = objective.at(step)
        loss = now(models[0], batch)
        loss.over(now.count(batch)).backward()
        blocks = models[0].encoder.blocks
        parts = {"embed": models[0].embed, "first": blocks[0], "second": blocks[1], "head": models[0].head}
        seen.append((sorted(loss.parts), {name for name, part in parts.items()
                                          if any(one.grad is not None for one in part.parameters())}))
        assert all(one.requires_grad for one in models[0].parameters())
        for one in models[0].parameters():
            one.grad = None
    inside = ["attentions", "embeddings", "hidden_states"]
    assert seen[:2] == [(inside, {"embed", "first"})] * 2
    assert seen[2:4] == [(["attentions", "hidden_states"], {"second"})] * 2
    assert seen[4:] == [(["labels"], {"embed", "first", "second", "head"})] * 4


def test_further_parts_keep_a_weight_of_their_own() -> None:
    """C eq 48: α of the masked words, 1 − α of the teacher, 1 of the next sentence."""
    student, teacher = make(seed=1), make(layers=4, seed=2)
    labels = torch.full_like(IDS, IGNORED)
    labels[:, 1] = 7
    batch = text_batch(labels=labels, next_sentence=torch.tensor([0, 1, 1]))
    inner = Prediction(auxiliary=(NextSentence(),))
    alone = inner(student, batch)
    objective = bound(inner, c.Distillation(losses=(c.HardTargets(weight=0.25, others=1.0),
                                                    c.SoftTargets(weight=0.75))), (student, teacher))
    found = objective(student, batch)
    assert float(found.parts["tokens"].total) == pytest.approx(0.25 * float(alone.parts["tokens"].total))
    assert float(found.parts["sentences"].total) == pytest.approx(float(alone.parts["sentences"].total))
    own, other = (model(IDS, MASK).logits[:, 1].detach() for model in (student, teacher))
    soft = F.kl_div(own.log_softmax(-1), other.softmax(-1), reduction="sum")
    assert float(found.parts["soft_targets"].total) == pytest.approx(0.75 * float(soft), rel=EXACT)

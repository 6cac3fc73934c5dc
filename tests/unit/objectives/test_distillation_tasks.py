"""Distillation of every task and body: which answers are compared, what both read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.teaching import IDS, MASK, both, bound, classes, learned, make, plain, text_batch
from torch import Tensor

from saucier import config as architecture
from saucier.config import parameters
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import Transformer
from saucier.objectives.base import IGNORED
from saucier.objectives.config import distillation as c
from saucier.objectives.contrastive import Cosine, InBatchNegatives
from saucier.objectives.labels import ClassLabels, MultiLabels, NumberLabels, SpanLabels
from saucier.objectives.prediction import Prediction

EXACT = 1e-9
LABELS = torch.tensor([2, 0, 1])


def soft(inner: object, models: tuple[Transformer, Transformer], temperature: float = 2.0,
         **labels: Tensor) -> tuple[float, float]:
    """Return the sum of the soft targets, and their number."""
    objective = bound(inner, c.Distillation(losses=(c.SoftTargets(temperature=temperature),)), models)
    batch = text_batch(**labels)
    part = objective(models[0], batch).parts["soft_targets"]
    assert part.weight == objective.count(batch)["soft_targets"]
    return part.total.item(), part.weight


def test_numbers_learn_from_the_teachers_numbers() -> None:
    models = both(classes(1))
    own, other = (plain(one)[:, 0] for one in models)
    assert soft(NumberLabels(), models, labels=torch.rand(3)) == (
        pytest.approx(float(((own - other) ** 2).sum()), rel=EXACT), 3)


def test_many_labels_learn_each_decision() -> None:
    models = both(classes())
    own, other = ((plain(one) / 2).sigmoid() for one in models)
    expected = 4 * (other * (other / own).log() + (1 - other) * ((1 - other) / (1 - own)).log()).sum()
    assert soft(MultiLabels(), models, labels=torch.ones(3, 3)) == (pytest.approx(float(expected), rel=EXACT), 9)


def test_tags_learn_where_there_is_a_label() -> None:
    models = both(architecture.TokenHead(classes=5))
    labels = torch.full_like(IDS, IGNORED)
    places = [(0, 1), (0, 3), (1, 2)]
    for row, place in places:
        labels[row, place] = 4
    own, other = ((plain(one) / 2).softmax(-1) for one in models)
    expected = 4 * sum(float((other[at] * (other[at] / own[at]).log()).sum()) for at in places)
    assert soft(ClassLabels(), models, labels=labels) == (pytest.approx(expected, rel=EXACT), 3)


def test_spans_learn_both_ends_among_real_tokens() -> None:
    models = both(architecture.SpanHead())
    expected = 0.0
    with torch.no_grad():
        outputs = [one(IDS, MASK) for one in models]
    for name in ("start_logits", "end_logits"):
        for row, length in enumerate(MASK.sum(1).tolist()):
            q, p = ((getattr(one, name)[row, :length] / 2).softmax(-1) for one in outputs)
            expected += 4 * float((p * (p / q).log()).sum()) / 2
    found = soft(SpanLabels(), models, start_positions=torch.tensor([1, 2, 9]), end_positions=torch.tensor([1, 3, 9]))
    assert found == (pytest.approx(expected, rel=EXACT), 3)


@pytest.mark.parametrize("distance", ["mean_squared", "cosine", "cosine_matrix"])
def test_texts_learn_from_the_teachers_vectors(distance: str) -> None:
    models = both(architecture.EmbeddingHead(normalize=False))
    loss = c.TextVectors.model_validate({"distance": {"kind": distance}})
    objective = bound(InBatchNegatives(20.0), c.Distillation(losses=(loss,)), models)
    ids = torch.stack([IDS, IDS.flip(0)], dim=1)
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    part = objective(models[0], batch).parts["text_vectors"]
    assert part.weight == objective.count(batch)["text_vectors"]
    with torch.no_grad():
        own, other = (one(ids.flatten(0, 1), (ids > 0).long().flatten(0, 1)).embeddings for one in models)
    if distance != "cosine_matrix":
        own = own @ objective.modules["distillation"]["text_vectors"].weight.detach().T
    match distance:
        case "mean_squared":
            expected, count = ((own - other) ** 2).mean(-1).sum(), 6
        case "cosine":
            expected, count = (1 - F.cosine_similarity(own, other)).sum(), 6
        case _:
            near = [F.cosine_similarity(one[0::2], one[1::2]) for one in (own, other)]
            expected, count = 2 * ((near[0] - near[1]) ** 2).sum(), 12
    assert (float(part.total), part.weight) == (pytest.approx(float(expected), rel=1e-8), count)


def test_a_decoder_learns_next_tokens_layers_and_attentions() -> None:
    student, teacher = make("gpt2", seed=1, length=16), make("gpt2", dim=32, layers=4, seed=2, length=16)
    labels = torch.where(MASK > 0, IDS.roll(-1, 1), IGNORED)
    losses = (c.SoftTargets(), c.HardTargets(), c.HiddenStates(), c.Attentions(), c.AttentionRelations(heads=4))
    objective = bound(Prediction(), c.Distillation(losses=losses), (student, teacher))
    batch = text_batch(labels=labels)
    loss = objective(student, batch)
    found = learned(loss, objective, batch)
    assert set(found) == {"tokens", "soft_targets", "hidden_states", "attentions", "attention_relations"}
    own, other = (one(IDS, MASK).logits[labels != IGNORED].log_softmax(-1) for one in (student, teacher))
    expected = (other.exp() * (other - own)).sum(-1).mean()
    assert found["soft_targets"] == pytest.approx(float(expected), rel=EXACT)
    # pairs that no query sees count as equal: the divergence of a causal relation has rows of 1 … L keys
    with torch.no_grad():
        layer = [one(IDS[:1], output_hidden_states=True).hidden_states[-2] for one in (student, teacher)]
        total = 0.0
        for kind in range(3):
            relations = []
            for model, state in zip((student, teacher), layer, strict=True):
                block = model.decoder.blocks[-1]["attention"]
                rows = block.inner.qkv(block.norm(state))[0].chunk(3, dim=-1)[kind]
                causal = torch.ones(7, 7, dtype=torch.bool).tril()
                relations.append([(one @ one.T / one.shape[1] ** 0.5).masked_fill(~causal, float("-inf")).softmax(-1)
                                  for one in rows.chunk(4, dim=1)])
            total += sum(float((p * (p / q).log()).nan_to_num().sum()) for q, p in zip(*relations, strict=True)) / 4
        alone = {name: value[:1] for name, value in batch.items()}
        part = objective(student, alone).parts["attention_relations"]
    assert float(part.total) == pytest.approx(total, rel=1e-8)


def test_an_encoder_decoder_learns_word_by_word_and_in_both_stacks() -> None:
    student = make("t5", seed=1, head_dim=4, hidden=32)
    teacher = make("t5", dim=32, layers=4, seed=2, head_dim=8, hidden=64)
    target = IDS[:, :5]
    batch = text_batch(labels=torch.where(target > 0, target, IGNORED), decoder_input_ids=target.roll(1, 1),
                       decoder_attention_mask=MASK[:, :5])
    losses = (c.SoftTargets(), c.HardTargets(), c.HiddenStates(), c.Attentions())
    objective = bound(Prediction(), c.Distillation(losses=losses), (student, teacher))
    found = learned(objective(student, batch), objective, batch)
    assert set(found) == {"tokens", "soft_targets", "hidden_states_encoder", "hidden_states_decoder",
                          "attentions_encoder", "attentions_decoder"}
    counted = objective.count(batch)
    assert (counted["hidden_states_encoder"], counted["hidden_states_decoder"]) == (17, 14)
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    own, other = (one(**inputs).logits[batch["labels"] != IGNORED].log_softmax(-1) for one in (student, teacher))
    assert found["soft_targets"] == pytest.approx(float((other.exp() * (other - own)).sum(-1).mean()), rel=1e-8)


def test_many_tokens_are_compared_in_pieces_with_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rows in (1000, 3):
        monkeypatch.setattr("saucier.objectives.answer_losses.count_chunk_rows", lambda *_, rows=rows: rows)
        student, teacher = make("gpt2", seed=1, length=16), make("gpt2", layers=4, seed=2, length=16)
        objective = bound(Prediction(), c.Distillation(losses=(c.SoftTargets(temperature=3.0),)), (student, teacher))
        batch = text_batch(labels=torch.where(MASK > 0, IDS, IGNORED))
        loss = objective(student, batch).parts["soft_targets"].total
        loss.backward()
        found.append((loss.detach(), [one.grad for one in student.parameters()]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [c.Auxiliary(), c.Joint(), c.Progressive()])
def test_mobilebert_learns_feature_maps_and_attentions_in_all_three_ways(schedule: c.Auxiliary) -> None:
    """C eq 46–48: the feature maps between blocks are as wide as the teacher's, whose blocks are wider inside."""
    student = make("mobilebert", layers=2, narrow=8, forwards=2, seed=1)
    teacher = make("ib_bert", layers=2, inside=32, seed=2)
    labels = torch.where(MASK > 0, IDS, IGNORED)
    losses = (c.HiddenStates(), c.Attentions(compare=c.MapsDivergence()), c.SoftTargets(weight=0.5),
              c.HardTargets(weight=0.5, others=1.0))
    objective = bound(Prediction(), c.Distillation(losses=losses, schedule=schedule), (student, teacher), steps=8)
    assert objective.modules == {}
    batch, optimizer = text_batch(labels=labels), torch.optim.Adam(student.parameters(), lr=1e-3)

    def distances() -> dict[str, float]:
        with torch.no_grad():
            return {name: float(part.total) for name, part in objective.held_out()(student, batch).figures.items()}

    before, seen = distances(), list[frozenset[str]]()
    for step in range(8):
        now = objective.at(step)
        loss = now(student, batch)
        seen.append(frozenset(loss.parts))
        loss.over(now.count(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = distances()
    assert all(after[name] < before[name] for name in ("hidden_states", "soft_targets"))
    inside, targets = frozenset({"hidden_states", "attentions"}), frozenset({"tokens", "soft_targets"})
    assert seen == ([inside | targets] * 8 if isinstance(schedule, c.Auxiliary) else [inside] * 4 + [targets] * 4)


def test_the_students_of_the_papers_have_their_sizes() -> None:
    tiny = FAMILIES["bert"](312, 4, heads=12, hidden=1200).model_copy(update={"head": None})
    assert parameters(tiny) == 14_350_248
    mobile = FAMILIES["mobilebert"]().model_copy(update={"head": None})
    assert parameters(mobile) == 24_844_544
    assert parameters(mobile.model_copy(update={"pooler": None})) == 24_581_888


def test_families_may_differ_and_segments_are_left_out_where_a_teacher_has_none() -> None:
    student, teacher = make("bert", seed=1, head=classes()), make("distilbert", layers=4, seed=2)
    objective = bound(ClassLabels(), c.Distillation(losses=(c.HiddenStates(), c.Attentions(), c.HardTargets())),
                      (student, teacher))
    batch = text_batch(labels=LABELS, token_type_ids=torch.zeros_like(IDS))
    assert set(objective(student, batch).parts) == {"labels", "hidden_states", "attentions"}


def test_a_teacher_reads_rows_of_its_own() -> None:
    models = both(classes())
    other = torch.randint(4, 50, (3, 9), generator=torch.Generator().manual_seed(8))
    objective = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(),)), models, aligned=False)
    batch = text_batch(labels=LABELS) | {"teacher.input_ids": other, "teacher.attention_mask": torch.ones_like(other)}
    found = float(objective(models[0], batch).parts["soft_targets"].total)
    own, theirs = plain(models[0]).softmax(-1), models[1](other).logits.softmax(-1)
    assert found == pytest.approx(float((theirs * (theirs / own).log()).sum()), rel=EXACT)


MAPS = [
    (c.UniformLayers(), 3, 12, ((1, 4), (2, 8), (3, 12))), (c.UniformLayers(), 2, 2, ((1, 1), (2, 2))),
    (c.TopLayers(), 2, 6, ((1, 5), (2, 6))), (c.BottomLayers(), 2, 6, ((1, 1), (2, 2))),
    (c.LastLayer(), 5, 3, ((5, 3),)), (c.ListedLayers(pairs=((1, 6), (2, 1))), 2, 6, ((1, 6), (2, 1)))]


@pytest.mark.parametrize(("layers", "student", "teacher", "expected"), MAPS)
def test_layer_maps(layers: c.LayerMap, student: int, teacher: int, expected: c.Pairs) -> None:
    assert layers.choose(student, teacher) == expected


@pytest.mark.parametrize(("layers", "words"), [
    (c.UniformLayers(), "5 layers of the teacher are no multiple of the student's 2"),
    (c.ListedLayers(pairs=((1, 5), (2, 6))), r"the pair \[2, 6\] names layer 6, and the teacher has 5"),
    (c.ListedLayers(pairs=((0, 5),)), "names layer 0, and the student has 2")])
def test_impossible_layer_maps_are_refused(layers: c.LayerMap, words: str) -> None:
    models = make(head=classes()), make(layers=5, head=classes())
    with pytest.raises(InputError, match=words):
        bound(ClassLabels(), c.Distillation(losses=(c.HiddenStates(),), layers=layers), models)


@pytest.mark.parametrize("layers", [c.TopLayers(), c.BottomLayers()])
def test_a_deeper_student_has_no_such_map(layers: c.LayerMap) -> None:
    with pytest.raises(InputError, match="the student has 4 layers, and the teacher has 2"):
        layers.choose(4, 2)


WRONG = [
    ({"heads": 2, "dim": 32, "layers": 4}, c.Attentions(), "the student has 4 heads, the teacher 2"),
    ({"heads": 2, "dim": 32, "layers": 4}, c.ValueRelations(), "have 2 and 4 heads of values"),
    ({"dim": 32, "layers": 4}, c.AttentionRelations(), "vectors of width 16 cannot be cut into 48 relation heads"),
    ({"dim": 32, "layers": 4}, c.TextVectors(), "text_vectors need two models that give vectors"),
    ({"dim": 32, "layers": 4}, c.SoftTargets(places=c.EveryToken()), "every_token is for language models"),
    ({"family": "gpt2", "dim": 32, "layers": 4}, c.Attentions(), "see different tokens"),
    ({"family": "t5", "dim": 32, "layers": 4, "head_dim": 8, "hidden": 64}, c.HiddenStates(), "compares stacks"),
    ({"family": "nystromformer", "dim": 32, "layers": 4}, c.Attentions(), "one attention with an exact softmax")]


@pytest.mark.parametrize(("teacher", "loss", "words"), WRONG)
def test_losses_that_one_of_both_cannot_have_are_refused(teacher: dict[str, Any], loss: c.Loss, words: str) -> None:
    with pytest.raises(InputError, match=words):
        bound(ClassLabels(), c.Distillation(losses=(loss,)), (make(head=classes()), make(**{"heads": 4} | teacher)))


@pytest.mark.parametrize("loss", [c.HiddenStates(), c.Attentions(), c.AttentionRelations(heads=4), c.Embeddings()])
def test_other_tokens_are_refused_token_by_token(loss: c.Loss) -> None:
    with pytest.raises(InputError, match="the teacher's tokenizer makes other tokens"):
        bound(ClassLabels(), c.Distillation(losses=(loss,)), both(classes()), aligned=False)


def test_schedules_without_two_kinds_of_losses_are_refused() -> None:
    for schedule in (c.Joint(), c.Progressive()):
        with pytest.raises(InputError, match="first learns what is inside, then the targets"):
            bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(),), schedule=schedule), both(classes()))
    with pytest.raises(InputError, match="2 layers learn one after the other, in 1 steps"):
        bound(ClassLabels(), c.Distillation(losses=(c.HardTargets(), c.HiddenStates()), schedule=c.Progressive()),
              both(classes()), steps=2)
    with pytest.raises(InputError, match="hard_targets stands twice"):
        bound(ClassLabels(), c.Distillation(losses=(c.HardTargets(), c.HardTargets())), both(classes()))


def test_an_objective_without_probabilities_has_no_soft_targets() -> None:
    with pytest.raises(InputError, match="Cosine has none"):
        bound(Cosine(), c.Distillation(), both(architecture.EmbeddingHead()))

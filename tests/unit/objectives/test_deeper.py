"""The losses of deeper self-attention: which layers predict when, and what they predict."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.helpers import IDS, rows

from saucier.config import parameters
from saucier.families import FAMILIES
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.causal import DeepPrediction, shift_labels_ahead
from saucier.objectives.prediction import Prediction
from saucier.recipes import recipe

X = IGNORED
BODY = FAMILIES["deep_char"](dim=16, layers=4, heads=2, vocab=100, length=32, hidden=32, dropout=0.0)


def deeper(config: c.Deeper, steps: int = 800) -> DeepPrediction:
    _, learned = build_objective(c.Causal(deeper=config), ObjectiveInputs(IDS, BODY, steps=steps))
    assert isinstance(learned, Prediction)
    (made,) = learned.auxiliary
    assert isinstance(made, DeepPrediction)
    made.bind(build(BODY))
    return made


def test_layer_l_of_n_rests_when_l_over_2n_of_the_training_is_over() -> None:
    found = deeper(c.Deeper())
    active_layers = {step: found.at(step).active_layers for step in (0, 99, 100, 199, 200, 299, 300, 799)}
    assert active_layers == {0: (1, 2, 3), 99: (1, 2, 3), 100: (2, 3), 199: (2, 3), 200: (3,), 299: (3,), 300: (),
                             799: ()}
    assert found.at(799).places == ((4, 1),)  # further targets stay to the end
    assert deeper(c.Deeper(further=0)).at(799) is None


def test_tokens_further_ahead_stay_inside_their_document() -> None:
    labels = torch.tensor([[6, 7, 8, X, 9, 10], [5, X, X, 4, 3, X]])
    assert shift_labels_ahead(labels, 1).tolist() == [[7, 8, X, X, 10, X], [X, X, X, 3, X, X]]
    assert shift_labels_ahead(labels, 2).tolist() == [[8, X, X, X, X, X], [X] * 6]


def test_the_loss_is_the_sum_over_layers_and_distances() -> None:
    config = c.Deeper(intermediate=0.5, further=1, weight=0.5)
    model = build(BODY, seed=2).eval()
    corrupt, objective = build_objective(c.Causal(deeper=config), ObjectiveInputs(IDS, BODY, steps=100))
    objective.bind(model)
    batch = corrupt(rows([list(range(10, 27)), [*range(30, 40), *[0] * 7]]), seed=0, step=0)
    found = objective.at(0)(model, batch).parts["deeper"].total
    classifiers = objective.modules["deeper"].weights
    states = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"],
                   output_hidden_states=True).hidden_states
    expected = torch.zeros(())
    for layer in (1, 2, 3, 4):
        for count, share in ((0, 1.0), (1, 0.5)):
            if (layer, count) == (4, 0):
                continue
            logits = states[layer] @ classifiers[f"layer_{layer}_ahead_{count}"].T
            expected = expected + share * F.cross_entropy(logits.flatten(0, 1),
                                                          shift_labels_ahead(batch["labels"], count).flatten(),
                                                          ignore_index=X, reduction="sum")
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_every_awake_layer_gets_gradients_and_held_out_text_sees_none_of_it() -> None:
    model = build(BODY, seed=2)
    corrupt, objective = build_objective(c.Causal(deeper=c.Deeper()), ObjectiveInputs(IDS, BODY, steps=800))
    objective.bind(model)
    batch = corrupt(rows([list(range(10, 27))]), seed=0, step=0)
    now = objective.at(150)
    now(model, batch).over(now.count(batch)).backward()
    trained = {name for name, weight in objective.modules["deeper"].weights.items() if weight.grad is not None}
    assert trained == {f"layer_{layer}_ahead_{count}" for layer in (2, 3) for count in (0, 1)} | {"layer_4_ahead_1"}
    assert objective.held_out() == Prediction()


def test_the_last_position_alone() -> None:
    corrupt = build_objective(c.Causal(positions=c.LastPosition()), ObjectiveInputs(IDS, BODY))[0]
    batch = corrupt(rows([[5, 6, 7, 8, 9], [5, 6, 7, 0, 0]]), seed=0, step=0)
    assert batch["labels"].tolist() == [[X, X, X, 9], [X, 7, X, X]]


def test_the_published_model_has_219_million_weights_and_235_in_training() -> None:
    body = FAMILIES["deep_char"]()
    assert round(parameters(body) / 1e6) == 219
    given = ObjectiveInputs(dataclasses.replace(IDS, vocab=256), body)
    _, learned = build_objective(c.Causal(deeper=c.Deeper()), given)
    assert isinstance(learned, Prediction) and isinstance(learned.auxiliary[0], DeepPrediction)
    places = learned.auxiliary[0].places
    assert len(places) == 2 * 64 - 1
    assert round((parameters(body) + len(places) * 256 * 512) / 1e6) == 235


def test_every_block_adds_a_position_of_its_own() -> None:
    model = build(BODY, seed=1).eval()
    ids = torch.tensor([[7, 7, 7]])
    before = model(input_ids=ids).logits
    for number, table in enumerate(model.decoder.positions):
        with torch.no_grad():
            kept = table.weight.clone()
            table.weight[1] += 1.0
            changed = model(input_ids=ids).logits
            table.weight.copy_(kept)
        assert torch.equal(changed[:, 0], before[:, 0]), number
        assert not torch.allclose(changed[:, 1], before[:, 1]), number


def test_recipes_speak_of_it() -> None:
    assert recipe("deep-char").objective.deeper == c.Deeper()
    assert recipe("deep-char-nano").objective.deeper is not None

"""What an update costs, by objective: a generator's work beside the model's, a second stream, a memory."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from saucier.cost.workload import (
    StepTokens,
    build_planned_objectives,
    make_workload,
    tokens_per_step,
    training_flops,
    training_memory,
)
from saucier.model import build
from saucier.recipes import Recipe, recipe

SMALL = ["model.dim=32", "model.layers=2", "model.length=32", "training.length=32", "training.batch=4",
         "tokenizer.vocab=200", "data.document=file"]


QUARTER = ("model.width=16", "objective.generator.width=0.25", "objective.generator.depth=1")
"""ELECTRA with the paper's share for its generator."""


def small(name: str, *changes: str) -> Recipe:
    return recipe(name, [*SMALL, *changes] if name != "xlnet-nano" else [
        one for one in [*SMALL, *changes] if not one.startswith("model.length")])


def cost(found: Recipe) -> tuple[StepTokens, float]:
    tokens = tokens_per_step(found, make_workload(found, found.vocab))
    return tokens, training_flops(found, found.vocab, tokens)


def test_the_generators_work_is_counted_as_it_is_done() -> None:
    """PyTorch's own counter of products agrees, over the forward passes of both, of drawing, and of the head's."""
    found = small("electra-nano", *QUARTER)
    work = make_workload(found, found.vocab)
    lesson = build_planned_objectives(found, work.ids)[0]
    model = build(found.model)
    lesson.objective.bind(model)
    batch = lesson.corruption(work.batches[0], seed=0, step=0)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        lesson.objective(model, {name: value for name, value in batch.items() if name not in ("documents", "places")})
    tokens, flops = cost(found)
    head = 2 * 16 * (8 + found.vocab) * tokens.labels  # of the pass that draws; a third of it is in the count
    attention = 2 * 4 * 32 * (32 + 8) * 128  # scores and sums of both, which the fused kernel hides from the counter
    assert counter.get_total_flops() + attention == pytest.approx(flops / 3 + head * 2 / 3, rel=1e-9)


def test_every_token_is_a_target_of_replaced_tokens_and_only_hidden_ones_have_labels() -> None:
    tokens, _ = cost(small("electra-nano", *QUARTER))
    assert tokens.targets == tokens.first == 128
    assert tokens.labels == pytest.approx(0.15 * 128, abs=4)
    chosen, _ = cost(small("electra-nano", *QUARTER, "objective.learns.kind=chosen_tokens"))
    assert chosen.targets == chosen.labels


def test_two_stages_cost_less_than_both_together() -> None:
    whole = [*QUARTER, "objective.generator.width=1"]
    _, together = cost(small("electra-nano", *whole))
    _, stages = cost(small("electra-nano", *whole, "objective.stages={kind: two_stages, first: 0.5}"))
    assert 0.5 * together < stages < 0.75 * together


def test_the_memory_holds_the_generator_too() -> None:
    narrow, wide = (training_memory(small("electra-nano", *QUARTER, f"objective.generator.width={width}"), 200,
                                    "float32").total for width in (0.25, 1))
    assert narrow < wide


def test_a_second_stream_and_a_memory_are_read_too() -> None:
    plain, _ = cost(small("xlnet-nano", "objective.rows.memory=null"))
    recalled, _ = cost(small("xlnet-nano", "objective.rows.memory=12"))
    assert plain.first == 128 + 4 * (32 // 6)
    assert recalled.first - plain.first == 4 * 12 / 3

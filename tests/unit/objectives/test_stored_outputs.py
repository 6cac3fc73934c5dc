"""What a teacher gave for rows is read from the disk as it was; other rows are not served; damage is one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from tests.unit.objectives.teaching import IDS, MASK, both, bound, classes, learned, make, text_batch
from torch import Tensor

from saucier import config as architecture
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.objectives import stored_outputs
from saucier.objectives.base import IGNORED, Batch, Objective
from saucier.objectives.config import distillation as c
from saucier.objectives.config.stored_outputs import MostLikely, StoredOutputs
from saucier.objectives.contrastive import InBatchNegatives
from saucier.objectives.distillation import Distilled
from saucier.objectives.labels import ClassLabels, SpanLabels
from saucier.objectives.prediction import Prediction
from saucier.objectives.stored_outputs import OutputStore, RowKeys

LABELS = torch.tensor([2, 0, 1])
NEXT = torch.where(MASK > 0, IDS.roll(-1, 1), IGNORED)
INSIDE = (c.HiddenStates(), c.Embeddings(), c.Attentions(), c.Attentions(compare=c.MapsDivergence()),
          c.ValueRelations(), c.AttentionRelations(heads=4))


def store(objective: Distilled, model: Transformer, batches: list[Batch], folder: Path,
          cast: torch.dtype | None = None) -> OutputStore:
    """Keep what the teacher gives for batches, and open it again."""
    found = OutputStore.open(folder, objective.reads, cast)
    found.write(objective.passes_to_store([objective.read_inputs(model, one) for one in batches]))
    return OutputStore.open(folder, objective.reads, cast)


def forbid(teacher: Transformer) -> None:
    """Let a teacher's pass be an error."""
    def fail(*_: Any) -> None:
        raise AssertionError("the teacher was asked")

    teacher.register_forward_pre_hook(fail)


def without_padding(batch: Batch) -> list[Batch]:
    """Return the rows of a batch one by one, as long as they are."""
    lengths = batch["attention_mask"].flatten(0, -2).sum(-1).view(len(batch["labels"]), -1).amax(-1).tolist()
    return [{name: value[row:row + 1, ..., :length] if value.dim() > 1 else value[row:row + 1]
             for name, value in batch.items()} for row, length in enumerate(lengths)]


GROUPS = torch.stack([IDS, IDS.roll(1, 0)], dim=1)
CASES: dict[str, tuple[Objective, architecture.Head | None, tuple[Any, ...], Batch, dict[str, Any]]] = {
    "classes and what is inside": (
        ClassLabels(), classes(), (c.SoftTargets(temperature=2.0), c.HardTargets(), *INSIDE),
        text_batch(labels=LABELS), {}),
    "tags": (ClassLabels(), architecture.TokenHead(classes=5), (c.SoftTargets(),),
             text_batch(labels=torch.where(MASK > 0, IDS % 5, IGNORED)), {}),
    "vectors": (InBatchNegatives(20.0), architecture.EmbeddingHead(normalize=False), (c.TextVectors(), *INSIDE[:1]),
                {"input_ids": GROUPS, "attention_mask": (GROUPS > 0).long(), "labels": LABELS}, {}),
    "next tokens": (Prediction(), None, (c.SoftTargets(), *INSIDE), text_batch(labels=NEXT),
                    {"family": "gpt2", "length": 16}),
    "written tokens": (Prediction(), None, (c.SoftTargets(), *INSIDE), text_batch(
        labels=NEXT, decoder_input_ids=IDS, decoder_attention_mask=MASK), {"family": "bart", "length": 32}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_stored_values_give_the_losses_of_the_teacher_itself(name: str, tmp_path: Path) -> None:
    inner, head, losses, batch, options = CASES[name]
    models = both(head, **options)
    if name == "vectors":
        batch = {key: value for key, value in batch.items() if key != "labels"}
    live = bound(inner, c.Distillation(losses=losses), models)
    stored = replace(live, stored=store(live, models[0], [batch], tmp_path))
    expected = learned(live(models[0], batch), live, batch)
    assert expected.keys() > {"hidden_states"} or name in ("tags", "written tokens")
    forbid(models[1])
    assert learned(stored(models[0], batch), stored, batch) == expected  # the same bits
    figures = stored.held_out()(models[0], batch).figures
    assert all(figures[one.name].weight == stored.count(batch)[one.name] for one in stored.losses)


def test_rows_are_found_whatever_they_are_padded_to_and_in_any_order(tmp_path: Path) -> None:
    models, batch = both(classes()), text_batch(labels=LABELS)
    live = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(), *INSIDE)), models)
    stored = replace(live, stored=store(live, models[0], without_padding(batch), tmp_path))
    expected = learned(live(models[0], batch), live, batch)
    turned = {name: value.flip(0) for name, value in batch.items()}
    forbid(models[1])
    for one in (batch, turned):  # padding changes the last bits of a sum alone
        assert learned(stored(models[0], one), stored, one) == pytest.approx(expected, rel=1e-12)


def test_answers_where_a_text_starts_and_ends_are_kept(tmp_path: Path) -> None:
    models = both(architecture.SpanHead())
    live = bound(SpanLabels(), c.Distillation(losses=(c.SoftTargets(),)), models)
    batch = text_batch(start_positions=torch.tensor([1, 2, 9]), end_positions=torch.tensor([1, 3, 9]))
    expected = float(live(models[0], batch).parts["soft_targets"].total.detach())
    stored = replace(live, stored=store(live, models[0], [batch], tmp_path))
    forbid(models[1])
    assert float(stored(models[0], batch).parts["soft_targets"].total.detach()) == expected


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("tokens", [3, 49])
def test_the_most_likely_tokens_keep_the_remaining_mass(tokens: int, temperature: float, tmp_path: Path) -> None:
    models = make("gpt2", seed=1, length=16), make("gpt2", dim=32, layers=4, seed=2, length=16)
    config = c.Distillation(losses=(c.SoftTargets(temperature=temperature),),
                            stored=StoredOutputs(tokens=MostLikely(tokens=tokens)))
    live, batch = bound(Prediction(), config, models), text_batch(labels=NEXT)
    stored = replace(live, stored=store(live, models[0], [batch], tmp_path))
    own, other = (one(IDS, MASK).logits.detach()[NEXT != IGNORED] / temperature for one in models)
    p, q = other.softmax(-1), own.softmax(-1)
    ids = p.topk(tokens).indices
    near = [torch.cat([one.gather(1, ids), 1 - one.gather(1, ids).sum(1, keepdim=True)], 1) for one in (p, q)]
    expected = temperature**2 * (near[0] * (near[0] / near[1]).log()).sum()
    forbid(models[1])
    found = stored(models[0], batch).parts["soft_targets"].total
    assert float(found.detach()) == pytest.approx(float(expected), rel=1e-9)
    if tokens == 49:  # of 50: the one that is left is an outcome of its own, so that nothing is lost
        assert float(found.detach()) == pytest.approx(temperature**2 * float((p * (p / q).log()).sum()), rel=1e-9)
    found.backward()
    assert all(torch.isfinite(one.grad).all() for one in models[0].parameters() if one.grad is not None)
    kept = next(tmp_path.glob("*.safetensors"))
    with safe_open(kept, "pt") as file:
        sizes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    assert sizes[f"largest.{tokens}.{temperature:g}.logs.values"] == [int(MASK.sum()) * (tokens + 1)]


def test_numbers_of_16_bits_are_those_of_the_teacher_rounded(tmp_path: Path) -> None:
    models, batch = both(classes()), text_batch(labels=LABELS)
    live = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(),)), models)
    rounded = store(live, models[0], [batch], tmp_path, torch.float16)
    found = rounded.read(("logits",), live.read_inputs(models[0], batch))
    with torch.no_grad():
        assert torch.equal(found.output.logits, models[1](IDS, MASK).logits.half().float())


def test_another_row_is_not_served(tmp_path: Path) -> None:
    models, batch = both(classes()), text_batch(labels=LABELS)
    live = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(),)), models)
    found = store(live, models[0], [batch], tmp_path)
    inputs = live.read_inputs(models[0], batch)
    assert not found.lacks(RowKeys.of(inputs))
    changes: dict[str, tuple[str, Tensor]] = {
        "another token": ("input_ids", torch.where(torch.arange(7) == 2, 5 + IDS % 3, IDS)),
        "a shorter row": ("attention_mask", MASK * (torch.arange(7) < 6)),
        "segments": ("token_type_ids", torch.ones_like(IDS))}
    for name, (key, value) in changes.items():
        other = live.read_inputs(models[0], {**batch, key: value})
        assert found.lacks(RowKeys.of(other)), name
        with pytest.raises(InputError, match="a row is not among the stored outputs of the teacher"):
            found.read(("logits",), other)
    hidden = torch.where(MASK > 0, IDS, 7)
    assert not found.lacks(RowKeys.of(live.read_inputs(models[0], {**batch, "input_ids": hidden}))), "padding is no row"


def test_files_are_written_as_rows_come_and_only_for_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, batch = both(classes()), text_batch(labels=LABELS)
    live = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(),)), models)
    monkeypatch.setattr(stored_outputs, "SHARD_BYTES", 1)
    first, *rest = without_padding(batch)
    found = store(live, models[0], [first], tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    found = store(live, models[0], [first, *rest, first], tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert len(found.columns["logits"].places) == 3
    known = [RowKeys.of(live.read_inputs(models[0], one)) for one in (first, *rest, first)]
    assert found.count_bytes(known) == 3 * 3 * 8  # three rows of three classes in float64, one of them twice


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"", lambda data: b"\xff" * 64,
                                    lambda data: data.replace(b"outputs", b"outpuns")])
def test_a_damaged_file_is_one_line_with_its_remedy(damage: Any, tmp_path: Path) -> None:
    models, batch = both(classes()), text_batch(labels=LABELS)
    live = bound(ClassLabels(), c.Distillation(losses=(c.SoftTargets(),)), models)
    store(live, models[0], [batch], tmp_path)
    path = next(tmp_path.iterdir())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match="are damaged") as error:
        OutputStore.open(tmp_path, live.reads, None)
    assert len(str(error.value).splitlines()) == 1
    assert str(path) in str(error.value) and "remove the file" in str(error.value)


def test_a_row_is_known_by_all_that_is_read_of_it() -> None:
    rows = RowKeys.of({"input_ids": IDS, "attention_mask": MASK, "compute_logits": False})
    assert rows.lengths == {"input_ids": MASK.sum(1).tolist()}
    assert len({*rows.keys}) == 3
    wide = RowKeys.of({"input_ids": torch.cat([IDS, torch.zeros_like(IDS)], 1),
                       "attention_mask": torch.cat([MASK, torch.zeros_like(MASK)], 1)})
    assert wide.keys == rows.keys
    pairs = RowKeys.of({"input_ids": torch.from_numpy(np.stack([IDS, IDS], axis=1))})
    assert len(pairs.keys) == 6 and len(pairs.of_groups(3)) == 3 and pairs.of_groups(6) == pairs.keys

"""Sheets: what is padded, what is grouped, and that batches show every unit once an epoch."""

from __future__ import annotations

import numpy as np

from saucier.tasks.encoded_examples import CollateExamples, EncodedBatches, EncodedExamples, Ragged, order_by_length


def sheet_of(lengths: list[int], group: int = 1) -> EncodedExamples:
    rows = [list(range(1, length + 1)) for length in lengths]
    units = len(rows) // group
    return EncodedExamples({"input_ids": Ragged.of(rows, 0)}, {"labels": np.arange(units)}, np.arange(units),
                           group=group)


def test_rows_are_padded_on_the_right_and_masked() -> None:
    batch = sheet_of([3, 1, 2]).batch(np.array([2, 0]))
    assert batch["input_ids"].tolist() == [[1, 2, 0], [1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [2, 0]


def test_the_rows_of_a_group_stay_together() -> None:
    batch = sheet_of([1, 2, 3, 4], group=2).batch(np.array([1, 0]))
    assert batch["input_ids"].shape == (2, 2, 4)
    assert batch["attention_mask"].sum(-1).tolist() == [[3, 4], [1, 2]]
    assert batch["labels"].tolist() == [1, 0]


def test_numbers_stay_numbers() -> None:
    sheet = EncodedExamples({"input_ids": Ragged.of([[1], [1]], 0)},
                            {"labels": np.array([0.5, 2.25], dtype=np.float32)}, np.arange(2))
    assert sheet.batch(np.array([1, 0]))["labels"].tolist() == [2.25, 0.5]


def test_every_unit_is_seen_once_an_epoch_and_shared_by_processes() -> None:
    sheet = sheet_of([1 + number % 7 for number in range(23)])
    batches = EncodedBatches(sheet, 4, seed=3)
    for epoch in range(2):
        seen = [unit for step in range(batches.steps_per_epoch)
                for unit in batches[epoch * batches.steps_per_epoch + step].units.tolist()]
        assert sorted(seen) == list(range(23))
    whole, parts = batches[1], [batches.rows(1, rank, 2) for rank in range(2)]
    assert sorted(unit for part in parts for unit in part.units.tolist()) == sorted(whole.units.tolist())
    collate = CollateExamples()
    alone = collate(whole.select(slice(1, 2)), seed=0, step=0)["labels"].tolist()
    assert alone == collate(whole, seed=0, step=0)["labels"].tolist()[1:2]


def test_a_reader_sees_every_unit_once_the_longest_batch_first() -> None:
    sheet = sheet_of([5, 1, 3, 2, 4])
    assert [rows.units.tolist() for rows in order_by_length(sheet, 2)] == [[0], [2, 4], [1, 3]]

"""Pieces made elsewhere: what datatrove's tasks leave in a folder, `saucier clean` goes on from."""

from __future__ import annotations

import json
from pathlib import Path

from saucier.jobs.cleaning.clean import CleanBlock, CleaningOptions, clean, cleaning, orders


def test_tasks_share_the_files_and_the_command_goes_on(tmp_path: Path) -> None:
    for number in range(5):
        lines = [json.dumps({"text": f"Document {number} and {place} is here."}) for place in range(4)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    rules, said = cleaning("c4", ["few_sentences=off"]), []
    work = orders([f"{tmp_path}/*.jsonl"], rules, tmp_path / "out", CleaningOptions())
    block = CleanBlock(tuple(work))
    block(None, 0, 2)
    assert [order.target.is_dir() for order in work] == [True, False, True, False, True]
    block(None, 1, 2)
    clean([f"{tmp_path}/*.jsonl"], rules, tmp_path / "out", wishes=CleaningOptions(),
          say=lambda what, about: said.append(f"{what}: {about}"))
    assert said[0].startswith("going on: 5 of 5 files")
    assert len((tmp_path / "out/corpus-00000.jsonl").read_text().splitlines()) == 20

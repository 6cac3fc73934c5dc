"""What a comparison counts and times: pairs as long as the data has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from saucier.cost.workload import make_workload, tokens_per_step
from saucier.jobs.comparison.budget import count_step_tokens, read_run_batches, rehearse_batches
from saucier.jobs.run.folder import open_run
from saucier.recipes import Recipe, recipe
from saucier.text.reading.documents import Pair
from saucier.text.rows.store import write_pairs
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer

WORDS = ("one", "two", "six", "ten")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of two words and three."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    rows = [f"{first} {second}\t{second} {first} {first}" for first in WORDS for second in WORDS] * 4
    path.write_text("\n".join(["en\tde", *(f"{row}" for row in rows)]) + "\n", encoding="utf-8")
    return path


def short(path: Path) -> tuple[Recipe, Tokenizer]:
    one = recipe("transformer-nano", [
        f"data.files=[{path}]", "data.held_out={kind: fraction, fraction: 0.25}", "training.batch=4",
        "training.length=64", "tokenizer.vocab=24"])
    return one, train_tokenizer(one.tokenizer, [" ".join(WORDS)] * 50)


def test_pairs_are_counted_as_long_as_they_are(pairs: Path) -> None:
    """Each pair by hand: its words, and the marks that the tokenizer sets around them; not half of the longest row."""
    one, tokenizer = short(pairs)
    each = len(tokenizer.encode("one two")) + len(tokenizer.encode("two one one"))
    assert count_step_tokens(one, rehearse_batches(one, tokenizer)) == 4 * each
    assert count_step_tokens(one, make_workload(one, tokenizer.vocab_size)) > 2 * 4 * each


def test_a_finished_run_is_counted_alike(pairs: Path, tmp_path: Path) -> None:
    one, tokenizer = short(pairs)
    run, _ = open_run(tmp_path / "run", one)
    tokenizer.save(run.tokenizer)
    write_pairs(run.train_store, [Pair("one two", "two one one", "here")] * 12, tokenizer)
    before, after = rehearse_batches(one, tokenizer), read_run_batches(run, one, tokenizer.vocab_size)
    assert count_step_tokens(one, before) == count_step_tokens(one, after)
    assert tokens_per_step(one, before) == tokens_per_step(one, after)


@pytest.mark.slow
def test_running_text_fills_its_rows(pairs: Path) -> None:
    one = recipe("gpt-nano", ["training.batch=4", "training.length=32", "model.length=32"])
    assert count_step_tokens(one, rehearse_batches(one, short(pairs)[1])) == 4 * 32

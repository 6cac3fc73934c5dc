"""Several languages: how often each comes, that rows never mix them, and that nothing depends on who asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.text.places import write_store

from saucier.errors import InputError
from saucier.text.config import LanguageData, list_languages
from saucier.text.languages import (
    PERIOD,
    LanguageBatches,
    LanguageCorpus,
    LanguageStore,
    compute_sampling_shares,
    repeat_texts,
    split_by_shares,
    write_language_store,
)
from saucier.text.rows.batch import PADDING, stack_rows
from saucier.text.rows.running import PackedBatches
from saucier.text.rows.store import Piece

Write = Callable[[str, "str | bytes"], str]
LENGTH = 5


def test_shares_are_those_of_the_formulas() -> None:
    sizes = np.array([900_000, 90_000, 10_000])
    p = sizes / sizes.sum()
    q = compute_sampling_shares(sizes, 0.7)
    wanted = [one**0.7 / sum(other**0.7 for other in p) for one in p]
    assert q == pytest.approx(wanted)
    ratios = [(1 / one) * one**0.7 / sum(other**0.7 for other in p) for one in p]  # eq 1 of mBART
    assert q / p == pytest.approx(ratios)
    assert ratios[0] < 1 < ratios[1] < ratios[2]
    assert compute_sampling_shares(sizes, 1.0) == pytest.approx(p)
    assert compute_sampling_shares(sizes, 0.0) == pytest.approx([1 / 3] * 3)


def test_quotas_fill_the_period_and_forget_no_language() -> None:
    found = split_by_shares(np.array([0.7, 0.29999, 0.00001]), PERIOD)
    assert found.sum() == PERIOD
    assert found[2] == 1
    assert abs(found[0] / PERIOD - 0.7) < 1e-3


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> LanguageBatches:
    """Two languages, the tokens of one below 1000, of the other above; one row in four is of the second."""
    members = []
    for first, rows in ((0, 40), (1000, 7)):
        pieces = [Piece(range(first + start, first + start + LENGTH)) for start in range(0, rows * LENGTH, LENGTH)]
        store = write_store(tmp_path_factory.mktemp("stores") / "s", pieces, vocab=2000)
        members.append(PackedBatches(store, length=LENGTH, batch=1, shift=False))
    return LanguageBatches(members, np.array([0.75, 0.25]), batch=8, language_ids=True)


def test_a_row_is_of_one_language_and_tells_it(batches: LanguageBatches) -> None:
    for step in range(20):
        rows = batches[step]
        assert (rows.languages == (rows.tokens >= 1000)).all()
        assert sorted(rows.row.tolist()) == list(range(8))


def test_languages_come_by_their_shares(batches: LanguageBatches) -> None:
    languages, places = batches.drawn(0, PERIOD)
    assert np.bincount(languages) / PERIOD == pytest.approx([0.75, 0.25], abs=1e-4)
    part, _ = batches.drawn(500, 1500)
    assert np.bincount(part) / 1000 == pytest.approx([0.75, 0.25], abs=0.05)
    assert places[languages == 1].tolist() == list(range(PERIOD // 4))


def test_periods_follow_each_other_without_a_gap(batches: LanguageBatches) -> None:
    languages, places = batches.drawn(PERIOD - 50, PERIOD + 50)
    whole, _ = batches.drawn(0, PERIOD)
    for language in range(2):
        start = int((whole[:PERIOD - 50] == language).sum())
        mine = places[languages == language]
        assert sorted(mine.tolist()) == list(range(start, start + len(mine)))


def test_every_row_of_a_language_comes_once_before_any_comes_again(batches: LanguageBatches) -> None:
    rows = stack_rows([batches[step] for step in range(12)])
    first = rows.tokens[rows.tokens[:, 0] < 1000][:40]
    assert sorted(first[:, 0].tolist()) == list(range(0, 200, LENGTH))


def test_processes_share_the_batch(batches: LanguageBatches) -> None:
    whole = batches[3]
    parts = stack_rows([batches.rows(3, rank, 3) for rank in range(3)])
    assert (parts.tokens == whole.tokens).all()
    assert (parts.row == whole.row).all()


def test_stacked_rows_are_filled_up(batches: LanguageBatches) -> None:
    rows = batches[0]
    short = rows.select(slice(0, 1))
    fields = {name: getattr(short, name) for name in short.__dataclass_fields__}
    cut = type(short)(**{name: value[:, :3] if value is not None and value.ndim == 2 else value
                         for name, value in fields.items()})
    both = stack_rows([cut, rows])
    assert both.tokens.shape == (9, LENGTH)
    assert both.documents[0].tolist() == [0, 0, 0, PADDING, PADDING]


def test_a_small_language_is_repeated_for_the_tokenizer(write: Write) -> None:
    data = LanguageData(languages={"a": (write("a.txt", "a\n" * 4000),), "b": (write("b.txt", "b\n" * 1000),)},
                        document="line", tokenizer_alpha=0.5)
    counts = Counter("".join(LanguageCorpus(data).texts))
    assert counts["a"] == 3800  # read once
    assert counts["a"] / counts["b"] == pytest.approx(2, abs=0.01)  # 4 to 1 in the text, its root here


def test_a_broken_round_is_spread_evenly() -> None:
    assert list(repeat_texts(["1", "2", "3", "4"], 1.5)) == ["1", "2", "3", "4", "2", "4"]  # type: ignore[arg-type]


def test_stores_keep_the_order_of_the_languages(write: Write, tmp_path: Path) -> None:
    data = LanguageData(languages={"z": (write("z.txt", "z\n" * 40),), "a": (write("a.txt", "a\n" * 60),)},
                        document="line")
    corpus = LanguageCorpus(data)
    write_language_store(tmp_path / "s", corpus, lambda text, path: write_store(
        path, [Piece([len(document.text)]) for document in text.train], vocab=9))
    store = LanguageStore(tmp_path / "s")
    assert [*store.members] == ["z", "a"] == [*list_languages(data)]
    assert store.sizes.tolist() == [38, 57]
    assert len(store) == 95


def test_faults_name_the_language_and_the_file(write: Write, tmp_path: Path) -> None:
    name = write("a.txt", "text\n" * 50)
    with pytest.raises(InputError, match="is given as de and as en") as found:
        LanguageCorpus(LanguageData(languages={"de": (name,), "en": (name,)}))
    assert found.value.where == name
    with pytest.raises(InputError, match="holds the language de alone"):
        LanguageCorpus(LanguageData(languages={"de": (name,)}))

    def nothing(text: object, path: Path) -> None:
        raise InputError("the text gives no tokens", where="token store")

    corpus = LanguageCorpus(LanguageData(languages={"de": (name,), "en": (write("b.txt", "words\n" * 50),)}))
    with pytest.raises(InputError, match=r"token store \(language de\)"):
        write_language_store(tmp_path / "s", corpus, nothing)  # type: ignore[arg-type]


def test_the_own_languages_lie_on_every_machine() -> None:
    corpus = LanguageCorpus(LanguageData())
    heads = next(iter(corpus.members["python"].train)).text
    assert "(" in heads.splitlines()[0]
    assert next(iter(corpus.members["english"].train)).text != heads

"""What is trained on and what is held out: never the same text, nothing lost, the same every time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.text.config import Fraction, HeldOutFiles, PairData, Tail, TextData
from saucier.text.reading import corpus as corpora
from saucier.text.reading.corpus import PairCorpus, TextCorpus, choose_split, cut_documents
from saucier.text.reading.documents import Counts, Document
from saucier.text.reading.python_texts import read_python_documentation

Write = Callable[[str, str | bytes], str]


def joined(documents: object) -> str:
    """Join the texts of documents."""
    return "".join(document.text for document in documents)  # type: ignore[attr-defined]


def test_documentation_is_english_without_repeats_and_about_two_megabytes() -> None:
    counts = Counts()
    documents = list(read_python_documentation(counts))
    assert 1_500_000 < counts.bytes < 3_500_000
    assert counts.documents > 500
    assert counts.duplicates > 0
    texts = [document.text for document in documents if document.part == 0]
    assert len(set(texts)) == len(texts)
    assert [document.source for document in documents] == [document.source for document in read_python_documentation()]
    assert documents[0].source == "topic assert"
    assert any(document.source == "json.decoder" and "JSON" in document.text for document in documents)


def test_documentation_is_the_data_when_there_are_no_files() -> None:
    corpus = TextCorpus(TextData())
    held, trained = {d.source for d in corpus.held_out}, {d.source for d in corpus.train}
    assert not held & trained
    assert joined(corpus.train) == joined(d for d in read_python_documentation() if d.source in trained)
    assert corpus.train.counts.documents + corpus.held_out.counts.documents == len(held) + len(trained)
    assert 0.04 < len(held) / len(held | trained) < 0.06
    assert corpus.how == "5.0% of the documents, drawn evenly"


@given(st.floats(0.01, 0.6), st.integers(0, 9), st.integers(100, 400))
def test_drawn_documents_are_the_right_share_and_spread_evenly(fraction: float, seed: int, count: int) -> None:
    drawn, _ = choose_split(Fraction(fraction=fraction), [(True, 1)] * count, seed)
    held = [drawn(number) for number in range(count)]  # type: ignore[operator]
    assert held == [drawn(number) for number in range(count)]  # type: ignore[operator]
    expected = count * fraction
    # At most one document a stratum; two strata may meet in one document, which then counts once.
    assert sum(held) <= expected + 1
    assert sum(held) >= expected * (1 - fraction) - 2
    assert fraction > 0.1 or sum(held[: round(2 / fraction)]) >= 1


def test_another_seed_draws_others(write: Write) -> None:
    data = TextData(files=(write("a.txt", "\n".join(f"line {n}" for n in range(200))),), document="line")
    first, again, other = (joined(TextCorpus(data, seed=seed).held_out) for seed in (1, 1, 2))
    assert first == again != other
    fixed = data.model_copy(update={"held_out": Fraction(fraction=data.held_out.fraction, seed=1)})
    assert joined(TextCorpus(fixed, seed=2).held_out) == first  # a seed of its own goes before the training's


@given(
    st.lists(st.tuples(st.text(alphabet="ab \n", min_size=1, max_size=30), st.booleans()), min_size=1),
    st.integers(0, 400),
)
def test_a_cut_parts_the_text_and_loses_nothing(pieces: list[tuple[str, bool]], at: int) -> None:
    documents, part = [], 0
    for number, (text, starts) in enumerate(pieces):
        part = 0 if starts or number == 0 else part + 1
        documents.append(Document(text, "x", part=part))
    train = list(cut_documents(iter(documents), at, "train"))
    held = list(cut_documents(iter(documents), at, "held_out"))
    assert joined(train) + joined(held) == joined(documents)
    assert len(joined(train)) <= at
    assert not held or held[0].part == 0


def test_one_large_text_gives_its_tail(shared: Path) -> None:
    name = str(shared / "data/lm/tiny_shakespeare.txt")
    corpus = TextCorpus(TextData(files=(name,), held_out=Tail(fraction=0.1)))
    train, held = joined(corpus.train), joined(corpus.held_out)
    assert train + held == Path(name).read_text()
    assert len(held) == pytest.approx(111_539, abs=100)
    assert train.endswith("\n")
    assert "fewer than 20 documents" in TextCorpus(TextData(files=(name,))).how


def test_files_of_their_own(write: Write) -> None:
    data = TextData(files=(write("a.txt", "train"),), held_out=HeldOutFiles(files=(write("b.txt", "valid"),)))
    corpus = TextCorpus(data)
    assert (joined(corpus.train), joined(corpus.held_out)) == ("train", "valid")
    assert "b.txt" in corpus.how


def test_a_file_may_not_be_on_both_sides(write: Write, tmp_path: Path) -> None:
    write("a.txt", "train")
    data = TextData(
        files=(str(tmp_path / "*.txt"),), held_out=HeldOutFiles(files=(f"{tmp_path}/../{tmp_path.name}/a.txt",))
    )
    with pytest.raises(InputError, match=r"a\.txt: is both trained on and held out"):
        TextCorpus(data)


def test_duplicates_and_the_limit_are_counted(write: Write) -> None:
    lines = [f"line {number % 50}" for number in range(100)]
    data = TextData(files=(write("a.txt", "\n".join(lines)),), document="line", deduplicate=True)
    corpus = TextCorpus(data)
    texts = [document.text for part in (corpus.train, corpus.held_out) for document in part]
    assert sorted(texts) == sorted(set(lines))
    assert corpus.train.counts.duplicates == corpus.held_out.counts.duplicates == 50
    limited = TextCorpus(data.model_copy(update={"limit": 30, "deduplicate": False}))
    assert len(list(limited.train)) + len(list(limited.held_out)) == 30


def test_nothing_to_hold_out_is_one_clear_error(write: Write) -> None:
    with pytest.raises(InputError, match=r"data: is too little to hold out 5\.0%"):
        TextCorpus(TextData(files=(write("a.txt", "abc"),)))


def test_pairs_are_cut_like_documents(write: Write) -> None:
    rows = [(f"source {n}", f"target {n}") for n in range(100)]
    name = write("a.tsv", "en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in [*rows, rows[0]]))
    corpus = PairCorpus(PairData(files=(name,), deduplicate=True))
    train, held = ([(p.source, p.target) for p in part] for part in (corpus.train, corpus.held_out))
    assert sorted(train + held) == sorted(rows)
    assert len(held) == 5
    assert corpus.train.counts.duplicates == 1
    assert list(corpus.texts) == [text for pair in train for text in pair]
    tail = PairCorpus(PairData(files=(name,), held_out=Tail(fraction=0.2)))
    assert [pair.source for pair in tail.held_out][:2] == ["source 81", "source 82"]
    own = PairCorpus(PairData(files=(name,), held_out=HeldOutFiles(files=(write("b.tsv", "en\tde\nx\ty\n"),))))
    assert ([p.source for p in own.held_out], len(list(own.train))) == (["x"], 101)


@pytest.mark.slow
def test_pairs_without_files_are_pythons_own_functions() -> None:
    corpus = PairCorpus(PairData())
    train, held = ([(pair.source, pair.target) for pair in part] for part in (corpus.train, corpus.held_out))
    assert len(train) > 2000
    assert 0.04 < len(held) / len(train) < 0.06
    assert ("makedirs(name, mode, exist_ok)", "makedirs(name [, mode=0o777][, exist_ok=False])") in train + held
    for place in (0, 1):
        assert not {pair[place] for pair in train} & {pair[place] for pair in held}
    assert corpus.train.counts.duplicates > 100


def test_corpora_can_be_read_again_and_do_not_keep_text(write: Write) -> None:
    corpus = TextCorpus(TextData(files=(write("a.txt", "\n".join("abcdefghijklmnopqrstuvwxyz")),), document="line"))
    assert joined(corpus.train) == joined(corpus.train) == "".join(corpus.texts)
    assert corpora.View(lambda counts: iter([1, 2])).counts.documents == 0


def test_a_row_that_lacks_a_side_is_counted_or_named(write: Write) -> None:
    name = write("p.tsv", "en\tde\n" + "a\tb\n" * 30 + "c\t \n" + "d\te\n" + "\tf\n" * 12)
    corpus = PairCorpus(PairData(files=(name,)))
    assert len(list(corpus.train)) + len(list(corpus.held_out)) == 31
    assert corpus.train.counts.empty == 13
    others = "and so in lines 34, 35, 36, 37, 38, 39, 40, 41, 42, 43 and 2 more"
    with pytest.raises(InputError, match=f"is no pair: de is empty, {others}") as found:
        list(PairCorpus(PairData(files=(name,), held_out=Tail(fraction=0.1)), whole=True).train)
    assert found.value.where == f"{name}, line 32"

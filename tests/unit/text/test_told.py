"""Pairs whose languages are told: what is learned and held out, how texts begin, and how often directions come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from saucier.errors import InputError
from saucier.text.config import BPE, ColumnLanguages, HeldOutFiles, PairData, SpecialTokens, SyntheticPairs
from saucier.text.languages import count_repeats, read_directions
from saucier.text.reading.corpus import PairCorpus
from saucier.text.reading.documents import Pair
from saucier.text.rows.bucketed import BatchLimits, BucketedPairs
from saucier.text.rows.store import write_pairs
from saucier.text.tokenizer.language_tokens import LanguageTokens, add_language_tokens
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer

Write = Callable[[str, "str | bytes"], str]
TOLD = ColumnLanguages()


def table(first: str, second: str, count: int, start: int = 0) -> str:
    """Return a table of pairs whose texts nobody else has."""
    rows = (f"{first} {second} {n}\t{second} {first} {n}\n" for n in range(start, start + count))
    return f"{first}\t{second}\n" + "".join(rows)


@pytest.fixture
def corpus(write: Write) -> PairCorpus:
    """Return the pairs of two tables."""
    files = (write("a.tsv", table("eng", "deu", 60)), write("b.tsv", table("eng", "fra", 40)))
    return PairCorpus(PairData(files=files, languages=TOLD))


def test_both_ways_are_learned_and_both_are_held_out(corpus: PairCorpus) -> None:
    train, held_out = list(corpus.train), list(corpus.held_out)
    assert corpus.languages("train") == ("eng", "deu", "fra")
    for part in (train, held_out):
        assert {pair.direction for pair in part} == {"eng → deu", "deu → eng", "eng → fra", "fra → eng"}
        assert {(pair.source, pair.target) for pair in part} == {(pair.target, pair.source) for pair in part}
    assert len(train) + len(held_out) == 200
    assert all(pair.source.startswith((pair.languages or ("?",))[0]) for pair in train)
    learned = {text for pair in train for text in (pair.source, pair.target)}
    assert not learned & {text for pair in held_out for text in (pair.source, pair.target)}
    assert len(list(corpus.texts)) == len(train)  # each text once, both ways or not


def test_a_text_that_is_held_out_is_learned_in_no_table(write: Write) -> None:
    """The same pair the other way round in another table, and the same source with another target, are left out."""
    same = "".join(f"deu eng {n}\teng deu {n}\n" for n in range(60))
    third = "".join(f"eng deu {n}\tfra eng {n}\n" for n in range(60))
    files = (write("a.tsv", table("eng", "deu", 60)), write("b.tsv", "deu\teng\n" + same),
             write("c.tsv", "eng\tfra\n" + third))
    corpus = PairCorpus(PairData(files=files, languages=ColumnLanguages(both_ways=False)))
    held_out = list(corpus.held_out)
    texts = {text for pair in held_out for text in (pair.source, pair.target)}
    assert {pair.direction for pair in held_out} == {"eng → deu", "deu → eng", "eng → fra"}
    train = list(corpus.train)
    assert not texts & {text for pair in train for text in (pair.source, pair.target)}
    assert corpus.train.counts.shared == 180 - len(held_out) - len(train) > 0


def test_held_out_files_keep_their_texts_out_of_training(write: Write) -> None:
    files = (write("a.tsv", table("eng", "deu", 30)),)
    test = write("test.tsv", "deu\tfra\ndeu eng 3\tune phrase\n")
    corpus = PairCorpus(PairData(files=files, languages=TOLD, held_out=HeldOutFiles(files=(test,))))
    assert [pair.direction for pair in corpus.held_out] == ["deu → fra", "fra → deu"]
    assert len(list(corpus.train)) == 58
    assert corpus.languages("held_out") == ("deu", "fra")


def test_the_limit_is_each_tables(write: Write) -> None:
    files = (write("a.tsv", table("eng", "deu", 60)), write("b.tsv", table("eng", "fra", 60)))
    corpus = PairCorpus(PairData(files=files, languages=TOLD, limit=20))
    ways = Counter(pair.direction for part in (corpus.train, corpus.held_out) for pair in part)
    assert ways == dict.fromkeys(("eng → deu", "deu → eng", "eng → fra", "fra → eng"), 20)


def test_synthetic_pairs_are_learned_one_way(write: Write) -> None:
    files, made = (write("a.tsv", table("eng", "deu", 30)),), write("m.tsv", "fra\teng\nfaux\ttrue\n")
    data = PairData(files=files, languages=TOLD, synthetic=SyntheticPairs(files=(made,), tag="<BT>"))
    *_, last = PairCorpus(data).train
    assert (last.source, last.target, last.direction) == ("<BT> faux", "true", "fra → eng")
    assert PairCorpus(data).languages("train") == ("eng", "deu", "fra")


def test_more_columns_than_two_are_refused(write: Write) -> None:
    name = write("a.tsv", "eng\tdeu\tfra\na\tb\tc\n")
    with pytest.raises(InputError, match="has the columns eng, deu, fra, and two that are called by languages"):
        PairCorpus(PairData(files=(name,), languages=TOLD))


def trained(corpus: PairCorpus, vocab: int = 60) -> Tokenizer:
    """Train a small tokenizer on a corpus."""
    special = SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>", single="$A </s>", pair="$A </s> $B </s>")
    return train_tokenizer(add_language_tokens(BPE(vocab=vocab, special=special), corpus.languages("train")),
                           corpus.texts)


def test_every_text_begins_with_its_language_and_ends_with_the_end_token(corpus: PairCorpus, tmp_path: Path) -> None:
    """As the release of M2M-100 lays pairs out: [language] text [end] on both sides."""
    tokenizer = trained(corpus)
    assert tokenizer.vocab_size == 60
    ids = {name: tokenizer.token_to_id(f"__{name}__") for name in ("eng", "deu", "fra")}
    assert [*ids.values()] == [4, 5, 6]
    assert tokenizer.encode("eng")[0] == ids["eng"]  # until another is told
    store = write_pairs(tmp_path / "s", corpus.train, tokenizer)
    for number, pair in enumerate(corpus.train):
        assert pair.languages is not None
        for side, text, name in zip((store.source, store.target), (pair.source, pair.target), pair.languages,
                                    strict=True):
            wanted = [ids[name], *tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_id]
            assert side.document(number).tolist() == wanted
    assert {(ids["deu"], ids["eng"]), (ids["eng"], ids["fra"])} <= {*map(tuple, read_directions(store).tolist())}


def test_tokenizers_that_cannot_tell_are_refused(corpus: PairCorpus, tmp_path: Path) -> None:
    plain = train_tokenizer(BPE(vocab=60), corpus.texts)
    with pytest.raises(InputError, match="does not put texts between a token of their language and the end token"):
        LanguageTokens(plain)
    with pytest.raises(InputError, match=r"x.tsv, line 2: the model knows no language 'ita'"):
        write_pairs(tmp_path / "s", [Pair("a", "b", "x.tsv, line 2", ("eng", "ita"))], trained(corpus))
    with pytest.raises(InputError, match="the column 'source' is not called by a language"):
        add_language_tokens(BPE(), ("eng", "source"))


TWO = np.array([[4, 5]] * 900 + [[5, 4]] * 100)


def test_directions_come_by_their_shares() -> None:
    times = count_repeats(TWO, 0.2)
    shares = np.array([9.0, 1.0]) ** 0.2
    assert times.min() == 1
    assert times[:900].max() == 1  # the direction that needs it least is read once
    assert times[900:].sum() / times.sum() == pytest.approx(shares[1] / shares.sum(), abs=1e-3)
    assert times[900:].max() - times[900:].min() == 1
    assert abs(int(times[900:950].sum()) - int(times[950:].sum())) <= 1  # a broken share is spread evenly
    assert (count_repeats(TWO, 1.0) == 1).all()
    assert count_repeats(TWO, 0.0)[900:].tolist() == [9] * 100
    assert (count_repeats(np.array([[4, 5], [5, 4]] * 50), 0.0) == 1).all()


def test_an_epoch_has_each_pair_as_often_as_it_is_wanted(corpus: PairCorpus, tmp_path: Path) -> None:
    store = write_pairs(tmp_path / "s", corpus.train, trained(corpus))
    times = count_repeats(read_directions(store), 0.2)
    batches = BucketedPairs(store, BatchLimits(batch=16), seed=3, times=times)
    for epoch in range(2):
        first = epoch * batches.steps_per_epoch
        items = np.concatenate([batches[step].item for step in range(first, first + batches.steps_per_epoch)])
        assert np.bincount(items, minlength=len(store)).tolist() == times.tolist()
    assert batches.counts["rows"] == times.sum() > len(store)

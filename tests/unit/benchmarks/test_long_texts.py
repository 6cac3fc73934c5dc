"""The made rows of the long tasks: what they hold, and that nothing but the key's sentence tells the answer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from benchmarks.long_texts import COLOURS, hidden_key, hidden_keys

BOOK = [f"word{number}" for number in range(5000)]


def test_one_sentence_tells_the_answer() -> None:
    """The key is named once, its colour is the label, and the row has as many words as asked, whatever the length."""
    draw = random.Random(0)
    for words in (20, 30, 700, 4000):
        colour, text = hidden_key(BOOK, words, draw)
        assert len(text.split()) == words
        assert text.count("The key is") == 1
        assert f"The key is {colour}." in text
        assert sum(text.count(f" is {one}.") for one in COLOURS) >= 2


def test_the_key_stands_anywhere() -> None:
    """Tenths of the row hold it about equally often (five standard deviations of a binomial)."""
    draw = random.Random(1)
    tenths = Counter(hidden_key(BOOK, 1000, draw)[1].split().index("key") // 100 for _ in range(1000))
    assert all(abs(tenths[tenth] - 100) < 50 for tenth in range(10))


def test_counts_of_colours_say_little() -> None:
    """The commonest colour of a long row is the key's in less than a third of all rows; a guess is right in 1/8."""
    draw, right = random.Random(2), 0
    for _ in range(500):
        colour, text = hidden_key(BOOK, 2000, draw)
        right += Counter(word[:-1] for word in text.split() if word[:-1] in COLOURS).most_common(1)[0][0] == colour
    assert right / 500 < 1 / 3


def test_rows_follow_from_the_seed(tmp_path: Path) -> None:
    """The same seed gives the same rows, another seed others."""
    path = tmp_path / "book.txt"
    path.write_text(" ".join(BOOK), encoding="utf-8")
    again = [list(hidden_keys([path], 5, 50, seed)) for seed in (3, 3, 4)]
    assert again[0] == again[1] != again[2]

"""Each rule of lines and of documents, on text where it must act and on text where it must not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from saucier.errors import InputError
from saucier.text.cleaning import config as rules
from saucier.text.cleaning.cleaner import Cleaner, Place, Tally
from saucier.text.cleaning.config import SETS, Cleaning, Rule
from saucier.text.cleaning.page import Page, find_sentence_ends

PROSE = ("The cook stirs the sauce in a large pot, and he tastes it with a spoon. It needs a little more salt, "
         "to be good with bread that the guests have brought. \"Is it ready?\" asks one of them.")


def cleaned(text: str, *given: Rule) -> tuple[str | None, str, Tally]:
    """Clean a text; return what is left (None where it was dropped), why it was dropped, and the counts."""
    tally = Tally()
    page = Page(text)
    dropped = Cleaner(Cleaning(rules=given), tally).clean(page, Place("page.txt", 1))
    return (None, f"{dropped.rule}: {dropped.fault.reason}", tally) if dropped else (page.text, "", tally)


LINES = [
    (rules.TerminalPunctuation(), "It boils.\nMenu\nIs it hot?\nShe said \"yes\"\nAnd then...\nStop!",
     "It boils.\nIs it hot?\nShe said \"yes\"\nStop!", 2),
    (rules.ShortLines(), "one two three four\none two three four five", "one two three four five", 1),
    (rules.LongWords(characters=5), "short words\nabcdef is long", "short words", 1),
    (rules.Javascript(), "Please enable JavaScript now.\nThe sauce is hot.", "The sauce is hot.", 1),
    (rules.Policies(), "We use cookies here.\nRead our Privacy Policy.\nThe cook uses salt.", "The cook uses salt.", 2),
]


@pytest.mark.parametrize(("rule", "text", "left", "count"), LINES, ids=lambda value: getattr(value, "kind", ""))
def test_a_rule_of_lines_removes_the_lines_it_names(rule: Rule, text: str, left: str, count: int) -> None:
    found, _, tally = cleaned(text, rule)
    assert (found, tally.rules[rule.kind].lines) == (left, count)


def test_the_numbers_of_c4_are_those_of_the_paper() -> None:
    """Raffel et al. 2020: five words a line, three sentences a page, spans of three sentences."""
    found = {rule.kind: rule for rule in SETS["c4"]}
    assert found["short_lines"] == rules.ShortLines(words=5)
    assert found["few_sentences"] == rules.FewSentences(sentences=3)
    assert found["repeated_spans"] == rules.RepeatedSpans(sentences=3)
    assert found["long_words"] == rules.LongWords(characters=1000)


def test_citations_are_taken_out_of_lines() -> None:
    found, _, tally = cleaned("Salt[12] is old.[citation needed] [edit]\nA list [a] of b.", rules.Citations())
    assert found == "Salt is old.\nA list [a] of b."
    assert tally.rules["citations"].changed == 1


def test_empty_lines_between_paragraphs_stay_single() -> None:
    found, _, _ = cleaned("One line stays.\n\nMenu\n\nAnother one stays.", rules.TerminalPunctuation())
    assert found == "One line stays.\n\nAnother one stays."


def test_a_page_without_lines_is_the_fault_of_the_rule_that_took_the_last_one() -> None:
    found, why, tally = cleaned("Menu\nToo short.", rules.TerminalPunctuation(), rules.ShortLines())
    assert found is None
    assert why.startswith("short_lines")
    assert (tally.emptied, tally.rules["short_lines"].documents) == (1, 1)


WORDS = " ".join(["the cook and his sauce have to be good"] * 7)
PAGES = [
    (rules.LoremIpsum(), "Some text. Lorem IPSUM dolor."),
    (rules.CurlyBrackets(), "int main() {"),
    (rules.FewSentences(), "One sentence here. Another one."),
    (rules.WordCount(), "too few words"),
    (rules.WordCount(least=1, most=3), "one two three four"),
    (rules.WordLength(), "a b c d ee"),
    (rules.WordLength(), "incomprehensibilities notwithstanding"),
    (rules.Symbols(), "#one #two three four five six seven eight nine"),
    (rules.Symbols(), "one... two three four... five six"),
    (rules.Bullets(), "\n".join(["- a bullet"] * 19 + ["no bullet"])),
    (rules.Ellipses(), "teaser...\nteaser…\nwhole line\nwhole line two\nwhole line three"),
    (rules.AlphabeticWords(), "12 34 the and 56"),
    (rules.StopWords(), "sauce pot spoon the"),
    (rules.RepeatedLines(), "a line\nb line\na line\na line"),
    (rules.RepeatedLines(), "a\nb\nc\nd\ne\nf\nthis line is very long\nthis line is very long"),
    (rules.RepeatedParagraphs(), "one paragraph\n\nanother\n\none paragraph"),
    (rules.RepeatedNgrams(), WORDS),
]


@pytest.mark.parametrize(("rule", "text"), PAGES, ids=[f"{rule.kind}-{place}" for place, (rule, _) in enumerate(PAGES)])
def test_a_rule_of_documents_drops_what_it_names_and_keeps_prose(rule: Rule, text: str) -> None:
    found, why, tally = cleaned(text, rule)
    assert (found, why.partition(":")[0], tally.rules[rule.kind].documents) == (None, rule.kind, 1)
    lenient = rules.WordCount(least=5) if rule == rules.WordCount() else rule
    if lenient != rules.WordCount(least=1, most=3):
        assert cleaned(PROSE, lenient)[0] == PROSE


@pytest.mark.parametrize(("text", "share", "drops"), [("#a b c d e f g h i j", 0.1, False),
                                                      ("#a b c d e f g h i", 0.1, True)])
def test_a_limit_itself_is_allowed(text: str, share: float, drops: bool) -> None:
    assert (cleaned(text, rules.Symbols(ratio=share))[0] is None) == drops


def naive_repeated(words: list[str], length: int) -> int:
    """Count the characters of words in runs that stood there before, in plain loops."""
    seen, covered = set(), set()
    for start in range(len(words) - length + 1):
        run = tuple(words[start:start + length])
        if run in seen:
            covered |= set(range(start, start + length))
        seen.add(run)
    return sum(len(words[place]) for place in covered)


def naive_commonest(words: list[str], length: int) -> int:
    """Count the characters in all occurrences of the commonest run, in plain loops."""
    counts = Counter(tuple(words[start:start + length]) for start in range(len(words) - length + 1))
    run, count = (counts.most_common(1) or [((), 0)])[0]
    return count * sum(map(len, run)) if count > 1 else 0


@pytest.mark.parametrize("text", [PROSE, WORDS, "a b c a b c a b d e f " * 3, "x y z", " ".join("abcabcabcd" * 4)])
@pytest.mark.parametrize("length", [2, 3, 5])
def test_counting_repeated_runs_equals_plain_loops(text: str, length: int) -> None:
    from saucier.text.cleaning.rules import count_commonest, count_repeated

    page = Page(text)
    assert count_repeated(page.word_hashes, page.lengths, length) == naive_repeated(page.words, length)
    assert count_commonest(page.word_hashes, page.lengths, length) == naive_commonest(page.words, length)


def test_longer_runs_cover_no_more_than_shorter_ones() -> None:
    """What lets the rule stop at the shortest runs."""
    words = ("a b c d e f g " * 3 + "h i j k a b c d e f x y " * 2).split()
    covered = [naive_repeated(words, length) for length in range(2, 11)]
    assert covered == sorted(covered, reverse=True)


def test_bad_words_are_whole_words_and_phrases(tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("Slop\nburnt toast\n\n")
    rule = rules.BadWords(file=str(listed))
    assert cleaned("This is SLOP.", rule)[1] == "bad_words: holds the listed word 'slop'"
    assert cleaned("The burnt toast smells.", rule)[1] == "bad_words: holds the listed phrase 'burnt toast'"
    assert cleaned("The burnt  toast smells.", rule)[1] == "bad_words: holds the listed phrase 'burnt toast'"
    assert cleaned("Sloppy burnt toasters.", rule)[0] is not None
    listed.write_text("\n")
    with pytest.raises(InputError, match="lists no bad word"):
        cleaned("text", rule)


@pytest.mark.parametrize(("text", "ends"), [
    ("One. Two! Three?", 3), ("He said \"no.\" Then he left.", 2), ("Version 3.14 is out.", 1), ("A line\nanother", 2),
    ("日本語です。次の文。", 2), ("   ", 0), ("Wait... what?", 2)])
def test_sentences_end_where_a_reader_says(text: str, ends: int) -> None:
    assert len(find_sentence_ends(text)) == ends


def test_evaluation_text_is_found_whatever_its_case_and_punctuation(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(20)]
    target = tmp_path / "test.jsonl"
    target.write_text('{"question": "' + " ".join(words[:14]) + '", "answer": "short", "id": 3}\n'
                      '{"question": "' + " ".join(words[5:13]) + ' end", "answer": "", "id": 4}\n')
    rule = rules.Contamination(files=(str(target),))
    assert "13 words" in cleaned("So: " + ", ".join(words[1:14]).upper() + "!", rule)[1]
    assert cleaned("So: " + " ".join(words[2:14]), rule)[0] is not None, "twelve words are not enough"
    assert "9 words" in cleaned("x " + " ".join(words[5:13]) + " end y", rule)[1], "a shorter text counts as a whole"
    target.write_text('{"question": "too short to find"}\n')
    with pytest.raises(InputError, match="has the 8 words"):
        cleaned("text", rule)


@pytest.mark.parametrize("text", ["Der Koch rührt die Soße in einem großen Topf und schmeckt sie ab.",
                                  "Le cuisinier remue la sauce dans une grande casserole."])
def test_other_languages_go(text: str) -> None:
    pytest.importorskip("py3langid")
    rule = rules.Language(code="en", probability=0.9)
    assert cleaned(text, rule)[1].startswith("language: is ")
    assert cleaned(PROSE, rule)[0] == PROSE


def test_a_language_nobody_knows_is_refused() -> None:
    pytest.importorskip("py3langid")
    with pytest.raises(InputError, match=r"no language has the code 'qq'"):
        cleaned("text", rules.Language(code="qq"))


def test_a_rule_stands_once() -> None:
    with pytest.raises(InputError, match="short_lines stands there twice"):
        Cleaning(rules=(rules.ShortLines(), rules.ShortLines(words=2)))

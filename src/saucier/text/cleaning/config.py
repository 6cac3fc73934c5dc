"""Cleaning rules, as data: told apart by `kind`, and the built-in sets of them. No reading here.

Rules of lines and pages run in the order of the list, each on what those before it left. The rules of the whole
corpus (`Duplicates`) come after them, always in the order of their union.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saucier.config.base import Config

Share = Annotated[float, Field(ge=0, le=1)]


class Citations(Config):
    """Remove the marks of encyclopedias, `[1]`, `[]`, `[edit]` and `[citation needed]`, from lines.

    Source: Raffel et al. 2020, §2.2, arXiv:1910.10683.
    """

    kind: Literal["citations"] = "citations"


class TerminalPunctuation(Config):
    """Keep lines that end a sentence. Source: Raffel et al. 2020, §2.2, and their code for the ellipsis."""

    kind: Literal["terminal_punctuation"] = "terminal_punctuation"
    marks: tuple[str, ...] = (".", "!", "?", '"', "”")
    """What a line must end with; ours adds the curly quotation mark."""
    not_marks: tuple[str, ...] = ("...", "…")
    """What it must not end with."""


class ShortLines(Config):
    """Remove lines of few words. Source: Raffel et al. 2020, §2.2 (the first version of the paper said 3)."""

    kind: Literal["short_lines"] = "short_lines"
    words: int = Field(default=5, ge=1)
    """The fewest words of a line that is kept."""


class LongWords(Config):
    """Remove lines that hold a word so long that it is none. Source: the code published with Raffel et al. 2020."""

    kind: Literal["long_words"] = "long_words"
    characters: int = Field(default=1000, ge=1)
    """The longest word of a line that is kept."""


class Javascript(Config):
    """Remove lines that ask for javascript. Source: Raffel et al. 2020, §2.2."""

    kind: Literal["javascript"] = "javascript"
    phrases: tuple[str, ...] = ("javascript",)
    """Lower case; a line that holds one of them is removed."""


class Policies(Config):
    """Remove lines about terms of use, privacy and cookies. Source: Raffel et al. 2020, §2.2."""

    kind: Literal["policies"] = "policies"
    phrases: tuple[str, ...] = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies",
                                "use cookies")
    """Lower case; a line that holds one of them is removed."""


class LoremIpsum(Config):
    """Drop documents of placeholder text. Source: Raffel et al. 2020, §2.2."""

    kind: Literal["lorem_ipsum"] = "lorem_ipsum"
    phrases: tuple[str, ...] = ("lorem ipsum",)
    """Lower case; a document that holds one of them is dropped."""


class CurlyBrackets(Config):
    """Drop documents that look like code. Source: Raffel et al. 2020, §2.2."""

    kind: Literal["curly_brackets"] = "curly_brackets"
    phrases: tuple[str, ...] = ("{",)
    """A document that holds one of them is dropped."""


class BadWords(Config):
    """Drop documents with a word or phrase of a list of the user's; none comes with Saucier.

    Source: Raffel et al. 2020, §2.2.
    """

    kind: Literal["bad_words"] = "bad_words"
    file: str
    """A text file with a word or a phrase on each line; letter case does not matter."""


class FewSentences(Config):
    """Drop documents of few sentences. Source: Raffel et al. 2020, §2.2 (the first version of the paper said 5)."""

    kind: Literal["few_sentences"] = "few_sentences"
    sentences: int = Field(default=3, ge=1)
    """The fewest sentences of a document that is kept; it is asked again after repeated spans were removed."""


class Language(Config):
    """Keep documents in one language, as py3langid names it. Source: Raffel et al. 2020, §2.2 (langdetect there)."""

    kind: Literal["language"] = "language"
    code: str = Field(default="en", pattern="^[a-z]{2,3}$")
    """The language, by its ISO 639-1 code."""
    probability: Share = 0.99
    """The least probability."""
    characters: int = Field(default=2000, ge=1)
    """How much of a document is looked at."""


class WordCount(Config):
    """Drop documents of too few or too many words. Source: Rae et al. 2021, appendix A1.1, arXiv:2112.11446."""

    kind: Literal["word_count"] = "word_count"
    least: int = Field(default=50, ge=0)
    """The fewest words."""
    most: int = Field(default=100_000, ge=1)
    """The most words."""


class WordLength(Config):
    """Drop documents whose words are short or long on the average. Source: Rae et al. 2021, appendix A1.1."""

    kind: Literal["word_length"] = "word_length"
    least: float = Field(default=3.0, ge=0)
    """The least mean length, in characters."""
    most: float = Field(default=10.0, gt=0)
    """The largest mean length, in characters."""


class Symbols(Config):
    """Drop documents with many hash signs or many ellipses for their words. Source: Rae et al. 2021, appendix A1.1."""

    kind: Literal["symbols"] = "symbols"
    ratio: float = Field(default=0.1, ge=0)
    """The most of either for each word."""


class Bullets(Config):
    """Drop documents that are lists. Source: Rae et al. 2021, appendix A1.1."""

    kind: Literal["bullets"] = "bullets"
    share: Share = 0.9
    """The largest share of lines that start with a bullet."""
    marks: tuple[str, ...] = ("•", "‣", "◦", "▪", "●", "■", "-", "*")
    """What counts as one; the paper does not list them."""


class Ellipses(Config):
    """Drop documents of teasers. Source: Rae et al. 2021, appendix A1.1."""

    kind: Literal["ellipses"] = "ellipses"
    share: Share = 0.3
    """The largest share of lines that end with an ellipsis."""


class AlphabeticWords(Config):
    """Drop documents whose words are numbers and signs. Source: Rae et al. 2021, appendix A1.1."""

    kind: Literal["alphabetic_words"] = "alphabetic_words"
    share: Share = 0.8
    """The least share of words that hold a letter."""


class StopWords(Config):
    """Drop documents without the commonest words of the language. Source: Rae et al. 2021, appendix A1.1."""

    kind: Literal["stop_words"] = "stop_words"
    words: tuple[str, ...] = ("the", "be", "to", "of", "and", "that", "have", "with")
    """The words, in lower case."""
    least: int = Field(default=2, ge=0)
    """How many different ones there must be."""


class RepeatedLines(Config):
    """Drop documents that repeat lines of their own. Source: Rae et al. 2021, table A1."""

    kind: Literal["repeated_lines"] = "repeated_lines"
    share: Share = 0.3
    """The largest share of lines that stood there before."""
    characters: Share = 0.2
    """The largest share of characters in such lines."""


class RepeatedParagraphs(Config):
    """Drop documents that repeat paragraphs of their own. Source: Rae et al. 2021, table A1."""

    kind: Literal["repeated_paragraphs"] = "repeated_paragraphs"
    share: Share = 0.3
    """The largest share of paragraphs that stood there before."""
    characters: Share = 0.2
    """The largest share of characters in such paragraphs."""


class RepeatedNgrams(Config):
    """Drop documents that say the same again and again. Source: Rae et al. 2021, table A1.

    `commonest` holds the largest share of characters in all occurrences of the commonest n-gram, by n; `repeated` that
    in n-grams that stood there before, each character counted once. Shares are of the characters of words.
    """

    kind: Literal["repeated_ngrams"] = "repeated_ngrams"
    commonest: dict[int, Share] = Field(default={2: 0.20, 3: 0.18, 4: 0.16})
    repeated: dict[int, Share] = Field(default={5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10})

    @model_validator(mode="after")
    def _whole(self) -> RepeatedNgrams:
        if min(self.commonest.keys() | self.repeated.keys(), default=1) < 1:
            raise ValueError("an n-gram has at least one word")
        return self


class Contamination(Config):
    """Drop documents that share a run of words with text that models are to be evaluated on.

    Words are compared in lower case, without punctuation. Source: Brown et al. 2020, appendix C, arXiv:2005.14165
    (which cuts out the run and its surroundings; we drop the document).
    """

    kind: Literal["contamination"] = "contamination"
    files: tuple[str, ...] = Field(min_length=1)
    """The evaluation text: lines of .txt files, every text cell of tables."""
    words: int = Field(default=13, ge=1)
    """The length of a run."""
    shortest: int = Field(default=8, ge=1)
    """A line or cell shorter than a run is looked for as a whole, if it has so many words."""


class ExactDuplicates(Config):
    """Drop documents equal to an earlier one, letter case and white space aside (128 bits of hash are compared)."""

    kind: Literal["exact_duplicates"] = "exact_duplicates"


class NearDuplicates(Config):
    """Drop all but the first of documents that share most of their n-grams of words.

    Candidates agree in all rows of a band of MinHash values, which has the probability `1 - (1 - J^rows)^bands` at a
    Jaccard similarity J; then J itself is computed. Source: Broder 1997, "On the resemblance and containment of
    documents"; Lee et al. 2022, §4.2 and appendix A, arXiv:2107.06499 (there 20 rows, 450 bands, and an edit
    distance).
    """

    kind: Literal["near_duplicates"] = "near_duplicates"
    similarity: float = Field(default=0.8, gt=0, le=1)
    """The least Jaccard similarity of duplicates."""
    words: int = Field(default=5, ge=1)
    """The length of an n-gram."""
    bands: int = Field(default=20, ge=1)
    """How many bands."""
    rows: int = Field(default=6, ge=1)
    """MinHash values in a band."""
    seed: int = Field(default=0, ge=0)
    """Of the hash functions."""


class RepeatedSpans(Config):
    """Remove all but the first occurrence of any run of sentences in the corpus. Source: Raffel et al. 2020, §2.2.

    The code published with the paper removes repeated lines instead. Letter case and white space do not count.
    """

    kind: Literal["repeated_spans"] = "repeated_spans"
    sentences: int = Field(default=3, ge=1)
    """The length of a run."""


LineRule = Citations | LongWords | TerminalPunctuation | ShortLines | Javascript | Policies
PageRule = (LoremIpsum | CurlyBrackets | BadWords | FewSentences | Language | WordCount | WordLength | Symbols | Bullets
            | Ellipses | AlphabeticWords | StopWords | RepeatedLines | RepeatedParagraphs | RepeatedNgrams
            | Contamination)
Duplicates = ExactDuplicates | NearDuplicates | RepeatedSpans
Rule = Annotated[LineRule | PageRule | Duplicates, Field(discriminator="kind")]

C4: tuple[Rule, ...] = (LongWords(), Citations(), TerminalPunctuation(), ShortLines(), LoremIpsum(), Javascript(),
                        CurlyBrackets(), Policies(), FewSentences(), RepeatedSpans())
"""Raffel et al. 2020 in the order of their code; the list of bad words and the language are the user's to add."""
GOPHER: tuple[Rule, ...] = (WordCount(), WordLength(), Symbols(), Bullets(), Ellipses(), AlphabeticWords(), StopWords(),
                            RepeatedLines(), RepeatedParagraphs(), RepeatedNgrams(), ExactDuplicates())
"""Rae et al. 2021, appendix A1; what is near a duplicate is left to `all`."""
SETS: dict[str, tuple[Rule, ...]] = {"c4": C4, "gopher": GOPHER,
                                     "all": (*C4[:-1], *GOPHER, NearDuplicates(), RepeatedSpans())}


class Shuffle(Config):
    """Put the documents into a random order, drawn from a seed."""

    kind: Literal["shuffle"] = "shuffle"
    seed: int = Field(default=0, ge=0)
    """Another seed, another order."""


class Unshuffled(Config):
    """Leave the documents in the order of the files."""

    kind: Literal["unshuffled"] = "unshuffled"


class Cleaning(Config):
    """All that decides what comes out of a cleaning, but for the raw text itself."""

    rules: tuple[Rule, ...] = SETS["all"]
    """Which rules, and in which order; each kind stands there once."""
    document: Literal["file", "paragraph", "line"] = "file"
    """What one document is in a .txt file (a row is a document everywhere else)."""
    column: str | None = None
    """The column of a table or JSONL file; none means `text`, or the only column that there is."""
    order: Annotated[Shuffle | Unshuffled, Field(discriminator="kind")] = Shuffle()
    """The order of the documents that are kept."""
    shard: int = Field(default=256_000_000, ge=1)
    """A file of the corpus ends after so many bytes of text."""
    compression: Literal["zst"] | None = None
    """How the files of the corpus are compressed."""

    @model_validator(mode="after")
    def _each_once(self) -> Cleaning:
        kinds = [rule.kind for rule in self.rules]
        if twice := [kind for kind in kinds if kinds.count(kind) > 1]:
            raise ValueError(f"the rule {twice[0]} stands there twice")
        return self

"""Text in a recipe, as data: where it comes from, what is held out, and the tokenizer. No torch, no reading here.

Every choice that excludes another is a union with a `kind`; `reading` and `tokenizer` do the work.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.text.reading.guessing import ReadOptions


class Fraction(Config):
    """Hold out whole documents, one drawn from every 1/fraction; a text of too few documents gives its tail instead."""

    kind: Literal["fraction"] = "fraction"
    fraction: float = Field(default=0.05, gt=0, lt=1)
    """The share that is held out; of the documents, or of the characters where the tail is taken."""
    seed: int | None = Field(default=None, ge=0)
    """Draws the documents; None: as `training.seed` says. With one of its own, runs of any seed have the same text."""


class Tail(Config):
    """Hold out the end of the text (the usual split of tiny Shakespeare)."""

    kind: Literal["tail"] = "tail"
    fraction: float = Field(default=0.1, gt=0, lt=1)
    """The share of the characters (of the pairs, for pair data) that is held out."""


class HeldOutFiles(Config):
    """Hold out whole files: the corpus comes with its own split."""

    kind: Literal["files"] = "files"
    files: tuple[str, ...] = Field(min_length=1)
    """Paths or globs, read like `data.files`."""


HeldOut = Annotated[Fraction | Tail | HeldOutFiles, Field(discriminator="kind")]


class TextData(Config):
    """Running text: documents for language modelling."""

    kind: Literal["text"] = "text"
    files: tuple[str, ...] = ()
    """Paths, globs or `-` for standard input; none means Python's own documentation."""
    column: str | None = None
    """The column of a table or JSONL file; none means `text`, or the only column that there is."""
    document: Literal["file", "paragraph", "line"] = "file"
    """What one document is in a .txt file (a row is a document everywhere else)."""
    deduplicate: bool = False
    """Skip documents seen before (exact; remembers 16 bytes of hash for each). Always on for Python's documentation."""
    limit: int | None = Field(default=None, gt=0)
    """Stop after so many documents."""
    held_out: HeldOut = Fraction()
    """What is kept away from training, to measure with."""
    delimiter: str | None = None
    """What divides the columns of tables: a letter, or comma, semicolon, tab, bar; None: guessed for each file."""
    encoding: str | None = None
    """How the files are written, such as cp1252; None: guessed for each file."""

    @property
    def read_options(self) -> ReadOptions:
        """How the files are read."""
        return ReadOptions(self.delimiter, self.encoding)


class SyntheticPairs(Config):
    """Pairs whose source a model has written, learned beside the real ones and never held out.

    Source: Sennrich et al. 2016, §3.2, arXiv:1511.06709.
    """

    files: tuple[str, ...] = Field(min_length=1)
    """Tables, read like `data.files`, as `saucier backtranslate` writes them."""
    real: int = Field(default=1, ge=1)
    """How often each real pair comes for each time that a synthetic one comes."""
    tag: str | None = None
    """A token before every synthetic source, which tells it from a real one; it stands in `special.extra`.

    Source: Caswell et al. 2019, §3, arXiv:1906.06442.
    """


class ColumnLanguages(Config):
    """Tables whose two columns are called by their languages; one model learns them all (many to many).

    Both texts of a pair begin with the token of their language, such as `__deu__` for the column deu.
    Source: Fan et al. 2021 (M2M-100), arXiv:2010.11125; the layout is that of its release.
    """

    both_ways: bool = True
    """Learn and measure each pair the other way round, too; else from the first column to the second alone."""
    alpha: float = Field(default=0.2, ge=0, le=1)
    """A pair is of direction i with probability q_i ∝ p_i^alpha, p_i its share of the pairs: 1 draws by size, 0 all
    directions alike; 0.2 is the temperature of 5 of Arivazhagan et al. 2019, arXiv:1907.05019. M2M-100 balances
    languages instead, by Sinkhorn's iterations, which is not done here."""


class PairData(Config):
    """Pairs of texts: translation, summarization and everything else with a source and a target."""

    kind: Literal["pairs"] = "pairs"
    files: tuple[str, ...] = ()
    """Tables or JSONL: paths, globs or `-`; none means the heads of Python's own functions and their first lines."""
    source: str | None = None
    """The source column; none (with `target`) means the first column of exactly two."""
    target: str | None = None
    """The target column; none (with `source`) means the second column of exactly two."""
    languages: ColumnLanguages | None = None
    """How the languages of tables are told; None: all pairs are of one direction, which nobody needs to name."""
    deduplicate: bool = False
    """Skip pairs seen before (exact; remembers 16 bytes of hash for each)."""
    limit: int | None = Field(default=None, gt=0)
    """Stop after so many pairs; of each table, where languages are told."""
    synthetic: SyntheticPairs | None = None
    """Pairs made by back-translation, beside those of `files`."""
    held_out: HeldOut = Fraction()
    """What is kept away from training, to measure with."""
    delimiter: str | None = None
    """As in `text`."""
    encoding: str | None = None
    """As in `text`."""

    @property
    def read_options(self) -> ReadOptions:
        """How the files are read."""
        return ReadOptions(self.delimiter, self.encoding)


Language = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
"""The name of a language, such as `de` or `de_DE`; a folder is called by it."""


class LanguageData(Config):
    """Running text in several languages; a row is of one language, and small languages come more often than their size.

    Source: Lample and Conneau 2019 (XLM), §3.1, arXiv:1901.07291; Liu et al. 2020 (mBART), §2.1, arXiv:2001.08210.
    """

    kind: Literal["languages"] = "languages"
    languages: dict[Language, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Paths or globs of each language; none means Python's own: the heads of its functions and its documentation."""
    alpha: float = Field(default=0.7, ge=0, le=1)
    """A row is of language i with probability q_i ∝ p_i^alpha, p_i its share of the tokens: 1 draws by size, 0 all
    languages alike."""
    tokenizer_alpha: float = Field(default=0.5, ge=0, le=1)
    """The same for the characters that the tokenizer is trained on."""
    column: str | None = None
    """As in `text`."""
    document: Literal["file", "paragraph", "line"] = "file"
    """As in `text`."""
    deduplicate: bool = False
    """As in `text`, within each language."""
    limit: int | None = Field(default=None, gt=0)
    """Stop after so many documents of each language."""
    held_out: Annotated[Fraction | Tail, Field(discriminator="kind")] = Fraction()
    """What is kept away from training in each language."""
    delimiter: str | None = None
    """As in `text`."""
    encoding: str | None = None
    """As in `text`."""

    @property
    def read_options(self) -> ReadOptions:
        """How the files are read."""
        return ReadOptions(self.delimiter, self.encoding)

    @property
    def files(self) -> tuple[str, ...]:
        """Those of all languages."""
        return tuple(name for names in self.languages.values() for name in names)

    def of(self, language: str) -> TextData:
        """Return the text of one language."""
        return TextData(files=self.languages.get(language, ()), column=self.column, document=self.document,
                        deduplicate=self.deduplicate, limit=self.limit, held_out=self.held_out,
                        delimiter=self.delimiter, encoding=self.encoding)


OWN_LANGUAGES = ("python", "english")
"""The languages that lie on every machine: heads of Python's functions, and what is said of them."""
OWN_COLUMNS = ("py", "en")
"""What they are called where the columns of tables are called by languages."""


def list_languages(data: TextData | PairData | LanguageData) -> tuple[str, ...]:
    """Return the languages that a text is known to be in, in the order of their numbers; none for one of any kind."""
    match data:
        case LanguageData(languages=named):
            return tuple(named) or OWN_LANGUAGES
        case PairData(languages=ColumnLanguages(), files=files) if files:
            return ()
        case PairData(files=files, source=source, target=target):
            return (source or "source", target or "target") if files else OWN_LANGUAGES
        case TextData():
            return ()


Data = Annotated[TextData | PairData | LanguageData, Field(discriminator="kind")]


class SpecialTokens(Config):
    """Names of the special tokens (none = the tokenizer has no such token) and what is put around a text.

    Ids are given in the order of the fields; `sentinels` are the last ids of the vocabulary.
    """

    pad: str | None = None
    """Fills rows up to one length."""
    unk: str | None = None
    """Stands for what the vocabulary cannot spell."""
    bos: str | None = None
    """Begins a text."""
    eos: str | None = None
    """Ends a text or a document."""
    cls: str | None = None
    """BERT's first position, whose output stands for the whole text."""
    sep: str | None = None
    """Ends each of BERT's segments."""
    mask: str | None = None
    """Stands for a hidden token."""
    extra: tuple[str, ...] = ()
    """More tokens that are never split."""
    sentinels: int = Field(default=0, ge=0)
    """How many `<extra_id_0>`, `<extra_id_1>`, ... for T5's span corruption; `<extra_id_0>` has the highest id."""
    single: str = "$A"
    """What `encode` makes of one text, such as `[CLS] $A [SEP]`."""
    pair: str = "$A $B:1"
    """What `encode` makes of two texts, with type ids, such as `[CLS] $A [SEP] $B:1 [SEP]:1`."""


GPT2_TOKENS = SpecialTokens(eos="<|endoftext|>")
BERT_TOKENS = SpecialTokens(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]",
                            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1")
T5_TOKENS = SpecialTokens(pad="<pad>", unk="<unk>", eos="</s>", single="$A </s>", pair="$A </s> $B </s>")


class ByteBPE(Config):
    """Byte-level byte-pair encoding: spells every string, so nothing is ever unknown.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", §2.2.
    """

    kind: Literal["byte_bpe"] = "byte_bpe"
    vocab: int = Field(default=2048, gt=0)
    """Size of the vocabulary, special tokens included."""
    min_frequency: int = Field(default=2, ge=1)
    """A merge must occur so often."""
    special: SpecialTokens = GPT2_TOKENS
    """Special tokens."""


class BPE(Config):
    """Byte-pair encoding of the characters of white-space-separated words, each ended by `</w>`.

    Source: Sennrich et al. 2016, §3.2, arXiv:1508.07909.
    """

    kind: Literal["bpe"] = "bpe"
    vocab: int = Field(default=8000, gt=0)
    """Size of the vocabulary, special tokens included."""
    min_frequency: int = Field(default=2, ge=1)
    """A merge must occur so often."""
    lowercase: bool = False
    """Lower-case the text first (as GPT-1 does)."""
    special: SpecialTokens = SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>", single="$A </s>",
                                           pair="$A </s> $B </s>")
    """Special tokens."""


class WordPiece(Config):
    """BERT's tokenizer: words and punctuation apart, then the longest known pieces, `##` inside a word.

    Source: Devlin et al. 2019, §3, arXiv:1810.04805; Wu et al. 2016, §4.1, arXiv:1609.08144.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    vocab: int = Field(default=8000, gt=0)
    """Size of the vocabulary, special tokens included."""
    min_frequency: int = Field(default=2, ge=1)
    """A merge must occur so often."""
    lowercase: bool = True
    """Lower-case and strip accents first (BERT "uncased")."""
    special: SpecialTokens = BERT_TOKENS
    """Special tokens."""


class Unigram(Config):
    """Unigram language model over pieces, as in SentencePiece: white space is a piece's own character.

    Source: Kudo 2018, §3.2, arXiv:1804.10959.
    """

    kind: Literal["unigram"] = "unigram"
    vocab: int = Field(default=8000, gt=0)
    """Size of the vocabulary, special tokens included."""
    special: SpecialTokens = T5_TOKENS
    """Special tokens."""


class Bytes(Config):
    """One token per UTF-8 byte: nothing to train, nothing unknown.

    Source: Xue et al. 2022 (ByT5), §3, arXiv:2105.13626.
    """

    kind: Literal["bytes"] = "bytes"
    special: SpecialTokens = SpecialTokens(pad="<pad>", eos="</s>")
    """Special tokens; they come before the 256 bytes."""


class Characters(Config):
    """One token per Unicode character that the training text holds."""

    kind: Literal["characters"] = "characters"
    special: SpecialTokens = SpecialTokens(unk="<unk>", eos="<eos>")
    """Special tokens."""


class Words(Config):
    """Whole words between white space, the commonest ones; any other is unknown (a model may read its characters yet).

    Ids stand by falling frequency, behind the special tokens. Source: Peters et al. 2018 (ELMo), code release.
    """

    kind: Literal["words"] = "words"
    vocab: int = Field(default=8000, gt=0)
    """Size of the vocabulary, special tokens included."""
    min_frequency: int = Field(default=1, ge=1)
    """A word must occur so often."""
    special: SpecialTokens = SpecialTokens(unk="<UNK>", bos="<S>", eos="</S>", single="<S> $A </S>",
                                           pair="<S> $A </S> <S>:1 $B:1 </S>:1")
    """Special tokens."""


class Ready(Config):
    """A tokenizer that is there already: that of the model which a run begins with (`--from`)."""

    kind: Literal["ready"] = "ready"
    vocab: int = Field(gt=0)
    """Size of the vocabulary, special tokens and what is added included."""
    extend: int = Field(default=0, ge=0)
    """How many tokens are added for the words of the text that are spelled worst so far."""
    special: SpecialTokens = SpecialTokens()
    """The special tokens that it has."""


TokenizerConfig = Annotated[ByteBPE | BPE | WordPiece | Unigram | Bytes | Characters | Words | Ready,
                            Field(discriminator="kind")]

"""Salient spans of texts: entities by a model that tags words, dates by a rule. What needs knowledge to be filled in.

Source: Guu et al. 2020 (REALM), §3.4, arXiv:2002.08909, which takes a tagger of CoNLL's entities and a rule for dates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.definitions import Tagging
from saucier.tasks.examples import Place
from saucier.tasks.tag_schemes import read_lenient
from saucier.tasks.tagging import Sentence, TaggingTask
from saucier.tasks.task import Encoding, Predictor

Span = tuple[int, int]
"""Where a piece of a text begins, and where the text goes on after it, in characters."""
Finder = Callable[[Sequence[str]], list[list[Span]]]
"""Finds the spans of many texts."""
LENGTH, BATCH = 128, 32
"""Most tokens of a tagger's row, which is read in windows beyond, and rows that it reads at a time."""
WORD = re.compile(r"\w+(?:[.&-]\w+)*|['’]\w+|[^\w\s]")
"""A word with what is inside of it, what follows an apostrophe, or a mark: near enough to how CoNLL cuts."""
MONTH = ("(?:January|February|March|April|May|June|July|August|September|October|November|December"
         "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\\.?")
DATE = re.compile(rf"\b(?:{MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTH}"
                  rf"(?:,? \d{{4}})?|{MONTH},? \d{{4}}|\d{{4}}-\d\d-\d\d|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}"
                  r"|(?:1\d|20)\d\d(?:s\b|[–-]\d{2,4}\b|\b))(?!\w)")
"""English dates, and years from 1000 to 2099."""


def find_dates(texts: Sequence[str]) -> list[list[Span]]:
    """Find English dates, years and decades in texts."""
    return [[match.span() for match in DATE.finditer(text)] for text in texts]


@dataclass(frozen=True, slots=True)
class EntityTagger:
    """A model that tags words, opened."""

    task: TaggingTask
    predictor: Predictor

    @classmethod
    def open(cls, place: str) -> EntityTagger:
        """Open a tagger. Raises `InputError` for a model that tags no words, or whose tags are no entities."""
        from saucier.checkpoints.layout import label_names
        from saucier.folders.load import load
        from saucier.tasks.tag_schemes import are_entities
        from saucier.text.tokenizer.tokenizer import load_tokenizer

        model = load(place, dtype="float32", device="cpu").eval()
        head = model.config.head
        names = label_names(model.provenance.document, head.classes, place) if isinstance(head, c.TokenHead) else None
        if not names or not are_entities(names):
            raise InputError("this model tags no entities" if names is None else
                             f"its tags are {', '.join(names[:4])}, and no entities", where=place,
                             remedy="give a folder that `saucier finetune tagging` made of entities in IOB2")
        tokenizer = load_tokenizer(place)
        room = [size for size in (tokenizer.handling.max_length, c.longest_input(model.config.embed.positions)) if size]
        encoding = Encoding(tokenizer, min([LENGTH, *room]), model.config)
        return cls(TaggingTask(Tagging(labels=names)), Predictor(model, encoding, BATCH))

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        """Find the entities of texts."""
        words = [[match.span() for match in WORD.finditer(text)] for text in texts]
        asked = [number for number, found in enumerate(words) if found]
        sentences = [Sentence(Place("text", number), f"text {number}",
                              tuple(texts[number][start:end] for start, end in words[number]), None)
                     for number in asked]
        found: list[list[Span]] = [[] for _ in texts]
        if sentences:
            answers = self.task.predict(self.predictor, sentences, self.task.encode(sentences, self.predictor.encoding))
            for number, answer in zip(asked, answers, strict=True):
                found[number] = [(words[number][one.first][0], words[number][one.last][1])
                                 for one in read_lenient(answer.prediction)]  # type: ignore[arg-type]  # a list of tags
        return found


def join_spans(found: Sequence[Sequence[Span]]) -> list[Span]:
    """Put spans of several kinds in order; of those that overlap the one that begins first stays, then the longest."""
    kept: list[Span] = []
    for start, end in sorted({span for spans in found for span in spans}, key=lambda span: (span[0], -span[1])):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept

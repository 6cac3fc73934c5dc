"""Instruction tuning: conversations, of which the assistant's turns are learned, several in one row of a decoder.

Axes: N conversations, L positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.examples import Cells, Column, Example, Tally, cells
from saucier.tasks.sheet import Cut, Sheet
from saucier.tasks.task import Encoding
from saucier.tasks.written.config import ChatTemplate, Instruction, Markers
from saucier.tasks.written.packing import next_tokens, rows_alone, rows_shared
from saucier.tasks.written.prompts import UNWRITTEN, Prompt, Taught, begin_token, two_sides
from saucier.tasks.written.templates import ASSISTANT, ROLES, SILENT, Message, Messages, as_text, asking
from saucier.tasks.written.writing import WritingTask
from saucier.text.sources import Source
from saucier.text.tables import columns_of

MESSAGES = Column("messages", ("messages", "conversations", "conversation"))
ASKED = Column("instruction", ("instruction", "prompt", "question"))
ABOUT = Column("input", ("input", "context"), needed=False)
ANSWER = Column("output", ("output", "completion", "response", "answer"))
UNANSWERED = "rows left out that have no answer"
Learned = npt.NDArray[np.bool_]
Row = tuple[list[int], Learned]
"""The ids of a conversation, and which of them are learned."""
SPEAKERS = {"human": "user", "gpt": ASSISTANT, "bot": ASSISTANT}
"""Other names of the roles."""


@dataclass(frozen=True, slots=True)
class Conversation(Example):
    """Who said what; the last turn is an answer, where that is known."""

    messages: Messages

    @property
    def before(self) -> Messages:
        """All before the last answer."""
        return self.messages[:-1] if self.messages[-1].role == ASSISTANT else self.messages


@dataclass(frozen=True, slots=True)
class Instructions(WritingTask[Conversation]):
    """To answer as the conversations do."""

    config: Instruction

    def read(self, source: Source, tally: Tally, *, labelled: bool) -> Iterator[Conversation]:
        """Yield conversations: a list of messages in each row, or an instruction (with its input) and an output."""
        known, named = columns_of(source), self.config.messages
        talks = named or next((name for name in MESSAGES.usual if name in known), None)
        if talks is not None:
            for row in cells(source, (MESSAGES,), {"messages": talks}):
                yield talk(row, labelled=labelled)
            return
        asked = {role: getattr(self.config, role) for role in ("instruction", "input", "output")}
        for row in cells(source, (ASKED, ABOUT, ANSWER) if labelled else (ASKED, ABOUT), asked):
            if labelled and not str(row.values.get("output") or "").strip():
                tally.update([UNANSWERED])
            else:
                yield told(row, labelled=labelled)

    def template(self, body: c.Transformer) -> Markers | ChatTemplate:
        """How a conversation is written."""
        return self.config.template or (SILENT if two_sides(body) else Markers())

    def around(self, example: Conversation, body: c.Transformer) -> tuple[str, ...]:
        """The marker of each turn; a chat template is there once a tokenizer is."""
        template = self.template(body)
        if isinstance(template, ChatTemplate):
            return ()
        return (*(str(getattr(template, one.role)) for one in example.messages), template.between)

    def asked(self, before: Messages, encoding: Encoding) -> Prompt:
        """Return what is read before an answer."""
        template = self.template(encoding.body)
        text = asking(before, template, encoding.tokenizer)
        if template is SILENT:
            text = text.removesuffix(template.between)
        return Prompt("", text, framed=isinstance(template, Markers))

    def prompt(self, example: Conversation, encoding: Encoding) -> Prompt:
        """The conversation up to the last answer."""
        return self.asked(example.before, encoding)

    def responses(self, example: Conversation) -> Sequence[str]:
        """The last answer."""
        return [one.content for one in example.messages[len(example.before):]]

    def taught(self, examples: Sequence[Conversation], encoding: Encoding) -> Iterator[Taught]:
        """Yield every answer of a conversation, each behind all that was said before."""
        for number, one in enumerate(examples):
            answers = [place for place, message in enumerate(one.messages) if message.role == ASSISTANT]
            for place in answers:
                yield Taught(self.asked(one.messages[:place], encoding), one.messages[place].content, number)
            if not answers or not self.responses(one):
                yield Taught(self.prompt(one, encoding), None, number)

    def sheet(self, examples: Sequence[Conversation], encoding: Encoding) -> Sheet:
        """Encode conversations whole for a decoder, answer by answer for an encoder-decoder."""
        if two_sides(encoding.body) or not all(map(self.responses, examples)):
            return WritingTask.sheet(self, examples, encoding)
        return conversation_sheet(self, examples, encoding)

    def texts(self, example: Conversation) -> tuple[str, ...]:
        """What was said before the last answer."""
        return tuple(one.content for one in example.before)

    def typed(self, parts: tuple[str, ...], example: Example) -> Conversation:
        """An instruction from the command line."""
        return Conversation(example.place, example.name, (Message("user", " ||| ".join(parts)),))


def talk(row: Cells, *, labelled: bool) -> Conversation:
    """Read a list of messages. Raises `InputError` for anything else, and for a conversation without an answer."""
    place, said = str(row.example.place), row.values.get("messages")
    if not isinstance(said, list) or not said:
        raise InputError("the messages are no list, or an empty one", where=place,
                         remedy='write [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]')
    messages = tuple(message(one, place) for one in said)
    answered = [number for number, one in enumerate(messages) if one.role == ASSISTANT]
    if labelled and not answered:
        raise InputError("no turn is the assistant's", where=place, remedy="leave the row out")
    ends = answered[-1] + 1 if labelled else len(messages)  # what is asked last, and never answered, teaches nothing
    return Conversation(row.example.place, row.example.name, messages[:ends])


def message(value: Any, place: str) -> Message:
    """Read one message. Raises `InputError` for a role that is unknown, and for a content that is no text."""
    role, content = (value.get(one, value.get(other)) if isinstance(value, dict) else None
                     for one, other in (("role", "from"), ("content", "value")))
    role = SPEAKERS.get(str(role), role)
    if role not in ROLES or not isinstance(content, str):
        raise InputError(f"a message of role {str(role)[:40]!r} with {type(content).__name__}", where=place,
                         remedy=f"give a text, and one of the roles {', '.join(ROLES)}")
    return Message(str(role), content)


def told(row: Cells, *, labelled: bool) -> Conversation:
    """Read an instruction, what it is about, and the answer."""
    about = row.values.get("input")
    asked = [row.text("instruction"), *([about] if isinstance(about, str) and about.strip() else [])]
    answer = (Message(ASSISTANT, row.text("output")),) if labelled else ()
    return Conversation(row.example.place, row.example.name, (Message("user", "\n\n".join(asked)), *answer))


def conversation_sheet(task: Instructions, examples: Sequence[Conversation], encoding: Encoding) -> Sheet:
    """Lay out whole conversations, each token labelled by the next one where that belongs to an answer.

    A conversation that is too long is cut, or left out.
    """
    config = task.config
    rows = [conversation_row(one.messages, task.template(encoding.body), encoding) for one in examples]
    room = encoding.length + 1
    kept = {number: cut_row(*row, room) for number, row in enumerate(rows)
            if len(row[0]) <= room or config.too_long == "cut"}
    if not kept:
        raise InputError(f"all {len(rows)} conversations are longer than {encoding.length} tokens", where="task",
                         remedy="raise training.length")
    texts = [next_tokens(*row) for row in kept.values()]
    item, filler = np.array(list(kept), dtype=np.int64), encoding.tokenizer.pad_id or 0
    asked = {"prefix_length": np.array([int(learned.argmax()) for _, learned in kept.values()])} \
        if c.sees_prefix(encoding.body.decoder) else {}  # the first question; what follows has answers in it
    packs = config.packing and not asked
    sheet = rows_shared(texts, item, filler, encoding.length) if packs else rows_alone(texts, item, filler)
    return replace(sheet, flat=asked, cut=lost_of(rows, kept, room))


def conversation_row(messages: Messages, template: Markers | ChatTemplate, encoding: Encoding) -> Row:
    """Return the ids of a conversation, and which of them are learned. Shapes: [L]."""
    text = as_text(messages, template, encoding.tokenizer)
    found = encoding.tokenizer.located([text.text])[0]
    learned = [any(start < last and first < end for start, end in text.answers) for first, last in found.offsets]
    begin = begin_token(encoding.tokenizer) if isinstance(template, Markers) else []
    ids = [*begin, *encoding.tokenizer.published_ids(found.ids)]
    return ids, np.array([*(False for _ in begin), *learned], dtype=bool)


def cut_row(ids: list[int], learned: Learned, room: int) -> Row:
    """Cut a conversation to its first tokens, or to its last ones where no answer would remain of it. Shapes: [L]."""
    return (ids[:room], learned[:room]) if learned[1:room].any() else (ids[-room:], learned[-room:])


def lost_of(rows: Sequence[Row], kept: Mapping[int, Row], room: int) -> Cut:
    """Count conversations that were cut or left out, and what was lost with them."""
    nothing: Row = ([], np.zeros(0, dtype=np.bool_))
    lost = [(row, kept.get(number, nothing)) for number, row in enumerate(rows)
            if len(row[0]) > room or number not in kept]
    return Cut(rows=len(lost), tokens=sum(len(row[0]) - len(rest[0]) for row, rest in lost),
               targets=sum(int(row[1].sum() - rest[1].sum()) for row, rest in lost), what=UNWRITTEN,
               dropped=len(rows) - len(kept))

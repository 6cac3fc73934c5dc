"""Instruction tuning: conversations as text (by markers or by the tokenizer's chat template), of which the
assistant's turns are learned, several conversations in one row of a decoder.

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
from saucier.objectives.token_ids import IGNORED
from saucier.tasks.encoded_examples import EncodedExamples, Ragged, Truncation
from saucier.tasks.examples import Cells, Column, Example, Tally, read_cells, read_each, requested_columns
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import ChatTemplate, Instruction, Markers
from saucier.tasks.written.prompts import (
    RESPONSE_TOKENS,
    Prompt,
    PromptResponse,
    begin_token,
    end_token,
    is_encoder_decoder,
    pack_rows,
)
from saucier.tasks.written.task import WritingTask
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns
from saucier.text.tokenizer.tokenizer import Tokenizer

ASSISTANT = "assistant"
ROLES = ("system", "user", ASSISTANT)
NO_MARKERS = Markers(system="", user="", assistant="", between="\n")
"""What an encoder reads where nothing else is said: the words alone."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """system, user or assistant."""
    content: str


Messages = tuple[Message, ...]


def render_conversation(messages: Messages, template: Markers | ChatTemplate,
                        tokenizer: Tokenizer) -> tuple[str, list[tuple[int, int]]]:
    """Write a conversation, and say where each of its answers begins and ends, with what ends it.

    An answer is what the text gains over the text that asks for it. Raises `InputError` for a tokenizer without an end
    token or template, and for a template that writes the beginning of a conversation differently once it goes on.
    """
    text, answers = "", []
    for number, one in enumerate(messages):
        if one.role == ASSISTANT:
            text = refuse_rewritten(text, write_messages(messages[:number], template, tokenizer, asks=True))
            start = len(text)
            text = refuse_rewritten(text, write_messages(messages[:number + 1], template, tokenizer))
            answers.append((start, len(text)))
    return text, answers


def refuse_rewritten(before: str, after: str) -> str:
    """Return a longer text. Raises `InputError` where it does not go on from the shorter one."""
    if not after.startswith(before):
        raise InputError("the chat template writes earlier turns differently once a conversation goes on, so it cannot "
                         "be told what was answered", where="task.template",
                         remedy="use task.template.kind=markers, or conversations of one turn")
    return after


def write_messages(messages: Messages, template: Markers | ChatTemplate, tokenizer: Tokenizer, *,
                   asks: bool = False) -> str:
    """Write turns by the tokenizer's template, or each after its marker; `asks`: up to where the assistant begins."""
    if isinstance(template, ChatTemplate):
        return tokenizer.apply_chat_template([{"role": one.role, "content": one.content} for one in messages],
                                             add_generation_prompt=asks, template=template.name)
    text = ""
    for one in messages:
        ending = end_token(tokenizer) if one.role == ASSISTANT else ""
        text += getattr(template, one.role) + one.content + ending + template.between
    return text + template.assistant if asks else text.removesuffix(template.between)


MESSAGES = Column("messages", ("messages", "conversations", "conversation"))
INSTRUCTION = Column("instruction", ("instruction", "prompt", "question"))
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

    @property
    def texts(self) -> tuple[str, ...]:
        """What was said before the last answer."""
        return tuple(one.content for one in self.before)


@dataclass(frozen=True, slots=True)
class InstructionTask(WritingTask):
    """To answer as the conversations do."""

    config: Instruction

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[Conversation]:
        """Yield conversations: a list of messages in each row, or an instruction (with its input) and an output."""
        known, named = list_columns(source), self.config.messages
        talks = named or next((name for name in MESSAGES.usual if name in known), None)
        if talks is not None:
            yield from read_each(read_cells(source, (MESSAGES,), {"messages": talks}),
                                 lambda row: read_messages(row, labelled=labelled), source)
            return
        requested = requested_columns(self.config, (INSTRUCTION, ABOUT, ANSWER))
        rows = read_cells(source, (INSTRUCTION, ABOUT, ANSWER) if labelled else (INSTRUCTION, ABOUT), requested)
        yield from read_each(answered_rows(rows, tally) if labelled else rows,
                             lambda row: read_instruction(row, labelled=labelled), source)

    def template(self, body: c.Transformer) -> Markers | ChatTemplate:
        """How a conversation is written."""
        return self.config.template or (NO_MARKERS if is_encoder_decoder(body) else Markers())

    def surrounding_texts(self, example: Conversation, body: c.Transformer) -> tuple[str, ...]:
        """The marker of each turn; a chat template is there once a tokenizer is."""
        template = self.template(body)
        if isinstance(template, ChatTemplate):
            return ()
        return (*(str(getattr(template, one.role)) for one in example.messages), template.between)

    def request(self, before: Messages, encoding: Encoding) -> Prompt:
        """Return what is read before an answer."""
        template = self.template(encoding.body)
        text = write_messages(before, template, encoding.tokenizer, asks=True)
        if template is NO_MARKERS:
            text = text.removesuffix(template.between)
        return Prompt("", text, framed=isinstance(template, Markers))

    def prompt(self, example: Conversation, encoding: Encoding) -> Prompt:
        """The conversation up to the last answer."""
        return self.request(example.before, encoding)

    def responses(self, example: Conversation) -> Sequence[str]:
        """The last answer."""
        return [one.content for one in example.messages[len(example.before):]]

    def prompt_responses(self, examples: Sequence[Conversation], encoding: Encoding) -> Iterator[PromptResponse]:
        """Yield every answer of a conversation, each after all that was said before."""
        for number, one in enumerate(examples):
            answers = [place for place, message in enumerate(one.messages) if message.role == ASSISTANT]
            for place in answers:
                yield PromptResponse(self.request(one.messages[:place], encoding), one.messages[place].content, number)
            if not answers or not self.responses(one):
                yield PromptResponse(self.prompt(one, encoding), None, number)

    def encode(self, examples: Sequence[Conversation], encoding: Encoding) -> EncodedExamples:
        """Encode conversations whole for a decoder, answer by answer for an encoder-decoder."""
        if is_encoder_decoder(encoding.body) or not all(map(self.responses, examples)):
            return WritingTask.encode(self, examples, encoding)
        return encode_conversations(self, examples, encoding)

    def from_texts(self, parts: tuple[str, ...], example: Example) -> Conversation:
        """An instruction from the command line."""
        return Conversation(example.place, example.name, (Message("user", " ||| ".join(parts)),))


def answered_rows(rows: Iterator[Cells], tally: Tally) -> Iterator[Cells]:
    """Yield the rows that have an answer; the others are counted."""
    for row in rows:
        if str(row.values.get("output") or "").strip():
            yield row
        else:
            tally.update([UNANSWERED])


def read_messages(row: Cells, *, labelled: bool) -> Conversation:
    """Read a list of messages. Raises `InputError` for anything else, and for a conversation without an answer."""
    place, said = str(row.example.place), row.values.get("messages")
    if not isinstance(said, list) or not said:
        raise InputError("the messages are no list, or an empty one", where=place,
                         remedy='write [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]')
    messages = tuple(read_message(one, place) for one in said)
    answered = [number for number, one in enumerate(messages) if one.role == ASSISTANT]
    if labelled and not answered:
        raise InputError("no turn is the assistant's", where=place, remedy="leave the row out")
    ends = answered[-1] + 1 if labelled else len(messages)  # the last message, which is never answered, teaches nothing
    return Conversation(row.example.place, row.example.name, messages[:ends])


def read_message(value: Any, place: str) -> Message:
    """Read one message. Raises `InputError` for a role that is unknown, and for a content that is no text."""
    role, content = (value.get(one, value.get(other)) if isinstance(value, dict) else None
                     for one, other in (("role", "from"), ("content", "value")))
    role = SPEAKERS.get(str(role), role)
    if role not in ROLES or not isinstance(content, str):
        raise InputError(f"a message of role {str(role)[:40]!r} with {type(content).__name__}", where=place,
                         remedy=f"give a text, and one of the roles {', '.join(ROLES)}")
    return Message(str(role), content)


def read_instruction(row: Cells, *, labelled: bool) -> Conversation:
    """Read an instruction, what it is about, and the answer."""
    about = row.values.get("input")
    request = [row.text("instruction"), *([about] if isinstance(about, str) and about.strip() else [])]
    answer = (Message(ASSISTANT, row.text("output")),) if labelled else ()
    return Conversation(row.example.place, row.example.name, (Message("user", "\n\n".join(request)), *answer))


def encode_conversations(task: InstructionTask, examples: Sequence[Conversation],
                         encoding: Encoding) -> EncodedExamples:
    """Lay out whole conversations, each token labelled by the next one where that belongs to an answer.

    A conversation that is too long is cut, or left out.
    """
    config = task.config
    rows = [encode_conversation(one.messages, task.template(encoding.body), encoding) for one in examples]
    room = encoding.length + 1
    # the first tokens, or the last ones where no answer would remain of it
    kept = {number: (ids[:room], learned[:room]) if learned[1:room].any() else (ids[-room:], learned[-room:])
            for number, (ids, learned) in enumerate(rows) if len(ids) <= room or config.too_long == "cut"}
    if not kept:
        raise InputError(f"all {len(rows)} conversations are longer than {encoding.length} tokens", where="task",
                         remedy="raise training.length")
    texts = [(ids[:-1], [number if in_loss else IGNORED for number, in_loss in zip(ids[1:], learned[1:], strict=True)])
             for ids, learned in kept.values()]
    item, filler = np.array(list(kept), dtype=np.int64), encoding.tokenizer.pad_id or 0
    prefix = {"prefix_length": np.array([int(learned.argmax()) for _, learned in kept.values()])} \
        if c.sees_prefix(encoding.body.decoder) else {}  # the first question; what follows has answers in it
    encoded = pack_rows(texts, item, filler, encoding.length) if config.packing and not prefix else \
        EncodedExamples({"input_ids": Ragged.of([ids for ids, _ in texts], filler),
                         "labels": Ragged.of([labels for _, labels in texts], IGNORED)}, example_numbers=item)
    return replace(encoded, unit_values=prefix, truncation=count_lost(rows, kept, room))


def encode_conversation(messages: Messages, template: Markers | ChatTemplate, encoding: Encoding) -> Row:
    """Return the ids of a conversation, and which of them are learned. Shapes: [L]."""
    text, answers = render_conversation(messages, template, encoding.tokenizer)
    found = encoding.tokenizer.encode_with_offsets([text])[0]
    learned = [any(start < last and first < end for start, end in answers) for first, last in found.offsets]
    begin = begin_token(encoding.tokenizer) if isinstance(template, Markers) else []
    ids = [*begin, *encoding.tokenizer.published_ids(found.ids)]
    return ids, np.array([*(False for _ in begin), *learned], dtype=bool)


def count_lost(rows: Sequence[Row], kept: Mapping[int, Row], room: int) -> Truncation:
    """Count conversations that were cut or left out, and what was lost with them."""
    nothing: Row = ([], np.zeros(0, dtype=np.bool_))
    lost = [(row, kept.get(number, nothing)) for number, row in enumerate(rows)
            if len(row[0]) > room or number not in kept]
    return Truncation(rows=len(lost), tokens=sum(len(row[0]) - len(rest[0]) for row, rest in lost),
                      targets=sum(int(row[1].sum() - rest[1].sum()) for row, rest in lost), what=RESPONSE_TOKENS,
                      dropped=len(rows) - len(kept))

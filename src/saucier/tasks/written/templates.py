"""Conversations as text: who said what, and which characters of the text a model has to learn to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saucier.errors import InputError
from saucier.tasks.written.config import ChatTemplate, Markers
from saucier.text.tokenizer import Tokenizer

ASSISTANT = "assistant"
ROLES = ("system", "user", ASSISTANT)
SILENT = Markers(system="", user="", assistant="", between="\n")
"""What an encoder reads where nothing else is said: the words alone."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """system, user or assistant."""
    content: str


Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """A conversation as text."""

    text: str
    answers: tuple[tuple[int, int], ...] = ()
    """Where each answer begins and ends, with what ends it."""


def as_text(messages: Messages, template: Markers | ChatTemplate, tokenizer: Tokenizer) -> Told:
    """Write a conversation; what is learned of it are the assistant's turns, all of them.

    Raises `InputError` for a tokenizer without an end token or template, and for a template that writes the beginning
    of a conversation differently once it goes on.
    """
    match template:
        case Markers():
            return marked(messages, template, tokenizer)
        case ChatTemplate():
            return templated(messages, template, tokenizer)


def marked(messages: Messages, template: Markers, tokenizer: Tokenizer) -> Told:
    """Write each turn behind its marker."""
    text, answers = "", []
    for one in messages:
        text += getattr(template, one.role)
        start = len(text)
        text += one.content
        if one.role == ASSISTANT:
            text += ending(tokenizer)
            answers.append((start, len(text)))
        text += template.between
    return Told(text.removesuffix(template.between), tuple(answers))


def ending(tokenizer: Tokenizer) -> str:
    """Return what ends an answer. Raises `InputError` where the tokenizer has nothing for it."""
    if "eos" not in tokenizer.names:
        raise InputError("the tokenizer has no token that ends a text, so the model could not learn to stop",
                         where="tokenizer", remedy="begin with a model that has one (eos)")
    return tokenizer.names["eos"]


def templated(messages: Messages, template: ChatTemplate, tokenizer: Tokenizer) -> Told:
    """Let the tokenizer's template write; an answer is what it adds to the text that asks for it."""
    text, answers = "", []
    for number, one in enumerate(messages):
        if one.role != ASSISTANT:
            continue
        text = grown(text, asking(messages[:number], template, tokenizer))
        start = len(text)
        text = grown(text, by_template(messages[:number + 1], template, tokenizer))
        answers.append((start, len(text)))
    return Told(text, tuple(answers))


def grown(before: str, after: str) -> str:
    """Return a longer text. Raises `InputError` where it does not go on from the shorter one."""
    if not after.startswith(before):
        raise InputError("the chat template writes earlier turns differently once a conversation goes on, so it cannot "
                         "be told what was answered", where="task.template",
                         remedy="use task.template.kind=markers, or conversations of one turn")
    return after


def asking(messages: Messages, template: Markers | ChatTemplate, tokenizer: Tokenizer) -> str:
    """Write a conversation up to where the assistant begins to speak."""
    match template:
        case Markers():
            said = "".join(getattr(template, one.role) + one.content + (ending(tokenizer) if one.role == ASSISTANT
                                                                        else "") + template.between for one in messages)
            return said + template.assistant
        case ChatTemplate():
            return by_template(messages, template, tokenizer, asks=True)


def by_template(messages: Messages, template: ChatTemplate, tokenizer: Tokenizer, *, asks: bool = False) -> str:
    """Fill the tokenizer's template, in its sandbox."""
    return tokenizer.apply_chat_template([{"role": one.role, "content": one.content} for one in messages],
                                         add_generation_prompt=asks, template=template.name)


def turns(messages: Sequence[Message]) -> int:
    """Count the answers."""
    return sum(one.role == ASSISTANT for one in messages)

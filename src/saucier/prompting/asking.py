"""Asking: the text that is sent, the answer that comes back, and what it is scored by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from saucier.generation.generate import generate
from saucier.prompting.config import (
    Likelihood,
    Normalization,
    PerByte,
    PerToken,
    PromptTask,
    Unconditional,
    WholeSum,
    Writing,
)
from saucier.prompting.likelihood import Likelihoods, Speaker
from saucier.prompting.questions import Question


@dataclass(frozen=True, slots=True)
class Sent:
    """The exact text that a model was given."""

    text: str
    shots: tuple[str, ...]
    """Ids of the examples in it."""
    dropped: int = 0
    """Examples left out because they did not fit."""
    cut: int = 0
    """Letters at the front of the prompt itself that did not fit."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    prediction: str
    scores: tuple[float, ...] = ()
    """By which the choices were compared, the larger the better."""
    nats: tuple[float, ...] = ()
    """Log-probability of each choice."""


def sent(task: PromptTask, speaker: Speaker, question: Question, shots: Sequence[Question]) -> Sent:
    """Put examples before a question, as many as fit; whole ones are left out, the first ones first."""
    kept = list(shots)
    while kept and too_long(task, speaker, question, joined(task, question, kept)) > 0:
        kept.pop(0)
    text = joined(task, question, kept)
    start = 0
    while start < len(text) and (over := too_long(task, speaker, question, text[start:])) > 0:
        start += over  # a token has a letter at least; the end of a prompt asks, so its front goes
    return Sent(text[start:], tuple(one.id for one in kept), len(shots) - len(kept), start)


def joined(task: PromptTask, question: Question, shots: Sequence[Question]) -> str:
    """Write instruction, examples and prompt behind each other."""
    first = [task.instruction] if task.instruction else []
    return task.separator.join([*first, *(one.solved for one in shots), question.prompt])


def too_long(task: PromptTask, speaker: Speaker, question: Question, text: str) -> int:
    """Count the tokens that a text, and in a decoder the answer behind it, have over what the model takes."""
    if speaker.room is None:
        return 0
    if speaker.two_sided:
        return len(speaker.encode(text)) - speaker.room
    match task.by:
        case Writing(tokens=tokens):
            return len(speaker.encode(text)) + tokens - speaker.room
        case Likelihood():
            return max(len(speaker.encode(text + one)) for one in question.answers) - speaker.room


def reply(task: PromptTask, speaker: Speaker, question: Question, text: str) -> Reply:
    """Ask the model, by the likelihood of the choices or by letting it write."""
    if isinstance(task.by, Writing):
        return Reply(written(speaker, text, task.by.tokens, task.by.stop))
    found = speaker.likelihoods(text, question.answers)
    scores = compared(task.by.normalization, found, speaker, question.answers)
    return Reply(question.names[max(range(len(scores)), key=scores.__getitem__)], scores, found.nats)


def compared(normalization: Normalization, found: Likelihoods, speaker: Speaker, answers: Sequence[str]) \
        -> tuple[float, ...]:
    """Make likelihoods of answers of different length comparable."""
    match normalization:
        case WholeSum():
            return found.nats
        case PerToken():
            return tuple(nats / count for nats, count in zip(found.nats, found.tokens, strict=True))
        case PerByte():
            return tuple(nats / max(1, len(answer.encode())) for nats, answer in zip(found.nats, answers, strict=True))
        case Unconditional(prompt=prompt):
            without = speaker.likelihoods(prompt, answers)
            return tuple(nats - other for nats, other in zip(found.nats, without.nats, strict=True))


def written(speaker: Speaker, text: str, tokens: int, stop: Sequence[str]) -> str:
    """Let the model write the likeliest text, up to the first of the stop strings."""
    ids = speaker.tensor([speaker.encode(text)])
    own = speaker.tokenizer.target
    special: dict[str, Any] = {name: value for name, value in (
        ("eos_token_id", own.eos_id), ("pad_token_id", own.pad_id)) if value is not None}
    found = generate(speaker.model, ids, torch.ones_like(ids), max_new_tokens=tokens, stop_strings=list(stop) or None,
                     tokenizer=own, do_sample=False, **{**special, **speaker.model.generation})
    answer = own.decode(found[0, 1 if speaker.two_sided else ids.shape[1]:].tolist())
    for one in stop:
        answer = answer.split(one, 1)[0]
    return answer.strip()

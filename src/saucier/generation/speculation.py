"""Speculation: several guessed tokens are read in one pass, and those that the search then chooses need no pass more.

The search never sees a guess: it chooses each token from the model's own scores, greedily or by sampling, and only how
soon these are there depends on the guesses. So what is written is what would be written without them, with the same
seed too; rounding in passes of other sizes aside, which the native engine has not. A draft model guesses with a copy of
the search and of its generator: the same random numbers choose in both, so that draws agree as often as likely.
Source: Leviathan et al. 2023, arXiv:2211.17192, for the idea; there guesses are drawn first, and corrected.
Letters: R rows, T tokens of a pass, G guesses, L length, V vocab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol, runtime_checkable

import torch
from torch import Tensor

from saucier import config as c
from saucier.arguments import Help, check_argument
from saucier.errors import InputError
from saucier.generation.feeds import prediction_kind
from saucier.generation.options import GenerationOptions
from saucier.generation.rules import Prompt
from saucier.generation.search import RowSearch, Step
from saucier.generation.slots import find_state
from saucier.model import Transformer

GUESSES = Annotated[int, Help("", minimum=1, maximum=128)]


@runtime_checkable
class ReadsAhead(Protocol):
    """A feed that can also read several tokens of a row at once, and again from an earlier place on."""

    def __call__(self, step: Step | None) -> Tensor:
        """As `Feed`."""

    def read_ahead(self, tokens: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """Read tokens of some rows, each at its place of its row, which is forgotten from the first of them on.

        Shapes: tokens, rows, places [T], in rising order of rows and places -> scores of what follows each [T, V].
        """


class Guesses(Protocol):
    """Who guesses."""

    def __call__(self, search: RowSearch, rows: Sequence[int], counts: Sequence[int]) -> list[Tensor]:
        """Return up to so many tokens that may follow each of these rows. Shapes: -> [G] each."""


@dataclass(slots=True)
class Acceptance:
    """What speculation was good for; counted on from call to call."""

    proposed: int = 0
    """Guesses that were read."""
    accepted: int = 0
    """Those of them that were then written."""
    tokens: int = 0
    """All that was written."""
    passes: int = 0
    """Passes of the model, the first one over the prompt not counted."""

    def __str__(self) -> str:
        """Return them as a line."""
        share = f" ({self.accepted / self.proposed:.0%})" if self.proposed else ""
        return f"{self.accepted:,} of {self.proposed:,} guesses right{share}; {self.tokens:,} tokens in " \
               f"{self.passes:,} passes"


@dataclass(slots=True)
class PromptLookup:
    """Guess that what followed the last tokens before, in the text or its source, follows them again.

    Source: Saxena 2023, "Prompt lookup decoding" (a code release).
    """

    tokens: int = 8
    """Guesses that are read together, at most."""
    longest: int = 3
    """The last so many tokens are looked for first, then fewer."""
    acceptance: Acceptance = field(default_factory=Acceptance)

    def __post_init__(self) -> None:
        """Raises `InputError` for numbers out of range."""
        check_argument("tokens", self.tokens, GUESSES)
        check_argument("longest", self.longest, GUESSES)


@dataclass(slots=True)
class Draft:
    """Let a smaller model of the same vocabulary guess. Source: Leviathan et al. 2023, §2, arXiv:2211.17192."""

    model: Transformer
    tokens: int = 4
    """Guesses that are read together, at most."""
    acceptance: Acceptance = field(default_factory=Acceptance)

    def __post_init__(self) -> None:
        """Raises `InputError` for a number out of range."""
        check_argument("tokens", self.tokens, GUESSES)


Speculation = PromptLookup | Draft
"""Who guesses the next tokens, and how that went."""


class SpeculativeFeed:
    """Reads guesses with each token, and answers from their scores as long as the search goes the same way."""

    def __init__(self, feed: ReadsAhead, guesses: Guesses, search: RowSearch, lengths: Tensor, most: int,
                 acceptance: Acceptance) -> None:
        """`lengths` [R] of the prompts, without padding; at most so many guesses a row and pass."""
        self.feed, self.guesses, self.search, self.acceptance = feed, guesses, search, acceptance
        self.places, self.most = lengths.clone(), most
        rows = len(lengths)
        self.widths = [most] * rows
        """How many guesses each row gets: two more where all were right, one less where some was not."""
        self.guessed: list[list[int]] = [[] for _ in range(rows)]
        self.scores: list[Tensor] = [torch.empty(0)] * rows
        """[1 + G, V] each, of the last token that was read and of every guess after it."""
        self.used = [0] * rows

    def __call__(self, step: Step | None) -> Tensor:
        """Read the prompt, or answer for one more token a row. Shapes: -> [R, V], float32."""
        if step is None:
            scores = self.feed(None)
            self.scores = list(scores[:, None])
            return scores
        tokens = step.tokens.tolist()
        self.acceptance.tokens += len(tokens)
        missing = [row for row, token in enumerate(tokens) if not self.hits(row, token)]
        missing = [row for row in missing if not bool(self.search.ended[row])]  # nothing is chosen there any more
        if missing:
            self.read(missing, step.tokens)
        self.places += 1
        return torch.stack([scores[used] for scores, used in zip(self.scores, self.used, strict=True)])

    def hits(self, row: int, token: int) -> bool:
        """Say whether the search chose the next guess of a row, and go on to the scores after it."""
        used = self.used[row]
        if used == len(self.guessed[row]) or self.guessed[row][used] != token:
            return False
        self.used[row] += 1
        self.acceptance.accepted += 1
        return True

    def read(self, missing: list[int], chosen: Tensor) -> None:
        """Read the chosen token of some rows, and new guesses after it. Shapes: chosen [R]."""
        room = self.search.rules.limit - self.search.length - 1
        for row in missing:
            grown = 2 if self.used[row] == len(self.guessed[row]) else -1
            self.widths[row] = min(self.most, max(1, self.widths[row] + grown))
        counts = [min(self.widths[row], room) for row in missing]
        guessed = self.guesses(self.search, missing, counts)
        texts = [torch.cat([chosen[row:row + 1], one]) for row, one in zip(missing, guessed, strict=True)]
        lengths = torch.tensor([len(text) for text in texts])
        places = [self.places[row] + torch.arange(len(text)) for row, text in zip(missing, texts, strict=True)]
        scores = self.feed.read_ahead(torch.cat(texts), torch.tensor(missing).repeat_interleave(lengths),
                                      torch.cat(places))
        for row, one, found in zip(missing, guessed, scores.split(lengths.tolist()), strict=True):
            self.guessed[row], self.scores[row], self.used[row] = one.tolist(), found, 0
        self.acceptance.passes += 1
        self.acceptance.proposed += int(lengths.sum()) - len(missing)


@dataclass(frozen=True, slots=True)
class LookupGuesses:
    """What followed the last tokens of a row, the last time that they stood in it, or in its source."""

    longest: int
    """The last so many tokens are looked for first, then fewer."""
    sources: Tensor | None = None
    """[R, S], of an encoder-decoder with one vocabulary."""

    def __call__(self, search: RowSearch, rows: Sequence[int], counts: Sequence[int]) -> list[Tensor]:
        """Guess for each of these rows; nothing where its last token stands nowhere else."""
        found = []
        for row, count in zip(rows, counts, strict=True):
            text = search.ids[row, :search.length]
            before = text.new_empty(0) if self.sources is None else self.sources[row]
            found.append(self.find(torch.cat([before, text]), len(text), count))
        return found

    def find(self, text: Tensor, written: int, count: int) -> Tensor:
        """Return up to `count` tokens after the last place that ends as the text does. Shapes: [L] -> [G].

        Places where most tokens agree are preferred, and so are those with `count` tokens after them.
        """
        for size in range(min(self.longest, written, len(text) - 1), 0, -1):
            ends = (text[:-1].unfold(0, size, 1) == text[-size:]).all(1).nonzero()[:, 0] + size
            if len(ends):
                whole = ends[ends + count <= len(text)]
                start = int(whole[-1] if len(whole) else ends[0])
                return text[start:start + count]
        return text[:0]


class DraftGuesses:
    """What a smaller model would write, chosen by a copy of the search; it keeps a cache of its own."""

    def __init__(self, feed: ReadsAhead, search: RowSearch, lengths: Tensor) -> None:
        """`lengths` [R] of the prompts, without padding."""
        self.feed, self.before = feed, search.length - lengths
        self.start = search.length
        self.known = search.ids.clone()
        self.length = 0
        """Columns of `known` that the draft model has read."""

    def __call__(self, search: RowSearch, rows: Sequence[int], counts: Sequence[int]) -> list[Tensor]:
        """Guess for all rows, for the search's random numbers are shared by them; return what these rows want."""
        guessed: list[Tensor] = []
        most = max(counts)
        if most > 0:
            copy, scores = search.fork(), self.catch_up(search.ids[:, :search.length])
            for number in range(most):
                guessed.append(copy.advance(scores).tokens)
                if copy.finished or number + 1 == most:
                    break
                scores = self.read(copy.ids[:, :copy.length], copy.length - 1)
            self.known[:, :copy.length] = copy.ids[:, :copy.length]
        together = torch.stack(guessed, 1) if guessed else search.ids[:, :0]
        return [together[row, :count] for row, count in zip(rows, counts, strict=True)]

    def catch_up(self, text: Tensor) -> Tensor:
        """Read what was chosen since, from the first token that was guessed wrongly on. Shapes: [R, L] -> [R, V]."""
        if not self.length:
            self.feed(None)
            self.length = self.start
        both = min(self.length, text.shape[1] - 1)
        wrong = (self.known[:, :both] != text[:, :both]).any(0).nonzero()
        start = int(wrong[0, 0]) if len(wrong) else both
        return self.read(text, start)

    def read(self, text: Tensor, start: int) -> Tensor:
        """Read the columns of a text from `start` on. Shapes: [R, L] -> [R, V], scores of what follows."""
        count, rows = text.shape[1] - start, len(text)
        places = torch.arange(start, text.shape[1])[None] - self.before[:, None]
        scores = self.feed.read_ahead(text[:, start:].flatten(), torch.arange(rows).repeat_interleave(count),
                                      places.flatten())
        self.length = text.shape[1]
        return scores.view(rows, count, -1)[:, -1]


def make_guesses(speculation: Speculation, prompt: Prompt, search: RowSearch, config: c.Transformer,
                 draft: ReadsAhead | None, lengths: Tensor) -> Guesses:
    """Return who guesses."""
    match speculation:
        case PromptLookup(longest=longest):
            shared = prompt.source is not None and config.input_embed.vocab == config.output_embed.vocab
            copies = len(lengths) // len(prompt.ids)
            return LookupGuesses(longest, prompt.source.repeat_interleave(copies, 0)
                                 if shared and prompt.source is not None else None)
        case Draft():
            assert draft is not None, "a draft has a model"
            return DraftGuesses(draft, search, lengths)


def check_speculation(model: Transformer, speculation: Speculation, options: GenerationOptions, compiled: bool) -> None:
    """Raise `InputError` for models that cannot read several tokens beside their cache, for a draft model of another
    vocabulary or make, and for options that guesses cannot go with.
    """
    for given, what in ((options.num_beams > 1, "with beams"), (compiled, "with compile"),
                        (not options.use_cache, "with use_cache=False"), (options.strategy is not None, "by strategy")):
        if given:
            raise InputError(f"texts that are written {what} are not guessed ahead", where="speculation",
                             remedy="leave one of the two out")
    models = {"model": model} | ({"draft": speculation.model} if isinstance(speculation, Draft) else {})
    for name, one in models.items():
        stack = one.config.decoder
        reason = "only decoders keep a cache of what is read" if stack is None else find_state(stack)
        if reason is not None or prediction_kind(one.config).kind != "next":
            raise InputError(reason or "it does not predict the next token", where=name, remedy="leave speculation out")
        for ours, its, tokens in (
                (model.config.output_embed.vocab, one.config.output_embed.vocab, "tokens"),
                (model.config.input_embed.vocab, one.config.input_embed.vocab, "tokens of a source")):
            if ours != its:
                raise InputError(f"{its:,} {tokens}, and the model has {ours:,}", where=name,
                                 remedy="give a draft model with the same tokenizer")
        if (model.config.encoder is None) != (one.config.encoder is None):
            raise InputError("one of the models has an encoder, and the other has none", where=name,
                             remedy="give two of one kind")

"""The one decoding loop: how tokens are selected from scores, when a row ends, the search of independent rows, and the
text while it is written.

Beam search is in `beams.py`, whole texts in `mask_predict.py`, texts with open places in `chains.py`. Rows are torch's
tensors, or numpy's arrays where the model is read without torch (`processors.py`).
Letters: B prompts, R rows, L length, V vocab or candidates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.errors import WorkError
from saucier.generation.processors import Array, Processor, without_threads
from saucier.plain import library_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

STATE_WORDS, AT_ONCE = 624, 2**13
"""Words of the state of a Mersenne twister; numbers that are drawn together, so few that all stays in a cache."""
TokenSelection = Callable[[Array, int], Array]
"""Picks candidates of each row: scores [R, V] and a count -> places [R, count]."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Draws without replacement, with the probabilities that the scores' softmax gives; what a seed draws is what
    `torch.multinomial` draws with it.
    """

    generator: torch.Generator

    @classmethod
    def seeded(cls, seed: int | None, device: torch.device) -> Sample:
        """Return a sampler with a generator of its own; without a seed, one is drawn from torch's global generator."""
        import torch

        if seed is None:
            seed = int(torch.randint(2**62, ()))
        return cls(torch.Generator(device).manual_seed(seed))

    def __call__(self, scores: Tensor, count: int) -> Tensor:
        """Shapes: scores [R, V] -> [R, count].

        Raises `WorkError` where scores are no numbers; of several draws, and on other devices, torch's own error.
        """
        import torch

        held = without_threads(scores)
        if count > 1 or held is scores:
            return torch.multinomial(scores.softmax(1), count, generator=self.generator)
        with np.errstate(invalid="ignore"):
            likely = np.exp(held - held.max(1, keepdims=True))
        if np.isnan(likely).any():
            raise WorkError("the scores of the next token are no numbers", where="do_sample",
                            remedy="look at the model's weights; or give remove_invalid_values=True")
        draw = draw_exponential if matches_torch() else draw_by_torch
        return torch.from_numpy((likely / draw(self.generator, likely.shape)).argmax(1))[:, None]

    def fork(self) -> Sample:
        """Return one that will draw with the same random numbers."""
        import torch

        generator = torch.Generator(self.generator.device)
        generator.set_state(self.generator.get_state())
        return Sample(generator)


def draw_by_torch(generator: torch.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return numbers of an exponential distribution."""
    import torch

    found: NDArray[np.float32] = torch.empty(shape).exponential_(generator=generator).numpy()
    return found


def draw_exponential(generator: torch.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return what `draw_by_torch` does, and leave the generator as that does, on processors where `matches_torch`.

    torch makes number after number, 15 ns each: 50,257 scores of eight rows take longer than a step of GPT-2.
    """
    state = generator.get_state()
    memory = state.numpy()  # of a Mersenne twister: how many words are left of its key, the next one, and the key
    left, place = memory[8:12].view(np.int32), memory[16:24].view(np.int64)
    key = memory[24:24 + 8 * STATE_WORDS].view(np.uint64)
    twister = np.random.MT19937(0)
    twister.state = {"bit_generator": "MT19937", "state": {
        "key": key.astype(np.uint32), "pos": int(place[0]) if left[0] > 1 else STATE_WORDS}}
    found = np.empty(shape, np.float32)
    flat = found.reshape(-1)
    for start in range(0, len(flat), AT_ONCE):
        part = flat[start:start + AT_ONCE]
        words = twister.random_raw(2 * len(part))
        whole = (words[::2] << np.uint64(32) | words[1::2]) & np.uint64(2**53 - 1)
        part[:] = -np.log1p(whole * -2.0**-53)
    after: Any = twister.state["state"]
    key[:], place[0], left[0] = after["key"], after["pos"], STATE_WORDS + 1 - after["pos"]
    generator.set_state(state)
    return found


@cache
def matches_torch() -> bool:
    """Say whether `draw_exponential` gives what torch draws; on Intel's processors torch asks a library for others."""
    import torch

    one, other = (torch.Generator().manual_seed(5) for _ in range(2))
    alike = [np.allclose(draw_by_torch(one, (count,)), draw_exponential(other, (count,)), rtol=1e-6)
             for count in (3, STATE_WORDS)]
    return all(alike) and torch.equal(one.get_state(), other.get_state())


def apply_processors(processors: Sequence[Processor], ids: Array, scores: Array) -> Array:
    """Apply all, in order. Shapes: ids [R, L], scores [R, V] -> [R, V]."""
    for processor in processors:
        scores = processor(ids, scores)
    return scores


class TextDecoder(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""


def repeat_rows(array: Array, count: int) -> Array:
    """Put copies of each row next to it. Shapes: [R, ...] -> [R * count, ...]."""
    return array[library_of(array).arange(len(array) * count, device=array.device) // count]


Stop = Callable[[Array], Array]
"""Says which rows end with their last token. Shapes: ids [R, L] -> [R], True where the row has ended."""


def find_ended_rows(stops: Sequence[Stop], ids: Array) -> Array:
    """Say which rows end by any of these. Shapes: ids [R, L] -> [R]."""
    of = library_of(ids)
    found = of.zeros(ids.shape[0], dtype=of.bool, device=ids.device)
    for stop in stops:
        found = found | stop(ids)
    return found


def end_at_tokens(ids: Array, *, tokens: Sequence[int]) -> Array:
    """End a row with one of these tokens. Shapes: ids [R, L] -> [R]."""
    return library_of(ids).stack([ids[:, -1] == token for token in tokens]).any(0)


def end_at_strings(ids: Array, *, strings: Sequence[str], tokenizer: TextDecoder, start: int) -> Array:
    """End a row when its new text, from `start`, holds one of these strings, wherever token borders fall.

    Shapes: ids [R, L] -> [R].
    """
    texts = (tokenizer.decode(row) for row in ids[:, start:].tolist())
    return library_of(ids).asarray([any(string in text for string in strings) for text in texts], device=ids.device)


Listener = Callable[[Array], None]
"""Called with the new tokens [R] after each step."""


@dataclass(slots=True)
class Step:
    """What a search decided."""

    tokens: Array
    """[R], the next token of each row; of texts that are not written from left to right [R, L], all tokens."""
    rows: Array | None = None
    """[R], the row that each row continues; None: itself."""
    places: Array | None = None
    """[R], the place of each row that is scored, where it is not the next one."""


class Search(Protocol):
    """Which tokens to write: holds the rows so far."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to write."""

    def advance(self, logits: Array) -> Step:
        """Take the scores of the next token, [R, V] float32, and decide."""

    def result(self) -> Array:
        """The rows, prompt included. Shapes: -> [rows, L]."""


Feed = Callable[[Step | None], Array]
"""The model, as a search sees it: what was decided in (None: the prompt), scores of what comes next out, float32."""


def decode(feed: Feed, search: Search, listener: Listener | None = None, start: Step | None = None) -> Array:
    """Write until the search is finished: the only decoding loop. Shapes: -> [rows, L].

    `start`: what is read first; None: the prompt.
    """
    step = start
    while True:
        step = search.advance(feed(step))
        if listener is not None:
            listener(step.tokens)
        if search.finished:
            return search.result()


@dataclass(frozen=True, slots=True)
class SearchRules:
    """What every search follows."""

    processors: tuple[Processor, ...]
    stops: tuple[Stop, ...]
    limit: int
    """Length of prompt and text together at which all rows end."""
    fill: int
    """Fills a row after its end."""


class RowSearch:
    """Every row goes its own way: greedy, or by sampling."""

    def __init__(self, prompt: Array, rules: SearchRules, choice: TokenSelection) -> None:
        """Begin at the prompt [R, L]."""
        self.rules, self.choice = rules, choice
        rows, self.length = prompt.shape
        self.ids = library_of(prompt).full((rows, rules.limit), rules.fill, dtype=prompt.dtype, device=prompt.device)
        self.ids[:, :self.length] = prompt
        self.ended = find_ended_rows((), prompt)

    @property
    def finished(self) -> bool:
        """Whether every row has ended, or the limit is reached."""
        return self.length == self.rules.limit or bool(self.rules.stops and self.ended.all())

    def advance(self, logits: Array) -> Step:
        """Choose the next token of every row; a row that has ended is filled. Shapes: logits [R, V]."""
        scores = apply_processors(self.rules.processors, self.ids[:, :self.length], logits)
        tokens = self.choice(scores, 1)[:, 0]
        if self.rules.stops:
            tokens[self.ended] = self.rules.fill
        self.ids[:, self.length] = tokens
        self.length += 1
        if self.rules.stops:
            self.ended = self.ended | find_ended_rows(self.rules.stops, self.ids[:, :self.length])
        return Step(tokens)

    def fork(self) -> RowSearch:
        """Return a search that goes on from here by itself, with the same random numbers."""
        forked = copy.copy(self)
        forked.choice = self.choice.fork() if isinstance(self.choice, Sample) else self.choice
        forked.ids, forked.ended = (library_of(one).asarray(one, copy=True) for one in (self.ids, self.ended))
        return forked

    def result(self) -> Array:
        """The rows as far as the longest. Shapes: -> [R, L]."""
        return self.ids[:, :self.length]


UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer gives for bytes that are not yet a whole character."""


class TextStream:
    """A listener for `generate` that writes the text of the first row, piece by piece.

    A piece is held back while its last character is not complete. Call `close` at the end for what is left.
    """

    def __init__(self, tokenizer: TextDecoder, write: Callable[[str], object]) -> None:
        """`write` receives each new piece of text."""
        self.tokenizer, self.write = tokenizer, write
        self.ids: list[int] = []
        self.written = 0

    def __call__(self, tokens: Array) -> None:
        """Take the new tokens [R] of a step."""
        self.ids.append(int(tokens[0]))
        self.send(self.tokenizer.decode(self.ids), whole=False)

    def send(self, text: str, *, whole: bool) -> None:
        """Write what is new, up to the last complete character unless the text is whole."""
        end = len(text) if whole else len(text.rstrip(UNFINISHED))
        if end > self.written:
            self.write(text[self.written:end])
            self.written = end

    def close(self) -> None:
        """Write what was held back."""
        self.send(self.tokenizer.decode(self.ids), whole=True)

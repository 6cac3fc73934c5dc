"""Texts that a model writes for a prompt or for files, and what was counted on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from saucier.arguments import Help, Place, check_argument
from saucier.config import LengthHead
from saucier.errors import InputError
from saucier.files import refuse_existing, write_text
from saucier.generation.decoding import ChainStrategy
from saucier.jobs.writing.writer import choose_decoding, fill_masks, goes_on, read_strategy, write_freely
from saucier.opened import OpenModel, OpenWriter, open_model
from saucier.result import Result
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED

if TYPE_CHECKING:
    from saucier.generation.speculation import Speculation
    from saucier.jobs.run.language_pairs import Direction

Speak = Callable[[str], None]


FROM_0, FROM_1 = Help("", minimum=0, maximum=2**62), Help("", minimum=1, maximum=2**62)
BEAMS, SAMPLES = Help("", minimum=1, maximum=1024), Help("", minimum=1, maximum=2**16)
LIMITS: dict[str, Any] = {
    "tokens": Annotated[int, FROM_1], "temperature": Annotated[float, FROM_0], "top_k": Annotated[int | None, FROM_1],
    "top_p": float | None, "beams": Annotated[int, BEAMS], "length_penalty": float, "repetition_penalty": float,
    "no_repeat_ngram": Annotated[int, FROM_0], "stop": str | Sequence[str], "samples": Annotated[int, SAMPLES],
    "seed": Annotated[int | None, FROM_0], "compile": bool}
"""What each option may be; `generate` looks at them again, as its own."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """How tokens are chosen, how many, and how many texts."""

    tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    beams: int
    length_penalty: float
    repetition_penalty: float
    no_repeat_ngram: int
    stop: tuple[str, ...]
    samples: int
    seed: int | None
    compile: bool

    def __post_init__(self) -> None:
        """Refuse what is of another kind: from Python anything may be given. Raises `InputError`."""
        for name, kind in LIMITS.items():
            check_argument(name, getattr(self, name), kind)

    def options(self) -> dict[str, Any]:
        """Return them as `saucier.generate` names them."""
        chosen = choose_decoding(beams=self.beams, length_penalty=self.length_penalty, temperature=self.temperature,
                                 top_k=self.top_k, top_p=self.top_p, seed=self.seed)
        return chosen | {"max_new_tokens": self.tokens, "num_return_sequences": self.samples,
                         "stop_strings": self.stop, "repetition_penalty": self.repetition_penalty,
                         "no_repeat_ngram_size": self.no_repeat_ngram}

    def refuse_steps(self, model: OpenModel) -> None:
        """Raise `InputError` for what is done token by token, where a model writes a text whole."""
        given = {"--beams": self.beams > 1, "--repetition-penalty": self.repetition_penalty != 1.0,
                 "--no-repeat-ngram": self.no_repeat_ngram > 0, "--stop": bool(self.stop)}
        idle = [name for name, was_given in given.items() if was_given]
        if idle and writes_whole(model):
            raise InputError("this model writes a text whole, not token by token", where=idle[0],
                             remedy="leave it out; --strategy 'mask_predict iterations=20' takes more time")


@dataclass(frozen=True, slots=True)
class Way:
    """Between which languages, and by which strategy where not from left to right."""

    source: str | None
    target: str | None
    strategy: str | None
    masks: int

    def direction(self, opened: OpenModel) -> Direction | None:
        """Return the direction of a model that translates."""
        from saucier.jobs.run.language_pairs import read_direction

        return read_direction(opened, self.source, self.target)


@dataclass(frozen=True, slots=True)
class Sources:
    """Files that texts are written for."""

    files: Sequence[str]
    column: str | None
    out: Path | None
    batch: int
    read: ReadOptions = AS_GUESSED


@dataclass(frozen=True, slots=True)
class Written(Result):
    """What a model wrote."""

    texts: tuple[str, ...]
    prompt: str | None = None
    """What it wrote on from; None: one text for each source of files."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of files the sources that were `cut`; of a chain, or of guesses, how many were `proposed` and `accepted`."""
    file: Path | None = None
    """Where the texts were written."""
    separator: str = "\n" + "─" * 20 + "\n"
    """Between texts on a screen."""
    before: str = ""
    """What a person reads before each text: the prompt that it goes on from."""
    spoken: bool = False
    """Whether it was heard while it was written."""

    @property
    def text(self) -> str:
        """The first text."""
        return self.texts[0]

    def view(self) -> str:
        """Return the texts."""
        if self.file is not None:
            return f"{len(self.texts):,} texts in {self.file}"
        shown = [self.before + text for text in self.texts] if self.prompt is not None else map(join_lines, self.texts)
        return self.separator.join(shown)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        begun = {} if self.prompt is None else {"prompt": self.prompt}
        return {**begun, "texts": list(self.texts), **self.counts}

    def remarks(self) -> list[str]:
        """Say what a person should know of how it went."""
        cut, proposed = self.counts.get("cut", 0), self.counts.get("proposed", 0)
        accepted = self.counts.get("accepted", 0)
        return [*([f"{cut:,} of {len(self.texts):,} sources were longer than the model takes, and cut"] if cut else ()),
                *([f"took {accepted:,} of {proposed:,} proposals ({accepted / proposed:.0%})"] if proposed else ())]


def open_writer(path: Path, dtype: str, device: str, base: Place | None, number_format: str | None) -> OpenModel:
    """Open what writes. Raises `InputError`."""
    return open_model(path, dtype=dtype, device=device, base=None if base is None else str(base), format=number_format)


def writes_whole(opened: OpenModel) -> bool:
    """Say whether a model writes a text at once."""
    return isinstance(opened.model.config.head, LengthHead)


def join_lines(text: str) -> str:
    """Return a text as one line."""
    return " ".join(text.splitlines())


def refuse_unused(sources: Sources | None, given: Mapping[str, object], strategy: str | None) -> None:
    """Raise `InputError` for options that only files need, and for a strategy that files cannot be written by."""
    idle = [name for name, value in given.items() if value is not None]
    if idle and sources is None:
        raise InputError("is read with --file alone", where=idle[0], remedy="leave it out, or name a file")
    if sources is not None and strategy is not None and not strategy.startswith("mask_predict"):
        raise InputError("a file's texts are continued or translated, and not filled in", where="--strategy",
                         remedy="leave it out, or give one text")


def choose_speculation(opened: OpenModel, way: Way, lookup: int | None, draft: Path | None,
                       dtype: str) -> dict[str, Speculation]:
    """Return the options of `saucier.generate` for guesses from the text, or by another model; none without either.

    Raises `InputError` for both, for a model with other tokens, and for what is not written token by token.
    """
    if lookup is None and draft is None:
        return {}
    if way.strategy is not None or writes_whole(opened):
        raise InputError("only texts that are written token by token are guessed ahead",
                         where="--lookup" if draft is None else "--draft", remedy="leave it out")
    from saucier.generation.speculation import Draft, PromptLookup

    if draft is None:
        return {"speculation": PromptLookup() if lookup is None else PromptLookup(tokens=lookup)}
    if lookup is not None:
        raise InputError("guesses come from the text or from another model", where="--lookup",
                         remedy="leave --lookup or --draft out")
    other = open_model(draft, dtype=dtype, device=str(opened.device))
    for ours, its in ((opened.tokenizer, other.tokenizer), (opened.tokenizer.target, other.tokenizer.target)):
        longest = max(len(ours), len(its))
        different = next((one for one in range(longest) if ours.id_to_token(one) != its.id_to_token(one)), None)
        if different is not None:
            raise InputError(f"its token {different} is {its.id_to_token(different)!r}, and that of the model "
                             f"{ours.id_to_token(different)!r}", where="--draft",
                             remedy="give a model with the same tokenizer")
    return {"speculation": Draft(other.model)}


def count_guesses(ahead: Mapping[str, Speculation]) -> dict[str, int]:
    """Return the counts of guesses, if there were any."""
    return {name: getattr(one.acceptance, name) for one in ahead.values() for name in ("proposed", "accepted")}


def write_for_files(opened: OpenModel, sources: Sources, drawing: Drawing, way: Way,
                    ahead: Mapping[str, Speculation] = MappingProxyType({})) -> Written:
    """Write for each line or row of files, into a file where one is named. Raises `InputError`."""
    from saucier.jobs.writing.batches import make_batch_writer, source_texts, write_in_batches

    drawing.refuse_steps(opened)
    if sources.out is not None:
        refuse_existing(sources.out)
    strategy = None if way.strategy is None else read_strategy(way.strategy, opened.tokenizer)
    options = drawing.options() | {"strategy": strategy if writes_whole(opened) else None, **ahead}
    writer, texts = make_batch_writer(opened, way.direction(opened)), list(
        source_texts(sources.files, sources.column, sources.read))
    written = write_in_batches(writer, texts, options, batch=sources.batch)
    if sources.out is not None:
        write_text(sources.out, written.lines)
    return Written(tuple(written.texts), counts={"cut": written.cut, **count_guesses(ahead)}, file=sources.out,
                   separator="\n")


def write_for_prompt(opened: OpenModel, prompt: str, drawing: Drawing, way: Way, speak: Speak | None,
                     ahead: Mapping[str, Speculation] = MappingProxyType({})) -> Written:
    """Write on from a text, translate it, or fill in its mask tokens; `speak` hears a single text while it is written.
    """
    drawing.refuse_steps(opened)
    strategy = None if way.strategy is None else read_strategy(way.strategy, opened.tokenizer)
    if isinstance(strategy, ChainStrategy):
        drawn = {"temperature": drawing.temperature or None, "top_k": drawing.top_k, "top_p": drawing.top_p,
                 "seed": drawing.seed}
        texts, done = fill_masks(opened, prompt, way.masks,
                                 {"strategy": strategy, "num_return_sequences": drawing.samples, **drawn})
        return Written(tuple(texts), prompt, {"proposed": done.proposed, "accepted": done.accepted}, separator="\n")
    options = drawing.options() | {"strategy": strategy if writes_whole(opened) else None, "compile": drawing.compile,
                                   **ahead}
    return write_on(opened, prompt, options, speak, way.direction(opened), partial(count_guesses, ahead))


def write_on(opened: OpenWriter, prompt: str, options: Mapping[str, Any], speak: Speak | None,
             direction: Direction | None = None, counts: Callable[[], dict[str, int]] = dict) -> Written:
    """Write on from a text, or translate it, by options of `saucier.generate`; `counts` is asked when it is written."""
    live = speak if options["num_beams"] == options["num_return_sequences"] == 1 else None
    texts = write_freely(opened, prompt, options, direction=direction, speak=live)
    return Written(tuple(texts), prompt, counts(), before=prompt if goes_on(opened) else "", spoken=live is not None)

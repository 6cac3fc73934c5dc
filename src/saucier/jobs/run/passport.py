"""`passport.json`: what a run was made from and by, so that it can be repeated and the repetition be compared."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from saucier import plain
from saucier.checkpoints.hub import locate_model
from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import read_object, write_text
from saucier.opened import PASSPORT_FILE
from saucier.plain import first_difference
from saucier.result import Result

LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors", "pyarrow", "pydantic")


class Code(Config):
    """Which program ran."""

    version: str
    """Of the package."""
    sha256: str
    """Of all of Saucier's own files."""


class RunOutcome(Config):
    """What came out. Equal inputs on equal machines give equal outcomes."""

    step: int
    """The update whose weights were evaluated, the best one."""
    weights: str
    """SHA-256 of the evaluated checkpoint's weights."""
    loss: float
    """On held-out text, nats a token."""
    samples: str
    """SHA-256 of samples.txt."""


class EarlierEnd(Config):
    """An end of a run that was given more steps or epochs after it."""

    steps: float
    """Steps, or epochs of a fine-tuning, that it was to have then."""
    ended: str | None = None
    """Time, in UTC."""
    outcome: RunOutcome | None = None
    """What came out; None for a fine-tuning, whose scores are kept."""


class Passport(Config):
    """What a run was made from and by, and what came out."""

    recipe: str
    """Its name; recipe.yaml has all of it."""
    code: Code
    """The program."""
    environment: dict[str, str]
    """Libraries, processor, threads, device, number format."""
    seeds: dict[str, int]
    """Where all random numbers come from."""
    data: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the training text, the held-out text and the tokenizer."""
    start: str | None = None
    """The model or run whose weights and tokenizer it began with; None: random weights."""
    begun: str
    """Time, in UTC."""
    ended: str | None = None
    """Time, in UTC; None until it is finished."""
    parts: int = 1
    """How often the run was started; 1 when it was never interrupted."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall-clock seconds of each stage, over all parts."""
    outcome: RunOutcome | None = None
    """None until the run is finished."""
    earlier: tuple[EarlierEnd, ...] = ()
    """Ends after which it was given more steps, the first one first."""

    def write(self, folder: Path) -> None:
        """Write it into a run folder, atomically."""
        write_text(folder / PASSPORT_FILE, self.model_dump_json(indent=2) + "\n")

    def timed(self, stage: str, seconds: float) -> Passport:
        """Return a passport with time added to a stage."""
        return self.model_copy(update={"seconds": self.seconds | {stage: self.seconds.get(stage, 0.0) + seconds}})

    def in_environment(self, **found: str) -> Passport:
        """Return a passport that knows more of its environment."""
        return self.model_copy(update={"environment": self.environment | found})


def start_passport(folder: Path, name: str, seeds: dict[str, int], start: Path | None = None) -> Passport:
    """Begin the passport of a run, or count another part of the one that its folder holds."""
    if (folder / PASSPORT_FILE).is_file():
        found = read_passport(folder)
        return found.model_copy(update={"parts": found.parts + 1})
    return Passport(recipe=name, code=code_version(), environment=describe_environment(), seeds=seeds,
                    start=None if start is None else locate_model(start), begun=utc_now())


def read_passport(folder: Path) -> Passport:
    """Read the passport of a run folder. Raises `InputError` where there is none."""
    path = folder / PASSPORT_FILE
    if not path.is_file():
        raise InputError("has no passport.json", where=str(folder),
                         remedy="give a run folder that `saucier cook` made")
    try:
        return Passport.model_validate(read_object(path))
    except ValidationError as error:
        raise InputError(f"not a passport: {str(error).splitlines()[0]}", where=str(path),
                         remedy="cook again into a new folder") from error


def utc_now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def code_version() -> Code:
    """Return the version and the digest of Saucier's own files."""
    root = Path(plain.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return Code(version=plain.VERSION, sha256=digest.hexdigest())


def describe_environment() -> dict[str, str]:
    """Return what else may change the last bits of a result. Nothing in it names the machine or the person."""
    import torch

    from saucier.machine import count_cores, processor_name

    return {"python": platform.python_version(), "system": platform.system(), "processor": processor_name(),
            "cores": str(count_cores()), "threads": str(torch.get_num_threads()),
            **{name: metadata.version(name) for name in LIBRARIES}}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class RerunComparison(Result):
    """A run and its repetition."""

    first: Passport
    second: Passport

    @property
    def equal(self) -> bool:
        """Whether both ended with the same weights, bit by bit, and wrote the same samples."""
        return self.first.outcome is not None and self.first.outcome == self.second.outcome

    @property
    def failed(self) -> bool:
        """Whether the results differ."""
        return not self.equal

    def summary(self) -> list[str]:
        """Say both outcomes, what was not the same from the start, and the verdict."""
        return [*self.lines(), *self.reasons(), "the results are equal" if self.equal else "the results differ"]

    def view(self) -> str:
        """Return the summary as one text."""
        return "\n".join(self.summary())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"equal": self.equal, "first": self.first.model_dump(mode="json"),
                "second": self.second.model_dump(mode="json"), "differences": list(self.reasons())}

    def reasons(self) -> Iterator[str]:
        """Yield what was not the same from the start, and may be why the results differ."""
        for name in ("data", "code", "environment", "seeds"):
            found = first_difference(*(one.model_dump(mode="json")[name] for one in (self.first, self.second)))
            if found is not None:
                key, old, new = found
                yield f"{name}: {key} was {old}, and is {new}"
        if self.first.earlier:
            ends = ", ".join(f"{one.steps:,.0f}" for one in self.first.earlier)
            yield f"steps: the first run ended after {ends} and was given more; the second had all of them at once"

    def lines(self) -> Iterator[str]:
        """Yield the outcome for a person."""
        one, two = self.first.outcome, self.second.outcome
        if one is None or two is None:
            return
        for name, form in (("weights", ".12"), ("loss", ".6f"), ("samples", ".12")):
            old, new = getattr(one, name), getattr(two, name)
            yield f"{name:<8} {old:{form}} and {new:{form}}: {'equal' if old == new else 'different'}"


def add_to_digest(update: Callable[[bytes], object], items: Iterable[Any], *fields: str) -> Iterator[Any]:
    """Pass items on as they stream by, giving their fields to `update` of a digest."""
    for item in items:
        for name in fields:
            text = str(getattr(item, name)).encode()
            update(len(text).to_bytes(8, "little") + text)
        yield item

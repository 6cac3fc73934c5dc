"""The versions of an index that is made again while its encoder learns: folders, when each was taken, who makes them.

In a run's folder `versions/` there is a folder `step-N` for the encoder after N updates, with a passport like every
index, and `taken.jsonl`, which says after how many updates the training began to use it. A version is renamed into its
place when it is whole. `python -m saucier.retrieval.index_versions CORPUS` is the second process: each line that it
reads names an encoder and a version to make; where the input ends, so does it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from saucier.checkpoints.steps import list_checkpoints
from saucier.errors import InputError, WorkError
from saucier.files import parse_json, remove_path, write_atomically, write_text
from saucier.folders.save import save_bare
from saucier.model import Transformer
from saucier.retrieval.encoder import open_encoder
from saucier.retrieval.passages import PASSPORT, PassageIndex, read_passages
from saucier.text.tokenizer.tokenizer import Tokenizer

TAKEN, LOG = "taken.jsonl", "process.log"
TRIES = 3
"""How often the second process may end over one version before the training does."""
PATIENCE = 10.0
"""Seconds that a process which was told to end has for it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A version, and when the training began to use it, both in updates."""

    made: int
    taken: int


@dataclass(slots=True)
class IndexVersions:
    """The versions in a run's folder."""

    folder: Path
    run: Path
    """Whose checkpoints need them."""
    writes: bool = True
    """Whether this process writes; of several the first one does."""
    log: list[Taken] = field(default_factory=list)

    def place(self, made: int) -> Path:
        """Return the folder of a version."""
        return self.folder / f"step-{made}"

    def go_back(self, done: int) -> PassageIndex | None:
        """Return the version in use after so many updates, None for the first index; forget what was taken later.

        Raises `InputError` where it is gone.
        """
        path = self.folder / TAKEN
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        try:
            known = [Taken(**parse_json(line)) for line in lines]
        except (TypeError, ValueError) as error:
            raise InputError("does not say which index was used when", where=str(path),
                             remedy="begin the run again") from error
        self.log = [one for one in known if one.taken <= done]
        self.write_log()
        if self.writes:
            for left in self.folder.glob("encoder-*"):  # of a process that was killed
                remove_path(left)
        if not self.log:
            return None
        place = self.place(self.log[-1].made)
        if not (place / PASSPORT).is_file():
            raise InputError("the index that the checkpoint learned with is gone", where=str(place),
                             remedy="put the folder back, or begin the run again")
        return PassageIndex.read(place)

    def take(self, made: int, done: int) -> None:
        """Note that a version is used from now on; those that no checkpoint needs are removed."""
        self.log.append(Taken(made, done))
        self.write_log()
        newest = next((int(path.name.rpartition("-")[2]) for path in list_checkpoints(self.run)), 0)
        needed = [one for one, after in zip(self.log, [*self.log[1:], None], strict=True)
                  if after is None or after.taken > newest]
        if self.writes:
            for one in {one.made for one in self.log} - {one.made for one in needed}:
                remove_path(self.place(one))

    def write_log(self) -> None:
        """Write when each was taken."""
        if self.writes and (self.log or self.folder.is_dir()):
            write_text(self.folder / TAKEN,
                       "".join(json.dumps({"made": one.made, "taken": one.taken}) + "\n" for one in self.log))

    def ages(self, done: int) -> list[int]:
        """Return how old the index was at each of so many updates, in updates."""
        found: list[int] = []
        for one, after in zip([Taken(0, 0), *self.log], [*self.log, Taken(0, done)], strict=True):
            found += [step - one.made for step in range(one.taken, after.taken)]
        return found


class Refresher(Protocol):
    """What makes an index again: the trainer itself, a second process, or nobody."""

    def after(self, done: int, build: Callable[[], PassageIndex]) -> tuple[PassageIndex, int] | None:
        """Return an index to take after so many updates, and after how many its encoder was; None: none is ready."""

    def describe(self) -> str:
        """Say who makes it."""

    def close(self) -> None:
        """End what is under way."""


@dataclass(frozen=True, slots=True)
class NeverRefreshed:
    """Nobody."""

    def after(self, done: int, build: Callable[[], PassageIndex]) -> tuple[PassageIndex, int] | None:
        """There is none."""
        return None

    def describe(self) -> str:
        """Say so."""
        return "never"

    def close(self) -> None:
        """There is nothing to end."""


@dataclass(frozen=True, slots=True)
class InPlaceRefresher:
    """The trainer, which waits for it."""

    versions: IndexVersions
    every: int

    def after(self, done: int, build: Callable[[], PassageIndex]) -> tuple[PassageIndex, int] | None:
        """Make it every so many updates."""
        if done % self.every:
            return None
        found = build()
        if self.versions.writes:
            found.write(self.versions.place(done))
        return found, done

    def describe(self) -> str:
        """Say how often."""
        return f"by the trainer, every {self.every} updates"

    def close(self) -> None:
        """There is nothing to end."""


@dataclass(slots=True)
class ProcessRefresher:
    """A second process, which embeds all passages while training goes on."""

    versions: IndexVersions
    corpus: Path
    """The run's first index, of which it reads the texts."""
    every: int
    model: Transformer
    tokenizer: Tokenizer
    process: subprocess.Popen[str] | None = None
    asked: int | None = None
    """The version that it makes, None: none."""
    handed: int = 0
    """When it was last given an encoder."""
    tries: int = 0
    ended: int = 0
    """How often it ended by itself."""

    def after(self, done: int, build: Callable[[], PassageIndex]) -> tuple[PassageIndex, int] | None:
        """Take what it has finished, and give it an encoder where it has nothing to do.

        Raises `WorkError` where it ends again and again.
        """
        found = self.collect()
        if self.asked is None and done - self.handed >= self.every:
            write_atomically(self.encoder(done), self.write_encoder)
            remove_path(self.versions.place(done))  # what was made before a run went back
            self.asked = self.handed = done
            self.ask()
        return found

    def collect(self) -> tuple[PassageIndex, int] | None:
        """Return the version that it made, if it is there; start the process again where it ended."""
        if self.asked is None:
            return None
        made, place = self.asked, self.versions.place(self.asked)
        if (place / PASSPORT).is_file():
            remove_path(self.encoder(made))
            self.asked, self.tries = None, 0
            return PassageIndex.read(place), made
        if self.process is not None and self.process.poll() is not None:
            self.ended, self.tries = self.ended + 1, self.tries + 1
            if self.tries >= TRIES:
                raise WorkError(f"the process that makes the index ended {self.tries} times over one version, last "
                                f"with code {self.process.returncode}", where=str(self.versions.folder / LOG),
                                remedy="see this file; or let the trainer make it: task.retrieval.refresh.kind=steps")
            self.ask()
        return None

    def encoder(self, made: int) -> Path:
        """Return the folder by which an encoder is handed over."""
        return self.versions.folder / f"encoder-{made}"

    def write_encoder(self, folder: Path) -> None:
        """Write the encoder as it is now."""
        save_bare(self.model, folder)
        self.tokenizer.save(folder)

    def ask(self) -> None:
        """Name the encoder and the version to the process, which is started where none runs."""
        assert self.asked is not None, "a version was asked for"
        if self.process is None or self.process.poll() is not None:
            with (self.versions.folder / LOG).open("a", encoding="utf-8") as log:
                self.process = subprocess.Popen(  # in a session of its own: Ctrl-C is for the trainer
                    [sys.executable, "-m", __name__, str(self.corpus)], stdin=subprocess.PIPE, text=True,
                    stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        assert self.process.stdin is not None, "it was opened above"
        try:
            self.process.stdin.write(json.dumps({"encoder": str(self.encoder(self.asked)),
                                                 "version": str(self.versions.place(self.asked))}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended in between, which the next update sees

    def describe(self) -> str:
        """Say who makes it, and whether it had to be started again."""
        return "by a second process" + (f", which ended {self.ended} times and was started again" if self.ended else "")

    def close(self) -> None:
        """End the process."""
        if self.process is None:
            return
        assert self.process.stdin is not None, "it was opened with one"
        try:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        if self.asked is not None:
            remove_path(self.encoder(self.asked))
        self.process, self.asked = None, None


def make_versions(arguments: Sequence[str]) -> None:
    """Make each version that a line of the standard input asks for; the process ends where the input does."""
    passages = read_passages(arguments[0])
    lines: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)  # the trainer is gone or wants no more: nobody waits for what is half made

    threading.Thread(target=listen, daemon=True).start()
    while True:
        asked = parse_json(lines.get())
        PassageIndex.build(passages, open_encoder(asked["encoder"], device="cpu")).write(Path(asked["version"]))


if __name__ == "__main__":
    make_versions(sys.argv[1:])

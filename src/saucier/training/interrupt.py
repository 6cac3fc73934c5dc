"""Ctrl-C and SIGTERM: the first asks the loop to save and stop, the second stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """While it is entered, remembers that a person or a scheduler wants the run to stop."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self.asked = False
        self.before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupt:
        """Take the signals over; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            self.before = {one: signal.signal(one, self.ask) for one in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Give the signals back."""
        for one, handler in self.before.items():
            signal.signal(one, handler)  # type: ignore[arg-type]  # what signal.signal returned

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Remember the first signal; let the second one through."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

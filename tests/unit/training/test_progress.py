"""What a person and the files hear of a run."""

from __future__ import annotations

import io
import json
import signal
import sys
import threading
import types
from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import recipe

from saucier.devices import choose_autocast_dtype
from saucier.jobs.run.console import Console
from saucier.machine import in_notebook
from saucier.training.loop import Interrupt
from saucier.training.processes import join_processes
from saucier.training.progress import (
    Bar,
    Lines,
    MetricsFile,
    NotebookBar,
    Progress,
    choose_screen,
    shows_bar,
)
from saucier.training.reporters import build_reporters


def at(step: int) -> Progress:
    """Return the progress after a step of ten."""
    return Progress(step, 10, 2.5, 1e-3, 0.7, 100 * step, 120 * step, 50.0, 2.0 * step)


def test_lines_come_every_few_steps_and_at_both_ends() -> None:
    stream = io.StringIO()
    lines = Lines(4, stream)
    for step in range(1, 11):
        lines.progress(at(step))
    lines.evaluation(10, {"loss": 1.25, "nats": 17350.0, "targets": 4316.0, "accuracy": 0.5})
    said = stream.getvalue().splitlines()
    assert [line.split(":")[0] for line in said] == ["step 1/10", "step 4/10", "step 8/10", "step 10/10", "step 10"]
    assert "loss 2.5000, rate 1.00e-03, 50 tokens/s, 12 s left" in said[1]
    assert said[-1] == "step 10: held-out loss 1.25, accuracy 0.5 (4,316 targets)"


def test_without_a_terminal_there_are_lines_and_with_one_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(choose_screen(10, 2), Lines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = choose_screen(10, 2)
    assert isinstance(bar, Bar)
    bar.progress(at(3))
    assert bar.bar.tasks[0].completed == 3
    assert "loss 2.5000" in bar.bar.tasks[0].fields["facts"]
    bar.close()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend that this process is that of a notebook; return what it shows, one text for each time."""
    pages: list[str] = []

    class Handle:
        def update(self, what: object) -> None:
            pages.append(what._repr_html_())  # type: ignore[attr-defined]

    def display(what: object, *, display_id: bool) -> Handle:
        assert display_id
        Handle().update(what)
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    python = types.ModuleType("IPython")
    python.get_ipython = lambda: shell  # type: ignore[attr-defined]
    screen = types.ModuleType("IPython.display")
    screen.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", screen)
    return pages


def test_a_notebook_has_one_bar_below_its_lines(shown: list[str]) -> None:
    bar = choose_screen(10, 2)
    assert isinstance(bar, NotebookBar) and not shows_bar(), "a silent job has none"
    bar.note("training on cpu in <float32>")
    for step in range(1, 11):
        bar.progress(at(step))
    bar.evaluation(10, {"loss": 1.25})
    bar.close()
    assert len(shown) == 4, "steps that come faster than a browser draws are not shown one by one"
    assert "<div>training on cpu in &lt;float32&gt;</div><div>step 10: held-out loss 1.25</div>" in shown[-1]
    assert '<progress value="10" max="10">' in shown[-1] and "10 of 10, loss 2.5000" in shown[-1]
    assert repr(bar).splitlines()[1] == "step 10: held-out loss 1.25"


def test_a_slow_step_moves_the_bar_of_a_notebook(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NotebookBar, "SECONDS", 0.0)
    bar = choose_screen(10, 2)
    bar.progress(at(3))
    assert '<progress value="3" max="10">' in shown[-1] and "14 s left" in shown[-1]


def test_a_job_prints_plain_text_in_a_notebook(shown: list[str], capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich would show each line as an output of its own."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    Console().say("2 texts")
    assert capsys.readouterr().out.strip() == "2 texts"


def test_python_without_a_notebook_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython in a terminal has no kernel; plain Python does not import it."""
    python = types.ModuleType("IPython")
    python.get_ipython = lambda: object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", python)
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_another_thread_leaves_signals_alone() -> None:
    """`signal.signal` may be called in the main thread only; a notebook's server may train in another."""
    before = signal.getsignal(signal.SIGINT)
    found: list[object] = []

    def work() -> None:
        with Interrupt() as interrupt:
            found.extend((signal.getsignal(signal.SIGINT), interrupt.received))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before, False] and signal.getsignal(signal.SIGINT) is before


def test_a_metrics_file_keeps_what_is_whole_and_not_later(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "loss": 1.0}\n{"step": 4, "loss": 0.5}\n{"step"')
    MetricsFile(path, 1, 2).progress(at(3))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [2, 3]


def test_a_process_that_does_not_write_leaves_no_file(tmp_path: Path) -> None:
    assert build_reporters(recipe(3), tmp_path, 0, None, writes=False).members == ()
    assert list(tmp_path.iterdir()) == []


def test_the_second_interrupt_is_let_through() -> None:
    interrupt = Interrupt()
    interrupt.receive(2, None)
    assert interrupt.received
    with pytest.raises(KeyboardInterrupt):
        interrupt.receive(2, None)


def test_the_number_format_is_explained() -> None:
    device = torch.device("cpu")
    assert choose_autocast_dtype("float32", device) == ("float32", "float32 as asked")
    dtype, why = choose_autocast_dtype("auto", device)
    assert why.startswith(dtype)


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_processes() as processes:
        assert (processes.rank, processes.world, processes.first) == (0, 1, True)
        assert processes.any(True)
        assert not processes.agree(False)

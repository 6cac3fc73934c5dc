"""Threads that read one model at the same time get what each gets alone, and the model stays as it was."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.laws.zoo import everything, scrambled, tokens
from tests.unit.generation.models import START, prompt, small
from torch import Tensor

import saucier
from saucier.errors import InputError
from saucier.generation import compiled_step
from saucier.generation.packed_weights import MadeFromWeights, inference_view
from saucier.model import Transformer
from saucier.text.tokenizer import chat

READERS = everything()
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {}, "beams": {"num_beams": 3}, "sampled": {"do_sample": True, "seed": 5},
    "another seed": {"do_sample": True, "seed": 6, "top_k": 9}, "without a cache": {"use_cache": False}}


@pytest.fixture(autouse=True)
def quick_turns() -> Iterator[None]:
    """Let threads take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*calls: Callable[[], Tensor]) -> list[Tensor]:
    """Run all in threads that begin at the same moment; return what each gave. Raises what one raised."""
    found: list[Any] = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def work(place: int) -> None:
        gate.wait()
        try:
            found[place] = calls[place]()
        except Exception as error:  # noqa: BLE001  # raised below
            found[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def modes(model: Transformer) -> list[bool]:
    """Return whether each module is in training mode."""
    return [one.training for one in model.modules()]


def writers(model: Transformer, tokens: int, **more: Any) -> list[Callable[[], Tensor]]:
    """Return a call of `generate` for each way of writing, of different lengths."""
    return [lambda number=number, way=way: saucier.generate(  # type: ignore[misc]  # bound now
        model, prompt(2, 5), max_new_tokens=tokens + number, **START, **way, **more)
        for number, way in enumerate(WAYS.values())]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_threads_write_what_each_writes_alone(family: str, dtype: torch.dtype) -> None:
    """The model is in training mode, with dropout, and partly in evaluation mode; it stays so."""
    model = small(family).to(dtype).train()
    next(model.children()).eval()
    before = modes(model)
    calls = writers(model, 6)
    want = [call() for call in calls]
    for _ in range(3):
        assert all(torch.equal(one, other) for one, other in zip(together(*calls), want, strict=True))
    assert modes(model) == before
    model.eval()
    assert all(torch.equal(call(), one) for call, one in zip(calls, want, strict=True))


def test_a_pass_may_run_during_generation() -> None:
    """A training pass of another thread keeps its dropout, and a compiled one its code."""
    model = small("gpt2").train()
    hooked: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        hooked.append("compiled")
        return graph

    model.compile(backend=backend)
    calls = [lambda: saucier.generate(model, prompt(), max_new_tokens=20),
             lambda: torch.stack([torch.tensor(model.training and model._compiled_call_impl is not None)
                                  for _ in range(20_000)])]
    alone = calls[0]()
    ids, trained = together(*calls)
    assert torch.equal(ids, alone)
    assert bool(trained.all())
    assert not hooked


def test_a_failed_call_leaves_the_model_in_training_mode() -> None:
    model = small("gpt2").train()
    with pytest.raises(InputError):
        saucier.generate(model, prompt(), max_new_tokens=10_000)
    assert all(modes(model))


@pytest.mark.sampled
@pytest.mark.parametrize("name", READERS)
def test_the_view_is_the_model_in_evaluation_mode(name: str) -> None:
    """Nothing of a view draws, remembers or hides as a model in training does, and it shares every parameter."""
    model = scrambled(READERS[name])
    ids = tokens(model.config, 2, 6)
    given = {"decoder_input_ids": ids} if model.config.encoder and model.config.decoder else {}
    with torch.inference_mode():
        want = model.eval()(ids, **given).last_hidden_state
        assert inference_view(model) is model
        view = inference_view(model.train())
        assert torch.equal(view(ids, **given).last_hidden_state, want)
    assert view is not model
    assert [id(one) for one in view.parameters()] == [id(one) for one in model.parameters()]
    assert all(modes(model))


@pytest.mark.nightly
def test_threads_share_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread compiles while another writes without: each gets its own ids, and the code is made once."""
    monkeypatch.setenv("SAUCIER_CACHE", str(tmp_path))
    monkeypatch.setattr(compiled_step, "STEPS", MadeFromWeights())
    model = small("gpt2", layers=1).train()
    plain, compiled = writers(model, 20)[0], writers(model, 20, compile=True)[0]
    want = plain()
    for _ in range(2):
        assert all(torch.equal(one, want) for one in together(compiled, compiled, plain, plain))
    assert len(list((tmp_path / "compiled").iterdir())) == 1
    assert all(modes(model))


def test_a_template_has_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that begins to fill the same template gives the first no more time."""
    pytest.importorskip("jinja2")
    now = [0.0]
    monkeypatch.setattr(chat, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    template = "{% for wait in waits %}{{ wait() }}{% endfor %}{% for _ in waits %}x{% endfor %}"

    def meanwhile() -> str:
        now[0] = chat.SECONDS - 1
        other = threading.Thread(target=chat.render_template, args=(template, {"waits": []}))
        other.start()
        other.join()
        now[0] = chat.SECONDS + 1
        return ""

    with pytest.raises(InputError, match="seconds"):
        chat.render_template(template, {"waits": [meanwhile]})
    assert time is not chat.time

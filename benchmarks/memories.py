"""Evaluation beside a memory against a window that slides over the text, by the same evaluator; rows of `long_inputs`.

Both know as many tokens before each target. Letters: D width.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, at_least

if TYPE_CHECKING:
    from saucier import config as c
    from saucier.objectives import config as o
    from saucier.text.rows.store import TokenStore

SIZE = {"dim": 256, "layers": 4, "heads": 4, "vocab": 1000, "segment": 128, "segments": 8, "rows": 4}
CONTEXTS = (800, 1800, 3800)
"""As in table 9 of Dai et al. 2019, arXiv:1901.02860, which tells of 363, 773 and 1,874 times the speed."""
QUICK_SIZE = SIZE | {"dim": 32, "layers": 1, "segment": 16, "segments": 2}
QUICK_CONTEXTS = (64,)


def evaluating(settings: dict[str, Any], body: c.Transformer, objective: o.Causal, batches: Any) -> Turn:
    """Return a turn: an evaluation, in targets a second. `batches`: makes them of a store of random tokens."""
    import numpy as np

    from saucier.model import build
    from saucier.objectives.base import ObjectiveInputs, TokenIds
    from saucier.objectives.build import build_objective
    from saucier.text.rows.store import Piece, TokenStore, write_stores
    from saucier.training.evaluation import Evaluator

    folder = TemporaryDirectory()
    tokens = np.random.default_rng(0).integers(0, settings["vocab"], settings["context"] + settings["segment"]
                                               * settings["segments"] + 1)
    path = Path(folder.name) / "store"
    write_stores(path, {".": settings["vocab"]}, [(Piece(tokens.tolist()),)])
    corruption, learned = build_objective(objective, ObjectiveInputs(TokenIds(settings["vocab"]), body))
    evaluate = Evaluator(batches(TokenStore(path)), corruption, learned.held_out())
    model = build(body)

    def turn() -> float:
        assert folder, "the store lives as long as this"
        begin = time.perf_counter()
        targets = evaluate(model)["targets"]
        return targets / (time.perf_counter() - begin)

    return turn


def memory(settings: dict[str, Any]) -> Turn:
    """Transformer-XL: every token is read once, beside a memory."""
    from saucier.families import FAMILIES
    from saucier.objectives import config as o
    from saucier.text.rows.running import ConsecutiveEvaluation

    sizes = {key: settings[key] for key in ("dim", "layers", "heads", "vocab")}
    body = FAMILIES["transfo_xl"](**sizes, hidden=4 * settings["dim"], memory=settings["context"], division=1,
                                  cutoffs=(settings["vocab"] // 2,))

    def batches(store: TokenStore) -> Any:
        return ConsecutiveEvaluation(store, length=settings["segment"], batch=1, overlap=1)

    return evaluating(settings, body, o.Causal(rows=o.ConsecutiveRows()), batches)


def sliding(settings: dict[str, Any]) -> Turn:
    """GPT-2 of the same size: the whole context is read again for each token."""
    from saucier.families import FAMILIES
    from saucier.objectives import config as o
    from saucier.text.rows.running import PackedEvaluation

    sizes = {key: settings[key] for key in ("dim", "layers", "heads", "vocab")}
    body = FAMILIES["gpt2"](**sizes, length=settings["context"])

    def batches(store: TokenStore) -> Sequence[Any]:
        rows = PackedEvaluation(store, length=settings["context"], batch=settings["rows"], overlap=1, stride=1)
        return [rows[1]]  # the first batch holds the first row, all of whose tokens are targets

    return evaluating(settings, body, o.Causal(), batches)


CONTENDERS: dict[str, Contender] = {"memory": memory, "sliding": sliding}


def rows(*, quick: bool) -> list[Row]:
    """Return a comparison for each context."""
    found = []
    for context in QUICK_CONTEXTS if quick else CONTEXTS:
        settings = (QUICK_SIZE if quick else SIZE) | {"context": context}
        speeds = race("benchmarks.memories", {"memory": settings, "sliding": settings}, TRIED if quick else 3)
        found.append(at_least(f"evaluation with a context of {context}: Transformer-XL's memory against GPT-2's window "
                              "that slides by one token", f"{speeds['memory']:.4g} tokens/s",
                              f"{speeds['sliding']:.3g} tokens/s", speeds["memory"] / speeds["sliding"], 20))
    return found

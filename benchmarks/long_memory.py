"""Memory at its peak of whole models over long inputs: of a process that reads a text, and of one that learns from it.

A part of the section of long inputs. Letters: L length.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, at_most

if TYPE_CHECKING:
    from torch import nn

    from saucier import config as c

SIZES = {"dim": 256, "layers": 4, "heads": 4, "vocab": 1000}
LENGTH, QUICK_LENGTH = 32768, 1024


def reformer(length: int) -> c.Transformer:
    """Two reversible streams, chunks and two rounds of hashes in turns."""
    from saucier import config as c
    from saucier.families import FAMILIES

    grid = c.Axial(shape=(length // 256, 256), widths=(64, 192))
    return FAMILIES["reformer"](**SIZES, head_dim=64, hidden=1024, positions=grid, lsh=c.Hashing(rounds=2))


def performer(length: int) -> c.Transformer:
    """GPT-2 by 256 random features."""
    from saucier import config as c
    from saucier.families import FAMILIES
    from saucier.recipes.recipe import with_kernel

    return with_kernel(FAMILIES["gpt2"](**SIZES, length=length), c.Favor())


def linformer(length: int) -> c.Transformer:
    """BERT by 256 mixtures of keys."""
    from saucier import config as c
    from saucier.families import FAMILIES
    from saucier.recipes.recipe import with_kernel

    return with_kernel(FAMILIES["bert"](**SIZES, length=length), c.LowRank(length=length, rank=256))


def longformer(length: int) -> c.Transformer:
    """A window of 512 with global tokens."""
    from saucier.families import FAMILIES

    return FAMILIES["longformer"](**SIZES, length=length + 2, window=512)


BODIES: dict[str, Callable[[int], c.Transformer]] = {"reformer": reformer, "performer": performer,
                                                     "linformer": linformer, "longformer": longformer}


def peak() -> float:
    """Return the most memory that this process has held, in gigabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def reading(settings: dict[str, Any]) -> Turn:
    """One pass without gradients."""
    import torch

    from saucier.model import build

    model, ids = build(BODIES[settings["body"]](settings["length"])).eval(), text(settings)

    def turn() -> float:
        with torch.inference_mode():
            model(ids, compute_logits=False)
        return peak()

    return turn


def learning(settings: dict[str, Any]) -> Turn:
    """One pass and its gradients, blocks recomputed; a reversible stack computes itself back whatever is said."""
    from saucier.config import Activations
    from saucier.model import build
    from saucier.parts.stack import choose_activations

    model, ids = build(BODIES[settings["body"]](settings["length"])).train(), text(settings)
    choose_activations([model], Activations(kind="recompute"))

    def turn() -> float:
        loss(model, ids).backward()
        return peak()

    return turn


def text(settings: dict[str, Any]) -> Any:
    """Return tokens drawn at random, [1, L]."""
    import torch

    return torch.randint(5, SIZES["vocab"], (1, settings["length"]), generator=torch.Generator().manual_seed(0))


def loss(model: nn.Module, ids: Any) -> Any:
    """Return the cross-entropy of the tokens by their own vectors, in pieces as in training."""
    from saucier.objectives.cross_entropy import compute_cross_entropy

    hidden = model(ids, compute_logits=False).last_hidden_state
    table = model.get_parameter("embed.tokens.weight")
    return compute_cross_entropy(hidden[0, :, :table.shape[1]], table, None, ids[0]).loss


CONTENDERS: dict[str, Contender] = {"reading": reading, "learning": learning}


def rows(*, quick: bool) -> list[Row]:
    """Return the peaks of all bodies."""
    found = []
    for job, limit in (("reading", 2), ("learning", 6)):
        for body in BODIES if job == "learning" else ("reformer", "performer", "linformer"):
            settings = {"body": body, "length": QUICK_LENGTH if quick else LENGTH}
            most = race("benchmarks.long_memory", {job: settings}, TRIED if quick else 1)[job]
            what = "reads" if job == "reading" else "learns from"
            found.append(at_most(f"memory of a process that {what} {settings['length']} tokens, {body}, 4 layers, "
                                 "256 wide", most, limit, "GB"))
    return found

"""Which objective trains which kind of body: asked of the checks themselves, and written as docs/bodies.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import get_args

from saucier import config as architecture
from saucier.families import FAMILIES
from saucier.objectives import config as c
from saucier.objectives.config.noise import mode_tokens
from saucier.objectives.fit import Around, misfits
from saucier.objectives.material import material
from saucier.text.config import Data, LanguageData, PairData, SpecialTokens, TextData, WordPiece
from saucier.text.material import Pairs

HEAD = """# What trains what

Any objective trains any body where the shapes allow; where they do not, a recipe is refused before any text is read,
and the reason is the one below. Each objective stands here with its defaults. Written by `saucier recipes --bodies`;
tests hold this page current, and train every pair that is said to fit. What the objectives are:
[objectives.md](objectives.md).

"""
LENGTH_TOKEN = c.ConditionalMasked().length_token
TOKENIZER = WordPiece(special=SpecialTokens(
    pad="<pad>", bos="<s>", eos="</s>", cls="<cls>", sep="<sep>", mask="<mask>", sentinels=100,
    extra=(*mode_tokens(c.MixtureOfDenoisers()), *c.MultilingualDenoising().tokens, LENGTH_TOKEN),
    single=f"{LENGTH_TOKEN} $A </s>"))
"""A tokenizer that has every token, and marks what goes on with a word."""
SIZE = {"dim": 16, "layers": 2, "heads": 2, "vocab": 200}
HEADS = (architecture.LanguageHead(tied=False), architecture.ReplacedTokenHead(), architecture.BidirectionalHead())
"""The heads that an objective may ask for; a recipe puts any of them on a body."""


def bodies() -> dict[str, architecture.Transformer]:
    """Return a small body of every kind, by what a table calls it."""
    prefix = architecture.Prefix()
    return {"encoder": FAMILIES["bert"](**SIZE, length=64),
            "encoder, two streams": FAMILIES["xlnet"](**SIZE, hidden=32),
            "encoder, two directions": FAMILIES["elmo"](dim=16, layers=2, cells=12, vocab=200, tied=True),
            "decoder": FAMILIES["gpt2"](**SIZE, length=64),
            "prefix decoder": FAMILIES["gpt2"](**SIZE, length=64, visibility=prefix),
            "encoder and decoder": FAMILIES["t5"](**SIZE, head_dim=8, hidden=32),
            "encoder and decoder, whole texts": FAMILIES["mask_predict"](**SIZE, hidden=32, mask=5, longest=512)}


def objectives() -> list[c.Single]:
    """Return every objective with its defaults."""
    return [kind() for kind in members(c.Single)]


def members(union: UnionType) -> Iterator[type[c.Single]]:
    """Yield the types of a union of unions."""
    for one in get_args(union):
        if isinstance(one, UnionType):
            yield from members(one)
        else:
            yield one


@dataclass(frozen=True, slots=True)
class Pair:
    """An objective and a body, and why they do not go together, if they do not."""

    objective: c.Single
    body: architecture.Transformer
    """With the head that the objective asks for, where there is one that makes it fit."""
    reason: str | None


def pair(objective: c.Single, body: architecture.Transformer) -> Pair:
    """Ask whether a body, with any head, can learn an objective."""
    several = isinstance(objective, c.MultilingualDenoising)
    data: Data = PairData() if isinstance(material(objective), Pairs) else LanguageData() if several else TextData()
    heads = (body.head,) if isinstance(body.head, architecture.LengthHead) else HEADS
    asked = [body.model_copy(update={"head": head}) for head in heads]
    reasons = [next((found.what for found in misfits(objective, Around(one, TOKENIZER, data))), None) for one in asked]
    best = reasons.index(None) if None in reasons else 0
    return Pair(objective, asked[best], reasons[best])


def page() -> str:
    """Return docs/bodies.md."""
    kinds, reasons, lines = bodies(), dict[str, int](), []
    for objective in objectives():
        cells = []
        for body in kinds.values():
            reason = pair(objective, body).reason
            cells.append("yes" if reason is None else f"no ({reasons.setdefault(reason, len(reasons) + 1)})")
        lines.append(f"| `{objective.kind}` | " + " | ".join(cells) + " |")
    head = ["| objective | " + " | ".join(kinds) + " |", "|" + " --- |" * (len(kinds) + 1)]
    why = [f"{number}. {reason}" for reason, number in reasons.items()]
    return HEAD + "\n".join([*head, *lines, "", *why]) + "\n"

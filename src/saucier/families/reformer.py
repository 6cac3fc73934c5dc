"""Reformer: attention in chunks, of neighbours and of positions that hash alike, in two reversible streams."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any, Literal

from saucier import config as c
from saucier.config.blocks import arrange_blocks

Kind = Literal["local", "lsh"]
PAPER: tuple[Kind, ...] = ("local", "lsh") * 3


def reformer(dim: int = 256, layers: int | Sequence[Kind] = PAPER, *, heads: int = 12, head_dim: int = 64,
             vocab: int = 320, hidden: int = 512, positions: c.EmbeddingPositions | None = None,
             local: c.Chunks | None = None, lsh: c.Hashing | None = None, causal: bool = True, dropout: float = 0.05,
             eps: float = 1e-12, activation: c.Activation = "relu") -> c.Transformer:
    """Reformer; `layers` says what each layer attends by, a number of them takes turns.

    `local` and `lsh` are the two kernels. Source: Kitaev et al. 2020, arXiv:2001.04451, and its code release. Published
    models drop embeddings before their positions are added, and rows and columns of the grid whole; here dropout comes
    after the sum.
    """
    kinds = tuple(PAPER[number % 2] for number in range(layers)) if isinstance(layers, int) else tuple(layers)
    kernels = {"local": local or c.Chunks(dropout=0.05), "lsh": lsh or c.Hashing()}
    feed_forward = c.FeedForward(hidden=hidden, activation=activation, dropout=dropout)
    projection = c.Projection(heads=heads, head_dim=head_dim, bias=False, output_bias=False)
    norm = c.LayerNorm(eps=eps)

    def block(kind: Kind) -> c.Block:
        attention = c.SelfAttention(projection=projection, visibility=c.Causal() if causal else c.Full(),
                                    kernel=kernels[kind])
        return c.Block(sublayers=tuple(c.PreNorm(inner=inner, norm=norm, dropout=dropout)
                                       for inner in (attention, feed_forward)))

    stack = c.Stack(layers=arrange_blocks(tuple(block(kind) for kind in kinds)), final_norm=norm, dropout=dropout,
                    residual=c.Streams(kind="reversible"))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, dropout=dropout,
                          positions=positions or c.Axial(shape=(64, 64), widths=(dim // 4, dim - dim // 4))),
        encoder=None if causal else stack,
        decoder=stack if causal else None,
        head=c.LanguageHead(tied=False),
    )


def from_fields(dim: int, layers: Sequence[Kind], **given: Any) -> c.Transformer:
    """The family by the published fields that shape it, as an encoder."""
    if set(layers) - {"local", "lsh"}:
        raise ValueError(f"attn_layers {list(layers)}: known are local and lsh")
    chunk = {kind: given.pop(f"{kind}_length") for kind in ("local", "lsh")}
    multiple = lcm(*(chunk[kind] for kind in sorted(set(layers))))
    chunks = {kind: c.Chunks(length=chunk[kind], before=given.pop(f"{kind}_before"), after=given.pop(f"{kind}_after"),
                             dropout=given.pop(f"{kind}_dropout"), multiple=multiple) for kind in sorted(set(layers))}
    kernels: dict[str, Any] = {"local": chunks["local"]} if "local" in chunks else {}
    if "lsh" in chunks:
        buckets = c.FixedBuckets(factors=given["buckets"]) if given["buckets"] else c.BucketsByLength(
            longest=given["length"])
        kernels["lsh"] = c.Hashing(chunks=chunks["lsh"], rounds=given["rounds"], seed=given["seed"], buckets=buckets)
    grid = c.Axial(shape=given["shape"], widths=given["widths"])
    return reformer(dim, layers, positions=grid if given["axial"] else c.Learned(length=given["length"]), causal=False,
                    **kernels)


def kind_of(attention: c.SelfAttention) -> str:
    """Return the published name of what a layer attends by."""
    return "lsh" if isinstance(attention.kernel, c.Hashing) else "local"


def number_or_list(factors: tuple[int, ...]) -> Any:
    """One factor is published as a number."""
    return factors[0] if len(factors) == 1 else list(factors)


def factors_of(value: Any) -> tuple[int, ...] | None:
    """The factors of a number of buckets, or of a list of them."""
    return None if value is None else (value,) if isinstance(value, int) else tuple(value)

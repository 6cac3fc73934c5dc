"""How a batch is laid out, and what an attention may read of it: packed rows, documents, `Span` and `Mask`.

`Ragged` drops padding: a batch [B, L] with a mask becomes one row [1, T] of real tokens, and back. Maps of single
positions then do no work on padding; attention runs row by row.

Letters: B batch, L length, Q queries, K keys, M memory, P queries of the second stream. True = may attend.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.devices import is_traced
from saucier.errors import InputError

MOST_REAL = 0.8
"""Rows are packed when at most this part of the batch is real tokens: below it the saved work outweighs the calls."""
SHORT_ROWS = 64
"""Up to this length attention pads again on a CPU: its work on padding is small next to the calls that it saves."""


@dataclass(slots=True)
class Ragged:
    """Which positions of a right-padded batch are real."""

    lengths: list[int]
    """Real tokens in each row."""
    index: Tensor
    """[T], the place of each real token in the flattened batch."""
    mask: Tensor
    """[B, L], True where a token is real."""

    @property
    def shape(self) -> tuple[int, int]:
        """(B, L) of the padded batch."""
        return self.mask.shape[0], self.mask.shape[1]

    @property
    def short(self) -> bool:
        """Whether one attention over the padded batch beats one call a row: where rows are short, and on any device but
        a CPU. (RAG took 13 s a step on an H200, which stood in such calls whenever it was looked at.)
        """
        return self.mask.device.type != "cpu" or max(self.lengths) <= SHORT_ROWS

    def pack(self, x: Tensor) -> Tensor:
        """Shapes: [B, L, ...] -> [1, T, ...]."""
        return x.flatten(0, 1).index_select(0, self.index)[None]

    def unpack(self, x: Tensor) -> Tensor:
        """Shapes: [1, T, ...] -> [B, L, ...], zeros where there was padding."""
        rows, length = self.shape
        full = x.new_zeros(rows * length, *x.shape[2:])
        return full.index_copy_(0, self.index, x[0]).view(rows, length, *x.shape[2:])

    def unpack_alone(self, x: Tensor) -> Tensor:
        """Do so by the thread that asks, where nothing has gradients: torch's threads wait busily after a large copy,
        and those of the kernels may be at work next. Shapes: as `unpack`.
        """
        if torch.is_grad_enabled() or is_traced() or x.device.type != "cpu" or x.dtype != torch.float32:
            return self.unpack(x)
        rows, length = self.shape
        full = np.zeros((rows * length, *x.shape[2:]), np.float32)
        full[self.index.numpy()] = x[0].numpy()
        return torch.from_numpy(full).view(rows, length, *x.shape[2:])

    def pack_heads(self, x: Tensor) -> Tensor:
        """Shapes: [B, H, L, E] -> [1, H, T, E]."""
        return self.pack(x.transpose(1, 2)).transpose(1, 2)

    def unpack_heads(self, x: Tensor) -> Tensor:
        """Shapes: [1, H, T, E] -> [B, H, L, E], zeros at padding."""
        return self.unpack(x.transpose(1, 2)).transpose(1, 2)


def find_ragged(mask: Tensor) -> Ragged | None:
    """Return the layout of a right-padded mask [B, L]; None where a row is empty or padding precedes real tokens."""
    lengths = mask.sum(1)
    positions = torch.arange(mask.shape[1], device=mask.device)
    if not torch.equal(mask.bool(), positions < lengths[:, None]) or bool((lengths == 0).any()):
        return None
    return Ragged(lengths.tolist(), mask.flatten().nonzero()[:, 0], mask.bool())


def is_worth_packing(*masks: Tensor) -> bool:
    """Say whether these batches hold enough padding for packing to pay."""
    if torch.compiler.is_compiling():  # a compiled model keeps its shapes
        return False
    return sum(int(mask.sum()) for mask in masks) < MOST_REAL * sum(mask.numel() for mask in masks)


def refuse_split_documents(document: Tensor) -> None:
    """Refuse documents that stop and go on again. Shapes: [B, L]. Raises `InputError` with the row."""
    for row, numbers in enumerate(document):
        runs = torch.unique_consecutive(numbers)
        runs = runs[runs >= 0]
        if len(runs) != len(torch.unique(runs)):
            raise InputError(f"row {row}: a document goes on behind another one", where="documents",
                             remedy="put each document's tokens together")


def document_starts(document: Tensor) -> Tensor:
    """Return at which tokens another document begins. Shapes: [B, L] -> the same, boolean."""
    first = torch.ones_like(document[:, :1], dtype=torch.bool)
    return torch.cat([first, document[:, 1:] != document[:, :-1]], dim=1)


def positions_in_document(real: Tensor, document: Tensor | None) -> Tensor:
    """Return how many real tokens of the same document are before each. Shapes: [B, L] -> [B, L]."""
    before = real.long().cumsum(1) - real.long()
    if document is None:
        return before
    return before - torch.where(document_starts(document), before, 0).cummax(1).values


class Draw(NamedTuple):
    """For whom blocks are drawn: in training, each layer has its own."""

    heads: int
    layer: int
    """Number of the attention in its stack; the seed."""


ANY_DOCUMENT = torch.iinfo(torch.int64).min
"""The document of keys that belong to none, and that all may see."""


@dataclass(slots=True)
class Span:
    """The places of the queries and keys of one attention: what a mask is made from, besides the visibility.

    Queries are positions `start … start+queries-1` of the `keys` positions of the row.
    """

    queries: int
    keys: int
    start: int
    device: torch.device
    padding: Tensor | None = None
    """[B, K], True where the key is a real token."""
    query_documents: Tensor | None = None
    """[B, Q], the document of each query; attention stays within a document."""
    key_documents: Tensor | None = None
    """[B, K]."""
    prefix: Tensor | None = None
    """[B], length of the prefix that all may see."""
    ids: Tensor | None = None
    """[B, Q], the tokens, where they are known."""
    named: Tensor | None = None
    """[B, K], True where the batch names a token global."""
    draw: Draw | None = None
    """For whom random blocks are drawn; None outside training."""
    memory: int = 0
    """Keys before the text that come from earlier segments."""
    visible: Tensor | None = None
    """[B, L, L], False where the batch hides a key from a query."""
    targets: Tensor | None = None
    """[B, P], the places that rows after the queries ask about."""
    heads: int = 1
    """Heads of the attention that asks, where they see differently."""
    starts_real: bool = False
    """Known to have real tokens first in every row."""

    def of_row(self, row: int) -> Span:
        """Return the span of one row alone."""
        def cut(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[row if len(x) > 1 else 0][None]

        return replace(self, padding=cut(self.padding), query_documents=cut(self.query_documents),
                       key_documents=cut(self.key_documents), prefix=cut(self.prefix), ids=cut(self.ids),
                       named=cut(self.named), visible=cut(self.visible), targets=cut(self.targets))


@dataclass(slots=True)
class Mask:
    """What an attention may see: either by the flag alone (no tensor is made), or by a tensor."""

    causal: bool = False
    """Queries and keys are the same positions, and each query sees no later key."""
    allowed: Tensor | None = None
    """Boolean, broadcasts to [B, H, Q, K]; never set together with `causal`."""
    whole: bool = True
    """Whether every query sees at least one key; padding on the left can take that away."""
    times: Tensor | None = None
    """How often each key counts for a query, at least 1, where not once; broadcasts to [B, H, Q, K]."""
    device: torch.device | None = None
    made: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def addend(self, keys: int, dtype: torch.dtype) -> Tensor | None:
        """Return the mask as a tensor to add to the scores, 0 or -inf, made once; None when all is visible."""
        if not self.causal and self.allowed is None:
            return None
        if dtype not in self.made:
            allowed = self.allowed
            if allowed is None:
                allowed = torch.ones(keys, keys, dtype=torch.bool, device=self.device).tril()
            self.made[dtype] = torch.zeros(allowed.shape, dtype=dtype,
                                           device=allowed.device).masked_fill_(~allowed, float("-inf"))
        return self.made[dtype]


def pad_start(x: Tensor | None, count: int, value: int = 0) -> Tensor | None:
    """Put places before a row's own; None stays None. Shapes: [B, L] -> [B, count + L]."""
    return None if x is None else F.pad(x, (count, 0), value=value)


def finds_a_key(span: Span, *, starts_seen: bool) -> bool:
    """Say whether padding and documents leave each query, of those that see themselves, some key.

    Padding at the end leaves the first one, if it is seen from everywhere. A padded place is in no document, and a
    target's document need not have a source in its row.
    """
    if span.query_documents is None:
        return span.padding is None or (span.starts_real and starts_seen)
    return span.padding is None and span.query_documents is span.key_documents


def within_documents(queries: Tensor, keys: Tensor) -> Tensor:
    """Say whether keys belong to the document of a query, or to none. Shapes: broadcast together."""
    return (queries == keys) | (keys == ANY_DOCUMENT)


def intersect(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Conjunction where None allows everything."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def mask_streams(allowed: Tensor | None, visible: Tensor | None, start: int, length: int,
                 targets: Tensor | None) -> Tensor | None:
    """Return who sees what where the batch hides keys: the text sees itself too, the queries as their places do.

    Shapes: allowed broadcasts to [B, 1, L, M + L], visible [B, L, L], targets [B, P] -> [B or 1, 1, L + P, M + L].
    """
    if visible is not None:
        visible = F.pad(visible, (start, 0), value=True)[:, None]
        allowed = visible if allowed is None else allowed & visible
    if allowed is None:
        return None
    allowed = allowed.expand(-1, -1, length, start + length)
    itself = F.pad(torch.eye(length, dtype=torch.bool, device=allowed.device), (start, 0))
    text = allowed | itself
    if targets is None:
        return text
    rows = len(targets)
    of_targets = allowed.expand(rows, -1, -1, -1).take_along_dim(targets[:, None, :, None], 2)
    return torch.cat([text.expand(rows, -1, -1, -1), of_targets], dim=2)

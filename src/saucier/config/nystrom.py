"""Nyströmformer's kernel as data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from saucier.config.attention_slots import AttentionKernel, AttentionParts, check_reads_whole_texts
from saucier.config.counting import Node
from saucier.config.visibility import Visibility
from saucier.errors import InputError


class Nystrom(AttentionKernel):
    """Softmax attention through a few landmarks: `softmax(Q K̃ᵀ) · softmax(Q̃ K̃ᵀ)⁺ · softmax(Q̃ Kᵀ) · V`.

    Landmarks Q̃ and K̃ are the means of equal segments of a text, so that time and memory are linear in its length; the
    pseudo-inverse is found by iteration. A text of no more tokens than landmarks is attended to exactly. A convolution
    of the values along the text is added.
    Source: Xiong et al. 2021, "Nyströmformer", §3, eq 13-15 and algorithm 1, arXiv:2102.03902.
    """

    kind: Literal["nystrom"] = "nystrom"
    landmarks: int = Field(default=64, gt=0)
    """Segments of a text."""
    length: int = Field(default=512, gt=0)
    """The text that was trained on, in tokens; where it has no more tokens than landmarks, all texts are exact."""
    convolution: int | None = Field(default=65, gt=0)
    """Tokens that the convolution of values is made of, odd, one filter for each head; None: there is none."""
    iterations: int = Field(default=6, gt=0)
    """Steps towards the pseudo-inverse."""
    shared_start: bool = False
    """Begin the iteration with one factor for a whole batch, as in the code release, not for each matrix."""

    caches_keys: ClassVar[bool] = False  # it reads whole texts

    @property
    def batch_reason(self) -> str | None:
        """A shared factor is that of one matrix of the batch."""
        return "its inverse begins with one factor for a whole batch, as published" if self.shared_start else None

    def is_exact(self, length: int) -> bool:
        """Say whether texts of at most this length need no landmarks."""
        return length <= self.landmarks or self.length <= self.landmarks

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Segments are of whole texts, and each head has a filter of its own for its values."""
        check_reads_whole_texts(path, attention, self.kind)
        if attention.projection.kv_heads not in (None, attention.projection.heads):
            raise InputError("kernel nystrom has keys and values for every head", where=f"{path}.projection.kv_heads",
                             remedy="leave it out")
        if self.convolution is not None and self.convolution % 2 == 0:
            raise InputError(f"a convolution of size {self.convolution} has no middle",
                             where=f"{path}.kernel.convolution", remedy="use an odd size")

    def key_count(self, visibility: Visibility, length: int) -> float:
        """Return the keys, or landmarks, that a query meets."""
        return float(length if self.is_exact(length) else self.landmarks)

    def nodes(self, attention: AttentionParts, dim: int, length: int) -> list[Node]:
        """Return the landmarks with their inverse, the scores and the convolution."""
        width, count, heads = attention.projection.widths(dim)[0], self.landmarks, attention.projection.heads
        found = super().nodes(attention, dim, length)
        if not self.is_exact(length):
            inverse = 2.0 * count**2 * (width + 4 * self.iterations * count * heads) / length
            work = 8.0 * count * width + 2.0 * count**2 * heads + inverse
            found.insert(0, Node("landmarks", self.kind, f"{count} segments", flops=work))
        if self.convolution is not None:
            found.append(Node("convolution", self.kind, "of values", f"{heads} × {self.convolution}",
                              heads * self.convolution, 2.0 * self.convolution * width))
        return found

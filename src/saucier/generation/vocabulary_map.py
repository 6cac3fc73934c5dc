"""A vocabulary map: which target tokens may be written, by the tokens of the source, so that few rows of the output
matrix are read.

Letters: N pairs, B sources, S source tokens, T target tokens, A tokens that are always candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from saucier.errors import InputError

Ids = NDArray[np.int64]
Pair = tuple[Sequence[int], Sequence[int]]
"""The tokens of a source, and those of its target."""
PAIRS_AT_ONCE = 4096
"""Pairs that are counted together."""
ARRAYS = ("always", "starts", "tokens")


@dataclass(frozen=True)
class VocabularyMap:
    """Candidates: a few tokens that may always be written, and a list for each token of the source."""

    target_vocab: int
    always: Ids
    """[A], rising."""
    starts: Ids
    """[source vocabulary + 1]: where the list of each source token begins."""
    tokens: Ids
    """The lists, one after the other."""

    def __post_init__(self) -> None:
        """Raise `InputError` for lists that are not whole, or name tokens that there are not."""
        named = np.concatenate([self.always, self.tokens])
        if not len(self.starts) or self.starts[0] != 0 or self.starts[-1] != len(self.tokens) or (
                np.diff(self.starts) < 0).any() or not len(self.always):
            raise InputError("the lists of a vocabulary map do not fit together", where="vocabulary_map",
                             remedy="build it again")
        if named.min() < 0 or named.max() >= self.target_vocab:
            raise InputError(f"a vocabulary map names token {named.max()} of {self.target_vocab}",
                             where="vocabulary_map", remedy="build it again")

    @property
    def source_vocab(self) -> int:
        """Number of source tokens."""
        return len(self.starts) - 1

    def find_candidates(self, source: Ids) -> Ids:
        """Return what may be written for a source, rising. Shapes: [S] -> [C]."""
        lists = [self.tokens[self.starts[token]:self.starts[token + 1]] for token in np.unique(source)]
        return np.unique(np.concatenate([self.always, *lists]))

    def save(self, path: str | Path) -> None:
        """Write it as a safetensors file."""
        save_file({name: getattr(self, name) for name in ARRAYS}, path, {"target_vocab": str(self.target_vocab)})


def load_vocabulary_map(path: str | Path) -> VocabularyMap:
    """Read what `VocabularyMap.save` wrote, once as long as the file stays. Raises `InputError` for another file."""
    path = Path(path)
    try:
        told = path.stat()
    except OSError as error:
        raise InputError(f"no vocabulary map: {error.strerror}", where=str(path),
                         remedy="build one with saucier.generation.build_vocabulary_map") from None
    return read_map(path, told.st_mtime_ns, told.st_size)


@lru_cache(maxsize=8)
def read_map(path: Path, changed: int, size: int) -> VocabularyMap:
    """Read a map; the time of its last change and its size are there to tell files apart."""
    try:
        with safe_open(path, "numpy") as file:
            arrays = {name: file.get_tensor(name).astype(np.int64) for name in ARRAYS}
            return VocabularyMap(int(file.metadata()["target_vocab"]), **arrays)
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise InputError(f"no vocabulary map: {str(error).splitlines()[0]}", where=str(path),
                         remedy="build one with saucier.generation.build_vocabulary_map") from None


def build_vocabulary_map(pairs: Iterable[Pair], *, source_vocab: int, target_vocab: int, frequent: int = 200,
                         each: int = 20, always: Sequence[int] = ()) -> VocabularyMap:
    """Count which target tokens stand in the targets of a source token, and keep the `each` closest ones.

    Closeness is the cosine of the two tokens' occurrences, count(s, t) / sqrt(count(s) count(t)), each counted once a
    pair. The `frequent` most frequent target tokens (those that end a text among them) and those of `always` may be
    written for every source. Source: L'Hostis et al. 2016, arXiv:1610.00072, for candidates by co-occurrence; Mi et al.
    2016, arXiv:1605.03209, for frequent tokens next to those of the source's words.
    Raises `InputError` without pairs, and for tokens that a vocabulary has not.
    """
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    sources, targets = np.zeros(source_vocab, np.int64), np.zeros(target_vocab, np.int64)
    left = iter(pairs)
    while part := list(islice(left, PAIRS_AT_ONCE)):
        told = [[np.unique(np.asarray(side, np.int64)) for side in pair] for pair in part]
        for name, side, count in (("source", 0, sources), ("target", 1, targets)):
            found = np.concatenate([pair[side] for pair in told])
            if len(found) and not 0 <= found.min() <= found.max() < len(count):
                raise InputError(f"a {name} has token {found.max()}, and the vocabulary {len(count)}", where="pairs",
                                 remedy="give the ids of the model's own tokenizer")
            count += np.bincount(found, minlength=len(count))
        seen = [(source[:, None] * target_vocab + target).ravel() for source, target in told]
        weights = np.concatenate([counts, np.ones(sum(map(len, seen)), np.int64)])
        keys, places = np.unique(np.concatenate([keys, *seen]), return_inverse=True)
        counts = np.bincount(places, weights, len(keys)).astype(np.int64)
    if not len(keys):
        raise InputError("no pairs", where="pairs", remedy="give the tokens of some sources and their targets")
    kept = np.argsort(-targets, kind="stable")[:min(frequent, int((targets > 0).sum()))]
    first = np.union1d(kept, np.asarray(always, np.int64))
    source, target = np.divmod(keys, target_vocab)
    rare = ~np.isin(target, first)
    source, target, counts = source[rare], target[rare], counts[rare]
    order = np.lexsort((target, -counts / np.sqrt(targets[target]), source))  # count(s) is the same in a list
    begins = np.searchsorted(source[order], np.arange(source_vocab + 1))
    ranks = np.arange(len(order)) - begins[source[order]]
    order = order[ranks < each]
    starts = np.searchsorted(source[order], np.arange(source_vocab + 1))
    return VocabularyMap(target_vocab, first, starts, target[order])

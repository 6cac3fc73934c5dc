"""Clusters of a vocabulary that do not fit it, or not each other."""

from __future__ import annotations

from itertools import pairwise

from saucier.config.adaptive import AdaptiveHead, ProjectClusters
from saucier.config.model import Embedding, Transformer
from saucier.errors import InputError


def check_adaptive(config: Transformer) -> None:
    """Raise `InputError` for clusters outside the vocabulary, tables without width, and ties to what is not there."""
    for name, embed in (("embed", config.embed), ("decoder_embed", config.decoder_embed)):
        if embed and isinstance(embed.projection, ProjectClusters):
            check_clusters(f"{name}.projection", embed.projection, embed.vocab)
    embed = config.output_embed
    if isinstance(config.head, AdaptiveHead):
        check_clusters("head", config.head, embed.vocab)
        check_ties(config.head, embed, config.dim)
    language = config.language_head
    if isinstance(embed.projection, ProjectClusters) and language is not None and language.tied:
        raise InputError("an output matrix cannot be tied to tables of several widths", where="head",
                         remedy="use kind: adaptive, or tied: false")


def check_clusters(path: str, clusters: ProjectClusters | AdaptiveHead, vocab: int) -> None:
    """Cutoffs rise inside the vocabulary, and the last table has a width."""
    ends = (0, *clusters.cutoffs, vocab)
    if any(first >= second for first, second in pairwise(ends)):
        raise InputError(f"cutoffs {list(clusters.cutoffs)} do not rise between 0 and {vocab}", where=f"{path}.cutoffs",
                         remedy="give rising numbers inside the vocabulary")
    if not clusters.widths()[-1]:
        raise InputError(f"{clusters.width} divided by {clusters.division} for each cluster leaves nothing",
                         where=f"{path}.division", remedy="use fewer clusters, or divide by less")


def check_ties(head: AdaptiveHead, embed: Embedding, dim: int) -> None:
    """What is tied has the shape of what it is tied to."""
    given = embed.projection
    clusters = (given.width, given.division, given.cutoffs) if isinstance(given, ProjectClusters) else (
        embed.widths(dim)[0], 1, head.cutoffs)
    tied = head.tied or any(head.tied_maps)
    if tied and (head.width, head.division, head.cutoffs) != clusters:
        raise InputError("the output tables are tied to an embedding of other clusters or widths", where="head",
                         remedy="give both the same width, division and cutoffs, or use tied: false")
    if head.tied_maps and len(head.tied_maps) != len(head.cutoffs) + 1:
        raise InputError(f"{len(head.tied_maps)} tied_maps for {len(head.cutoffs) + 1} clusters",
                         where="head.tied_maps", remedy="give one for each cluster, or none")

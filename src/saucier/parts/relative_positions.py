"""Relative positions with trained vectors: Shaw, Music Transformer, ETC's labels, DeBERTa, Transformer-XL and XLNet.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, L length, M memory, P rows of the second stream,
E head width, D dim, N or R rows of a table.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context, RelativeBiases
from saucier.parts.kernels import repeat_heads
from saucier.parts.linear import Linear, first_outputs
from saucier.parts.norms import build_norm, dropout
from saucier.parts.positions import relative_distance, sine_vectors


class ShawPositions(nn.Module):
    """Relative vectors for keys and values. Source: Shaw et al. 2018, §3.2, eq 3–4, arXiv:1803.02155."""

    def __init__(self, config: c.Shaw, head_dim: int) -> None:
        """Build the two tables [2·max_distance + 1, E]."""
        super().__init__()
        self.reach = config.max_distance
        self.keys = nn.Parameter(torch.empty(2 * self.reach + 1, head_dim))
        self.values = nn.Parameter(torch.empty(2 * self.reach + 1, head_dim))

    def rows(self, queries: int, keys: int, context: Context) -> Tensor:
        """Return the table row of each query-key pair; queries are the last of the keys' places. Shapes: -> [Q, K]."""
        distance = context.once(("distance", queries, keys),
                                lambda: relative_distance(keys - queries, queries, keys, self.keys.device))
        return distance.clamp(-self.reach, self.reach) + self.reach

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores. Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]."""
        return score_rows(query, self.keys, self.rows(query.shape[2], key.shape[2], context)) * scale

    def mix(self, weights: Tensor, context: Context) -> Tensor:
        """The values' part of the output: weights summed by table row first.

        Shapes: weights [B, H, Q, K] -> [B, H, Q, E].
        """
        rows = self.rows(weights.shape[2], weights.shape[3], context)
        summed = weights.new_zeros(*weights.shape[:3], len(self.values))
        return summed.scatter_add(-1, rows.expand_as(weights), weights) @ self.values


class SkewedPositions(nn.Module):
    """Relative keys of the past, one table a head, by skewing.

    Source: Huang et al. 2018, §3.4.1, arXiv:1809.04281 (S alg 1).
    """

    def __init__(self, config: c.MusicTransformer, heads: int, head_dim: int) -> None:
        """Build the table [H, length, E]; its last row is distance 0."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, config.length, head_dim))

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores; entries for later keys have no meaning and must be masked.

        Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K].
        """
        queries, keys = query.shape[2], key.shape[2]
        if keys > self.weight.shape[1]:
            raise InputError(f"{keys} positions are more than the {self.weight.shape[1]} relative ones",
                             where="input_ids", remedy="shorten the input")
        relative = query @ self.weight[:, -keys:].transpose(-1, -2)
        if queries == keys:
            return skew_scores(relative) * scale
        rows = relative_distance(keys - queries, queries, keys, query.device) + keys - 1
        return relative.gather(-1, rows.clamp(max=keys - 1).expand_as(relative)) * scale


def skew_scores(relative: Tensor) -> Tensor:
    """Move scores from relative distance to key position without an O(L²·E) tensor.

    Shapes: [B, H, L, L] -> the same.
    """
    length = relative.shape[-1]
    padded = F.pad(relative, (1, 0))
    return padded.reshape(*relative.shape[:2], length + 1, length)[:, :, 1:]


class RelativeKeys(nn.Module):
    """A vector a distance, which queries meet as a second key. Source: Shaw et al. 2018, §3.2, eq 4, unclipped."""

    def __init__(self, config: c.RelativeVectors, head_dim: int) -> None:
        """Build the table [2·length - 1, E]; row length - 1 is distance 0, later rows are keys further back."""
        super().__init__()
        self.scale = config.scale
        self.weight = nn.Parameter(torch.empty(2 * config.length - 1, head_dim))

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores; the queries are the last of the keys' positions.

        Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]. Raises `InputError` for more keys than distances.
        """
        return score_rows(query, self.weight, find_distance_rows(self.weight, query.shape[2],
                                                                 key.shape[2])) * (self.scale or scale)


class RelativeKeysAndQueries(RelativeKeys):
    """The same, and keys meet the vector too. Source: Huang et al. 2020, method 4, arXiv:2009.13658."""

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores; grouped key heads serve all their query heads.

        Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]. Raises `InputError` for more keys than distances.
        """
        rows = find_distance_rows(self.weight, query.shape[2], key.shape[2])
        by_key = score_rows(key, self.weight, rows.T).transpose(-1, -2)
        by_key = by_key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        return (score_rows(query, self.weight, rows) + by_key) * (self.scale or scale)


def find_distance_rows(table: Tensor, queries: int, keys: int) -> Tensor:
    """Return the table row of each query-key pair. Shapes: table [N, E] -> [Q, K]."""
    length = (len(table) + 1) // 2
    if keys > length:
        raise InputError(f"{keys} positions are more than the {length} relative ones", where="input_ids",
                         remedy="shorten the input")
    places = torch.arange(keys, device=table.device)
    return places[keys - queries:, None] - places[None, :] + length - 1


def score_rows(x: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Meet each row of the table once, then pick. Shapes: x [B, H, Q, E], rows [Q, K] -> [B, H, Q, K]."""
    return (x @ table.T).gather(-1, rows.expand(*x.shape[:2], *rows.shape))


class GlobalLocalPositions(nn.Module):
    """A vector a label, which queries meet as a second key. Source: Ainslie et al. 2020, §3.1, arXiv:2004.08483."""

    def __init__(self, config: c.GlobalLocal, head_dim: int) -> None:
        """Build the table [N, E]."""
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.labels, head_dim))

    def met(self, query: Tensor, scale: float) -> Tensor:
        """Meet every label once. Shapes: query [B, H, Q, E] -> [B, H, Q, N]."""
        return (query @ self.weight.T.to(query.dtype)) * scale

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores. Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]."""
        places = torch.arange(key.shape[2], device=query.device)
        asking = places[key.shape[2] - query.shape[2]:]
        labels = label_pairs(self.config, asking[:, None], places[None])
        return self.met(query, scale).gather(-1, labels.expand(*query.shape[:3], -1))


def label_pairs(config: c.GlobalLocal, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the label of each pair: local ones first, then global ones, then local to global, then global to local.

    Shapes: queries [Q, 1], keys [1, K] -> [Q, K].
    """
    first, reach = config.globals, config.reach
    near = (keys - queries).clamp(-reach, reach) + reach
    distances = 2 * reach + 1
    global_queries, global_keys = queries < first, keys < first
    to_global = 2 * distances + ((queries - first) // config.stretch != keys).long()
    to_local = 2 * distances + 2 + ((keys - first) // config.stretch != queries).long()
    across = torch.where(global_queries, to_local, to_global)
    return torch.where(global_queries == global_keys, near + global_queries.long() * distances, across)


class DistanceTable(nn.Module):
    """One vector for each distance, shared by the layers of a stack. Source: He et al. 2021, §3.1, arXiv:2006.03654."""

    def __init__(self, config: c.Disentangled, dim: int) -> None:
        """Build the table [R, D] and its norm."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.distances.rows, dim))
        self.norm = build_norm(config.norm, dim) if config.norm else None

    def forward(self, context: Context) -> Tensor:
        """The table of a pass. Shapes: -> [R, D]."""
        return self.weight if self.norm is None else self.norm(self.weight)


class DisentangledPositions(nn.Module):
    """Content-to-position and position-to-content scores of one attention. Source: He et al. 2021, §3.1, eq 3-4."""

    def __init__(self, config: c.Disentangled, projection: c.Projection, dim: int) -> None:
        """Build the maps of the terms in use, unless the attention's own maps serve."""
        super().__init__()
        self.config, self.widths = config, projection.widths(dim)
        own, width = config.maps if isinstance(config.maps, c.OwnMaps) else None, self.widths[0]
        self.key = Linear(dim, width, bias=own.key_bias) if own and config.content_to_position else None
        self.query = Linear(dim, width) if own and config.position_to_content else None

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores.

        The code release looks up both terms in the row of query minus key, and so do we; the paper's eq 4 has the
        opposite row for the second. Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K].
        """
        heads, queries, keys = query.shape[1], query.shape[2], key.shape[2]
        rows, met = context.once(("distances", self.config.distances, queries, keys),
                                 lambda: find_table_rows(self.config.distances, queries, keys, query.device))
        by_key, by_query = self.vectors(context, met)
        total = query.new_zeros(())
        if by_key is not None:
            found = query @ repeat_heads(by_key, heads).transpose(-1, -2)
            total = found.gather(-1, rows.expand(*found.shape[:2], queries, keys))
        if by_query is not None:
            found = repeat_heads(key, heads) @ by_query.transpose(-1, -2)
            turned = rows.T.expand(*found.shape[:2], keys, queries)
            total = total + found.gather(-1, turned).transpose(-1, -2)
        return total * scale

    def vectors(self, context: Context, met: slice) -> tuple[Tensor | None, Tensor | None]:
        """Return the keys and the queries of the distances that are `met`, for the terms in use.

        Shapes: [1, G or H, R, E] twice.
        """
        assert context.shared is not None, "the stack gave its table"
        table = dropout(context.shared[met], self.config.dropout) if self.training else context.shared[met]
        if isinstance(self.config.maps, c.SharedMaps):
            assert context.maps is not None, "the attention gave its maps"
            query_width, key_width, _ = self.widths
            both = first_outputs(context.maps, table, query_width + key_width)
            query, key = both.split([query_width, key_width], dim=-1)
            keys, queries = self.config.content_to_position, self.config.position_to_content
            used = (key if keys else None, query if queries else None)
        else:
            used = (self.key and self.key(table), self.query and self.query(table))
        by_key, by_query = (part if part is None else self.split(part) for part in used)
        return by_key, by_query

    def split(self, x: Tensor) -> Tensor:
        """Shapes: [R, H·E] -> [1, H, R, E]."""
        return x.view(len(x), -1, self.widths[2]).transpose(0, 1)[None]


def find_table_rows(distances: c.ExactDistances | c.LogDistances, queries: int, keys: int,
                    device: torch.device) -> tuple[Tensor, slice]:
    """Return which rows of the table the last `queries` of `keys` positions meet, and the row of each pair in them.

    A short text meets few of the distances, and nothing is computed for the others. Shapes: -> [Q, K].
    """
    rows = table_rows(distances, -relative_distance(keys - queries, queries, keys, device))
    if torch.compiler.is_compiling():  # a slice that follows from a tensor would break the graph
        return rows, slice(None)
    first, last = table_rows(distances, torch.tensor([1 - queries, keys - 1], device="cpu")).tolist()
    return rows - first, slice(first, last + 1)


def table_rows(distances: c.ExactDistances | c.LogDistances, distance: Tensor) -> Tensor:
    """Return the table row of each query-minus-key distance: the larger, the further back. Shapes: any -> the same.
    """
    half = distances.rows // 2
    if isinstance(distances, c.LogDistances):
        distance = log_bucket(distance, distances)
    return (distance + half).clamp(0, distances.rows - 1)


def log_bucket(distance: Tensor, distances: c.LogDistances) -> Tensor:
    """Return the signed bucket of query-minus-key distances: exact when near, logarithmic when far.

    Source: He et al. 2021, code release of DeBERTa-v2.
    """
    exact = distances.buckets // 2
    far = distance.abs().clamp(min=max(exact - 1, 1)) / exact
    farthest = torch.tensor((distances.reach - 1) / exact)  # float32 as `far` is: a ratio of 1 must be 1 exactly
    grown = torch.ceil(torch.log(far) / torch.log(farthest) * (exact - 1)).long() + exact
    return torch.where(distance.abs() <= exact, distance, grown * distance.sign())


class TransformerXLPositions(nn.Module):
    """What is added to the scaled scores of content, with all terms of Dai et al. 2019, §3.3 but the first.

    With q the query, k the key, r the distance's vector: `u·k + (q + v)·W r`; segments add `(q + s)·g`, g one of two
    vectors. Source: Dai et al. 2019, §3.3, arXiv:1901.02860 (C eq 87–91); Yang et al. 2019, §2.6, arXiv:1906.08237.
    """

    def __init__(self, config: c.TransformerXL, heads: int, head_dim: int, dim: int) -> None:
        """Build the map of the distances, and the biases that this layer has for itself."""
        super().__init__()
        self.config, self.dim = config, dim
        self.map = Linear(dim, heads * head_dim, bias=False)
        own = not config.shared_biases
        self.biases = RelativeBiases(heads, head_dim) if own else None
        self.segment_bias = nn.Parameter(torch.empty(heads, head_dim)) if config.segments else None
        self.segments = nn.Parameter(torch.empty(2, heads, head_dim)) if config.segments else None

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]."""
        biases = self.biases or context.biases
        assert biases is not None, "the stack puts shared biases into the context"
        query, keys = query * scale, key.shape[2]  # scaled where there is less of it
        content = torch.einsum("he,bhke->bhk", biases.content * scale, repeat_heads(key, query.shape[1]))[:, :, None]
        asking = query + (biases.place * scale)[:, None]
        if context.span.targets is None and not self.config.mirrored:
            added = content + self.in_order(asking, keys, context)
        else:
            added = content + self.anywhere(asking, find_query_places(query, key, context), keys, context)
        segments = context.inputs.get("token_type_ids")
        if self.segments is not None and segments is not None:
            added = added + self.score_segments(query, segments, scale, keys, context)
        return added

    def in_order(self, query: Tensor, keys: int, context: Context) -> Tensor:
        """Score the last places with every distance there is, and shift each row to its own.

        The shift is another view of the same numbers. Shapes: -> [B, H, Q, K].
        Source: Dai et al. 2019, appendix B; Huang et al. 2019, §3.4, arXiv:1809.04281, for the shift (S alg 1).
        """
        queries, count = query.shape[2], query.shape[2] + keys
        scores = query @ self.table(keys - 1, -queries, query, context)
        rows: Tensor = scores.flatten(2)[..., queries - 1:queries * count - 1].unflatten(2, (queries, count - 1))
        return rows[..., :keys]

    def anywhere(self, query: Tensor, places: Tensor, keys: int, context: Context) -> Tensor:
        """Score every query with every distance once, then pick. Shapes: places [B or 1, Q] -> [B, H, Q, K]."""
        far = keys  # the largest distance between a query and a key of one pass
        distance = places[:, None, :, None] - torch.arange(keys, device=query.device)
        if self.config.mirrored:
            backwards = torch.arange(len(query), device=query.device) >= len(query) // 2
            distance = torch.where(backwards[:, None, None, None], -distance, distance)
        scores = query @ self.table(far, -far, query, context)
        return scores.gather(-1, (far - distance).expand(*scores.shape[:3], keys))

    def table(self, first: int, last: int, query: Tensor, context: Context) -> Tensor:
        """Map the vectors of the distances `first`, one less, … `last` for each head. Shapes: -> [H, E, N]."""
        vectors = context.once(("distances", self.config, self.dim, first, last),
                               lambda: self.vectors(first, last, query))
        found: Tensor = self.map(vectors).view(len(vectors), query.shape[1], -1).permute(1, 2, 0)
        return found

    def vectors(self, first: int, last: int, like: Tensor) -> Tensor:
        """Sines, then cosines, of the distances, in the format of `like`. Shapes: -> [N, D]."""
        distances = torch.arange(first, last - 1, -1, device=like.device, dtype=torch.float32)
        if self.config.clamp is not None:
            distances = distances.clamp(-self.config.clamp, self.config.clamp)
        found = sine_vectors(distances, self.dim, self.config.base).to(like.dtype)
        return dropout(found, self.config.dropout) if self.training else found

    def score_segments(self, query: Tensor, segments: Tensor, scale: float, keys: int, context: Context) -> Tensor:
        """Score scaled queries by their segment and the key's; the memory is of segment 0. Shapes: -> [B, H, Q, K]."""
        assert self.segments is not None and self.segment_bias is not None, "called where segments are scored"
        of_keys = F.pad(segments, (keys - segments.shape[1], 0))
        targets = context.span.targets
        of_queries = segments if targets is None else torch.cat([segments, segments.gather(1, targets)], dim=1)
        other = (of_queries[:, :, None] != of_keys[:, None, :]).long()[:, None]
        scores = torch.einsum("bhqe,she->bhqs", query + (self.segment_bias * scale)[:, None], self.segments)
        return scores.gather(-1, other.expand(*scores.shape[:3], keys))


def find_query_places(query: Tensor, key: Tensor, context: Context) -> Tensor:
    """Return the place of every query among the keys; rows of a second stream are where they ask. Shapes: -> [B, Q]."""
    targets = context.span.targets
    asking = 0 if targets is None else targets.shape[1]
    length = query.shape[2] - asking
    start = key.shape[2] - length
    places = torch.arange(start, start + length, device=query.device)[None]
    if targets is None:
        return places
    return torch.cat([places.expand(len(targets), -1), targets + start], dim=1)

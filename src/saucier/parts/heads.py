"""The heads: language heads, and heads that label a text, its tokens, a span or one of several texts.

Letters: B batch (of texts, choices flattened), L length, D dim, V vocab, C classes, N choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.config.registry import find_builder
from saucier.parts.adaptive import AdaptiveHead, ClusterTables
from saucier.parts.embedding import CharacterTokens
from saucier.parts.inputs import find_question
from saucier.parts.linear import ACTIVATIONS, Linear, linear
from saucier.parts.norms import Dropout, build_norm
from saucier.parts.pooling import Reading, pick_vector, pool_vectors


class Transform(nn.Module):
    """Dense layer, activation and norm before an output map. Source: Devlin et al. 2019, code release."""

    def __init__(self, config: c.Transform, dim: int) -> None:
        """Build the dense layer and the norm."""
        super().__init__()
        self.width = config.width or dim
        self.dropout = Dropout(config.dropout)
        self.dense = Linear(dim, self.width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config.norm, self.width) if config.norm else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., width]."""
        changed = self.activation(self.dense(self.dropout(hidden)))
        return changed if self.norm is None else self.norm(changed)


Tokens = nn.Embedding | ClusterTables | CharacterTokens
"""What gives token vectors; a head may be tied to an embedding."""


class TokenwiseHead(nn.Module):
    """A head whose `forward` gives the logits of every token."""

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Logits [B, L, ...]."""
        return {"logits": self(reading.hidden)}


class LanguageHead(TokenwiseHead):
    """Hidden vectors to logits over the vocabulary; `weight` is the token table itself when tied."""

    def __init__(self, config: c.LanguageHead, dim: int, tokens: Tokens) -> None:
        """Build around the token embedding that a tied head shares."""
        super().__init__()
        self.scale = config.scale
        self.transform = Transform(config.transform, dim) if config.transform else None
        width = dim if self.transform is None else self.transform.width
        self.weight = tokens.weight if config.tied else nn.Parameter(torch.empty(tokens.num_embeddings, width))
        self.columns = nn.Parameter(torch.empty(tokens.num_embeddings, config.columns)) if config.columns else None
        self.bias = nn.Parameter(torch.empty(tokens.num_embeddings)) if config.bias else None

    @property
    def matrix(self) -> Tensor:
        """The whole output matrix [V, D], for those who apply it in pieces."""
        return self.weight if self.columns is None else torch.cat([self.weight, self.columns], dim=-1)

    def prepare(self, hidden: Tensor) -> Tensor:
        """Everything before the output matrix, for those who apply it in pieces. Shapes: [..., D] -> [..., D]."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        return hidden * self.scale if self.scale != 1.0 else hidden

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., V]."""
        return linear(self.prepare(hidden), self.matrix, self.bias)


class AroundLanguage(nn.Module):
    """A language head with something next to it; called as a whole, it gives the token logits."""

    def __init__(self, config: c.PretrainingHead | c.LengthHead | c.DoubleHead, dim: int, tokens: Tokens) -> None:
        """Build the language head."""
        super().__init__()
        self.language = LanguageHead(config.language, dim, tokens)

    def forward(self, hidden: Tensor) -> Tensor:
        """Token logits. Shapes: [..., D] -> [..., V]."""
        return self.language(hidden)  # type: ignore[no-any-return]


class PretrainingHead(AroundLanguage):
    """A language head, and a classifier of the pooled first token. Source: Devlin et al. 2019, §3.1."""

    def __init__(self, config: c.PretrainingHead, dim: int, tokens: Tokens) -> None:
        """Build both heads."""
        super().__init__(config, dim, tokens)
        self.dropout = Dropout(config.dropout)
        self.sentence = Linear(dim, config.classes)

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Token logits [B, L, V] and sentence logits [B, C]."""
        return {"logits": self(reading.hidden), "sentence_logits": self.sentence(self.dropout(reading.pooled))}


class LengthHead(AroundLanguage):
    """A language head, and a classifier of the target's length. Source: Ghazvininejad et al. 2019, §3.1."""

    def __init__(self, config: c.LengthHead, dim: int, tokens: Tokens) -> None:
        """Build both maps."""
        super().__init__(config, dim, tokens)
        self.lengths = Linear(dim, config.longest + 1)

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Token logits [B, L, V] and one logit for each length [B, longest + 1]."""
        return {"logits": self(reading.hidden), "length_logits": self.lengths(reading.pooled)}


class Labels(nn.Module):
    """Transform, dropout and one output map: what all heads without a vocabulary have in common."""

    outputs: ClassVar[int] = 1
    """Scores of a vector, where the config counts no classes."""

    def __init__(self, config: Any, dim: int, tokens: Tokens) -> None:
        """Build the maps for hidden vectors of width `dim`."""
        super().__init__()
        self.config = config
        self.transform = Transform(config.transform, dim) if config.transform else None
        width = dim if self.transform is None else self.transform.width
        self.dropout = Dropout(config.dropout)
        self.output = Linear(width, getattr(config, "classes", self.outputs), bias=config.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., C]."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        return self.output(self.dropout(hidden))  # type: ignore[no-any-return]


class ClassificationHead(Labels):
    """Logits of a whole text's labels. Source: Devlin et al. 2019, §4.1."""

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Logits [B, C]; of several readings of one text ([B / N, C]) the vectors are added.

        Source: Radford et al. 2018, §3.3 (similarity).
        """
        vectors = pick_vector(self.config.pick, reading)
        return {"logits": self(vectors if reading.choices is None else
                               vectors.unflatten(0, (-1, reading.choices)).sum(1))}


class TokenHead(Labels, TokenwiseHead):
    """Logits of every token's labels. Source: Devlin et al. 2019, §5.3."""


class SpanHead(Labels):
    """Logits of where an answer starts and ends. Source: Devlin et al. 2019, §4.2."""

    outputs = 2

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Two times [B, L]."""
        return split_span(self(reading.hidden))


def split_span(logits: Tensor) -> dict[str, Tensor]:
    """Return the logits of the start and of the end. Shapes: [B, L, 2] -> [B, L] twice."""
    start, end = logits.unbind(-1)
    return {"start_logits": start.contiguous(), "end_logits": end.contiguous()}


class ChoiceHead(Labels):
    """One logit a text, compared with those of the other choices. Source: Radford et al. 2018, §3.3."""

    def scores(self, reading: Reading) -> Tensor:
        """Shapes: -> [B / N, N], or [B] for ids without choices."""
        scores = ACTIVATIONS[self.config.activation](self(pick_vector(self.config.pick, reading))[..., 0])
        return scores if reading.choices is None else scores.view(-1, reading.choices)

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Logits [B / N, N]."""
        return {"logits": self.scores(reading)}


class ReplacedTokenHead(TokenwiseHead):
    """Logits of a token having been replaced. Source: Clark et al. 2020, §3.1, arXiv:2003.10555."""

    def __init__(self, config: c.ReplacedTokenHead, dim: int, tokens: Tokens) -> None:
        """Build the maps."""
        super().__init__()
        self.transform = Transform(config.transform, dim) if config.transform else None
        self.output = Linear(dim if self.transform is None else self.transform.width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [...]."""
        scores: Tensor = self.output(hidden if self.transform is None else self.transform(hidden))
        return scores[..., 0]


class BidirectionalHead(nn.Module):
    """A language head over each half. Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365."""

    def __init__(self, config: c.BidirectionalHead, dim: int, tokens: Tokens) -> None:
        """Build the one head of both directions."""
        super().__init__()
        self.language = LanguageHead(config.language, dim // 2, tokens)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of the next token. Shapes: [..., D] -> [..., V]."""
        return self.language(hidden.chunk(2, dim=-1)[0])  # type: ignore[no-any-return]

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Logits of the token after each and of the one before, [B, L, V] twice."""
        ahead, back = reading.hidden.chunk(2, dim=-1)
        return {"logits": self.language(ahead), "backward_logits": self.language(back)}


class DoubleHead(AroundLanguage):
    """A language head and a choice head. Source: Radford et al. 2018, §3.2, eq 5."""

    def __init__(self, config: c.DoubleHead, dim: int, tokens: Tokens) -> None:
        """Build both heads."""
        super().__init__(config, dim, tokens)
        self.choice = ChoiceHead(config.choice, dim, tokens)

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Token logits [B / N, N, L, V] and choice logits [B / N, N]."""
        logits = self(reading.hidden)
        if reading.choices is not None:
            logits = logits.unflatten(0, (-1, reading.choices))
        return {"logits": logits, "mc_logits": self.choice.scores(reading)}


class ReaderHead(nn.Module):
    """Logits of where an answer starts and ends, and of the text holding it. Source: Karpukhin et al. 2020, §6.1."""

    def __init__(self, config: c.ReaderHead, dim: int, tokens: Tokens) -> None:
        """Build both maps."""
        super().__init__()
        self.pick = config.pick
        self.output, self.relevance = Linear(dim, 2), Linear(dim, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., 2]."""
        return self.output(hidden)  # type: ignore[no-any-return]

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Two times [B, L], and [B]."""
        relevance: Tensor = self.relevance(pick_vector(self.pick, reading))
        return {**split_span(self(reading.hidden)), "relevance_logits": relevance[..., 0]}


class JointSpanHead(nn.Module):
    """One logit for every span of at most W tokens. Source: Lee et al. 2019, §3, arXiv:1906.00300 (eq 67–69)."""

    def __init__(self, config: c.JointSpanHead, dim: int, tokens: Tokens) -> None:
        """Build the feed-forward; its first map of two vectors side by side is a map of each, added."""
        super().__init__()
        self.longest = config.longest
        self.dropout = Dropout(config.dropout)
        self.start, self.end = Linear(dim, config.hidden), Linear(dim, config.hidden, bias=False)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config.norm, config.hidden)
        self.output = Linear(config.hidden, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score the span of w + 1 tokens from l on, at [l, w]; those beyond the row count for nothing.

        Shapes: [B, L, D] -> [B, L, W].
        """
        hidden = self.dropout(hidden)
        ends = F.pad(self.end(hidden), (0, 0, 0, self.longest - 1)).unfold(1, self.longest, 1).transpose(2, 3)
        scores: Tensor = self.output(self.norm(self.activation(self.start(hidden)[:, :, None] + ends)))
        return scores[..., 0]

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Logits [B, L, W]."""
        return {"span_logits": self(reading.hidden)}


class EmbeddingHead(nn.Module):
    """Token vectors to one vector. Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084."""

    def __init__(self, config: c.EmbeddingHead, dim: int, tokens: Tokens) -> None:
        """Build the maps and the norm, with the language head next to them, if there is one."""
        super().__init__()
        self.config = config
        widths = config.widths(dim)
        self.maps = nn.ModuleList(Linear(width, one.width, bias=one.bias)
                                  for one, width in zip(config.maps, widths, strict=False))
        self.norm = build_norm(config.norm, widths[-1]) if config.norm else None
        self.language = LanguageHead(config.language, dim, tokens) if config.language else None
        self.pool = pool_vectors

    def forward(self, reading: Reading) -> Tensor:
        """Shapes: hidden [B, L, D], mask [B, L] -> [B, E]."""
        vector = torch.cat([self.pool(one, reading) for one in self.config.pooling], -1)
        for one, map_ in zip(self.config.maps, self.maps, strict=True):
            vector = ACTIVATIONS[one.activation](map_(vector))
        vector = vector if self.norm is None else self.norm(vector)
        return F.normalize(vector, dim=-1) if self.config.normalize else vector

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """The vectors [B, E], which stand for the pooler's where there is none."""
        vector = self(reading)
        return {"embeddings": vector} if reading.pooled is not None else {"embeddings": vector, "pooler_output": vector}


FORBIDDEN_LOGIT = 1e6
"""What is taken from the logits of a question's tokens."""


class QuestionSpanHead(nn.Module):
    """Logits of where an answer starts and ends. Source: Zaheer et al. 2020, appendix E.2, arXiv:2007.14062."""

    def __init__(self, config: c.QuestionSpanHead, dim: int, tokens: Tokens) -> None:
        """Build the feed-forward with its norm, and the output map."""
        super().__init__()
        self.separator = config.separator
        self.up, self.down = Linear(dim, config.hidden), Linear(config.hidden, dim)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config.norm, dim)
        self.dropout = Dropout(config.dropout)
        self.output = Linear(dim, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits before the question is taken out. Shapes: [..., D] -> [..., 2]."""
        changed = self.down(self.activation(self.up(self.dropout(hidden))))
        return self.output(self.norm(hidden + self.dropout(changed)))  # type: ignore[no-any-return]

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Two times [B, L]."""
        logits = self(reading.hidden)
        question = find_question(reading.ids, reading.inputs, self.separator)
        if question is not None:
            barred = question & (torch.arange(question.shape[1], device=question.device) > 0)
            logits = logits - barred[..., None] * FORBIDDEN_LOGIT
        return split_span(logits)


HEADS: Mapping[type[c.Config], Callable[[Any, int, Tokens], nn.Module]] = {
    c.AdaptiveHead: AdaptiveHead, c.LanguageHead: LanguageHead, c.PretrainingHead: PretrainingHead,
    c.BidirectionalHead: BidirectionalHead, c.LengthHead: LengthHead, c.ClassificationHead: ClassificationHead,
    c.TokenHead: TokenHead, c.SpanHead: SpanHead, c.ChoiceHead: ChoiceHead, c.QuestionSpanHead: QuestionSpanHead,
    c.ReplacedTokenHead: ReplacedTokenHead, c.DoubleHead: DoubleHead, c.EmbeddingHead: EmbeddingHead,
    c.ReaderHead: ReaderHead, c.JointSpanHead: JointSpanHead}
"""Head -> what builds it for a width and the embedding's table, which heads over a vocabulary may share."""


def build_head(config: c.Head, dim: int, tokens: Tokens) -> nn.Module:
    """Return the module for a head config; its `answer` gives the fields of `Output` that it fills."""
    return (HEADS.get(type(config)) or find_builder(config))(config, dim, tokens)

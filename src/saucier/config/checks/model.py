"""Illegal combinations in a whole model, refused once and with the path, before anything is built.

`check` runs all checks: stacks, what both sides have to agree on, embeddings and the head.
"""

from __future__ import annotations

from itertools import pairwise

from saucier.config.attention_slots import NoPositions
from saucier.config.blocks import Block
from saucier.config.checks.stack import check_stack
from saucier.config.embedding import (
    AfterToken,
    CharacterNetwork,
    Embedding,
    ProjectClusters,
    ProjectNarrow,
    ProjectTwice,
    SegmentTable,
)
from saucier.config.heads import AdaptiveHead, BidirectionalHead, CustomHead, LanguageHead, LengthHead, WholeText
from saucier.config.layers import FromNorm, Residual, SelfAttention
from saucier.config.model import SourceEncoder, Transformer
from saucier.config.pooling import PickVector
from saucier.config.positions import Axial
from saucier.config.questions import keeps_directions_apart, list_recurrent_parts, reads_pooled
from saucier.config.stack import Stack
from saucier.config.visibility import Full, is_causal
from saucier.errors import InputError


def check(config: Transformer) -> None:
    """Raise `InputError` with the path of the first combination that cannot work, and what would."""
    if config.encoder is None and config.decoder is None:
        raise InputError("a model needs an encoder, a decoder or both", where="encoder",
                         remedy="give at least one stack")
    if config.decoder_embed and not (config.encoder and config.decoder):
        raise InputError("a decoder embedding of its own needs an encoder and a decoder", where="decoder_embed",
                         remedy="remove it, or add the missing stack")
    if config.encoder is None and config.embed.padding is not None:
        raise InputError("padding is told from tokens by an encoder alone", where="embed.padding",
                         remedy="remove it, and give attention_mask")
    if config.encoder and config.decoder and config.encoder.narrow:
        raise InputError("the decoder reads vectors as wide as the model", where="encoder.narrow",
                         remedy="remove it, or give it to the decoder")
    fed = config.source.stack if config.source else None
    for name, stack in (("source.stack", fed), ("encoder", config.encoder), ("decoder", config.decoder)):
        if stack:
            check_stack(name, stack, config)
    check_sides(config)
    for name, embed in (("embed", config.embed), ("decoder_embed", config.decoder_embed)):
        if embed:
            check_embedding(name, embed, config)
    check_head(config)
    if config.mix:
        check_mix(config)
    if config.source:
        check_source(config.source, config)


def check_sides(config: Transformer) -> None:
    """A tied table has a table to be tied to, of the same size, and a default target has a decoder that reads it."""
    source, target = config.embed, config.decoder_embed
    if source.tied:
        raise InputError("the source side's token table has nothing to be tied to", where="embed.tied",
                         remedy="use tied: true in decoder_embed only")
    if target and target.tied and (target.vocab, target.widths(config.dim)[0]) != (
            source.vocab, source.widths(config.reader_dim)[0]):
        raise InputError("two token tables of different sizes cannot be one", where="decoder_embed.tied",
                         remedy="give both sides the same vocab and width, or use tied: false")
    if config.encoder_dim and not (config.encoder and config.decoder and target and not config.decoder.tied):
        raise InputError("only an encoder-decoder with an embedding and weights on each side has two widths",
                         where="encoder_dim", remedy="remove it, or give the decoder an embedding of its own")
    if config.default_target and not (config.encoder and config.decoder):
        raise InputError("only an encoder-decoder reads its source twice", where="default_target",
                         remedy="remove it")
    if config.encoder and config.encoder.tied:
        raise InputError("the encoder has no weights to be tied to", where="encoder.tied",
                         remedy="use tied: true in the decoder only")
    if config.decoder and config.decoder.tied:
        check_tied(config.encoder, config.decoder)


def check_tied(encoder: Stack | None, decoder: Stack) -> None:
    """Raise `InputError` where the stacks have no weights that they could share."""
    if encoder is None:
        raise InputError("there is no encoder whose weights could be used", where="decoder.tied",
                         remedy="use tied: false, or add an encoder")
    if describe_layout(encoder) != describe_layout(decoder):
        raise InputError("the blocks of the stacks are laid out in different ways", where="decoder.tied",
                         remedy="give both stacks the same kind of layers and the same number of them")
    pairs = zip(encoder.blocks(), decoder.blocks(), strict=True)
    for number, (lender, borrower) in enumerate(dict.fromkeys(pairs)):
        check_blocks(f"decoder.blocks.{number}", lender, borrower)


def describe_layout(stack: Stack) -> dict[str, object]:
    """Return how the blocks of a stack are laid out, without what is in them."""
    plain: dict[str, object] = stack.layers.model_dump(exclude={"block", "blocks"})
    return plain | {"turn": len(stack.blocks())}


def check_blocks(where: str, lender: Block, borrower: Block) -> None:
    """What both blocks have is of the same shape."""
    if lender.bottleneck or borrower.bottleneck:
        raise InputError("blocks with a bottleneck do not share weights between stacks", where=where,
                         remedy="use tied: false")
    own = [strip_untied_choices(one) for one in borrower.sublayers]
    if sum(own.count(strip_untied_choices(one)) for one in lender.sublayers) != len(lender.sublayers):
        raise InputError("the decoder has not just the sublayers of the encoder, each once", where=where,
                         remedy="give it the encoder's with the same widths and norms, and cross_attention beside them")


def strip_untied_choices(residual: Residual) -> Residual | FromNorm:
    """Return a sublayer without what may differ where the weights are the same: who sees whom, positions, dropout."""
    inner = residual.inner
    if isinstance(inner, SelfAttention):
        kernel = inner.kernel.model_copy(update={"dropout": 0.0})
        inner = inner.model_copy(update={"positions": NoPositions(), "visibility": Full(), "kernel": kernel})
    return residual.model_copy(update={"inner": inner, "dropout": 0.0})


def check_embedding(name: str, embed: Embedding, config: Transformer) -> None:
    """What concerns the embedding of one side: segments, projection, positions and characters."""
    segments = embed.segments
    if isinstance(segments, SegmentTable) and isinstance(segments.otherwise, AfterToken) and segments.count < 2:
        raise InputError("tokens before and behind a token need two segments", where=f"{name}.segments",
                         remedy="use count: 2, or otherwise: {kind: one}")
    match embed.projection:
        case ProjectClusters() as clusters:
            check_clusters(f"{name}.projection", clusters, embed.vocab)
        case ProjectTwice() if config.dim % 2:
            raise InputError(f"a width of {config.dim} has no halves", where=f"{name}.projection",
                             remedy="use an even dim")
        case ProjectNarrow(kind="trigram") if name == "embed":
            check_trigram(config)
    if isinstance(embed.positions, Axial) and sum(embed.positions.widths) != embed.widths(config.dim)[1]:
        raise InputError(f"vectors of {' and '.join(map(str, embed.positions.widths))} do not fill "
                         f"{embed.widths(config.dim)[1]}", where=f"{name}.positions.widths",
                         remedy="make them add up to the width")
    if embed.characters:
        check_characters(name, embed, embed.characters, config)


def check_trigram(config: Transformer) -> None:
    """Trigrams hold the next token, which a decoder must not see, and take no other vectors from their table."""
    if config.decoder is not None and (config.encoder is None or config.output_embed is config.embed):
        raise InputError("a trigram holds the next token", where="embed.projection",
                         remedy="use it in an encoder alone")
    if config.embed.segments is not None and config.embed.segments.kind == "tokens":
        raise InputError("segments that are tokens have no neighbours", where="embed.segments",
                         remedy="use kind: table")


def check_clusters(path: str, clusters: ProjectClusters | AdaptiveHead, vocab: int) -> None:
    """Cutoffs rise inside the vocabulary, and the last table has a width."""
    ends = (0, *clusters.cutoffs, vocab)
    if any(first >= second for first, second in pairwise(ends)):
        raise InputError(f"cutoffs {list(clusters.cutoffs)} do not rise between 0 and {vocab}", where=f"{path}.cutoffs",
                         remedy="give rising numbers inside the vocabulary")
    if not clusters.widths()[-1]:
        raise InputError(f"{clusters.width} divided by {clusters.division} for each cluster leaves nothing",
                         where=f"{path}.division", remedy="use fewer clusters, or divide by less")


def check_characters(name: str, embed: Embedding, characters: CharacterNetwork, config: Transformer) -> None:
    """Raise `InputError` where token vectors cannot be made of characters."""
    if (config.encoder is not None and config.decoder is not None) or name != "embed":
        raise InputError("characters are read by a model of one stack", where=f"{name}.characters",
                         remedy="leave it out, or remove the other stack")
    if embed.projection is not None and embed.projection.kind in ("clusters", "trigram"):
        raise InputError(f"a token's vector comes from its characters, and from {embed.projection.kind} too",
                         where=f"{name}.characters", remedy="leave one of them out")
    if (widest := max(size for size, _ in characters.filters)) > characters.longest:
        raise InputError(f"a filter of {widest} characters over tokens of {characters.longest}",
                         where=f"{name}.characters.filters", remedy="use narrower filters, or raise longest")
    if config.output_layer is not None and config.output_layer.tied:
        raise InputError("an output matrix cannot be tied to vectors that are made of characters", where="head",
                         remedy="use tied: false")


def check_head(config: Transformer) -> None:
    """A head reads what the body gives, and is tied to what has its shape."""
    language, embed = config.language_head, config.output_embed
    if language and language.predicts.kind == "query_stream" and not any(stack.queries for stack in config.stacks):
        raise InputError("the head is read by a second stream, and no stack has one", where="head.predicts",
                         remedy="add queries: {} to the stack, or use kind: next")
    if isinstance(config.head, AdaptiveHead):
        check_clusters("head", config.head, embed.vocab)
        check_ties(config.head, embed, config.dim)
    if isinstance(config.head, CustomHead):
        config.head.check(config.width, embed.vocab)
    if isinstance(embed.projection, ProjectClusters) and language and language.tied:
        raise InputError("an output matrix cannot be tied to tables of several widths", where="head",
                         remedy="use kind: adaptive, or tied: false")
    if reads_pooled(config) and config.pooler is None:
        raise InputError("the head reads the pooled first token, and the model has no pooler", where="head",
                         remedy="add `pooler: {}`, or take the vector elsewhere (pick: {kind: first})")
    if isinstance(config.head, BidirectionalHead) and not keeps_directions_apart(config):
        raise InputError("one direction would see what the other is to predict", where="head",
                         remedy="use recurrent sublayers alone, with direction: {kind: apart}, in chain or skip")
    shorter = config.encoder is not None and not config.encoder.layers.keeps_length
    if shorter and config.head and getattr(config.head, "pick", None) != PickVector(kind="first"):
        raise InputError("the encoder gives fewer vectors than tokens, and the head reads all", where="head",
                         remedy="label texts by their first token, or let the layers end in the full length")
    if config.output_layer and config.output_layer.tied:
        check_output_width(config.output_layer, config)
    check_whole_text(config)


def check_output_width(language: LanguageHead, config: Transformer) -> None:
    """A tied output matrix has the width of the token table."""
    table, given = config.output_embed.widths(config.dim)[0], config.width
    if isinstance(config.head, BidirectionalHead):
        given //= 2
    if language.transform is not None and language.transform.width is not None:
        given = language.transform.width
    if table + language.columns != given:
        raise InputError(f"the output layer reads vectors of {given}, and the token table that it is tied to has "
                         f"{table}", where="head", remedy=f"use tied: false, or a transform of width {table}, or "
                         f"{max(given - table, 0)} columns more")


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


def check_whole_text(config: Transformer) -> None:
    """Raise `InputError` where a head that writes whole texts knows no length, or is on another body."""
    language = config.language_head
    whole = language is not None and isinstance(language.predicts, WholeText)
    if whole != isinstance(config.head, LengthHead):
        raise InputError("a whole text is written by a head that tells its length, and by no other",
                         where="head.language.predicts" if whole else "head",
                         remedy="use head {kind: length} with predicts {kind: whole_text} together, or neither")
    if not whole:
        return
    if config.encoder is None or config.decoder is None:
        raise InputError("a whole text is written from a source, which takes an encoder and a decoder", where="head",
                         remedy="use family: mask_predict")
    if any(is_causal(attention.visibility) for attention in config.decoder.attentions()) or list_recurrent_parts(
            config.decoder):
        raise InputError("a decoder that sees only the past cannot fill in a whole text", where="decoder.layers",
                         remedy="use self-attention with visibility {kind: full}")


def check_mix(config: Transformer) -> None:
    """The layers of a mix are those of a plain stack, all as wide."""
    stack = config.stacks[0]
    if stack.narrow or stack.queries or stack.residual.kind != "one" or not stack.layers.plain:
        raise InputError("a mix is of the layers of a plain stack", where="mix",
                         remedy="leave it out, or use a stack without narrow, queries and streams")


def check_source(source: SourceEncoder, config: Transformer) -> None:
    """Raise `InputError` where nothing can be fed, or where what feeds gives other vectors than tokens have."""
    if source.embed.characters:
        check_characters("source.embed", source.embed, source.embed.characters, config)
    if config.encoder is None or config.decoder is None:
        raise InputError("only the encoder of an encoder-decoder is fed by another one", where="source",
                         remedy="remove it, or add the missing stack")
    if source.embed.tied:
        raise InputError("an encoder for another vocabulary has a token table of its own", where="source.embed.tied",
                         remedy="use tied: false")
    if source.stack.width(config.dim) != config.embed.widths(config.dim)[0]:
        raise InputError(f"gives vectors of {source.stack.width(config.dim)}, and the encoder reads token vectors of "
                         f"{config.embed.widths(config.dim)[0]}", where="source.stack",
                         remedy="use a body whose token table is as wide as the model")
    if source.stack.memory or source.stack.queries or source.stack.tied:
        raise InputError("reads one text at a time, with weights of its own", where="source.stack",
                         remedy="remove memory, queries and tied")

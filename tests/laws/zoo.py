"""Small models for the laws: every family, every kind of part, and every recipe that is small enough to run."""

from __future__ import annotations

from inspect import signature

import torch
from tests.laws.zoo_recurrent import recurrent_decoders, recurrent_encoders, recurrent_pairs
from torch import Tensor

from saucier import config as c
from saucier.config.questions import list_recurrent_parts
from saucier.config.visibility import build_bigbird_visibility
from saucier.diagnosis.scope import attentions, left_reason, padding_reason, right_reason
from saucier.families import FAMILIES
from saucier.families.unpublished import FixedFactors
from saucier.model import Transformer, build
from saucier.parts.initialization import fold_scale
from saucier.recipes import names, recipe

VOCAB = 37
LENGTH = 64
RUNNABLE = 20_000_000
"""Recipes with at most this many parameters are run; the others are only counted."""

SMALL = {"dim": 24, "layers": 2, "heads": 4, "vocab": VOCAB}
FAMILY_OPTIONS: dict[str, dict[str, object]] = {
    "mt5": {"head_dim": 6, "hidden": 40}, "switch_transformers": {"head_dim": 6, "hidden": 40, "experts": 3},
    "mixtral": {"kv_heads": 2, "hidden": 40, "experts": 3}, "bart": {"length": LENGTH}, "mbart": {"length": LENGTH},
    "deep_char": {"length": LENGTH, "hidden": 40},
    "seq2seq": {"direction": c.Direction(kind="both")}, "elmo": {"cells": 20},
    "mask_predict": {"hidden": 48, "longest": 20},
    "transformer": {"hidden": 48}, "gpt": {"length": LENGTH}, "gpt2": {"length": LENGTH},
    "gpt_neo": {"length": LENGTH, "window": 5}, "gptj": {"rotated": 4}, "gpt_neox": {"rotated": 0.34},
    "opt": {"length": LENGTH, "narrow": 16}, "ctrl": {"length": LENGTH, "hidden": 40},
    "llama": {"kv_heads": 2, "hidden": 40}, "mistral": {"kv_heads": 2, "hidden": 40, "window": 5},
    "bert": {"length": LENGTH}, "t5": {"head_dim": 6, "hidden": 40},
    "deberta": {"length": 6}, "deberta_v2": {"length": 9, "buckets": 4},
    "modernbert": {"window": 6, "hidden": 20}, "roformer": {"length": LENGTH, "embedding": 10},
    "fnet": {"length": LENGTH}, "mobilebert": {"length": LENGTH, "narrow": 12, "forwards": 2},
    "ib_bert": {"length": LENGTH, "inside": 36},
    "longformer": {"length": LENGTH + 2, "window": (4, 8)},
    "roberta": {"length": LENGTH}, "xlm_roberta": {"length": LENGTH}, "camembert": {"length": LENGTH},
    "reformer": {"head_dim": 6, "hidden": 40, "positions": c.Axial(shape=(4, 16), widths=(8, 16)),
                 "local": c.Chunks(length=3), "lsh": c.Hashing(chunks=c.Chunks(length=4), rounds=2, seed=1)},
    "nystromformer": {"length": LENGTH, "landmarks": 5, "shared_start": False},
    "funnel": {"sizes": (1, 2), "head_dim": 6, "hidden": 40},
    "etc": {"global_tokens": 2, "radius": 2, "reach": 2, "stretch": 3},
    "sparse_transformer": {"length": LENGTH, "factors": FixedFactors(stride=3, count=1)},
    "big_bird": {"length": LENGTH, "visibility": build_bigbird_visibility(1, 1, LENGTH)},
    "dpr": {"length": LENGTH, "width": 10}, "realm": {"length": LENGTH, "width": 10},
    "xlm": {"length": LENGTH, "languages": 3}, "xlnet": {"hidden": 40, "memory": 5},
    "albert": {"length": LENGTH, "width": 12}, "distilbert": {"length": LENGTH},
    "electra": {"length": LENGTH, "width": 12},
    "electra_generator": {"length": LENGTH, "width": 32}, "mpnet": {"length": LENGTH},
    "bert_generation": {"length": LENGTH}, "bert2bert": {"length": LENGTH},
    "led": {"length": LENGTH, "target_length": LENGTH, "window": (4, 8)},
    "transfo_xl": {"hidden": 40, "memory": None, "cutoffs": (10, 20)},
    "t5_shared": {"head_dim": 6, "hidden": 40}, "t5_decoder": {"head_dim": 6, "hidden": 40},
}


def family(name: str) -> c.Transformer:
    """Return a small member of a family."""
    takes = signature(FAMILIES[name]).parameters  # FNet has no heads
    return FAMILIES[name](**{key: value for key, value in SMALL.items() if key in takes},
                          **FAMILY_OPTIONS.get(name, {}))


def decoder(attention: c.SelfAttention, *, layers: int = 2, place: type = c.PreNorm) -> c.Transformer:
    """Return a decoder-only model around this attention."""
    block = c.Block(sublayers=(place(inner=attention), place(inner=c.FeedForward(hidden=40))))
    stack = c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm())
    return c.Transformer(dim=24, embed=c.Embedding(vocab=VOCAB), decoder=stack, head=c.LanguageHead())


def encoder(attention: c.SelfAttention, *, layers: int = 2) -> c.Transformer:
    """Return an encoder-only model around this attention."""
    built = decoder(attention, layers=layers)
    return built.model_copy(update={"encoder": built.decoder, "decoder": None})


def encoder_decoder(reader: c.SelfAttention, writer: c.SelfAttention, *, layers: int = 2) -> c.Transformer:
    """Return an encoder-decoder around these two attentions."""
    cross = c.CrossAttention(projection=writer.projection)
    block = c.Block(sublayers=tuple(c.PreNorm(inner=inner) for inner in (writer, cross, c.FeedForward(hidden=40))))
    stack = c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm())
    return encoder(reader, layers=layers).model_copy(update={"decoder": stack})


HEADS = c.Projection(heads=4)
GROUPED = c.Projection(heads=4, kv_heads=2, bias=False)
SINGLE = c.Projection(heads=4, kv_heads=1, head_dim=8, output_bias=False)


def causal_positions() -> dict[str, c.SelfAttention]:
    """Return a causal attention for every kind of position and of projection."""
    kinds = {"none": c.NoPositions(), "shaw": c.Shaw(max_distance=4), "music": c.MusicTransformer(length=LENGTH),
             "relative": c.RelativeVectors(kind="relative_key", length=LENGTH),
             "relative-both": c.RelativeVectors(kind="relative_key_query", length=LENGTH),
             "t5": c.T5Bias(buckets=8, max_distance=20, bidirectional=False), "rotary": c.Rotary(),
             "rotary-third": c.Rotary(share=0.34), "alibi": c.Alibi(),
             "disentangled": c.Disentangled(distances=c.LogDistances(buckets=4, reach=9), maps=c.SharedMaps()),
             "xl": c.TransformerXL(clamp=7, shared_biases=True),
             "rotary-values": c.Rotary(values=True, pairs=c.Pairs(kind="neighbours")),
             "rotary-neighbours": c.Rotary(pairs=c.Pairs(kind="neighbours"), scaling=c.Yarn(factor=4, length=8)),
             "rotary-scaled": c.Rotary(scaling=c.Llama3Scaling(factor=8, length=16)),
             "rotary-dynamic": c.Rotary(scaling=c.DynamicScaling(factor=2, length=LENGTH)),
             "rotary-longrope": c.Rotary(scaling=c.LongRope(short=(1, 1.5, 2), long=(2, 3, 4), length=LENGTH))}
    found = {f"{name}-mha": c.SelfAttention(projection=HEADS, positions=kind, visibility=c.Causal())
             for name, kind in kinds.items()}
    grouped = {f"{name}-gqa": attention.model_copy(update={"projection": GROUPED})
               for name, attention in zip(kinds, found.values(), strict=True)}
    return found | grouped | {"rotary-mqa": c.SelfAttention(projection=SINGLE, positions=c.Rotary(),
                                                            visibility=c.Causal()),
                              "none-mqa": c.SelfAttention(projection=SINGLE, visibility=c.Causal())}


def full_positions() -> dict[str, c.SelfAttention]:
    """Return an attention that sees both ways for every kind of position that can."""
    kinds = {"none": c.NoPositions(), "shaw": c.Shaw(max_distance=4), "t5": c.T5Bias(buckets=8, max_distance=20),
             "xl": c.TransformerXL(), "rotary": c.Rotary(), "alibi": c.Alibi(),
             "disentangled": c.Disentangled(distances=c.ExactDistances(reach=4)),
             "relative": c.RelativeVectors(kind="relative_key", length=LENGTH),
             "relative-both": c.RelativeVectors(kind="relative_key_query", length=LENGTH)}
    return {name: c.SelfAttention(projection=GROUPED, positions=kind) for name, kind in kinds.items()}


def decoders() -> dict[str, c.Transformer]:
    """Return decoder-only models: the families', and one for every kind of part."""
    found = {name: family(name) for name in FAMILIES}
    found = {name: config for name, config in found.items() if config.encoder is None}
    found |= {f"part-{name}": decoder(attention) for name, attention in causal_positions().items()}
    windowed = c.SelfAttention(projection=GROUPED, positions=c.Rotary(), visibility=c.Causal() & c.Window(3))
    chunked = c.SelfAttention(projection=HEADS, positions=c.Rotary(), visibility=c.Causal(), kernel=c.Chunks(length=3))
    hashed = c.SelfAttention(projection=HEADS, visibility=c.Causal(), kernel=c.Hashing(
        chunks=c.Chunks(length=3), rounds=2, buckets=c.FixedBuckets(factors=(2, 4)), seed=1))
    featured = c.SelfAttention(projection=GROUPED, positions=c.Rotary(), visibility=c.Causal(),
                               kernel=c.Favor(features=24, block=5))
    return found | recurrent_decoders() | {
                    "window": decoder(windowed), "learned": family("gpt2"), "shared": shared(), "cycle": cycled(),
                    "two-attentions": doubled(), "chunks": decoder(chunked), "streams": reversible(chunked),
                    "hashed": decoder(hashed), "favor": decoder(featured), "uneven": uneven(),
                    "experts": with_experts(),
                    "post": decoder(windowed, place=c.PostNorm), "sandwich": decoder(windowed, place=c.SandwichNorm),
                    "from-norm": decoder(windowed, place=c.FromNorm), "abreast": abreast()}


def abreast() -> c.Transformer:
    """Return a model whose blocks read one input three times: through one norm, through it again, through another."""
    own = c.Parallel(inner=c.GatedFeedForward(hidden=32), norm=c.PlainLayerNorm())
    block = c.Block(sublayers=(c.PreNorm(inner=causal_positions()["alibi-mha"]),
                               c.Parallel(inner=causal_positions()["rotary-gqa"]), own,
                               c.FromNorm(inner=c.FeedForward(hidden=20), norm=c.RMSNorm())))
    return decoder(causal_positions()["none-mha"]).model_copy(
        update={"decoder": c.Stack(layers=c.Repeat(block=block, times=2))})


def reversible(attention: c.SelfAttention) -> c.Transformer:
    """Return a model of two residual streams."""
    built = decoder(attention)
    assert built.decoder is not None
    stack = built.decoder.model_copy(update={"residual": c.Streams(kind="reversible")})
    return built.model_copy(update={"decoder": stack, "head": c.LanguageHead(tied=False)})


def shared() -> c.Transformer:
    """Return a model of three layers with two blocks each, the first two layers with the same weights."""
    built = decoder(causal_positions()["rotary-gqa"])
    assert built.decoder is not None
    block = built.decoder.blocks()[0]
    return built.model_copy(update={"decoder": c.Stack(layers=c.Share(block=block, times=3, groups=2, inner=2))})


def cycled() -> c.Transformer:
    """Return a model whose blocks take turns between a window and the whole past."""
    near = c.SelfAttention(projection=HEADS, positions=c.Rotary(), visibility=c.Causal() & c.Window(3))
    far = c.SelfAttention(projection=GROUPED, visibility=c.Causal())
    blocks = tuple(c.Block(sublayers=(c.PreNorm(inner=inner), c.PreNorm(inner=c.GatedFeedForward(hidden=32))))
                   for inner in (near, far))
    return decoder(near).model_copy(update={"decoder": c.Stack(layers=c.Cycle(blocks=blocks, times=2))})


def with_experts() -> c.Transformer:
    """Return a model whose tokens go through two of three experts."""
    built = decoder(causal_positions()["rotary-gqa"])
    experts = c.Experts(inner=c.GatedFeedForward(hidden=20), count=3, router_bias=True)
    block = c.Block(sublayers=(c.PreNorm(inner=causal_positions()["rotary-gqa"]), c.PreNorm(inner=experts)))
    return built.model_copy(update={"decoder": c.Stack(layers=c.Repeat(block=block, times=2))})


def crowded() -> c.Transformer:
    """Return an encoder with experts that take two tokens of a sequence each.

    Only an encoder: what an expert has no room for depends on the tokens of one pass, so that a cache changes it.
    """
    attention = c.SelfAttention(projection=HEADS, positions=c.Rotary())
    experts = c.Experts(inner=c.FeedForward(hidden=20), count=3, router=c.TopOfSoftmax(), capacity=2)
    block = c.Block(sublayers=(c.PreNorm(inner=attention), c.PreNorm(inner=experts)))
    return encoder(attention).model_copy(update={"encoder": c.Stack(layers=c.Repeat(block=block, times=2))})


def doubled() -> c.Transformer:
    """Return a model with two self-attentions of different shape in one block."""
    first, second = causal_positions()["rotary-mqa"], causal_positions()["alibi-mha"]
    block = c.Block(sublayers=tuple(c.PreNorm(inner=inner) for inner in (first, c.FeedForward(hidden=32), second)))
    return decoder(first).model_copy(update={"decoder": c.Stack(layers=c.Repeat(block=block, times=2))})


def uneven() -> c.Transformer:
    """Return a model whose first and third blocks have no attention at all."""
    attention = c.Block(sublayers=(c.PreNorm(inner=causal_positions()["rotary-gqa"]),))
    forward = c.Block(sublayers=(c.PreNorm(inner=c.FeedForward(hidden=32)),))
    stack = c.Stack(layers=c.Cycle(blocks=(forward, attention), times=2))
    return decoder(causal_positions()["none-mha"]).model_copy(update={"decoder": stack})


def encoders() -> dict[str, c.Transformer]:
    """Return encoder-only models: the families', and one for every kind of position."""
    window = c.SelfAttention(projection=HEADS, positions=c.Rotary(), visibility=c.Window(3))
    block = c.SelfAttention(projection=GROUPED, visibility=c.BlockWindow(size=2) + c.BlockWindow(size=3, reach=0))
    first = c.SelfAttention(projection=GROUPED, visibility=c.Window(3) | c.Global(
        otherwise=c.AtMostFirst(kind="first_token")))
    ring = c.SelfAttention(projection=HEADS, kernel=c.Chunks(length=3, before=1, after=1))
    features = c.SelfAttention(projection=GROUPED, kernel=c.Favor(features=24, block=5))
    mixed = {sharing.kind: c.SelfAttention(projection=GROUPED, positions=c.Rotary(),
                                           kernel=c.LowRank(length=LENGTH, rank=5, sharing=sharing))
             for sharing in (c.MapSharing(kind="headwise"), c.MapSharing(kind="key_value"),
                             c.MapSharing(kind="layerwise"))}
    maps = first.model_copy(update={"global_maps": c.GlobalMaps()})
    found = {name: family(name) for name in FAMILIES}
    found = {name: config for name, config in found.items() if config.decoder is None}
    return found | recurrent_encoders() | {
                    "convolution": convolved(), "window": encoder(window), "global": encoder(first),
                    "global-maps": encoder(maps), "blocks": encoder(block), "chunks": encoder(ring),
                    "favor": encoder(features), "crowded": crowded()} | {
        f"part-{name}": encoder(attention) for name, attention in (full_positions() | mixed).items()}


def convolved() -> c.Transformer:
    """Return an encoder with a convolution beside its first block."""
    built = encoder(full_positions()["none"])
    assert built.encoder is not None
    beside = c.Convolution(size=3, groups=2)
    return built.model_copy(update={"encoder": built.encoder.model_copy(update={"convolution": beside})})


def pairs() -> dict[str, c.Transformer]:
    """Return encoder-decoders: the families', and one for every kind of position on both sides."""
    found = {name: family(name) for name in FAMILIES}
    found = {name: config for name, config in found.items() if config.encoder and config.decoder}
    causal = causal_positions()
    return found | {f"part-{name}": encoder_decoder(reader, causal[f"{name}-gqa"])
                    for name, reader in full_positions().items()} | {"two-crosses": two_crosses()} | recurrent_pairs()


def two_crosses() -> c.Transformer:
    """Return an encoder-decoder that looks at the encoder twice in each block."""
    writer = causal_positions()["rotary-mha"]
    crosses = [c.CrossAttention(projection=projection) for projection in (HEADS, SINGLE)]
    block = c.Block(sublayers=tuple(c.PreNorm(inner=inner) for inner in (crosses[0], writer, crosses[1])))
    built = encoder_decoder(full_positions()["none"], writer)
    return built.model_copy(update={"decoder": c.Stack(layers=c.Repeat(block=block, times=2))})


def mixed_layers() -> c.Transformer:
    """Return an encoder-decoder that reads all layers of its encoder. It is none of `pairs`, whose starting weights
    have fingerprints from one kind of processor.
    """
    return family("transformer").model_copy(update={"mix": c.LayerMix()})


def of_any_length(models: dict[str, c.Transformer]) -> list[str]:
    """Return the names of the models whose positions see the same of each other however long the batch is.

    The others cannot obey laws that compare a row with itself in another batch: where the last block is seen by all
    (BigBird), or the last chunk stands beside the first (Reformer), a row that is padded has another end than alone.
    """
    return [name for name, config in models.items() if right_reason(config) is None]


def of_any_place(models: dict[str, c.Transformer]) -> list[str]:
    """Return the names of the models whose positions see the same of each other wherever their row begins.

    The others count blocks or chunks from the row's beginning: padding on the left, or a text before it, moves their
    limits.
    """
    return [name for name, config in models.items() if left_reason(config) is None]


def reads_padding(config: c.Transformer) -> bool:
    """Say whether padding is read like any token, as in the published models.

    FNet's transform has no mask, and the last token's trigram (MobileBERT) holds the padding after it.
    """
    return padding_reason(config) is not None


def of_any_future(models: dict[str, c.Transformer]) -> list[str]:
    """Return the names of the models in which a position sees the same of the past whatever comes after it.

    Where rows are sorted by hashes (Reformer), later tokens move the limits of the chunks that earlier ones see.
    """
    return [name for name, config in models.items()
            if not any(isinstance(part.kernel, c.Hashing) for part in attentions(config))]


def of_packed_pairs(models: dict[str, c.Transformer]) -> list[str]:
    """Return the names of the encoder-decoders that keep several texts in a row apart.

    A recurrent decoder that begins in what the encoder ended in refuses them.
    """
    return [name for name, config in models.items()
            if all(part.start.kind == "zeros" for part in list_recurrent_parts(config.decoder))]


def runnable_recipes() -> list[str]:
    """Return the names of the recipes whose models are small enough to run in a test."""
    found = {name: recipe(name).model for name in names()}
    return [name for name, model in found.items() if c.parameters(model) <= RUNNABLE
            and not c.sees_prefix(model.decoder)]  # these want to be told a prefix: test_any_config, test_prefix do


def everything() -> dict[str, c.Transformer]:
    """Return every model of the zoo and every small recipe, by a name for the test's output."""
    groups = {"decoder": decoders(), "encoder": encoders(), "pair": pairs() | {"mixed-layers": mixed_layers()},
              "recipe": {name: recipe(name).model for name in runnable_recipes()}}
    return {f"{group}-{name}": config for group, found in groups.items() for name, config in found.items()}


def scrambled(config: c.Transformer, *, seed: int = 0) -> Transformer:
    """Build in evaluation mode with every parameter drawn anew, so that no bias is zero and no gain is one.

    Starting weights hide faults: a bias that is added twice, or not at all, is zero both times. Where nothing keeps the
    vectors small (MobileBERT's NoNorm) weights are: vectors of 70 would have rounding errors beyond the tolerance.
    """
    model, reach = build(config, seed=seed).eval(), 0.5 if '"no_norm"' in config.model_dump_json() else 1.0
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            small = parameter.ndim < 2 or any(part in name for part in ("positions", "bias", "shared"))
            spread = 0.3 if small else parameter.shape[-1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread * reach + ("norm" in name))
        fold_scale(model)  # unscaled scores would make every softmax a choice of one key, and rounding errors large
    return model


def steady(config: c.Transformer) -> Transformer:
    """Return the same in float64 where scores are not scaled (T5).

    Scrambled weights then make scores of a hundred, and a float32 sum of them in another order (a machine's products
    take other ways at other lengths) already moves the softmax by more than the tolerance.
    """
    stacks = [stack for stack in (config.encoder, config.decoder) if stack]
    inner = [residual.inner for stack in stacks for block in stack.blocks() for residual in block.sublayers]
    scales = [part.projection.scale for part in inner if isinstance(part, c.SelfAttention | c.CrossAttention)]
    model = scrambled(config)
    return model.double() if any(scale is not None and scale >= 1 for scale in scales) else model


def tokens(config: c.Transformer, rows: int, length: int, *, seed: int = 0) -> Tensor:
    """Return random ids [rows, length], none of them the padding that positions are counted without."""
    ids = torch.randint(0, config.embed.vocab, (rows, length), generator=torch.Generator().manual_seed(seed))
    for padding in (skipped(config), config.embed.padding):
        ids = ids if padding is None else ids.masked_fill(ids == padding, padding + 1)
    return ids


def skipped(config: c.Transformer) -> int | None:
    """Return the id that a model's positions are counted without, if there is one."""
    match config.embed.positions:
        case c.Learned(places=c.SkipPadding(padding=padding)) | c.Sinusoidal(places=c.SkipPadding(padding=padding)):
            return padding
        case _:
            return None


def longest(config: c.Transformer) -> int:
    """Return a length to test with that the model can take."""
    positions = config.embed.positions
    return min(12, positions.length) if isinstance(positions, c.Learned) else 12


def without_dropout(config: c.Transformer) -> c.Transformer:
    """Return the same model with every dropout at zero."""
    def cleared(value: object) -> object:
        match value:
            case dict():
                return {key: 0.0 if key in ("dropout", "noise") else cleared(inner) for key, inner in value.items()}
            case list() | tuple():
                return [cleared(inner) for inner in value]
            case _:
                return value

    return c.Transformer.model_validate(cleared(config.model_dump()))

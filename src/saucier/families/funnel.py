"""Funnel-Transformer: an encoder that reads fewer vectors from stage to stage, and may end in one for each token."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import BARE, LABELS, SPANS, TIED, head_class, keep_all, keep_with, with_head
from saucier.checkpoints.fields import Key, first_attention, look_up, make_keys
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Concat, PerHead, Rule, Rules, ZeroRow, module_rules
from saucier.families.electra import DISCRIMINATOR


def funnel(dim: int = 768, sizes: tuple[int, ...] = (4, 4, 4), *, heads: int = 12, head_dim: int = 64,
           vocab: int = 30522, hidden: int | None = None, after: int | None = 2, dropout: float = 0.1) -> c.Transformer:
    """Funnel-Transformer with ELECTRA's head; `after` None: it ends in pooled vectors.

    Source: Dai et al. 2020, §2 and appendix, arXiv:2006.03236.
    """
    norm = c.LayerNorm(eps=1e-9)
    attention = c.SelfAttention(projection=c.Projection(heads=heads, head_dim=head_dim),
                                positions=c.PooledDistances(dropout=dropout), kernel=c.Softmax(dropout=dropout))
    forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh")
    block = c.Block(sublayers=tuple(c.PostNorm(inner=one, norm=norm, dropout=dropout) for one in (attention, forward)))
    layers = c.Funnel(block=block, sizes=sizes, repeats=(1,) * len(sizes), after=after)
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, segments=c.TablelessSegments(kind="scores"), norm=norm, dropout=dropout),
        encoder=c.Stack(layers=layers),
        head=c.ReplacedTokenHead(),
    )


LAYERS = "encoder.layers"
POSITIONS = f"{LAYERS}.block.sublayers.0.inner.positions"


def weights(tree: c.Transformer, padding: int | None = None) -> Rules:
    """The names of the body: the blocks of each stage, then those of the decoder."""
    projection, layers = first_attention(tree).projection, look_up(tree, LAYERS)
    query, key, _ = projection.widths(tree.dim)
    theirs = [f"@encoder.blocks.{stage}.{number}." for stage, size in enumerate(layers.sizes) for number in range(size)]
    theirs += [f"@decoder.layers.{number}." for number in range(layers.after or 0)]
    found = [Rule("embed.tokens.weight", "@embeddings.word_embeddings.weight", ZeroRow(padding)),
             Rule("embed.norm.{p}", "@embeddings.layer_norm.{p}")]
    for number, there in enumerate(theirs):
        ours, attention = f"encoder.blocks.{number}.", f"{there}attention."
        maps = [f"{attention}{name}_head" for name in "qkv"]
        found += [*module_rules(ours, there, MODULES),
                  Rule(f"{ours}attention.inner.qkv.weight", tuple(f"{one}.weight" for one in maps),
                       Concat((query, key, key))),
                  Rule(f"{ours}attention.inner.qkv.bias", tuple(f"{one}.bias" for one in maps[1:]), Concat((key, key))),
                  Rule(f"{ours}attention.inner.positions.map.weight", f"{attention}r_kernel",
                       PerHead(projection.heads)),
                  *(Rule(f"{ours}attention.inner.positions.{one}", attention + other) for one, other in BIASES.items())]
    return Rules(found, ignored=("lm_head.weight",))


MODULES = {"attention.inner.out": "attention.post_proj", "attention.norm": "attention.layer_norm",
           "feed_forward.inner.up": "ffn.linear_1", "feed_forward.inner.down": "ffn.linear_2",
           "feed_forward.norm": "ffn.layer_norm"}
BIASES = {"content": "r_w_bias", "place": "r_r_bias", "segment_bias": "r_s_bias", "segments": "seg_embed"}


def label_pooled(head: c.ClassificationHead | c.ChoiceHead, *keys: Key) -> Published:
    """Return a class that labels texts by the first of the pooled vectors."""
    return Published(keep_with({**POOLED_END, "head": head}),
                     (Rule("head.output.{p}", "classifier.linear_out.{p}"),
                      Rule("head.transform.dense.{p}", "classifier.linear_hidden.{p}")), (*keys, HEAD_DROPOUT))


POOLED_END = {"head": None, f"{LAYERS}.after": None}
"""The encoder without the way back to the full length."""
HEAD_DROPOUT = Key("hidden_dropout", ("head.dropout",), default=0.1)
FIRST, TANH = c.PickVector(kind="first"), c.Transform(activation="tanh")
FUNNEL_LAYOUT = Layout(
    "funnel", funnel,
    keys=(
        *make_keys("encoder", {
            "d_model": ("dim", 768), "n_head": ("heads", 12), "d_head": ("head_dim", 64), "d_inner": ("hidden", 3072),
            "hidden_act": ("activation", "gelu_new"), "hidden_dropout": ("embed_dropout dropout", 0.1),
            "attention_dropout": ("attention_dropout", 0.1), "layer_norm_eps": ("eps", 1e-9),
            "vocab_size": ("vocab", 30522)},
            also={"activation": ("head.transform.activation",), "dropout": (f"{POSITIONS}.dropout",)}),
        Key("activation_dropout", (f"{LAYERS}.block.sublayers.1.inner.dropout",), default=0.0),
        Key("block_sizes", (f"{LAYERS}.sizes",), default=(4, 4, 4), ours=tuple, theirs=list),
        Key("block_repeats", (f"{LAYERS}.repeats",), ours=tuple, theirs=list,
            default=lambda document: (1,) * len(document.get("block_sizes", (4, 4, 4)))),
        Key("num_decoder_layers", (f"{LAYERS}.after",), default=2,
            write_nested=lambda tree, said: said if (after := look_up(tree, f"{LAYERS}.after")) is None else after),
        Key("pooling_type", (f"{LAYERS}.pooling",), default="mean", names={"mean": "mean", "max": "max"}),
        Key("pool_q_only", (f"{LAYERS}.query_only",), default=True),
        Key("separate_cls", (f"{LAYERS}.separate_first", f"{POSITIONS}.separate_first"), default=True),
        Key("truncate_seq", (f"{LAYERS}.truncate",), default=True),
    ),
    weights=weights,
    classes={
        "FunnelForPreTraining": Published(keep_all, DISCRIMINATOR),
        "FunnelForMaskedLM": Published(with_head(c.LanguageHead(bias=True)), (Rule("head.{p}", "lm_head.{p}"),),
                                       (TIED,)),
        "FunnelForSequenceClassification": label_pooled(c.ClassificationHead(pick=FIRST, transform=TANH), LABELS),
        "FunnelForMultipleChoice": label_pooled(c.ChoiceHead(pick=FIRST, transform=TANH)),
        "FunnelForTokenClassification": head_class(c.TokenHead(), keys=(LABELS, HEAD_DROPOUT)),
        "FunnelForQuestionAnswering": SPANS, "FunnelModel": BARE,
        "FunnelBaseModel": Published(keep_with(POOLED_END), base=""),
    },
    base="funnel.", fixed={"attention_type": "relative_shift"},
    free=frozenset({
        "initializer_std", "tie_word_embeddings", "max_position_embeddings", "type_vocab_size"}),
    choose_layout=lambda layout, document: replace(
        layout, weights=partial(weights, padding=document.get("pad_token_id"))),
)

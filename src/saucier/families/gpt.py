"""GPT and GPT-2: a stack of causal blocks with learned positions and a tied output layer."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling, last_token, whole
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key, Layout, Published
from saucier.checkpoints.rules import Rule, Rules, Transpose


def sublayers(heads: int, hidden: int, dropout: float) -> tuple[c.SelfAttention, c.FeedForward]:
    """The two sublayers that both generations share."""
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal(),
                                kernel=c.Softmax(dropout=dropout))
    return attention, c.FeedForward(hidden=hidden, activation="gelu_tanh")


def gpt(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 40478,
    length: int = 512,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """GPT: norms after each sublayer.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", §4.1.
    """
    residuals = tuple(c.PostNorm(inner=inner, dropout=dropout)
                      for inner in sublayers(heads, hidden or 4 * dim, dropout))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.SegmentTokens(), dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.LanguageHead(),
    )


def gpt2(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50257,
    length: int = 1024,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """GPT-2: norms before each sublayer and one at the end, residual maps started smaller with depth.

    Source: Radford et al. 2019, §2.3.
    """
    residuals = tuple(c.PreNorm(inner=inner, dropout=dropout) for inner in sublayers(heads, hidden or 4 * dim, dropout))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.SegmentTokens(), dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers), final_norm=c.LayerNorm()),
        head=c.LanguageHead(),
        initialization=c.NormalInit(depth_scaled=True),
    )


def gpt2_by_fields(dim: int, layers: int, heads: int, *, scaled: bool, by_depth: bool) -> c.Transformer:
    """GPT-2 whose scores are not `scaled` by the heads' width, or are divided by the layer's number (`by_depth`).

    Source: Karamcheti et al. 2021, "Mistral: A Journey towards Reproducible Language Model Training", for the latter.
    """
    tree = gpt2(dim, layers, heads=heads)
    if scaled and not by_depth:
        return tree
    assert tree.decoder is not None, "a GPT-2 is a decoder"
    block = tree.decoder.blocks()[0]
    whole_scale = (dim // heads) ** -0.5 if scaled else 1.0

    def scored(scale: float) -> c.Block:
        attention, feed_forward = block.sublayers
        assert isinstance(attention.inner, c.SelfAttention), "as the family's function says"
        projection = attention.inner.projection.model_copy(update={"scale": scale})
        inner = attention.inner.model_copy(update={"projection": projection})
        return c.Block(sublayers=(attention.model_copy(update={"inner": inner}), feed_forward))

    made: c.Repeat | c.Cycle = c.Repeat(block=scored(whole_scale), times=layers)
    if by_depth:
        made = c.Cycle(blocks=tuple(scored(whole_scale / (depth + 1)) for depth in range(layers)), times=1)
    return tree.model_copy(update={"decoder": tree.decoder.model_copy(update={"layers": made})})


def first_scale(tree: c.Transformer) -> float | None:
    """Return the factor on the scores of the first block, where it is not the usual one."""
    inner = tree.decoder.blocks()[0].sublayers[0].inner if tree.decoder else None
    return inner.projection.scale if isinstance(inner, c.SelfAttention) else None


ATTENTION, FEED_FORWARD = "decoder.layers.*.sublayers.0", "decoder.layers.*.sublayers.1"
KEYS = (
    Key("vocab_size", ("embed.vocab",), default=40478),
    Key("n_positions", ("embed.positions.length",), default=512),
    Key("layer_norm_epsilon", (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps", "decoder.final_norm.eps"),
        default=1e-5),
    Key("resid_pdrop", (f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("embd_pdrop", ("embed.dropout",), default=0.1),
    Key("attn_pdrop", (f"{ATTENTION}.inner.kernel.dropout",), default=0.1),
    Key("tie_word_embeddings", ("head.tied",), default=True),
)
GPT_KEYS = (
    *KEYS,
    Key("n_embd", ("dim",), argument="dim", default=768),
    Key("n_layer", ("decoder.layers.times",), default=12),
    Key("n_head", (f"{ATTENTION}.inner.projection.heads",), default=12),
    Key("afn", (f"{FEED_FORWARD}.inner.activation",), default="gelu",
        names={"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}),
)
GPT2_KEYS = (
    *(replace(key, default={"vocab_size": 50257, "n_positions": 1024}.get(key.foreign, key.default)) for key in KEYS),
    Key("n_embd", ("dim",), argument="dim", default=768),
    Key("n_layer", (), argument="layers", default=12,
        found=lambda tree: len(tree.decoder.blocks()) if tree.decoder else None),
    Key("n_head", (f"{ATTENTION}.inner.projection.heads",), argument="heads", default=12),
    Key("n_inner", (f"{FEED_FORWARD}.inner.hidden",), default=lambda document: 4 * document.get("n_embd", 768)),
    Key("activation_function", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="gelu_new"),
    Key("scale_attn_weights", (), argument="scaled", default=True, found=lambda tree: first_scale(tree) != 1.0),
    Key("scale_attn_by_inverse_layer_idx", (), argument="by_depth", default=False,
        found=lambda tree: tree.decoder is not None and isinstance(tree.decoder.layers, c.Cycle)),
)
SUMMARY = (
    Key("summary_first_dropout", ("head.choice.dropout",), default=0.1),
    Key("summary_activation", ("head.choice.activation",), nullable=True, default=None,
        ours=lambda name: "identity" if name is None else {**ACTIVATIONS, "tanh": "tanh"}[name],
        theirs=lambda name: None if name == "identity" else "gelu_new" if name == "gelu_tanh" else name),
    Key("summary_type", (), names={"cls_index": "cls_index"}, default="cls_index"),
    Key("summary_use_proj", (), names={True: True}, default=True),
    Key("summary_proj_to_labels", (), names={True: True}, default=True),
)
"""Fields of the head that compares texts: it reads the token that the batch names, and gives one number."""
FREE = frozenset({"n_ctx", "predict_special_tokens", "reorder_and_upcast_attn", *(key.foreign for key in SUMMARY)})


def weights(tree: c.Transformer, *, tokens: str, positions: str) -> Rules:
    """The names of both generations; matrices of the blocks are stored as [inputs, outputs].

    A tied table may stand in a file under the output layer's name alone.
    """
    untied = tree.language_head is not None and not tree.language_head.tied
    names = {"attention.norm": "ln_1", "feed_forward.norm": "ln_2"}
    maps = {
        "attention.inner.qkv": "attn.c_attn",
        "attention.inner.out": "attn.c_proj",
        "feed_forward.inner.up": "mlp.c_fc",
        "feed_forward.inner.down": "mlp.c_proj",
    }
    block, theirs = "decoder.blocks.{i}.", "@h.{i}."
    return Rules([
        Rule("embed.tokens.weight", f"@{tokens}.weight", instead=None if untied else "lm_head.weight"),
        Rule("embed.positions.weight", f"@{positions}.weight"),
        Rule("decoder.final_norm.{p}", "@ln_f.{p}"),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}", Transpose()) for ours, other in maps.items()),
    ], ignored=["@h.{i}.attn.bias", "@h.{i}.attn.masked_bias", "lm_head.weight"])


def two_heads(tree: c.Transformer, document: Document) -> c.Head:
    """The language head beside one that compares texts."""
    assert tree.language_head is not None, "the family's function gives one"
    return c.DoubleHead(language=tree.language_head)


def one_head(tree: c.Transformer) -> c.Transformer:
    """The language head alone, where keys look for it."""
    return tree.model_copy(update={"head": tree.language_head}) if isinstance(tree.head, c.DoubleHead) else tree


LANGUAGE = Published(whole.keep, (Rule("head.weight", "lm_head.weight"),))
DOUBLE = replace(labelling(two_heads, keys=SUMMARY), restore=one_head, rules=(
    Rule("head.language.weight", "lm_head.weight"),
    Rule("head.choice.output.{p}", "multiple_choice_head.summary.{p}")))
DROPOUT = Key("classifier_dropout", ("head.dropout",), default=0.1)
GPT_LAYOUT = Layout(
    "openai-gpt", gpt, GPT_KEYS, lambda tree: weights(tree, tokens="tokens_embed", positions="positions_embed"),
    {"OpenAIGPTLMHeadModel": LANGUAGE, "OpenAIGPTDoubleHeadsModel": DOUBLE,
     "OpenAIGPTForSequenceClassification": last_token, "OpenAIGPTModel": bare},
    "transformer.", free=FREE,
)
GPT2_LAYOUT = Layout(
    "gpt2", gpt2_by_fields, GPT2_KEYS, lambda tree: weights(tree, tokens="wte", positions="wpe"),
    {"GPT2LMHeadModel": LANGUAGE, "GPT2DoubleHeadsModel": DOUBLE, "GPT2ForSequenceClassification": last_token,
     "GPT2ForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
     "GPT2ForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()), "GPT2Model": bare},
    "transformer.", free=FREE, fixed={"add_cross_attention": False},
)

"""Switch Transformers: T5 whose every other layer has many feed-forwards, of which each token goes through one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import BARE, WHOLE, add_experts, find_expert_step, list_expert_layers, ties_output
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, join_paths, look_up, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule, Rules
from saucier.families.t5_lineage import FEED_FORWARDS, FREE, HEAD, INNER, encoder_decoder, encoder_model, keys, weights


def switch_transformers(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    head_dim: int = 64,
    vocab: int = 32128,
    hidden: int = 3072,
    experts: int = 8,
    dropout: float = 0.1,
) -> c.Transformer:
    """Switch, base size with 8 experts by default. Source: Fedus et al. 2021, §2 and table 9, arXiv:2101.03961.

    Each expert takes 64 tokens of a sequence; the router sees its input with one percent of noise in training.
    """
    feed_forward = c.FeedForward(hidden=hidden, activation="relu", bias=False, dropout=dropout)
    tree = encoder_decoder(dim, layers, feed_forward, heads=heads, head_dim=head_dim, vocab=vocab, dropout=dropout,
                           head=c.LanguageHead(scale=dim**-0.5))
    many = c.Experts(inner=feed_forward, count=experts, router=c.TopOfSoftmax(), capacity=64, noise=0.01)
    return make_sparse(tree, many, (layers, layers), (2, 2))


def make_sparse(tree: c.Transformer, experts: c.Experts, layers: tuple[int, int],
                steps: tuple[int, int]) -> c.Transformer:
    """Give every `step`th layer of each stack experts, the second layer first; 1 is every layer, 0 none."""
    return put(tree, {side: add_experts(look_up(tree, side), experts, count, step)
                      for side, count, step in zip(("encoder", "decoder"), layers, steps, strict=True)})


def from_fields(dim: int, *, activation: c.Activation, tied: bool, readers: int, writers: int, reader_step: int,
                writer_step: int) -> c.Transformer:
    """The family by the published fields; a tied output layer is scaled, and goes with one table for both sides."""
    inner = c.FeedForward(hidden=1, activation=activation, bias=False)
    tree = encoder_decoder(dim, 1, inner, heads=1, head_dim=64, vocab=1, dropout=0.0,
                           head=c.LanguageHead(tied=tied, scale=dim**-0.5 if tied else 1.0))
    tree = tree.model_copy(update={"decoder_embed": None if tied else tree.embed})
    return make_sparse(tree, c.Experts(inner=inner, count=1, router=c.TopOfSoftmax()), (readers, writers),
                       (reader_step, writer_step))


def side_keys(side: str, ours: str, layers: str) -> tuple[Key, ...]:
    """The fields of one stack: its layers, how many have experts, and in which step."""
    sparse = f"num_sparse_{side}_layers"

    def step(document: Document) -> int | None:
        total: int | None = document.get(layers, 12) or document.get("num_layers", 12)
        count = document.get(sparse, 3)
        return total // count if total and count > 0 else total

    return (
        Key(layers, (), argument=f"{ours}s", default=lambda said: said.get("num_layers") if layers in said else 12,
            found=lambda tree: len(getattr(tree, side).blocks()) if getattr(tree, side) else None),
        Key(sparse, (), default=3, found=lambda tree: len(list_expert_layers(getattr(tree, side)))),
        Key(f"{side}_sparse_step", (), argument=f"{ours}_step", default=step,
            found=lambda tree: find_expert_step(getattr(tree, side))),
    )


def choose_spelling(layout: Layout, document: Document) -> Layout:
    """Return the layout that looks for an encoder's own table first where the sides have tables of their own."""
    def own(tree: c.Transformer) -> Rules:
        found = layout.weights(tree)
        table = Rule("embed.tokens.weight", "@encoder.embed_tokens.weight", instead="@shared.weight")
        return found if tree.decoder else replace(found, rules=[table, *found.rules[1:]])

    return layout if document.get("tie_word_embeddings", True) else replace(layout, weights=own)


def feed_forward_rules(ours: str, theirs: str, inner: c.FeedForward | c.GatedFeedForward) -> list[Rule]:
    """The names of a dense layer, of the experts, and of their router."""
    experts, mlp = ours + "experts.", theirs + "mlp."
    return [
        Rule(ours + "feed_forward.norm.weight", theirs + "layer_norm.weight"),
        Rule(ours + "feed_forward.inner.up.weight", mlp + "wi.weight"),
        Rule(ours + "feed_forward.inner.down.weight", mlp + "wo.weight"),
        Rule(experts + "norm.weight", theirs + "layer_norm.weight"),
        Rule(experts + "inner.router.{p}", mlp + "router.classifier.{p}"),
        Rule(experts + "inner.experts.{j}.up.weight", mlp + "experts.expert_{j}.wi.weight"),
        Rule(experts + "inner.experts.{j}.down.weight", mlp + "experts.expert_{j}.wo.weight"),
    ]


SWITCH_LAYOUT = Layout(
    "switch_transformers", from_fields,
    keys(Key("dense_act_fn", join_paths(INNER, "activation"), names=ACTIVATIONS, default="relu", argument="activation"),
         Key("tie_word_embeddings", (), default=True, argument="tied", found=ties_output),
         *side_keys("encoder", "reader", "num_layers"), *side_keys("decoder", "writer", "num_decoder_layers"),
         *(Key(foreign, join_paths(FEED_FORWARDS, f"inner.{name}"), default=default)
           for foreign, name, default in (("num_experts", "count", 8), ("expert_capacity", "capacity", 64),
                                          ("router_bias", "router_bias", False),
                                          ("router_jitter_noise", "noise", 0.01)))),
    partial(weights, inner=feed_forward_rules),
    {"SwitchTransformersForConditionalGeneration": Published(WHOLE.keep, HEAD), "SwitchTransformersModel": BARE,
     "SwitchTransformersEncoderModel": encoder_model},
    base="", fixed={"router_dtype": "float32"},
    free=(FREE) | {"router_ignore_padding_tokens", "add_router_probs", "router_z_loss_coef",
                   "router_aux_loss_coef", "add_cross_attention", "feed_forward_proj",
                   "is_gated_act", "router_type", "classifier_dropout", "scale_decoder_outputs"},
    choose_layout=choose_spelling,
)

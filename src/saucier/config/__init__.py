"""The config tree: every architecture as data, with what can be counted and checked without building it.

No torch here.
"""

from saucier.config.base import Config
from saucier.config.check import check
from saucier.config.count import Node, anatomy, cache_bytes, flops_per_token, parameters
from saucier.config.layers import (
    Activation,
    CrossAttention,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Norm,
    PostNorm,
    PreNorm,
    Projection,
    Residual,
    RMSNorm,
    SandwichNorm,
    SelfAttention,
    Softmax,
)
from saucier.config.memory import Memory, memory
from saucier.config.model import (
    Block,
    Cycle,
    Embedding,
    FanInInit,
    Head,
    HeadTransform,
    LanguageHead,
    NormalInit,
    Pooler,
    PretrainingHead,
    Repeat,
    Share,
    Stack,
    Transformer,
    XavierInit,
)
from saucier.config.positions import Alibi, Learned, MusicTransformer, NoPositions, Rotary, Shaw, Sinusoidal, T5Bias
from saucier.config.visibility import And, Causal, Full, Or, Prefix, Visibility, Window, is_causal, visible_keys

__all__ = [
    "Activation", "Alibi", "And", "Block", "Causal", "Config", "CrossAttention", "Cycle", "Embedding", "FanInInit",
    "FeedForward", "Full", "GatedFeedForward", "Head", "HeadTransform", "LanguageHead", "LayerNorm", "Learned",
    "Memory", "MusicTransformer", "NoPositions", "Node", "Norm", "NormalInit", "Or", "Pooler", "PostNorm", "PreNorm",
    "Prefix", "PretrainingHead", "Projection", "RMSNorm", "Repeat", "Residual", "Rotary", "SandwichNorm",
    "SelfAttention", "Share", "Shaw", "Sinusoidal", "Softmax", "Stack", "T5Bias", "Transformer", "Visibility", "Window",
    "XavierInit", "anatomy", "cache_bytes", "check", "flops_per_token", "is_causal", "memory", "parameters",
    "visible_keys",
]

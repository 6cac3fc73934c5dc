"""The config tree: every architecture as data, with what can be counted and checked without building it.

No torch here.
"""

from saucier.config.anatomy import Node
from saucier.config.base import Config
from saucier.config.check import check
from saucier.config.count import anatomy, cache_bytes, flops_per_token, parameters
from saucier.config.disentangled import Disentangled, ExactDistances, LogDistances, OwnMaps, SharedMaps
from saucier.config.heads import (
    ChoiceHead,
    Chosen,
    ClassificationHead,
    DoubleHead,
    EndToken,
    First,
    FirstUnmasked,
    Head,
    InPlace,
    LanguageHead,
    Last,
    LastToken,
    Mean,
    NextToken,
    Pick,
    Pooled,
    Pooler,
    Predicts,
    PretrainingHead,
    QueryStream,
    ReaderHead,
    ReplacedTokenHead,
    SpanHead,
    TokenHead,
    Transform,
    VectorHead,
)
from saucier.config.layers import (
    Activation,
    CrossAttention,
    Experts,
    FeedForward,
    GatedFeedForward,
    GlobalMaps,
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
    SoftmaxOfTop,
    TopOfSoftmax,
)
from saucier.config.memory import Memory, memory
from saucier.config.model import (
    AfterToken,
    Block,
    Cycle,
    Embedding,
    FanInInit,
    FirstSegment,
    LanguageTable,
    NormalInit,
    OneSegment,
    ProjectNormed,
    ProjectSum,
    ProjectTokens,
    Repeat,
    SegmentTable,
    SegmentTokens,
    Share,
    Stack,
    Transformer,
    XavierInit,
)
from saucier.config.neighbours import Convolution
from saucier.config.norms import IdentityNorm, NoNorm
from saucier.config.pooling import (
    DenseMap,
    EmbeddingHead,
    FirstReal,
    LastReal,
    MaxReal,
    MeanReal,
    MeanRoot,
    Pooling,
    WeightedMean,
)
from saucier.config.positions import (
    Alibi,
    FullRange,
    Halves,
    InOrder,
    Interleaved,
    Learned,
    MusicTransformer,
    NoPositions,
    Places,
    RealTokens,
    RelativeKey,
    RelativeKeyQuery,
    Rotary,
    Shaw,
    Sinusoidal,
    SkipPadding,
    T5Bias,
    longest_input,
)
from saucier.config.recurrence import FromNothing, FromZeros, QueryVector, SegmentMemory
from saucier.config.rotary import (
    AcrossHalves,
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRope,
    Neighbours,
    NoScaling,
    Pairs,
    Scaling,
    Yarn,
)
from saucier.config.span_heads import QuestionSpanHead
from saucier.config.targets import RotatedSource, ShiftedSource
from saucier.config.visibility import (
    AfterSeparator,
    And,
    BeforeSeparator,
    Beyond,
    BlockWindow,
    Causal,
    FirstToken,
    Full,
    Global,
    GlobalBlocks,
    GlobalTokens,
    NoTokens,
    Or,
    Plus,
    Prefix,
    RandomBlocks,
    Visibility,
    Window,
    global_terms,
    is_causal,
    sliding,
    visible_keys,
)

__all__ = [
    "AcrossHalves", "Activation", "AfterSeparator", "AfterToken", "Alibi", "And", "BeforeSeparator", "Beyond", "Block",
    "BlockWindow", "Causal", "ChoiceHead", "Chosen", "ClassificationHead", "Config", "Convolution", "CrossAttention",
    "Cycle", "DenseMap", "Disentangled", "DoubleHead", "DynamicScaling", "Embedding", "EmbeddingHead", "EndToken",
    "ExactDistances", "Experts", "FanInInit", "FeedForward", "First", "FirstReal", "FirstSegment", "FirstToken",
    "FromNothing", "FromZeros", "Full", "FullRange", "GatedFeedForward", "Global", "GlobalBlocks", "GlobalMaps",
    "GlobalTokens", "Halves", "Head", "InOrder", "InPlace", "Interleaved", "LanguageHead", "LanguageTable", "Last",
    "LastReal", "LastToken", "LayerNorm", "Learned", "LinearScaling", "Llama3Scaling", "LogDistances", "LongRope",
    "MaxReal", "Mean", "MeanReal", "MeanRoot", "Memory", "MusicTransformer", "Neighbours", "NextToken", "NoPositions",
    "NoScaling", "NoTokens", "Node", "Norm", "NormalInit", "OneSegment", "Or", "OwnMaps", "Pairs", "Pick", "Places",
    "Plus", "Pooled", "Pooler", "Pooling", "PostNorm", "PreNorm", "Predicts", "Prefix", "PretrainingHead",
    "ProjectNormed", "ProjectSum", "ProjectTokens", "Projection", "QueryStream", "QueryVector", "QuestionSpanHead",
    "RMSNorm", "RandomBlocks", "ReaderHead", "RealTokens", "RelativeKey", "RelativeKeyQuery", "Repeat",
    "ReplacedTokenHead", "Residual", "Rotary", "RotatedSource", "SandwichNorm", "Scaling", "SegmentMemory",
    "SegmentTable", "SegmentTokens", "SelfAttention", "Share", "SharedMaps", "Shaw", "ShiftedSource", "Sinusoidal",
    "SkipPadding", "Softmax", "SoftmaxOfTop", "SpanHead", "Stack", "T5Bias", "TokenHead", "TopOfSoftmax", "Transform",
    "Transformer", "VectorHead", "Visibility", "WeightedMean", "Window", "XavierInit", "Yarn", "anatomy",
    "cache_bytes", "check", "flops_per_token", "global_terms", "is_causal", "longest_input", "memory", "parameters",
    "sliding", "visible_keys",
]
__all__ += ["FirstUnmasked", "IdentityNorm", "NoNorm"]

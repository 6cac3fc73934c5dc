"""The config tree: every architecture as data, with what can be counted and checked without building it.

No torch here.
"""

from saucier.config.adaptive import AdaptiveHead, ProjectClusters
from saucier.config.anatomy import Node
from saucier.config.base import Config
from saucier.config.bottleneck import Bottleneck, ReadsNarrow, ReadsShared, ReadsWide
from saucier.config.check import check, mixes_padding, reads_pooled
from saucier.config.chunks import BucketsByLength, Chunks, FixedBuckets, Hashing
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
    FromNorm,
    GatedFeedForward,
    GlobalMaps,
    LayerNorm,
    Norm,
    Parallel,
    PostNorm,
    PreNorm,
    Projection,
    Residual,
    RMSNorm,
    SandwichNorm,
    SelfAttention,
    Softmax,
    SoftmaxOfTop,
    Sublayer,
    TopOfSoftmax,
)
from saucier.config.memory import Memory, memory
from saucier.config.mixing import FourierMixing
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
    ProjectTrigram,
    ProjectUndropped,
    Repeat,
    SegmentScores,
    SegmentTable,
    SegmentTokens,
    Share,
    Stack,
    Transformer,
    XavierInit,
)
from saucier.config.neighbours import Convolution
from saucier.config.norms import IdentityNorm, NoNorm, PlainLayerNorm
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
    Axial,
    EmbeddingPositions,
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
    SinusoidLayout,
    SkipPadding,
    T5Bias,
    TransformerXL,
    longest_input,
)
from saucier.config.recurrence import FromNothing, FromZeros, QueryVector, SegmentMemory
from saucier.config.room import stack_room
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
from saucier.config.streams import OneStream, Reversible
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
    Permutation,
    Plus,
    Prefix,
    RandomBlocks,
    SameLength,
    Visibility,
    Window,
    global_terms,
    has_prefix,
    is_causal,
    permutes,
    sliding,
    visible_keys,
)

__all__ = [
    "AcrossHalves", "Activation", "AdaptiveHead", "AfterSeparator", "AfterToken", "Alibi", "And", "Axial",
    "BeforeSeparator", "Beyond", "Block", "BlockWindow", "BucketsByLength", "Causal", "ChoiceHead", "Chosen",
    "Chunks", "ClassificationHead", "Config", "Convolution", "CrossAttention", "Cycle", "DenseMap", "Disentangled",
    "DoubleHead", "DynamicScaling", "Embedding", "EmbeddingHead", "EmbeddingPositions", "EndToken", "ExactDistances",
    "Experts", "FanInInit", "FeedForward", "First", "FirstReal", "FirstSegment", "FirstToken", "FirstUnmasked",
    "FixedBuckets", "FourierMixing", "FromNorm", "FromNothing", "FromZeros", "Full", "FullRange", "GatedFeedForward",
    "Global", "GlobalBlocks", "GlobalMaps", "GlobalTokens", "Halves", "Hashing", "Head", "IdentityNorm", "InOrder",
    "InPlace", "Interleaved", "LanguageHead", "LanguageTable", "Last", "LastReal", "LastToken", "LayerNorm",
    "Learned", "LinearScaling", "Llama3Scaling", "LogDistances", "LongRope", "MaxReal", "Mean", "MeanReal",
    "MeanRoot", "Memory", "MusicTransformer", "Neighbours", "NextToken", "NoNorm", "NoPositions", "NoScaling",
    "NoTokens", "Node", "Norm", "NormalInit", "OneSegment", "OneStream", "Or", "OwnMaps", "Pairs", "Parallel",
    "Permutation", "Pick", "Places", "PlainLayerNorm", "Plus", "Pooled", "Pooler", "Pooling", "PostNorm", "PreNorm",
    "Predicts", "Prefix", "PretrainingHead", "ProjectClusters", "ProjectNormed", "ProjectSum", "ProjectTokens",
    "ProjectUndropped", "Projection", "QueryStream", "QueryVector", "QuestionSpanHead", "RMSNorm", "RandomBlocks",
    "ReaderHead", "RealTokens", "RelativeKey", "RelativeKeyQuery", "Repeat", "ReplacedTokenHead", "Residual",
    "Reversible", "Rotary", "RotatedSource", "SameLength", "SandwichNorm", "Scaling", "SegmentMemory",
    "SegmentScores", "SegmentTable", "SegmentTokens", "SelfAttention", "Share", "SharedMaps", "Shaw", "ShiftedSource",
    "SinusoidLayout", "Sinusoidal", "SkipPadding", "Softmax", "SoftmaxOfTop", "SpanHead", "Stack", "Sublayer",
    "T5Bias", "TokenHead", "TopOfSoftmax", "Transform", "Transformer", "TransformerXL", "VectorHead", "Visibility",
    "WeightedMean", "Window", "XavierInit", "Yarn", "anatomy", "cache_bytes", "check", "flops_per_token",
    "global_terms", "has_prefix", "is_causal", "longest_input", "memory", "mixes_padding", "parameters", "permutes",
    "reads_pooled", "sliding", "stack_room", "visible_keys",
]
__all__ += ["Bottleneck", "ProjectTrigram", "ReadsNarrow", "ReadsShared", "ReadsWide"]

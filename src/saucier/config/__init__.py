"""The config tree: every architecture as data, with what can be counted and checked without building it.

No torch here.
"""

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from saucier.config.attention_slots import AttentionKernel as AttentionKernel
from saucier.config.attention_slots import AttentionRanks as AttentionRanks
from saucier.config.attention_slots import NoPositions as NoPositions
from saucier.config.attention_slots import PositionsInAttention as PositionsInAttention
from saucier.config.attention_slots import Projection as Projection
from saucier.config.attention_slots import map_rank as map_rank
from saucier.config.base import Config as Config
from saucier.config.blocks import Block as Block
from saucier.config.blocks import Bottleneck as Bottleneck
from saucier.config.blocks import Cycle as Cycle
from saucier.config.blocks import Funnel as Funnel
from saucier.config.blocks import Reads as Reads
from saucier.config.blocks import Repeat as Repeat
from saucier.config.blocks import Share as Share
from saucier.config.checks.model import check as check
from saucier.config.counting import Node as Node
from saucier.config.counting.model import anatomy as anatomy
from saucier.config.counting.model import cache_bytes as cache_bytes
from saucier.config.counting.model import flops_per_token as flops_per_token
from saucier.config.counting.model import parameters as parameters
from saucier.config.disentangled import Disentangled as Disentangled
from saucier.config.disentangled import ExactDistances as ExactDistances
from saucier.config.disentangled import LogDistances as LogDistances
from saucier.config.disentangled import OwnMaps as OwnMaps
from saucier.config.disentangled import SharedMaps as SharedMaps
from saucier.config.embedding import AfterToken as AfterToken
from saucier.config.embedding import CharacterNetwork as CharacterNetwork
from saucier.config.embedding import Embedding as Embedding
from saucier.config.embedding import FirstSegment as FirstSegment
from saucier.config.embedding import LanguageTable as LanguageTable
from saucier.config.embedding import OneSegment as OneSegment
from saucier.config.embedding import ProjectClusters as ProjectClusters
from saucier.config.embedding import ProjectNarrow as ProjectNarrow
from saucier.config.embedding import ProjectTwice as ProjectTwice
from saucier.config.embedding import SegmentTable as SegmentTable
from saucier.config.embedding import TablelessSegments as TablelessSegments
from saucier.config.heads import AdaptiveHead as AdaptiveHead
from saucier.config.heads import BidirectionalHead as BidirectionalHead
from saucier.config.heads import ChoiceHead as ChoiceHead
from saucier.config.heads import ClassificationHead as ClassificationHead
from saucier.config.heads import CustomHead as CustomHead
from saucier.config.heads import DoubleHead as DoubleHead
from saucier.config.heads import EmbeddingHead as EmbeddingHead
from saucier.config.heads import Head as Head
from saucier.config.heads import InPlace as InPlace
from saucier.config.heads import JointSpanHead as JointSpanHead
from saucier.config.heads import LanguageHead as LanguageHead
from saucier.config.heads import LengthHead as LengthHead
from saucier.config.heads import Predicts as Predicts
from saucier.config.heads import PretrainingHead as PretrainingHead
from saucier.config.heads import QuestionSpanHead as QuestionSpanHead
from saucier.config.heads import ReaderHead as ReaderHead
from saucier.config.heads import ReplacedTokenHead as ReplacedTokenHead
from saucier.config.heads import SpanHead as SpanHead
from saucier.config.heads import TokenHead as TokenHead
from saucier.config.heads import Transform as Transform
from saucier.config.heads import UnmaskedPrediction as UnmaskedPrediction
from saucier.config.heads import WholeText as WholeText
from saucier.config.kernels import BucketsByLength as BucketsByLength
from saucier.config.kernels import Chunks as Chunks
from saucier.config.kernels import Favor as Favor
from saucier.config.kernels import FixedBuckets as FixedBuckets
from saucier.config.kernels import Hashing as Hashing
from saucier.config.kernels import LowRank as LowRank
from saucier.config.kernels import MapSharing as MapSharing
from saucier.config.kernels import Repeats as Repeats
from saucier.config.kernels import Softmax as Softmax
from saucier.config.layers import Activation as Activation
from saucier.config.layers import Chain as Chain
from saucier.config.layers import CrossAttention as CrossAttention
from saucier.config.layers import CustomSublayer as CustomSublayer
from saucier.config.layers import Experts as Experts
from saucier.config.layers import FeedForward as FeedForward
from saucier.config.layers import FeedForwardRanks as FeedForwardRanks
from saucier.config.layers import FourierMixing as FourierMixing
from saucier.config.layers import FromNorm as FromNorm
from saucier.config.layers import GatedFeedForward as GatedFeedForward
from saucier.config.layers import GlobalMaps as GlobalMaps
from saucier.config.layers import Parallel as Parallel
from saucier.config.layers import PostNorm as PostNorm
from saucier.config.layers import PreNorm as PreNorm
from saucier.config.layers import Residual as Residual
from saucier.config.layers import SandwichNorm as SandwichNorm
from saucier.config.layers import SelfAttention as SelfAttention
from saucier.config.layers import Skip as Skip
from saucier.config.layers import SoftmaxOfTop as SoftmaxOfTop
from saucier.config.layers import Sublayer as Sublayer
from saucier.config.layers import TopOfSoftmax as TopOfSoftmax
from saucier.config.model import FanInInit as FanInInit
from saucier.config.model import NormalInit as NormalInit
from saucier.config.model import RotatedSource as RotatedSource
from saucier.config.model import ShiftedSource as ShiftedSource
from saucier.config.model import SourceEncoder as SourceEncoder
from saucier.config.model import Transformer as Transformer
from saucier.config.model import UniformInit as UniformInit
from saucier.config.model import XavierInit as XavierInit
from saucier.config.norms import LayerNorm as LayerNorm
from saucier.config.norms import Norm as Norm
from saucier.config.norms import PlainLayerNorm as PlainLayerNorm
from saucier.config.norms import RMSNorm as RMSNorm
from saucier.config.norms import Unnormed as Unnormed
from saucier.config.nystrom import Nystrom as Nystrom
from saucier.config.pooling import DenseMap as DenseMap
from saucier.config.pooling import EndToken as EndToken
from saucier.config.pooling import LastToken as LastToken
from saucier.config.pooling import LayerMix as LayerMix
from saucier.config.pooling import Pick as Pick
from saucier.config.pooling import PickVector as PickVector
from saucier.config.pooling import Pooler as Pooler
from saucier.config.pooling import Pooling as Pooling
from saucier.config.positions import Axial as Axial
from saucier.config.positions import CountedPlaces as CountedPlaces
from saucier.config.positions import DynamicScaling as DynamicScaling
from saucier.config.positions import EmbeddingPositions as EmbeddingPositions
from saucier.config.positions import Learned as Learned
from saucier.config.positions import LinearScaling as LinearScaling
from saucier.config.positions import Llama3Scaling as Llama3Scaling
from saucier.config.positions import LongRope as LongRope
from saucier.config.positions import NoScaling as NoScaling
from saucier.config.positions import Pairs as Pairs
from saucier.config.positions import Places as Places
from saucier.config.positions import Rotary as Rotary
from saucier.config.positions import Scaling as Scaling
from saucier.config.positions import Sinusoidal as Sinusoidal
from saucier.config.positions import SinusoidLayout as SinusoidLayout
from saucier.config.positions import SkipPadding as SkipPadding
from saucier.config.positions import Yarn as Yarn
from saucier.config.questions import drops_layers as drops_layers
from saucier.config.questions import global_terms as global_terms
from saucier.config.questions import has_prefix as has_prefix
from saucier.config.questions import hides_keys as hides_keys
from saucier.config.questions import keeps_directions_apart as keeps_directions_apart
from saucier.config.questions import learned_length as learned_length
from saucier.config.questions import list_length_limits as list_length_limits
from saucier.config.questions import longest_input as longest_input
from saucier.config.questions import mixes_padding as mixes_padding
from saucier.config.questions import reads_pooled as reads_pooled
from saucier.config.questions import remembered_tokens as remembered_tokens
from saucier.config.questions import sees_prefix as sees_prefix
from saucier.config.questions import sliding_reach as sliding_reach
from saucier.config.recurrent import LSTM as LSTM
from saucier.config.recurrent import Alignment as Alignment
from saucier.config.recurrent import Bahdanau as Bahdanau
from saucier.config.recurrent import ConcatScore as ConcatScore
from saucier.config.recurrent import Direction as Direction
from saucier.config.recurrent import GlobalReach as GlobalReach
from saucier.config.recurrent import InitialState as InitialState
from saucier.config.recurrent import InnerProduct as InnerProduct
from saucier.config.recurrent import LocalMonotonic as LocalMonotonic
from saucier.config.recurrent import LocalPredictive as LocalPredictive
from saucier.config.recurrent import Luong as Luong
from saucier.config.recurrent import PlainCell as PlainCell
from saucier.config.recurrent import Readout as Readout
from saucier.config.recurrent import Recurrent as Recurrent
from saucier.config.relative_positions import Alibi as Alibi
from saucier.config.relative_positions import GlobalLocal as GlobalLocal
from saucier.config.relative_positions import KeptHeads as KeptHeads
from saucier.config.relative_positions import MusicTransformer as MusicTransformer
from saucier.config.relative_positions import PooledDistances as PooledDistances
from saucier.config.relative_positions import RelativeVectors as RelativeVectors
from saucier.config.relative_positions import Shaw as Shaw
from saucier.config.relative_positions import T5Bias as T5Bias
from saucier.config.relative_positions import TransformerXL as TransformerXL
from saucier.config.stack import Activations as Activations
from saucier.config.stack import Convolution as Convolution
from saucier.config.stack import MemoryStart as MemoryStart
from saucier.config.stack import QueryVector as QueryVector
from saucier.config.stack import SegmentMemory as SegmentMemory
from saucier.config.stack import Stack as Stack
from saucier.config.stack import Streams as Streams
from saucier.config.visibility import AtMostFirst as AtMostFirst
from saucier.config.visibility import AtSeparator as AtSeparator
from saucier.config.visibility import Beyond as Beyond
from saucier.config.visibility import BlockWindow as BlockWindow
from saucier.config.visibility import Causal as Causal
from saucier.config.visibility import Columns as Columns
from saucier.config.visibility import Combined as Combined
from saucier.config.visibility import DecoderVisibility as DecoderVisibility
from saucier.config.visibility import Dilated as Dilated
from saucier.config.visibility import FirstTokens as FirstTokens
from saucier.config.visibility import Full as Full
from saucier.config.visibility import Global as Global
from saucier.config.visibility import GlobalBlocks as GlobalBlocks
from saucier.config.visibility import GlobalTokens as GlobalTokens
from saucier.config.visibility import Permutation as Permutation
from saucier.config.visibility import Prefix as Prefix
from saucier.config.visibility import RandomBlocks as RandomBlocks
from saucier.config.visibility import SameLength as SameLength
from saucier.config.visibility import Strided as Strided
from saucier.config.visibility import Visibility as Visibility
from saucier.config.visibility import Window as Window
from saucier.config.visibility import is_causal as is_causal
from saucier.config.visibility import visible_keys as visible_keys

RENAMED = {"BothWays": partial(Direction, kind="both"), "FromFinalStates": partial(InitialState, kind="final")}
"""Classes that the docs once showed, and that are kinds of another one now."""


if not TYPE_CHECKING:  # where it would make every name right
    def __getattr__(name: str) -> Any:
        if name not in RENAMED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        new = RENAMED[name]
        renamed = f"{__name__}.{name}() is now {new.func.__name__}(kind={new.keywords['kind']!r})"
        warnings.warn(f"{renamed}; the old name goes in version 0.3", DeprecationWarning, stacklevel=2)
        return new

"""Random configs for the property test: every union's members in every slot, most of them legal, some of them not."""

from __future__ import annotations

from hypothesis import strategies as st

from saucier import config as c

POSITIONS = 16
VOCAB = 19

dims = st.sampled_from([8, 12, 16, 24])
norms = st.one_of(st.builds(c.LayerNorm, bias=st.booleans()), st.builds(c.RMSNorm), st.just(c.Unnormed(kind="no_norm")),
                  st.just(c.PlainLayerNorm()), st.just(c.Unnormed(kind="identity")))
activations = st.sampled_from(["relu", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "laplace"])
dropouts = st.sampled_from([0.0, 0.1])
kernels = st.builds(c.Softmax, dropout=dropouts)


@st.composite
def projections(draw: st.DrawFn) -> c.Projection:
    """Heads that fit together, of a width of their own or of the model's."""
    heads = draw(st.sampled_from([1, 2, 4]))
    groups = draw(st.sampled_from([None, *(n for n in (1, 2, 4) if heads % n == 0)]))
    return c.Projection(heads=heads, kv_heads=groups, head_dim=draw(st.sampled_from([None, 4, 6])),
                        bias=draw(st.booleans()), key_bias=draw(st.booleans()),
                        output_bias=draw(st.booleans()), scale=draw(st.sampled_from([None, 1.0])))


plain_visibilities = st.one_of(st.just(c.Full()), st.just(c.Causal()), st.just(c.Prefix()), st.just(c.Permutation()),
                               st.just(c.SameLength()),
                               st.builds(c.Window, st.integers(1, 5)),
                               st.builds(c.Global, otherwise=st.sampled_from([c.AtMostFirst(kind="no_tokens"),
                                                                              c.AtMostFirst(kind="first_token")])),
                               st.builds(c.BlockWindow, size=st.integers(1, 4), reach=st.integers(0, 2)),
                               st.builds(c.GlobalBlocks, size=st.integers(1, 4)),
                               st.builds(c.Dilated, size=st.integers(1, 3), dilation=st.integers(1, 3)),
                               st.builds(c.Strided, stride=st.integers(1, 4)),
                               st.builds(c.Columns, stride=st.integers(1, 4), count=st.integers(1, 2)),
                               st.builds(c.RandomBlocks, size=st.integers(1, 3), count=st.integers(1, 2),
                                         length=st.just(POSITIONS)))
visibilities = st.recursive(plain_visibilities, lambda inner: st.one_of(
    st.builds(lambda first, second: first & second, inner, inner),
    st.builds(lambda first, second: first | second, inner, inner),
    st.builds(lambda first, second: first + second, inner, inner),
    st.builds(lambda first, second: c.Combined(kind="by_head", terms=(first, second)), inner, inner),
    st.builds(c.Beyond, length=st.sampled_from([3, 20]), inner=inner)), max_leaves=3)

scalings = st.sampled_from([
    c.NoScaling(), c.LinearScaling(factor=2), c.DynamicScaling(factor=2, length=POSITIONS),
    c.Llama3Scaling(factor=8, length=POSITIONS), c.Yarn(factor=4, length=8),
    c.LongRope(short=(1, 2), long=(2, 3), length=POSITIONS)])
attention_positions = st.one_of(
    st.just(c.NoPositions()), st.builds(c.Shaw, max_distance=st.integers(1, 6)),
    st.builds(c.MusicTransformer, length=st.just(POSITIONS)),
    st.builds(c.RelativeVectors, kind=st.sampled_from(["relative_key", "relative_key_query"]),
              length=st.just(POSITIONS)),
    st.builds(c.T5Bias, buckets=st.just(8), max_distance=st.sampled_from([3, 20]), bidirectional=st.booleans()),
    st.builds(c.Disentangled, content_to_position=st.booleans(), position_to_content=st.booleans(),
              distances=st.sampled_from([c.ExactDistances(reach=3), c.LogDistances(buckets=4, reach=9)]),
              maps=st.sampled_from([c.OwnMaps(), c.OwnMaps(key_bias=False), c.SharedMaps()]), norm=st.one_of(st.none(),
                                                                                                             norms)),
    st.builds(c.Rotary, share=st.sampled_from([0.5, 1.0]), scaling=scalings, values=st.booleans(),
              pairs=st.sampled_from([c.Pairs(kind="halves"), c.Pairs(kind="neighbours")])), st.just(c.Alibi()),
    st.builds(c.TransformerXL, clamp=st.sampled_from([None, 2]), shared_biases=st.booleans(), dropout=dropouts))
sinusoids = st.sampled_from([c.SinusoidLayout(kind="interleaved"), c.SinusoidLayout(kind="halves"),
                             c.SinusoidLayout(kind="full_range")])
embedding_positions = st.one_of(st.just(c.NoPositions()), st.builds(c.Sinusoidal, layout=sinusoids),
                                st.builds(c.Learned, length=st.just(POSITIONS)))

self_attentions = st.builds(c.SelfAttention, projection=projections(), positions=attention_positions,
                            visibility=visibilities, kernel=kernels,
                            global_maps=st.sampled_from([None, None, c.GlobalMaps(), c.GlobalMaps(bias=False)]))
cross_attentions = st.builds(c.CrossAttention, projection=projections(), kernel=kernels)
plain_feed_forwards = st.one_of(
    st.builds(c.FeedForward, hidden=st.sampled_from([8, 20]), activation=activations, bias=st.booleans(),
              dropout=dropouts),
    st.builds(c.GatedFeedForward, hidden=st.sampled_from([8, 20]), activation=activations, bias=st.booleans(),
              dropout=dropouts))

experts = st.builds(c.Experts, inner=plain_feed_forwards, count=st.integers(1, 3), router_bias=st.booleans(),
                    noise=dropouts, capacity=st.sampled_from([None, 64]),
                    router=st.sampled_from([c.TopOfSoftmax(), c.TopOfSoftmax(top=2), c.SoftmaxOfTop()]))
feed_forwards = st.one_of(plain_feed_forwards, experts)

cells = st.one_of(st.builds(c.PlainCell, kind=st.sampled_from(["rnn", "gru"]), bias=st.booleans()),
                  st.builds(c.LSTM, bias=st.booleans(), cells=st.sampled_from([None, 10])))
scores = st.sampled_from([c.InnerProduct(kind="dot"), c.InnerProduct(kind="general"), c.ConcatScore(),
                          c.ConcatScore(width=6)])
reaches = st.sampled_from([c.GlobalReach(), c.LocalMonotonic(reach=9), c.LocalPredictive(reach=9, width=6)])
looks = st.one_of(st.none(), st.builds(c.Luong, score=scores, reach=reaches, input_feeding=st.booleans()),
                  st.builds(c.Bahdanau, readout=st.sampled_from([c.Readout(kind="state"), c.Readout(kind="deep")])))


def recurrents(*, cross: bool) -> st.SearchStrategy[c.Recurrent]:
    """Return recurrent sublayers; beside an encoder they may look at it."""
    direction = st.sampled_from([c.Direction(kind="ahead"), c.Direction(kind="ahead"), c.Direction(kind="back"),
                                 c.Direction(kind="both"), c.Direction(kind="apart")])
    start = st.sampled_from([c.InitialState(kind="zeros"), c.InitialState(kind="final"),
                             c.InitialState(kind="last_layer"), c.InitialState(kind="mean")])
    return st.builds(c.Recurrent, cell=cells, layers=st.integers(1, 2), dropout=dropouts,
                     direction=st.just(c.Direction(kind="ahead")) if cross else direction,
                     start=start if cross else st.just(c.InitialState(kind="zeros")),
                     attention=looks if cross else st.none())


@st.composite
def residuals(draw: st.DrawFn, *, cross: bool) -> c.Residual:
    """One sublayer inside one of the residual places."""
    place = draw(st.sampled_from([c.PreNorm, c.PreNorm, c.PostNorm, c.SandwichNorm, c.Parallel, c.FromNorm, c.Skip,
                                  c.Chain]))
    choices = [self_attentions, feed_forwards, recurrents(cross=cross), *([cross_attentions] if cross else [])]
    if place in (c.Skip, c.Chain):
        return place(inner=draw(st.one_of(*choices)), dropout=draw(dropouts))
    kinds = st.one_of(st.none(), norms) if place is c.Parallel else norms
    return place(inner=draw(st.one_of(*choices)), norm=draw(kinds), dropout=draw(dropouts))


def blocks(*, cross: bool) -> st.SearchStrategy[c.Block]:
    """Return blocks of one to three sublayers in any order."""
    return st.builds(c.Block, sublayers=st.lists(residuals(cross=cross), min_size=1, max_size=3).map(tuple))


def stacks(*, cross: bool) -> st.SearchStrategy[c.Stack]:
    """Return stacks that repeat, cycle or share their blocks."""
    times = st.integers(1, 2)
    layers = st.one_of(st.builds(c.Repeat, block=blocks(cross=cross), times=times),
                       st.builds(c.Share, block=blocks(cross=cross), times=times, groups=st.integers(1, 2),
                                 inner=st.integers(1, 2)),
                       st.builds(c.Cycle, blocks=st.lists(blocks(cross=cross), min_size=1, max_size=2).map(tuple),
                                 times=times))
    convolution = st.one_of(st.none(), st.builds(c.Convolution, size=st.sampled_from([1, 2, 3]),
                                                 groups=st.sampled_from([1, 2])))
    # Memory and second stream are not drawn: what they need of a block is rare; tests/laws/test_memory.py has them.
    return st.builds(c.Stack, layers=layers, convolution=convolution, final_norm=st.one_of(st.none(), norms),
                     narrow=st.sampled_from([None, None, 12]), dropout=dropouts, zero_padding=st.booleans())


narrow_kinds = st.sampled_from(["tokens", "sum", "normed", "undropped", "trigram"])
projections = st.one_of(st.none(), st.builds(c.ProjectNarrow, kind=narrow_kinds, width=st.sampled_from([4, 12]),
                                             bias=st.booleans()),
                        st.just(c.ProjectClusters(width=8, division=2, cutoffs=(5, 11))))
embeddings = st.builds(c.Embedding, vocab=st.just(VOCAB), positions=embedding_positions, projection=projections,
                       segments=st.sampled_from([None, c.SegmentTable(), c.FirstSegment(),
                                                 c.TablelessSegments(kind="tokens")]),
                       norm=st.one_of(st.none(), norms), dropout=dropouts, scale=st.sampled_from([1.0, 4.0]))
language_heads = st.builds(
    c.LanguageHead, tied=st.booleans(), bias=st.booleans(), scale=st.sampled_from([1.0, 0.5]),
    transform=st.one_of(st.none(), st.builds(c.Transform, activation=activations, width=st.sampled_from([None, 12]),
                                             norm=st.one_of(st.none(), norms), bias=st.booleans())))
transforms = st.one_of(st.none(), st.builds(c.Transform, width=st.sampled_from([None, 6])))
picks = st.sampled_from([c.PickVector(kind="pooled"), c.PickVector(kind="first"), c.PickVector(kind="first_unmasked"),
                         c.PickVector(kind="last"), c.LastToken(padding=0), c.PickVector(kind="mean"),
                         c.PickVector(kind="mean_all"), c.PickVector(kind="chosen")])
poolings = st.builds(c.Pooling, kind=st.sampled_from(["pooled", "first", "cls", "mean", "max", "mean_sqrt_len",
                                                      "weighted_mean", "last"]))
heads = st.one_of(
    st.none(), language_heads, st.builds(c.PretrainingHead, language=language_heads, classes=st.just(3)),
    st.builds(c.ClassificationHead, pick=picks, transform=transforms, classes=st.integers(1, 3), bias=st.booleans()),
    st.builds(c.TokenHead, transform=transforms, classes=st.just(3)), st.builds(c.SpanHead, transform=transforms),
    st.builds(c.ChoiceHead, pick=picks, transform=transforms), st.builds(c.ReplacedTokenHead, transform=transforms),
    st.builds(c.AdaptiveHead, cutoffs=st.just((5, 11)), width=st.sampled_from([8, 12]),
              division=st.sampled_from([1, 2]), tied=st.booleans()),
    st.builds(c.DoubleHead, language=language_heads), st.builds(c.ReaderHead, pick=picks),
    st.builds(c.JointSpanHead, longest=st.integers(1, 4), hidden=st.just(6), norm=norms),
    st.builds(c.EmbeddingHead, pooling=st.lists(poolings, min_size=1, max_size=2).map(tuple),
              maps=st.sampled_from([(), (c.DenseMap(width=6),)]), norm=st.one_of(st.none(), norms),
              normalize=st.booleans(), language=st.one_of(st.none(), language_heads)))
initializations = st.one_of(st.builds(c.NormalInit, depth_scaled=st.booleans()), st.builds(c.XavierInit),
                            st.builds(c.FanInInit))


@st.composite
def transformers(draw: st.DrawFn) -> c.Transformer:
    """Any model: encoder, decoder or both (rarely neither), with or without an embedding for the target side."""
    shape = draw(st.sampled_from(["encoder", "decoder", "both", "both", "decoder"]))
    both = shape == "both"
    return c.Transformer(
        dim=draw(dims), embed=draw(embeddings), encoder=draw(stacks(cross=False)) if shape != "decoder" else None,
        decoder=draw(stacks(cross=both)) if shape != "encoder" else None,
        decoder_embed=draw(st.one_of(st.none(), embeddings)) if both else None,
        pooler=draw(st.one_of(st.none(), st.just(c.Pooler()))), head=draw(heads), initialization=draw(initializations))

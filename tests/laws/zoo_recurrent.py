"""Small recurrent models for the laws: every cell, direction, start, score and reach."""

from __future__ import annotations

from saucier import config as c

DIM, VOCAB = 24, 37


def stack(*parts: c.Recurrent, place: type = c.Chain) -> c.Stack:
    """Return a stack with one sublayer in each block."""
    blocks = tuple(c.Block(sublayers=(place(inner=part),)) for part in parts)
    return c.Stack(layers=c.Cycle(blocks=blocks, times=1))


def alone(*parts: c.Recurrent, writes: bool, place: type = c.Chain) -> c.Transformer:
    """Return a model of one stack."""
    side = {"decoder" if writes else "encoder": stack(*parts, place=place)}
    return c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB), head=c.LanguageHead(), **side)


def pair(writer: c.Recurrent, reader: c.Recurrent | None = None) -> c.Transformer:
    """Return an encoder-decoder; the encoder reads both ways with the decoder's cell unless it is given."""
    reader = reader or c.Recurrent(cell=writer.cell, layers=writer.layers, direction=c.Direction(kind="both"))
    return c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB), encoder=stack(reader), decoder=stack(writer),
                         head=c.LanguageHead())


def hybrid() -> c.Transformer:
    """Return a decoder with attention and recurrent layers in one block."""
    attention = c.SelfAttention(projection=c.Projection(heads=4), visibility=c.Causal())
    block = c.Block(sublayers=(c.PreNorm(inner=c.Recurrent(cell=c.PlainCell(kind="gru"))), c.PreNorm(inner=attention),
                               c.Skip(inner=c.Recurrent(cell=c.LSTM(cells=40)))))
    return c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB), head=c.LanguageHead(),
                         decoder=c.Stack(layers=c.Repeat(block=block, times=2), final_norm=c.LayerNorm()))


def recurrent_decoders() -> dict[str, c.Transformer]:
    """Return models that write without a source."""
    return {"rnn": alone(c.Recurrent(cell=c.PlainCell(kind="rnn")), writes=True),
            "lstm": alone(c.Recurrent(cell=c.LSTM(forget_bias=1.0), layers=2), writes=True),
            "lstm-projected": alone(*[c.Recurrent(cell=c.LSTM(cells=40))] * 2, writes=True, place=c.Skip),
            "gru": alone(c.Recurrent(cell=c.PlainCell(kind="gru", bias=False)), writes=True, place=c.PostNorm),
            "hybrid": hybrid()}


def recurrent_encoders() -> dict[str, c.Transformer]:
    """Return models that read both ways, or backwards."""
    return {"bilstm": alone(c.Recurrent(cell=c.LSTM(), layers=2, direction=c.Direction(kind="both")), writes=False),
            "lstm-apart": alone(*[c.Recurrent(cell=c.LSTM(cells=20), direction=c.Direction(kind="apart"))] * 2,
                                writes=False),
            "gru-back": alone(c.Recurrent(cell=c.PlainCell(kind="gru"), direction=c.Direction(kind="back")),
                              writes=False)}


def recurrent_pairs() -> dict[str, c.Transformer]:
    """Return encoder-decoders: thought vectors, Bahdanau's and Luong's attention."""
    final, zeros = c.InitialState(kind="final"), c.InitialState(kind="zeros")
    looks = {"bahdanau": c.Bahdanau(), "bahdanau-deep": c.Bahdanau(readout=c.Readout(kind="deep")),
             "luong": c.Luong(), "luong-concat": c.Luong(score=c.ConcatScore(width=10)),
             "luong-at-once": c.Luong(score=c.InnerProduct(kind="dot"), input_feeding=False)}
    near = {"local-m": c.Luong(reach=c.LocalMonotonic(reach=2)),
            "local-p": c.Luong(reach=c.LocalPredictive(reach=2), input_feeding=False)}
    ahead = c.Recurrent(cell=c.LSTM(), layers=2)
    return {"thought-rnn": pair(c.Recurrent(cell=c.PlainCell(kind="rnn"), start=final)),
            "thought-lstm": pair(ahead.model_copy(update={"start": final}), ahead),
            "thought-gru": pair(c.Recurrent(cell=c.PlainCell(kind="gru"), start=c.InitialState(kind="last_layer"),
                                            layers=2)),
            **{name: pair(c.Recurrent(cell=c.PlainCell(kind="gru"), layers=2, attention=look, start=zeros))
               for name, look in looks.items()},
            **{name: pair(c.Recurrent(cell=c.LSTM(), attention=look, start=final)) for name, look in near.items()},
            "bahdanau-mean": pair(c.Recurrent(cell=c.LSTM(cells=30), layers=2, attention=c.Bahdanau(),
                                              start=c.InitialState(kind="mean")))}

"""Recurrent layers against torch's own modules, and attention inside a recurrence against its equations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.laws.zoo import scrambled
from tests.laws.zoo_recurrent import DIM, VOCAB, alone, pair, stack
from tests.tolerances import assert_close
from torch import Tensor, nn

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.recurrent_cells import Cell

CELLS = {"rnn": (c.PlainCell(kind="rnn"), nn.RNN), "lstm": (c.LSTM(), nn.LSTM),
         "gru": (c.PlainCell(kind="gru"), nn.GRU)}
LENGTHS = [7, 2, 5]


def part_of(model: Transformer, side: str = "encoder") -> Any:
    """Return the first recurrent sublayer of a model."""
    return getattr(model, side).blocks[0]["recurrent"].inner


def torchs(part: Any, kind: type[nn.RNNBase], dim: int) -> nn.RNNBase:
    """Return torch's own module with the weights of a recurrent sublayer; torch orders an LSTM's gates as we do."""
    config = part.config
    own = config.cells(dim) if config.projected else config.width(dim)
    more = {"proj_size": config.width(dim)} if config.projected else {}
    module = kind(dim, own, num_layers=config.layers, batch_first=True, bidirectional=len(config.ways) > 1, **more)
    names = {"input.weight": "weight_ih", "hidden.weight": "weight_hh", "input.bias": "bias_ih",
             "hidden.bias": "bias_hh", "project.weight": "weight_hr"}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()  # our LSTM and RNN have one bias
        for number, layer in enumerate(part.layers.stack):
            for way, end in (("ahead", ""), ("back", "_reverse")):
                for name, value in (getattr(layer, way) or nn.Module()).named_parameters():
                    getattr(module, f"{names[name]}_l{number}{end}").copy_(value)
    return module


def right_mask(lengths: list[int]) -> Tensor:
    """Return the mask of rows padded at their end."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


@pytest.mark.parametrize("direction", [c.Direction(kind="ahead"), c.Direction(kind="both")], ids=["ahead", "both"])
@pytest.mark.parametrize("name", [*CELLS, "projected"])
def test_layers_are_torchs(name: str, direction: c.Direction) -> None:
    """Outputs, last states and gradients of padded rows are those of torch's module over packed sequences."""
    cell, kind = CELLS.get(name, (c.LSTM(cells=30), nn.LSTM))
    model = scrambled(alone(c.Recurrent(cell=cell, layers=2, direction=direction), writes=False))
    part = part_of(model)
    module = torchs(part, kind, DIM)
    ids, mask = torch.randint(0, VOCAB, (3, 7), generator=torch.Generator().manual_seed(1)), right_mask(LENGTHS)
    packed = nn.utils.rnn.pack_padded_sequence(model.embed.tokens(ids), torch.tensor(LENGTHS), batch_first=True,
                                               enforce_sorted=False)
    output, last = module(packed)
    expected = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0]
    found = model(ids, mask).last_hidden_state
    assert_close(found * mask[..., None], expected)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(2)) * mask[..., None]
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    first: Cell = part.layers.stack[0].ahead
    assert_close(first.hidden.weight.grad, module.weight_hh_l0.grad)
    assert_close(first.input.weight.grad, module.weight_ih_l0.grad)
    assert (last[0] if isinstance(last, tuple) else last).shape[1] == 3


@pytest.mark.parametrize("name", CELLS)
def test_last_states_are_torchs(name: str) -> None:
    """What an encoder hands on is each layer's last state, both directions side by side."""
    cell, kind = CELLS[name]
    writer = c.Recurrent(cell=cell, layers=2, start=c.InitialState(kind="final"))
    model = scrambled(pair(writer))
    module = torchs(part_of(model), kind, DIM)
    ids, mask = torch.randint(0, VOCAB, (3, 7), generator=torch.Generator().manual_seed(1)), right_mask(LENGTHS)
    packed = nn.utils.rnn.pack_padded_sequence(model.embed.tokens(ids), torch.tensor(LENGTHS), batch_first=True,
                                               enforce_sorted=False)
    last = module(packed)[1]
    last = last if isinstance(last, tuple) else (last,)
    found = model(ids, mask, decoder_input_ids=ids[:, :1]).encoder_states
    for layer in range(2):
        for state, expected in zip(found[layer], last, strict=True):
            assert_close(state, expected[2 * layer:2 * layer + 2].transpose(0, 1).flatten(1))


def test_forget_gates_begin_open() -> None:
    """The forget gate's bias starts where the config says, all others at zero."""
    model = saucier.build(alone(c.Recurrent(cell=c.LSTM(forget_bias=1.0)), writes=True))
    bias = part_of(model, "decoder").layers.stack[0].ahead.input.bias
    assert bias.tolist() == [0.0] * DIM + [1.0] * DIM + [0.0] * 2 * DIM


def test_directions_that_are_apart_never_meet() -> None:
    """Of ELMo's stacks, the first half sees no later token, the second no earlier one, through both layers."""
    parts = [c.Recurrent(cell=c.LSTM(cells=20), direction=c.Direction(kind="apart"))] * 2
    model = scrambled(alone(*parts, writes=False))
    x = torch.randn(1, 6, DIM, requires_grad=True)
    states = model(inputs_embeds=x).last_hidden_state
    for half, sees in ((slice(0, 12), torch.ones(6, 6).tril()), (slice(12, 24), torch.ones(6, 6).triu())):
        for place in range(6):
            gradient = torch.autograd.grad(states[0, place, half].sum(), x, retain_graph=True)[0]
            assert torch.equal(gradient[0].abs().sum(-1) > 0, sees[place].bool())


def encoded(config: c.Recurrent) -> tuple[Transformer, Tensor, Tensor, Tensor, Any]:
    """Return a model around a decoder with attention, its embedded target, the encoder's vectors, ids and output."""
    model = scrambled(pair(config))
    source, target = (torch.randint(0, VOCAB, (1, n), generator=torch.Generator().manual_seed(n)) for n in (6, 5))
    output = model(source, decoder_input_ids=target, output_attentions=True)
    return model, model.embed.tokens(target)[0], output.encoder_last_hidden_state[0], target, output


def gru(cell: Cell, sums: Tensor, h: Tensor) -> Tensor:
    """One step of a GRU, written out."""
    (a, b, n), (d, e, m) = sums.chunk(3), (cell.hidden.weight @ h + cell.hidden.bias).chunk(3)
    r, z = torch.sigmoid(a + d), torch.sigmoid(b + e)
    return (1 - z) * torch.tanh(n + r * m) + z * h


@pytest.mark.parametrize("readout", [c.Readout(kind="state"), c.Readout(kind="deep")], ids=["state", "deep"])
def test_bahdanau_is_its_equations(readout: c.Readout) -> None:
    """Step by step: e_ij = v tanh(W s_{i-1} + U h_j), softmax, c_i, and the cell reads y_{i-1} and c_i."""
    model, x, h, _, output = encoded(c.Recurrent(cell=c.PlainCell(kind="gru"), attention=c.Bahdanau(readout=readout),
                                                 start=c.InitialState(kind="last_layer")))
    part = part_of(model, "decoder")
    cell, look, score = part.layers.cell(0), part.looking, part.looking.alignment.score
    last = torch.cat([h[-1, :DIM // 2], h[0, DIM // 2:]])  # each direction where it ends
    state = torch.tanh(part.begin.weight @ last + part.begin.bias)
    for step, word in enumerate(x):
        e = torch.stack([score.weigh[0] @ torch.tanh(score.query.weight @ state + score.source.weight @ one)
                         for one in h])
        weights = torch.exp(e) / torch.exp(e).sum()
        context = (weights[:, None] * h).sum(0)
        state = gru(cell, cell.input.weight @ word + cell.input.bias + cell.feed.weight @ context, state)
        given = state
        if look.combine is not None:
            maps = look.combine.weight @ torch.cat([state, word, context]) + look.combine.bias
            given = torch.stack([maps[2 * i:2 * i + 2].max() for i in range(DIM)])
        assert_close(output.cross_attentions[0][0, 0, step], weights)
        assert_close(output.last_hidden_state[0, step], given)


def luong_score(module: Any, config: c.Luong, state: Tensor, place: Tensor) -> Tensor:
    """The three scores of eq 8."""
    match config.score:
        case c.InnerProduct(kind="dot"):
            return state @ place
        case c.InnerProduct(kind="general"):
            return state @ (module.query.weight.T @ place)
        case c.ConcatScore():
            return module.weigh[0] @ torch.tanh(
                torch.cat([module.query.weight, module.source.weight], dim=1) @ torch.cat([state, place]))


REACHES = [c.GlobalReach(), c.LocalMonotonic(reach=2), c.LocalPredictive(reach=2)]


@torch.no_grad()
@pytest.mark.parametrize("feeding", [True, False], ids=["fed", "not fed"])
@pytest.mark.parametrize("reach", REACHES, ids=[reach.kind for reach in REACHES])
@pytest.mark.parametrize("score", [c.InnerProduct(kind="dot"), c.InnerProduct(kind="general"), c.ConcatScore(width=7)],
                         ids=["dot", "general", "concat"])
def test_luong_is_its_equations(score: Any, reach: Any, feeding: bool) -> None:
    """Scores of eq 8, weights of eq 7, places of eq 9, the Gaussian of eq 10, the vector of eq 5, input feeding."""
    config = c.Luong(score=score, reach=reach, input_feeding=feeding)
    model, x, h, _, output = encoded(c.Recurrent(cell=c.PlainCell(kind="gru"), attention=config))
    part = part_of(model, "decoder")
    cell, look = part.layers.cell(0), part.looking
    state, given = torch.zeros(DIM), torch.zeros(DIM)
    for step, word in enumerate(x):
        sums = cell.input.weight @ word + cell.input.bias
        state = gru(cell, sums + cell.feed.weight @ given if feeding else sums, state)
        centre = float(step)
        if isinstance(reach, c.LocalPredictive):
            maps = look.alignment.centre
            centre = len(h) * float(torch.sigmoid(maps.down.weight[0] @ torch.tanh(maps.up.weight @ state)))
        inside = [place for place in range(len(h)) if isinstance(reach, c.GlobalReach)
                  or abs(place - centre) <= reach.reach]
        weights = torch.zeros(len(h))
        if inside:
            scores = [math.exp(luong_score(look.alignment.score, config, state, h[place])) for place in inside]
            for place, one in zip(inside, scores, strict=True):
                gauss = math.exp(-(place - centre) ** 2 / (2 * (reach.reach / 2) ** 2)) if isinstance(
                    reach, c.LocalPredictive) else 1.0
                weights[place] = one / sum(scores) * gauss
        context = (weights[:, None] * h).sum(0)
        given = torch.tanh(look.combine.weight @ torch.cat([context, state]))
        assert_close(output.cross_attentions[0][0, 0, step], weights)
        assert_close(output.last_hidden_state[0, step], given)


def test_local_attention_counts_words_and_not_padding() -> None:
    """A source padded on its left, and one packed behind another, are looked at as they are alone."""
    model = scrambled(pair(c.Recurrent(cell=c.PlainCell(kind="gru"),
                                       attention=c.Luong(reach=c.LocalMonotonic(reach=1)))))
    source, target = torch.arange(1, 6)[None], torch.arange(7, 11)[None]
    alone = model(source, decoder_input_ids=target).last_hidden_state
    padded = model(torch.cat([torch.zeros(1, 3, dtype=torch.long), source], 1), torch.tensor([[0] * 3 + [1] * 5]),
                   decoder_input_ids=target).last_hidden_state
    packed = model(torch.cat([source, source], 1), documents=torch.tensor([[0] * 5 + [1] * 5]),
                   decoder_input_ids=torch.cat([target, target], 1),
                   decoder_documents=torch.tensor([[0] * 4 + [1] * 4])).last_hidden_state
    assert_close(padded, alone)
    assert_close(packed, torch.cat([alone, alone], 1))


LOOKS = {"thought": None, "bahdanau": c.Bahdanau(), "luong": c.Luong(), "local": c.Luong(reach=c.LocalPredictive())}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKS)
def test_greedy_decoding_is_an_argmax_loop(name: str) -> None:
    """With a cache of states, the ids are those of whole passes over all that was written; beams find no less likely
    a text, and samples are those of their seed."""
    model = scrambled(pair(c.Recurrent(cell=c.LSTM(), layers=2, attention=LOOKS[name],
                                       start=c.InitialState(kind="final"))))
    source, mask = torch.randint(3, VOCAB, (3, 7), generator=torch.Generator().manual_seed(1)), right_mask(LENGTHS)
    ids = torch.ones(3, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(6):
            logits = model(source, mask, decoder_input_ids=ids).logits
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    options: dict[str, Any] = {"max_new_tokens": 6, "bos_token_id": 1, "eos_token_id": None}
    assert torch.equal(saucier.generate(model, source, mask, **options), ids)
    beams = saucier.generate(model, source, mask, num_beams=5, **options)
    assert (log_likelihood(model, source, mask, beams) >= log_likelihood(model, source, mask, ids) - 1e-5).all()
    drawn = [saucier.generate(model, source, mask, do_sample=True, seed=seed, **options) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("name", LOOKS)
def test_a_model_in_bfloat16_writes(name: str) -> None:
    """Also where its matrices are packed for decoding; the scores are near those of float32."""
    model = scrambled(pair(c.Recurrent(cell=c.PlainCell(kind="gru"), layers=2, attention=LOOKS[name],
                                       start=c.InitialState(kind="last_layer"))))
    source = torch.randint(3, VOCAB, (2, 7), generator=torch.Generator().manual_seed(1))
    exact = model(source, decoder_input_ids=source).logits
    model.bfloat16()
    assert_close(model(source, decoder_input_ids=source).logits.float(), exact, 0.25)
    written = saucier.generate(model, source, num_beams=2, max_new_tokens=4, bos_token_id=1, eos_token_id=None)
    assert written.shape == (2, 5)


def log_likelihood(model: Transformer, source: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
    """Return the log probability of each written row."""
    with torch.no_grad():
        scores = model(source, mask, decoder_input_ids=ids[:, :-1]).logits.log_softmax(-1)
    return scores.gather(-1, ids[:, 1:, None]).sum((1, 2))


def writer(**options: Any) -> c.Recurrent:
    """Return a recurrent sublayer."""
    return c.Recurrent(cell=c.LSTM(), **options)


REFUSED = {
    "backwards": (alone(writer(direction=c.Direction(kind="both")), writes=True),
                  "decoder.blocks.0.recurrent.direction"),
    "no encoder": (alone(writer(attention=c.Luong()), writes=True), "decoder.blocks.0.recurrent.attention"),
    "start without encoder": (alone(writer(start=c.InitialState(kind="mean")), writes=True),
                              "decoder.blocks.0.recurrent.start"),
    "layers differ": (pair(writer(layers=2, start=c.InitialState(kind="final")), writer()), "decoder.layers"),
    "cells differ": (pair(writer(start=c.InitialState(kind="final")), c.Recurrent(cell=c.PlainCell(kind="gru"))),
                     "decoder.layers"),
    "odd width": (alone(writer(direction=c.Direction(kind="both")), writes=False).model_copy(update={"dim": 25}),
                  "encoder.blocks.0.recurrent.direction"),
    "blind": (pair(writer()), "decoder"),
    "second stream": (alone(writer(), writes=False).model_copy(update={
        "encoder": stack(writer()).model_copy(update={"queries": c.QueryVector()})}), "encoder.layers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(name: str) -> None:
    """With the path, and a remedy."""
    config, where = REFUSED[name]
    with pytest.raises(InputError) as caught:
        c.check(config)
    assert caught.value.where == where
    assert caught.value.remedy


def test_starts_need_the_encoders_states() -> None:
    """Packed rows, and an encoder's output without its states, are refused with the way out."""
    model = scrambled(pair(writer(start=c.InitialState(kind="final"))))
    ids, documents = torch.ones(1, 4, dtype=torch.long), torch.tensor([[0, 0, 1, 1]])
    with pytest.raises(InputError, match=r"documents: .*one text a row"):
        model(ids, documents=documents, decoder_input_ids=ids, decoder_documents=documents)
    whole = model(ids, decoder_input_ids=ids)
    with pytest.raises(InputError, match=r"encoder_states: .*give input_ids"):
        model(encoder_output=whole.encoder_last_hidden_state, decoder_input_ids=ids)
    again = model(encoder_output=whole.encoder_last_hidden_state, encoder_states=whole.encoder_states,
                  decoder_input_ids=ids)
    assert torch.equal(again.logits, whole.logits)


def test_recurrent_models_are_not_compiled() -> None:
    """The compiled step knows keys and values only."""
    model = scrambled(alone(writer(), writes=True))
    with pytest.raises(InputError, match="layers that keep states, which are not compiled"):
        saucier.generate(model, torch.ones(1, 2, dtype=torch.long), max_new_tokens=2, compile=True)


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/recurrent.md shows what its example prints."""
    page = (Path(__file__).parents[3] / "docs" / "recurrent.md").read_text(encoding="utf-8")
    exec(compile(page.split("```python\n")[1].split("```")[0], "recurrent.md", "exec"), {})  # noqa: S102 (our own page)
    assert capsys.readouterr().out.strip() in page

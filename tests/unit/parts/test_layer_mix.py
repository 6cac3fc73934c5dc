"""The mix of layers against its equation, and ELMo's model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.laws.zoo import family, scrambled
from tests.tolerances import assert_close

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.generation import Native
from saucier.model import build

IDS = torch.randint(0, 37, (2, 6), generator=torch.Generator().manual_seed(1))


def mixed(body: c.Transformer, **options: Any) -> c.Transformer:
    """Return a body with a mix under a head for tokens."""
    return body.model_copy(update={"mix": c.LayerMix(**options), "head": c.TokenHead(classes=3)})


@pytest.mark.parametrize("name", ["elmo", "bert"])
def test_a_mix_is_its_equation(name: str) -> None:
    """γ Σ s_j h_j over embedding and layers, s the softmax of the weights; the layers stay."""
    model = scrambled(mixed(family(name)))
    output = model(IDS, output_hidden_states=True)
    s = torch.exp(model.mix.weights) / torch.exp(model.mix.weights).sum()
    expected = model.mix.scale * sum(s[j] * h for j, h in enumerate(output.hidden_states))
    assert_close(output.last_hidden_state, expected)
    assert_close(output.logits, model.head(expected))
    plain = scrambled(family(name))
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if key in plain.state_dict()},
                          strict=False)
    assert_close(plain(IDS).last_hidden_state, output.hidden_states[-1])


def test_a_new_mix_is_the_mean(tmp_path: Any) -> None:
    """Weights begin at zero and the scale at one; what is saved comes back."""
    model = build(mixed(family("elmo"), scale=2.0)).eval()
    output = model(IDS, output_hidden_states=True)
    assert_close(output.last_hidden_state, 2 * torch.stack(output.hidden_states).mean(0))
    model.save(tmp_path / "model")
    again = saucier.load(tmp_path / "model", dtype="float32")
    assert torch.equal(again(IDS).logits, output.logits)


def test_a_norm_comes_before_the_weights() -> None:
    """Every layer's vectors are normed, and padding moves nothing."""
    model = scrambled(mixed(family("elmo"), norm=c.PlainLayerNorm()))
    output = model(IDS, output_hidden_states=True)
    normed = torch.nn.functional.layer_norm(torch.stack(output.hidden_states), (24,))
    shares = model.mix.scale * model.mix.weights.softmax(0)
    assert_close(output.last_hidden_state, (shares[:, None, None, None] * normed).sum(0))
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])
    assert_close(model(IDS, mask).logits[1, :3], model(IDS[1:, :3]).logits[0])


def test_a_decoder_reads_the_mix_of_its_encoder() -> None:
    """What is read is γ Σ s_j h_j over the encoder's layers, also without padding, by the kernels, and given back."""
    body = family("transformer").model_copy(update={"mix": c.LayerMix(norm=c.LayerNorm())})
    model = scrambled(body)
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])
    output = model(IDS, mask, decoder_input_ids=IDS, output_hidden_states=True)
    layers = torch.stack(output.encoder_hidden_states)
    shares = model.mix.scale * model.mix.weights.softmax(0)
    expected = (shares[:, None, None, None] * model.mix.norm(layers)).sum(0)
    assert_close(output.encoder_last_hidden_state * mask[..., None], expected * mask[..., None])
    given = model(None, mask, encoder_output=expected, decoder_input_ids=IDS)
    assert_close(given.logits, output.logits)
    assert model(IDS, mask, decoder_input_ids=IDS).encoder_hidden_states is None
    plain = scrambled(family("transformer"))
    plain.load_state_dict(model.state_dict(), strict=False)
    assert (plain(IDS, mask, decoder_input_ids=IDS).logits - output.logits).abs().max() > 0.01
    own, kernels = (saucier.generate(model, IDS, mask, max_new_tokens=8, decoder_start_token_id=1, eos_token_id=[],
                                     engine=engine) for engine in (None, Native()))
    assert torch.equal(own, kernels)
    assert c.anatomy(body).parameters == sum(one.numel() for one in model.parameters())


def test_both_directions_read_the_same_vectors_and_share_the_output() -> None:
    """Eq 13–15: each half's logits by the same matrix; a token's own vector twice at the bottom."""
    model = scrambled(family("elmo"))
    output = model(IDS, output_hidden_states=True)
    embedded, states = output.hidden_states[0], output.last_hidden_state
    assert torch.equal(embedded[..., :12], embedded[..., 12:])
    head = model.head.language
    assert_close(output.logits, states[..., :12] @ head.weight.T + head.bias)
    assert_close(output.backward_logits, states[..., 12:] @ head.weight.T + head.bias)


def test_the_published_size() -> None:
    """Two directions of two layers of 4096 cells with projections to 512: the paper's 93.6 million less its characters.

    Those of the release: 262 characters of 16 values, 2048 filters of width 1 to 7, two highway layers, a map to 512.
    """
    filters = {1: 32, 2: 32, 3: 64, 4: 128, 5: 256, 6: 512, 7: 1024}
    convolutions = sum(16 * width * count + count for width, count in filters.items())
    characters = 262 * 16 + convolutions + 2 * (2048 * 4096 + 4096) + 2048 * 512 + 512
    encoder = next(node for node in c.anatomy(saucier.recipe("elmo").model).children if node.name == "encoder")
    assert encoder.parameters == 75_563_008
    assert encoder.parameters + characters == 93_600_864


REFUSED = {"attention": family("bert").model_copy(update={"head": c.BidirectionalHead()}),
           "a norm": family("elmo").model_copy(update={"encoder": family("elmo").encoder.model_copy(
               update={"final_norm": c.LayerNorm()})}),
           "two streams": family("xlnet").model_copy(update={"mix": c.LayerMix()})}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_see_its_answer_is_refused(name: str) -> None:
    """Norms and attention let the halves meet; a mix is of one plain stack."""
    with pytest.raises(InputError) as caught:
        c.check(REFUSED[name])
    assert caught.value.where == ("mix" if name == "two streams" else "head")
    assert caught.value.remedy

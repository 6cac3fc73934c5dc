"""An encoder that feeds an encoder: its vectors stand where token vectors stood, and all else stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.tolerances import assert_close

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.families.bart import with_source_encoder
from saucier.model import Transformer, build
from saucier.parts.inputs import Side

BART = FAMILIES["bart"](dim=24, layers=2, heads=4, vocab=40, length=16)
FED = with_source_encoder(BART, 1, vocab=55)


def fed_model() -> Transformer:
    """Return a small model with every weight moved."""
    model = build(FED, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def ids(*shape: int, vocab: int = 55) -> torch.Tensor:
    """Return random ids of the new vocabulary."""
    return torch.randint(4, vocab, shape, generator=torch.Generator().manual_seed(0))


def test_the_encoder_reads_its_vectors() -> None:
    """The body is BART as it was: given the new encoder's vectors it gives the same, and so does BART alone."""
    model, source, target = fed_model(), ids(2, 6), ids(2, 5, vocab=40)
    assert model.source is not None
    side = Side(source)
    vectors = model.run(model.source.stack, model.source.embed, side, wanted_nothing()).unpacked()
    whole = model(source, decoder_input_ids=target)
    assert_close(whole.logits, model(inputs_embeds=vectors, decoder_input_ids=target).logits)
    alone = build(BART, seed=3).eval()
    alone.load_state_dict({name: value for name, value in model.state_dict().items() if not name.startswith("source.")})
    assert_close(whole.logits, alone(inputs_embeds=vectors, decoder_input_ids=target).logits)


def wanted_nothing() -> object:
    """Return what a pass is asked for beside its result: nothing."""
    from saucier.model import PassOptions

    return PassOptions()


def test_padding_moves_nothing() -> None:
    model, source, target = fed_model(), ids(2, 7), ids(2, 5, vocab=40)
    mask = torch.tensor([[1] * 7, [1, 1, 1, 1, 0, 0, 0]])
    padded = model(source, mask, decoder_input_ids=target).logits
    assert_close(padded[1:], model(source[1:, :4], decoder_input_ids=target[1:]).logits)


@pytest.mark.slow
def test_counts_and_disk(tmp_path: Path) -> None:
    """Counted as built; saved in our own layout, since no published one holds it; and written with a cache."""
    model = fed_model()
    assert c.parameters(FED) == sum(one.numel() for one in model.parameters())
    assert model.save(tmp_path / "model") == "saucier"
    again = saucier.load(tmp_path / "model", dtype="float32", device="cpu")
    options = {"max_new_tokens": 6, "decoder_start_token_id": 2}
    written = saucier.generate(model, ids(3, 6), **options)
    assert saucier.generate(again, ids(3, 6), **options).equal(written)
    target = written[:, :-1]
    assert model(ids(3, 6), decoder_input_ids=target).logits.argmax(-1).equal(written[:, 1:])


def test_what_cannot_be_fed_is_refused() -> None:
    with pytest.raises(InputError, match="encoder-decoder with equal blocks"):
        with_source_encoder(FAMILIES["bert"](dim=24, layers=1, heads=4, vocab=40, length=16), 1)
    with pytest.raises(InputError, match="only the encoder of an encoder-decoder"):
        c.check(FAMILIES["bert"](dim=24, layers=1, heads=4, vocab=40, length=16).model_copy(
            update={"source": FED.source}))

"""What `forward`, `generate` and `embed` refuse: one line that names what does not fit, instead of wrong numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import saucier
from saucier import config as c
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import rewrite
from saucier.families import bert, gpt2, longformer, t5, xlnet
from saucier.model import Transformer
from saucier.parts.prefix import SoftPrompt, TargetPrompt

IDS = torch.arange(10).view(2, 5) + 5


@pytest.fixture(scope="module")
def models() -> dict[str, Transformer]:
    """One model of each shape of stack."""
    size: dict[str, Any] = {"heads": 2, "vocab": 50}
    return {"encoder": saucier.build(bert(16, 1, length=16, **size)).eval(),
            "decoder": saucier.build(gpt2(16, 1, length=16, **size)).eval(),
            "pair": saucier.build(t5(16, 1, **size)).eval(),
            "streams": saucier.build(xlnet(16, 1, **size)).eval(),
            "global": saucier.build(longformer(16, 1, length=16, window=4, **size)).eval()}


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.long)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 7), (3, 5), (5,), (1, 5), (2, 5, 1)])
def test_a_mask_of_another_shape_is_refused(models: dict[str, Transformer], kind: str, shape: tuple[int, ...]) -> None:
    more = {"decoder_input_ids": IDS} if kind == "pair" else {}
    with pytest.raises(saucier.InputError, match=rf"^attention_mask: shape \[{', '.join(map(str, shape))}\] does not "
                       r"go with input_ids of \[2, 5\]; give \[2, 5\]$"):
        models[kind](IDS, ones(*shape), **more)


@pytest.mark.parametrize(("kind", "name", "shape", "wanted"), [
    ("encoder", "token_type_ids", (1, 5), "[2, 5]"),
    ("encoder", "token_type_ids", (2, 4), "[2, 5]"),
    ("encoder", "position_ids", (2, 4), "[2, 5]"),
    ("encoder", "places", (3, 5), "[2, 5]"),
    ("decoder", "documents", (2, 6), "[2, 5]"),
    ("decoder", "inputs_embeds", (2, 6, 16), "[2, 5, ...]"),
    ("encoder", "lengths", (3,), "[2]"),
    ("encoder", "lengths", (2, 1), "[2]"),
    ("decoder", "prefix_length", (3,), "[2]"),
    ("encoder", "input_mask", (2, 4), "[2, 5]"),
    ("global", "global_attention_mask", (2, 4), "[2, 5]"),
    ("global", "global_attention_mask", (3, 5), "[2, 5]"),
    ("streams", "perm_mask", (2, 5), "[2, 5, 5]"),
    ("streams", "target_mapping", (2, 1, 4), "[2, ..., 5]"),
])
def test_every_input_has_its_shape(models: dict[str, Transformer], kind: str, name: str, shape: tuple[int, ...],
                                   wanted: str) -> None:
    value = torch.ones(shape) if name in ("inputs_embeds", "target_mapping") else ones(*shape)
    with pytest.raises(saucier.InputError) as told:
        models[kind](IDS, **{name: value})
    assert str(told.value) == f"{name}: shape {list(shape)} does not go with input_ids of [2, 5]; give {wanted}"


@pytest.mark.parametrize(("name", "value"), [
    ("decoder_attention_mask", ones(2, 4)), ("decoder_attention_mask", ones(1, 3)),
    ("decoder_position_ids", ones(2, 4)), ("decoder_documents", ones(3, 3))])
def test_the_side_that_writes_has_shapes_of_its_own(models: dict[str, Transformer], name: str, value: Tensor) -> None:
    with pytest.raises(saucier.InputError, match=rf"^{name}: shape .* does not go with decoder_input_ids of \[2, 3\]"):
        models["pair"](IDS, decoder_input_ids=IDS[:, :3], **{name: value})


def test_both_sides_have_as_many_rows(models: dict[str, Transformer]) -> None:
    with pytest.raises(saucier.InputError, match=r"^decoder_input_ids: 3 rows .* input_ids of \[2, 5\]"):
        models["pair"](IDS, decoder_input_ids=ones(3, 4))
    encoded = models["pair"](IDS, decoder_input_ids=IDS).encoder_last_hidden_state
    with pytest.raises(saucier.InputError, match=r"^attention_mask: shape \[2, 4\] .*encoder_output of \[2, 5, 16\]"):
        models["pair"](None, ones(2, 4), encoder_output=encoded, decoder_input_ids=IDS)


@pytest.mark.parametrize(("ids", "said"), [
    (IDS + 40, "token 54 is outside the vocabulary of 50"),
    (IDS - 6, "token -1 is outside the vocabulary of 50"),
    (IDS[None, None], r"ids of shape \[1, 1, 2, 5\] and type int64; give int64 ids \[batch, length\]"),
    (IDS[0], r"ids of shape \[5\] and type int64; give int64 ids \[batch, length\]"),
    (IDS.float(), r"ids of shape \[2, 5\] and type float32; give int64 ids"),
    (IDS > 7, r"ids of shape \[2, 5\] and type bool"),
    ("some text", "is str, and no tensor"),
    ([[1, 2]], "is list, and no tensor"),
])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_ids_that_are_none_are_refused(models: dict[str, Transformer], kind: str, ids: Any, said: str) -> None:
    more = {"decoder_input_ids": IDS} if kind == "pair" else {}
    with pytest.raises(saucier.InputError, match=f"^input_ids: {said}"):
        models[kind](ids, **more)
    if kind == "pair":
        with pytest.raises(saucier.InputError, match=f"^decoder_input_ids: {said}"):
            models[kind](IDS, decoder_input_ids=ids)
    if kind != "encoder":
        with pytest.raises(saucier.InputError, match=f"^input_ids: ({said}|the prompt has [14] dim|ids of shape)"):
            saucier.generate(models[kind], ids, max_new_tokens=1, decoder_start_token_id=0)


def test_segments_beyond_the_table_are_refused(models: dict[str, Transformer]) -> None:
    with pytest.raises(saucier.InputError, match=r"^token_type_ids: segment 2 is outside the table of 2"):
        models["encoder"](IDS, token_type_ids=ones(2, 5) * 2)
    with pytest.raises(saucier.InputError, match=r"^token_type_ids: of type float32; give int64 numbers"):
        models["encoder"](IDS, token_type_ids=torch.ones(2, 5))


def test_a_mask_that_is_no_tensor_is_refused(models: dict[str, Transformer]) -> None:
    with pytest.raises(saucier.InputError, match=r"^attention_mask: is list, and no tensor"):
        models["encoder"](IDS, [[1] * 5] * 2)
    with pytest.raises(saucier.InputError, match=r"^attention_mask: is list, and no tensor"):
        saucier.generate(models["decoder"], IDS, [[1] * 5] * 2)


def test_prompts_of_other_lengths_on_both_sides_leave_masks_as_they_are() -> None:
    """A mask is of the text: what is learned before it is always seen, in a step of decoding too."""
    model = saucier.build(t5(16, 1, heads=2, vocab=50)).eval()
    rewrite(model, by=a.Prompt(length=3))
    target, source = SoftPrompt(2, 16), SoftPrompt(4, 16)
    for one in (target, source):
        torch.nn.init.normal_(one.vectors)
    model.front = TargetPrompt(target, source)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    whole = model(IDS, mask, decoder_input_ids=IDS[:, :3], decoder_attention_mask=ones(2, 3))
    encoded = whole.encoder_last_hidden_state
    again = model(None, mask, encoder_output=encoded, decoder_input_ids=IDS[:, :3])
    assert encoded.shape[1] == 4 + 5 and torch.allclose(again.logits, whole.logits, atol=1e-5)
    assert saucier.generate(model, IDS, mask, max_new_tokens=3, decoder_start_token_id=0).shape[0] == 2


def test_what_fits_still_runs(models: dict[str, Transformer]) -> None:
    """Positions for all rows at once, int32 ids, masks of any type, a source's rows with their own length."""
    encoder = models["encoder"]
    wanted = encoder(IDS).logits
    for more in ({"position_ids": torch.arange(5)[None]}, {"attention_mask": torch.ones(2, 5)},
                 {"attention_mask": torch.ones(2, 5, dtype=torch.bool)}):
        assert torch.equal(encoder(IDS, **more).logits, wanted)
    assert torch.equal(encoder(IDS.int()).logits, wanted)
    assert models["pair"](IDS, ones(2, 5), decoder_input_ids=IDS[:, :3]).logits.shape == (2, 3, 50)


@pytest.mark.parametrize("texts", [[None], ["a", 3], "a text", None, 5])
def test_embed_takes_texts(texts: Any) -> None:
    tree = bert(16, 1, heads=2, vocab=50, length=16)
    tree = tree.model_copy(update={"head": c.EmbeddingHead(pooling=(c.Pooling(kind="mean"),)), "pooler": None})
    with pytest.raises(saucier.InputError, match=r"^texts: "):
        saucier.embed(saucier.build(tree), texts, tokenizer=object())  # type: ignore[arg-type]

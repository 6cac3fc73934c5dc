"""What `forward`, `generate` and `embed` refuse: one line that names what does not fit, instead of wrong numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

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


@pytest.mark.parametrize("value", [2, -1, 0.5, -1e9, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_a_mask_holds_zeros_and_ones(models: dict[str, Transformer], kind: str, value: float) -> None:
    """An additive mask (0 and -1e9), as some libraries want it, would be read the other way round."""
    mask = torch.ones(2, 5)
    mask[1, 2] = value
    more = {"decoder_input_ids": IDS} if kind == "pair" else {}
    said = rf"^attention_mask: holds {value:g}; give 1 for a real token, 0 for another$".replace("+", ".")
    with pytest.raises(saucier.InputError, match=said):
        models[kind](IDS, mask, **more)
    if kind != "encoder":
        with pytest.raises(saucier.InputError, match=said):
            saucier.generate(models[kind], IDS, mask, max_new_tokens=1, decoder_start_token_id=0)


@pytest.mark.parametrize(("kind", "name", "value", "said"), [
    ("encoder", "attention_mask", torch.ones(2, 5, dtype=torch.complex64), "of type complex64"),
    ("encoder", "position_ids", torch.ones(2, 5), "of type float32; give int64 numbers"),
    ("decoder", "documents", torch.full((2, 5), float("nan")), "of type float32"),
    ("decoder", "prefix_length", torch.tensor([1, -3]), "row with -3 of 5 tokens"),
    ("encoder", "lengths", torch.tensor([1, 6]), "row with 6 of 5 tokens"),
    ("encoder", "input_mask", IDS, "holds 5; give 1"),
    ("streams", "perm_mask", torch.full((2, 5, 5), 2.0), "holds 2; give 1"),
    ("encoder", "labels", [1, 2], "is list, and no tensor"),
    ("encoder", "num_hashes", 0, "is 0; give at least 1"),
    ("encoder", "num_hashes", 1.5, "is float 1.5; give int"),
    ("encoder", "use_mems", "yes", "is str 'yes'; give bool"),
    ("decoder", "cache", 3, "is int 3; give one that model.new_cache made"),
    ("decoder", "last_only", [1], r"is list \[1\]; give True or False"),
    ("decoder", "output_attentions", "x", "is str 'x'; give True or False"),
    ("decoder", "decoder_input_ids", IDS, "this model has no encoder and decoder; leave it out"),
    ("decoder", "encoder_hidden_states", torch.ones(2, 5, 16), "this model has no cross-attention; leave it out"),
    ("streams", "mems", torch.ones(2, 5), "is Tensor, and not what a pass gives"),
    ("pair", "encoder_output", torch.ones(2, 5, 15), r"vectors of shape \[2, 5, 15\]; give \[batch, length, 16\]"),
    ("pair", "encoder_output", torch.full((2, 5, 16), float("nan")), "holds nan; give finite numbers"),
    ("pair", "encoder_states", "x", "is str, and not what a pass gives"),
])
def test_every_input_has_its_kind(models: dict[str, Transformer], kind: str, name: str, value: Any, said: str) -> None:
    more = {"decoder_input_ids": IDS} if kind == "pair" else {}
    with pytest.raises(saucier.InputError, match=f"^{name}: {said}") as told:
        models[kind](IDS, **{**more, name: value})
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("value", "said"), [
    (torch.ones(2, 5, 15), r"vectors of shape \[2, 5, 15\]; give \[batch, length, 16\]"),
    (torch.ones(2, 5), r"of shape \[2, 5\]"), (torch.ones(2, 0, 16), r"of shape \[2, 0, 16\]"),
    (torch.full((2, 5, 16), float("inf")), "holds inf; give finite numbers"),
    (IDS[..., None] * ones(16), "of type int64"),
])
def test_vectors_in_place_of_ids(models: dict[str, Transformer], value: Tensor, said: str) -> None:
    with pytest.raises(saucier.InputError, match=f"^inputs_embeds: {said}"):
        models["encoder"](inputs_embeds=value)


@pytest.mark.parametrize("shape", [(2, 0), (0, 5)])
def test_a_batch_without_tokens_is_refused(models: dict[str, Transformer], shape: tuple[int, int]) -> None:
    with pytest.raises(saucier.InputError, match=r"^input_ids: ids of shape"):
        models["encoder"](torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize(("options", "said"), [
    ({"max_new_tokens": -1}, "max_new_tokens: "), ({"temperature": "x"}, "temperature: "),
    ({"num_beams": 0}, "num_beams: "), ({"num_beams": 2**31}, "num_beams: "), ({"temperature": 1e-40}, "temperature: "),
    ({"max_new_tokens": 2**40}, "max_new_tokens: "), ({"seed": 1.5}, "seed: "),
    ({"eos_token_id": 50}, "eos_token_id: token 50 is outside the vocabulary of 50"),
    ({"listener": 3}, "listener: is int 3; give a function"), ({"compile": 3}, "compile: is int 3"),
    ({"tokenizer": 3}, "tokenizer: is int 3; give one"),
    ({"prefix_length": ones(2)}, "prefix_length: the model knows no"),
    ({"global_attention_mask": 3}, "global_attention_mask: "), ({"modell": 1}, "modell: unknown option of generate")])
def test_options_of_generate(models: dict[str, Transformer], options: dict[str, Any], said: str) -> None:
    with pytest.raises(saucier.InputError, match=f"^{said}") as told:
        saucier.generate(models["decoder"], IDS, **options)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("model", [None, "gpt2", 3])
def test_generate_takes_a_model(model: Any) -> None:
    with pytest.raises(saucier.InputError, match=r"^model: is .*; give one that saucier.load or saucier.build made"):
        saucier.generate(model, IDS)


@pytest.mark.nightly
def test_a_compiled_model_checks_the_shape_of_its_mask(models: dict[str, Transformer]) -> None:
    model, mask = models["encoder"], ones(2, 5)
    compiled = torch.compile(model, backend="eager")
    assert torch.allclose(compiled(IDS, mask).last_hidden_state, model(IDS, mask).last_hidden_state, atol=1e-5)
    with pytest.raises(saucier.InputError, match=r"^attention_mask: shape \[2, 3\]"):
        compiled(IDS, ones(2, 3))


def test_values_are_not_looked_at_where_a_pass_is_traced(models: dict[str, Transformer]) -> None:
    """A fake tensor has no values, and a traced pass must not depend on those of its example."""
    model = models["encoder"]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(IDS)
        assert model(fake).last_hidden_state.shape == (2, 5, 16)
        with pytest.raises(saucier.InputError, match=r"^attention_mask: shape"):
            model(fake, mode.from_tensor(ones(2, 3)))
    graph = make_fx(lambda ids: model(ids).last_hidden_state)(IDS)
    assert torch.equal(graph(IDS + 3), model(IDS + 3).last_hidden_state)
    with pytest.raises(saucier.InputError, match=r"^input_ids: token 54"):
        model(IDS + 40)

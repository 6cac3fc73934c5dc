"""Folders of GPTQ, AWQ and compressed-tensors, which the tests pack themselves: the same integers and scales after
loading, what is refused, and what we write as the package compressed-tensors reads it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.laws.zoo import family
from tests.unit.quantization.packed_folders import (
    Array,
    Tensors,
    assert_holds,
    awq,
    compressed,
    edit,
    gptq,
    shuffle_inputs,
    small,
    write_folder,
)

import saucier
from saucier import InputError
from saucier.adaptation import tuning as a
from saucier.adaptation.quantization.formats import read_codes
from saucier.adaptation.quantization.maps import QuantizedLanguageHead, QuantizedLinear, held_bytes, list_matrices
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import (
    DynamicInt8,
    IndexedIntegers,
    Integers,
    NormalFloat,
    Quantization,
    Symmetric,
    ZeroPoint,
)
from saucier.adaptation.quantization.storage import dequantize_model
from saucier.adaptation.rewrite import rewrite
from saucier.families.gpt2 import gpt2
from saucier.folders.load import open_adapter
from saucier.folders.save import save_adapter
from saucier.model import build

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("shift", [0, 1])
def test_gptq_symmetric(bits: int, shift: int, tmp_path: Path) -> None:
    """In both formats of zero points, whatever the config says of them: the values decide."""
    group = 32  # a whole row of most maps
    held = gptq(tmp_path / "m", bits=bits, group=group, shift=shift, model=small(kv_heads=4),  # 3 bits: 32 outputs each
                said={"checkpoint_format": ("gptq_v2", "gptq")[shift]})
    model = saucier.load(tmp_path / "m", dtype="float32")
    assert_holds(model, held)
    assert {one.method for one in list_matrices(model).values()} == {("gptq_v2", "gptq")[shift]}


@pytest.mark.parametrize("shift", [0, 1])
def test_gptq_zero_points_by_their_values(shift: int, tmp_path: Path) -> None:
    """The config says the other format, and it is told so."""
    held = gptq(tmp_path / "m", symmetric=False, shift=shift, said={"checkpoint_format": ("gptq", "gptq_v2")[shift]})
    with pytest.warns(UserWarning, match="checkpoint_format says"):
        assert_holds(saucier.load(tmp_path / "m", dtype="float32"), held)


def test_gptq_whole_rows_and_biases_of_zeros(tmp_path: Path) -> None:
    held = gptq(tmp_path / "m", group=64, said={"group_size": -1})
    edit(tmp_path / "m", lambda some: some.update({"model.layers.0.mlp.down_proj.bias": torch.zeros(32)}))
    model = saucier.load(tmp_path / "m", dtype="float32")
    assert_holds(model, held)
    assert {one.store for one in list_matrices(model).values()} <= {
        Integers(bits=4, scales="float16"), Integers(bits=4, scales="float16", range=ZeroPoint())}


def test_gptq_greedy_ids_of_the_float_model(tmp_path: Path) -> None:
    """The same as those of an ordinary model with the numbers that the test computed."""
    held = gptq(tmp_path / "m", symmetric=False, shift=1)
    small().save(tmp_path / "float", layout="llama")
    edit(tmp_path / "float", lambda some: some.update(
        {f"{name}.weight": torch.from_numpy(one) for name, one in held.items()}))
    few, plain = (saucier.load(tmp_path / name, dtype="float32") for name in ("m", "float"))
    assert torch.equal(few(IDS).logits, plain(IDS).logits)
    made = [saucier.generate(one, IDS, max_new_tokens=12, do_sample=False) for one in (few, plain)]
    assert torch.equal(*made) and made[0].shape == (2, 17)
    assert held_bytes(few) < held_bytes(plain) / 2
    again = dequantize_model(saucier.load(tmp_path / "m", dtype="float32"))
    again.save(tmp_path / "again", layout="llama")
    assert all(np.array_equal(load_file(tmp_path / "again/model.safetensors")[f"{name}.weight"].numpy(), one)
               for name, one in held.items())


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("write", [gptq, compressed])
def test_groups_out_of_order_are_read_exactly(write: Callable[..., Any], symmetric: bool, tmp_path: Path) -> None:
    """`desc_act`: each input names its group; codes, scales and index are kept, and so after saving in our layout."""
    held = shuffle_inputs(tmp_path / "m", write(tmp_path / "m", symmetric=symmetric))
    model = saucier.load(tmp_path / "m", dtype="float32")
    assert_holds(model, held)
    forms = {type(one.store) for one in list_matrices(model).values()}
    assert forms == {IndexedIntegers} and held_bytes(model) < 0.6 * held_bytes(small())
    small().save(tmp_path / "float", layout="llama")
    edit(tmp_path / "float", lambda some: some.update(
        {f"{name}.weight": torch.from_numpy(one.copy()) for name, one in held.items()}))
    assert torch.equal(model(IDS).logits, saucier.load(tmp_path / "float", dtype="float32")(IDS).logits)
    model.save(tmp_path / "own")
    again = saucier.load(tmp_path / "own", dtype="float32")
    assert_holds(again, held)
    told = {one.format for one in saucier.show(tmp_path / "own").stored}
    assert all(any(one.startswith(f"int4, {count} groups a row by an index, ") for one in told) for count in (2, 4))
    with pytest.raises(InputError, match=r"is in indexed_integer, which a published layout .*use kind: integer"):
        again.save(tmp_path / "no", layout="llama")
    edit(tmp_path / "own", lambda some: some["decoder.blocks.0.feed_forward.inner.down.index"][:1].fill_(4))
    with pytest.raises(InputError, match=r"index names groups that are not in 0 … 3"):
        saucier.load(tmp_path / "own")


def test_maps_of_one_matrix_share_the_order_of_their_groups(tmp_path: Path) -> None:
    gptq(tmp_path / "m")
    name = "model.layers.0.self_attn.k_proj.g_idx"
    edit(tmp_path / "m", lambda some: some.update({name: some[name].flip(0)}))
    with pytest.raises(InputError, match="differ in bits, groups, their order or scales, and here they are one map"):
        saucier.load(tmp_path / "m")


def test_gptq_of_turned_maps(tmp_path: Path) -> None:
    """GPT-2's matrices are published turned; GPTQ stores them as all others."""
    held = gptq(tmp_path / "m", model=build(gpt2(dim=32, layers=2, heads=4, vocab=40, length=16), seed=3), turned=True)
    model = saucier.load(tmp_path / "m", dtype="float32")
    maps = list_matrices(model)
    assert len(maps) == len(held) == 8
    for index in range(2):
        for ours, theirs in {"attention.inner.qkv": "attn.c_attn", "feed_forward.inner.down": "mlp.c_proj"}.items():
            assert np.array_equal(maps[f"decoder.blocks.{index}.{ours}"].weight.numpy(),
                                  held[f"transformer.h.{index}.{theirs}"])


def test_gptq_of_the_output_layer(tmp_path: Path) -> None:
    held = gptq(tmp_path / "m", also=("lm_head.weight",))
    model = saucier.load(tmp_path / "m", dtype="float32")
    assert isinstance(model.head, QuantizedLanguageHead)
    assert np.array_equal(model.head.weight.numpy(), held["lm_head"])


def test_awq(tmp_path: Path) -> None:
    held = awq(tmp_path / "m")
    model = saucier.load(tmp_path / "m", dtype="float32")
    assert_holds(model, held)
    ranges = [one.store.range for one in list_matrices(model).values() if isinstance(one.store, Integers)]
    assert ranges == [ZeroPoint()] * 8


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_tensors(bits: int, symmetric: bool, tmp_path: Path) -> None:
    held = compressed(tmp_path / "m", bits=bits, symmetric=symmetric)
    assert_holds(saucier.load(tmp_path / "m", dtype="float32"), held)


@pytest.mark.slow
def test_compressed_tensors_int8(tmp_path: Path) -> None:
    """Weights as they are, and a word on inputs that the config would round."""
    said = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
        "input_activations": {"num_bits": 8, "dynamic": True, "strategy": "token"}}}}
    held = write_folder(tmp_path / "m", lambda codes, scales, zeros: {
        "weight": (codes - 128).astype(np.int8), "weight_scale": scales}, said, bits=8, group=64)
    with pytest.warns(UserWarning, match="rounds the inputs of maps"):
        model = saucier.load(tmp_path / "m", dtype="float32")
    assert_holds(model, held)


def test_saved_again_in_our_layout(tmp_path: Path) -> None:
    held = awq(tmp_path / "m")
    model = saucier.load(tmp_path / "m", dtype="float32")
    assert str(model.save(tmp_path / "own")) == "saucier"
    assert_holds(saucier.load(tmp_path / "own", dtype="float32"), held)


LAYOUTS: list[Integers] = [
    Integers(bits=4, group=8), Integers(bits=4, group=8, range=ZeroPoint(), scales="float16"), Integers(bits=8),
    Integers(bits=8, range=ZeroPoint(), scales="bfloat16")]


@pytest.mark.sampled
@pytest.mark.parametrize("form", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", ["llama", "bert", "gpt_neox", "opt"])
def test_written_and_read_bit_for_bit(name: str, form: Integers, tmp_path: Path) -> None:
    """Also where rows change their order (GPT-NeoX), and where maps have biases."""
    model = quantize_model(build(family(name), seed=3), Quantization(format=form, embeddings=None))
    saved = model.save(tmp_path / "m", layout=name)
    assert str(saved) == name
    again = saucier.load(tmp_path / "m", dtype="float32")
    before, after = list_matrices(model), list_matrices(again)
    assert before.keys() == after.keys()
    for key, one in before.items():
        other = after[key]
        assert isinstance(other.store, Integers) and other.store.bits == form.bits
        assert torch.equal(one.weight, other.weight)
        if isinstance(form.range, Symmetric):
            assert all(torch.equal(part, other.parts()[end]) for end, part in one.parts().items())
    assert torch.equal(model(IDS).last_hidden_state, again(IDS).last_hidden_state)


@pytest.mark.parametrize("form", LAYOUTS, ids=str)
def test_what_is_written_by_the_definition(form: Integers, tmp_path: Path) -> None:
    """Unpacked bit by bit by the test: signed codes less signed zero points, times scales."""
    model = quantize_model(small(), Quantization(format=form, embeddings=None))
    model.save(tmp_path / "m", layout="llama")
    tensors = load_file(tmp_path / "m/model.safetensors")
    said = json.loads((tmp_path / "m/config.json").read_text())["quantization_config"]
    groups = said["config_groups"]["group_0"]
    assert said["quant_method"] == "compressed-tensors" and len(groups["targets"]) == 14
    assert groups["weights"]["symmetric"] == isinstance(form.range, Symmetric)

    def unpack(packed: Array, count: int) -> Array:
        stream = np.unpackbits(np.ascontiguousarray(packed).view(np.uint8), axis=1, bitorder="little")
        codes = stream[:, :count * form.bits].reshape(len(packed), count, form.bits)
        return (codes << np.arange(form.bits)).sum(-1).astype(int) - 2 ** (form.bits - 1)

    found = []
    for end in ("q_proj", "k_proj", "v_proj"):
        one = {key.rpartition(".")[2]: value for key, value in tensors.items() if f"layers.1.self_attn.{end}." in key}
        outputs, inputs = one["weight_shape"].tolist()
        scales = one["weight_scale"].float().numpy()
        zeros = (unpack(one["weight_zero_point"].numpy().T, outputs).T if "weight_zero_point" in one
                 else np.zeros(scales.shape))
        wide = np.arange(inputs) // (inputs // scales.shape[1])
        found.append((scales[:, wide] * (unpack(one["weight_packed"].numpy(), inputs) - zeros[:, wide])).astype("f4"))
    qkv = model.get_submodule("decoder.blocks.1.attention.inner.qkv")
    assert isinstance(qkv, QuantizedLinear)
    assert np.array_equal(np.concatenate(found), qkv.weight.numpy())


@pytest.mark.parametrize("form", LAYOUTS[:3], ids=str)
def test_the_reference_opens_what_is_written(form: Integers, tmp_path: Path) -> None:
    """transformers with compressed-tensors has the same matrices."""
    pytest.importorskip("compressed_tensors", reason="the reference of this layout: pip install compressed-tensors")
    transformers = pytest.importorskip("transformers")
    form = form.model_copy(update={"scales": "float32"})
    model = quantize_model(small(), Quantization(format=form, embeddings=None))
    model.save(tmp_path / "m", layout="llama")
    other = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path / "m", dtype=torch.float32, quantization_config=transformers.CompressedTensorsConfig(dequantize=True))
    assert torch.allclose(other(IDS).logits, model(IDS).logits, atol=1e-6, rtol=0)
    assert torch.equal(other.generate(IDS, max_new_tokens=8, do_sample=False),
                       saucier.generate(model, IDS, max_new_tokens=8, do_sample=False))


@pytest.mark.parametrize(("by", "layout", "what"), [
    (Quantization(), "published", "embed.tokens is a table in few bits"),
    (Quantization(format=NormalFloat(), embeddings=None), "llama", "is in nf4"),
    (Quantization(format=Integers(bits=3), embeddings=None), "llama", "is in 3 bits"),
    (Quantization(format=Integers(group=24), embeddings=None), "llama", "has 32 inputs in groups of 24"),
    (Quantization(activations=DynamicInt8(), embeddings=None), "llama", "rounds its inputs"),
    (Quantization(embeddings=None), "gpt2", "cannot be written as gpt2")])
def test_what_cannot_be_written(by: Quantization, layout: str, what: str, tmp_path: Path) -> None:
    small().save(tmp_path / "float", layout="llama")
    model = quantize_model(saucier.load(tmp_path / "float", dtype="float32"), by)
    with pytest.raises(InputError, match=what):
        model.save(tmp_path / "m", layout=layout)
    assert not (tmp_path / "m").exists()


def test_turned_maps_are_not_written(tmp_path: Path) -> None:
    model = quantize_model(build(family("gpt2"), seed=3), Quantization(embeddings=None))
    with pytest.raises(InputError, match="has no map of its own in the layout of gpt2"):
        model.save(tmp_path / "m", layout="gpt2")


@pytest.mark.slow
@pytest.mark.parametrize(("said", "what"), [
    ({"quant_method": "bitsandbytes"}, "quant_method 'bitsandbytes' cannot be read"),
    ({"quant_method": ["gptq"]}, "cannot be read"), ({"quant_method": None}, "quant_method 'None' cannot be read"),
    ({"bits": 5}, "bits 5 cannot be read"), ({"bits": True}, "bits True cannot be read"),
    ({"group_size": 0}, "group_size is 0"), ({"group_size": 10**9}, "group_size is 1000000000"),
    ({"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' cannot be read; known: gptq, gptq_v2"),
    ({"dynamic": {"-:lm_head": {}}}, "dynamic"), ({"group_size": 8}, "qzeros is int32"),
    ({"bits": 8}, "qzeros has values from"), ({"bits": [4]}, "bits"),
    ({"checkpoint_format": ["gptq"]}, "cannot be read")])
def test_configs_that_cannot_be_read(said: dict[str, Any], what: str, tmp_path: Path) -> None:
    gptq(tmp_path / "m", said=said)
    with pytest.raises(InputError, match=what):
        saucier.load(tmp_path / "m")


@pytest.mark.slow
@pytest.mark.parametrize(("write", "said", "what"), [
    (awq, {"version": "gemv"}, "version 'gemv' cannot be read"), (awq, {"bits": 3}, "bits 3 cannot be read"),
    (compressed, {"format": "float-quantized"}, "format 'float-quantized' cannot be read"),
    (compressed, {"transform_config": {"a": 1}}, "transform_config"),
    (compressed, {"group": 16, "bits": 3}, "num_bits 3 cannot be read")])
def test_other_configs_that_cannot_be_read(write: Callable[..., Any], said: dict[str, Any], what: str,
                                           tmp_path: Path) -> None:
    write(tmp_path / "m", **said)
    with pytest.raises(InputError, match=what):
        saucier.load(tmp_path / "m")


DOWN = "model.layers.0.mlp.down_proj"
DAMAGE: dict[str, Callable[[Tensors], Any]] = {
    "qweight is float32": lambda some: some.update({f"{DOWN}.qweight": some[f"{DOWN}.qweight"].float()}),
    "qzeros is missing": lambda some: some.pop(f"{DOWN}.qzeros"),
    "scales is missing": lambda some: some.pop(f"{DOWN}.scales"),
    "negative or not finite": lambda some: some[f"{DOWN}.scales"].fill_(float("nan")),
    r"gives \[32, 56\] instead of \[32, 64\]|qzeros is int32": lambda some: some.update(
        {f"{DOWN}.qweight": some[f"{DOWN}.qweight"][:-1], f"{DOWN}.g_idx": some[f"{DOWN}.g_idx"][:56]}),
    r"scales is float16 \[3, 32\]": lambda some: some.update({f"{DOWN}.scales": some[f"{DOWN}.scales"][:3]}),
    "g_idx names groups from 0 to 4, and there are 4": lambda some: some[f"{DOWN}.g_idx"][-1:].fill_(4),
    r"g_idx is \[63\] instead of \[64\]": lambda some: some.update({f"{DOWN}.g_idx": some[f"{DOWN}.g_idx"][1:]}),
    "down_proj.bias is not zero": lambda some: some.update({f"{DOWN}.bias": torch.ones(32)}),
    "q_proj.weight is in few bits and model.layers.0.self_attn.k_proj.weight is not": lambda some: (
        [some.pop(f"model.layers.0.self_attn.k_proj.{end}") for end in ("qweight", "qzeros", "scales", "g_idx")],
        some.update({"model.layers.0.self_attn.k_proj.weight": torch.zeros(16, 32)})),
    "sym is true, and qzeros has values": lambda some: some[f"{DOWN}.qzeros"].fill_(0)}


@pytest.mark.slow
@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_tensors(what: str, tmp_path: Path) -> None:
    gptq(tmp_path / "m")
    edit(tmp_path / "m", DAMAGE[what])
    with pytest.raises(InputError, match=what):
        saucier.load(tmp_path / "m")


def test_damaged_shapes_of_compressed_tensors(tmp_path: Path) -> None:
    """A size that would take the memory of the machine is refused by the tensors that are there."""
    compressed(tmp_path / "m")
    edit(tmp_path / "m", lambda some: some.update({f"{DOWN}.weight_shape": torch.tensor([32, 2**40])}))
    with pytest.raises(InputError, match="weight_shape says"):
        saucier.load(tmp_path / "m")


def test_zero_points_whose_format_is_not_clear(tmp_path: Path) -> None:
    """Codes that lie neither around what is stored nor one above it."""
    gptq(tmp_path / "m", symmetric=False)

    def shift(some: Tensors) -> None:
        for name in [one for one in some if one.endswith("qzeros")]:
            some[name] = torch.full_like(some[name], 0x45454545)

    edit(tmp_path / "m", shift)
    with pytest.raises(InputError, match="zero points or zero points - 1"):
        saucier.load(tmp_path / "m")


def test_a_table_in_few_bits_is_refused(tmp_path: Path) -> None:
    gptq(tmp_path / "m", also=("embed_tokens.weight",))
    with pytest.raises(InputError, match=r"embed_tokens\.weight is in few bits, and embed\.tokens\.weight can only"):
        saucier.load(tmp_path / "m")


def test_nothing_is_rounded_in_other_formats(tmp_path: Path) -> None:
    """Codes and scales keep their formats where the model computes in bfloat16, and nothing is said."""
    gptq(tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = saucier.load(tmp_path / "m", dtype="bfloat16")
    wide = saucier.load(tmp_path / "m", dtype="float32")
    for name, one in list_matrices(few).items():
        assert all(torch.equal(part, list_matrices(wide)[name].parts()[end]) for end, part in one.parts().items())
        assert isinstance(one.store, Integers) and read_codes(one.parts(), one.shape[1], one.store)[0].min() >= -8


def test_an_adapter_on_a_folder_in_few_bits(tmp_path: Path) -> None:
    """It is saved in our own form, whose base is opened in few bits again; PEFT's form is refused."""
    gptq(tmp_path / "m")
    model = rewrite(saucier.load(tmp_path / "m", dtype="float32"), by=a.Lora(rank=2))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".up.weight"):
                parameter.fill_(0.1)
    with pytest.raises(InputError, match="the base model is in few bits"):
        save_adapter(model, tmp_path / "peft", layout="peft")
    assert str(save_adapter(model, tmp_path / "adapter")) == "own"
    again = open_adapter(tmp_path / "adapter", dtype="float32")
    assert len(list_matrices(again)) == 8
    assert torch.equal(model.eval()(IDS).logits, again(IDS).logits)

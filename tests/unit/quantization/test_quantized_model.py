"""A quantized model: saved and loaded bit for bit, its sizes, ties, adapters on top, and what it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.laws.zoo import FAMILY_OPTIONS, family
from tests.tolerances import assert_close
from tests.unit.quantization.packed_folders import awq, compressed, count_bytes, gptq, small

import saucier
from saucier import InputError
from saucier import config as c
from saucier.adaptation import tuning as a
from saucier.adaptation.lora import merge
from saucier.adaptation.quantization.maps import (
    QuantizedLanguageHead,
    QuantizedLinear,
    QuantizedMatrix,
    held_bytes,
    is_quantized,
    list_matrices,
)
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import (
    DynamicInt8,
    Integers,
    LearnedBasis,
    NormalFloat,
    Quantization,
    StaticInt8,
    ZeroPoint,
)
from saucier.adaptation.quantization.storage import check_matrices, dequantize_model
from saucier.adaptation.rewrite import rewrite, share
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Layers
from saucier.diagnosis.doctor import check_finite_weights, check_saved_bits, check_ties
from saucier.folders.save import save_adapter
from saucier.generation.packed_weights import use_packed_weights
from saucier.model import Transformer, build

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])
SCHEMES = [Quantization(), Quantization(format=Integers(bits=4, group=8, range=ZeroPoint(), scales="float16")),
           Quantization(format=Integers(bits=3), embeddings=Integers(bits=6)), Quantization(format=NormalFloat()),
           Quantization(format=LearnedBasis(bits=2), embeddings=NormalFloat()),
           Quantization(activations=DynamicInt8()), Quantization(activations=StaticInt8()),
           Quantization(where=("feed_forward",), embeddings=None)]


def made(name: str = "bert", by: Quantization | None = None) -> Transformer:
    return quantize_model(build(family(name), seed=3), by or Quantization(), batches=[{"input_ids": IDS}])


def numbers(model: Transformer) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@pytest.mark.slow
@pytest.mark.parametrize("by", SCHEMES, ids=str)
def test_saved_and_loaded_bit_for_bit(by: Quantization, tmp_path: Path) -> None:
    model = made(by=by)
    saved = model.save(tmp_path / "model")
    again = saucier.load(tmp_path / "model", dtype="float32")
    before, after = numbers(model), numbers(again)
    assert before.keys() == after.keys()
    assert all(torch.equal(one, after[name]) and one.dtype == after[name].dtype for name, one in before.items())
    assert torch.equal(model(IDS).last_hidden_state, again(IDS).last_hidden_state)
    assert torch.equal(model(IDS).logits, again(IDS).logits)
    assert str(saved) == "saucier" and saved.parameters == c.parameters(model.config)
    again.save(tmp_path / "again")
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "model/model.safetensors").read_bytes()
    assert json.loads((tmp_path / "again/config.json").read_text()) == json.loads(
        (tmp_path / "model/config.json").read_text())


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(FAMILY_OPTIONS) - {"transfo_xl"}))
def test_every_family(name: str, tmp_path: Path) -> None:
    """Close to the float model, the same when loaded, and the same numbers in ordinary weights."""
    exact = build(family(name), seed=3).eval()
    inputs = {"decoder_input_ids": IDS.flip(1)} if exact.paired else {}
    model = made(name)
    found, expected = (one(IDS, **inputs).last_hidden_state for one in (model, exact))
    assert 0 < float((found - expected).norm()) < 0.05 * float(expected.norm())
    model.save(tmp_path / "model")
    again = saucier.load(tmp_path / "model", dtype="float32")
    assert torch.equal(again(IDS, **inputs).last_hidden_state, found)
    assert_close(dequantize_model(again)(IDS, **inputs).last_hidden_state, found)
    assert not is_quantized(again)


def test_in_half_precision_the_stored_numbers_stay(tmp_path: Path) -> None:
    """Loaded in bfloat16, saved again: codes, scales and all other numbers are those of the first folder."""
    made().save(tmp_path / "model")
    half = saucier.load(tmp_path / "model", dtype="bfloat16")
    assert half.dtype == torch.bfloat16 and half(IDS).last_hidden_state.dtype == torch.bfloat16
    assert use_packed_weights(half)(IDS).logits.dtype == torch.bfloat16
    half.save(tmp_path / "again")
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "model/model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "electra_generator", "bart"])
def test_tied_tables_are_one_set_of_tensors(name: str, tmp_path: Path) -> None:
    model = made(name)
    tables = [module for module in model.modules() if isinstance(module, QuantizedLanguageHead)]
    assert len(tables) == 1 and tables[0].table is (model.decoder_embed or model.embed).tokens
    model.save(tmp_path / "model")
    stored = load_file(tmp_path / "model/model.safetensors")
    assert not any(key.startswith("head.") and "table" in key for key in stored)
    assert sum(one.shape[0] == 37 and one.dtype == torch.uint8 for one in stored.values()) == 1
    again = saucier.load(tmp_path / "model")
    assert check_ties(again).verdict == "holds"
    plain = dequantize_model(again)
    head = getattr(plain.head, "language", plain.head)
    assert head.weight is (plain.decoder_embed or plain.embed).tokens.weight  # type: ignore[union-attr]


def test_an_output_layer_with_its_own_matrix_is_held_too(tmp_path: Path) -> None:
    model = made("llama")
    assert "head.table" in list_matrices(model)
    model.save(tmp_path / "model")
    assert torch.equal(saucier.load(tmp_path / "model", dtype="float32")(IDS).logits, model(IDS).logits)


def test_sizes_are_counted_exactly(tmp_path: Path) -> None:
    """Each matrix takes the bytes of its layout; int8 is four times smaller but for scales; the file is no larger."""
    exact = build(family("bert"), seed=3)
    whole = held_bytes(exact)
    model = made(by=Quantization())
    matrices = list_matrices(model)
    kept = sum(one.nbytes for one in model.parameters())
    values = sum(one.shape[0] * one.shape[1] for one in matrices.values())
    assert whole == kept + 4 * values
    assert held_bytes(model) == kept + sum(count_bytes(one.shape, one.store) for one in matrices.values())
    assert held_bytes(model) == kept + values + 4 * sum(one.shape[0] for one in matrices.values())
    size = model.save(tmp_path / "model").formats
    assert size == {"float32": kept + 4 * sum(one.shape[0] for one in matrices.values()), "uint8": values}
    assert share(model)[1] == share(exact)[1]


@pytest.mark.parametrize("layout", ["bert", "published"])
def test_other_layouts(layout: str, tmp_path: Path) -> None:
    build(family("bert"), seed=3).save(tmp_path / "float", layout="bert")
    model = quantize_model(saucier.load(tmp_path / "float", dtype="float32"), Quantization())
    with pytest.raises(InputError, match=r"is a table in few bits, which a published layout .* cannot hold"):
        model.save(tmp_path / "published", layout=layout)
    assert str(model.save(tmp_path / "own")) == "saucier"
    plain = dequantize_model(saucier.load(tmp_path / "own", dtype="float32"))
    assert_close(plain(IDS).logits, model(IDS).logits)


def test_quantizing_takes_the_stored_numbers(tmp_path: Path) -> None:
    """Not those that loading rounded to bfloat16."""
    build(family("bert"), seed=3).save(tmp_path / "float")
    exact, half = (quantize_model(saucier.load(tmp_path / "float", dtype=one), Quantization())
                   for one in ("float32", "bfloat16"))
    assert all(torch.equal(one, numbers(half)[name]) for name, one in numbers(exact).items())


def test_what_was_not_to_be_done_leaves_a_model_as_it_is() -> None:
    model = made()
    with pytest.raises(InputError, match="quantized already"):
        quantize_model(model, Quantization())
    tuned = rewrite(build(family("bert"), seed=0), by=a.Lora(rank=2))
    with pytest.raises(InputError, match=r"has a rewrite \(lora\)"):
        quantize_model(tuned, Quantization())
    with pytest.raises(InputError, match="cannot be given another shape"):
        operate(model, by=[Layers(order=(0,))])


def test_an_adapter_on_a_quantized_model(tmp_path: Path) -> None:
    """It learns beside the rounded numbers, is saved with the folder as its base, and is found on that again."""
    made("llama", Quantization(format=Integers(bits=4, group=8))).save(tmp_path / "base")
    model = rewrite(saucier.load(tmp_path / "base", dtype="float32"), by=a.Lora(rank=2, where=("qkv", "tokens")))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert ".pairs." in name
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    found = model(IDS).last_hidden_state
    found.sum().backward()
    assert all((one.grad is not None) == one.requires_grad for one in model.parameters())
    save_adapter(model, tmp_path / "adapter", layout="own")
    again = saucier.load(tmp_path / "adapter", dtype="float32")
    assert_close(again(IDS).last_hidden_state, found.detach())
    made("llama", Quantization(format=Integers(bits=4, group=4))).save(tmp_path / "other")
    with pytest.raises(InputError, match="it has other weights"):
        saucier.load(tmp_path / "adapter", base=str(tmp_path / "other"), dtype="float32")


def test_an_adapter_on_a_model_that_no_folder_holds(tmp_path: Path) -> None:
    build(family("bert"), seed=3).save(tmp_path / "float")
    model = quantize_model(saucier.load(tmp_path / "float", dtype="float32"), Quantization())
    rewrite(model, by=a.Lora(rank=2))
    for layout in ("own", "peft"):
        with pytest.raises(InputError, match="save the quantized model first"):
            save_adapter(model, tmp_path / "adapter", layout=layout)


def test_merging_widens_only_what_changed(tmp_path: Path) -> None:
    made("llama").save(tmp_path / "base")
    model = rewrite(saucier.load(tmp_path / "base", dtype="float32"), by=a.Lora(rank=2, where=("down",)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.1)
        before = model(IDS).last_hidden_state
        merge(model)
        assert_close(model(IDS).last_hidden_state, before)
    kinds = {name.rsplit(".", 1)[-1]: isinstance(one, QuantizedMatrix) for name, one in model.named_modules()
             if name.endswith((".down", ".up", ".qkv"))}
    assert kinds == {"down": False, "up": True, "qkv": True}
    model.save(tmp_path / "merged")
    assert torch.equal(saucier.load(tmp_path / "merged", dtype="float32")(IDS).logits, model(IDS).logits)


def test_the_doctor_finds_nothing() -> None:
    model = made(by=Quantization(activations=DynamicInt8()))
    for check in (check_finite_weights, check_ties, check_saved_bits):
        assert check(model).verdict == "holds", check(model)


def damaged(folder: Path, **changes: object) -> None:
    document = json.loads((folder / "config.json").read_text())
    for path, value in changes.items():
        place, *keys = document, *path.split("__")
        for key in keys[:-1]:
            place = place[key.replace("_DOT_", ".")]
        place[keys[-1].replace("_DOT_", ".")] = value
    (folder / "config.json").write_text(json.dumps(document))


MAP = "quantization__modules__encoder_DOT_blocks_DOT_0_DOT_attention_DOT_inner_DOT_qkv"


@pytest.mark.parametrize(("path", "value", "what"), [
    ("quantization", 7, "quantization"), ("quantization__format", 2, "format: Input should be 1"),
    (f"{MAP}__shape", [72, 23], r"qkv is \[72, 23\], and the model has \[72, 24\]"),
    (f"{MAP}__part", "table", "the model has no table"), (f"{MAP}__format__bits", 9, "less than or equal to 8"),
    (f"{MAP}__format__kind", "fp3", "fp3"),
    (f"{MAP}__format__bits", 4, r"qkv.codes is \[72, 24\] instead of \[72, 12\]"),
    (f"{MAP}__format__scales", "float16", "qkv.scales is float32 instead of float16"),
    ("quantization__modules__nothing", {"part": "map", "shape": [2, 2], "format": {"kind": "nf4"}},
     "the model has no map 'nothing'"),
    (f"{MAP}__activations", {"kind": "static"}, "qkv.input_scale is missing")])
def test_a_config_that_was_changed(path: str, value: object, what: str, tmp_path: Path) -> None:
    made().save(tmp_path / "model")
    damaged(tmp_path / "model", **{path: value})
    with pytest.raises(InputError, match=what) as caught:
        saucier.load(tmp_path / "model")
    assert "config.json" in str(caught.value) or "safetensors" in str(caught.value)


@pytest.mark.parametrize(("end", "change", "what"), [
    ("codes", lambda one: one[:-1], r"is \[71, 24\] instead of \[72, 24\]"),
    ("codes", lambda one: torch.zeros_like(one), "codes are not in -127 … 127"),
    ("scales", lambda one: one * float("nan"), "scales are negative or not finite"),
    ("scales", lambda one: -one, "scales are negative or not finite"),
    ("codes", lambda one: one.to(torch.int16), "is int16 instead of uint8"),
    ("codes", lambda one: None, "is missing")])
def test_tensors_that_were_damaged(end: str, change: object, what: str, tmp_path: Path) -> None:
    made().save(tmp_path / "model")
    file, name = tmp_path / "model/model.safetensors", f"encoder.blocks.0.attention.inner.qkv.{end}"
    stored = load_file(file)
    value = change(stored.pop(name))  # type: ignore[operator]
    save_file(stored if value is None else {**stored, name: value.contiguous()}, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=what):
        saucier.load(tmp_path / "model")


def test_bits_after_the_last_code() -> None:
    held = QuantizedLinear(torch.nn.Linear(5, 3), Integers(bits=3))
    check_matrices(torch.nn.ModuleList([held]), "here")
    held.get_buffer("codes")[1, -1] |= 128
    with pytest.raises(InputError, match="codes has bits after its last value"):
        check_matrices(torch.nn.ModuleList([held]), "here")


def test_a_token_table_in_clusters_is_refused() -> None:
    model = build(family("transfo_xl"), seed=0)
    with pytest.raises(InputError, match=r"embed\.tokens\.maps\.0"):
        quantize_model(model, Quantization(embeddings=None))
    with pytest.raises(InputError, match="in clusters"):
        quantize_model(model, Quantization(where=("linear",)))
    quantize_model(model, Quantization(where=("linear",), embeddings=None))
    assert is_quantized(model)


def test_generation_writes_the_same_with_and_without_a_cache() -> None:
    model = made("llama")
    written = saucier.generate(model, IDS, max_new_tokens=6, do_sample=False)
    ids = IDS
    for _ in range(6):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(written, ids)
    with pytest.raises(InputError, match="few bits, which are not compiled"):
        saucier.generate(model, IDS, max_new_tokens=2, compile=True)


@pytest.mark.slow
def test_show_says_what_is_stored(tmp_path: Path) -> None:
    """Every byte of the file but for its header, in the format that each matrix has; nothing for a float model."""
    by = Quantization(format=Integers(bits=4, group=8), activations=StaticInt8())
    made("bert", by).save(tmp_path / "model")
    found = saucier.show(str(tmp_path / "model")).stored
    stored = load_file(tmp_path / "model/model.safetensors")
    assert sum(one.bytes for one in found) == sum(one.nbytes for one in stored.values())
    assert sum(one.values for one in found) == c.parameters(build(family("bert")).config)
    down = next(one for one in found if one.name.endswith("0.feed_forward.inner.down"))
    assert down.format == "int4, groups of 8, float32 scales, static int8 inputs" and down.method == "nearest"
    published = tmp_path / "published"
    for write, name in ((gptq, "gptq"), (awq, "awq"), (compressed, "pack-quantized")):
        write(published / name)
        told = saucier.show(str(published / name)).stored
        lies = load_file(published / name / "model.safetensors")
        assert sum(one.bytes for one in told) == sum(one.nbytes for one in lies.values())
        assert sum(one.values for one in told) == c.parameters(small().config), name
        assert {(one.method, one.format) for one in told if one.name.endswith("down_proj")} == {
            (name, "int4, 4 groups a row, f16 scales")}
    gptq(published / "other", said={"quant_method": "bitsandbytes"})
    assert "not counted: quant_method 'bitsandbytes' cannot be read" in repr(saucier.show(str(published / "other")))
    build(family("bert"), seed=3).save(tmp_path / "float", layout="own")
    assert saucier.show(str(tmp_path / "float")).stored == ()

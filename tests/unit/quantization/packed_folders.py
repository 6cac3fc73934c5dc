"""Folders of GPTQ, AWQ and compressed-tensors, packed bit by bit from the public definitions, and what they hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from saucier.adaptation.quantization.formats import CODECS
from saucier.adaptation.quantization.maps import QuantizedLinear, list_matrices
from saucier.adaptation.quantization.published_codes import pack_words, unpack_words
from saucier.adaptation.quantization.schemes import StoredFormat
from saucier.families.llama import llama
from saucier.model import Transformer, build

GROUP = 16
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Array = np.ndarray[Any, Any]
Tensors = dict[str, torch.Tensor]


def small(kv_heads: int = 2) -> Transformer:
    """A LLaMA whose sizes all layouts hold: 32 wide, 64 in the feed-forward."""
    return build(llama(dim=32, layers=2, heads=4, kv_heads=kv_heads, vocab=40, hidden=64), seed=7)


def words(codes: Array, bits: int) -> Array:
    """Codes [N, C] as words of 32 bits [N, ⌈C·bits/32⌉], bit by bit."""
    stream = (codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8) & 1).reshape(len(codes), -1)
    stream = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32)))
    return np.ascontiguousarray(np.packbits(stream, axis=1, bitorder="little")).view("<i4")


def round_rows(weight: Array, bits: int, group: int, symmetric: bool) -> tuple[Array, Array, Array]:
    """Codes [O, I], scales and zero points [O, G] of a matrix, in the way of GPTQ's quantizer."""
    groups = weight.reshape(len(weight), -1, group)
    low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    scales = ((high - low) / (2**bits - 1)).astype(np.float16)
    zeros = np.full(low.shape, 2 ** (bits - 1)) if symmetric else np.rint(-low / scales)
    codes = np.clip(np.rint(groups / scales[..., None]) + zeros[..., None], 0, 2**bits - 1)
    return codes.reshape(weight.shape).astype(int), scales, zeros.astype(int)


def pack_gptq(codes: Array, scales: Array, zeros: Array, bits: int, shift: int) -> dict[str, Array]:
    group = codes.shape[1] // scales.shape[1]
    return {"qweight": words(codes, bits).T, "qzeros": words(zeros.T - shift, bits), "scales": scales.T,
            "g_idx": (np.arange(codes.shape[1]) // group).astype(np.int32)}


def pack_awq(codes: Array, scales: Array, zeros: Array) -> dict[str, Array]:
    def interleave(rows: Array) -> Array:
        return words(rows.reshape(len(rows), -1, 8)[..., AWQ_ORDER].reshape(rows.shape), 4)

    return {"qweight": interleave(codes.T), "qzeros": interleave(zeros.T), "scales": scales.T}


def pack_compressed(codes: Array, scales: Array, zeros: Array, bits: int, symmetric: bool) -> dict[str, Array]:
    found = {"weight_packed": words(codes, bits), "weight_scale": scales, "weight_shape": np.array(codes.shape)}
    return found if symmetric else found | {"weight_zero_point": words(zeros.T, bits).T}


def write_folder(folder: Path, pack: Callable[[Array, Array, Array], dict[str, Array]], said: Mapping[str, Any], *,
                 bits: int = 4, group: int = GROUP, symmetric: bool = True, model: Transformer | None = None,
                 turned: bool = False, also: tuple[str, ...] = ()) -> dict[str, Array]:
    """Write a model with its maps packed, and return what they hold, [O, I] float32, by their published names."""
    (model or small()).save(folder, layout="published" if model is None else "auto")
    tensors, held = load_file(folder / "model.safetensors"), {}
    for name in [one for one in tensors if one.endswith(("proj.weight", "c_attn.weight", "c_proj.weight", "c_fc.weight",
                                                         *also))]:
        weight = tensors.pop(name).float().numpy()
        codes, scales, zeros = round_rows(weight.T if turned else weight, bits, min(group, weight.shape[turned - 1]),
                                          symmetric)
        module, per = name.removesuffix(".weight"), codes.shape[1] // scales.shape[1]
        held[module] = (np.repeat(scales.astype(np.float32), per, 1) * (codes - np.repeat(zeros, per, 1))).astype("f4")
        tensors |= {f"{module}.{end}": torch.from_numpy(np.ascontiguousarray(one))
                    for end, one in pack(codes, scales, zeros).items()}
    save_file(tensors, folder / "model.safetensors")
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**document, "quantization_config": said}))
    return held


def gptq(folder: Path, *, bits: int = 4, group: int = GROUP, symmetric: bool = True, shift: int = 1,
         **options: Any) -> dict[str, Array]:
    said = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": False}
    return write_folder(folder, lambda c, s, z: pack_gptq(c, s, z, bits, shift), said | options.pop("said", {}),
                        bits=bits, group=group, symmetric=symmetric, **options)


def compressed(folder: Path, *, bits: int = 4, group: int = GROUP, symmetric: bool = True, **more: Any
               ) -> dict[str, Array]:
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": group}
    said = {"quant_method": "compressed-tensors", "format": "pack-quantized", **more,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    return write_folder(folder, lambda c, s, z: pack_compressed(c, s, z, bits, symmetric), said, bits=bits, group=group,
                        symmetric=symmetric)


def awq(folder: Path, *, group: int = GROUP, **more: Any) -> dict[str, Array]:
    said = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm", **more}
    return write_folder(folder, pack_awq, said, group=group, symmetric=False)


def assert_holds(model: Transformer, held: Mapping[str, Array]) -> None:
    """Every map is in few bits, with these numbers, those of queries, keys and values below each other."""
    maps = list_matrices(model)
    assert len(maps) == 2 * 4
    for index in range(2):
        ours, theirs = f"decoder.blocks.{index}.", f"model.layers.{index}."
        for name, others in {"attention.inner.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                             "attention.inner.out": ("self_attn.o_proj",),
                             "feed_forward.inner.up": ("mlp.gate_proj", "mlp.up_proj"),
                             "feed_forward.inner.down": ("mlp.down_proj",)}.items():
            matrix = maps[ours + name]
            assert isinstance(matrix, QuantizedLinear)
            expected = np.concatenate([held[theirs + one] for one in others])
            assert np.array_equal(matrix.weight.numpy(), expected), name


def edit(folder: Path, change: Callable[[Tensors], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: one.contiguous() for name, one in tensors.items()}, folder / "model.safetensors")


def shuffle_inputs(folder: Path, held: dict[str, Array], *, bits: int = 4, group: int = GROUP, seed: int = 5
                   ) -> dict[str, Array]:
    """Put the inputs of every map of a folder of GPTQ or compressed-tensors out of order, and return what it holds."""
    def shuffle(some: Tensors) -> None:
        for module in held:
            gptq_like = f"{module}.qweight" in some
            order = torch.from_numpy(np.random.default_rng(seed).permutation(held[module].shape[1]))
            held[module] = held[module][:, order]
            name = f"{module}.{'qweight' if gptq_like else 'weight_packed'}"
            rows = some[name].T if gptq_like else some[name]
            codes = pack_words(unpack_words(rows, len(order), bits)[:, order], bits)
            some[name] = codes.T if gptq_like else codes
            some[f"{module}.{'g_idx' if gptq_like else 'weight_g_idx'}"] = (order // group).int()

    edit(folder, shuffle)
    return held


def count_bytes(shape: tuple[int, int], form: StoredFormat) -> int:
    """Return the bytes that a matrix promises to take in a number format, all of its tensors together."""
    return sum(torch.Size(size).numel() * dtype.itemsize
               for size, dtype in CODECS[type(form)].layout(shape, form).values())

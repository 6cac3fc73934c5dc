"""GGUF files: number formats against their published layout, every family there and back, and damaged files."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saucier as library
from saucier import config as c
from saucier.adaptation.quantization.maps import list_matrices
from saucier.checkpoints.gguf import U32, StoredTensor, Typed, open_gguf, write_gguf
from saucier.checkpoints.gguf_blocks import BLOCKS, KINDS, read_codes
from saucier.checkpoints.gguf_layouts import FAMILIES as KNOWN
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.folders.write_gguf import write_gguf_model
from saucier.model import Transformer

SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"length": 32}, "llama": {"kv_heads": 2, "hidden": 96}, "mistral": {"hidden": 96, "kv_heads": 2,
                                                                            "window": None},
    "mixtral": {"hidden": 96, "kv_heads": 2, "experts": 4}, "gpt_neox": {"hidden": 96}, "bloom": {},
    "t5": {"head_dim": 16, "hidden": 96}, "mt5": {"head_dim": 16, "hidden": 96},
    "bert": {"length": 32, "hidden": 96}}


def build(family: str, vocab: int = 70) -> Transformer:
    """Return a small model with drawn weights, also of norms."""
    model = library.build(FAMILIES[family](dim=64, layers=2, heads=4, vocab=vocab, **SIZES[family]))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (parameter.dim() == 1))
    if family == "bert":
        model.config, model.head = model.config.model_copy(update={"head": None}), None
    return model.eval()


def outputs(model: Transformer) -> torch.Tensor:
    ids = torch.arange(11)[None] % 60 + 3
    pair = {"decoder_input_ids": ids} if model.config.encoder is not None and model.config.decoder is not None else {}
    with torch.inference_mode():
        found = model(input_ids=ids, **pair)
    return (found.last_hidden_state if found.logits is None else found.logits).float()


@pytest.mark.slow
@pytest.mark.parametrize("family", list(SIZES))
def test_there_and_back(family: str, tmp_path: Path) -> None:
    model, path = build(family), tmp_path / "model.gguf"
    written = write_gguf_model(model, path)
    assert KNOWN[written.family].architecture == KNOWN[family].architecture
    again = library.load(path, dtype="float32", device="cpu")
    gap = float((outputs(again) - outputs(model)).abs().max())
    assert gap <= (1e-5 if family in ("t5", "mt5") else 0), "T5's table is written scaled"


def test_all_families_are_tested() -> None:
    assert set(SIZES) == set(KNOWN)


def test_rows_of_queries_take_turns(tmp_path: Path) -> None:
    model = build("llama")
    write_gguf_model(model, tmp_path / "model.gguf")
    stored = open_gguf(tmp_path / "model.gguf").read("blk.0.attn_q.weight")
    ours = model.get_parameter("decoder.blocks.0.attention.inner.qkv.weight")[:64]
    for head, pair, half in ((0, 0, 0), (1, 3, 0), (1, 3, 1), (3, 7, 1)):
        assert torch.equal(stored[head * 16 + 2 * pair + half], ours[head * 16 + half * 8 + pair])


def test_mistral_without_its_window(tmp_path: Path) -> None:
    model = library.build(FAMILIES["mistral"](64, 1, heads=4, vocab=70, hidden=96, kv_heads=2, window=8)).eval()
    written = write_gguf_model(model, tmp_path / "model.gguf")
    assert "at most 8 tokens" in written.notes[0]
    assert open_gguf(tmp_path / "model.gguf").count("llama.context_length") == 8


def test_how_a_text_gets_its_vector(tmp_path: Path) -> None:
    model = build("bert")
    model.config = model.config.model_copy(update={"head": c.EmbeddingHead(pooling=(c.Pooling(kind="cls"),))})
    write_gguf_model(model, tmp_path / "model.gguf")
    assert open_gguf(tmp_path / "model.gguf").count("bert.pooling_type") == 2
    model.config = model.config.model_copy(update={"head": c.EmbeddingHead(pooling=(c.Pooling(kind="max"),))})
    with pytest.raises(InputError, match="does not make a text's vector like this"):
        write_gguf_model(model, tmp_path / "other.gguf")


@pytest.mark.parametrize(("model", "message"), [
    (lambda: library.build(FAMILIES["roformer"](64, 1, heads=4, vocab=70)), "no family of llama.cpp"),
    (lambda: library.build(FAMILIES["bert"](64, 1, heads=4, vocab=70)), "--head none"),
    (lambda: library.build(FAMILIES["t5"](64, 2, heads=4, vocab=70).model_copy(update={
        "decoder": FAMILIES["t5"](64, 3, heads=4, vocab=70).decoder})), "the decoder has 3 layers"),
])
def test_refused(model: Callable[[], Transformer], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        write_gguf_model(model(), tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize(("form", "bits"), [("q8_0", 8), ("q4_0", 4)])
def test_blocks_stay_in_few_bits(form: str, bits: int, tmp_path: Path) -> None:
    write_gguf_model(build("llama"), tmp_path / "model.gguf", form=form)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is widened
        model = library.load(tmp_path / "model.gguf", dtype="float32", device="cpu")
    held, file = list_matrices(model), open_gguf(tmp_path / "model.gguf")
    assert len(held) == 10 and held["decoder.blocks.0.attention.inner.out"].store.bits == bits  # type: ignore[union-attr]
    down = file.read("blk.1.ffn_down.weight")
    assert torch.equal(held["decoder.blocks.1.feed_forward.inner.down"].widened(torch.float32), down)


@pytest.mark.parametrize("form", ["q8_0", "q4_0"])
def test_the_native_engine_reads_blocks(form: str, tmp_path: Path) -> None:
    """Also those of four bits whose steps are below zero, about half of them."""
    native = pytest.importorskip("saucier.generation.native_feed").Native
    write_gguf_model(build("llama"), tmp_path / "model.gguf", form=form)
    model = library.load(tmp_path / "model.gguf", dtype="float32", device="cpu")
    ids = torch.tensor([[5, 9, 3]])
    plain = library.generate(model, ids, max_new_tokens=8)
    try:
        quick = library.generate(model, ids, max_new_tokens=8, engine=native(format="float32"))
    except InputError as error:
        pytest.skip(f"no kernels here: {error}")
    assert torch.equal(plain, quick)


def test_other_blocks_are_widened_and_counted(tmp_path: Path) -> None:
    write_gguf_model(build("llama"), tmp_path / "model.gguf")
    file = open_gguf(tmp_path / "model.gguf")
    metadata = {name: Typed(value, U32) if type(value) is int else value for name, value in file.metadata.items()}
    metadata |= {name: Typed(value, 6) for name, value in metadata.items() if isinstance(value, float)}
    raw = np.random.default_rng(0).integers(0, 60, (64 * 64 // 32, 24), dtype=np.uint8)
    tensors = {name: StoredTensor(one.shape, one.kind, lambda name=name: file.read_blocks(name))  # type: ignore[misc]
               for name, one in file.tensors.items()}
    tensors["blk.0.attn_output.weight"] = StoredTensor((64, 64), KINDS["Q5_1"], lambda: raw)
    write_gguf(tmp_path / "mixed.gguf", metadata, tensors)
    with pytest.warns(UserWarning, match="widened to float.*1 in Q5_1"):
        model = library.load(tmp_path / "mixed.gguf", dtype="float32", device="cpu")
    assert torch.equal(model.get_parameter("decoder.blocks.0.attention.inner.out.weight").detach(),
                       BLOCKS[KINDS["Q5_1"]].decode(raw).reshape(64, 64))


def half(raw: bytes) -> float:
    return float(struct.unpack("<e", raw)[0])


def six_bits(scales: bytes, part: int) -> tuple[int, int]:
    """Scale and minimum of a part, as `get_scale_min_k4` of ggml-quants.c."""
    if part < 4:
        return scales[part] & 63, scales[part + 4] & 63
    return ((scales[part + 4] & 15) | (scales[part - 4] >> 6) << 4,
            (scales[part + 4] >> 4) | (scales[part] >> 6) << 4)


def slow(name: str, b: bytes) -> list[float]:
    """The numbers of one block, one by one, after ggml-quants.c."""
    def low(code: bytes, place: int) -> int:
        return code[place % 16] >> (4 if place >= 16 else 0) & 15

    def third(place: int) -> int:
        return b[16 + place % 32] >> (2 * (place % 128 // 32)) & 3 if name == "Q2_K" else 0

    match name:
        case "Q4_0":
            return [half(b[:2]) * (low(b[2:], i) - 8) for i in range(32)]
        case "Q4_1":
            return [half(b[:2]) * low(b[4:], i) + half(b[2:4]) for i in range(32)]
        case "Q5_0":
            return [half(b[:2]) * ((low(b[6:], i) | (int.from_bytes(b[2:6], "little") >> i & 1) << 4) - 16)
                    for i in range(32)]
        case "Q5_1":
            return [half(b[:2]) * (low(b[8:], i) | (int.from_bytes(b[4:8], "little") >> i & 1) << 4) + half(b[2:4])
                    for i in range(32)]
        case "Q8_0":
            return [half(b[:2]) * struct.unpack_from("<b", b, 2 + i)[0] for i in range(32)]
        case "Q2_K":
            return [half(b[80:82]) * (b[i // 16] & 15) * (b[16 + i // 128 * 32 + i % 32] >> (2 * (i % 128 // 32)) & 3)
                    - half(b[82:84]) * (b[i // 16] >> 4) for i in range(256)]
        case "Q4_K" | "Q5_K":
            codes, found = b[16 if name == "Q4_K" else 48:], []
            for i in range(256):
                scale, least = six_bits(b[4:16], i // 32)
                code = codes[i // 64 * 32 + i % 32] >> (4 if i % 64 >= 32 else 0) & 15
                if name == "Q5_K":
                    code |= (b[16 + i % 32] >> (i // 32) & 1) << 4
                found.append(half(b[:2]) * scale * code - half(b[2:4]) * least)
            return found
        case "Q6_K":
            found = []
            for i in range(256):
                at, row = i // 128, i % 128
                code = b[at * 64 + row % 64] >> (4 if row >= 64 else 0) & 15
                code |= (b[128 + at * 32 + row % 32] >> (2 * (row // 32)) & 3) << 4
                found.append(half(b[208:210]) * struct.unpack_from("<b", b, 192 + i // 16)[0] * (code - 32))
            return found
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q4_K", "Q5_K", "Q6_K"])
def test_numbers_of_blocks(name: str) -> None:
    kind = BLOCKS[KINDS[name]]
    raw = np.random.default_rng(0).integers(0, 256, (8, kind.nbytes), dtype=np.uint8)
    for place in ((208,) if name == "Q6_K" else (80, 82) if name == "Q2_K" else (0, 2)):
        raw[:, place + 1] &= 0x3B  # scales are small and finite
    expected = np.array([slow(name, block.tobytes()) for block in raw])
    assert np.allclose(kind.decode(raw).reshape(8, -1).numpy(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0"])
def test_rounding_and_codes(name: str) -> None:
    kind, weight = BLOCKS[KINDS[name]], torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    weight[3] = 0
    assert kind.encode is not None
    raw = kind.encode(weight)
    values = kind.decode(raw).reshape(64, 32)
    steps = weight.abs().amax(1, keepdim=True) / (127 if name == "Q8_0" else 8)
    near = 0.5 + 127 / 2048 if name == "Q8_0" else 1 + 8 / 2048  # half a step, and the scale in float16
    assert bool(((values - weight).abs() <= steps * near).all())
    parts = read_codes(KINDS[name], raw)
    assert parts is not None and bool((parts[1] >= 0).all())
    widened = parts[1].astype(np.float32)[:, None] * (parts[0].astype(np.float32) - parts[2][:, None])
    assert np.array_equal(widened, values.numpy())


def test_the_reference_package_agrees(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the package of ggml is not installed")
    write_gguf_model(build("llama"), tmp_path / "model.gguf", form="q8_0")
    reader, ours = gguf.GGUFReader(tmp_path / "model.gguf"), open_gguf(tmp_path / "model.gguf")
    assert [one.name for one in reader.tensors] == list(ours.tensors)
    for one in reader.tensors:
        theirs = gguf.quants.dequantize(one.data, one.tensor_type)
        assert np.array_equal(ours.read(one.name).numpy().reshape(theirs.shape), theirs)
    assert reader.fields["llama.block_count"].contents() == 2


def header(tensors: int = 0, entries: int = 0, *, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name: str = "a", dims: tuple[int, ...] = (32,), kind: int = 0, start: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, start)


@pytest.mark.parametrize(("raw", "message"), [
    (b"", "beyond the end"), (b"GGUF", "beyond the end"), (header(magic=b"GGML"), "is no GGUF file"),
    (header(version=1), "has the version 1"), (header(version=3 << 24), "big-endian"),
    (header(2**60), "list of tensors claims"), (header(0, 2**63), "the metadata claims"),
    (header(0, 1) + struct.pack("<Q", 2**64 - 1) + b"x" * 20, "beyond the end"),
    (header(0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 2**61) + b"x" * 40, "claims 2,305,843,009,213,693,952"),
    (header(0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1) + b"x" * 40, "array of the kind 9"),
    (header(0, 1) + text("a") + struct.pack("<IB", 7, 2) + b"x" * 40, "neither 0 nor 1"),
    (header(0, 2) + 2 * (text("a") + struct.pack("<II", 4, 1)), "has 'a' twice"),
    (header(1) + tensor(kind=16) + b"\0" * 300, "the number format IQ2_XXS"),
    (header(1) + tensor(dims=(2**62, 4)) + b"\0" * 300, "the file ends at"),
    (header(1) + tensor(dims=(2**32, 2**32)) + b"\0" * 300, "the file ends at"),
    (header(1) + tensor(start=2**64 - 32) + b"\0" * 300, "the file ends at"),
    (header(1) + tensor(start=8) + b"\0" * 300, "no multiple of 32"),
    (header(1) + tensor(dims=(33,), kind=8) + b"\0" * 300, "stores 32 together"),
    (header(1) + tensor(dims=()) + b"\0" * 300, "has 0 dimensions"),
    (header(1) + tensor(dims=(0,)) + b"\0" * 300, "a dimension of 0"),
    (header(1) + tensor("x" * 64) + b"\0" * 300, "is called"),
    (header(2) + 2 * tensor() + b"\0" * 300, "there twice"),
    (header(2) + tensor() + tensor("b", start=96) + b"\0" * 150, "the file ends at"),
    (header(2) + tensor() + tensor("b", start=128) + b"\0" * 400, "architecture 'None' is not known"),
    (header(2) + tensor() + tensor("b", start=64) + b"\0" * 400, "share bytes"),
    (header(0, 1) + text("general.alignment") + struct.pack("<II", 4, 24) + b"\0" * 64, "a power of two"),
])
def test_damaged_files(raw: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=message) as found:
        library.load(path)
    assert "\n" not in str(found.value)


def test_too_large_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf_model(build("gpt2"), tmp_path / "model.gguf")
    monkeypatch.setattr("saucier.folders.load.available_memory", lambda: 100_000)
    with pytest.raises(InputError, match="of memory, and 100 kB are free"):
        library.load(tmp_path / "model.gguf")


LARGE = (0, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def mutate(raw: bytearray, draw: np.random.Generator) -> bytes:
    """Change some bytes of a file, cut it, or write a large number into it."""
    for _ in range(int(draw.integers(1, 5))):
        place = int(draw.integers(0, min(len(raw), 4000)))
        match int(draw.integers(0, 4)):
            case 0:
                raw[place] = int(draw.integers(0, 256))
            case 1:
                raw[place:place + 8] = struct.pack("<Q", LARGE[int(draw.integers(0, len(LARGE)))])[:len(raw) - place]
            case 2:
                raw[place] ^= 1 << int(draw.integers(0, 8))
            case _:
                del raw[place:place + int(draw.integers(1, 40))]
    return bytes(raw)


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.nightly)])
def test_mutations_are_refused_or_load(count: int, tmp_path: Path) -> None:
    from tests.unit.text.test_gguf_tokenizers import byte_bpe

    write_gguf_model(build("llama", 300), tmp_path / "good.gguf", form="q8_0", tokenizer=byte_bpe())
    good, path, draw = (tmp_path / "good.gguf").read_bytes(), tmp_path / "bad.gguf", np.random.default_rng(7)
    refusals = []
    for _ in range(count):
        path.write_bytes(mutate(bytearray(good), draw))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                library.load(path, dtype="float32", device="cpu")
                library.load_tokenizer(path).encode("the soup was hot")
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > count // 3 and not any("\n" in one for one in refusals)

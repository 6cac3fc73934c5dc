"""A decoder that was packed: opened again without its weights and without torch, it writes what it wrote."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tests.unit.checkpoints.test_gguf import build
from tests.unit.generation.test_native import GOLDEN, LOWERED, OPTIONS, draw
from tests.unit.text.test_gguf_tokenizers import byte_bpe

import saucier
from saucier import config as c
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Integers, Quantization
from saucier.errors import InputError
from saucier.folders.arrays import open_published_arrays
from saucier.folders.write_gguf import write_gguf_model
from saucier.generation import formats
from saucier.generation import processors as p
from saucier.generation.native_model import PartTables
from saucier.generation.options import GenerationOptions
from saucier.generation.plan_feed import limit_threads, write_rows
from saucier.generation.rules import Prompt, make_search, make_search_rules
from saucier.generation.search import decode
from saucier.native import lowered, packed
from saucier.native.lowered import KeptTables, LoweredModel, find_chosen, find_lowered
from saucier.native.lowering import Tables
from saucier.opened import open_lowered

pytestmark = pytest.mark.filterwarnings("ignore:the matrices in")
SEARCHES: tuple[dict[str, object], ...] = (
    {}, {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "suppress_tokens": (7,), "eos_token_id": (3, 9)},
    {"bad_words_ids": ((5,), (8, 11)), "min_new_tokens": 6, "eos_token_id": 12, "forced_eos_token_id": 2},
    {"do_sample": True, "seed": 4, "top_k": 30, "num_return_sequences": 2},
    {"num_beams": 3, "eos_token_id": 9}, {"renormalize_logits": True})


class Decoder:
    """A tokenizer of numbers."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, ids))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(packed, "cache_folder", lambda name: tmp_path)
    return tmp_path


def refuse_tables() -> Tables:
    pytest.fail("tables are kept")


def copy_golden(name: str, folder: Path) -> Path:
    if not GOLDEN.is_dir():
        pytest.skip("no golden checkpoints here")
    folder.mkdir()
    for path in (GOLDEN / name).glob("*config.json"):
        shutil.copy(path, folder / path.name)
    shutil.copy(GOLDEN / name / "model.safetensors", folder)
    return folder


def load_both(folder: Path, form: str = "int8") -> tuple[saucier.Transformer, LoweredModel]:
    model, found = saucier.load(folder, format=form), find_lowered(folder, form, refuse_tables)
    assert found is not None
    return model, found


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("name", LOWERED)
def test_every_lowered_decoder_writes_what_the_loaded_one_writes(tmp_path: Path, name: str, form: str) -> None:
    assert find_lowered(GOLDEN / name, form, refuse_tables) is None
    model, found = load_both(copy_golden(name, tmp_path / "model"), form)
    assert found.config == model.config and found.generation == model.generation
    ids = draw(3, 6)
    for options in SEARCHES:
        wanted = saucier.generate(model, ids, **OPTIONS | options)
        assert write_rows(found, ids.tolist(), tokenizer=Decoder(), **OPTIONS | options) == wanted.tolist(), options


@pytest.mark.parametrize("form", ["float32", "int8"])
def test_a_model_in_few_bits_keeps_them(tmp_path: Path, form: str) -> None:
    quantize_model(saucier.load(copy_golden("gpt2", tmp_path / "model"), dtype="float32"),
                   Quantization(format=Integers(bits=4, group=32))).save(tmp_path / "own")
    model, found = load_both(tmp_path / "own", form)
    ids = draw(2, 7)
    assert write_rows(found, ids.tolist(), tokenizer=Decoder(), **OPTIONS) == saucier.generate(
        model, ids, **OPTIONS).tolist()


def test_a_model_in_few_bits_is_written_by_the_kernels_without_a_format(tmp_path: Path) -> None:
    """A file of GGUF: its own parts widen every matrix for every token. The second time without its weights; a model of
    floats is left to its own parts, whatever is packed of it."""
    made = tmp_path / "model.gguf"
    write_gguf_model(build("llama", 300), made, form="q4_0", tokenizer=byte_bpe())
    assert open_lowered(made, None) is None
    first, options = saucier.write(made, "a b", tokens=9, temperature=0).text, OPTIONS | {"max_new_tokens": 9}
    opened, found, ids = saucier.open(made), open_lowered(made, None), draw(2, 7)
    assert found is not None and opened.model.format == "float32"
    assert saucier.open(made, dtype="float32").model.format is None, "where something else is asked for"
    assert write_rows(found.model, ids.tolist(), tokenizer=Decoder(), **options) == saucier.generate(
        opened.model, ids, **options).tolist()
    assert saucier.write(made, "a b", tokens=9, temperature=0).text == first
    load_both(copy_golden("llama", tmp_path / "model"), "int8")
    assert open_lowered(tmp_path / "model", None) is None


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("name", [*LOWERED, "gpt2-fp16-checkpoint", "gpt2-sharded"])
def test_what_is_packed_without_a_model_is_what_is_packed_with_it(
        tmp_path: Path, cache: Path, name: str, form: str) -> None:
    """File and record, to the last byte."""
    if not GOLDEN.is_dir():
        pytest.skip("no golden checkpoints here")
    kept = []
    for way in (lambda: saucier.load(GOLDEN / name, format=form),
                lambda: open_published_arrays(GOLDEN / name, form, PartTables)):
        assert way() is not None
        written = [*cache.glob("folder-*"), *cache.glob(f"{form}-*")]
        kept.append({path.name: path.read_bytes() for path in written})
        for path in written:
            path.unlink()
    names = [json.loads(next(text for path, text in one.items() if path.startswith("folder"))) for one in kept]
    assert set(names[0].pop("weights")) >= set(names[1].pop("weights")) and names[0] == names[1]
    assert [text for path, text in kept[0].items() if path.startswith(form)] == [
        text for path, text in kept[1].items() if path.startswith(form)]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom"])
def test_floats_are_read_as_they_are_stored(cache: Path, name: str) -> None:
    if not GOLDEN.is_dir():
        pytest.skip("no golden checkpoints here")
    model, found = saucier.load(GOLDEN / name, format="float32"), open_published_arrays(
        GOLDEN / name, "float32", PartTables)
    assert found is not None and found.config == model.config
    ids = draw(3, 6)
    assert write_rows(found, ids.tolist(), tokenizer=Decoder(), **OPTIONS) == saucier.generate(
        model, ids, **OPTIONS).tolist()
    assert not list(cache.glob("*.matrices")) and not list(cache.glob("folder-*"))


def test_auto_is_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, threads = copy_golden("llama", tmp_path / "model"), limit_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)  # tests before may have set another number
    model = saucier.load(folder, dtype="float32")

    def find() -> tuple[str | None, ...]:
        both = find_chosen(folder, PartTables, threads), open_published_arrays(folder, "auto", PartTables)
        return tuple(None if one is None else one.weights.form for one in both)

    assert find() == (None, "float32"), "never measured: nothing is lost"
    formats.write_choice(model, {"format": "int8"})
    assert find() == (None, "int8") and find() == ("int8", "int8")
    formats.write_choice(model, {"format": packed.OWN_PARTS})
    assert find() == (None, None)


@pytest.mark.parametrize("name", ["bart", "bert", "bert-pytorch-bin", "gpt2-double-heads",
                                  "gpt2-sequence-classification", "reformer", "t5", "transfo-xl", "xlnet"])
def test_what_is_not_plain_is_left_to_load(cache: Path, name: str) -> None:
    assert not GOLDEN.is_dir() or open_published_arrays(GOLDEN / name, "int8", refuse_tables) is None
    assert not list(cache.glob("*.matrices"))


@pytest.mark.parametrize("fault", ["missing", "unknown", "longer", "turned", "whole numbers", "cut"])
def test_wrong_weights_are_left_to_load(tmp_path: Path, cache: Path, fault: str) -> None:
    """Nothing that a kernel would read beyond its end is lowered, even where the numbers of all weights are right."""
    folder = copy_golden("gpt2", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    gain, bias = (next(name for name in weights if name.endswith(f"h.0.ln_1.{end}")) for end in ("weight", "bias"))
    match fault:
        case "missing":
            del weights[gain]
        case "unknown":
            weights["another"] = weights[gain]
        case "longer":
            weights[gain], weights[bias] = np.append(weights[gain], weights[gain][:1]), weights[bias][1:]
        case "turned":
            table = next(name for name in weights if name.endswith("wte.weight"))
            weights[table] = weights[table].reshape(weights[table].shape[::-1])
        case "whole numbers":
            weights[gain] = weights[gain].astype(np.int32)
    save_file(weights, folder / "model.safetensors")
    if fault == "cut":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    assert open_published_arrays(folder, "int8", refuse_tables) is None
    assert not list(cache.glob("*.matrices"))
    with pytest.raises(InputError):
        saucier.load(folder, format="int8")


@pytest.mark.parametrize(("options", "fault"), [
    ({"max_new_tokens": 10**6}, "max_new_tokens: 5 tokens of prompt"),
    ({"max_new_tokens": 3, "top_q": 1}, "top_q: unknown option"),
    ({"max_new_tokens": 3, "suppress_tokens": (10**6,)}, "suppress_tokens: token 1000000 is outside")])
def test_the_same_is_refused(tmp_path: Path, options: dict[str, object], fault: str) -> None:
    model, found = load_both(copy_golden("gpt2", tmp_path / "model"))
    said = []
    for write in (lambda: saucier.generate(model, draw(1, 5), **options),
                  lambda: write_rows(found, draw(1, 5).tolist(), tokenizer=Decoder(), **options)):
        with pytest.raises(InputError, match=fault) as error:
            write()
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_record_holds_as_long_as_everything_is_as_it_was(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_golden("gpt2", tmp_path / "model")

    def holds() -> bool:
        return find_lowered(folder, "int8", refuse_tables) is not None

    load_both(folder)
    record, = cache.glob("folder-*.json")
    text = record.read_text()
    assert find_lowered(folder, "int4", refuse_tables) is None and find_lowered(folder, "auto", refuse_tables) is None
    for broken in ("", "{}", "[]", text[:-40], text.replace('"packed": "int8', '"packed": "int4'),
                   text.replace('"kind"', '"kin"')):
        record.write_text(broken)
        assert not holds(), broken[:50]
    record.write_text(text)
    assert holds()
    with monkeypatch.context() as patch:
        patch.setattr(lowered, "VERSION", "another")
        assert not holds()
    (folder / "adapter_config.json").write_text("{}")
    assert not holds(), "another file may make it another kind of folder"
    load_both(folder)
    os.utime(folder / "config.json", ns=(1, 1))
    assert not holds()
    load_both(folder)
    next(cache.glob(f"*{packed.SUFFIX}")).write_bytes(b"")
    assert not holds()
    load_both(folder)
    shutil.rmtree(folder)
    assert not holds()


def test_tables_are_kept_for_many_places_and_computed_for_more() -> None:
    made: dict[str, object] = {}
    plain, kept = PartTables(), KeptTables(made, PartTables, 40)
    dynamic = c.Rotary(scaling=c.DynamicScaling(factor=2.0, length=16))
    sees = c.Combined(kind="and", terms=(c.Causal(), c.Strided(stride=3)))
    for places in (1, 9, 40, 41):
        for ours, theirs in (
                (kept.turns(c.Rotary(), places, 8), plain.turns(c.Rotary(), places, 8)),
                (kept.turns(dynamic, places, 8), plain.turns(dynamic, places, 8)),
                (kept.biases(c.Alibi(), 4, places, None), plain.biases(c.Alibi(), 4, places, None)),
                (kept.waves(c.Sinusoidal(length=64), places, 6), plain.waves(c.Sinusoidal(length=64), places, 6)),
                (kept.visible(sees, places), plain.visible(sees, places))):
            assert np.array_equal(ours, theirs) and ours.flags.c_contiguous, places
    assert len(made) == 5


IDS = torch.tensor([[3, 1, 3, 1, 2], [0, 0, 4, 5, 4]])
PROCESSORS: tuple[tuple[p.Processor, dict[str, object]], ...] = (
    (p.penalize_repetition, {"penalty": 1.3}), (p.forbid_repeated_ngrams, {"size": 1}),
    (p.forbid_repeated_ngrams, {"size": 2}), (p.forbid_repeated_ngrams, {"size": 9}),
    (p.forbid_bad_word, {"word": (4,)}), (p.forbid_bad_word, {"word": (1, 2, 0)}), (p.suppress, {"tokens": (1, 5)}),
    (p.force_at, {"tokens": (2, 3), "length": 5}), (p.force_at, {"tokens": (2,), "length": 4}), (p.make_finite, {}),
    (p.apply_temperature, {"temperature": 0.7}))


@pytest.mark.parametrize(("change", "settings"), PROCESSORS)
def test_both_libraries_give_the_same_scores(change: p.Processor, settings: dict[str, object]) -> None:
    scores = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    scores[0, 2], scores[1, 3] = float("nan"), float("-inf")
    before = scores.clone()
    found, other = change(IDS, scores, **settings), change(IDS.numpy(), scores.numpy(), **settings)
    assert isinstance(other, np.ndarray) and other.dtype == np.float32
    np.testing.assert_array_equal(found.numpy(), other)
    assert torch.equal(scores.nan_to_num(), before.nan_to_num()), "what is given stays"


def test_both_libraries_end_and_fill_rows_alike() -> None:
    options = GenerationOptions(eos_token_id=(0, 4), pad_token_id=1, stop_strings=("5 2",), repetition_penalty=1.2)
    given = torch.randn(9, 2, 6, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    found = []
    for ids, real, scores in ((IDS, mask, given), (IDS.numpy(), mask.numpy(), given.numpy())):
        prompt, steps = Prompt(ids, real), iter(scores)
        rules = make_search_rules(options, prompt, limit=14, tokenizer=Decoder())
        heard: list[list[int]] = []
        rows = decode(lambda _, steps=steps: next(steps), make_search(options, ids, rules),
                      lambda tokens, heard=heard: heard.append(tokens.tolist()))
        found.append((rows.tolist(), heard))
    assert found[0] == found[1] and [1, 1] in [row[-2:] for row in found[0][0]], "one row ends early, and is filled"

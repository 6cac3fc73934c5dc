"""Engines on a CPU, each in every number format that it has: GPT-2 124M shape, random weights, greedy; and the floor.
Then LLaMA 300M, and two encoder-decoders with beams.

`python -m benchmarks engines`; `--quick` tries it with tiny sizes. The floor is how fast a token's bytes can be read.
"""

from __future__ import annotations

import atexit
import importlib.util
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.decoding import prompt, timed, transformers
from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, Section, at_least

SHAPE = {"dim": 768, "layers": 12, "heads": 12, "vocab": 50257, "length": 1024, "prompt": 16, "new": 48}
QUICK = SHAPE | {"dim": 64, "layers": 1, "heads": 2, "vocab": 512, "length": 128, "new": 8}
LONG = SHAPE | {"prompt": 1008, "new": 1}
QUICK_LONG = QUICK | {"prompt": 100, "new": 1}
LLAMA = {"family": "llama", "dim": 1024, "layers": 24, "heads": 16, "kv_heads": 16, "hidden": 2816, "vocab": 32000,
         "prompt": 16, "new": 48}
QUICK_LLAMA = LLAMA | {"dim": 64, "layers": 1, "heads": 2, "kv_heads": 2, "hidden": 96, "vocab": 512, "new": 8}
"""LLaMA of 308 million parameters in its matrices."""
PAIRS: dict[str, dict[str, Any]] = {
    "marian": {"dim": 512, "layers": 6, "heads": 8, "hidden": 2048, "vocab": 58101, "length": 512},
    "t5": {"dim": 768, "layers": 12, "heads": 12, "hidden": 3072, "vocab": 32128}}
"""Family -> the shape of its base size."""
TRANSLATED = {"prompt": 24, "new": 32, "beams": 4}
QUICK_PAIRS = {family: shape | {"dim": 64, "layers": 1, "heads": 2, "hidden": 96, "vocab": 512}
               for family, shape in PAIRS.items()}
FORMATS = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "int4": 0.5 + 2 / 32}
"""Format -> bytes of a weight; int4 with its scales, one of 16 bits for 32 weights."""
CACHED = {"float32": 4.0, "bfloat16": 2.0, "int8": 2.0, "int4": 2.0}
"""Format -> bytes of a key or value."""
LARGEST_READ = 2**29
"""Bytes of what is read to see how fast memory is, at most."""


def build_model(settings: dict[str, Any]) -> Any:
    """Return our GPT-2, or another family, of random weights, in float32."""
    import torch

    from saucier import build
    from saucier.families import FAMILIES

    torch.manual_seed(0)
    named = ("dim", "layers", "heads", "vocab", "length", "kv_heads", "hidden")
    family = FAMILIES[settings.get("family", "gpt2")]
    return build(family(**{key: settings[key] for key in named if key in settings})).eval()


def saucier(settings: dict[str, Any]) -> Turn:
    """Our `generate` by the model's parts, or compiled."""
    from saucier import generate

    model, ids, new = build_model(settings), prompt(settings), settings["new"]
    model = model.bfloat16() if settings["format"] == "bfloat16" else model
    return timed(lambda: generate(model, ids, max_new_tokens=new, compile=settings.get("compile", False)),
                 len(ids) * new)


def native(settings: dict[str, Any]) -> Turn:
    """Our `generate` by the kernels in C."""
    from saucier import generate
    from saucier.generation.decoding import Native

    model, ids, new = build_model(settings), prompt(settings), settings["new"]
    engine = Native(format=settings["format"])
    return timed(lambda: generate(model, ids, max_new_tokens=new, engine=engine), len(ids) * new)


def save_peer(settings: dict[str, Any], folder: Path) -> list[str]:
    """Write a model of random weights as transformers does, with a tokenizer of made-up words; return these."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    if settings.get("family") == "llama":
        LlamaForCausalLM(LlamaConfig(
            hidden_size=settings["dim"], num_hidden_layers=settings["layers"], num_attention_heads=settings["heads"],
            num_key_value_heads=settings["kv_heads"], intermediate_size=settings["hidden"],
            vocab_size=settings["vocab"], bos_token_id=0, eos_token_id=0)).save_pretrained(folder)
        return save_words(settings["vocab"], folder)
    config = GPT2Config(n_embd=settings["dim"], n_layer=settings["layers"], n_head=settings["heads"],
                        vocab_size=settings["vocab"], n_positions=settings["length"], bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return save_words(settings["vocab"], folder)


def save_words(vocab: int, folder: Path, last: str | None = None) -> list[str]:
    """Write a tokenizer of made-up words next to a model, `last` the word for padding; return them."""
    import json

    from transformers import GPT2Tokenizer

    words = ["<|endoftext|>", *(f"w{number}" for number in range(1, vocab))]
    words[-1] = last or words[-1]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    GPT2Tokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), pad_token=last).save_pretrained(folder)
    return words


def ctranslate2(settings: dict[str, Any]) -> Turn:
    """CTranslate2's `Generator`, of the same shape."""
    import ctranslate2 as peer
    import torch
    from ctranslate2.converters import TransformersConverter

    with TemporaryDirectory() as folder:
        words = save_peer(settings, Path(folder) / "published")
        converted = TransformersConverter(f"{folder}/published").convert(f"{folder}/converted")
        generator = peer.Generator(converted, compute_type=settings["format"], intra_threads=torch.get_num_threads())
    tokens, new = [[words[token] for token in row] for row in prompt(settings).tolist()], settings["new"]

    def turn() -> float:
        begin = time.perf_counter()
        found = generator.generate_batch(tokens, max_length=new, min_length=new, include_prompt_in_result=False)
        assert all(len(one.sequences_ids[0]) == new for one in found), "no row may end early"
        return float(len(tokens) * new / (time.perf_counter() - begin))

    turn()
    return turn


GGUF = {"float32": "float32", "bfloat16": "bfloat16", "int8": "q8_0", "int4": "q4_0"}
"""Format -> the one of llama.cpp with as many bits."""


def llama_cpp(settings: dict[str, Any]) -> Turn:
    """llama.cpp through its Python binding, of the same shape; a step reads a token of each row, as ours does."""
    import llama_cpp as peer
    import torch

    import saucier

    ids, new = prompt(settings).tolist(), settings["new"]
    with TemporaryDirectory() as folder:
        save_peer(settings, Path(folder) / "published")
        saucier.export(f"{folder}/published", to="gguf", out=f"{folder}/model.gguf", format=GGUF[settings["format"]])
        given = peer.llama_model_default_params()
        given.use_mmap = False
        model = peer.llama_model_load_from_file(f"{folder}/model.gguf".encode(), given)
    options = peer.llama_context_default_params()
    options.n_seq_max, options.n_ctx = len(ids), len(ids) * -(-(len(ids[0]) + new) // 256) * 256
    options.n_threads = options.n_threads_batch = torch.get_num_threads()
    context = peer.llama_init_from_model(model, options)
    batch = peer.llama_batch_init(sum(map(len, ids)), 0, 1)

    def read(rows: list[list[int]], start: int) -> list[int]:
        """Read tokens of each row from a place on; return the likeliest next one of each."""
        batch.n_tokens = sum(map(len, rows))
        listed = [(row, start + place, token) for row, tokens in enumerate(rows) for place, token in enumerate(tokens)]
        for number, (row, place, token) in enumerate(listed):
            batch.token[number], batch.pos[number], batch.n_seq_id[number] = token, place, 1
            batch.seq_id[number][0], batch.logits[number] = row, place + 1 == start + len(rows[row])
        assert peer.llama_decode(context, batch) == 0
        return [int(np.ctypeslib.as_array(peer.llama_get_logits_ith(context, number), (settings["vocab"],)).argmax())
                for number in range(len(listed)) if batch.logits[number]]

    def turn() -> float:
        begin = time.perf_counter()
        peer.llama_memory_clear(peer.llama_get_memory(context), True)
        following = read(ids, 0)
        for step in range(1, new):
            following = read([[token] for token in following], len(ids[0]) + step - 1)
        return float(len(ids) * new / (time.perf_counter() - begin))

    turn()
    return turn


def memory(settings: dict[str, Any]) -> Turn:
    """How many times a second the bytes of a token can be read, by as many threads."""
    import torch

    held = torch.ones(max(1, min(int(settings["bytes"]), LARGEST_READ) // 4))

    def turn() -> float:
        begin = time.perf_counter()
        held.sum()
        return held.nbytes / (time.perf_counter() - begin) / float(settings["bytes"])

    turn()
    return turn


def translation(settings: dict[str, Any]) -> Turn:
    """Our `generate` with beams by an encoder-decoder of random weights, by the kernels in C or by its parts."""
    import torch

    from saucier import build, generate
    from saucier.families import FAMILIES
    from saucier.generation.decoding import Native

    torch.manual_seed(0)
    shape = {name: settings[name] for name in PAIRS[settings["family"]]}
    model = build(FAMILIES[settings["family"]](**shape)).eval()
    file = save_random_map(settings["vocab"], settings["each"]) if settings.get("each") else None
    engine = Native(format=settings["format"], vocabulary_map=file) if settings["native"] else None
    ids, new = prompt(settings), settings["new"]
    options = {"num_beams": settings["beams"], "max_new_tokens": new, "min_new_tokens": new, "eos_token_id": 1,
               "pad_token_id": 0, "decoder_start_token_id": 0, "engine": engine}
    return timed(lambda: generate(model, ids, torch.ones_like(ids), **options), len(ids) * new - 1)


def save_random_map(vocab: int, each: int) -> str:
    """Write a map of `each` random candidates a source token, and ten times as many always; return its file."""
    from saucier.generation import VocabularyMap

    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)  # it is read at every turn
    lists = np.random.default_rng(0).integers(0, vocab, vocab * each)
    always, starts, file = np.arange(min(vocab, 10 * each)), np.arange(vocab + 1) * each, f"{folder.name}/map"
    VocabularyMap(vocab, always, starts, lists).save(file)
    return file


def build_peer(settings: dict[str, Any]) -> Any:
    """Return the same shape of random weights as transformers has it."""
    import transformers

    ends: dict[str, Any] = {"pad_token_id": settings["vocab"] - 1, "eos_token_id": 0, "vocab_size": settings["vocab"],
                            "decoder_start_token_id": settings["vocab"] - 1, "d_model": settings["dim"]}
    match settings["family"]:
        case "marian":
            sides = {f"{side}_{what}": settings[name] for side in ("encoder", "decoder")
                     for what, name in (("layers", "layers"), ("attention_heads", "heads"), ("ffn_dim", "hidden"))}
            return transformers.MarianMTModel(transformers.MarianConfig(
                **ends, **sides, max_position_embeddings=settings["length"], activation_function="swish",
                scale_embedding=True, forced_eos_token_id=None))
        case "t5":
            return transformers.T5ForConditionalGeneration(transformers.T5Config(
                **ends, num_layers=settings["layers"], num_heads=settings["heads"], d_ff=settings["hidden"],
                d_kv=settings["dim"] // settings["heads"]))


def ctranslate2_pair(settings: dict[str, Any]) -> Turn:
    """CTranslate2's `Translator`, of the same shape and as many beams."""
    import ctranslate2 as peer
    import torch
    from ctranslate2.converters import TransformersConverter

    with TemporaryDirectory() as folder:
        build_peer(settings).save_pretrained(f"{folder}/published")
        words = save_words(settings["vocab"], Path(folder) / "published", last="<pad>")
        converted = TransformersConverter(f"{folder}/published").convert(f"{folder}/converted")
        translator = peer.Translator(converted, compute_type=settings["format"], intra_threads=torch.get_num_threads())
    tokens = [[words[token % (len(words) - 2) + 1] for token in row] for row in prompt(settings).tolist()]
    new, beams = settings["new"], settings["beams"]

    def turn() -> float:
        begin = time.perf_counter()
        found = translator.translate_batch(tokens, beam_size=beams, max_decoding_length=new, min_decoding_length=new)
        assert all(len(one.hypotheses[0]) == new for one in found), "no row may end early"
        return float(len(tokens) * new / (time.perf_counter() - begin))

    turn()
    return turn


CONTENDERS: dict[str, Contender] = {"saucier": saucier, "native": native, "transformers": transformers,
                                    "ctranslate2": ctranslate2, "memory": memory, "llama_cpp": llama_cpp,
                                    "translation": translation, "ctranslate2_pair": ctranslate2_pair}


def count_bytes(shape: dict[str, Any], form: str) -> float:
    """Return the bytes that a token reads: every matrix once, the output layer too, and the keys and values of the
    prompt and of half of what is written.
    """
    dim, llama = shape["dim"], shape.get("family") == "llama"
    block = 4 * dim**2 + (3 * shape["hidden"] * dim if llama else 8 * dim**2)
    matrices = shape["layers"] * block + shape["vocab"] * dim
    heads = shape["heads"]
    cached = 2 * shape["layers"] * dim * shape.get("kv_heads", heads) // heads * (shape["prompt"] + shape["new"] // 2)
    return float(matrices * FORMATS[form] + cached * CACHED[form])


def list_contenders(shape: dict[str, Any], rows: int) -> dict[str, dict[str, Any]]:
    """Return who takes part, by name, with what each is told."""
    told = shape | {"rows": rows}
    found = {"saucier: float32": told | {"format": "float32"},
             "saucier: bfloat16": told | {"format": "bfloat16"}}
    if "family" not in shape:
        found["transformers: float32"] = told | {"dtype": "float32"}
    if shape is SHAPE:  # compiling alone takes a minute
        found["saucier: float32 compiled"] = told | {"format": "float32", "compile": True}
    if importlib.util.find_spec("ctranslate2") is not None:
        found |= {f"ctranslate2: {form}": told | {"format": form} for form in ("float32", "int8")}
    if importlib.util.find_spec("llama_cpp") is not None:
        found |= {f"llama_cpp: {form}": told | {"format": form} for form in FORMATS}
    found |= {f"native: {form}": told | {"format": form} for form in FORMATS}
    if rows == 1 and shape["new"] > 1:
        found |= {f"memory: {form}": {"bytes": count_bytes(shape, form)} for form in FORMATS}
    return found


def race_by_format(told: dict[str, dict[str, Any]], rounds: int) -> dict[str, float]:
    """Race those of one number format after those of another: all at once would fill the memory."""
    found: dict[str, float] = {}
    for form in FORMATS:
        found |= race("benchmarks.engines", {name: one for name, one in told.items() if form in name}, rounds)
    return {name: found[name] for name in told}


def compare(found: dict[str, float], rows: int, model: str) -> list[Row]:
    """Return a row for each format, against the best of the others, and the share of the floor."""
    others = [name for name in found if name.split(":")[0] in ("transformers", "ctranslate2", "llama_cpp")]
    lines = []
    for form in FORMATS:
        ours, same = found[f"native: {form}"], [name for name in others if name.endswith(form)]
        against = max(same or others, key=found.__getitem__, default="saucier: float32")
        lines.append(at_least(f"{model}, batch {rows}: native {form}, against {against}", f"{ours:.1f}",
                              f"{found[against]:.1f}", ours / found[against], 1.0 if rows == 1 else 1.5))
        lines.append(at_least(f"{model}, batch {rows}: native {form}, against our parts in float32", f"{ours:.1f}",
                              f"{found['saucier: float32']:.1f}", ours / found["saucier: float32"]))
        if (floor := found.get(f"memory: {form}")) is not None:
            lines.append(at_least(f"{model}: share of the floor, {form}", f"{ours:.1f}", f"{floor:.1f}", ours / floor,
                                  None if form == "int4" else 0.85))
    return lines


def compare_pairs(shapes: dict[str, dict[str, Any]], rounds: int) -> tuple[list[Row], list[str]]:
    """Return rows and notes of the encoder-decoders: each format against the same bits, and against our parts."""
    lines, notes = [], []
    for family, shape in shapes.items():
        for batch in (1, 8):
            told = shape | TRANSLATED | {"family": family, "rows": batch}
            names = {f"translation: native {form}": told | {"format": form, "native": True} for form in FORMATS}
            names["translation: parts float32"] = told | {"format": "float32", "native": False}
            names["translation: native int8, vocabulary map"] = told | {"format": "int8", "native": True, "each": 20}
            if importlib.util.find_spec("ctranslate2") is not None:
                names |= {f"ctranslate2_pair: {form}": told | {"format": form} for form in ("float32", "int8")}
            found = race_by_format(names, rounds)
            for form in FORMATS:
                ours, same = found[f"translation: native {form}"], f"ctranslate2_pair: {form}"
                against = same if same in found else "translation: parts float32"
                lines.append(at_least(f"{family}, {batch} sources: native {form}, against {against}", f"{ours:.1f}",
                                      f"{found[against]:.1f}", ours / found[against],
                                      1.3 if against == same else None))
            limited, whole = (found[f"translation: native int8{more}"] for more in (", vocabulary map", ""))
            lines.append(at_least(f"{family}, {batch} sources: int8 with 20 candidates a source token, against all",
                                  f"{limited:.1f}", f"{whole:.1f}", limited / whole))
            notes.append(f"{family}, {batch} sources, tokens a second: " + ", ".join(
                f"{name} {value:.1f}" for name, value in found.items()) + ".")
    return lines, notes


def measure(quick: bool) -> Section:
    """Compare at 1 and 8 rows."""
    shape, rounds = (QUICK, TRIED) if quick else (SHAPE, 5)
    rows, notes = [], []
    llama, long = (QUICK_LLAMA, QUICK_LONG) if quick else (LLAMA, LONG)
    for name, held, batch in (("GPT-2", shape, 1), ("GPT-2", shape, 8), ("LLaMA", llama, 1),
                              ("GPT-2, first token after a long prompt", long, 1)):
        found = race_by_format(list_contenders(held, batch), rounds)
        rows += compare(found, batch, name)
        notes.append(f"{name}, batch {batch}, tokens a second: " + ", ".join(
            f"{one} {value:.1f}" for one, value in found.items() if not one.startswith("memory")) + ".")
    lines, more = compare_pairs(QUICK_PAIRS if quick else PAIRS, rounds)
    rows, notes = rows + lines, notes + more
    if importlib.util.find_spec("llama_cpp") is None:
        notes.append("llama.cpp was not measured: llama-cpp-python is not installed.")
    about = (f"GPT-2 124M shape ({shape['layers']} layers of {shape['dim']}, {shape['vocab']} tokens), random weights, "
             f"{shape['new']} new tokens after {shape['prompt']}, greedy, the prompt's pass included. New tokens a "
             "second, all rows together. A format's floor is how often its bytes can be read in a second. LLaMA has "
             f"{LLAMA['layers']} layers of {LLAMA['dim']}. Marian and T5 of base size write {TRANSLATED['new']} tokens "
             f"with {TRANSLATED['beams']} beams from sources of {TRANSLATED['prompt']}, the encoder's pass included.")
    return Section("Engines", about, rows, notes)

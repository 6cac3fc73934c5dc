"""Encoding texts: BERT-base and MiniLM on batches of one length and of many, against `transformers` and its exports;
and whole texts to vectors by the published MiniLM, against `sentence-transformers`.

Letters: B texts, L length of the longest.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, Section, at_least

SHAPE = {"dim": 768, "layers": 12, "heads": 12, "vocab": 30522, "texts": 32, "shortest": 16, "longest": 128,
         "passes": 2}
CASES = {"BERT-base, 1 text of 128": {"texts": 1, "shortest": 128}, "BERT-base, 8 texts of 128":
         {"texts": 8, "shortest": 128}, "MiniLM, 32 texts of 4 to 64":
         {"dim": 384, "layers": 6, "shortest": 4, "longest": 64}}
"""Case -> what is other than in `SHAPE`, for the native kernels."""
KINDS = {"product": "products with what follows them", "attend_rows": "attention", "norm": "norms"}
"""Kinds of steps as they are told."""
PASSES = 15
"""Passes whose steps are timed; the median counts."""
QUICK = SHAPE | {"dim": 64, "layers": 2, "heads": 2, "vocab": 512, "texts": 4, "passes": 1}


def padded(settings: dict[str, Any]) -> tuple[Any, Any, int]:
    """Return ids [B, L], mask [B, L] and the number of real tokens; lengths are drawn evenly, seed 0."""
    import torch

    random = np.random.default_rng(0)
    lengths = random.integers(settings["shortest"], settings["longest"], size=settings["texts"], endpoint=True)
    ids = torch.from_numpy(random.integers(1, settings["vocab"], size=(settings["texts"], int(lengths.max()))))
    mask = torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None]
    return ids, mask.long(), int(lengths.sum())


def timed(model: Any, settings: dict[str, Any]) -> Turn:
    """Return a turn of a model in its number format: so many passes, in real tokens a second."""
    import torch

    ids, mask, _ = padded(settings)
    model = model.to(getattr(torch, settings["dtype"])).eval()

    def once() -> object:
        with torch.inference_mode():
            return model(ids, mask).last_hidden_state

    return repeat(once, settings)


def repeat(once: Any, settings: dict[str, Any]) -> Turn:
    """Return a turn: so many passes, in real tokens a second."""
    real = padded(settings)[2]
    once()

    def turn() -> float:
        begin = time.perf_counter()
        for _ in range(settings["passes"]):
            once()
        return float(settings["passes"] * real / (time.perf_counter() - begin))

    return turn


def build_model(settings: dict[str, Any]) -> Any:
    """Return our encoder, with its pooler and without a head, as the others."""
    from saucier.families import FAMILIES
    from saucier.model import build

    config = FAMILIES["bert"](**{key: settings[key] for key in ("dim", "layers", "heads", "vocab")})
    return build(config.model_copy(update={"head": None}))


def saucier(settings: dict[str, Any]) -> Turn:
    """Our encoder by its parts."""
    return timed(build_model(settings), settings)


def native(settings: dict[str, Any]) -> Turn:
    """Our encoder by the kernels in C, in a number format."""
    from saucier.generation.decoding import Native
    from saucier.generation.native_encoder import use_native

    return timed(use_native(build_model(settings).eval(), Native(format=settings["format"])), settings)


def build_peer(settings: dict[str, Any]) -> Any:
    """Return a `BertModel` of random weights."""
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(
        hidden_size=settings["dim"], num_hidden_layers=settings["layers"], num_attention_heads=settings["heads"],
        vocab_size=settings["vocab"], intermediate_size=4 * settings["dim"])).eval()


def build_graph(settings: dict[str, Any]) -> Any:
    """Return that model as exporters take it: two inputs, one output."""
    import torch

    class Graph(torch.nn.Module):
        """The vectors of ids and their mask."""

        def __init__(self) -> None:
            """Hold the model."""
            super().__init__()
            self.model = build_peer(settings)

        def forward(self, ids: Any, mask: Any) -> Any:
            """Shapes: [B, L] twice -> [B, L, D]."""
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    return Graph().eval()


def transformers(settings: dict[str, Any]) -> Turn:
    """`BertModel`, which uses PyTorch's fused attention."""
    return timed(build_peer(settings), settings)


def onnxruntime(settings: dict[str, Any]) -> Turn:
    """The exported `BertModel`, in float32 or with its matrices in int8 and activations rounded as they come."""
    import onnxruntime as peer
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    ids, mask, _ = padded(settings)
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        axes = {0: "texts", 1: "length"}
        torch.onnx.export(build_graph(settings), (ids, mask), path, input_names=["ids", "mask"], dynamo=False,
                          output_names=["hidden"], dynamic_axes={"ids": axes, "mask": axes})
        if settings["format"] == "int8":
            quantize_dynamic(path, f"{folder}/int8.onnx", weight_type=QuantType.QInt8, per_channel=True)
            path = f"{folder}/int8.onnx"
        options = peer.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = peer.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {"ids": ids.numpy(), "mask": mask.numpy()}
    return repeat(lambda: session.run(["hidden"], given), settings)


def openvino(settings: dict[str, Any]) -> Turn:
    """The converted `BertModel`; in int8 by NNCF, matrices and activations."""
    import openvino as peer
    import torch

    ids, mask, _ = padded(settings)
    model, given = peer.convert_model(build_graph(settings), example_input=(ids, mask)), [ids.numpy(), mask.numpy()]
    if settings["format"] == "int8":
        import nncf

        model = nncf.quantize(model, nncf.Dataset([given] * 4), model_type=nncf.ModelType.TRANSFORMER)
    hint = "bf16" if settings["format"] == "bfloat16" else "f32"
    compiled = peer.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": torch.get_num_threads(),
                                                 "INFERENCE_PRECISION_HINT": hint})
    return repeat(lambda: compiled(given), settings)


def read_column(path: Path, column: str, count: int) -> list[str]:
    """Return the first texts of a column of a .tsv file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row[column] for row in islice(rows, count)]


def read_texts(kind: str, count: int) -> list[str]:
    """Return texts: short ones are single sentences; of mixed ones an eighth is news, and an eighth reviews that are
    longer than the model reads.
    """
    data = needed("classification")
    texts = read_column(data / "stsb" / "dev.tsv", "sentence2", count)
    if kind == "mixed":
        news, places = read_column(data / "ag_news" / "test.tsv", "text", count), range(3, count, 8)
        with (data / "movie_reviews_long" / "dev.jsonl").open(encoding="utf-8") as file:
            reviews = [json.loads(line)["text"] for line in islice(file, len(places))]
        for place, review in zip(places, reviews, strict=False):
            texts[place], texts[place - 2] = review, news[place]
    return texts


def encode_texts(once: Callable[[list[str]], Any], settings: dict[str, Any]) -> Turn:
    """Return a turn: all texts to vectors, tokenizing included, in texts a second."""
    texts = read_texts(settings["texts"], settings["count"])
    once(texts)

    def turn() -> float:
        begin = time.perf_counter()
        once(texts)
        return len(texts) / (time.perf_counter() - begin)

    return turn


def open_embedder(form: str | None) -> Callable[[list[str]], Any]:
    """Return what gives texts vectors by the published MiniLM: its own parts, or the kernels in a number format."""
    import saucier

    folder = weights()
    model, tokenizer = saucier.load(folder, dtype="float32", device="cpu", format=form), saucier.load_tokenizer(folder)
    return lambda texts: saucier.embed(model, texts, tokenizer=tokenizer)


def embedder(settings: dict[str, Any]) -> Turn:
    """`saucier.embed`."""
    return encode_texts(open_embedder(settings["format"]), settings)


def sentence_transformers(settings: dict[str, Any]) -> Turn:
    """`SentenceTransformer.encode`, by PyTorch or by OpenVINO. Raises `AssertionError` for other vectors in float32."""
    import torch
    from sentence_transformers import SentenceTransformer

    form, torch_alone = settings["format"], settings["backend"] == "torch"
    hint = {"INFERENCE_NUM_THREADS": str(torch.get_num_threads()),
            "INFERENCE_PRECISION_HINT": "bf16" if form == "bfloat16" else "f32"}
    model: Any = SentenceTransformer(weights(), device="cpu", backend=settings["backend"], model_kwargs={
        "dtype": getattr(torch, form)} if torch_alone else {"ov_config": hint})
    if form == "int8":
        round_graph(model, read_texts(settings["texts"], settings["count"]))
    if form == "float32":
        texts = read_texts(settings["texts"], settings["count"])
        cosines = torch.cosine_similarity(open_embedder(form)(texts), torch.from_numpy(model.encode(texts)))
        assert float(cosines.min()) > SAME, f"vectors differ: the least cosine is {float(cosines.min())}"
    return encode_texts(lambda texts: model.encode(texts, batch_size=32, show_progress_bar=False), settings)


def round_graph(model: Any, texts: list[str]) -> None:
    """Round matrices and activations of an OpenVINO graph to int8 by NNCF, calibrated on the texts themselves."""
    import nncf

    inner = model[0].auto_model
    given = [{name: value.numpy() for name, value in model.tokenize(texts[start:start + 32]).items()
              if name in inner.input_names} for start in range(0, len(texts), 32)]
    inner.model = nncf.quantize(inner.model, nncf.Dataset(given), model_type=nncf.ModelType.TRANSFORMER)
    inner.request = None
    inner.compile()


CONTENDERS: dict[str, Contender] = {"saucier": saucier, "native": native, "transformers": transformers,
                                    "onnxruntime": onnxruntime, "openvino": openvino, "embedder": embedder,
                                    "sentence-transformers": sentence_transformers}
PEERS = {"onnxruntime": ("float32", "int8"), "openvino": ("float32", "bfloat16", "int8")}
"""Exported graphs, where they are installed, and the number formats that they are measured in."""


BACKENDS = {"torch": ("float32", "bfloat16"), "openvino": ("float32", "bfloat16", "int8")}
"""Of `sentence-transformers`; its ONNX backend does not install beside a `transformers` of its version."""
SAME = 0.9999
"""Least cosine of vectors that are the same."""


def compare_embedding(count: int, rounds: int) -> tuple[list[Row], list[str]]:
    """Return rows of `saucier.embed` against the best backend of `sentence-transformers` at the same format.

    Nothing where that is not installed. Rows say texts a second.
    """
    if importlib.util.find_spec("sentence_transformers") is None:
        return [], ["`sentence-transformers` is not installed: no rows of whole texts to vectors."]
    backends = {name: forms for name, forms in BACKENDS.items()
                if name == "torch" or importlib.util.find_spec("optimum") is not None}
    rows, notes = list[Row](), list[str]()
    for kind in ("short", "mixed"):
        told = {f"embedder: {form or 'own parts'}": {"format": form}
                for form in (None, "float32", "bfloat16", "int8")}
        told |= {f"sentence-transformers: {name}, {form}": {"format": form, "backend": name}
                 for name, forms in backends.items() for form in forms}
        found = race("benchmarks.encoder", {name: one | {"texts": kind, "count": count} for name, one in told.items()},
                     rounds)
        for form in ("float32", "bfloat16", "int8"):
            others = [one for one in found if one.endswith(form) and not one.startswith("embedder")]
            if others:
                best, ours = max(others, key=found.__getitem__), found[f"embedder: {form}"]
                rows.append(at_least(f"MiniLM, {count} {kind} texts to vectors, native {form}, against {best}",
                                     f"{ours:,.0f}", f"{found[best]:,.0f}", ours / found[best], 1.2))
        notes.append(f"MiniLM, {kind} texts to vectors, texts a second: " + ", ".join(
            f"{one} {value:,.0f}" for one, value in found.items()))
    return rows, notes


def compare_native(shape: dict[str, Any], rounds: int, name: str) -> tuple[list[Row], str]:
    """Return rows of the native kernels against the best of the others at the same format, and all figures."""
    told = {f"{key}: {dtype}": shape | {"dtype": dtype} for key in ("saucier", "transformers")
            for dtype in ("float32", "bfloat16")}
    told |= {f"native: {form}": shape | {"dtype": "float32", "format": form}
             for form in ("float32", "bfloat16", "int8")}
    if importlib.util.find_spec("onnx") is not None:
        told |= {f"{peer}: {form}": shape | {"format": form} for peer, forms in PEERS.items() for form in forms
                 if importlib.util.find_spec(peer) is not None}
    found = race("benchmarks.encoder", told, rounds)
    rows = []
    for form in ("float32", "bfloat16", "int8"):
        others = [one for one in found if one.endswith(form) and not one.startswith("native")]
        best = max(others or ["native: float32"], key=found.__getitem__)
        ours = found[f"native: {form}"]
        rows.append(at_least(f"{name}: native {form}, against {best}", f"{ours:,.0f}", f"{found[best]:,.0f}",
                             ours / found[best], 1.0))
    fast, plain = found["native: int8"], found["native: float32"]
    rows.append(at_least(f"{name}: native int8, against native float32", f"{fast:,.0f}", f"{plain:,.0f}", fast / plain,
                         1.0))
    return rows, f"{name}, real tokens a second: " + ", ".join(f"{one} {value:,.0f}" for one, value in found.items())


def time_steps(settings: dict[str, Any]) -> dict[str, float]:
    """Return the milliseconds of a pass, which is a part of a batch, by kinds of steps, each kind by itself, and of all
    together.
    """
    from saucier.generation.decoding import Native
    from saucier.generation.native_encoder import use_native
    from saucier.native.encoding import MOST_TOKENS, run_pass, take_buffers
    from saucier.native.plan import Plan, Step

    stack: Any = use_native(build_model(settings).eval(), Native(format=settings["format"])).encoder
    length = settings["longest"]
    texts = min(settings["texts"], MOST_TOKENS // length)
    plan, kinds = stack.find_plan(length), dict[str, list[Step]]()
    for step in plan.steps:
        kinds.setdefault(KINDS.get(step.kind, step.kind), []).append(step)
    plans = {"all": plan} | {name: Plan(tuple(steps), plan.widths, (), length, 0) for name, steps in kinds.items()}
    vectors = np.random.default_rng(0).normal(size=(texts * length, settings["dim"])).astype(np.float32)
    starts, places = np.arange(texts + 1, dtype=np.int32) * length, np.tile(np.arange(length, dtype=np.int32), texts)
    held, spent = take_buffers(plan, len(vectors)), dict[str, list[float]]()
    for _ in range(PASSES):
        for name, one in plans.items():
            begin = time.process_time()
            run_pass(one, vectors, starts, places, 1, None, held)
            spent.setdefault(name, []).append(time.process_time() - begin)
    return {name: 1e3 * float(np.median(seconds)) for name, seconds in spent.items()}


def describe_steps(shape: dict[str, Any], name: str) -> str:
    """Return where the time goes, in each number format."""
    told = list[str]()
    for form in ("float32", "bfloat16", "int8"):
        spent = time_steps(shape | {"format": form})
        parts = ", ".join(f"{part} {value / spent['all']:.1%}" for part, value in spent.items() if part != "all")
        told.append(f"{form} {spent['all']:.1f} ms ({parts})")
    return f"{name}, a pass of the kernels by one thread, kinds of steps by themselves: {'; '.join(told)}"


def measure(quick: bool) -> Section:
    """Compare at the same number format."""
    shape, rounds = (QUICK, 2) if quick else (SHAPE, 9)
    rows, notes = list[Row](), list[str]()
    for dtype in ("float32", "bfloat16"):
        found = race("benchmarks.encoder", dict.fromkeys(("saucier", "transformers"), shape | {"dtype": dtype}), rounds)
        ours, theirs = found["saucier"], found["transformers"]
        rows.append(at_least(f"{dtype} on both sides", f"{ours:,.0f}", f"{theirs:,.0f}", ours / theirs, 1.6))
    for name, other in ({"tiny": {}} if quick else CASES).items():
        more, note = compare_native(shape | other, TRIED if quick else 5, name)
        rows, notes = rows + more, [*notes, note, describe_steps(shape | other, name)]
    more, further = compare_embedding(16 if quick else 128, TRIED if quick else 7)
    rows, notes = rows + more, notes + further
    about = (f"BERT-base shape ({shape['layers']} layers of {shape['dim']}), one batch of {shape['texts']} texts with "
             f"lengths drawn evenly from {shape['shortest']} to {shape['longest']}, padded to the longest, forward "
             "only, weights in the number format. Real tokens a second. "
             "The rows of native kernels have their own batches. Those of texts to vectors are `saucier.embed` against "
             "`SentenceTransformer.encode`, with the published weights and tokenizing included, 32 texts at a time.")
    return Section("Encoding a padded batch", about, rows, notes)

"""The public Python functions, called with bad values: wrong types, shapes, numbers, texts, none at all.

Each case takes a call that works and puts bad values in the place of one or two of its arguments, or gives them to
other parameters of its signature. A value that a parameter's type excludes must be refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

import saucier
from saucier import config as c
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import rewrite
from saucier.families import FAMILIES
from saucier.folders.load import open_adapter
from saucier.folders.save import save, save_adapter
from saucier.model import Transformer
from saucier.parts.output import Output
from saucier.text.config import ByteBPE
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer
from tools.fuzzing.cases import Case, UnsoundError, size_of
from tools.fuzzing.damage import hostile, told
from tools.fuzzing.signatures import fits, parameters, required

TEXT = "the cook stirs the sauce and a guest tastes some soup"
SMALL = {"layers": 1, "dim": 16, "heads": 2}
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
TEMPLATES = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{{ 'a' * 10**9 }}",
    "{{ 10**10**9 }}",
    "{{ range(100000)|join('x' * 4000000) }}", "{{ ('\\n' * 2000000)|indent(4000000) }}", "{{ ''|center(10**12) }}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ ''.__class__.__mro__ }}", "{{ messages.__init__ }}",
    "{{ 1 / 0 }}",
    "{% for m in messages %}{{ m.nothing.at.all }}{% endfor %}", "{{ messages[99] }}", "{{ undefined() }}", "{% if %}",
    "{{",
    "{{ '%0999999999d' % 1 }}", "{{ '{:>999999999}'.format('a') }}", "{{ [[0] * 4000000] * 4000000 }}",
    "{{ (['x' * 4000000] * 4000000)|string }}", "{{ ('a' * 30000).replace('a', 'b' * 30000) }}", "{{ 'a\\n'|urlize }}",
    "{{ ('a b ' * 900000)|wordwrap(1) }}", "{{ ('<a ' * 900000)|striptags }}", "{{ ('a.b@c ' * 300000)|urlize }}",
    "{{ ('\\t' * 4000000).expandtabs(4000000) }}", "{{ (['x' * 4000000] * 4000000)|tojson }}", "{{ lipsum(9999) }}",
    "{% set x = [] %}{% do x.append(x) %}{{ x }}", "{{ raise_exception('no\\nway\\x1b[31m') }}", "{{ cycler }}",
    "(" * 5000,
    "{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "{{ " + "-" * 9000 + "1 }}", "{{ " + "[" * 2000 + "]" * 2000 + " }}",
    "{{ 'x' ~ (['y' * 4000000] * 4000000) }}", "{{ dict(a=messages)|pprint }}", "{{ strftime_now('%' * 100000) }}",
    "{{ messages|map(attribute='content')|join|upper|list|sort|reverse|list|length }}", "{% include 'x' %}",
    "{% extends x %}",
    "{{ ('x' * 4000000)|batch(1)|list|length }}", "{{ (1, 2)|slice(4000000)|list|length }}", "{{ 2 ** 100000 // 3 }}",
    "{{ ('ab' * 2000000)|title|capitalize|trim|length }}",
    "{{ ('a' * 4000000)|truncate(3999999, True, 'b' * 4000000) }}",
    "{{ [1]|sum(start=10**5000) }}", "{{ ('%s' * 1000000) % ((('x' * 4000),) * 1000000) }}", "\ud800", "\x00{{ 1 }}",
    "{% set b = 'x' * 4000000 %}{% set x %}{% for i in range(99999) %}{{ b }}{% endfor %}{% endset %}{{ x|length }}",
    "{% set b = 'x' * 4000000 %}{% macro f() %}{% for i in range(999) %}{{ b }}{% endfor %}{% endmacro %}{{ f() }}",
    "{% set b = 'x' * 4000000 %}{% filter upper %}{% for i in range(9999) %}{{ b }}{% endfor %}{% endfilter %}",
)
"""Hostile chat templates."""
SETTINGS = ("clean", "compare", "cook", "evaluate", "finetune", "fit", "plan", "show", "train")
"""Functions that take settings, of which an error names each that is wrong in a line."""
Good = dict[str, Any]


def objects() -> tuple[Any, ...]:
    """Return values that only Python has."""
    return (object(), object, len, b"bytes", bytearray(b"x"), Path("nowhere"), Path(), set(), frozenset({1}), 1j,
            range(3),
            iter([1]), {1: 2}, {("a",): 1}, ["a", 1], [["a"]], ("a", "b"), [b"a"], ..., NotImplemented, ValueError("x"),
            torch.zeros(0), torch.zeros(2, 2), torch.zeros(1, 3), torch.full((1, 3), float("nan")),
            torch.full((1, 3), 99_999), torch.full((1, 3), -1), torch.ones(1, 3, 16),
            torch.zeros(1, 0, dtype=torch.int64),
            torch.full((1,), -3), torch.ones(1, 3, dtype=torch.complex64), torch.ones(1, 3, dtype=torch.bool), [[3, 4]],
            [torch.ones(1)], [(torch.ones(1, 16),)], torch.tensor(float("nan")), torch.zeros(1, dtype=torch.int64),
            torch.float16, torch.int8, torch.complex64, torch.device("meta"), torch.device("cpu"), "cuda:99", "meta",
            "mps", "cpu:x",
            "bfloat16", "int8", "complex64", "float64", "a" * 100_000, "é" * 5000, "\ud800\ud800", "a\x00b",
            [TEXT] * 3, [""],
            [TEXT, None], [[TEXT]], 10**18, -(10**18), 2**64, float("-inf"), True, [True], [-1], [10**12], [1.5], ["1"])


@cache
def tokenizer() -> Tokenizer:
    """Return a small tokenizer with a chat template."""
    made = train_tokenizer(ByteBPE(vocab=280), [TEXT] * 20)
    made.handling.chat["default"] = CHAT  # type: ignore[index]  # a plain dict there
    return made


@cache
def model(family: str = "gpt2") -> Transformer:
    """Return a small model."""
    more = {"gpt2": {"length": 32}, "bert": {"length": 32}, "t5": {"head_dim": 8, "hidden": 20}}.get(family, {})
    return saucier.build(FAMILIES[family](**SMALL, **more, vocab=tokenizer().vocab_size), seed=1).eval()


@cache
def embedder() -> Transformer:
    """Return a small model that gives vectors of texts."""
    head = c.EmbeddingHead(pooling=(c.Pooling(kind="mean"),), normalize=True)
    return saucier.build(model("bert").config.model_copy(update={"head": head, "pooler": None}), seed=1).eval()


def whole(stock: Path) -> Path:
    """Return the folder of a small model with its tokenizer and an adapter, made when it is first asked for."""
    if not (stock / "model").is_dir():
        (stock / "text.txt").write_text(f"{TEXT}\n" * 40)
        (stock / "scored.jsonl").write_text('{"id": 1, "prediction": "a", "gold": "a"}\n{"id": 2, "prediction": "b", '
                                            '"gold": "a"}\n')
        save(model(), stock / "model")
        tokenizer().save(stock / "model")
        save_adapter(rewrite(saucier.load(stock / "model", dtype="float32"), by=a.Lora(rank=2)), stock / "adapter")
    return stock / "model"


def calls(folder: Path, place: Path) -> dict[str, tuple[Callable[..., Any], Good]]:
    """Return calls that work: name -> function and arguments."""
    ids, rows = torch.tensor([[3, 4, 5]]), [{"role": "user", "content": "hello"}]
    spoken = tokenizer()
    options: Good = {"max_new_tokens": 3, "min_new_tokens": 1, "do_sample": False, "temperature": 1.0, "top_k": 5,
                     "top_p": 0.9,
                     "seed": 1, "num_beams": 2, "length_penalty": 1.0, "early_stopping": False,
                     "num_return_sequences": 1,
                     "repetition_penalty": 1.1, "no_repeat_ngram_size": 2, "eos_token_id": 1, "pad_token_id": 0,
                     "bad_words_ids": [[7]], "suppress_tokens": [8], "begin_suppress_tokens": [9],
                     "stop_strings": ["x"],
                     "forced_eos_token_id": 1, "max_length": 10, "use_cache": True, "strategy": None,
                     "tokenizer": spoken,
                     "min_length": 2, "bos_token_id": 1, "decoder_start_token_id": 1, "typical_p": 1.0,
                     "listener": None}
    return {
        "load": (saucier.load, {"path": folder, "head": "auto", "dtype": "float32", "device": "cpu", "base": None}),
        "load_tokenizer": (saucier.load_tokenizer, {"folder": folder}),
        "build": (saucier.build, {"config": model().config, "seed": 0, "dtype": None, "device": None}),
        "recipe": (saucier.recipe, {"name_or_file": "gpt-nano", "overrides": ["training.steps=3"]}),
        "generate": (partial(generated, model(), input_ids=ids), dict(options)),
        "generate-t5": (partial(generated, model("t5"), input_ids=ids), {**options, "num_beams": 1}),
        "generate-any": (saucier.generate, {"model": model(), "input_ids": ids, "max_new_tokens": 2}),
        "generate-bert": (partial(generated, model("bert")), {"input_ids": ids, "max_new_tokens": 2}),
        "generate-ids": (partial(generated, model()), {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                                                       "max_new_tokens": 2}),
        "embed": (saucier.embed, {"model": embedder(), "texts": [TEXT, "milk"], "tokenizer": spoken, "batch": 2}),
        "forward": (model().forward, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "last_only": False,
                                      "output_hidden_states": False, "output_attentions": False, "compute_logits": True,
                                      "position_ids": None, "token_type_ids": None, "inputs_embeds": None}),
        "forward-bert": (model("bert").forward, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}),
        "forward-t5": (model("t5").forward, {"input_ids": ids, "decoder_input_ids": ids}),
        "forward-xlnet": (model("xlnet").forward, {"input_ids": ids}),
        "encode": (spoken.encode, {"text": TEXT, "add_special_tokens": True, "pair": None}),
        "encode_batch": (spoken.encode_batch, {"texts": [TEXT, "milk"], "add_special_tokens": True}),
        "decode": (spoken.decode, {"ids": [3, 4], "skip_special_tokens": True}),
        "tokenizer": (spoken, {"texts": [TEXT, "milk"], "pairs": None, "max_length": 20, "padding": "longest",
                               "truncation": "longest_first", "add_special_tokens": True}),
        "id_to_token": (spoken.id_to_token, {"number": 3}), "token_to_id": (spoken.token_to_id, {"token": "a"}),
        "chat": (spoken.apply_chat_template,
                 {"messages": rows, "add_generation_prompt": True, "tools": None, "template": CHAT}),
        "save": (model().save, {"folder": place / "saved"}),
        "save-layout": (partial(save, model()), {"folder": place / "saved", "layout": "auto"}),
        "open_adapter": (open_adapter, {"folder": folder.parent / "adapter", "base": None, "head": "auto",
                                        "dtype": "float32",
                                        "device": "cpu"}),
    }


def doors(folder: Path, place: Path) -> dict[str, tuple[Callable[..., Any], Good]]:
    """Return calls of the functions of `saucier.api`: those that train lack something, so that none begins to.

    A function that is not known here is called with the small model, a new place, and files that are missing.
    """
    text, missing = folder.parent / "text.txt", place / "missing.jsonl"
    good: dict[str, Good] = {
        "write": {"model": folder, "prompt": TEXT, "tokens": 3}, "show": {"model": folder},
        "backtranslate": {"model": folder, "files": [text], "out": place / "pairs.tsv"},
        "prompt": {"task": missing, "model": folder}, "diff": {"left": folder, "right": "gpt-nano"},
        "diagnose": {"model": folder, "text": text}, "score": {"predictions": folder.parent / "scored.jsonl"},
        "attention_map": {"run": folder, "source": TEXT}, "merge": {"adapter": folder.parent / "adapter",
                                                                    "out": place / "merged", "text": text},
        "convert": {"source": folder, "target": place / "converted"}, "number_formats": {"values": ["0.1"]},
        "clean": {"raw": [text], "out": place / "clean", "quiet": True}, "list_families": {"model_type": "gpt2"},
        "train_tokenizer": {"files": [text], "out": place / "tokenizer", "vocab": 280},
        "inspect_tokenizer": {"folder": folder, "text": TEXT}, "rerun": {"run": folder, "quiet": True},
        "plan": {"recipe": "gpt-nano", "data": text, "calibrate": False},
        "finetune": {"task": "classification", "model": folder, "data": missing, "quiet": True},
        "evaluate": {"model": folder, "rows": text}, "open": {"model": folder},
        "predict": {"model": folder, "rows": text}, "embed_files": {"model": folder, "files": text},
        "attention": {"model": folder, "text": TEXT}, "push": {"folder": folder, "hub_id": "a/b", "dry_run": True},
        "fit": {"model": model(), "batches": [torch.tensor([[3, 4, 5]])], "loss": mean_logit, "quiet": True,
                "training": {"steps": 1}, "out": place / "fitted"},
        **{name: {"recipe": "no-such-recipe", "quiet": True} for name in ("cook", "train")},
        "compare": {"recipes": ["no-such-recipe", "gpt-nano"], "quiet": True}}
    names = {"model": folder, "run": folder, "source": folder, "folder": folder, "out": place / "out",
             "target": place / "out"}
    found = {}
    for name, module in saucier.PUBLIC.items():
        if module.startswith("saucier.api"):
            function = getattr(saucier, name)
            found[name] = function, good.get(name) or {key: names.get(key, missing) for key in required(function)}
    app = opened(folder)
    options: Good = {"tokens": 2, "temperature": 0.8, "top_k": 5, "seed": 1, "stop": "x", "beams": 1}
    return {**found, "app": (partial(asked, app), {"text": TEXT, **options}),
            "app.batch": (app.batch, {"rows": [TEXT]}),
            "app.stream": (partial(asked, app.stream), {"text": TEXT, **options})}


def asked(ask: Callable[..., Any], /, **given: Any) -> str:
    """Ask an open model, which may answer piece by piece."""
    return "".join(ask(given.pop("text"), **given))


@cache
def opened(folder: Path) -> Any:
    """Return an open model."""
    return saucier.open(folder)


def mean_logit(chosen: Transformer, batch: Tensor) -> Tensor:
    """Return a loss, of no use."""
    logits: Tensor = chosen(batch).logits
    return logits.mean()


def generated(chosen: Transformer, /, **options: Any) -> Tensor:
    """Write with a small model."""
    return saucier.generate(chosen, **options)


def draw(drawn: Random, stock: Path, place: Path) -> Case:
    """Call a function with one or two bad arguments."""
    folder = whole(stock)
    known = {**calls(folder, place), **doors(folder, place)}
    name = drawn.choice([*known, "generate", "generate", "chat", "tokenizer"])
    function, good = known[name]
    if name == "chat" and drawn.random() < 0.6:
        template = drawn.choice(TEMPLATES)
        return Case(f"chat template {told(template)}",
                    (lambda: function(**{**good, "template": "{{ '' }}" + template}),))
    hints = {} if name.startswith("app") else parameters(function)
    names = [*{**good, **hints}]
    bad = {key: value(drawn) for key in drawn.sample(names, k=min(len(names), drawn.choice([1, 1, 1, 2])))}
    given = {**good, **bad}
    wrong = next((key for key, one in bad.items() if key in hints and not fits(one, hints[key])), None)
    if name.startswith("generate") and drawn.random() < 0.1:
        given |= {drawn.choice(["nothing", "", "modell", "_", "kind"]): 1}
    words = ", ".join(f"{key}={told(one)}" for key, one in bad.items())
    return Case(f"{name}({words})", (partial(sound, function, given, wrong),), size_of(folder),
                many_lines=name in SETTINGS)


def value(drawn: Random) -> Any:
    """Return a bad value."""
    return hostile(drawn) if drawn.random() < 0.5 else drawn.choice(objects())


def sound(function: Callable[..., Any], given: Good, wrong: str | None = None) -> None:
    """Call a function. Raises `UnsoundError` for a result that is not finite, or that it should have refused.

    `wrong`: an argument whose value is not of the type that the function says.
    """
    result = function(**given)
    if wrong is not None:
        raise UnsoundError(f"{wrong} was taken, which its type excludes")
    if not all(math.isfinite(one) for one in numbers(result)):
        raise UnsoundError(f"numbers that are not finite in {type(result).__name__}")


def numbers(result: Any) -> Iterator[float]:
    """Yield the sums of the tensors in a result."""
    match result:
        case Output(last_hidden_state=Tensor() as hidden):
            yield float(hidden.sum())
        case Tensor() if result.device.type != "meta":
            yield float(result.double().sum())

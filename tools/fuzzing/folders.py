"""Folders of models and tokenizers: published ones, our own, those of sentence-transformers. Loaded, run, encoded with.

The whole ones are those of `../shared/golden`, where it is, and a small model of every family, made here.
"""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch

import saucier
from saucier.config import learned_length
from saucier.diagnosis.laws import TextRow, make_batch
from saucier.families import LAYOUTS
from saucier.folders.save import save
from saucier.model import Transformer
from saucier.text.config import ByteBPE, Unigram, WordPiece
from saucier.text.tokenizer.training import train_tokenizer
from tools.fuzzing.cases import Case, UnsoundError, size_of
from tools.fuzzing.damage import copied, damaged_folder

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"
LIKELY = ("config.json", "modules.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
          "model.safetensors", "model.safetensors.index.json", "special_tokens_map.json")
TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "source.spm")
TEXTS = ("the cook stirs", "a guest tastes some soup", "THE CAT, it's 12 o'clock: spilt milk!", "naïve 東京", "",
         "milk")
LONGEST = 12
"""Tokens that are read."""


@cache
def golden() -> tuple[str, ...]:
    """Name the golden folders of a family that can be read, and those of tokenizers; none where they are not there."""
    found = []
    for path in sorted(GOLDEN.glob("*")):
        config = path / "config.json"
        known = config.is_file() and json.loads(config.read_text()).get("model_type") in LAYOUTS
        if (known and weights_of(path)) or path.name.startswith("tokenizer-"):
            found.append(path.name)
    return tuple(found)


@cache
def made() -> dict[str, Any]:
    """Return the config of a small model of every family and every kind of part, by name."""
    zoo = importlib.import_module("tests.laws.zoo")  # not typed as strictly as what stands here
    return {f"{side}-{name}": config for side in ("decoders", "encoders", "pairs")
            for name, config in getattr(zoo, side)().items()}


def weights_of(folder: Path) -> list[Path]:
    """Return the files of weights of a folder."""
    return sorted([*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")])


def whole(name: str, stock: Path) -> Path:
    """Return a whole folder: a golden one, or one that is made when it is first asked for."""
    if name in golden():
        return GOLDEN / name
    target = stock / name
    if not target.is_dir():
        write(name, target)
    return target


def write(name: str, target: Path) -> None:
    """Make a small model with random weights, and for some a tokenizer."""
    if name == "sentence":
        model = saucier.build(sentence())
        model.save(target)
    else:
        model = saucier.build(made()[name.removeprefix("own-")], seed=1)
        save(model, target, layout="own" if name.startswith("own-") else "auto")
    kind = (WordPiece(vocab=60), ByteBPE(vocab=300), Unigram(vocab=40))[len(name) % 3]
    train_tokenizer(kind, TEXTS * 20).save(target)


def sentence() -> Any:
    """Return the config of a small model that gives vectors of texts."""
    from saucier import config as c

    head = c.EmbeddingHead(pooling=(c.Pooling(kind="mean"), c.Pooling(kind="cls")), maps=(c.DenseMap(width=10),),
                           normalize=True)
    return made()["encoders-bert"].model_copy(update={"head": head, "pooler": None})


def names() -> list[str]:
    """Name all whole folders: golden ones, small ones in the layout that suits, and in ours."""
    return [*golden(), "sentence", *["sentence"] * 5, *made(), *(f"own-{name}" for name in made())]


def draw(drawn: Random, stock: Path, place: Path) -> Case:
    """Damage a folder, and open everything in it."""
    name = drawn.choice(golden()) if golden() and drawn.random() < 0.5 else drawn.choice(names())
    folder = copied(whole(name, stock), place / "model")
    size = size_of(folder)
    words = damaged_folder(folder, drawn, LIKELY) if drawn.random() < 0.95 else swapped(folder, drawn, stock)
    return Case(f"{name}: {words}", (lambda: opened(folder), lambda: encoded(folder)), size)


def swapped(folder: Path, drawn: Random, stock: Path) -> str:
    """Put a file of another folder in the place of one, or write an index of shards that is wrong."""
    found = weights_of(folder)
    if found and drawn.random() < 0.4:
        return wrong_index(found[0], drawn)
    other = whole(drawn.choice(golden() or tuple(names())), stock)
    both = sorted({path.name for path in folder.iterdir()} & {path.name for path in other.iterdir()})
    if not both:
        return damaged_folder(folder, drawn)
    name = drawn.choice(both)
    if (folder / name).is_dir() or (other / name).is_dir():
        return damaged_folder(folder, drawn)
    (folder / name).write_bytes((other / name).read_bytes())
    return f"{name} of {other.name}"


def wrong_index(weights: Path, drawn: Random) -> str:
    """Write an index of shards that is wrong."""
    names: Any
    names = drawn.choice([{}, [], None, {"a": weights.name}, {"a": "../x.safetensors"}, {"a": 1}, {"a": "/dev/zero"},
                          {"a": "config.json"}, {str(number): f"{number}.safetensors" for number in range(20_000)},
                          {"a": "\x00.safetensors"}, {"a": "x" * 5000 + ".safetensors"}, {"a": "\n.safetensors"}])
    folder = weights.parent
    weights.rename(folder / "part.safetensors")
    document = drawn.choice([{"weight_map": names}, {"weight_map": {"a": "part.safetensors"}}, names])
    (folder / "model.safetensors.index.json").write_text(json.dumps(document))
    return f"an index {str(document)[:80]!a}"


def opened(folder: Path) -> None:
    """Load a model and run it once."""
    if not weights_of(folder) and any((folder / name).is_file() for name in TOKENIZER):
        return
    ran(saucier.load(folder, dtype="float32", device="cpu"))


def ran(model: Transformer) -> None:
    """Run a model once. Raises `UnsoundError` for an output that is not as its config declares."""
    config = model.config
    room = min(one for one in (learned_length(config), LONGEST) if one is not None)
    vocab = config.input_embed.vocab
    row = TextRow(tuple(place % vocab for place in range(room)), None)
    if config.encoder is not None and config.decoder is not None:
        row = TextRow(row.ids, tuple(place % config.output_embed.vocab for place in range(room)))
    with torch.no_grad():
        output = model(**make_batch(model, [row, row]))
    hidden = output.last_hidden_state
    if hidden is None or hidden.shape[:2] != (2, len(row.written)) or hidden.dtype != torch.float32:
        raise UnsoundError(f"hidden vectors {None if hidden is None else (tuple(hidden.shape), hidden.dtype)}")


def encoded(folder: Path) -> None:
    """Load a tokenizer; encode and decode with it. Raises `UnsoundError` for ids outside its vocabulary."""
    if not any((folder / name).exists() for name in TOKENIZER):
        return
    tokenizer = saucier.load_tokenizer(folder)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        if not all(0 <= number < tokenizer.vocab_size for number in ids):
            raise UnsoundError(f"ids {ids} of a vocabulary of {tokenizer.vocab_size}")
        tokenizer.decode(ids)
    tokenizer(list(TEXTS[:2]), padding="longest" if tokenizer.pad_id is not None else "none", max_length=16)
    if tokenizer.handling.chat:
        tokenizer.apply_chat_template([{"role": "user", "content": "hello"}])
    if not isinstance(tokenizer.word_marks, str) or set(tokenizer.sentinel_ids) & set(tokenizer.extra_ids.values()):
        raise UnsoundError("sentinels that are other tokens too")

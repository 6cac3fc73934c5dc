"""Ask an older version of the reference library for its numbers, once, and store them for the tests.

    python tools/older_reference.py tests/parity/older

Run it in an environment of its own with transformers 4.35.2, whose versions the folder's README says, from the
repository's root and with that on `PYTHONPATH`. Weights are not stored: they follow from a seed by `fill`.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tests.parity.batches import batch, real
from tests.parity.older.draws import DRAWS, inputs
from tests.parity.older.weights import fill, thinned

SEEDS, USUAL_SEEDS = 5, 2
"""Draws of what only the older version has, and of every family that both have."""
SPELLED_NEWER = {"llama", "mistral", "mixtral", "gpt_neox", "modernbert", "encoder_decoder"}
"""Families whose common draws speak of fields that came later, or of configs inside configs."""
LATER = {"legacy", "scale_decoder_outputs"}
"""Fields of the common draws that this version does not know."""
WRITES = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration", "MTModel")


def families() -> Iterator[tuple[str, int, Any, Any]]:
    """Yield name, number of seeds, draw and batch maker of every case."""
    for name, draw in DRAWS.items():
        yield name, SEEDS, draw, inputs
    from tests.parity import draws

    for found in pkgutil.iter_modules(draws.__path__):
        if found.name in SPELLED_NEWER:
            continue
        try:
            module = importlib.import_module(f"{draws.__name__}.{found.name}")
        except ImportError:  # a family that came later
            continue
        yield found.name, USUAL_SEEDS, module.draw, getattr(module, "inputs", batch)


def writes(config: Any, name: str) -> bool:
    """Say whether a class of this config writes from left to right."""
    return name.endswith(WRITES) and (config.is_decoder or not hasattr(config, "hidden_dropout_prob"))


def written(model: Any, given: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Return what a model writes behind the first five tokens of each row, greedily and with three beams.

    Beams only where no text ends early: the versions end a search differently, which is no matter of a config.
    """
    ids, found = given["input_ids"][:, :5], {}
    masked = {"attention_mask": torch.ones_like(ids)} if "attention_mask" in given else {}
    for name, beams in (("greedy", 1), ("beams", 3)):
        made = model.generate(ids, **masked, max_new_tokens=5, num_beams=beams, do_sample=False, length_penalty=0.0)
        found[name] = made.tolist()
    ended = any(model.config.eos_token_id in row[1:-1] for row in found["beams"])
    return {"greedy": found["greedy"]} if ended else found


def case(draw: Callable[[random.Random], Any], make: Any, seed: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return one case: its config, inputs and weight names, and the thinned outputs of the reference."""
    import transformers

    rng = random.Random(seed)
    config, classes = draw(rng)
    if 1 in (getattr(config, f"{side}_sparse_step", None) for side in ("encoder", "decoder")):
        raise ValueError("every layer has experts in version 5, and none in this one")
    if config.model_type == "bert-generation":
        config.use_cache = False  # with its cache this version hides no later token
    name = rng.choice(classes)
    model = getattr(transformers, name)(config).eval()
    shapes = {key: list(parameter.shape) for key, parameter in model.named_parameters() if parameter.requires_grad}
    number = zlib.crc32(seed.encode())
    weights = fill(shapes, number)
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data.copy_(weights[key])
    given = {key: value for key, value in make(config, name, rng).items() if isinstance(value, torch.Tensor)}
    with torch.no_grad():
        output = model(**given, return_dict=True)
        ids = written(model, given) if writes(config, name) else {}
    answers = {key: thinned(real(key, value, given)) for key, value in output.items()
               if isinstance(value, torch.Tensor) and key not in ("loss", "losses")}
    told = {key: value.tolist() for key, value in given.items()}
    document = {key: value for key, value in json.loads(config.to_json_string()).items() if key not in LATER}
    return {"class": name, "config": document, "seed": number, "weights": shapes,
            "inputs": told, "ids": ids}, answers


def main(folder: Path) -> None:
    """Write `cases.json` and `outputs.safetensors` into a folder, and print what the reference itself could not do."""
    cases: dict[str, Any] = {}
    outputs: dict[str, torch.Tensor] = {}
    for name, seeds, draw, make in families():
        for number in range(seeds):
            key = f"{name}-{number}"
            try:
                cases[key], answers = case(draw, make, key)
            except (AttributeError, ImportError, KeyError, TypeError, ValueError, RuntimeError, IndexError,
                    AssertionError) as error:
                print(f"{key}: {type(error).__name__}: {str(error)[:100]}")
                continue
            outputs |= {f"{key}.{output}": value for output, value in answers.items()}
    (folder / "cases.json").write_text("{\n" + ",\n".join(
        f"{json.dumps(key)}: {json.dumps(one, separators=(',', ':'))}" for key, one in cases.items()) + "\n}\n")
    save_file(outputs, folder / "outputs.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

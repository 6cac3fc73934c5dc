"""Opens and ends everything in a copy of the box of old artifacts, by the public commands and functions alone.

A program: `python finish.py BOX OUT` changes the copy, and writes what it found, artifact by artifact, into
`OUT/found.json` and `OUT/found.safetensors`. It wants the settings of `tools.same_bits`.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

import saucier
from saucier.cli import main
from saucier.folders.load import open_adapter

IDS = torch.tensor([[5, 9, 12, 7, 3, 16, 19, 18]])
"""Tokens that every model is given."""
TEXTS = ("the cook is fine", "my cat: very COLD soup?", "  two  spaces, café")
UNTOLD = {"begun", "ended", "seconds", "environment", "cost", "tokens_per_second", "phases", "baselines"}
"""What is another on every day and machine, and what scikit-learn makes of the rows."""
UNUSED = ("matplotlib", "sklearn")
"""Libraries that the commands can do without: pictures of reports and a simple method to compare with are no part of
the promise, and cost as much as all the rest."""


@dataclass
class Found:
    """What one artifact gave."""

    facts: dict[str, Any] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    """Of files of tensors; equal only to the last bit."""
    tensors: dict[str, Tensor] = field(default_factory=dict)


def same_everywhere() -> None:
    """Use one thread, few libraries, and float32 on processors with bfloat16 instructions, too."""
    sys.modules.update(dict.fromkeys(UNUSED))
    torch.set_num_threads(1)
    torch.cpu._is_avx512_bf16_supported = lambda: False
    torch.cpu._is_amx_tile_supported = lambda: False


def ran(*words: str) -> str:
    """Run a command, and return what it printed. Fails with what it complained of."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words])
    if code:
        raise RuntimeError(f"`saucier {' '.join(words)}` ended with {code}: {err.getvalue().strip()[-400:]}")
    return out.getvalue()


def told(*words: str) -> Any:
    """Run a command that prints JSON, and return what is the same on every day."""
    return lasting(json.loads(ran(*words, "--json")))


def lasting(value: Any) -> Any:
    """Leave out what is another on every day and machine."""
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if key not in UNTOLD}
    return [lasting(one) for one in value] if isinstance(value, list) else value


def digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of named tensors, whatever their order in a file."""
    found = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode() + raw(value))
    return found.hexdigest()


def raw(value: Tensor) -> bytes:
    """Return a tensor's values as they lie in memory."""
    return value.flatten().contiguous().view(torch.uint8).numpy().tobytes()


def kept(found: Found, folder: Path, under: str = "") -> None:
    """Note all files of tensors in a folder; the values of those that are weights."""
    for path in sorted(folder.rglob("*.safetensors")):
        name, tensors = under + path.relative_to(folder).as_posix(), load_file(path)
        found.digests[name] = digest(tensors)
        if path.name in ("model.safetensors", "adapter_model.safetensors"):
            found.tensors |= {f"{name}/{key}": value for key, value in tensors.items()}


def lines(path: Path) -> list[Any]:
    """Read lines of JSON."""
    return [lasting(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def files(pattern: str) -> dict[str, str]:
    """Return the text of files."""
    return {Path(name).name: Path(name).read_text(encoding="utf-8") for name in sorted(glob.glob(pattern))}


def run(name: str) -> Found:
    """A run that was stopped goes on to its end: the same weights, losses, samples, and state of the optimizer."""
    ran("cook", name)
    found, folder = Found(), Path(name)
    steps = sorted(folder.glob("checkpoints/step-*"), key=lambda path: int(path.name.split("-")[1]))
    kept(found, steps[-1])
    passport = json.loads((folder / "passport.json").read_text())
    found.facts = {"step": steps[-1].name, "best": json.loads((folder / "checkpoints/best.json").read_text()),
                   "loss": passport["outcome"]["loss"], "data": passport["data"], "parts": passport["parts"],
                   "metrics": [{key: line[key] for key in ("step", "loss") if key in line}
                               for line in lines(folder / "metrics.jsonl")],
                   "samples": (folder / "samples.txt").read_text()}
    found.digests["outcome"] = passport["outcome"]["weights"]
    return found


def finished_run(name: str) -> Found:
    """A finished run is told from a stopped one, and is used."""
    before = (Path(name) / "evaluation.json").read_text()
    assert "this run is finished" in ran("cook", name), "cooked again"
    assert (Path(name) / "evaluation.json").read_text() == before, "measured again"
    found = model(name)
    found.facts |= {"measured": told("evaluate", name, "--dtype", "float32"),
                    "written": told("generate", name, "the cook", "--tokens", "8", "--temperature", "0",
                                    "--dtype", "float32")}
    return found


def model(name: str) -> Found:
    """A folder of weights gives the outputs that it gave; a decoder writes what it wrote."""
    (opened, numbers), found = output(name), Found()
    found.tensors["output"] = numbers
    if opened.config.decoder is not None:
        found.facts["greedy"] = saucier.generate(opened, IDS, max_new_tokens=8).tolist()
    found.facts["ids"] = {text: saucier.load_tokenizer(name).encode(text) for text in TEXTS}
    return found


def output(folder: str) -> tuple[Any, Tensor]:
    """Load a model, and return it with what it gives for the fixed tokens: scores, or else vectors."""
    opened = saucier.load(folder, dtype="float32", device="cpu")
    both = opened.config.encoder is not None and opened.config.decoder is not None
    with torch.no_grad():
        given = opened(IDS, decoder_input_ids=IDS.flip(1)) if both else opened(IDS)
    logits = getattr(given, "logits", None)
    return opened, given.last_hidden_state if logits is None else logits


def task(name: str) -> Found:
    """A finished fine-tuning answers as it did."""
    settings = yaml.safe_load((Path(name) / "finetune.yaml").read_text())
    answers = ran("predict", name, *settings["data"]["held_out"], "--json").splitlines()
    return Found({"answers": [json.loads(line) for line in answers]}, tensors={"output": output(f"{name}/model")[1]})


def stopped_task(name: str) -> Found:
    """A fine-tuning that was stopped goes on to its end."""
    ran("finetune", name)
    found = task(name)
    kept(found, Path(name) / "model")
    found.facts |= {"scores": lasting(json.loads((Path(name) / "scores.json").read_text())),
                    "predictions": lines(Path(name) / "predictions/held-out.jsonl")}
    return found


def vectors(name: str) -> Found:
    """A folder of sentence-transformers gives the vectors that it gave."""
    found = task(name)
    found.tensors["vectors"] = saucier.embed(f"{name}/model", TEXTS)
    return found


def adapter(name: str) -> Found:
    """An adapter gives the same outputs merged into its base, beside it, and when it is asked."""
    folder = f"{name}/model" if (Path(name) / "model").is_dir() else name
    found = task(name) if folder != name else Found()
    with torch.no_grad():
        found.tensors = {"merged": output(folder)[1],
                         "apart": open_adapter(folder, dtype="float32", device="cpu")(IDS).logits}
    found.facts["shown"] = told("show", folder)
    return found


def tokenizer(name: str) -> Found:
    """A tokenizer splits texts as it did, and puts them together again."""
    known = saucier.load_tokenizer(name)
    ids = {text: known.encode(text) for text in TEXTS}
    return Found({"vocab": known.vocab_size, "ids": ids, "texts": [known.decode(one) for one in ids.values()]})


def comparison(name: str) -> Found:
    """A comparison says again what it said; one that was stopped goes on to its end."""
    found = Found({"outcome": told("compare", f"{name}.yaml", "--out", name, "--threads", "1")})
    for checkpoint in sorted(Path(name).glob("*/seed-*/checkpoints/step-*")):
        kept(found, checkpoint, f"{checkpoint.parent.parent.parent.name}/")
    return found


def finished_cleaning(name: str) -> Found:
    """A corpus is still one, and says why a document was dropped."""
    rejected = lines(Path(name) / "rejected/documents.jsonl")
    why = told("clean", "--why", str(rejected[0]["document"]), "--out", name)
    return Found({"why": why, "corpus": files(f"{name}/*.jsonl"), "rejected": rejected})


def stopped_cleaning(name: str) -> Found:
    """A cleaning that was stopped goes on to its end, with what it has done already."""
    job = json.loads((Path(name) / ".work/job.json").read_text())
    for file, _, date in job["files"]:
        os.utime(file, ns=(date, date))
    report = told("clean", "raw-1.jsonl", "raw-2.jsonl", "--rules", "c4", "--keep-rejected", "--out", name)
    return Found({"report": report, "corpus": files(f"{name}/*.jsonl"),
                  "rejected": lines(Path(name) / "rejected/documents.jsonl")})


def prompts(name: str) -> Found:
    """Answers that were kept are scored as they were; asked again, the model says the same."""
    old = lines(Path(name) / "results.jsonl")
    told("prompt", "prompts/kitchen.yaml", "--model", "models/gpt2", "--shots", "0,2", "--draws", "2", "--dtype",
         "float32", "--out", "prompts/again")
    return Found({"kept": old, "again": lines(Path("prompts/again/results.jsonl")),
                  "scored": told("score", f"{name}/results.jsonl", "--kind", "classes")})


def backtranslation(name: str) -> Found:
    """The model that wrote a table writes it again."""
    ran("backtranslate", "models/translation", "stories.txt", "--limit", "4", "--beams", "2", "--out", "again.tsv")
    return Found({"kept": Path(name).read_text(), "again": Path("again.tsv").read_text()})


KINDS: dict[str, Callable[[str], Found]] = {
    "runs/finished": finished_run, "runs/*": run, "models/*": model, "tasks/killed*": stopped_task,
    "tasks/embedding": vectors, "tasks/*": task, "adapters/*": adapter, "tokenizers/*": tokenizer,
    "comparisons/*": comparison, "cleanings/stopped": stopped_cleaning, "cleanings/*": finished_cleaning,
    "prompts/results": prompts, "backtranslations/*": backtranslation}
"""How each artifact is opened; the first pattern that fits is taken."""


def artifacts() -> Iterator[tuple[str, Callable[[str], Found]]]:
    """Yield the name of each artifact of the box in this folder, and how it is opened."""
    seen: set[str] = set()
    for pattern, work in KINDS.items():
        for name in sorted(glob.glob(pattern)):
            if name not in seen and not name.endswith(".yaml"):
                seen.add(name)
                yield name, work


def opened(name: str, work: Callable[[str], Found]) -> Found:
    """Open one artifact; whatever goes wrong is told with its name, and the others are opened all the same."""
    try:
        return work(name)
    except Exception as error:  # noqa: BLE001  # the test fails with it
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Found({"error": f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"})


def work(box: Path, out: Path) -> None:
    """Open everything."""
    same_everywhere()
    os.chdir(box)
    found = {name: opened(name, how) for name, how in artifacts()}
    tensors = {f"{name}/{key}": value.float().contiguous() for name, one in found.items()
               for key, value in one.tensors.items()}
    save_file(tensors, out / "found.safetensors")
    (out / "found.json").write_text(json.dumps(
        {name: {"facts": one.facts, "digests": one.digests} for name, one in found.items()}, indent=1) + "\n")


if __name__ == "__main__":
    work(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())

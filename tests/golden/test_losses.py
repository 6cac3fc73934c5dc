"""The golden losses, computed by our own objectives: the model itself knows no labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

import saucier
from saucier import config as c
from saucier.families import LAYOUTS
from saucier.model import Transformer
from saucier.objectives.base import Batch, Loss, Objective
from saucier.objectives.labels import ClassLabels, MultiLabels, NumberLabels, ReplacedTokenLabels, SpanLabels
from saucier.objectives.masked import NextSentence
from saucier.objectives.prediction import MarginalPrediction, Prediction
from saucier.parts.inputs import derive_target

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden checkpoints are not beside this checkout")

ELSEWHERE = {"transfo-xl", "mixtral"}
"""Losses of their own, tested with their families: an adaptive softmax; a balance of experts."""


def cases() -> list[tuple[str, str]]:
    """Folder and name of every case with a loss whose class is listed."""
    found = []
    for path in sorted(GOLDEN.glob("*/golden.json")):
        config = path.parent / "config.json"
        kind = json.loads(config.read_text()).get("model_type") if config.is_file() else None
        layout = LAYOUTS.get(kind)
        if layout is None or kind in ELSEWHERE:
            continue
        found += [(path.parent.name, case["name"]) for case in json.loads(path.read_text())["cases"]
                  if "loss" in case["outputs"] and case["class"] in layout.classes]
    return found


def shifted(labels: Tensor) -> Tensor:
    """Each position's next token. Shapes: [..., L] -> [..., L]."""
    return F.pad(labels[..., 1:], (0, 1), value=-100)


def objective(model: Transformer, given: Batch, kind: str) -> tuple[Objective, Batch]:
    """Return the objective that fits the model's head, and the batch as it wants it."""
    head = model.config.head
    labels = given.get("labels")
    match head:
        case c.SpanHead() | c.QuestionSpanHead():
            return SpanLabels(), given
        case _ if "relevance_score" in given:
            return MarginalPrediction(), given
        case c.ClassificationHead(classes=1):
            return NumberLabels(), given
        case c.ClassificationHead() if labels is not None and labels.is_floating_point():
            return MultiLabels(), given
        case c.ClassificationHead() | c.TokenHead() | c.ChoiceHead():
            return ClassLabels(), given
        case c.ReplacedTokenHead():
            return ReplacedTokenLabels(), given
        case _ if labels is None:
            return ClassLabels(), given | {"labels": given["next_sentence_label"]}
        case _ if model.config.encoder and model.config.decoder:
            return Prediction(), teacher_forced(model, given)
        case c.PretrainingHead():
            pair = given.get("next_sentence_label", given.get("sentence_order_label"))
            rest = {name: value for name, value in given.items() if not name.endswith("_label")}
            return (Prediction(), rest) if pair is None else (Prediction(auxiliary=(NextSentence(),)),
                                                              {**rest, "next_sentence": pair})
        case _:
            causal = model.config.encoder is None and kind not in ("xlnet", "xlm")
            return Prediction(), given | ({"labels": shifted(labels)} if causal else {})


def teacher_forced(model: Transformer, given: Batch) -> Batch:
    """The decoder reads the labels one place later, behind the start token or the last of them (a language)."""
    start, padding = (model.generation.get(f"{name}_token_id") for name in ("decoder_start", "pad"))
    labels = given["labels"].masked_fill(given["labels"] == -100, padding)
    return given | {"decoder_input_ids": derive_target(model.config.default_target or c.ShiftedSource(start=start),
                                                       labels)}


@pytest.mark.sampled
@pytest.mark.parametrize(("folder", "name"), cases())
def test_loss(folder: str, name: str) -> None:
    golden, tensors = json.loads((GOLDEN / folder / "golden.json").read_text()), load_file(
        GOLDEN / folder / "golden.safetensors")
    case = next(case for case in golden["cases"] if case["name"] == name)
    model = saucier.load(GOLDEN / folder, head=case["class"], dtype="float32", device="cpu")
    given = {key: tensors[value] for key, value in case["inputs"].items()}
    learned, batch = objective(model, given, str(model.provenance.document["model_type"]))
    with torch.no_grad():
        loss: Loss = learned(model, batch)
    weights = {part: one.weight for part, one in loss.parts.items()}
    wanted = tensors[case["outputs"]["loss"]].float()
    if isinstance(model.config.head, c.SpanHead | c.QuestionSpanHead):
        wanted = without_padding(case, tensors, wanted)
    torch.testing.assert_close(loss.over(weights), wanted, atol=case["atol"], rtol=case["rtol"])


def without_padding(case: dict[str, Any], tensors: Batch, published: Tensor) -> Tensor:
    """The published loss of a span, which lets padding compete, and the same of the published logits without it."""
    def loss(mask: Tensor) -> Tensor:
        both = []
        for side in ("start", "end"):
            logits, places = tensors[case["outputs"][f"{side}_logits"]], tensors[case["inputs"][f"{side}_positions"]]
            kept = places < logits.shape[1]
            both.append(F.cross_entropy(logits.masked_fill(mask == 0, float("-inf"))[kept], places[kept]))
        return torch.stack(both).mean()

    mask = tensors[case["inputs"]["attention_mask"]]
    torch.testing.assert_close(loss(torch.ones_like(mask)), published, atol=case["atol"], rtol=case["rtol"])
    return loss(mask)

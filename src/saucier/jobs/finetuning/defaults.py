"""What a new fine-tuning takes over from its model and its task where a person says nothing: pooling, rate, split. No
torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from saucier import config as c
from saucier.checkpoints.hub import find_finetuned_model, is_hub_id, resolve_folder
from saucier.checkpoints.sentence_modules import is_classifier_folder, is_sentence_folder, read_modules
from saucier.files import is_file, is_folder, read_object
from saucier.tasks.definitions import Classification, TaskConfig

BASE_WIDTH = 768
"""Width of the models (BERT, GPT-2) for which the usual rate is the usual one."""
RATE_LIMITS = (1e-5, 2e-4)
"""Between these the usual rate is scaled."""
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim")
"""How published configs call a model's width."""


def published_pooling(model: str) -> tuple[c.Pooling, ...]:
    """Return how `modules.json` of a model joins the vectors of a text; nothing where it has no such file.

    Of a hub id only the settings are fetched.
    """
    if is_folder(model):
        folder = find_finetuned_model(Path(model))
    elif is_hub_id(model):
        folder = resolve_folder(model, weights=False)
    else:
        return ()
    if not is_sentence_folder(folder) or is_classifier_folder(folder):  # a classifier's own head says it
        return ()
    return read_modules(folder)[1].pooling


def published_pick(model: str) -> c.Pick | None:
    """Return where a head on a model's texts takes their vector; None: where its family's classifiers take it.

    Those read the first token, so `modules.json` is followed by them too where it says `cls`. Of what else it may say
    only the mean is known to our heads.
    """
    return c.PickVector(kind="mean") if published_pooling(model) == (c.Pooling(kind="mean"),) else None


def choose_rate(folder: Path, usual: float) -> float:
    """Return the learning rate for all weights of a model: that of the base models, scaled by one over the width.

    With Adam the best rate of a matrix falls with its inputs. Source: Yang et al. 2022 (μP), table 3, arXiv:2203.03466.
    """
    document = read_object(folder / "config.json") if is_file(folder / "config.json") else {}
    width = next((value for name in WIDTHS if isinstance(value := document.get(name), int) and value > 0), BASE_WIDTH)
    low, high = RATE_LIMITS
    return float(f"{min(max(usual * BASE_WIDTH / width, low), high):.2g}")


def choose_split(task: TaskConfig, held_out: Sequence[str]) -> Literal["stratified"] | None:
    """Return how rows are held out where no file is given: of a classification, the same share of each class."""
    return "stratified" if isinstance(task, Classification) and not held_out else None

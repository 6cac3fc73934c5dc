"""Mask-Predict: its tokens are those of the algorithm written out, whatever stands beside a source in its batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.generation.models import shaken
from torch import Tensor

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation import MaskPredict
from saucier.model import Transformer, build

MASK, START, LONGEST = 3, 0, 9
IDS: dict[str, Any] = {"decoder_start_token_id": START, "eos_token_id": 2, "pad_token_id": 0}
SOURCE = torch.tensor([[1, 10, 11, 12, 13, 2]])


def small() -> Transformer:
    """Return a small model that writes whole texts."""
    config = FAMILIES["mask_predict"](dim=32, layers=2, heads=4, hidden=48, vocab=40, longest=LONGEST)
    return shaken(build(config))  # type: ignore[no-any-return]


def by_definition(model: Transformer, source: Tensor, iterations: int, candidates: int) -> list[int]:
    """Return the tokens of one source, place by place. Ghazvininejad et al. 2019, §3."""
    output = model(source, decoder_input_ids=torch.tensor([[START]]))
    lengths = output.length_logits[0].clone()
    lengths[0] = -torch.inf
    found = []
    for length in lengths.topk(candidates).indices.tolist():
        tokens, chances = [MASK] * length, [0.0] * length
        for step in range(iterations):
            count = max(1, int(length * (iterations - step) / iterations))
            hidden = sorted(range(length), key=lambda place: chances[place])[:count]
            given = torch.tensor([[MASK if place in hidden else token for place, token in enumerate(tokens)]])
            logits = model(source, decoder_input_ids=given).logits[0].clone()
            logits[:, [MASK, 2]] = -torch.inf
            for place in hidden:
                best = logits[place].softmax(-1).max(0)
                tokens[place], chances[place] = int(best.indices), float(best.values)
        found.append((sum(torch.tensor(chances).log().tolist()) / length, tokens))
    return max(found)[1]


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [1, 2, 4, 10])
@pytest.mark.parametrize("candidates", [1, 3])
def test_tokens_are_those_of_the_definition(iterations: int, candidates: int) -> None:
    model = small()
    strategy = MaskPredict(iterations=iterations, length_candidates=candidates)
    with torch.no_grad():
        wanted = by_definition(model, SOURCE, iterations, candidates)
    assert saucier.generate(model, SOURCE, strategy=strategy, **IDS).tolist() == [[START, *wanted]]


def test_iterations_change_what_is_written() -> None:
    """Else the test above would hold of a loop that never mends anything."""
    model = small()
    sources = torch.randint(4, 40, (20, 6), generator=torch.Generator().manual_seed(0))
    once, often = (saucier.generate(model, sources, strategy=MaskPredict(iterations=count, length_candidates=1), **IDS)
                   for count in (1, 6))
    assert once.shape == often.shape
    assert 0.05 < float((once != often).float().mean()) < 0.95


def test_a_batch_is_its_rows_alone() -> None:
    """Padded sources, and targets of several lengths."""
    model = small()
    rows = [[1, 10, 11, 12, 13, 2], [1, 20, 2], [1, 30, 31, 2]]
    ids = torch.tensor([row + [0] * (6 - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (6 - len(row)) for row in rows])
    found = saucier.generate(model, ids, mask, **IDS)
    for number, row in enumerate(rows):
        alone = saucier.generate(model, torch.tensor([row]), **IDS)[0]
        assert found[number, :len(alone)].equal(alone)
        assert (found[number, len(alone):] == IDS["pad_token_id"]).all()


def test_the_length_is_bounded() -> None:
    model = small()
    assert saucier.generate(model, SOURCE, max_new_tokens=2, **IDS).shape[1] <= 3
    assert saucier.generate(model, SOURCE, strategy={"kind": "mask_predict", "length_candidates": 50}, **IDS).shape[
        1] <= LONGEST + 1


def test_what_does_not_fit_is_refused() -> None:
    model = small()
    with pytest.raises(InputError, match="num_beams: is for texts written from left to right"):
        saucier.generate(model, SOURCE, num_beams=4, **IDS)
    with pytest.raises(InputError, match="writes one text"):
        saucier.generate(model, SOURCE, do_sample=True, **IDS)
    other = build(FAMILIES["transformer"](dim=16, layers=1, heads=2, hidden=16, vocab=40))
    with pytest.raises(InputError, match="does not write whole texts"):
        saucier.generate(other, SOURCE, strategy=MaskPredict(), **IDS)
    causal = FAMILIES["transformer"](dim=16, layers=1, heads=2, hidden=16, vocab=40)
    whole = causal.model_copy(update={"head": model.config.head, "pooler": model.config.pooler})
    with pytest.raises(InputError, match="sees only the past"):
        c.check(whole)
    alone = model.config.model_copy(update={"head": c.LanguageHead(predicts=c.WholeText(mask=MASK))})
    with pytest.raises(InputError, match="a head that tells its length"):
        c.check(alone)


@pytest.mark.slow
def test_it_comes_back_from_disk(tmp_path: Any) -> None:
    model = small()
    model.save(tmp_path / "model")
    again = saucier.load(tmp_path / "model", dtype="float32", device="cpu")
    assert saucier.generate(again, SOURCE, **IDS).equal(saucier.generate(model, SOURCE, **IDS))

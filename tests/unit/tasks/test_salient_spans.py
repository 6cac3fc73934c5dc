"""What is hidden of a text: dates by a rule, entities by a tagger, and the tokens of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saucier.errors import InputError
from saucier.families.bert import bert
from saucier.jobs.finetuning.start import build_task_model
from saucier.model import build
from saucier.objectives.masking_units import MarkedSpans, MaskableRow, select_runs
from saucier.tasks.definitions import Tagging
from saucier.tasks.salient_spans import EntityTagger, find_dates, join_spans
from saucier.tasks.tagging import TaggingTask
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

TEXT = ("In 1969, on July 20, Armstrong (born 5 August 1930) left Apollo-11; the 1990s and 2001-09-11 came, "
        "room 12345 not.")


def test_dates_are_found_by_the_rule() -> None:
    (found,) = find_dates([TEXT])
    assert [TEXT[start:end] for start, end in found] == ["1969", "July 20", "5 August 1930", "1990s", "2001-09-11"]
    for text in ("may 3 people come", "version 19691", "A1969", "Mayor 12", "it cost 2999 or 0999"):
        assert find_dates([text]) == [[]], text


def test_of_spans_that_overlap_the_first_and_longest_stays() -> None:
    assert join_spans([[(5, 9), (0, 3)], [(5, 12), (11, 14), (14, 15)]]) == [(0, 3), (5, 12), (14, 15)]


def test_marked_spans_are_units_even_where_they_touch() -> None:
    free = np.array([0, 1, 1, 1, 0, 1], dtype=bool)
    borders = np.array([1, 1, 0, 1, 0, 0], dtype=bool)
    units = MarkedSpans()(MaskableRow(np.arange(6), free, borders))
    assert (units.begin.tolist(), units.end.tolist()) == ([1, 3, 5], [3, 4, 6])
    assert units.joined.tolist() == [False, True, False]
    assert [select_runs(units, [(one, one + 1)]).places.tolist() for one in range(3)] == [[1, 2], [3], [5]]
    none = MarkedSpans()(MaskableRow(np.arange(3), np.zeros(3, dtype=bool), np.ones(3, dtype=bool)))
    assert len(none.begin) == 0


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger that was made to say PER of one word and O of all others."""
    folder = tmp_path_factory.mktemp("tagger")
    tokenizer = train_tokenizer(WordPiece(vocab=54), ["armstrong left the moon , and went home"] * 3)
    task = TaggingTask(Tagging(labels=("O", "B-PER", "I-PER")))
    body = build(bert(vocab=tokenizer.vocab_size, dim=16, layers=1, heads=2, hidden=16, length=64, dropout=0.0))
    model: Any = build_task_model(body, task.required_head, tokenizer)[0]
    name = tokenizer.encode("armstrong", False)[0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.tokens.weight[name] = torch.randn(16, generator=torch.Generator().manual_seed(1))
        for key, parameter in model.named_parameters():
            if "norm" in key and key.endswith("weight"):
                parameter.fill_(1.0)
        seen = model(torch.tensor([[name]]), compute_logits=False).last_hidden_state[0, 0]
        matrix = next(one for one in model.head.parameters() if one.shape == (3, 16))
        bias = next(one for one in model.head.parameters() if one.shape == (3,))
        matrix[1], bias[0] = seen, 1.0
    model.save(folder)
    tokenizer.save(folder)
    return folder


def test_entities_are_those_of_the_tagger(tagger: Path) -> None:
    found = EntityTagger.open(str(tagger))(["the moon, and Armstrong's", "", "home", "(armstrong)"])
    texts = ["the moon, and Armstrong's", "", "home", "(armstrong)"]
    assert [[text[start:end] for start, end in spans] for text, spans in zip(texts, found, strict=True)] \
        == [["Armstrong"], [], [], ["armstrong"]]


def test_what_tags_nothing_is_no_tagger(tagger: Path, tmp_path: Path) -> None:
    build(bert(vocab=20, dim=16, layers=1, heads=2, hidden=16, length=32)).save(tmp_path / "plain")
    (tmp_path / "plain" / "tokenizer.json").write_bytes((tagger / "tokenizer.json").read_bytes())
    with pytest.raises(InputError, match="tags no entities"):
        EntityTagger.open(str(tmp_path / "plain"))

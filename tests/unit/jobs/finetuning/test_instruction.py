"""Instruction tuning: what is learned of a conversation, how conversations share rows, what is cut and left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tolerances import PART
from tests.unit.jobs.finetuning.conftest import written_rows

import saucier
from saucier.errors import InputError
from saucier.objectives.base import IGNORED
from saucier.tasks.build import build_task
from saucier.tasks.examples import Place, Tally
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import ChatTemplate, Instruction
from saucier.tasks.written.instruction import Conversation, InstructionTask, Message
from saucier.text.reading.sources import find_sources

CHATML = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
          "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")


def talk(*said: str) -> Conversation:
    roles = ("user", "assistant")
    return Conversation(Place("file", 1), "one", tuple(Message(roles[place % 2], text)
                                                       for place, text in enumerate(said)))


def encoding_of(folder: Path, length: int = 200) -> Encoding:
    return Encoding(saucier.load_tokenizer(folder), length, saucier.load(folder, dtype="float32").config)


def task_of(**settings: Any) -> InstructionTask:
    found = build_task(Instruction(**settings))
    assert isinstance(found, InstructionTask)
    return found


def learned(encoding: Encoding, ids: Sequence[int], labels: Sequence[int]) -> list[str]:
    """Return the stretches of tokens that are learned, as text."""
    stretches: list[list[int]] = [[]]
    for label in labels:
        if label == IGNORED:
            stretches += [[]] if stretches[-1] else []
        else:
            stretches[-1].append(label)
    return [encoding.tokenizer.decode(one, skip_special_tokens=False) for one in stretches if one]


def test_every_answer_is_learned_and_nothing_else(tiny_gpt2: Path) -> None:
    encoding = encoding_of(tiny_gpt2)
    sheet = task_of(packing=False).encode([talk("hot soup", "very rich", "a plate", "cold")], encoding)
    ids, labels = (sheet.sequences[name].row(0).tolist() for name in ("input_ids", "labels"))
    assert learned(encoding, ids, labels) == ["very rich<|endoftext|>", "cold<|endoftext|>"]
    text = encoding.tokenizer.decode(ids, skip_special_tokens=False)
    assert text == ("<|endoftext|>### User:\nhot soup\n\n### Assistant:\nvery rich<|endoftext|>\n\n"
                    "### User:\na plate\n\n### Assistant:\ncold")
    shifted = [label for label in labels if label != IGNORED]
    assert shifted == [ids[place + 1] for place in range(len(ids) - 1) if labels[place] != IGNORED] + [
        encoding.tokenizer.eos_id]


def test_what_is_asked_when_writing_is_what_was_read_in_training(tiny_gpt2: Path) -> None:
    from saucier.tasks.written.prompts import encode_prompts

    encoding, task = encoding_of(tiny_gpt2), task_of(packing=False)
    one = talk("hot soup", "very rich", "a plate", "cold")
    row = task.encode([one], encoding).sequences["input_ids"].row(0).tolist()
    asked = encode_prompts([task.prompt(one, encoding)], encoding, 200)[0][0]
    assert asked == row[:len(asked)]
    assert len(row) - len(asked) == len(encoding.tokenizer.encode("cold"))


def test_a_chat_template_says_what_is_learned(tiny_gpt2: Path) -> None:
    pytest.importorskip("jinja2")
    encoding = encoding_of(tiny_gpt2)
    encoding.tokenizer.handling.chat["default"] = CHATML  # type: ignore[index]
    task = task_of(template=ChatTemplate(), packing=False)
    sheet = task.encode([talk("hot soup", "very rich", "a plate", "cold")], encoding)
    ids, labels = (sheet.sequences[name].row(0).tolist() for name in ("input_ids", "labels"))
    assert learned(encoding, ids, labels) == ["very rich<|endoftext|>", "cold<|endoftext|>"]
    assert encoding.tokenizer.decode(ids, skip_special_tokens=False).startswith("<user>hot soup<assistant>very")
    encoding.tokenizer.handling.chat["default"] = "{{ messages | length }}" + CHATML  # type: ignore[index]
    with pytest.raises(InputError, match="writes earlier turns differently"):
        task.encode([talk("hot soup", "very rich", "a plate", "cold")], encoding)


def test_an_encoder_reads_what_was_asked_and_each_answer_is_a_target(tiny_t5: Path) -> None:
    encoding = encoding_of(tiny_t5)
    sheet = task_of().encode([talk("soup", "rich", "cat", "cold")], encoding)
    tokenizer = encoding.tokenizer
    assert sheet.example_numbers.tolist() == [0, 0]
    assert sheet.sequences["input_ids"].row(0).tolist() == tokenizer.encode("soup")
    assert [sheet.sequences["labels"].row(row).tolist() for row in (0, 1)] == [tokenizer.encode("rich"),
                                                                          tokenizer.encode("cold")]


def test_conversations_in_one_row_are_learned_as_if_they_stood_alone(tiny_gpt2: Path) -> None:
    encoding, model = encoding_of(tiny_gpt2), saucier.load(tiny_gpt2, dtype="float32")
    talks = [talk("hot soup", "rich"), talk("a plate", "cold"), talk("my cat", "very", "bread", "sour")]
    task = task_of()
    together = task.encode(talks, Encoding(encoding.tokenizer, 200, encoding.body))
    assert len(together) == 1
    whole = together.batch(np.array([0]))
    alone = task_of(packing=False).encode(talks, encoding).batch(np.arange(3))
    found, expected = (task.objective(model, batch) for batch in (whole, alone))
    assert found.weight == expected.weight
    assert found.total.item() == pytest.approx(expected.total.item(), rel=PART)


def test_no_gradient_leaks_between_conversations_of_a_row(tiny_gpt2: Path) -> None:
    encoding, model = encoding_of(tiny_gpt2), saucier.load(tiny_gpt2, dtype="float32")
    sheet = task_of().encode([talk("hot soup", "rich"), talk("a plate", "cold")], Encoding(encoding.tokenizer, 200,
                                                                                          encoding.body))
    batch = sheet.batch(np.array([0]))
    numbers, labels = batch["documents"][0], batch["labels"][0]
    vectors = model.embed.tokens.weight.detach()[batch["input_ids"]].requires_grad_()
    given = {name: value for name, value in batch.items() if name not in ("input_ids", "labels")}
    logits = model(inputs_embeds=vectors, **given).logits[0]
    second = (numbers == 1) & (labels != IGNORED)
    torch.nn.functional.cross_entropy(logits[second], labels[second]).backward()
    assert vectors.grad is not None
    reach = vectors.grad[0].abs().sum(-1)
    assert reach[numbers == 0].max() == 0
    assert reach[numbers == 1].max() > 0
    assert batch["places"][0][numbers == 1][0] == 0


def test_long_conversations_are_cut_or_left_out_and_counted(tiny_gpt2: Path) -> None:
    encoding = encoding_of(tiny_gpt2, 40)
    short, long = talk("soup", "rich"), talk("soup", "rich " * 40)
    asked = talk("soup " * 40, "rich")
    rows = [short, long, asked]
    cut = task_of(packing=False).encode(rows, encoding)
    assert cut.example_numbers.tolist() == [0, 1, 2]
    assert (cut.truncation.rows, cut.truncation.dropped) == (2, 0)
    answers = [[number for number in cut.sequences["labels"].row(row).tolist() if number != IGNORED] for row in (0, 2)]
    assert answers[0] == answers[1]
    assert len(cut.sequences["labels"].row(2)) == 40
    whole = task_of(packing=False).encode(rows, Encoding(encoding.tokenizer, 1000, encoding.body))
    full, kept = (int((sheet.sequences["labels"].values != IGNORED).sum()) for sheet in (whole, cut))
    assert cut.truncation.targets == full - kept
    dropped = task_of(packing=False, too_long="drop").encode(rows, encoding)
    assert dropped.example_numbers.tolist() == [0]
    assert dropped.truncation.dropped == 2


@pytest.mark.parametrize("row", [
    {"messages": [{"role": "user", "content": "soup"}, {"role": "assistant", "content": "rich"}]},
    {"conversations": [{"from": "human", "value": "soup"}, {"from": "gpt", "value": "rich"}]},
    {"instruction": "soup", "input": "", "output": "rich"},
    {"prompt": "soup", "completion": "rich"},
])
def test_every_form_of_file_is_read(row: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps(row) + "\n")
    found = list(task_of().read(find_sources([str(path)])[0], Tally(), labelled=True))
    assert [one.messages for one in found] == [(Message("user", "soup"), Message("assistant", "rich"))]


@pytest.mark.parametrize(("row", "says"), [
    ({"messages": []}, "the messages are no list, or an empty one"),
    ({"messages": [{"role": "user", "content": "soup"}]}, "no turn is the assistant's"),
    ({"messages": [{"role": "cook", "content": "soup"}]}, "a message of role 'cook' with str"),
    ({"messages": [{"role": "user", "content": None}]}, "a message of role 'user' with NoneType"),
    ({"instruction": " ", "output": "rich"}, "the instruction is empty"),
])
def test_wrong_rows_are_named(row: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="line 1") as error:
        list(task_of().read(find_sources([str(path)])[0], Tally(), labelled=True))
    assert says in str(error.value)


def test_rows_without_an_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    path, tally = tmp_path / "rows.jsonl", Tally()
    path.write_text("".join(json.dumps({"prompt": "soup", "completion": one}) + "\n" for one in ("rich", " ", None)))
    assert len(list(task_of().read(find_sources([str(path)])[0], tally, labelled=True))) == 1
    assert dict(tally) == {"rows left out that have no answer": 2}


@pytest.mark.slow
def test_it_learns_to_answer(tiny_gpt2: Path, tmp_path: Path, table: Callable[..., Path]) -> None:
    from saucier.jobs.finetuning.finetune import finetune
    from saucier.jobs.finetuning.predict import predict_answers
    from saucier.jobs.finetuning.settings import read_finetuning_words

    train = table("train.tsv", "prompt,completion", written_rows(240, 1))
    dev = table("dev.tsv", "prompt,completion", written_rows(20, 2))
    words = ["training.epochs=12", "training.batch=4", "training.optimizer.learning_rate=0.003",
             "training.dtype=float32"]
    wanted, _ = read_finetuning_words("instruction", words, str(tiny_gpt2),
                                      {"train": [str(train)], "held_out": [str(dev)]})
    done = finetune(wanted, tmp_path / "run", quiet=True)
    found = {one["name"]: one["value"] for one in json.loads(done.scores.read_text())["held-out"]["scores"]}
    assert found["exact match"] > 0.7
    assert predict_answers(done.path, [], ["the cook is fine"]).answers[0].prediction in ("very rich soup",
                                                                                          "cold bread")

"""The texts that are sent, the examples in them, and what is scored; with a model that is a function of the test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from saucier.errors import InputError
from saucier.jobs.prompting.evaluation import PromptPlan, first_number, run_prompting
from saucier.jobs.prompting.prompted_model import AnswerLikelihoods
from saucier.jobs.prompting.questions import PromptTask, Writing, draw_shots, read_questions, read_task
from saucier.jobs.score import score_files

TRAIN = "label\ttext\n" + "".join(f"{n % 2}\tsoup {n}\n" for n in range(9))
TASK = """
name: soups
evaluate: dev.tsv
train: train.tsv
template: "Review: {{ text }}\\nFeeling:"
choices: [bad, good]
gold: label
separator: "\\n##\\n"
"""


@dataclass
class Echo:
    """Finds the answer likeliest that stands nearest to the end of the prompt; the first one where none does."""

    room: int | None = None
    opened: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(is_encoder_decoder=False))
    seen: list[str] = field(default_factory=list)

    def encode(self, text: str) -> list[int]:
        return [1] * len(text.split())

    def likelihoods(self, prompt: str, answers: Sequence[str]) -> AnswerLikelihoods:
        self.seen.append(prompt)
        return AnswerLikelihoods(tuple(float(prompt.rfind(answer)) for answer in answers), (1,) * len(answers))


@pytest.fixture
def task(tmp_path: Path) -> PromptTask:
    """A task of nine examples and four questions."""
    (tmp_path / "train.tsv").write_text(TRAIN)
    (tmp_path / "dev.tsv").write_text("label\ttext\n1\tnice\n0\tburnt\n1\tfine\n1\twarm\n")
    (tmp_path / "task.yaml").write_text(TASK)
    return read_task(tmp_path / "task.yaml")


def test_the_exact_text_is_sent_and_kept(task: PromptTask, tmp_path: Path) -> None:
    model = Echo()
    found = run_prompting(task, model, PromptPlan((0, 2), draws=3, seed=5), out=tmp_path / "out")  # type: ignore[arg-type]
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == model.seen
    assert model.seen[0] == "Review: nice\nFeeling:"
    assert len(rows) == 4 + 3 * 4 and Counter(row["shots"] for row in rows) == {0: 4, 2: 12}
    last = rows[-1]
    first, second, question = last["text"].split("\n##\n")
    assert question == "Review: warm\nFeeling:" and first.startswith("Review: soup ") and len(last["examples"]) == 2
    for example, number in zip((first, second), last["examples"], strict=True):
        place = int(number.removeprefix("train.tsv:")) - 2
        assert example == f"Review: soup {place}\nFeeling: {('bad', 'good')[place % 2]}"
    assert last["prediction"] == str(int(second.endswith("good"))) and last["gold"] == "1"
    assert [one.shots for one in found.settings] == [0, 2] and found.settings[1].spread is not None


def test_scores_are_over_questions_and_baselines_stand_beside(task: PromptTask, tmp_path: Path) -> None:
    found = run_prompting(task, Echo(), PromptPlan((0, 3), draws=4), out=tmp_path / "out")  # type: ignore[arg-type]
    zero, three = found.settings
    assert (zero.scores[0].name, zero.scores[0].value) == ("accuracy", 0.25), "no answer stands there: the first"
    assert three.scores[0].count == 4, "four draws of four questions are no sixteen questions"
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    right = [row["prediction"] == row["gold"] for row in rows if row["shots"] == 3]
    assert three.scores[0].value == pytest.approx(sum(right) / 16)
    assert [(one.name, one.value) for one in found.baselines] == [("chance", 0.5), ("always '0'", 0.25)]
    again = score_files((str(tmp_path / "out/results.jsonl"),), kind="classes")
    assert again.scores[0][0].value == pytest.approx((1 + sum(right)) / 20)


def test_whole_examples_are_dropped_where_they_do_not_fit(task: PromptTask, tmp_path: Path) -> None:
    """An example has five words, the prompt three and its answer one; `##` stands between."""
    model = Echo(room=17)
    found = run_prompting(task, model, PromptPlan((4,)))  # type: ignore[arg-type]
    assert {text.count("##") for text in model.seen} == {2} and found.settings[0].dropped == 4 * 2
    assert found.settings[0].cut == 0
    short = Echo(room=3)
    assert run_prompting(task, short, PromptPlan((1,))).settings[0].cut == 4  # type: ignore[arg-type]
    assert all(text.endswith("Feeling:") for text in short.seen)


def test_examples_are_drawn_by_seed_draw_and_question_and_never_the_question(task: PromptTask) -> None:
    train = read_questions(task, str(task.train))
    draw = [tuple(one.id for one in draw_shots(train, train[0], 4, balanced=False, key=(0, number, 0)))
            for number in range(40)]
    assert len({*draw}) > 30 and all(train[0].id not in one and len({*one}) == 4 for one in draw)
    assert draw[3] == tuple(one.id for one in draw_shots(train, train[0], 4, balanced=False, key=(0, 3, 0)))
    counts = Counter(one for ids in draw for one in ids)
    assert min(counts.values()) > 8, "twenty are expected of each of the eight"
    for number in range(10):
        golds = Counter(one.gold for one in draw_shots(train, train[0], 4, balanced=True, key=(0, number, 0)))
        assert golds == {"0": 2, "1": 2}


def test_choices_of_a_column_and_golds_by_number(tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text(json.dumps(
        {"id": "q7", "question": "Hot?", "choices": ["ice", "soup"], "answer": 1}) + "\n")
    task = PromptTask(name="q", evaluate="", template="{{ question }}", gold="answer", choices="choices",
                      answer=" It is {{ answer }}.")
    [question] = read_questions(task, str(tmp_path / "dev.jsonl"))
    assert (question.id, question.answers, question.right, question.gold) == (
        "q7", (" It is ice.", " It is soup."), 1, "1")
    assert question.solved == "Hot? It is soup."


FAULTS = [("template: \"{{ txt }}\"", "dev.tsv: no column 'txt', which template names; columns: label, text"),
          ("template: \"{{ text\"", "template: the template is broken"),
          ("choices: [bad, good, odd]\nlabels: [a, b]", "as many"),
          ("choices: [bad, good]\nlabels: [a, b]\ngold: text", "the gold 'nice' is no choice; choices: bad, good"),
          ("tempalte: x", "task.yaml:3: tempalte: unknown key; did you mean 'template'?")]


@pytest.mark.parametrize(("line", "message"), FAULTS)
def test_what_is_wrong_is_told(task: PromptTask, tmp_path: Path, line: str, message: str) -> None:
    names = [part.split(":")[0] for part in line.splitlines()]
    kept = [one for one in TASK.splitlines() if one.split(":")[0] not in names]
    (tmp_path / "task.yaml").write_text("\n".join([*kept[:2], line, *kept[2:]]))
    with pytest.raises(InputError) as error:
        run_prompting(read_task(tmp_path / "task.yaml"), Echo(), PromptPlan())  # type: ignore[arg-type]
    assert message in str(error.value)


def test_shots_need_examples(task: PromptTask) -> None:
    with pytest.raises(InputError, match="2 shots, and no file to draw them from"):
        run_prompting(task.model_copy(update={"train": None}), Echo(), PromptPlan((0, 2)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="9 shots of 9 examples"):
        run_prompting(task, Echo(), PromptPlan((9,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("choices", [(), ("soup",), ("soup", "soup")])
def test_one_choice_is_none(choices: tuple[str, ...]) -> None:
    """It would always be right."""
    with pytest.raises(InputError, match="`choices:` are two texts or more, each another one"):
        PromptTask(name="q", evaluate="", template="{{ question }}", gold="answer", choices=choices)


def test_a_fault_of_a_whole_task_has_no_empty_key(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(TASK.replace("[bad, good]", "[bad]"))
    with pytest.raises(InputError) as error:
        read_task(tmp_path / "task.yaml")
    assert str(error.value) == f"{tmp_path}/task.yaml:2: `choices:` are two texts or more, each another one"


@pytest.mark.parametrize("lost", ["question", "answer"])
def test_a_row_without_a_column_that_others_have_is_named(lost: str, tmp_path: Path) -> None:
    rows = [{"question": "Hot?", "answer": "soup"}, {"question": "Cold?", "answer": "ice"}]
    rows[1].pop(lost)
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = PromptTask(name="q", evaluate="", template="{{ question }}", gold="answer", choices=("ice", "soup"))
    with pytest.raises(InputError, match=rf"dev\.jsonl, line 2: no column '{lost}', which"):
        read_questions(task, str(tmp_path / "dev.jsonl"))


def test_results_that_are_there_are_left_alone(task: PromptTask, tmp_path: Path) -> None:
    """And nothing is asked before that is known."""
    run_prompting(task, Echo(), PromptPlan(), out=tmp_path / "out")  # type: ignore[arg-type]
    before = (tmp_path / "out/results.jsonl").read_text()
    other = Echo()
    for place in (tmp_path / "out", tmp_path / "task.yaml"):
        with pytest.raises(InputError, match=rf"{place}: is there already; give a new folder"):
            run_prompting(task, other, PromptPlan((0, 1)), out=place)  # type: ignore[arg-type]
    assert (tmp_path / "out/results.jsonl").read_text() == before and not other.seen


@pytest.mark.parametrize("gold", ["many", "", "nan", "inf"])
def test_a_right_answer_that_is_no_number_is_refused(tmp_path: Path, gold: str) -> None:
    """It would count as 0, and the score would be of another question."""
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(
        {"id": f"q{n}", "question": "How many?", "answer": value}) + "\n" for n, value in enumerate(["3", gold, "4"])))
    task = PromptTask(name="q", evaluate=str(tmp_path / "dev.jsonl"), template="{{ question }}", gold="answer",
                      by=Writing(scored_as="numbers"))
    model = Echo()
    with pytest.raises(InputError) as error:
        run_prompting(task, model, PromptPlan())  # type: ignore[arg-type]
    assert str(error.value) == (f"{tmp_path}/dev.jsonl: 1 of 3 right answers are no numbers, first {gold!r} of q1; "
                                "write numbers into the column 'answer', or scored_as: texts")
    assert model.seen == []


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("-2.5 apples", -2.5), ("none", None), ("", None),
                                             ("nan", None), ("1e400", None)])
def test_numbers_are_read_from_the_first_word(text: str, value: float | None) -> None:
    assert first_number(text) == value

"""Likelihoods of answers against transformers on golden checkpoints, and against reading every text anew."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import saucier
from saucier.errors import InputError
from saucier.jobs.prompting.evaluation import count_excess_tokens, normalize_likelihoods
from saucier.jobs.prompting.prompted_model import PromptedModel, refuse_unpromptable
from saucier.jobs.prompting.questions import Likelihood, PerByte, PerToken, Question, Unconditional, WholeSum
from saucier.opened import OpenModel

PROMPT, ANSWERS = "Is soup hot?", (" yes", " no, it is not", " maybe it is")


class Letters:
    """A tokenizer of golden size: a letter is a token, `.` ends a text, and two letters may become one."""

    bos_id, eos_id, pad_id = None, 1, 0
    handling = SimpleNamespace(max_length=None)

    @property
    def target(self) -> Letters:
        return self

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids = [2 + ord(letter) % 60 for letter in text.replace("? y", "~")]
        return ids + [1] * add_special_tokens


def prompted_model(shared: Path, name: str) -> PromptedModel:
    model = saucier.load(shared / "golden" / name, dtype="float32")
    return PromptedModel(OpenModel(Path(name), model, Letters()))  # type: ignore[arg-type]


def reference(shared: Path, name: str, kind: str) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, kind).from_pretrained(shared / "golden" / name).eval()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_decoders_find_answers_as_likely_as_transformers_does(shared: Path, name: str) -> None:
    """Each whole text by itself in the reference; ours reads the prompt once and the answers from its cache."""
    prompted, model = prompted_model(shared, name), reference(shared, name, "AutoModelForCausalLM")
    found = prompted.likelihoods(PROMPT, ANSWERS[1:])
    before = [1, *Letters().encode(PROMPT, False)]
    for answer, nats, count in zip(ANSWERS[1:], found.nats, found.tokens, strict=True):
        whole = torch.tensor([[1, *Letters().encode(PROMPT + answer, False)]])
        with torch.no_grad():
            logits = model(whole).logits.log_softmax(-1)
        want = sum(float(logits[0, place - 1, whole[0, place]]) for place in range(len(before), whole.shape[1]))
        assert nats == pytest.approx(want, abs=2e-4) and count == whole.shape[1] - len(before)


def test_an_answer_alone_is_as_likely_as_among_others(shared: Path) -> None:
    prompted = prompted_model(shared, "gpt2")
    (alone,), (among, _) = (prompted.likelihoods(PROMPT, answers).nats for answers in (ANSWERS[1:2], ANSWERS[1:]))
    assert alone == pytest.approx(among, abs=1e-4)


def test_encoder_decoders_find_targets_as_likely_as_transformers_does(shared: Path) -> None:
    """The reference's own loss: the mean over the target's tokens, its end included."""
    prompted, model = prompted_model(shared, "t5"), reference(shared, "t5", "T5ForConditionalGeneration")
    found = prompted.likelihoods(PROMPT, ANSWERS)
    source = torch.tensor([Letters().encode(PROMPT)])
    for answer, nats, count in zip(ANSWERS, found.nats, found.tokens, strict=True):
        labels = torch.tensor([Letters().encode(answer.strip())])
        with torch.no_grad():
            loss = model(input_ids=source, labels=labels).loss
        assert nats == pytest.approx(-float(loss) * labels.shape[1], abs=2e-4) and count == labels.shape[1]


def test_the_longest_answer_is_that_with_most_tokens() -> None:
    """Whatever its letters: three words are more tokens than one long one."""
    words = SimpleNamespace(room=4, opened=SimpleNamespace(is_encoder_decoder=False), encode=str.split)
    question = Question("one", "is soup hot", (" undoubtedly", " a b c"), 0, "1", ("1", "2"))
    assert count_excess_tokens(SimpleNamespace(by=Likelihood()), words, question, question.prompt) == 2  # type: ignore[arg-type]


def test_a_token_over_the_border_belongs_to_the_answer(shared: Path) -> None:
    """`? y` is one token: all answers are then scored from the place where their texts part."""
    found = prompted_model(shared, "gpt2").likelihoods(PROMPT, ANSWERS)
    assert found.tokens == (1 + len("es"), 1 + len(ANSWERS[1]), 1 + len(ANSWERS[2]))


def test_the_cache_changes_nothing(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompted = prompted_model(shared, "gpt2")
    once = prompted.likelihoods(PROMPT, ANSWERS)
    monkeypatch.setattr("saucier.jobs.prompting.prompted_model.cache_reason", lambda config: "read anew")
    assert prompted.likelihoods(PROMPT, ANSWERS).nats == pytest.approx(once.nats, abs=1e-4)


def test_answers_of_unequal_length_are_compared_as_asked(shared: Path) -> None:
    prompted = prompted_model(shared, "gpt2")
    found = prompted.likelihoods("ab", (" é", " cd"))
    assert normalize_likelihoods(WholeSum(), found, prompted, (" é", " cd")) == found.nats
    assert normalize_likelihoods(PerToken(), found, prompted,
                                 (" é", " cd")) == pytest.approx((found.nats[0] / 2, found.nats[1] / 3))
    assert normalize_likelihoods(PerByte(), found, prompted,
                                 (" é", " cd")) == pytest.approx((found.nats[0] / 3, found.nats[1] / 3))
    without = prompted.likelihoods("Answer:", (" é", " cd")).nats
    assert normalize_likelihoods(Unconditional(), found, prompted, (" é", " cd")) == pytest.approx(
        (found.nats[0] - without[0], found.nats[1] - without[1]))


@pytest.mark.parametrize("name", ["bert-masked-lm", "bert-sequence-classification", "gpt2-sequence-classification"])
def test_models_that_do_not_speak_are_refused(shared: Path, name: str) -> None:
    with pytest.raises(InputError, match="saucier finetune"):
        refuse_unpromptable(saucier.load(shared / "golden" / name))

"""Replaced-token detection: what is drawn, which loss reaches what, and the variants of the paper."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.helpers import IDS, rows
from tests.unit.training.toy import Counting, recipe, small, study

from saucier import config as architecture
from saucier import load
from saucier.config import parameters
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import Transformer, build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, ObjectiveInputs
from saucier.objectives.config.replaced_tokens import derive_generator
from saucier.objectives.replaced_tokens import ReplacedTokens, build_replaced, draw_tokens, get_tables
from saucier.recipes import recipe as read
from saucier.training.loop import train

HALF = c.Generator(width=0.5)
TEXT = rows([[1, *range(10, 28), 2], [1, *range(40, 50), 2, *[0] * 8]])


def electra(**options: object) -> architecture.Transformer:
    return FAMILIES["electra"](dim=32, layers=2, heads=4, vocab=100, length=64, width=24, dropout=0.0, **options)


def made(config: c.Replaced, body: architecture.Transformer | None = None,
         steps: int = 1) -> tuple[Transformer, ReplacedTokens, Batch]:
    """Build everything, and one batch."""
    given = ObjectiveInputs(IDS, body or electra(), steps)
    corruption, objective = build_replaced(config, given)
    model = build(given.body, seed=3)
    objective.bind(model)
    return model, objective, corruption(TEXT, seed=0, step=5)


def test_both_losses_are_those_of_the_definition() -> None:
    model, objective, batch = made(c.Replaced(generator=HALF))
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    with torch.no_grad():
        loss = objective(model, batch)
    generated = objective.generator(**inputs).logits.detach()
    asked = batch["labels"] != IGNORED
    assert float(loss.parts["tokens"].total) == pytest.approx(
        float(F.cross_entropy(generated[asked], batch["labels"][asked], reduction="sum")), rel=1e-4)
    ids = torch.where(asked, batch["labels"], batch["input_ids"])
    true = ids.clone()
    chances = generated.softmax(-1)
    for row, place in asked.nonzero().tolist():
        below = chances[row, place].cumsum(0) <= batch["draws"][row, place]
        ids[row, place] = int(below.sum())
    logits = model(ids, batch["attention_mask"]).logits.detach()
    real = batch["attention_mask"].bool()
    expected = F.binary_cross_entropy_with_logits(logits[real], (ids != true)[real].float(), reduction="sum")
    assert float(loss.parts["replaced"].total) == pytest.approx(50 * float(expected), rel=1e-4)
    assert loss.parts["replaced"].weight == 32
    assert objective.count(batch) == {name: part.weight for name, part in loss.parts.items()}


def test_tokens_are_drawn_by_their_probability_and_only_by_the_numbers_given() -> None:
    model = build(FAMILIES["electra_generator"](dim=32, layers=1, heads=2, vocab=12, length=8, width=32), seed=0)
    torch.nn.init.normal_(model.head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    features = torch.randn(32, generator=torch.Generator().manual_seed(1)) * 20
    numbers = (torch.arange(20_000) + 0.5) / 20_000
    found = draw_tokens(model, features.expand(20_000, -1), numbers).bincount(minlength=12) / 20_000
    chances = model.head(features).detach().softmax(-1)
    assert float(chances.max()) > 10 * float(chances.min())
    assert torch.allclose(found, chances, atol=2e-4)
    assert draw_tokens(model, features[None], torch.tensor([1.0])).item() == 11


def test_a_row_is_the_same_in_any_micro_batch_and_another_at_every_step() -> None:
    corruption, _ = build_replaced(c.Replaced(), ObjectiveInputs(IDS))
    whole, alone = corruption(TEXT, seed=0, step=5), corruption(TEXT.select(slice(1, 2)), seed=0, step=5)
    width = alone["draws"].shape[1]
    assert torch.equal(whole["draws"][1:, :width], alone["draws"])
    assert not torch.equal(whole["draws"], corruption(TEXT, seed=0, step=6)["draws"])
    assert float(whole["draws"].min()) >= 0
    assert float(whole["draws"].max()) < 1


def gradient(loss_part: str, sharing: object) -> tuple[torch.Tensor | None, torch.Tensor | None, bool]:
    """Return the gradients of both token tables by one part, and whether the generator's encoder has any."""
    model, objective, batch = made(c.Replaced(generator=HALF.model_copy(update={"sharing": sharing})))
    objective(model, batch).parts[loss_part].total.backward()
    ours = next(iter(objective.generator.encoder.parameters())).grad
    return objective.generator.embed.tokens.weight.grad, model.embed.tokens.weight.grad, ours is not None


def test_no_gradient_goes_through_what_was_drawn() -> None:
    mine, models, encoder = gradient("replaced", c.OwnTables())
    assert mine is None
    assert not encoder
    assert models is not None
    mine, models, encoder = gradient("tokens", c.OwnTables())
    assert mine is not None
    assert encoder
    assert models is None


def test_shared_tables_learn_from_both() -> None:
    for part in ("replaced", "tokens"):
        mine, models, _ = gradient(part, c.SharedTables())
        assert mine is models
        assert mine is not None


def test_disentangled_tables_follow_the_generators_and_keep_their_difference() -> None:
    config = c.Replaced(generator=HALF.model_copy(update={"sharing": c.Disentangled()}))
    model, objective, batch = made(config)
    ours, theirs = get_tables(objective.generator), get_tables(model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    objective(model, batch)
    with torch.no_grad():
        theirs["tokens"][:, 0] += 0.25  # what the model's own loss would teach
        ours["tokens"][:, 1] += 0.5  # what the generator's would
    objective.finish_update(model, 0)
    difference = theirs["tokens"] - ours["tokens"]
    assert torch.allclose(difference[:, 0], torch.tensor(0.25), atol=1e-6)
    assert torch.allclose(difference[:, 1:], torch.tensor(0.0), atol=1e-6)
    settled = theirs["tokens"].clone()
    objective.finish_update(model, 1)
    assert torch.equal(theirs["tokens"], settled)


def test_one_encoder_for_both() -> None:
    config = c.Replaced(generator=c.Generator(width=1, depth=1, sharing=c.SharedAll()))
    model, objective, batch = made(config)
    assert objective.generator.encoder is model.encoder
    objective(model, batch).parts["tokens"].total.backward()
    assert next(iter(model.encoder.parameters())).grad is not None
    with pytest.raises(InputError, match="as large as the model"):
        derive_generator(electra(), c.Replaced(generator=c.Generator(sharing=c.SharedAll())))


def test_the_chosen_tokens_alone() -> None:
    _, objective, batch = made(c.Replaced(generator=HALF, learns=c.ChosenTokens()))
    counts = objective.count(batch)
    assert counts["replaced"] == counts["tokens"] == float((batch["labels"] != IGNORED).sum())


def test_originals_are_asked_of_a_language_head() -> None:
    body = electra().model_copy(update={"head": architecture.LanguageHead(transform=architecture.Transform(width=24))})
    model, objective, batch = made(c.Replaced(generator=HALF, learns=c.Originals(), weight=1), body)
    filled, _ = objective.fill(model, batch)
    logits = model(filled.ids, batch["attention_mask"]).logits.detach()
    asked = batch["labels"] != IGNORED
    expected = F.cross_entropy(logits[asked], batch["labels"][asked], reduction="sum")
    assert float(objective(model, batch).parts["replaced"].total.detach()) == pytest.approx(float(expected), rel=1e-4)


def test_two_stages() -> None:
    config = c.Replaced(stages=c.TwoStages(first=0.5), generator=c.Generator(width=1, sharing=c.OwnTables()))
    model, objective, batch = made(config, steps=10)
    first, second = objective.at(4), objective.at(5)
    assert (first.parts, second.parts) == (("tokens",), ("replaced",))
    objective.finish_update(model, 3)
    ours, theirs = objective.generator.encoder, model.encoder
    same = [torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)]
    assert not all(same)
    objective.finish_update(model, 4)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    second(model, batch).total.backward()
    assert next(iter(ours.parameters())).grad is None
    assert next(iter(theirs.parameters())).grad is not None


def test_the_generator_is_saved_as_a_model_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    found = []
    for folder, stops in (("whole", [6]), ("parts", [2, 6])):
        for stop in stops:
            body = small("electra", dropout=0.0)
            learning = study(c.Replaced(generator=c.Generator(width=0.5, sharing=c.Disentangled())), Counting(), body)
            model = build(body, seed=1)
            learning.objective.bind(model)
            training = recipe(stop, save_every=2, evaluate_every=100)
            train(model, learning, training, run_folder=tmp_path / folder, reporters=[], recipe={"name": "test"})
        found.append([*model.parameters(), *learning.objective.generator.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    loaded = load(tmp_path / "parts" / "checkpoints" / "step-6" / "generator", device="cpu", dtype="float32")
    assert torch.equal(loaded.embed.tokens.weight, learning.objective.generator.embed.tokens.weight)
    assert loaded.save(tmp_path / "published") == "electra"


@pytest.mark.parametrize(("family", "share"), [("bert", 0.25), ("roberta", 0.5), ("deberta_v2", 0.5), ("albert", 0.5)])
def test_any_encoder_has_a_generator(family: str, share: float) -> None:
    buckets = {"buckets": 16} if family == "deberta_v2" else {}
    body = FAMILIES[family](dim=64, layers=4, heads=4, vocab=100, length=32, **buckets)
    body = body.model_copy(update={"head": architecture.ReplacedTokenHead()})
    config = c.Replaced(generator=c.Generator(width=share, depth=0.5))
    found = derive_generator(body, config)
    assert (found.dim, found.encoder.layers.times) == (64 * share, 2)
    assert found.embed.widths(found.dim) == body.embed.widths(body.dim)
    model, objective, batch = made(config, body)
    assert float(objective(model, batch).total.detach()) > 0


def test_the_generators_of_the_paper() -> None:
    """Sizes as in table 6; those of the published generators of base and large."""
    for name, width, count in (("electra", 64, None), ("electra-base", 256, 33_740_602), ("electra-large", 256, None)):
        found = read(name)
        made = derive_generator(found.model, found.objective)
        assert made.dim == width
        assert count is None or parameters(made) == count


@pytest.mark.parametrize(("override", "words"), [
    (["model.head={kind: token_classification}"], "replaced needs a head that gives one logit for each token"),
    (["objective.masking.next_sentence={real: 0.5}"], "nothing is learned beside replaced tokens"),
    (["tokenizer.special.mask=null"], "masked needs a mask token"),
    (["objective.stages.kind=two_stages"], "a generator with all the model's weights is as large as the model"),
    (["objective.masking.rate=0"], "greater than 0"),
])
def test_what_does_not_fit_is_said_before_data_is_read(override: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read("electra-nano", override)


def test_a_decoder_has_no_replaced_tokens() -> None:
    with pytest.raises(InputError, match="replaced trains a model of encoder, and this one is decoder"):
        read("gpt-nano", ["objective.kind=replaced"])

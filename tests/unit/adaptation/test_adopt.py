"""Taking another model's weights: shared ones, new tokens, new and lost heads, other bodies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.tolerances import assert_close

from saucier import config as c
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import rewrite
from saucier.adaptation.starting_weights import drop_decoder, initialize_from
from saucier.adaptation.surgery.operations import NewTokens
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.folders.load import load
from saucier.folders.save import save_adapter
from saucier.model import build
from saucier.parts.provenance import Origin, Provenance

SMALL = {"dim": 16, "layers": 2, "heads": 2}


def bert(vocab: int = 50, **changes: object) -> c.Transformer:
    return FAMILIES["bert"](**SMALL, vocab=vocab, length=32).model_copy(update=changes)


def test_the_same_model_answers_equally() -> None:
    mine, other = build(bert(), seed=1).eval(), build(bert(), seed=2).eval()
    found = initialize_from(mine, other)
    ids = torch.tensor([[3, 4, 5]])
    assert (found.new, found.left) == ((), ())
    assert torch.equal(mine(ids).logits, other(ids).logits)


def test_new_tokens_begin_as_the_mean_of_their_pieces_in_tables_and_biases() -> None:
    other = build(bert(50), seed=2)
    with torch.no_grad():
        other.head.language.bias.copy_(torch.arange(50.0))
    mine = build(bert(54), seed=1)
    found = initialize_from(mine, other, NewTokens(first=50, pieces=((3, 5), (7,), (1, 2, 3))))
    assert found.tokens == 3
    table = other.embed.tokens.weight
    assert torch.equal(mine.embed.tokens.weight[:50], table)
    assert torch.allclose(mine.embed.tokens.weight[50], (table[3] + table[5]) / 2)
    assert torch.allclose(mine.embed.tokens.weight[52], table[1:4].mean(0))
    assert mine.head.language.bias[50:53].tolist() == pytest.approx([4, 7, 2])
    ids = torch.tensor([[3, 4, 5]])
    assert torch.allclose(mine.eval()(ids).logits[..., :50], other.eval()(ids).logits, atol=1e-6)


def test_tokens_inside_a_padded_table_are_set_too() -> None:
    mine, other = build(bert(64), seed=1), build(bert(64), seed=2)  # a published table with rows to spare
    initialize_from(mine, other, NewTokens(first=60, pieces=((3, 5),)))
    assert torch.allclose(mine.embed.tokens.weight[60], other.embed.tokens.weight[[3, 5]].mean(0))
    assert torch.equal(mine.embed.tokens.weight[61], other.embed.tokens.weight[61])


def test_another_head_begins_anew_and_the_old_one_is_named() -> None:
    other = build(bert(head=None), seed=2)
    mine = build(bert(head=FAMILIES["bert"](**SMALL, vocab=50).head.language, pooler=None), seed=1)
    found = initialize_from(mine, other)
    assert all(name.startswith("head.") for name in found.new)
    assert found.new
    assert set(found.left) == {"pooler.dense.weight", "pooler.dense.bias"}


def test_dropout_is_no_other_body_but_a_width_is() -> None:
    initialize_from(build(FAMILIES["bert"](**SMALL, vocab=50, length=32, dropout=0.0)), build(bert()))
    with pytest.raises(InputError, match=r"encoder\.layers\.times = 2, and this one 3"):
        initialize_from(build(FAMILIES["bert"](**SMALL | {"layers": 3}, vocab=50, length=32)), build(bert()))


def test_the_objective_follows_from_the_body() -> None:
    from saucier.jobs.pretraining.initialization import choose_objective
    from saucier.text.config import BERT_TOKENS, T5_TOKENS, Unigram, WordPiece
    from saucier.text.tokenizer.training import train_tokenizer

    text = ["the cook stirs the sauce and the guest tastes some soup"] * 3
    masks = train_tokenizer(WordPiece(vocab=50, min_frequency=1, special=BERT_TOKENS), text)
    spans = train_tokenizer(Unigram(vocab=30, special=T5_TOKENS.model_copy(update={"sentinels": 5})), text)
    electra = FAMILIES["electra"](**SMALL, vocab=50, length=32, width=8)
    found = [choose_objective(model, masks)["kind"] for model in (
        bert(), FAMILIES["gpt2"](**SMALL, vocab=50, length=32), FAMILIES["bart"](**SMALL, vocab=50, length=32),
        electra.model_copy(update={"head": c.ReplacedTokenHead()}))]
    assert found == ["masked", "causal", "denoising", "replaced"]
    assert choose_objective(FAMILIES["t5"](**SMALL, vocab=50), spans)["kind"] == "span_corruption"
    with pytest.raises(InputError, match="neither a mask token nor sentinels"):
        choose_objective(bert(), train_tokenizer(Unigram(vocab=25), text))


@pytest.mark.slow
def test_an_adapter_on_the_encoder_of_an_encoder_decoder_is_opened_again(tmp_path: Path) -> None:
    """A task that tells something of a text leaves the decoder out; the base that the adapter names still has it."""
    build(FAMILIES["t5"](**SMALL, head_dim=8, vocab=50, hidden=16), seed=1).save(tmp_path / "base")
    other = load(tmp_path / "base", dtype="float32", device="cpu")
    head = c.ClassificationHead(pick=c.PickVector(kind="mean"), classes=2)
    drop_decoder(other, other.config.model_copy(update={"decoder": None}))
    model = build(other.config.model_copy(update={"head": head}), seed=2).eval()
    found = initialize_from(model, other)
    model.provenance = Provenance(origin=Origin.of(tmp_path / "base", model, found.new))
    rewrite(model, by=a.Lora(where=("query",), rank=2))
    assert save_adapter(model, tmp_path / "adapter") == "own"
    again, ids = load(tmp_path / "adapter", dtype="float32", device="cpu"), torch.tensor([[3, 4, 5]])
    assert again.decoder is None
    assert_close(again(ids).logits, model(ids).logits)

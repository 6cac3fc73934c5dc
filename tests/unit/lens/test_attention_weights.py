"""What a model attends to in a text: the weights of the reference library, what made them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.zoo import scrambled

import saucier
from saucier import config as c
from saucier.config.kernels import Kernel
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.lens.attention_weights import AttendedText, AttentionWeights, Tokens, find_attention
from saucier.model import Transformer
from saucier.recipes.recipe import with_kernel


def name(ids: list[int]) -> Tokens:
    """Return tokens that are called by their ids."""
    return Tokens(tuple(map(str, ids)), tuple(ids), (False,) * len(ids), (0,) * len(ids))


SOURCE, TARGET = [7, 21, 9, 33, 14, 9, 40, 11], [5, 17, 8]


def remake(one: AttentionWeights) -> Any:
    """Return the softmax of what is shown of queries, keys and positions."""
    entered = one.softmax
    assert entered is not None
    keys = entered.keys.repeat(len(entered.queries) // len(entered.keys), axis=0)
    scores = entered.scale * entered.queries @ keys.transpose(0, 2, 1) + (0 if entered.bias is None else entered.bias)
    seen = torch.from_numpy(scores).masked_fill(torch.from_numpy(one.weights) == 0, -torch.inf)
    return seen.softmax(-1).numpy()


@pytest.mark.parametrize(("folder", "sides"), [("bert", ["encoder"]), ("gpt2", ["decoder"]),
                                               ("t5", ["encoder", "decoder", "cross"]),
                                               ("bart", ["encoder", "decoder", "cross"])])
def test_the_weights_are_those_of_the_reference(shared: Path, folder: str, sides: list[str]) -> None:
    """Of published folders, all sides; and the shown queries, keys and positions give them again."""
    transformers = pytest.importorskip("transformers")
    path = shared / "golden" / folder
    reference = transformers.AutoModel.from_pretrained(path, attn_implementation="eager").eval()
    target = {"decoder_input_ids": torch.tensor([TARGET])} if len(sides) == 3 else {}
    with torch.no_grad():
        given = reference(input_ids=torch.tensor([SOURCE]), output_attentions=True, **target)
    fields = {"cross": "cross_attentions", "encoder": "encoder_attentions", "decoder": "decoder_attentions"}
    text = AttendedText(name(SOURCE), name(TARGET) if target else None)
    found = find_attention(saucier.load(path, dtype="float32"), text)
    assert list(dict.fromkeys(one.side for one in found.attentions)) == sides
    for one in found.attentions:
        expected = given["attentions" if not target else fields[one.side]][one.layer][0].numpy()
        np.testing.assert_allclose(one.weights, expected, atol=1e-5)
        np.testing.assert_allclose(remake(one), one.weights, atol=1e-5)
    assert found.notes == ()


@pytest.mark.parametrize("family", ["roformer", "bloom", "deberta", "xlnet", "mistral", "longformer"])
def test_positions_and_groups(family: str) -> None:
    """Rotated queries, slopes, disentangled and relative scores, shared keys, windows: softmax of what is shown."""
    sizes: dict[str, Any] = {"dim": 32, "layers": 2, "heads": 4, "vocab": 60}
    sizes |= {"kv_heads": 2} if family == "mistral" else {}
    found = find_attention(scrambled(FAMILIES[family](**sizes)), AttendedText(name(SOURCE)))
    for one in found.attentions:
        assert one.weights.sum(-1) == pytest.approx(1, abs=1e-5)
        assert one.softmax is not None
        others = [row for row in range(len(SOURCE)) if row not in one.softmax.other_rows]
        np.testing.assert_allclose(remake(one)[:, others], one.weights[:, others], atol=1e-5)
        assert one.softmax.other_rows == ((0,) if family == "longformer" else ())


def gpt(kernel: Kernel) -> Transformer:
    """Return a decoder with a kernel."""
    return scrambled(with_kernel(FAMILIES["gpt2"](dim=16, layers=2, heads=2, vocab=60, length=64), kernel))


def test_other_kernels_by_marked_values() -> None:
    """Chunks as wide as the text are the softmax; narrow ones and hashes see less; all of a row is 1."""
    text = AttendedText(name([*range(5, 21)]))
    plain, wide, narrow, hashed = (find_attention(gpt(kernel), text).attentions for kernel in (
        c.Softmax(), c.Chunks(length=16), c.Chunks(length=4), c.Hashing(chunks=c.Chunks(length=4), seed=0)))
    np.testing.assert_allclose(wide[1].weights, plain[1].weights, atol=1e-5)
    assert narrow[0].weights[:, 12, :8].max() == 0
    assert narrow[0].weights[:, 12, 8:13].min() > 0
    for one in (*narrow, *hashed):
        assert one.weights.sum(-1) == pytest.approx(1, abs=1e-4)
        assert one.softmax is None


def test_one_layer_and_one_head() -> None:
    """The same numbers as among all."""
    model, text = gpt(c.Softmax()), AttendedText(name(SOURCE))
    whole, [one] = find_attention(model, text), find_attention(model, text, layer=1).attentions
    assert (one.layer, one.weights.tolist()) == (1, whole.attentions[1].weights.tolist())
    head = one.one_head(1)
    assert (head.heads, head.weights[0].tolist()) == ((1,), one.weights[1].tolist())
    assert head.softmax is not None and one.softmax is not None
    assert head.softmax.keys[0].tolist() == one.softmax.keys[1].tolist()


def test_pooled_rows_are_named_by_their_tokens() -> None:
    """Rows of a funnel hold neighbours; the first token stays alone."""
    config = FAMILIES["funnel"](dim=16, sizes=(1, 1), heads=2, head_dim=8, vocab=60)
    pooled = find_attention(scrambled(config), AttendedText(name([1, 2, 3, 4, 5, 6, 7]))).attentions[1]
    assert pooled.rows.names[:3] == ("1", "2 3", "4 5")
    assert pooled.columns.names == ("1", "2", "3", "4", "5", "6", "7")


@pytest.mark.parametrize(("model", "said"), [
    (lambda: scrambled(FAMILIES["fnet"](dim=16, layers=1, vocab=60, length=32)),
     "the model has no attention: its tokens are mixed by fourier"),
    (lambda: gpt(c.Softmax()), "there is no layer 7"),
    (lambda: scrambled(with_kernel(FAMILIES["bert"](dim=16, layers=1, heads=2, vocab=60, length=64),
                                   c.LowRank(rank=4, length=64))),
     "kernel low_rank attends to 4 mixtures of keys, not to tokens"),
])
def test_what_has_no_weights(model: Any, said: str) -> None:
    """It is refused by name."""
    layer = 7 if "layer" in said else None
    with pytest.raises(InputError, match=said):
        find_attention(model(), AttendedText(name(SOURCE)), layer=layer)


def test_too_many_weights() -> None:
    """The remedy names a length that is kept."""
    config = FAMILIES["bert"](dim=768, layers=12, heads=12)
    model = type("Unbuilt", (), {"config": config})
    with pytest.raises(InputError, match=r"36.* weights of 500 tokens.* give 235 or fewer") as error:
        find_attention(model, AttendedText(name([5] * 500)))  # type: ignore[arg-type]
    assert error.value.where == "length"

"""Q-BERT: the top eigenvalue against the dense Hessian, and bits that follow it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.laws.zoo import family

from saucier import InputError
from saucier.adaptation.quantization.calibration import Batch
from saucier.adaptation.quantization.maps import QuantizedLinear
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Integers, Quantization
from saucier.adaptation.quantization.sensitivity import (
    Sensitivity,
    assign_bits,
    find_top_eigenvalue,
    list_block_maps,
    measure_sensitivity,
)
from saucier.model import Transformer, build

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])
BATCHES = [{"input_ids": IDS}, {"input_ids": IDS.flip(1)}]


def word_loss(model: Transformer, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(**batch).logits.flatten(0, 1), batch["input_ids"].flatten())


@pytest.mark.slow
def test_the_top_eigenvalue_is_that_of_the_dense_hessian() -> None:
    """A block of a small BERT in float64, whose Hessian with regard to one map is written out whole."""
    model = build(family("bert"), seed=3, dtype=torch.float64).eval()
    weight = model.get_parameter("encoder.blocks.1.attention.inner.out.weight")
    found = find_top_eigenvalue(lambda: word_loss(model, BATCHES[0]), [weight], rounds=300, tolerance=1e-7, seed=0)

    def loss(flat: torch.Tensor) -> torch.Tensor:
        changed = {"encoder.blocks.1.attention.inner.out.weight": flat.view_as(weight)}
        logits = torch.func.functional_call(model, changed, (IDS,)).logits
        return F.cross_entropy(logits.flatten(0, 1), IDS.flatten())

    rows = weight.detach().flatten()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        gradient = torch.autograd.grad(loss(rows.requires_grad_()), rows, create_graph=True)[0]
        dense = torch.stack([torch.autograd.grad(one, rows, retain_graph=True)[0] for one in gradient])
    values = torch.linalg.eigvalsh(dense)
    expected = values[values.abs().argmax()]
    assert found == pytest.approx(float(expected), rel=1e-4)


def test_a_quadratic_of_several_tensors() -> None:
    random = torch.Generator().manual_seed(0)
    matrix = torch.randn(10, 10, generator=random, dtype=torch.float64)
    matrix = matrix + matrix.T - 3 * torch.eye(10)  # the largest in size is negative here
    values = torch.linalg.eigvalsh(matrix)
    first, second = torch.zeros(4, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    weights = [one.requires_grad_() for one in (first, second)]

    def loss() -> torch.Tensor:
        whole = torch.cat([one.flatten() for one in weights])
        return 0.5 * whole @ matrix @ whole

    found = find_top_eigenvalue(loss, weights, rounds=2000, tolerance=1e-12, seed=1)
    assert found == pytest.approx(float(values[values.abs().argmax()]), rel=1e-6) and found < 0


def test_every_block_has_a_score_and_the_model_stays() -> None:
    model = build(family("bert"), seed=3)
    before = {name: one.clone() for name, one in model.named_parameters()}
    found = measure_sensitivity(model, BATCHES, word_loss, rounds=5)
    assert [one.block for one in found] == ["encoder.blocks.0", "encoder.blocks.1"]
    assert all(len(one.eigenvalues) == 2 and one.score > 0 for one in found)
    assert all(torch.equal(one, before[name]) and one.grad is None for name, one in model.named_parameters())
    one = Sensitivity("x", (3.0, -1.0))
    assert one.score == pytest.approx(abs(1.0) + 2.0)  # |mean| + deviation


def test_bits_follow_sensitivity() -> None:
    model = build(family("gpt2"), seed=3)
    first, second = ("decoder.blocks.0", "decoder.blocks.1")
    found = [Sensitivity(first, (1.0,)), Sensitivity(second, (9.0,))]
    for mean, expected in ((2, (2, 2)), (2.5, (2, 3)), (3, (3, 3)), (3.5, (3, 4)), (6, (4, 8)), (8, (8, 8))):
        given = assign_bits(found, model, mean_bits=mean, form=Integers(group=8))
        assert tuple(one.format.bits for one in given) == expected  # type: ignore[union-attr]
        assert all(one.format.group == 8 for one in given)  # type: ignore[union-attr]
    quantize_model(model, Quantization(overrides=assign_bits(found, model, mean_bits=6)))
    bits = {name: one.store.bits for name, one in model.named_modules()
            if isinstance(one, QuantizedLinear) and isinstance(one.store, Integers)}
    assert {count for name, count in bits.items() if name.startswith(second)} == {8}
    assert {count for name, count in bits.items() if name.startswith(first)} == {4}
    with pytest.raises(InputError, match="the fewest are 2"):
        assign_bits(found, build(family("gpt2"), seed=3), mean_bits=1.5)


def test_shared_blocks_are_measured_once() -> None:
    assert list(list_block_maps(build(family("albert"), seed=0))) == ["encoder.blocks.0"]


def test_what_is_refused() -> None:
    model = build(family("bert"), seed=3)
    with pytest.raises(InputError, match="no calibration text"):
        measure_sensitivity(model, [], word_loss)
    with pytest.raises(InputError, match="its weights have no gradient"):
        measure_sensitivity(quantize_model(model, Quantization()), BATCHES, word_loss)

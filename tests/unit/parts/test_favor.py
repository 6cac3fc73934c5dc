"""Attention by random features against its definition, against softmax, and in training and generation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.training.test_loop import Presser
from tests.unit.training.toy import recipe, study
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import saucier
from saucier import config as c
from saucier.errors import InputError, WorkError
from saucier.model import Transformer, build
from saucier.parts import favor
from saucier.parts.favor import draw_directions, exponents, half_squared_norms

VOCAB, DIM, HEADS, WIDTH, LENGTH = 31, 16, 2, 8, 23


def model_of(kernel: c.Favor, *, causal: bool, layers: int = 1, kv_heads: int | None = None,
             positions: c.AttentionPositions | None = None) -> Transformer:
    """A language model of attention by features, in float64."""
    attention = c.SelfAttention(projection=c.Projection(heads=HEADS, kv_heads=kv_heads), kernel=kernel,
                                visibility=c.Causal() if causal else c.Full(), positions=positions or c.NoPositions())
    parts = (c.PreNorm(inner=attention), c.PreNorm(inner=c.FeedForward(hidden=20)))
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=parts), times=layers))
    model = build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB), head=c.LanguageHead(tied=False),
                                **{"decoder" if causal else "encoder": stack}), seed=1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8.0 if weight.dim() == 2 else 1.0)  # so that attention prefers some keys
    return model.double().eval()


def ids(rows: int = 1, length: int = LENGTH) -> Tensor:
    return torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))


def naive(model: Transformer, hidden: Tensor, allowed: Tensor) -> Tensor:
    """What the first attention adds, pair by pair. Shapes: hidden [L, D], allowed [L, L] -> [L, D]."""
    residual = (model.decoder or model.encoder).blocks[0]["attention"]
    made = residual.inner.qkv(residual.norm(hidden[None]))[0]
    query, key, value = made.view(len(hidden), 3, HEADS, WIDTH).permute(1, 2, 0, 3)
    ways = torch.from_numpy(draw_directions(residual.inner.config.kernel, WIDTH, 0))
    mixed = torch.zeros(HEADS, len(hidden), WIDTH, dtype=torch.float64)
    for head in range(HEADS):
        found = [[torch.exp(ways @ x - x.square().sum() / 2) for x in rows[head] * WIDTH**-0.25]
                 for rows in (query, key)]
        for place in range(len(hidden)):
            weights = torch.tensor([float(found[0][place] @ other) for other in found[1]]) * allowed[place]
            if weights.sum():
                mixed[head, place] = (weights / weights.sum()).double() @ value[head]
    return residual.inner.out(mixed.transpose(0, 1).flatten(1))


def features(x: Tensor, ways: np.ndarray) -> Tensor:
    return exponents(x, torch.from_numpy(ways), half_squared_norms(x)).exp()


def added(model: Transformer, **inputs: Tensor) -> Tensor:
    """What the first attention adds in a pass. Shapes: -> [B, L, D]."""
    residual, found = (model.decoder or model.encoder).blocks[0]["attention"], []
    hook = residual.inner.register_forward_hook(lambda _module, _inputs, output: found.append(output))
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    return found[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block", [4, 5, 64])
@torch.no_grad()
def test_sums_are_the_pairs_of_the_same_features(causal: bool, block: int) -> None:
    """With padding, and in blocks that the length does not fill."""
    model = model_of(c.Favor(features=11, block=block), causal=causal)
    real = torch.arange(LENGTH) >= 3
    tokens = ids()
    allowed = real.expand(LENGTH, -1) & (torch.ones(LENGTH, LENGTH).tril().bool() if causal else True)
    found = added(model, input_ids=tokens, attention_mask=real[None].long())[0]
    wanted = naive(model, model.embed.tokens(tokens[0]), allowed.double())
    torch.testing.assert_close(found[real], wanted[real], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found, added(model, input_ids=tokens, attention_mask=real[None].long())[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block", [3, 4, 64])
@torch.no_grad()
def test_documents_are_kept_apart(causal: bool, block: int) -> None:
    """Documents longer and shorter than a block, that end in it, and padding behind them."""
    model = model_of(c.Favor(features=11, block=block), causal=causal)
    documents = torch.tensor([[0] * 9 + [1] * 2 + [2] * 1 + [3] * 8 + [-1] * 3])
    same = documents[0, :, None] == documents[0, None]
    allowed = same & (torch.ones(LENGTH, LENGTH).tril().bool() if causal else True)
    found = added(model, input_ids=ids(), documents=documents)[0, :20]
    torch.testing.assert_close(found, naive(model, model.embed.tokens(ids()[0]), allowed.double())[:20], rtol=1e-6,
                               atol=1e-6)


def test_documents_in_pieces_are_refused() -> None:
    model = model_of(c.Favor(features=4), causal=True)
    with pytest.raises(InputError, match="row 1: a document goes on behind another"):
        model(ids(2, 5), documents=torch.tensor([[-1, 0, 0, 1, -1], [0, 1, 1, 0, 2]]))


def attention_error(count: int, seeds: int = 40) -> float:
    """The mean distance of attention by so many features from softmax, over draws, relative to the values."""
    random = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(64, WIDTH, generator=random, dtype=torch.float64) for _ in range(3))
    query, key = query * 0.2, key * 0.2  # of longer vectors it falls so only with more features
    wanted = (query @ key.T).softmax(-1) @ value
    found = []
    for seed in range(seeds):
        ways = draw_directions(c.Favor(features=count, seed=seed), WIDTH, 0)
        pairs = features(query, ways) @ features(key, ways).T
        found.append(float((pairs @ value / pairs.sum(-1, keepdim=True) - wanted).square().mean().sqrt()))
    return float(np.mean(found))


@pytest.mark.slow
def test_the_error_falls_as_the_root_of_the_features() -> None:
    """Choromanski et al. 2021, §2.4: the slope of log error over log features is −1/2."""
    counts = [32, 128, 512, 2048]
    slope = np.polyfit(np.log(counts), np.log([attention_error(count) for count in counts]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.05)


@pytest.mark.slow
def test_products_of_features_have_the_mean_of_the_softmax_kernel() -> None:
    """Choromanski et al. 2021, lemma 1: within three standard errors, over 4,000 draws."""
    random = torch.Generator().manual_seed(3)
    query, key = (torch.randn(5, WIDTH, generator=random, dtype=torch.float64) * 0.6 for _ in range(2))
    found = []
    for seed in range(4000):
        ways = draw_directions.__wrapped__(c.Favor(features=WIDTH, seed=seed), WIDTH, 0)
        found.append((features(query, ways) * features(key, ways)).mean(-1))
    drawn_means = torch.stack(found)
    error = drawn_means.std(0) / len(found)**0.5
    assert bool(((drawn_means.mean(0) - (query * key).sum(-1).exp()).abs() < 3 * error).all())


def test_directions_are_orthogonal_and_as_long_as_gaussian_ones() -> None:
    many = np.concatenate([draw_directions(c.Favor(features=WIDTH, seed=seed), WIDTH, 0) for seed in range(300)])
    first = many[:WIDTH]
    products = first @ first.T
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-12
    assert np.square(many).sum(1).mean() == pytest.approx(WIDTH, rel=0.05)
    assert np.abs(many.mean(0)).max() < 4 / len(many)**0.5


@pytest.mark.slow
def test_features_of_orthogonal_directions_err_less() -> None:
    """Choromanski et al. 2021, theorem 2: less variance than independent directions have."""
    random = np.random.default_rng(0)
    query, key = (torch.from_numpy(random.standard_normal((1, WIDTH)) * 0.5) for _ in range(2))

    def variance(ways: list[np.ndarray]) -> float:
        found = [(features(query, one) * features(key, one)).mean() for one in ways]
        return float(torch.stack(found).var())

    apart = [random.standard_normal((WIDTH, WIDTH)) for _ in range(3000)]
    turned = [draw_directions.__wrapped__(c.Favor(features=WIDTH, seed=seed), WIDTH, 0) for seed in range(3000)]
    assert variance(turned) < 0.9 * variance(apart)


def test_layers_and_draws_have_directions_of_their_own() -> None:
    one = draw_directions(c.Favor(features=4), WIDTH, 0)
    assert np.array_equal(one, draw_directions.__wrapped__(c.Favor(features=4), WIDTH, 0))
    for other in (draw_directions(c.Favor(features=4), WIDTH, 1),
                  draw_directions(c.Favor(features=4, draw=1), WIDTH, 0),
                  draw_directions(c.Favor(features=4, seed=1), WIDTH, 0)):
        assert not np.allclose(one, other)


@pytest.mark.parametrize("pieces", [(23,), (1,) * 23, (7, 1, 9, 6)])
@torch.no_grad()
def test_a_cache_of_sums_gives_the_numbers_of_one_pass(pieces: tuple[int, ...]) -> None:
    model = model_of(c.Favor(features=11, block=4), causal=True, layers=2, positions=c.Rotary(), kv_heads=1)
    tokens, mask = ids(3), (torch.arange(LENGTH) >= torch.tensor([[0], [5], [2]])).long()
    cache, found, start = model.new_cache(3, LENGTH), [], 0
    for piece in pieces:
        found.append(model(tokens[:, start:start + piece], mask[:, :start + piece], cache=cache).logits)
        start += piece
    wanted = model(tokens, mask).logits
    torch.testing.assert_close(torch.cat(found, 1)[mask.bool()], wanted[mask.bool()], rtol=1e-9, atol=1e-9)
    assert cache.bytes == 3 * 2 * HEADS * 11 * (WIDTH + 1) * 8


def test_generation_needs_no_keys() -> None:
    """Beams are reordered with their sums; memory does not grow with the text."""
    model = model_of(c.Favor(features=11), causal=True, layers=2)
    tokens = ids(2, 5)
    found = saucier.generate(model, tokens, max_new_tokens=6, num_beams=3)
    again = saucier.generate(model, tokens, max_new_tokens=6, num_beams=3, use_cache=False)
    assert torch.equal(found, again)
    assert c.cache_bytes(model.config, batch=1, length=8) == c.cache_bytes(model.config, batch=1, length=8000)


def test_weights_of_pairs_where_they_are_asked_for() -> None:
    model = model_of(c.Favor(features=11, block=4), causal=True)
    with torch.no_grad():
        output, plain = model(ids(), output_attentions=True), model(ids())
    weights = output.attentions[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert bool((weights.triu(1) == 0).all())
    torch.testing.assert_close(output.logits, plain.logits)


@pytest.mark.parametrize(("causal", "length"), [(False, 23), (True, 3), (True, 4), (True, 23)])
def test_counted_flops_are_the_executed_ones(causal: bool, length: int) -> None:
    model = model_of(c.Favor(features=11, block=4), causal=causal, layers=2)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(ids(1, length))
    assert counter.get_total_flops() == pytest.approx(length * c.flops_per_token(model.config, length), rel=1e-9)


def test_large_vectors_stay_finite() -> None:
    """Exponents are bounded where keys lie along a direction, and where vectors are long."""
    model = model_of(c.Favor(features=64), causal=True).float()
    with torch.no_grad():
        model.decoder.blocks[0]["attention"].inner.qkv.weight.mul_(30)
    logits = model(ids()).logits
    logits.sum().backward()
    assert bool(logits.isfinite().all())
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters())


REFUSED = {
    "positions": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.Favor(),
                                  positions=c.T5Bias(buckets=8, max_distance=20)),
                  r"blocks.0.attention.positions: kernel favor cannot take positions t5_bias; .*kernel softmax"),
    "visibility": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.Favor(), visibility=c.Window(3)),
                   "use full or causal"),
    "width": (c.SelfAttention(projection=c.Projection(heads=1, head_dim=256), kernel=c.Favor()), "more heads"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_sums_cannot_do_is_refused(name: str) -> None:
    attention, remedy = REFUSED[name]
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=attention),)), times=1))
    with pytest.raises(InputError, match=remedy):
        build(c.Transformer(dim=8, embed=c.Embedding(vocab=9), encoder=stack))


def test_directions_are_drawn_anew_while_training_and_saved(tmp_path: Path) -> None:
    """Killed in the middle and resumed, a run ends in the same weights and directions; a saved model has its own."""
    from saucier.training.loop import train

    def fresh() -> Transformer:
        return model_of(c.Favor(features=4, redraw=2), causal=True).float()

    whole, again = fresh(), fresh()
    train(whole, study(), recipe(6), run_folder=tmp_path / "whole", reporters=[])
    with pytest.raises(WorkError, match="interrupted after step 5"):
        train(fresh(), study(), recipe(6), run_folder=tmp_path / "parts", reporters=[Presser(5)])
    train(again, study(), recipe(6), run_folder=tmp_path / "parts", reporters=[])
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), again.parameters(), strict=True))
    assert kernel_of(whole).draw == kernel_of(again).draw == 2
    kept = saucier.load(tmp_path / "whole", dtype="float32")
    assert kernel_of(kept) == kernel_of(whole)
    with torch.no_grad():
        torch.testing.assert_close(kept(ids()).logits, whole.eval()(ids()).logits)
    went_on = tmp_path / "on"
    train(kept, study(), recipe(3), run_folder=went_on, reporters=[])
    assert kernel_of(kept).draw == 3  # counted on from the draw that it was saved with


def kernel_of(model: Transformer) -> c.Favor:
    kernel = model.decoder.blocks[0]["attention"].inner.config.kernel
    assert kernel == model.config.decoder.attentions()[0].kernel
    return kernel


@pytest.mark.parametrize("causal", [False, True])
def test_pieces_change_nothing(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features are made a piece at a time; values and gradients are those of one piece."""
    model = model_of(c.Favor(features=11, block=4), causal=causal)

    def gradients() -> list[Tensor]:
        model.zero_grad(set_to_none=True)
        model(ids(2), (torch.arange(LENGTH) >= torch.tensor([[0], [6]])).long()).logits.square().sum().backward()
        return [weight.grad for weight in model.parameters()]

    wanted = gradients()
    monkeypatch.setattr(favor, "FEATURES_AT_ONCE", 200)
    for one, other in zip(gradients(), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)

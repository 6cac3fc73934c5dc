"""The native engine writes from a source: encoder-decoders, and what experts, other positions and heads give."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tolerances import PART, assert_close
from tests.unit.generation.test_native import FORMATS, GOLDEN, draw, golden, read_scores
from tests.unit.native.products import check_apart, round_activations, use_stored_keys, use_stored_numbers

import saucier
from saucier import config as c
from saucier.config.layers import Router
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation.decoding import Native
from saucier.generation.native_encoder import find_stack
from saucier.generation.native_feed import encode_sources, lower_model, make_native_feed
from saucier.generation.native_model import convert_weights
from saucier.generation.rules import Prompt
from saucier.generation.search import Step
from saucier.native.library import list_paths, load_library
from saucier.native.matrices import Format, store_matrix
from saucier.native.session import Session, cache_bytes, source_bytes

PAIRS = ("bart", "encoder-decoder-bert2bert", "encoder-decoder-bertgeneration", "led", "m2m_100", "marian", "mbart",
         "mt5", "switch_transformers", "t5", "t5-v1_1")
OPTIONS = {"max_new_tokens": 12, "eos_token_id": None, "pad_token_id": 0}
SEARCHES: tuple[dict[str, Any], ...] = (
    {}, {"num_beams": 4, "length_penalty": 0.7}, {"num_beams": 3, "num_return_sequences": 2})


def draw_sources(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Three sources of 9, 6 and 2 tokens."""
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = mask[2, 2:] = 0
    return draw(3, 9, seed), mask


def encode(model: saucier.Transformer, sources: torch.Tensor, mask: torch.Tensor, form: Format) -> np.ndarray:
    """What the encoder gives for the real tokens [T, D]."""
    prompt = Prompt(sources[:, :1], source=sources, source_mask=mask)
    with torch.inference_mode():
        vectors, lengths = encode_sources(model, prompt, convert_weights(model, Native(format=form)))
    assert lengths.tolist() == mask.sum(1).tolist()
    return vectors


def read_targets(model: saucier.Transformer, sources: torch.Tensor, mask: torch.Tensor, targets: torch.Tensor, *,
                 at_once: int = 5, form: Format = "float32", path: str | None = None,
                 vectors: np.ndarray | None = None) -> np.ndarray:
    """Scores [B, L, V] after every token of the targets, `at_once` of a row at a time; `vectors`: of the encoder."""
    rows, length = targets.shape
    session = Session(lower_model(model, Native(format=form), length), rows, threads=1, path=path)
    lengths = mask.sum(1).numpy().astype(np.int32)
    with torch.inference_mode():
        read = encode(model, sources, mask, form) if vectors is None else vectors
        session.read_sources(read, lengths, np.arange(rows, dtype=np.int32))
    found = []
    for start in range(0, length, at_once):
        places = np.arange(start, min(start + at_once, length), dtype=np.int32)
        many = rows * len(places)
        found.append(session.read(targets[:, places].numpy().astype(np.int32).ravel(),
                                  np.repeat(np.arange(rows, dtype=np.int32), len(places)), np.tile(places, rows),
                                  np.arange(many, dtype=np.int32)).reshape(rows, len(places), -1))
    return np.concatenate(found, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_ids_and_scores_are_those_of_the_model(name: str) -> None:
    model, (ids, mask) = golden(name), draw_sources()
    for options in (*SEARCHES, {"do_sample": True, "seed": 3, "num_return_sequences": 2}):
        both = [saucier.generate(model, ids, mask, engine=engine, **OPTIONS, **options) for engine in (Native(), None)]
        assert torch.equal(*both), options
    targets = draw(3, 7, seed=1)
    with torch.inference_mode():
        exact, own = (one(ids, mask, decoder_input_ids=targets) for one in (golden(name).double(), golden(name)))
    expected, vectors = exact.logits.float(), exact.encoder_last_hidden_state[mask.bool()].float()
    off_itself = float((own.encoder_last_hidden_state[mask.bool()] - vectors).abs().max())
    given = None
    if off_itself > PART:  # the encoder of Switch: float32 itself is no nearer, so each stack is held by itself
        assert (torch.from_numpy(encode(model, ids, mask, "float32")) - vectors).abs().max() <= 2 * off_itself
        given = vectors.numpy()
    for path in list_paths():  # in float32 the model itself is as far from this as the kernels are
        for at_once in (1, 7):
            found = read_targets(model, ids, mask, targets, at_once=at_once, path=path, vectors=given)
            assert_close(torch.from_numpy(found), expected, PART, f"{path}, {at_once} tokens at once")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAIRS, "mixtral", "bert-causal-lm"])
def test_ids_are_those_of_transformers(name: str) -> None:
    hf = pytest.importorskip("transformers", reason="the reference library is in the test group")
    told = json.loads((GOLDEN / name / "golden.json").read_text(encoding="utf-8"))
    reference = getattr(hf, told["class"]).from_pretrained(GOLDEN / name, dtype=torch.float32).eval()
    model, (ids, mask) = golden(name), draw_sources()
    for options in SEARCHES:
        if model.config.encoder is None:
            mask = torch.ones_like(ids)
        expected = reference.generate(ids, attention_mask=mask, do_sample=False, **OPTIONS, **options)
        assert torch.equal(saucier.generate(model, ids, mask, engine=Native(), **OPTIONS, **options), expected), options


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["t5-v1_1", "switch_transformers", "marian"])
def test_a_format_is_the_model_with_its_numbers(name: str, form: Format) -> None:
    """In float64 each map multiplies what its matrix stands for by what its rounded inputs stand for."""
    (ids, mask), targets, given = draw_sources(), draw(3, 6, seed=2), golden(name)
    found = read_targets(given, ids, mask, targets, form=form)
    for at_once in (1, 4):  # cached is uncached
        assert np.array_equal(read_targets(given, ids, mask, targets, form=form, at_once=at_once), found)
    read = encode(given, ids, mask, form)
    model = given.double()
    matrix, bias, scale = (model.head.weight.detach().float().numpy(), model.head.bias, model.head.scale)
    path = load_library().saucier_best_path().decode()
    use_stored_numbers(model, [model.decoder, model.encoder], form, path)
    use_stored_keys(model.decoder, form)
    real = mask.bool()
    with torch.no_grad():
        encoded = model(ids, mask, decoder_input_ids=targets, compute_logits=False).encoder_last_hidden_state
        check_apart(read, encoded[real].numpy(), form, path)
        encoded[real] = torch.from_numpy(read).double()
        hidden = model(None, mask, encoder_output=encoded, decoder_input_ids=targets,
                       compute_logits=False).last_hidden_state.flatten(0, 1) * scale
    head = store_matrix(matrix, form)
    expected = round_activations(hidden.float().numpy(), head, path) @ head.values().T
    check_apart(found.reshape(expected.shape), expected + (0 if bias is None else bias.detach().numpy()), form, path)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["t5-v1_1", "switch_transformers", "marian", "m2m_100"])
def test_a_source_gives_the_same_in_any_company(name: str, form: Format) -> None:
    """To the last bit, and wherever its padding is, as far as positions do not count it."""
    model, (ids, mask) = golden(name).eval(), draw_sources()
    padding = model.config.embed.positions
    if isinstance(getattr(padding, "places", None), c.SkipPadding):
        ids = ids.masked_fill(mask == 0, padding.places.padding)
    whole = np.split(encode(model, ids, mask, form), [9, 15])
    for row, length in enumerate((9, 6, 2)):
        assert np.array_equal(encode(model, ids[row:row + 1, :length], mask[row:row + 1, :length], form), whole[row])
    if name != "marian":  # its sinusoidal places count padding
        rolled = torch.stack([ids[0], ids[1].roll(3), ids[2].roll(7)]), mask.flip(1)
        assert np.array_equal(encode(model, *rolled, form), np.concatenate(whole))


@pytest.mark.parametrize("name", ["t5", "led"])
def test_what_the_kernels_do_not_take_is_read_by_the_encoders_own_parts(name: str) -> None:
    model, (ids, mask) = golden(name).eval(), draw_sources()
    with torch.inference_mode():
        if name == "t5":
            mask[0, 4] = mask[1, 0] = 0  # padding between tokens
        else:
            with pytest.raises(InputError, match="the native kernels have no maps for global tokens"):
                find_stack(model, convert_weights(model, Native()))
        expected = model(ids, mask, decoder_input_ids=ids).encoder_last_hidden_state
    assert np.array_equal(encode(model, ids, mask, "int8"), expected[mask.bool()].numpy())


def test_rows_of_one_source_share_its_keys_and_move_between_sources() -> None:
    model, (ids, mask) = golden("bart"), draw_sources()
    prompt = Prompt(torch.full((3, 1), 2), source=ids, source_mask=mask)
    with torch.inference_mode():
        feed = make_native_feed(model, prompt, Native(), copies=4, capacity=20)
        first = feed(None)
        assert feed.session.bytes == cache_bytes(feed.session.plan, 12) + source_bytes(
            feed.session.plan, np.array([9, 6, 2]))
        found = feed(Step(torch.arange(12) + 5, torch.arange(12).flip(0)))  # row 0 goes on from the last source
        for row in range(12):
            source = (11 - row) // 4
            alone = model(ids[source:source + 1], mask[source:source + 1],
                          decoder_input_ids=torch.tensor([[2, 5 + row]])).logits[0]
            assert_close(found[row], alone[1], PART)
            assert_close(first[11 - row], alone[0], PART)


def test_the_cache_is_as_large_as_predicted() -> None:
    for name in ("t5", "marian"):
        model = golden(name)
        session = Session(lower_model(model, Native(), 32), 2)  # whole blocks of 16 keys
        vectors = np.zeros((32, model.config.dim), np.float32)
        session.read_sources(vectors, np.array([16, 16], np.int32), np.arange(2, dtype=np.int32))
        assert session.bytes == c.cache_bytes(model.config, batch=2, length=32, source_length=16, bytes_per_value=4)


def build_decoder(attention: dict[str, Any], **changes: Any) -> saucier.Transformer:
    """A decoder of two layers around an attention, its weights far from zero."""
    inner = c.SelfAttention(**{"projection": c.Projection(heads=4, kv_heads=2), "visibility": c.Causal()} | attention)
    sublayers = changes.pop("sublayers", None) or (c.PreNorm(inner=inner),
                                                   c.PreNorm(inner=c.FeedForward(hidden=48, activation="silu")))
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=sublayers), times=2), final_norm=c.LayerNorm())
    tree = {"dim": 32, "embed": c.Embedding(vocab=50), "decoder": stack, "head": c.LanguageHead()} | changes
    model, generator = saucier.build(c.Transformer(**tree)).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model


def check_scores(model: saucier.Transformer, length: int = 21) -> None:
    """Scores are the model's, however many tokens are read at once, on every instruction set."""
    ids = torch.randint(0, 50, (length,), generator=torch.Generator().manual_seed(1))
    expected = model(ids[None]).logits[0].detach()
    for path in list_paths():
        for at_once in (1, 6, length):
            assert_close(read_scores(model, ids, "float32", at_once=at_once, path=path), expected, PART, path)


@pytest.mark.parametrize("attention", [
    {"positions": c.Shaw(max_distance=4)}, {"positions": c.RelativeVectors(kind="relative_key", length=32)},
    {"positions": c.RelativeVectors(kind="relative_key_query", length=21, scale=0.3)},
    {"positions": c.MusicTransformer(length=24)}, {"positions": c.Rotary(values=True)},
    {"positions": c.Rotary(scaling=c.DynamicScaling(factor=2.0, length=21))},
    {"positions": c.Rotary(scaling=c.LongRope(short=(1.0, 1.1, 1.2, 1.3), long=(2.0,) * 4, length=32))},
    {"positions": c.T5Bias(bidirectional=False), "visibility": c.Causal() & c.Window(5)},
    {"visibility": c.Causal() & (c.Window(3) | c.Strided(stride=4))},
    {"positions": c.Shaw(max_distance=2), "visibility": c.Causal() & c.Columns(stride=6, count=2)},
    {"positions": c.Alibi(), "visibility": c.Causal() & c.BlockWindow(size=4, reach=0)}], ids=str)
def test_positions_and_patterns(attention: dict[str, Any]) -> None:
    check_scores(build_decoder(attention))


@pytest.mark.slow
@pytest.mark.parametrize("router", [c.TopOfSoftmax(top=1), c.TopOfSoftmax(top=3), c.SoftmaxOfTop(top=2)], ids=str)
@pytest.mark.parametrize("residual", [c.PreNorm, c.PostNorm, c.SandwichNorm])
def test_experts(residual: Any, router: Router) -> None:
    for inner, biased in ((c.FeedForward(hidden=40, activation="gelu"), True), (c.GatedFeedForward(hidden=40), False)):
        experts = c.Experts(inner=inner, count=5, router=router, router_bias=biased)
        attention = c.SelfAttention(projection=c.Projection(heads=4), positions=c.Rotary(), visibility=c.Causal())
        check_scores(build_decoder({}, sublayers=(c.PreNorm(inner=attention), residual(inner=experts))))


@pytest.mark.parametrize("embed", [
    c.Embedding(vocab=50, projection=c.ProjectNarrow(kind="sum", width=20), positions=c.Learned(length=40),
                norm=c.LayerNorm(), segments=c.SegmentTable()),
    c.Embedding(vocab=50, projection=c.ProjectNarrow(kind="normed", width=20), positions=c.Sinusoidal(),
                norm=c.LayerNorm(), scale=3.0),
    c.Embedding(vocab=50, projection=c.ProjectNarrow(kind="undropped", width=20), segments=c.FirstSegment(),
                positions=c.Learned(length=40, places=c.SkipPadding(padding=3)), norm=c.RMSNorm()),
    c.Embedding(vocab=50, positions=c.Axial(shape=(6, 5), widths=(12, 20)), norm=c.LayerNorm())], ids=str)
def test_embeddings(embed: c.Embedding) -> None:
    narrow = embed.projection is not None
    head = c.LanguageHead(tied=not narrow, bias=True, transform=c.Transform(norm=c.LayerNorm()), scale=0.7)
    model, ids = build_decoder({"positions": c.Rotary()}, embed=embed, head=head), draw(1, 9)[0] % 46 + 4
    assert_close(read_scores(model, ids, "float32", at_once=4), model(ids[None]).logits[0].detach(), PART)
    ids[:] = torch.tensor([7, 8, 9, 3, 4, 3, 5, 6, 7])  # padding among what is written has its own place
    cache = model.new_cache(1, 9)
    expected = [model(token.view(1, 1), cache=cache).logits[0, -1].detach() for token in ids]
    assert_close(read_scores(model, ids, "float32", at_once=9), torch.stack(expected), PART)


@pytest.mark.parametrize("name", ["gpt2-double-heads", "openai-gpt-double-heads"])
def test_a_head_beside_the_language_head_is_not_read(name: str) -> None:
    model, ids = golden(name), draw(2, 6)
    assert torch.equal(saucier.generate(model, ids, engine=Native(), **OPTIONS),
                       saucier.generate(model, ids, **OPTIONS))


def test_what_depends_on_a_texts_length_or_padding_is_refused() -> None:
    long = build_decoder({"positions": c.Rotary(scaling=c.DynamicScaling(factor=2.0, length=20))})
    with pytest.raises(InputError, match="21 tokens, and with the scaling dynamic the frequencies of texts of more"):
        lower_model(long, Native(), 21)
    columns, ids = build_decoder({"visibility": c.Causal() & c.Columns(stride=6)}), draw(2, 6) % 50
    mask = torch.tensor([[1] * 6, [0] * 2 + [1] * 4])
    with pytest.raises(InputError, match="no patterns of visibility that count padding"):
        saucier.generate(columns, ids, mask, engine=Native(), **OPTIONS)
    full = c.Experts(inner=c.FeedForward(hidden=8), count=2, capacity=4)
    with pytest.raises(InputError, match="no experts that take 4 of 6 tokens"):
        saucier.generate(build_decoder({}, sublayers=(c.PreNorm(inner=c.SelfAttention(
            projection=c.Projection(heads=4), visibility=c.Causal())), c.PreNorm(inner=full))), ids, engine=Native(),
            **OPTIONS)
    with pytest.raises(InputError, match=r"25 tokens, and .* has 24 distances"):
        lower_model(build_decoder({"positions": c.MusicTransformer(length=24)}), Native(), 25)


SIZES: dict[str, Any] = {"dim": 32, "layers": 1, "heads": 4, "vocab": 60, "length": 64, "hidden": 48, "head_dim": 8,
                         "experts": 2, "kv_heads": 2, "cutoffs": (20, 40), "width": 32}
"""Hyper-parameters of small models, where a family has them."""


def read_table() -> dict[str, str]:
    """What the documentation says of each family."""
    text = (Path(__file__).parents[3] / "docs" / "generation.md").read_text(encoding="utf-8")
    rows = text.split("| families | lowered |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    return {name.strip("` "): told.strip() for _, names, told, _ in (row.split("|") for row in rows)
            for name in names.split(",")}


def test_the_table_of_families_is_the_truth() -> None:
    told, writing = read_table(), set()
    for name, family in FAMILIES.items():
        taken = inspect.signature(family).parameters
        turned = {"rotated": 4} if name == "gptj" else {}
        config = family(**{key: value for key, value in SIZES.items() if key in taken}, **turned)
        if not config.writes:
            continue
        writing.add(name)
        model = saucier.build(config)
        if told[name].startswith("yes"):
            assert lower_model(model, Native(), 16).steps, name
            lacks = told[name].partition("the decoder; its encoder has ")[2]
            assert (config.encoder is not None) == bool(lacks or "encoder and decoder" in told[name]), name
            if lacks:
                with pytest.raises(InputError, match=f"the native kernels have no {lacks}"):
                    find_stack(model, convert_weights(model, Native()))
            else:
                assert config.encoder is None or find_stack(model, convert_weights(model, Native())).plans, name
        else:
            with pytest.raises(InputError, match=f"the native kernels have no {re.split('[,:]', told[name])[0]}"):
                lower_model(model, Native(), 16)
    assert writing == set(told)


def test_a_plan_shows_what_is_done_once_for_a_source() -> None:
    shown = str(lower_model(golden("switch_transformers"), Native(format="int8"), 16)).splitlines()
    assert shown[0].startswith("source:  product     decoder.blocks.0.cross.inner.kv")
    assert any("experts" in line and ", 1 of " in line for line in shown)

"""Texts from several sources against every text of a small vocabulary, scored by the model's passes one by one."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from tests.unit.generation.models import shaken
from torch import Tensor

import saucier
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation.decoding import Fast, Thorough
from saucier.generation.hypotheses import generate_by_source
from saucier.model import Transformer, build

VOCAB, NEW, END, START = 5, 3, 1, 2
TEXTS, SOURCES = 2, 3
FILL: dict[str, Any] = {"eos_token_id": END, "pad_token_id": 3, "decoder_start_token_id": START,
                        "max_new_tokens": NEW}
IDS = torch.randint(0, VOCAB, (TEXTS * SOURCES, 4), generator=torch.Generator().manual_seed(1))
MASK = torch.ones_like(IDS)
MASK[1, 3] = MASK[4, 2:] = 0
MIXTURE = torch.tensor([[0.2, 1.4, -0.3], [0.9, -1.0, 0.6]]).log_softmax(-1)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return shaken(build(FAMILIES["bart"](dim=16, layers=1, heads=2, vocab=VOCAB, length=16)))  # type: ignore[no-any-return]


def all_texts() -> list[tuple[int, ...]]:
    """Return every text of NEW tokens, or that ends earlier with END."""
    found = set()
    for tokens in itertools.product(range(VOCAB), repeat=NEW):
        found.add(tokens[: tokens.index(END) + 1] if END in tokens else tokens)
    return sorted(found)


@cache
def chances_from(model: Transformer, row: int) -> dict[tuple[int, ...], Tensor]:
    """Return the chance of each token of every text from one source, read without padding."""
    texts = all_texts()
    before = torch.tensor([[START, *text, *[0] * NEW][:NEW] for text in texts])
    source = IDS[row:row + 1, :int(MASK[row].sum())].expand(len(texts), -1)
    with torch.no_grad():
        chances = model(source, decoder_input_ids=before).logits.double().softmax(-1)
    return {text: chances[number, :len(text)].gather(1, torch.tensor(text)[:, None])[:, 0]
            for number, text in enumerate(texts)}


def rank(model: Transformer, number: int, chance: Any) -> list[tuple[float, tuple[int, ...]]]:
    """Return all texts with their chances, the likeliest first; `chance` of the tokens [K, T] and the weights [K]."""
    weights, found = MIXTURE[number].double().exp(), []
    for text in all_texts():
        tokens = torch.stack([chances_from(model, number * SOURCES + source)[text] for source in range(SOURCES)])
        found.append((float(chance(tokens, weights)), text))
    return sorted(found, reverse=True)


def by_token(tokens: Tensor, weights: Tensor) -> Tensor:
    return (weights[:, None] * tokens).sum(0).prod()


def by_sequence(tokens: Tensor, weights: Tensor) -> Tensor:
    return (weights * tokens.prod(1)).sum()


def padded(texts: list[tuple[int, ...]]) -> list[list[int]]:
    longest = max(map(len, texts))
    return [[START, *text, *[3] * (longest - len(text))] for text in texts]


def test_beams_find_the_texts_of_the_largest_sum_of_products_over_tokens(model: Transformer) -> None:
    """Eq 82: all hypotheses fit into the beam, so the search must find the very best, in order."""
    got = saucier.generate(model, IDS, MASK, mixture=MIXTURE, num_beams=VOCAB**2, num_return_sequences=2,
                           length_penalty=0.0, early_stopping="never", **FILL)
    want = [text for number in range(TEXTS) for _, text in rank(model, number, by_token)[:2]]
    assert got.tolist() == padded(want)


def test_samples_are_drawn_with_the_mixed_chances(model: Transformer) -> None:
    draws = 3000
    got = saucier.generate(model, IDS, MASK, mixture=MIXTURE, do_sample=True, num_return_sequences=draws, seed=5,
                           **FILL)
    for number in range(TEXTS):
        counted = dict.fromkeys(all_texts(), 0)
        for row in got[number * draws:(number + 1) * draws, 1:].tolist():
            counted[tuple(row[:row.index(END) + 1] if END in row else row)] += 1
        for chance, text in rank(model, number, by_token)[:5]:
            assert abs(counted[text] / draws - chance) < 5 * (chance * (1 - chance) / draws) ** 0.5


def test_one_source_alone_is_what_is_written_without_a_mixture(model: Transformer) -> None:
    alone = torch.zeros(len(IDS), 1)
    for more in ({}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "seed": 3}):
        assert torch.equal(saucier.generate(model, IDS, MASK, mixture=alone, **FILL, **more),
                           saucier.generate(model, IDS, MASK, **FILL, **more))


def test_thorough_decoding_weighs_every_text_by_all_sources(model: Transformer) -> None:
    """Eq 81: every text is some source's hypothesis, so the best of all must be found."""
    got = generate_by_source(model, IDS, MASK, mixture=MIXTURE, scoring=Thorough(), num_beams=VOCAB**NEW,
                             length_penalty=0.0, early_stopping="never", **FILL)
    best = [rank(model, number, by_sequence)[0][1] for number in range(TEXTS)]
    assert got.tolist() == padded(best)


def test_fast_decoding_counts_the_sources_that_wrote_a_text(model: Transformer) -> None:
    beams = 2
    written = saucier.generate(model, IDS, MASK, num_beams=beams, num_return_sequences=beams, **FILL)[:, 1:].tolist()
    got = generate_by_source(model, IDS, MASK, mixture=MIXTURE, scoring=Fast(), num_beams=beams, **FILL)
    want = []
    for number in range(TEXTS):
        scores: dict[tuple[int, ...], float] = {}
        for source in range(SOURCES):
            row = number * SOURCES + source
            for ids in written[row * beams:(row + 1) * beams]:
                text = tuple(ids[:ids.index(END) + 1] if END in ids else ids)
                chance = float(chances_from(model, row)[text].prod() * MIXTURE[number, source].double().exp())
                scores[text] = scores.get(text, 0.0) + chance
        want.append(max(scores, key=lambda text: scores[text]))
    assert got.tolist() == padded(want)


def test_the_published_class_finds_the_same_texts(tmp_path: Path) -> None:
    """transformers' RAG-Sequence (thorough) and RAG-Token (greedily, and with beams), on weights that both have."""
    torch.manual_seed(0)
    config = hf.BartConfig(vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                           decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
                           max_position_embeddings=32, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                           decoder_start_token_id=2, forced_eos_token_id=None)
    generator = shaken(hf.BartForConditionalGeneration(config))
    encoder = hf.DPRQuestionEncoder(hf.DPRConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1,
                                                 num_attention_heads=2, intermediate_size=32))
    generator.save_pretrained(tmp_path)
    model = saucier.load(tmp_path, dtype="float32", device="cpu")
    ids = torch.randint(3, 30, (4, 6), generator=torch.Generator().manual_seed(7))
    mask, scores = torch.ones_like(ids), torch.tensor([[1.0, 0.4], [-0.5, 0.8]])
    settings: dict[str, Any] = {"context_input_ids": ids, "context_attention_mask": mask, "doc_scores": scores,
                                "n_docs": 2}
    ours: dict[str, Any] = {"mixture": scores.log_softmax(-1), "max_new_tokens": 6}
    sequence = hf.RagSequenceForGeneration(question_encoder=encoder, generator=generator).eval()
    sequence.config.n_docs = 2  # what it scores hypotheses with, whatever is said
    theirs = sequence.generate(**settings, num_beams=3, num_return_sequences=1, max_new_tokens=6)
    mine = generate_by_source(model, ids, mask, scoring=Thorough(), num_beams=3, **ours)
    assert mine.tolist() == theirs.tolist()
    token = hf.RagTokenForGeneration(question_encoder=encoder, generator=generator).eval()
    for beams in (1, 3):
        theirs = token.generate(**settings, num_beams=beams, max_length=7)
        mine = saucier.generate(model, ids, mask, num_beams=beams, **ours)
        assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize(("mixture", "more", "what"), [
    (MIXTURE[:, :2].log_softmax(-1), {}, "shape"), (MIXTURE + 0.5, {}, "sum"),
    (MIXTURE, {"speculation": saucier.generation.PromptLookup()}, "several sources")])
def test_wrong_mixtures_are_refused(model: Transformer, mixture: Tensor, more: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        saucier.generate(model, IDS, MASK, mixture=mixture, **FILL, **more)


def test_hypotheses_are_not_drawn(model: Transformer) -> None:
    with pytest.raises(InputError, match="not drawn"):
        generate_by_source(model, IDS, MASK, mixture=MIXTURE, scoring=Thorough(), do_sample=True, **FILL)

"""Heads that compare texts, against their definitions in float64."""

from __future__ import annotations

import pytest
import torch
from tests.laws import zoo
from tests.tolerances import assert_close

from saucier import config as c
from saucier.errors import InputError


def test_candidates_are_scored_by_inner_product() -> None:
    """REALM's relevance: the vector of each candidate alone, times the query's (Guu et al. 2020, §3.2)."""
    model = zoo.scrambled(zoo.family("realm")).double()
    queries, candidates = zoo.tokens(model.config, 2, 5), zoo.tokens(model.config, 6, 7, seed=1).view(2, 3, 7)
    mask = torch.ones_like(candidates)
    mask[1, 2, 4:] = 0
    output = model(queries, candidate_input_ids=candidates, candidate_attention_mask=mask)
    for row in range(2):
        query = model(queries[row:row + 1]).embeddings[0]
        for number in range(3):
            length = int(mask[row, number].sum())
            vector = model(candidates[row, number:number + 1, :length]).embeddings[0]
            assert_close(output.candidate_score[row, number], vector, 1e-12)
            assert_close(output.relevance_score[row, number], sum(a * b for a, b in zip(query, vector, strict=True)),
                         1e-12)


def test_a_vector_is_the_first_token_mapped_and_normed() -> None:
    """And stands for the pooler's vector, where a model has no pooler."""
    model = zoo.scrambled(zoo.family("dpr")).double()
    output = model(zoo.tokens(model.config, 2, 5))
    head = model.head
    for row in range(2):
        wanted = head.maps[0].weight @ output.last_hidden_state[row, 0] + head.maps[0].bias
        assert_close(output.pooler_output[row], wanted, 1e-12)
    assert output.embeddings is output.pooler_output


def test_an_encoder_tells_padding_from_tokens() -> None:
    """Where no mask is given, and a reader takes every token as of the first segment."""
    model = zoo.scrambled(zoo.family("dpr"))
    ids = zoo.tokens(model.config, 2, 6)
    ids[1, 4:] = 0
    assert_close(model(ids).embeddings, model(ids, (ids != 0).long()).embeddings)
    embed = model.config.embed.model_copy(update={"segments": c.FirstSegment(count=2)})
    reader = zoo.scrambled(model.config.model_copy(update={"embed": embed, "head": c.ReaderHead()}))
    segments = torch.ones_like(ids)
    first, second = reader(ids), reader(ids, token_type_ids=segments)
    assert torch.equal(first.relevance_logits, second.relevance_logits)
    states, head = first.last_hidden_state, reader.head
    assert_close(first.start_logits, states @ head.output.weight[0] + head.output.bias[0])
    assert_close(first.relevance_logits, (states[:, 0] @ head.relevance.weight.T + head.relevance.bias)[:, 0])


def test_candidates_need_a_head_that_compares() -> None:
    """A language model has no vectors, and a decoder cannot know its padding."""
    model = zoo.scrambled(zoo.family("bert"))
    ids = zoo.tokens(model.config, 2, 5)
    with pytest.raises(InputError, match="candidate_input_ids"):
        model(ids, candidate_input_ids=ids[:, None])
    decoder = zoo.family("gpt2")
    with pytest.raises(InputError, match="padding"):
        c.check(decoder.model_copy(update={"embed": decoder.embed.model_copy(update={"padding": 0})}))


def test_the_score_of_a_span_is_a_feed_forward_over_its_ends() -> None:
    """MLP([h_start; h_end]) of ORQA (Lee et al. 2019, §3), one span after the other."""
    body = zoo.family("bert").model_copy(update={"head": c.JointSpanHead(longest=3, hidden=5), "pooler": None})
    model = zoo.scrambled(body).double()
    output = model(zoo.tokens(model.config, 2, 6))
    head, states = model.head, output.last_hidden_state
    weight, bias = torch.cat([head.start.weight, head.end.weight], 1), head.start.bias
    assert output.span_logits.shape == (2, 6, 3)
    for row in range(2):
        for first in range(6):
            for last in range(first, min(first + 3, 6)):
                inner = torch.relu(weight @ torch.cat([states[row, first], states[row, last]]) + bias)
                spread = ((inner - inner.mean()).square().mean() + 1e-3).sqrt()
                normed = (inner - inner.mean()) / spread * head.norm.weight + head.norm.bias
                wanted = head.output.weight[0] @ normed + head.output.bias[0]
                assert_close(output.span_logits[row, first, last - first], wanted, 1e-12)

"""Token vectors made of characters against a naive computation; clipped cells; words that no vocabulary has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.laws.zoo import scrambled
from tests.laws.zoo_recurrent import alone
from tests.tolerances import assert_close

import saucier
from saucier import config as c
from saucier.config.embedding import BEGIN_TEXT, BEGIN_WORD, END_WORD, PADDING
from saucier.diagnosis.doctor import check_saved_bits
from saucier.errors import InputError
from saucier.families.bart import bart
from saucier.families.unpublished import elmo
from saucier.folders.load import set_token_spellings
from saucier.model import Transformer, build
from saucier.parts.embedding import CharacterTokens
from saucier.text.config import Words
from saucier.text.tokenizer.model_inputs import spell_tokens, spell_words
from saucier.text.tokenizer.training import train_tokenizer

NETWORK = c.CharacterNetwork(width=5, filters=((1, 4), (3, 6)), highways=2, longest=12)
TEXTS = ["the cook stirs the soup", "the guest waits", "a cook waits"]


def tiny(**changes: object) -> Transformer:
    return scrambled(elmo(24, 2, cells=20, vocab=11, characters=NETWORK.model_copy(update=changes), clip=3.0))


def test_words_are_spelled_by_their_bytes() -> None:
    found = spell_words(["soup", "é", "abcdefghijklmnop"], 8)
    assert found[0].tolist() == [BEGIN_WORD, *b"soup", END_WORD, PADDING, PADDING]
    assert found[1].tolist() == [BEGIN_WORD, 0xC3, 0xA9, END_WORD, *[PADDING] * 4]
    assert found[2].tolist() == [BEGIN_WORD, *b"abcdef", END_WORD]
    tokenizer = train_tokenizer(Words(vocab=10), TEXTS)
    own = spell_tokens(tokenizer, range(11), 8)
    assert own[tokenizer.bos_id].tolist() == [BEGIN_WORD, BEGIN_TEXT, END_WORD, *[PADDING] * 5]
    assert own[tokenizer.backend.token_to_id("cook")].tolist() == spell_words(["cook"], 8)[0].tolist()


def test_the_network_is_convolutions_highways_and_a_map() -> None:
    """Against torch's own convolutions, one word and one layer after the other."""
    tokens = tiny().embed.tokens
    assert isinstance(tokens, CharacterTokens)
    words = torch.from_numpy(spell_words(["soup", "", "a", "waitresses"], 12))
    for word, vector in zip(words, tokens.read(words), strict=True):
        x = tokens.characters.weight[word.long()].T  # [E, C]
        parts = []
        for (size, count), layer in zip(NETWORK.filters, tokens.filters, strict=True):
            kernel = layer.weight.view(count, size, NETWORK.width).transpose(1, 2)
            parts.append(F.conv1d(x[None], kernel, layer.bias)[0].relu().max(dim=-1).values)
        hidden = torch.cat(parts)
        for highway in tokens.highways:
            both = F.linear(hidden, highway.weight, highway.bias)
            gate = torch.sigmoid(both[10:])
            hidden = gate * both[:10].relu() + (1 - gate) * hidden
        assert_close(vector, F.linear(hidden, tokens.project.weight, tokens.project.bias))


def test_words_that_were_never_seen_get_vectors(tmp_path: Path) -> None:
    """A word's vector hangs on its characters alone: by its id or spelled it is the same, also behind a disk."""
    tokenizer, model = train_tokenizer(Words(vocab=10), TEXTS), tiny()
    set_token_spellings(model, tokenizer)
    words = ["the", "cook", "waits"]
    ids = torch.tensor([[tokenizer.backend.token_to_id(word) for word in words]])
    by_id = model(ids).last_hidden_state
    told = model(ids, characters=torch.from_numpy(spell_words(words, 12))[None]).last_hidden_state
    assert_close(by_id, told)
    unknown = torch.tensor([[ids[0, 0], tokenizer.unk_id, ids[0, 2]]])
    found = [model(unknown, characters=torch.from_numpy(spell_words(["the", word, "waits"],
                                                                    12))[None]).last_hidden_state
             for word in ("cooks", "soups")]
    assert not torch.allclose(found[0][0, 1], found[1][0, 1], atol=1e-3)
    assert check_saved_bits(model).verdict == "holds"  # the doctor's own copy has no tokenizer beside it
    model.save(tmp_path)
    with pytest.raises(InputError, match="reads characters, and no tokenizer spells its tokens"):
        saucier.load(tmp_path)
    tokenizer.save(tmp_path)
    assert_close(saucier.load(tmp_path, dtype="float32")(ids).last_hidden_state, by_id)


def test_padding_and_batches_change_no_vector() -> None:
    model = tiny()
    rows = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    assert_close(model(rows, mask).last_hidden_state[1, :2], model(rows[1:, :2]).last_hidden_state[0])


def test_a_clipped_cell_keeps_its_memory_and_its_output_in_bounds() -> None:
    limit = 0.05
    model = scrambled(alone(c.Recurrent(cell=c.LSTM(cells=30, clip=limit)), writes=False))
    cell = model.encoder.blocks[0]["recurrent"].inner.layers.cell(0)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter *= 20
    x, state = torch.randn(9, 24), (torch.zeros(9, 24), torch.zeros(9, 30))
    reached = 0
    for _ in range(5):
        sums = cell.input(x) + cell.hidden(state[0])
        enter, keep, candidate, leave = sums.chunk(4, dim=-1)
        memory = (keep.sigmoid() * state[1] + enter.sigmoid() * candidate.tanh()).clamp(-limit, limit)
        output = cell.project(leave.sigmoid() * memory.tanh()).clamp(-limit, limit)
        state = cell.step(cell.input(x), state)
        assert_close(state[0], output)
        assert_close(state[1], memory)
        reached += int((memory.abs() == limit).sum())
    assert reached > 100


def test_what_cannot_be_made_of_characters_is_refused() -> None:
    embed = c.Embedding(vocab=11, characters=NETWORK)
    for model, wrong in (
            (elmo(24, vocab=11, characters=NETWORK, tied=True), "an output matrix cannot be tied"),
            (bart(24, 1, heads=2, vocab=11).model_copy(update={"embed": embed}), "by a model of one stack"),
            (elmo(24, vocab=11, characters=NETWORK.model_copy(update={"longest": 2})), "longest: should be greater")):
        with pytest.raises(InputError, match=wrong):
            build(model)
    with pytest.raises(InputError, match="this model reads no characters"):
        build(elmo(24, cells=20, vocab=11))(torch.tensor([[1]]), characters=torch.zeros(1, 1, 50))
    with pytest.raises(InputError, match=r"give 12, as saucier\.text\.tokenizer\.model_inputs does"):
        tiny()(torch.tensor([[1]]), characters=torch.zeros(1, 1, 50))

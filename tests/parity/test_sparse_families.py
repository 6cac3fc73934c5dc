"""BigBird and Reformer against the reference library: drawn blocks, published sizes, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.tolerances import MODEL, assert_close

from saucier import config as c
from saucier.adaptation.surgery.operations import OperationOptions
from saucier.families.big_bird import BIG_BIRD_LAYOUT
from saucier.families.reformer import reformer
from saucier.families.reformer_tables import REFORMER_LAYOUT
from saucier.folders.load import load
from saucier.jobs.convert import convert
from saucier.model import build
from saucier.parts.masks import Draw
from saucier.parts.visibility import count_random_blocks

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")


def published_parameters(model: torch.nn.Module) -> int:
    """Parameters of a reference model, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def fields(config: Any) -> dict[str, Any]:
    """A reference config as the library writes it to a file."""
    found: dict[str, Any] = json.loads(config.to_json_string())
    return found


def drawn_by_reference(config: Any, length: int, layer: int) -> Any:
    """The reference's list of drawn blocks [H, N - 2, R]."""
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

    module = BigBirdBlockSparseAttention(config, seed=layer).train()
    size, count = config.block_size, config.num_random_blocks
    numpy.random.seed(layer)
    if length in (1024, 3072, 4096):
        longest = config.max_position_embeddings
        return [module._bigbird_block_rand_mask(longest, longest, size, size, count, last_idx=1024)[:length // size - 2]
                for _ in range(config.num_attention_heads)]
    plan = module._get_rand_attn_plan(length, size, count)
    return module._bigbird_block_rand_mask_with_head(length, length, size, size, config.num_attention_heads, *plan)


@pytest.mark.parametrize(("length", "size", "count", "longest"), [
    (1024, 64, 3, 4096), (3072, 64, 3, 4096), (4096, 64, 3, 4096), (4096, 32, 2, 4096), (1024, 64, 2, 1024),
    (1024, 16, 3, 2048), (832, 64, 3, 4096), (2048, 64, 3, 4096), (120, 8, 2, 128), (64, 4, 1, 64)])
@pytest.mark.parametrize("layer", [0, 5])
def test_the_blocks_that_are_drawn(length: int, size: int, count: int, longest: int, layer: int) -> None:
    config = transformers.BigBirdConfig(hidden_size=12, num_attention_heads=3, block_size=size, num_random_blocks=count,
                                        max_position_embeddings=longest)
    wanted = torch.zeros(3, length // size, length // size, dtype=torch.int16)
    for head, rows in enumerate(drawn_by_reference(config, length, layer)):
        for block, row in enumerate(rows, start=1):
            for other in row:
                wanted[head, block, int(other)] += 1
    ours = c.RandomBlocks(size=size, count=count, length=longest)
    assert torch.equal(count_random_blocks(ours, length // size, Draw(3, layer)), wanted)


def test_the_published_size_of_big_bird() -> None:
    with torch.device("meta"):
        there = transformers.BigBirdForPreTraining(transformers.BigBirdConfig())
    tree = BIG_BIRD_LAYOUT.tree(fields(transformers.BigBirdConfig()), "BigBirdForPreTraining", "test")
    assert c.parameters(tree) == published_parameters(there)
    assert sum(parameter.numel() for parameter in build(tree, device="meta").parameters()) == c.parameters(tree)


def test_the_published_size_of_reformer() -> None:
    with torch.device("meta"):
        there = transformers.ReformerModelWithLMHead(transformers.ReformerConfig(is_decoder=True))
    unread = there.lm_head.bias.numel()  # stored, and added to nothing
    tree = REFORMER_LAYOUT.tree(fields(transformers.ReformerConfig(is_decoder=True)), "ReformerModelWithLMHead", "test")
    assert c.parameters(tree) == published_parameters(there) - unread
    assert sum(parameter.numel() for parameter in build(tree, device="meta").parameters()) == c.parameters(tree)
    assert tree == reformer(lsh=c.Hashing(chunks=c.Chunks(multiple=64)),
                            local=c.Chunks(dropout=0.05, multiple=64)).model_copy()


@pytest.mark.parametrize(("chunk", "rounds"), [(8, 3), (5, 1), (24, 2), (48, 1)])
def test_other_hashes_are_read_as_by_the_reference(tmp_path: Path, chunk: int, rounds: int) -> None:
    torch.manual_seed(0)
    there = transformers.ReformerModelWithLMHead(transformers.ReformerConfig(
        hidden_size=32, attn_layers=["local", "lsh"], num_attention_heads=4, attention_head_size=8, vocab_size=50,
        feed_forward_size=48, local_attn_chunk_length=8, lsh_attn_chunk_length=8, num_buckets=4, num_hashes=2,
        axial_pos_shape=[8, 16], axial_pos_embds_dim=[12, 20], max_position_embeddings=128, hash_seed=3,
        is_decoder=True))
    there.save_pretrained(tmp_path / "before")
    convert(tmp_path / "before", tmp_path / "after", options=OperationOptions(attention=f"hashes:{chunk}:{rounds}"))
    wanted = transformers.ReformerModel.from_pretrained(tmp_path / "after").eval()
    assert (wanted.config.lsh_attn_chunk_length, wanted.config.num_hashes) == (chunk, rounds)
    ids = torch.randint(3, 50, (2, 45))
    with torch.no_grad():
        assert_close(load(tmp_path / "after", dtype="float32")(ids).last_hidden_state, wanted(ids).last_hidden_state,
                     MODEL)


@pytest.mark.parametrize(("field", "value", "name"), [
    ("is_decoder", False, "ReformerModelWithLMHead"), ("is_decoder", True, "ReformerForMaskedLM"),
    ("attn_layers", ["local", "full"], "ReformerModel"), ("hidden_act", "xielu", "ReformerModel"),
    ("num_buckets", 3, "ReformerModel"), ("axial_pos_shape", [4, 4, 4], "ReformerModel")])
def test_what_reformer_cannot_express_is_refused(field: str, value: object, name: str) -> None:
    from saucier.errors import InputError

    config = transformers.ReformerConfig(is_decoder="LMHead" in name)
    with pytest.raises(InputError):
        REFORMER_LAYOUT.tree({**fields(config), field: value}, name, "test")


@pytest.mark.parametrize(("field", "value", "name"), [
    ("attention_type", "block_sparse", "BigBirdForCausalLM"), ("is_decoder", False, "BigBirdForCausalLM"),
    ("is_decoder", True, "BigBirdForMaskedLM"), ("add_cross_attention", True, "BigBirdForCausalLM"),
    ("attention_type", "dilated", "BigBirdModel")])
def test_what_cannot_be_expressed_is_refused_by_name(field: str, value: object, name: str) -> None:
    from saucier.errors import InputError

    config = transformers.BigBirdConfig(attention_type="original_full", is_decoder="Causal" in name)
    with pytest.raises(InputError, match=field):
        BIG_BIRD_LAYOUT.tree({**fields(config), field: value}, name, "test")

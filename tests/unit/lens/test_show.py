"""`saucier show`: the tree of parts and the memory, from the config alone."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

from saucier.config import Block, PreNorm, Projection, SelfAttention, Share, Stack, parameters
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.lens.anatomy import anatomy_rows, describe, describe_model, render_description


def printed(name: str, width: int = 140) -> str:
    """What `saucier show` prints for a family."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render_description(describe_model(name, FAMILIES[name](), length=64, batch=4)))
    return console.export_text()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_whole_is_the_sum_of_its_parts(name: str) -> None:
    config = FAMILIES[name]()
    described = describe_model(name, config, length=64).to_dict()
    whole = described["anatomy"]
    assert whole["parameters"] == parameters(config)
    assert whole["parameters"] == sum(part["parameters"] for part in whole["children"])
    assert whole["flops"] == pytest.approx(sum(part["flops"] for part in whole["children"]))


def test_repeated_blocks_are_folded_and_drawn_once() -> None:
    text = printed("gpt2")
    assert "blocks × 12" in text
    assert text.count("feed_forward") == 1
    assert "124,439,808 parameters" in text


def test_a_shared_block_says_that_it_has_one_set_of_weights() -> None:
    block = Block(sublayers=(PreNorm(inner=SelfAttention(projection=Projection(heads=2))),))
    base = FAMILIES["bert"](dim=8, heads=2, vocab=10, length=4)
    config = base.model_copy(update={"encoder": Stack(layers=Share(block=block, times=5))})
    node = next(node for _, node in anatomy_rows(describe_model("albert", config, length=4).anatomy)
                if node.name == "blocks")
    assert (node.times, node.detail) == (5, "one set of weights")
    assert node.parameters == sum(child.parameters for child in node.children)


def test_every_part_is_drawn_once_with_guides_of_its_depth() -> None:
    drawn = list(anatomy_rows(describe_model("t5", FAMILIES["t5"](), length=8).anatomy))
    assert drawn[0][0] == ""
    assert len(drawn) == sum(1 for _ in anatomy_rows(drawn[0][1]))
    assert all(len(guides) % 3 == 0 for guides, _ in drawn)
    assert drawn[-1][0].endswith("└─ ")


def test_memory_is_given_for_training_and_for_inference_in_both_formats() -> None:
    needs = describe_model("gpt2", FAMILIES["gpt2"](), length=64, batch=4).to_dict()["needs"]
    assert [(need["use"], need["dtype"]) for need in needs] == [
        ("training", "float32"), ("training", "bfloat16"), ("generation", "float32"), ("generation", "bfloat16")]
    for need in needs:
        assert need["memory"]["total"] == sum(size for key, size in need["memory"].items() if key != "total")
    assert needs[2]["memory"]["weights"] == 2 * needs[3]["memory"]["weights"] == 4 * 124_439_808
    assert needs[2]["memory"]["cache"] == 2 * 12 * 768 * 64 * 4


def test_an_encoder_has_no_cache_and_no_column_for_it() -> None:
    assert "cache" not in printed("bert")
    assert "inference" in printed("bert")


def test_no_figure_is_cut_on_a_narrow_screen() -> None:
    assert "…" not in printed("t5", width=80) + printed("t5", width=60)
    assert "222,903,552" in printed("t5", width=80)


@pytest.mark.slow
def test_show_needs_no_torch() -> None:
    code = ("import sys; from saucier.lens.subject import find_subject; from saucier.lens.anatomy import *; "
            "s = find_subject('gpt-nano'); render_description(describe_model(s.name, s.model, length=8)); "
            "sys.exit('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_more_tokens_than_positions() -> None:
    with pytest.raises(InputError, match=r"^--length: 5,000 tokens, and the model has 1,024 positions; give at most"):
        describe("gpt2", length=5000)
    assert describe("gpt2", length=1024).length == 1024

"""Prefixes and prompts of ours in the hands of PEFT, and PEFT's in ours: equal numbers, equal generated ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.checkpoints.test_adapters import base_model
from tests.tolerances import assert_close
from torch import Tensor

import saucier
from saucier import InputError
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import list_trainable, rewrite
from saucier.folders.save import save_adapter

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

IDS = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 4]])
LENGTH = 3
KINDS: dict[str, a.Tuning] = {"prefix": a.Prefix(length=LENGTH, hidden=6), "prompt": a.Prompt(length=LENGTH)}
BODIES = ("gpt2", "llama", "t5")


def inputs(kind: str) -> dict[str, Tensor]:
    return {"decoder_input_ids": IDS.flip(1)} if kind == "t5" else {}


def answers(adapted: Any, body: str) -> Tensor:
    """PEFT gives the logits of a prompt's vectors too."""
    mask = {"attention_mask": torch.ones_like(IDS)}
    with torch.no_grad():
        logits: Tensor = adapted(input_ids=IDS, **mask, **inputs(body)).logits
    return logits[:, -IDS.shape[1]:]


def drawn(parameters: Any) -> None:
    with torch.no_grad():
        for parameter in parameters:
            parameter.normal_(0.0, 0.4, generator=torch.Generator().manual_seed(parameter.numel()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
def test_peft_reads_ours(body: str, kind: str, tmp_path: Path) -> None:
    reference = base_model(body, tmp_path / "base")
    model = saucier.load(tmp_path / "base", dtype="float32", device="cpu")
    plain = model(IDS, **inputs(body)).logits
    rewrite(model, by=KINDS[kind])
    drawn(list_trainable(model).values())
    assert save_adapter(model, tmp_path / "adapter") == "peft"
    size = (tmp_path / "adapter/adapter_model.safetensors").stat().st_size
    assert size < 0.2 * (tmp_path / "base/model.safetensors").stat().st_size
    again = saucier.load(tmp_path / "adapter", dtype="float32", device="cpu")
    with torch.no_grad():
        expected = model(IDS, **inputs(body)).logits
        assert (expected - plain).abs().max() > 1e-2
        assert torch.equal(again(IDS, **inputs(body)).logits, expected)
    adapted = peft.PeftModel.from_pretrained(reference, str(tmp_path / "adapter")).eval()
    assert_close(answers(adapted, body), expected)
    if body != "t5":
        options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        theirs = adapted.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), **options)
        assert torch.equal(saucier.generate(again, IDS, **options), theirs)


@pytest.mark.parametrize("side", [a.BeforeTarget(), a.BeforeBoth()])
def test_prompts_of_the_target_are_saved_in_our_form(side: a.BeforeTarget | a.BeforeBoth, tmp_path: Path) -> None:
    """PEFT puts nothing before what a decoder writes beside an encoder."""
    base_model("t5", tmp_path / "base")
    model = saucier.load(tmp_path / "base", dtype="float32", device="cpu")
    rewrite(model, by=a.Prompt(length=LENGTH, side=side))
    drawn(list_trainable(model).values())
    with pytest.raises(InputError, match="PEFT gives a decoder beside an encoder no prompt"):
        save_adapter(model, tmp_path / "adapter", layout="peft")
    assert save_adapter(model, tmp_path / "adapter") == "own"
    again = saucier.load(tmp_path / "adapter", dtype="float32", device="cpu")
    with torch.no_grad():
        assert torch.equal(again(IDS, **inputs("t5")).logits, model(IDS, **inputs("t5")).logits)


@pytest.mark.slow
@pytest.mark.parametrize("stacks", [None, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
def test_we_read_pefts(body: str, kind: str, stacks: int | None, tmp_path: Path) -> None:
    """Without a number PEFT stores a prompt for each stack of an encoder-decoder, and reads the encoder's alone."""
    task = "SEQ_2_SEQ_LM" if body == "t5" else "CAUSAL_LM"
    prompt = {"num_virtual_tokens": LENGTH, "task_type": task}
    settings = (peft.PrefixTuningConfig(**prompt, prefix_projection=True, encoder_hidden_size=6) if kind == "prefix"
                else peft.PromptTuningConfig(**prompt, num_transformer_submodules=stacks))
    adapted = peft.get_peft_model(base_model(body, tmp_path / "base"), settings).eval()
    drawn(adapted.prompt_encoder.parameters())
    adapted.save_pretrained(tmp_path / "adapter")
    path = tmp_path / "adapter/adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "../base"}))
    model = saucier.load(tmp_path / "adapter", dtype="float32", device="cpu")
    with torch.no_grad():
        assert_close(model(IDS, **inputs(body)).logits, answers(adapted, body))


def test_a_prompt_before_a_classifier(tmp_path: Path) -> None:
    """The label is read from the first vector, which is the prompt's, as in PEFT; a prefix is ours alone there."""
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=24, max_position_embeddings=16, num_labels=3)
    reference = transformers.BertForSequenceClassification(config).eval()
    reference.save_pretrained(tmp_path / "base")
    model = rewrite(saucier.load(tmp_path / "base", dtype="float32", device="cpu"), by=KINDS["prompt"])
    drawn(list_trainable(model).values())
    assert save_adapter(model, tmp_path / "adapter") == "peft"
    adapted = peft.PeftModel.from_pretrained(reference, str(tmp_path / "adapter")).eval()
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    segments = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    with torch.no_grad():
        expected = adapted(input_ids=IDS, attention_mask=mask, token_type_ids=segments).logits
        assert_close(model(IDS, mask, token_type_ids=segments).logits, expected)
    other = rewrite(saucier.load(tmp_path / "base", dtype="float32", device="cpu"), by=KINDS["prefix"])
    with pytest.raises(InputError, match="leave a prefix out"):
        save_adapter(other, tmp_path / "prefix", layout="peft")
    assert save_adapter(other, tmp_path / "prefix") == "own"
    assert json.loads((tmp_path / "prefix/adapter_config.json").read_text())["peft_type"] == "SAUCIER"
    again = saucier.load(tmp_path / "prefix", dtype="float32", device="cpu")
    with torch.no_grad():
        assert torch.equal(again(IDS).logits, other.eval()(IDS).logits)


def test_another_kind_or_base_is_refused(tmp_path: Path) -> None:
    base_model("gpt2", tmp_path / "base")
    model = rewrite(saucier.load(tmp_path / "base", dtype="float32", device="cpu"), by=KINDS["prompt"])
    save_adapter(model, tmp_path / "adapter")
    path = tmp_path / "adapter/adapter_config.json"
    document = json.loads(path.read_text())
    for changed, message in (({"peft_type": "IA3"}, "peft_type 'IA3' cannot be read; known: LORA"),
                             ({"peft_type": "PREFIX_TUNING"}, r"does not fit its base model .*: prompt_embeddings is")):
        path.write_text(json.dumps(document | changed))
        with pytest.raises(InputError, match=message):
            saucier.load(tmp_path / "adapter")

"""LoRA adapters in PEFT's layout: the numbers of the base model with the products added by hand, module by module."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tolerances import assert_close

import saucier

transformers = pytest.importorskip("transformers")
IDS = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 4]])


def base_model(kind: str, folder: Path) -> Any:
    """Write and return a small model of transformers."""
    torch.manual_seed(1)
    small: dict[str, Any] = {"vocab_size": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    match kind:
        case "gpt2":
            config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=16, **small)
            model = transformers.GPT2LMHeadModel(config)
        case "llama":
            config = transformers.LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                                              num_key_value_heads=2, intermediate_size=24, **small)
            model = transformers.LlamaForCausalLM(config)
        case "t5":
            config = transformers.T5Config(d_model=16, num_layers=2, num_heads=2, d_ff=24, d_kv=8, **small,
                                           decoder_start_token_id=0)
            model = transformers.T5ForConditionalGeneration(config)
        case _:
            config = transformers.BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=24, max_position_embeddings=16, **small)
            model = transformers.BertModel(config)
    model.save_pretrained(folder)
    return model.eval()


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape) * 0.2


def saved(kind: str, tmp_path: Path, targets: str, **options: Any) -> tuple[Any, Path]:
    """Write an adapter on modules whose name matches; return the reference with it added, and its folder."""
    reference = base_model(kind, tmp_path / "base")
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "base_model_name_or_path": str(tmp_path / "base"),
                "target_modules": ["for people"], "bias": "none", "inference_mode": True, "lora_dropout": 0.1,
                "modules_to_save": None, "init_lora_weights": True, "use_dora": False} | options
    ranks, alphas = settings.get("rank_pattern") or {}, settings.get("alpha_pattern") or {}
    tensors = {}
    for name, module in reference.named_modules():
        if not re.fullmatch(targets, name):
            continue
        rank = next((ranks[key] for key in ranks if name.endswith(key)), settings["r"])
        alpha = next((alphas[key] for key in alphas if name.endswith(key)), settings["lora_alpha"])
        scale = alpha / (rank**0.5 if settings.get("use_rslora") else rank)
        table = isinstance(module, torch.nn.Embedding)
        turned = table or settings.get("fan_in_fan_out", False)
        inputs, outputs = module.weight.shape if turned else module.weight.shape[::-1]
        down, up = drawn(rank, inputs), drawn(outputs, rank)
        ends = ("lora_embedding_A", "lora_embedding_B") if table else ("lora_A.weight", "lora_B.weight")
        tensors |= {f"base_model.model.{name}.{end}": value for end, value in zip(ends, (down, up), strict=True)}
        module.weight.data += (up @ down).T * scale if turned else (up @ down) * scale
    write_adapter(tmp_path / "adapter", settings, tensors)
    assert tensors
    return reference, tmp_path / "adapter"


def write_adapter(folder: Path, settings: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def change(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


LLAMA = r"model\.layers\.\d\.(self_attn|mlp)\."
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", r".*\.(c_attn|c_proj|c_fc)", {"fan_in_fan_out": True}),
    "llama": ("llama", LLAMA + "(q_proj|v_proj)", {}),
    "all-linear": ("llama", LLAMA + ".*_proj", {"use_rslora": True}),
    "patterns": ("llama", LLAMA + "(q|k|down)_proj", {"rank_pattern": {"k_proj": 2},
                                                      "alpha_pattern": {"layers.1.self_attn.q_proj": 11}}),
    "one-layer": ("llama", r".*layers\.1\.self_attn\.v_proj", {"layers_to_transform": [1]}),
    "t5": ("t5", r".*\.(q|v|wi)", {}),
    "embedding": ("gpt2", r".*(wte|c_attn)", {"fan_in_fan_out": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_sum_by_hand(case: str, tmp_path: Path) -> None:
    kind, targets, options = CASES[case]
    reference, folder = saved(kind, tmp_path, targets, **options)
    inputs = {"decoder_input_ids": IDS} if kind == "t5" else {}
    model = saucier.load(folder, dtype="float32", device="cpu")
    with torch.no_grad():
        expected = reference(input_ids=IDS, **inputs).logits
        plain = saucier.load(tmp_path / "base", dtype="float32", device="cpu")(IDS, **inputs).logits
        found = model(IDS, **inputs).logits
    assert_close(found, expected)
    assert (found - plain).abs().max() > 1e-3
    model.save(tmp_path / "merged")
    again = saucier.load(tmp_path / "merged", dtype="float32", device="cpu")
    with torch.no_grad():
        assert torch.equal(again(IDS, **inputs).logits, found)


@pytest.mark.skipif(not all(map(importlib.util.find_spec, ("peft", "accelerate"))),
                    reason="peft needs accelerate, and one of them is not installed")
def test_the_numbers_of_peft(tmp_path: Path) -> None:
    import peft

    adapted = peft.get_peft_model(base_model("llama", tmp_path / "base"),
                                  peft.LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"]))
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = drawn(*parameter.shape)
    adapted.eval().save_pretrained(tmp_path / "adapter")
    change(tmp_path / "adapter", base_model_name_or_path=str(tmp_path / "base"))
    with torch.no_grad():
        assert_close(saucier.load(tmp_path / "adapter", dtype="float32", device="cpu")(IDS).logits,
                     adapted(input_ids=IDS).logits)


def test_a_head_that_only_the_adapter_has(tmp_path: Path) -> None:
    reference, folder = saved("bert", tmp_path, r".*(query|value)", task_type="SEQ_CLS")
    tensors = {name.replace("model.encoder", "model.bert.encoder"): value
               for name, value in load_file(folder / "adapter_model.safetensors").items()}
    config = transformers.BertConfig.from_pretrained(tmp_path / "base", num_labels=3)
    whole = transformers.BertForSequenceClassification(config).eval()
    whole.bert = transformers.BertModel(config).eval()
    whole.bert.load_state_dict(reference.state_dict())
    tensors |= {f"base_model.model.classifier.{key}": value.detach().clone()
                for key, value in whole.classifier.state_dict().items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    model = saucier.load(folder, dtype="float32", device="cpu")
    with torch.no_grad():
        assert_close(model(IDS).logits, whole(input_ids=IDS).logits)
    assert model(IDS).logits.shape == (2, 3)


def test_a_base_beside_the_adapter(tmp_path: Path) -> None:
    _, folder = saved("llama", tmp_path, LLAMA + "q_proj")
    (tmp_path / "base").rename(folder / "base")
    change(folder, base_model_name_or_path="base")
    assert saucier.load(folder, device="cpu").config.head is not None


@pytest.mark.parametrize(("values", "message"), [
    ({"peft_type": "IA3"}, "peft_type 'IA3' cannot be read"), ({"use_dora": True}, "use_dora cannot be expressed"),
    ({"something_new": 3}, "something_new cannot be expressed"),
    ({"init_lora_weights": "pissa"}, "changes the base model"),
    ({"lora_alpha": "x"}, "is no number"), ({"base_model_name_or_path": None}, "base_model_name_or_path is missing"),
    ({"base_model_name_or_path": "/nowhere/at/all"}, "no such folder"), ({"alpha_pattern": {"(": 1}}, "alpha_pattern"),
])
def test_settings_that_cannot_be_expressed(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    _, folder = saved("llama", tmp_path, LLAMA + "q_proj")
    change(folder, **values)
    with pytest.raises(saucier.InputError, match=message):
        saucier.load(folder)


def test_matrices_that_do_not_fit(tmp_path: Path) -> None:
    _, folder = saved("llama", tmp_path, LLAMA + "q_proj")
    tensors = load_file(folder / "adapter_model.safetensors")
    name = next(name for name in tensors if name.endswith("0.self_attn.q_proj.lora_B.weight"))
    for changed, message in (({**tensors, name: torch.zeros(7, 4)}, r"gives \[7, 16\] instead of \[16, 16\]"),
                             ({**tensors, name: torch.zeros(16, 3)}, "have no product"),
                             ({key: tensors[key] for key in tensors if key != name}, "lora_B.weight is missing"),
                             ({**tensors, name.replace("q_proj", "q_prj"): drawn(16, 4)}, "is not in the base model"),
                             ({**tensors, name.replace("lora_B.weight", "lora_magnitude_vector"): torch.ones(16)},
                              "is of a kind that cannot be expressed")):
        save_file(changed, folder / "adapter_model.safetensors")
        with pytest.raises(saucier.InputError, match=message):
            saucier.load(folder)

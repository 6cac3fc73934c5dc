"""Every recipe of ours loads, builds, and has the figures that it claims."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from saucier.config import anatomy, check, parameters
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.recipes import Recipe, names, recipe, schema
from saucier.recipes.catalogue import FOLDER

PUBLISHED = {
    "gpt": 116_534_784, "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "roberta": 124_697_433, "xlm-roberta": 278_295_186, "xlm": 249_071_384, "mbart": 611_101_867,
    "distilbert": 66_985_530, "albert": 11_813_810,
    "albert-large": 17_847_474, "albert-xlarge": 59_021_490, "albert-xxlarge": 223_158_450,
    "roberta-large": 355_412_057, "deberta": 139_244_121,
    "llama": 6_738_415_616, "t5-small": 60_506_624, "t5": 222_903_552,
    "bart-base": 139_470_681, "bart-large": 406_341_721,
    "transformer-xl": 151_107_538, "transformer-xl-large": 285_205_322,
    "longformer": 149301849, "led": 459_851_865, "bigbird": 128_112_824,
    "xlnet": 116_750_336, "xlnet-large": 360_300_800,
    "electra": 13_549_057, "electra-base": 109_483_009, "electra-large": 335_142_913,
    "deberta-v3-small": 141_304_320 + 592_897, "deberta-v3": 183_831_552 + 592_897,
    "deberta-v3-large": 434_012_160 + 1_052_673,
    "t5-large": 737_668_096, "t5-3b": 2_851_598_336, "t5-11b": 11_307_321_344, "t5-v1.1-small": 76_961_152,
    "t5-v1.1-base": 247_577_856, "t5-v1.1-large": 783_150_080, "t5-v1.1-xl": 2_849_757_184,
    "t5-v1.1-xxl": 11_135_332_352}
ENCODERS = {"bert": 109_482_240, "bert-large": 335_141_888, "spanbert": 108_310_272, "spanbert-large": 333_579_264,
            "elmo": 93_600_848}


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_every_recipe_is_whole(name: str) -> None:
    found = recipe(name)
    check(found.model)
    assert found.name == name
    assert found.paper
    assert found.year
    assert found.book
    assert all(re.fullmatch(r"[A-Z]\d+", row) for row in found.book)


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_a_resolved_recipe_is_the_same_recipe(name: str, tmp_path: Path) -> None:
    found = recipe(name)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(found.as_dict(), sort_keys=False), encoding="utf-8")
    again = recipe(path)
    assert again == found
    assert again.model == found.model


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_claimed_parameters_are_counted(name: str) -> None:
    found = recipe(name)
    if found.claims.parameters is not None:
        assert parameters(found.model) == found.claims.parameters
    if found.claims.encoder_parameters is not None:
        counted = {part.name: part.parameters for part in anatomy(found.model).children}
        assert counted["embed"] + counted["encoder"] + counted.get("pooler", 0) == found.claims.encoder_parameters


def test_claims_are_those_of_the_published_models() -> None:
    assert {name: recipe(name).claims.parameters for name in PUBLISHED} == PUBLISHED
    assert {name: recipe(name).claims.encoder_parameters for name in ENCODERS} == ENCODERS


def test_the_base_transformer_is_as_large_as_in_the_paper() -> None:
    assert parameters(recipe("sparse-transformer").model) == pytest.approx(95e6, rel=0.005)  # Child et al. 2019, §7.2
    assert parameters(recipe("transformer").model) == pytest.approx(65e6, rel=0.03)  # table 3 gives two digits


@pytest.mark.slow
def test_every_family_has_a_published_and_a_small_size() -> None:
    found = [recipe(name) for name in names()]
    sizes = {family: [parameters(one.model) for one in found if one.family == family] for family in FAMILIES}
    families = {"gpt": ["gpt"], "gpt2": ["gpt2"], "llama": ["llama"], "bert": ["bert"], "t5": ["t5"],
                "transformer": ["transformer"]}
    for family in families:
        assert max(sizes[family]) > 5e7
    small = {name for name in names() if name.endswith("-nano")}
    assert {name.removesuffix("-nano") for name in small} >= families.keys()
    assert all(parameters(recipe(name).model) < 5e6 for name in small)


def test_the_vocabulary_is_the_tokenizers() -> None:
    assert recipe("gpt-nano", ["tokenizer.vocab=999"]).model.embed.vocab == 999
    assert recipe("gpt-nano", ["model.vocab=5000"]).model.embed.vocab == 5000
    assert recipe("gpt-nano").model_for(77).embed.vocab == 77
    assert recipe("t5").model.embed.vocab == 32128
    assert recipe("gpt-nano", ["tokenizer.kind=bytes"]).model.embed.vocab == 258


def test_a_whole_tree_is_a_model_too(tmp_path: Path) -> None:
    values = recipe("llama-nano").as_dict()
    values["model"] = json.loads(recipe("llama-nano").model.model_dump_json())
    path = tmp_path / "tree.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    found = recipe(path)
    assert found.family == "own"
    assert found.model == recipe("llama-nano").model
    values["model"]["decoder"]["layers"]["block"]["sublayers"][0]["inner"]["positions"]["kind"] = "rotery"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    with pytest.raises(InputError,
                       match=r"tree\.yaml:\d+: model\.decoder\.layers\.block\.sublayers\.0\.inner\.positions\.kind: "
                       r"there is no 'rotery'; did you mean 'rotary'\?"):
        recipe(path)


def test_overrides() -> None:
    found = recipe("gpt-nano",
                   ["training.steps=7", "training.optimizer.kind=adamw", "training.optimizer.learning_rate=1e-4",
                    "data.files=[a.txt, b.txt]", "sampling.prompts=[\"x: y\"]", "sampling.prompts.0=z"])
    assert found.training.steps == 7
    assert found.training.optimizer.kind == "adamw"
    assert found.training.optimizer.learning_rate == 1e-4
    assert found.data.files == ("a.txt", "b.txt")
    assert found.sampling.prompts == ("z",)


def test_another_kind_starts_its_section_afresh() -> None:
    plain = recipe("gpt-nano", ["training.schedule.kind=constant"]).training.schedule
    assert plain.model_dump() == {"kind": "constant", "warmup": 0, "cooldown": 0}
    same = recipe("gpt-nano", ["training.schedule.kind=cosine"]).training.schedule
    assert same == recipe("gpt-nano").training.schedule


@pytest.mark.parametrize(("name", "override", "words"), [
    ("gpt-nano", "objective.kind=masked", "a decoder that only looks back cannot fill in what it has passed"),
    ("bert-nano", "objective={kind: causal}", "causal trains a model of decoder, and this one is encoder"),
    ("gpt-nano", "data.kind=pairs", "causal learns from running text"),
    ("transformer-nano", "data.kind=text", "sequence_to_sequence learns from pairs"),
    ("bert-nano", "tokenizer.kind=byte_bpe", "masked needs a mask token"),
    ("bert-nano", "objective.rate=1", "objective.rate: should be less than 1, not 1"),
    ("bert-nano", "objective.rate=0", "objective.rate: should be greater than 0, not 0"),
    ("bert-nano", "objective.random=0.3", "objective.random: mask + random is 1.1, more than 1"),
    ("bert-nano", "objective.sentence_order={}", "two answers of one classifier"),
    ("bert-nano", "objective.rows.kind=full_sentences", "full_sentences rows have no two pieces to tell a relation of"),
    ("bert-nano", "objective={kind: masked, rows: {kind: segment_pairs}}",
     "objective.rows.kind: segment_pairs are there to learn how two pieces belong together"),
    ("roberta", "objective.sentence_order={}", "objective.sentence_order: needs a pretraining head and two segments"),
    ("bert-nano", "objective.choice.kind=spam", "there is no 'spam'; did you mean 'spans'?"),
    ("bert-nano", "model.segments=0", "needs a pretraining head and two segments"),
    ("t5-nano", "tokenizer.special.sentinels=0", "needs 2 sentinel tokens or more"),
    ("bart-nano", "tokenizer.special.mask=null", "denoising needs a mask token"),
    ("ul2-nano", "tokenizer.special.extra=['[R]']", "add '[X]', '[S]'"),
    ("t5-nano", "objective={kind: replace_spans, rate: 0.5}", "replace_spans needs 65 sentinel tokens or more"),
    ("bert-nano", "objective={kind: prefix_lm}", "prefix_lm trains a model of decoder, or of encoder and decoder"),
    ("t5", "tokenizer.vocab=40000", "32128 token vectors, and the tokenizer 40000 tokens"),
    ("gpt-nano", "training.length=129", "129 tokens do not fit into the model's 128 learned positions"),
    ("roberta", "model.padding=1", "the model counts positions without token 1, and the tokenizer's padding is 0"),
    ("roberta", "tokenizer.special.pad=null", "the model counts positions without padding"),
    ("llama-nano", "model.kv_heads=3", "4 heads do not divide into 3 key-value heads"),
    ("deep-char-nano", "objective.positions.kind=last",
     "objective.deeper.further: no token stands behind the last position of a row"),
    ("gpt-nano", "model.layers=0", "should be greater than 0, not 0"),
    ("m2m-nano", "data.held_out={kind: tail}", "data.held_out.kind: the tail of several tables is of the last ones"),
    ("m2m-nano", "data.source=eng", "data.source: columns are told by their languages"),
    ("m2m-nano", "objective.truth={kind: linear, slope: 0.1}", "objective.truth: a decoder that reads its own"),
    ("m2m-nano", "tokenizer.special={pad: <pad>, unk: <unk>, bos: <s>}", "tokenizer.special.eos: a decoder begins"),
    ("m2m-nano", "target_tokenizer={kind: bytes}", "languages are told by tokens that both sides have"),
    ("mask-predict-nano", "data.languages={}", "only an encoder-decoder that learns sequence_to_sequence is told"),
])
def test_parts_that_cannot_work_together(name: str, override: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        recipe(name, [override])


@pytest.mark.parametrize("kind", ["bytes", "characters"])
@pytest.mark.parametrize("choice", ["whole_words", "spans", "n_grams", "pmi"])
def test_whole_words_need_a_tokenizer_that_shows_them(kind: str, choice: str) -> None:
    special = "tokenizer.special={pad: '[PAD]', unk: '[UNK]', cls: '[CLS]', sep: '[SEP]', mask: '[MASK]'}"
    with pytest.raises(InputError, match=f"objective.choice.kind: {choice} needs to know where words begin, and {kind} "
                       "do not tell; use a tokenizer of kind wordpiece"):
        recipe("bert-nano", [f"tokenizer.kind={kind}", special, f"objective.choice.kind={choice}"])


def test_models_without_learned_positions_take_any_length() -> None:
    assert recipe("llama-nano", ["training.length=4096"]).training.length == 4096


@pytest.mark.slow
def test_the_schema_describes_what_is_read() -> None:
    found = schema()
    assert found["properties"].keys() == {field.alias or name for name, field in Recipe.model_fields.items()}
    kinds = json.dumps(found)
    assert all(f'"const": "{kind}"' in kinds for kind in [*FAMILIES, "muon", "unigram", "span_corruption", "rotary"])


def test_recipes_are_found_by_file_and_not_by_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert recipe("gpt2").name == "gpt2"
    (tmp_path / "own.yaml").write_text((FOLDER / "gpt-nano.yaml").read_text().replace("name: gpt-nano", "name: own"),
                                       encoding="utf-8")
    assert recipe("own.yaml").name == "own"
    assert recipe(tmp_path / "own.yaml").name == "own"
    with pytest.raises(InputError, match="no recipe has the name 'own'"):
        recipe("own")
    (tmp_path / "bad.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(InputError, match="byte 9 is not UTF-8"):
        recipe("bad.yaml")


def test_one_key_of_a_section_that_is_not_written_leaves_its_other_defaults() -> None:
    plain = recipe("gpt-nano").tokenizer.special
    assert plain.eos is not None
    more = recipe("gpt-nano", ["tokenizer.special.extra=[<x>]"]).tokenizer.special
    assert more == plain.model_copy(update={"extra": ("<x>",)})
    other = recipe("gpt-nano", ["tokenizer.kind=bpe", "tokenizer.vocab=300", "tokenizer.special.extra=[<x>]"])
    assert other.tokenizer.special.unk == "<unk>"
    assert recipe("bert-nano", ["tokenizer.special.extra=[<x>, <y>]"]).tokenizer.special.mask == "[MASK]"

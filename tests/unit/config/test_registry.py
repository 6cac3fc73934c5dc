"""Parts from outside: found by their kind, validated like our own, counted, learned, saved, and refused without."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from tests.unit.outside import forget, installed, write_package

import saucier
from saucier import config as c
from saucier.config.registry import find_extension, registered_kinds
from saucier.errors import InputError
from saucier.recipes.catalogue import schema
from saucier.tasks.definitions import CustomMetric
from saucier.testing import check_laws

KERNEL = "model.kernel={kind: outside:sigmoid}"
SMALL = ("model.dim=24", "model.layers=1", "model.heads=2", "tokenizer.vocab=300", "training.steps=3",
         "training.batch=2", "training.length=16", "evaluation.baselines=[]", "sampling.samples=1",
         "evaluation.tokens_while_training=200")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a package that is installed."""
    folder = write_package(tmp_path_factory.mktemp("site"))
    with installed(folder):
        yield folder


def refused(*words: str) -> str:
    """Return how a recipe is refused."""
    with pytest.raises(InputError) as caught:
        saucier.recipe("gpt-nano", words)
    return str(caught.value)


def test_a_package_is_imported_when_its_kind_is_met(package: Path) -> None:
    forget()
    saucier.recipe("gpt-nano")
    assert "outside_parts" not in sys.modules
    found = saucier.recipe("gpt-nano", [KERNEL]).model.decoder
    assert found is not None and found.attentions()[0].kernel.kind == "outside:sigmoid"
    assert registered_kinds("kernel") == ("outside:sigmoid",)


def test_faults_are_those_of_our_own_parts(package: Path) -> None:
    assert refused("model.kernel={kind: outside:sigmoid, bais: 1}") == \
        "command line: model.kernel.bais: unknown key; did you mean 'bias'?"
    assert "model.kernel.bias: should be a valid number" in refused("model.kernel={kind: outside:sigmoid, bias: x}")
    assert refused("model.kernel={kind: outside:sigmoyd}") == \
        "command line: model.kernel.kind: there is no 'outside:sigmoyd'; did you mean 'outside:sigmoid'?"
    assert "model.kernel.kind: there is no 'outside:two-maps'" in refused("model.kernel={kind: outside:two-maps}")
    missing = refused("model.kernel={kind: nowhere:sigmoid}")
    assert missing.startswith("command line: model.kernel.kind: 'nowhere:sigmoid' is a part of the package 'nowhere', "
                              "which is not installed; pip install")
    own = "kernel outside:sigmoid cannot take positions alibi"
    with pytest.raises(InputError, match=own):
        c.check(model(c.SelfAttention(projection=c.Projection(heads=2), positions=c.Alibi(), kernel=kernel())))


def kernel() -> c.AttentionKernel:
    """Return the kernel from outside."""
    found = find_extension("outside:sigmoid")
    assert found is not None
    return found.config()  # type: ignore[return-value]  # it is for this slot


def model(attention: c.SelfAttention) -> c.Transformer:
    """Return a small decoder."""
    block = c.Block(sublayers=(c.PreNorm(inner=attention), c.PreNorm(inner=c.FeedForward(hidden=20))))
    return c.Transformer(dim=12, embed=c.Embedding(vocab=9), head=c.LanguageHead(),
                         decoder=c.Stack(layers=c.Repeat(block=block, times=1)))


@pytest.mark.slow
def test_the_schema_knows_what_is_installed(package: Path) -> None:
    forget()
    found = schema()
    kernels = found["$defs"]["SelfAttention"]["properties"]["kernel"]
    assert kernels["discriminator"]["mapping"]["outside:sigmoid"] == "#/$defs/Sigmoid"
    assert {"$ref": "#/$defs/Sigmoid"} in kernels["oneOf"]
    assert found["$defs"]["Sigmoid"]["properties"]["bias"]["description"] == "Where it starts."


def test_a_tree_comes_back_from_json(package: Path) -> None:
    tree = saucier.recipe("gpt-nano", [KERNEL, "model.head={kind: outside:two-maps}"]).model
    assert c.Transformer.model_validate_json(tree.model_dump_json()) == tree
    assert tree.model_dump()["head"] == {"kind": "outside:two-maps"}


def test_a_saved_model_names_its_package_and_is_refused_without(package: Path, tmp_path: Path) -> None:
    tree = model(c.SelfAttention(projection=c.Projection(heads=2), visibility=c.Causal(), kernel=kernel()))
    built = saucier.build(tree, seed=3)
    folder = tmp_path / "model"
    assert built.save(folder) == "saucier"
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert document["packages"] == {"outside:sigmoid": {"package": "outside-parts", "version": "1.2"}}
    forget()
    again = saucier.load(folder, dtype="float32")
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(again(ids).logits, built(ids).logits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [one for one in sys.path if one != str(package)])
        forget()
        with pytest.raises(InputError) as caught:
            saucier.load(folder)
    assert str(caught.value) == (f"{folder}/config.json: 'outside:sigmoid' is a part of the package outside-parts 1.2, "
                                 "which is not installed; pip install outside-parts==1.2")
    document["packages"]["outside:sigmoid"]["version"] = "0.9"
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.warns(UserWarning, match=r"saved with outside-parts 0\.9, and 1\.2 is installed"):
        saucier.load(folder, dtype="float32")


def test_a_model_with_parts_from_outside_obeys_the_laws(package: Path) -> None:
    attention = c.SelfAttention(projection=c.Projection(heads=2), visibility=c.Causal(), kernel=kernel())
    whole = model(attention).model_copy(update={"head": find_extension("outside:two-maps").config()})  # type: ignore[union-attr]
    (found,) = (report := check_laws(whole)).models
    assert report.to_dict()["models"][0]["model"] == "model"
    assert len(found.held) == 16
    assert {"a batch is its rows", "one token at a time beside a cache", "work is what is counted",
            "every parameter learns", "saved and loaded, the same bits"} <= {*found.held}


@pytest.mark.nightly
def test_each_part_obeys_the_laws_wherever_it_may_stand(package: Path) -> None:
    assert len(check_laws(kernel()).models) == 6
    assert len(check_laws(find_extension("outside:two-maps").config()).models) == 2  # type: ignore[union-attr]


def test_a_part_that_breaks_a_law_is_told_which(package: Path) -> None:
    class Blind(c.AttentionKernel):
        kind: Literal["outside:blind"] = "outside:blind"

    class MeanOfAll(torch.nn.Module):
        def __init__(self, attention: c.SelfAttention) -> None:
            super().__init__()

        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: object) -> torch.Tensor:
            return value.mean(2, keepdim=True).expand_as(query)

    saucier.register(Blind, MeanOfAll)
    attention = c.SelfAttention(projection=c.Projection(heads=2), visibility=c.Causal(), kernel=Blind())
    with pytest.raises(AssertionError, match="law 'right padding changes nothing' fails: largest difference"):
        check_laws(model(attention))
    with pytest.raises(InputError, match="Projection is no part of a model"):
        check_laws(c.Projection(heads=2))


@pytest.mark.slow
def test_a_recipe_with_parts_from_outside_cooks(package: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Line {n} of a text that says little, {n * n} times." for n in range(200)))
    run = saucier.cook("gpt-nano", [*SMALL, KERNEL, "model.head={kind: outside:two-maps}",
                                    "objective={kind: outside:rarely, every: 2}"],
                       data=str(text), out=tmp_path / "run", calibrate=False, quiet=True)
    passport = json.loads((tmp_path / "run/passport.json").read_text(encoding="utf-8"))
    assert passport["environment"]["outside-parts"] == "1.2"
    assert run.results is not None and run.results.held_out.loss > 0
    assert (tmp_path / "run/samples.txt").stat().st_size > 0


def test_a_metric_from_outside_scores(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"id": str(n), "gold": float(n), "prediction": n + 0.4 * n}) + "\n"
                            for n in range(5)))
    found = saucier.score([str(file)], metric=["outside:near", "mae"], kind="numbers")
    assert [one.name for one in found.scores[0]] == ["near", "MAE"]
    assert [one.value for one in found.scores[0]] == pytest.approx([0.6, 0.8])
    with pytest.raises(InputError, match="outside:near scores numbers, and these are ranks"):
        saucier.score([str(file)], metric=["outside:near"], kind="ranks")
    with pytest.raises(InputError, match="--metric: 'outside:far' is a part of the package"):
        saucier.score([str(file)], metric=["outside:far"], kind="numbers")


def test_what_cannot_be_registered_is_refused() -> None:
    class Unprefixed(CustomMetric):
        kind: Literal["plain"] = "plain"

    class Shared(CustomMetric):
        kind: Literal["a:b", "a:c"] = "a:b"

    class Fine(CustomMetric):
        kind: Literal["a:b"] = "a:b"

    for config, build, words in ((c.LayerNorm, print, "LayerNorm: is of no slot"), (Unprefixed, print, "kind 'plain'"),
                                 (Shared, print, "kind 'a:b'"), (Fine, 3, "int builds nothing")):
        with pytest.raises(InputError, match=words):
            saucier.register(config, build)  # type: ignore[arg-type]


def test_a_kind_has_one_class(package: Path) -> None:
    saucier.register(type(kernel()), print)  # the same class again, as a notebook does

    class Other(c.AttentionKernel):
        kind: Literal["outside:sigmoid"] = "outside:sigmoid"

    with pytest.raises(InputError, match=r"outside:sigmoid is already outside_parts\.Sigmoid"):
        saucier.register(Other, print)
    forget()


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    write_package(tmp_path)
    (tmp_path / "outside_parts.py").write_text("import nothing_like_this\n", encoding="utf-8")
    with installed(tmp_path):
        assert refused(KERNEL) == ("outside_parts: the parts of 'outside' cannot be imported: No module named "
                                   "'nothing_like_this'; install the package outside-parts again")


@pytest.mark.nightly
def test_the_process_that_measures_sees_the_package(package: Path) -> None:
    small = ["model.dim=32", "model.layers=1", "model.heads=2"]
    found = saucier.plan("gpt-nano", [KERNEL, *small])
    assert found.seconds is not None and found.seconds > 0

    class Here(type(kernel())):  # type: ignore[misc]
        kind: Literal["here:sigmoid"] = "here:sigmoid"

    saucier.register(Here, find_extension("outside:sigmoid").build)  # type: ignore[union-attr]
    found = saucier.plan("gpt-nano", ["model.kernel={kind: here:sigmoid}", *small])
    assert found.seconds is None and "here:sigmoid is known to this program alone" in " ".join(found.notes)

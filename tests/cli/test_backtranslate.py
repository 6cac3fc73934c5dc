"""Back-translation from the command line: texts become pairs, and pairs are learned from beside the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier

from saucier.cli import main
from saucier.errors import InputError
from saucier.opened import RunFolder
from saucier.recipes import recipe
from saucier.text.config import PairData, SyntheticPairs, Tail
from saucier.text.reading.corpus import PairCorpus

SMALL = ("tokenizer.vocab=60", "model.dim=32", "model.heads=2", "model.layers=1", "training.steps=3",
         "training.batch=4", "sampling.samples=0", "training.events=off", "--no-calibrate")


@pytest.fixture(scope="module")
def reverse(tmp_path_factory: pytest.TempPathFactory, pair_file: Path) -> Path:
    """Return a run that has learned enough to write words."""
    out = tmp_path_factory.mktemp("back") / "reverse"
    assert main(["train", "transformer-nano", "--data", str(pair_file), "--out", str(out), *SMALL,
                 "training.steps=80", "training.schedule.warmup=5", "training.optimizer.learning_rate=1e-2"]) == 0
    return out


@pytest.mark.slow
def test_texts_become_pairs(saucier: Saucier, reverse: Path, tmp_path: Path) -> None:
    """The targets are the texts as they were, in order; the sources are what the model writes for them alone."""
    mono, out = tmp_path / "mono.txt", tmp_path / "made.tsv"
    texts = ["the cook stirs milk", "", "a guest  tastes soup", "the cat"]
    mono.write_text("\n".join(texts) + "\n", encoding="utf-8")
    answer = saucier("backtranslate", reverse, mono, "--out", out, "--columns", "there,back", "--beams", 2)
    assert answer.code == 0, answer.err
    assert "1 empty" in answer.out
    header, *rows = [line.split("\t") for line in out.read_text(encoding="utf-8").splitlines()]
    assert header == ["there", "back"]
    assert [target for _, target in rows] == ["the cook stirs milk", "a guest tastes soup", "the cat"]
    assert "is there already" in saucier("backtranslate", reverse, mono, "--out", out).error


def test_sampled_sources_follow_their_seed(saucier: Saucier, reverse: Path, tmp_path: Path) -> None:
    mono = tmp_path / "mono.txt"
    mono.write_text("the cook stirs milk\na guest tastes soup\n" * 4, encoding="utf-8")
    made = []
    for number, seed in enumerate((1, 1, 2)):
        out = tmp_path / f"{number}.tsv"
        assert saucier("backtranslate", reverse, mono, "--out", out, "--temperature", 1, "--seed", seed,
                       "--limit", 5).code == 0
        made.append(out.read_text(encoding="utf-8"))
    assert made[0] == made[1] != made[2]
    assert len(made[0].splitlines()) == 6


def test_synthetic_pairs_are_learned_and_never_held_out(tmp_path: Path) -> None:
    """Real pairs come as often as is said; the tag stands before synthetic sources alone."""
    real, made = tmp_path / "real.tsv", tmp_path / "made.tsv"
    real.write_text("en\tde\n" + "".join(f"word {n}\twort {n}\n" for n in range(10)), encoding="utf-8")
    made.write_text("source\ttarget\n" + "".join(f"made {n}\tgemacht {n}\n" for n in range(4)), encoding="utf-8")
    data = PairData(files=(str(real),), source="en", target="de", held_out=Tail(fraction=0.2),
                    synthetic=SyntheticPairs(files=(str(made),), real=3, tag="<BT>"))
    corpus = PairCorpus(data)
    assert [pair.source for pair in corpus.train] == [f"word {n}" for n in range(8)] * 3 + [
        f"<BT> made {n}" for n in range(4)]
    assert [pair.target for pair in corpus.train][-4:] == [f"gemacht {n}" for n in range(4)]
    assert [pair.source for pair in corpus.held_out] == ["word 8", "word 9"]
    assert corpus.train.counts.documents == 28


def test_the_run_says_what_it_learns_from(saucier: Saucier, pair_file: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.tsv"
    made.write_text("source\ttarget\n" + "the cat\tcat the\n" * 30, encoding="utf-8")
    run = tmp_path / "run"
    answer = saucier("train", "transformer-nano", "--data", pair_file, "--synthetic", made, "--out", run,
                     "data.synthetic.real=2", "data.synthetic.tag=<BT>",
                     "tokenizer.special={pad: <pad>, unk: <unk>, bos: <s>, eos: </s>, single: $A </s>, extra: [<BT>]}",
                     *SMALL)
    assert answer.code == 0, answer.err
    assert "pairs.tsv, 2 times, beside synthetic pairs of made.tsv" in answer.out
    counts = json.loads(RunFolder(run).data_file.read_text(encoding="utf-8"))["counts"]
    assert counts["train"]["documents"] == 2 * (60 - counts["held_out"]["documents"]) + 30
    with pytest.raises(InputError, match="the tag <BT> of synthetic pairs is no token"):
        recipe("transformer-nano", ["data.synthetic.files=[x.tsv]", "data.synthetic.tag=<BT>"])

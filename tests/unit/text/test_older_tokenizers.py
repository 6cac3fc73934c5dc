"""Tokenizers in the files of before tokenizer.json give the ids that transformers gives for the same files."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saucier.errors import InputError
from saucier.families.bert import bert
from saucier.model import build
from saucier.objectives.base import TokenIds
from saucier.text.tokenizer.legacy_classes import CLASSES
from saucier.text.tokenizer.sentencepiece_model import read_pieces
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

sys.path.insert(0, str(Path(__file__).parent))
from older_files import bpe_model, byte_pairs, continued_pairs, moses_pairs, unigram_model, word_pairs, words

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLE = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
ALBERT = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
PROBES = ("", " ", "A class's  method.\n\treturns `self`", "Größe 中文 🙂 naïve", "it is 1,000.50 – “quoted” ``so''",
          "a [MASK] and a <mask> here", "tab\tand\r\nline", " leading and trailing ", "Ünïcode ﬁne ①", "</s> inside",
          "<extra_id_0> sentinel <extra_id_1>", "x" * 120)


def write(folder: Path, name: str, texts: list[str], charsmap: bytes) -> None:
    """Write small files of one class."""
    match name:
        case "MPNetTokenizer":
            words(folder, texts, ("<s>", "[UNK]", "<pad>", "</s>", "<mask>"))
        case "FunnelTokenizer":
            words(folder, texts, ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>"))
        case "RobertaTokenizer":
            byte_pairs(folder, texts, ANGLE)
        case "DebertaTokenizer":
            byte_pairs(folder, texts, BERT)
        case "GPT2Tokenizer" | "GPTNeoXTokenizer" | "Qwen2Tokenizer":
            byte_pairs(folder, texts, ("<|endoftext|>",))
        case "OpenAIGPTTokenizer":
            word_pairs(folder, texts)
        case "CTRLTokenizer":
            continued_pairs(folder, texts)
        case "XLMTokenizer":
            moses_pairs(folder, texts)
        case "LlamaTokenizer" | "ReformerTokenizer":
            bpe_model(folder / MODEL[name], texts, with_bytes=name == "LlamaTokenizer")
        case "T5Tokenizer" | "PegasusTokenizer":
            unigram_model(folder / "spiece.model", texts, ("<pad>", "</s>", "<unk>"), charsmap=charsmap)
        case "AlbertTokenizer" | "FNetTokenizer":
            unigram_model(folder / "spiece.model", texts, ALBERT, charsmap=charsmap)
        case "XLNetTokenizer":
            unigram_model(folder / "spiece.model", texts, charsmap=charsmap,
                          also=("<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"))
        case "DebertaV2Tokenizer":
            unigram_model(folder / "spm.model", texts, ("[PAD]", "[CLS]", "[SEP]", "[UNK]"), unk="[UNK]")
        case "BigBirdTokenizer":
            unigram_model(folder / "spiece.model", texts, ("<pad>", "</s>", "<s>", "<unk>", "[SEP]", "[MASK]", "[CLS]"))
        case _ if name in MODEL:
            unigram_model(folder / MODEL[name], texts, charsmap=charsmap)
        case _:
            words(folder, texts, BERT)


MODEL = dict.fromkeys(("CamembertTokenizer", "XLMRobertaTokenizer", "MBartTokenizer", "MBart50Tokenizer"),
                      "sentencepiece.bpe.model") | {"LlamaTokenizer": "tokenizer.model",
                                                    "ReformerTokenizer": "spiece.model"}
SAME_FILES = {"BartTokenizer", "LongformerTokenizer", "LEDTokenizer", "MT5Tokenizer", "RetriBertTokenizer",
              "RealmTokenizer", "ConvBertTokenizer", "ElectraTokenizer", "DistilBertTokenizer", "MobileBertTokenizer",
              "SqueezeBertTokenizer", "LxmertTokenizer", "DPRQuestionEncoderTokenizer", "DPRContextEncoderTokenizer",
              "DPRReaderTokenizer", "MarianTokenizer", "M2M100Tokenizer"}
"""Names that stand for a class tested under its own name, and two that have a test of their own."""


MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True,
        "single_word": False}
INSTEAD = {"FNetTokenizer": "AlbertTokenizer"}
"""FNet's is ALBERT's; transformers 5.23 forgets its [CLS] and [SEP] when it reads spiece.model."""


@pytest.fixture(scope="session")
def charsmap(shared: Path) -> bytes:
    """Return the normalization of a published SentencePiece model."""
    return read_pieces(shared / "golden/tokenizer-unigram-t5/spiece.model").charsmap


@pytest.fixture(scope="session")
def short(texts: list[str]) -> list[str]:
    """Return enough text for a small vocabulary."""
    return [text[:2000] for text in texts[:15]]


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], Any]:
    """Return what opens a folder with transformers; it reads the models through protobuf, without sentencepiece."""
    transformers = pytest.importorskip("transformers")
    converter = importlib.import_module("transformers.convert_slow_tokenizer")
    monkeypatch.setattr(converter, "requires_backends", lambda *_: None)
    return lambda name, folder: getattr(transformers, INSTEAD.get(name, name)).from_pretrained(folder)


def agree(ours: Tokenizer, theirs: Any) -> None:
    """Hold ids, texts, pairs and types against the reference."""
    for text in PROBES:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text) == ids, text
        assert ours.encode(text, add_special_tokens=False) == theirs(text, add_special_tokens=False)["input_ids"]
        mark = "@@" if type(theirs).__name__ == "CTRLTokenizer" else ""  # which it shows behind a word that is cut off
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True).removesuffix(mark)
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids, skip_special_tokens=False)
        both = theirs(text, "and a second", return_token_type_ids=True)
        encoded = ours(text, "and a second")
        assert encoded["input_ids"][0].tolist() == both["input_ids"]
        if encoded.token_type_ids is not None:
            assert encoded.token_type_ids[0].tolist() == both["token_type_ids"]
    assert ours.vocab_size == len(theirs)
    assert ours.handling.padding_side == theirs.padding_side


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(CLASSES) - SAME_FILES))
def test_files_alone(name: str, tmp_path: Path, short: list[str], charsmap: bytes,
                     reference: Callable[[str, Path], Any]) -> None:
    write(tmp_path, name, short, charsmap)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    ours = load_tokenizer(tmp_path)
    agree(ours, reference(name, tmp_path))
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert [again.encode(text) for text in PROBES] == [ours.encode(text) for text in PROBES]
    assert (again.handling, again.names, again.has_segments) == (ours.handling, ours.names, ours.has_segments)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    ("BertTokenizer", {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}),
    ("BertTokenizer", {"do_lower_case": True, "strip_accents": False}),
    ("GPT2Tokenizer", {"add_prefix_space": True, "add_bos_token": True, "pad_token": "<pad>"}),
    ("RobertaTokenizer", {"add_prefix_space": True, "mask_token": MASK}),
    ("LlamaTokenizer", {"add_bos_token": True, "add_eos_token": True}),
    ("T5Tokenizer", {"extra_ids": 7}),
    ("AlbertTokenizer", {"do_lower_case": False, "keep_accents": True}),
    ("XLNetTokenizer", {"do_lower_case": True}),
    ("MBartTokenizer", {"src_lang": "de_DE"}),
    ("MBart50Tokenizer", {"src_lang": "uk_UA"}),
    ("DebertaV2Tokenizer", {"do_lower_case": True, "split_by_punct": True}),
    ("BertTokenizer", {"additional_special_tokens": ["[NEW]", "[E1]"]}),
])
def test_options(name: str, options: dict[str, Any], tmp_path: Path, short: list[str], charsmap: bytes,
                 reference: Callable[[str, Path], Any]) -> None:
    write(tmp_path, name, short, charsmap)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name} | options))
    agree(load_tokenizer(tmp_path), reference(name, tmp_path))


def test_ctrl_in_many_languages(shared: Path, tmp_path: Path, reference: Callable[[str, Path], Any]) -> None:
    """Line feeds, white space of every kind, and words whose pieces are no tokens."""
    rows = sorted((shared / "data/multilingual/tatoeba").glob("*"))
    texts = [path.read_text(encoding="utf-8")[:3000] for path in rows if path.suffix in (".tsv", ".txt")]
    assert len(texts) > 3
    continued_pairs(tmp_path, texts, size=1500)
    (tmp_path / "config.json").write_text('{"model_type": "ctrl"}')
    ours, theirs = load_tokenizer(tmp_path), reference("CTRLTokenizer", tmp_path)
    odd = ["a\n\n b\r\n\tc\n", "x</w>y </w> <unk>z", "@@ a@@ @@b @", "a\x1cb\x85c\u3000d\u200be"]
    for text in [*texts, *odd]:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text) == ids
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)
    assert theirs.unk_token_id in ours.encode(texts[0])


def test_special_tokens_of_files_of_their_own(tmp_path: Path, short: list[str], charsmap: bytes,
                                              reference: Callable[[str, Path], Any]) -> None:
    write(tmp_path, "BertTokenizer", short, charsmap)
    size = len((tmp_path / "vocab.txt").read_text().splitlines())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "cls_token": {
        "content": "[CLS]", "lstrip": False, "rstrip": False, "normalized": False}}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"newword": size, "[E2]": size + 1}))
    ours, theirs = load_tokenizer(tmp_path), reference("BertTokenizer", tmp_path)
    agree(ours, theirs)
    assert ours.encode("a newword") == theirs("a newword")["input_ids"] and size in ours.encode("a newword")


def test_added_tokens_by_id(tmp_path: Path, short: list[str], charsmap: bytes,
                            reference: Callable[[str, Path], Any]) -> None:
    write(tmp_path, "GPT2Tokenizer", short, charsmap)
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    token = {"content": "<|im_end|>", "lstrip": False, "rstrip": True, "normalized": False, "special": True}
    options = {"tokenizer_class": "GPT2TokenizerFast", "added_tokens_decoder": {str(size): token}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    ours, theirs = load_tokenizer(tmp_path), reference("GPT2Tokenizer", tmp_path)
    agree(ours, theirs)
    assert ours.encode("a<|im_end|>  b") == theirs("a<|im_end|>  b")["input_ids"]
    options["added_tokens_decoder"] = {str(size + 3): token}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    with pytest.raises(InputError, match=rf"'<\|im_end\|>' gets the id {size} instead of {size + 3}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer-byte-bpe", "tokenizer-wordpiece", "tokenizer-unigram-t5"])
def test_published_folders_without_tokenizer_json(shared: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(shared / "golden" / name, tmp_path, dirs_exist_ok=True, copy_function=shutil.copyfile,
                    ignore=shutil.ignore_patterns("tokenizer.json"))
    golden, ours = json.loads((tmp_path / "golden.json").read_text()), load_tokenizer(tmp_path)
    for case in golden["strings"]:
        assert ours.encode(case["text"]) == case["ids"]
        assert ours.encode(case["text"], add_special_tokens=False) == case["ids_no_special"]
        assert ours.decode(case["ids"]) == case["decoded_skip_special"]
        assert ours.decode(case["ids"], skip_special_tokens=False) == case["decoded"]
    assert (ours.vocab_size, ours.special_ids) == (golden["vocab_size"], sorted(golden["all_special_ids"]))


def test_equal_lines_leave_a_hole_and_every_id_has_a_row(tmp_path: Path) -> None:
    """The second of two equal lines is the token, so there are fewer tokens than ids; a table is for the ids."""
    lines = [*BERT, "soup", "soup", "bread"]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.backend.get_vocab_size() == len(lines) - 1
    assert tokenizer.vocab_size == tokenizer.next_id == TokenIds.of(tokenizer).vocab == len(lines)
    batch = tokenizer("soup bread")
    assert int(batch["input_ids"].max()) == len(lines) - 1
    model = build(bert(8, 1, heads=1, hidden=8, length=8, vocab=tokenizer.vocab_size))
    assert bool(model(batch["input_ids"]).logits.isfinite().all())


@pytest.mark.parametrize(("files", "message"), [
    ({"vocab.txt": "a"}, "nothing says which class"),
    ({"vocab.txt": "a", "tokenizer_config.json": '{"tokenizer_class": "BertTokeniser"}'},
     "did you mean 'BertTokenizer'"),
    ({"vocab.txt": "a", "tokenizer_config.json": '{"tokenizer_class": "BertTokenizer"}'}, r"has no '\[UNK\]'"),
    ({"vocab.txt": b"[UNK]\n\xff", "tokenizer_config.json": '{"tokenizer_class": "BertTokenizer"}'},
     "byte 6: not UTF-8"),
    ({"vocab.json": "{}", "config.json": '{"model_type": "flaubert"}'}, "models are not read here"),
    ({"vocab.txt": "a", "config.json": '{"model_type": "roformer"}'}, "jieba"),
    ({"vocab.pkl": b"\x80\x04.", "config.json": '{"model_type": "transfo-xl"}'}, "a pickle can run code"),
    ({"vocab.json": "{}", "config.json": '{"model_type": "gpt2"}'}, "is empty"),
    ({"vocab.json": '{"a": 0}', "config.json": '{"model_type": "gpt2"}'}, r"has no merges\.txt"),
    ({"vocab.json": '{"a": 0, "b": 0}', "config.json": '{"model_type": "gpt2"}'}, "both have the id 0"),
    ({"vocab.json": '{"a": -1}', "config.json": '{"model_type": "gpt2"}'}, "the id of 'a' is '-1'"),
    ({"vocab.json": '{"a": 0,\n}', "config.json": '{"model_type": "gpt2"}'}, r"vocab\.json:[12]: not JSON"),
    ({"vocab.json": '{"a": 0}', "merges.txt": "#version: 0.2\na b", "config.json": '{"model_type": "gpt2"}'},
     r"merges\.txt:2: 'b' is not in vocab\.json"),
    ({"vocab.json": '{"a": 0}', "merges.txt": "a", "config.json": '{"model_type": "gpt2"}'},
     r"merges\.txt:1: 'a' is no pair"),
    ({"vocab.json": '{"a@@": 0, "<unk>": 1}', "merges.txt": "#\na@ @</w>\n", "config.json": '{"model_type": "ctrl"}'},
     "'a@@' is a whole word too"),
    ({"vocab.json": '{"a@@": 0, "<unk>": 2}', "merges.txt": "#\n", "config.json": '{"model_type": "ctrl"}'}, "gaps"),
    ({"vocab.json": '{"a@@": 0}', "merges.txt": "#\na b\n", "config.json": '{"model_type": "ctrl"}'},
     "'<unk>' is not in vocab"),
    ({"vocab.json": '{"a@@": 0}', "merges.txt": "#\na b 7\n", "config.json": '{"model_type": "ctrl"}'},
     r"merges\.txt:2: 'a b 7' is no pair"),
    ({"spiece.model": b"\x0a\xff", "config.json": '{"model_type": "t5"}'}, "byte 2: not a SentencePiece model"),
    ({"spiece.model": b"", "config.json": '{"model_type": "t5"}'}, "holds no pieces"),
    ({"spiece.model": b"\x0a\x03\x0a\x01a\x12\x02\x18\x02", "config.json": '{"model_type": "t5"}'}, "is a BPE model"),
])
def test_faults(files: dict[str, str | bytes], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_damaged_models_are_refused_or_read(shared: Path, tmp_path: Path) -> None:
    """Bytes changed at random never give anything but a tokenizer or one clear error."""
    import random

    whole = (shared / "golden/tokenizer-unigram-t5/spiece.model").read_bytes()
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    drawn, refused = random.Random(0), 0
    for _ in range(150):
        damaged = bytearray(whole[:drawn.choice([len(whole), drawn.randrange(len(whole))])])
        for _ in range(drawn.randrange(1, 8)):
            damaged[drawn.randrange(min(len(damaged), 12000))] = drawn.randrange(256)
        (tmp_path / "spiece.model").write_bytes(damaged)
        try:
            load_tokenizer(tmp_path).encode("some text")
        except InputError:
            refused += 1
    assert refused > 50


def best_pieces(text: str, scores: dict[str, float]) -> list[str]:
    """Cut a word into the pieces with the largest sum of scores, as the definition says; unknown characters as one."""
    lowest = min(scores.values()) - 10
    best: list[tuple[float, list[str]]] = [(0.0, [])]
    for end in range(1, len(text) + 1):
        options = [(best[start][0] + scores[text[start:end]], [*best[start][1], text[start:end]])
                   for start in range(end) if text[start:end] in scores]
        options += [(best[end - 1][0] + lowest, [*best[end - 1][1], "?"])] if text[end - 1] not in scores else []
        best.append(max(options, key=lambda option: option[0]))
    joined: list[str] = []
    for piece in best[-1][1]:
        if piece != "?" or joined[-1:] != ["?"]:
            joined.append(piece)
    return joined


@pytest.mark.parametrize("separate", [False, True])
def test_marian_has_pieces_for_each_language(separate: bool, tmp_path: Path, short: list[str]) -> None:
    """Targets are cut by the pieces of `target.spm`, and numbered by the vocabulary that is theirs."""
    texts = {"source": short[:7], "target": [text.upper() for text in short[7:]]}
    normal, vocab = {}, {"</s>": 0, "<unk>": 1, "<pad>": 2}
    for side, said in texts.items():
        unigram_model(tmp_path / f"{side}.spm", said, ("<unk>", "</s>"))
        normal[side] = {piece.text: piece.score for piece in read_pieces(tmp_path / f"{side}.spm").pieces
                        if piece.kind == 1}
    vocabs = {}
    for side in texts:
        own = [*vocab, *normal[side]] if separate else \
            list(dict.fromkeys([*vocab, *normal["source"], *normal["target"]]))
        vocabs[side] = {token: number for number, token in enumerate(dict.fromkeys(own))}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabs["source"]))
    (tmp_path / "target_vocab.json").write_text(json.dumps(vocabs["target"]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer",
                                                                "separate_vocabs": separate}))
    ours = load_tokenizer(tmp_path)
    ours.save(tmp_path / "saved")
    for tokenizer in (ours, load_tokenizer(tmp_path / "saved")):
        for side, one in (("source", tokenizer), ("target", tokenizer.target)):
            for text in (texts[side][0][:120].replace("\n", " "), "the METHOD"):
                wanted = [vocabs[side].get(piece, 1) for word in text.split()
                          for piece in best_pieces("▁" + word, normal[side])]
                assert one.encode(text) == [*wanted, 0]
            assert one.vocab_size == len(vocabs[side])
    said = "THE METHOD"
    assert ours.target.decode(ours.target.encode(said)) == said


@pytest.mark.parametrize("name", ["MarianTokenizer", "M2M100Tokenizer"])
def test_ids_of_a_vocabulary_beside_the_pieces(name: str, tmp_path: Path, short: list[str]) -> None:
    """By the definition: transformers itself needs the sentencepiece package for these."""
    file = "source.spm" if name == "MarianTokenizer" else "sentencepiece.bpe.model"
    unigram_model(tmp_path / file, short, ("<unk>", "<s>", "</s>") if name == "M2M100Tokenizer" else ("<unk>", "</s>"))
    pieces = read_pieces(tmp_path / file).pieces
    normal = {piece.text: piece.score for piece in pieces if piece.kind == 1}
    lost = sorted(normal, key=len)[-3:]
    own = ["<s>", "<pad>", "</s>", "<unk>"] + [text for text in reversed(normal) if text not in lost]
    own += ["ziel", "▁cible", ">>fra<<"]  # tokens of the other language: never given, and read back
    vocab = {token: number for number, token in enumerate(own)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    ours = load_tokenizer(tmp_path)
    ours.save(tmp_path / "saved")
    for text in ("the method returns a class", short[0][:200].replace("\n", " "), "ziel cible", "x 🙂🙂 y", ""):
        words = text.split()
        wanted = [vocab.get(piece, vocab["<unk>"]) for word in words for piece in best_pieces("▁" + word, normal)]
        assert ours.encode(text, add_special_tokens=False) == wanted
        assert load_tokenizer(tmp_path / "saved").encode(text, add_special_tokens=False) == wanted
    assert ours.decode([vocab["▁cible"], vocab["ziel"]]) == "cibleziel"
    assert (ours.id_to_token(vocab["ziel"]), ours.token_to_id("ziel")) == ("ziel", vocab["ziel"])
    if name == "MarianTokenizer":
        assert ours.encode(">>fra<< the")[0] == vocab[">>fra<<"] and ours.encode("the")[-1] == vocab["</s>"]
        assert ours.vocab_size == len(vocab)
    else:
        assert ours.encode("the")[0] == len(vocab) + 18 and ours.token_to_id("__zu__") == len(vocab) + 99
        assert ours.vocab_size == len(vocab) + 100
    assert vocab["<unk>"] in ours.encode(" ".join(lost).replace("▁", ""))

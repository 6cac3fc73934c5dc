"""The tokenizer classes of transformers, as data (splitting, special tokens, frame), and backends from vocabularies of
words and merges: WordPiece, byte-level BPE, the BPE of the first GPT and of XLM.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError, suggest_name
from saucier.text.tokenizer import sentencepiece as p
from saucier.text.tokenizer.legacy_files import (
    Moses,
    TokenizerSettings,
    add_pieces,
    build_moses_scripts,
    read_codes,
    read_merges,
    read_vocab,
    read_vocab_lines,
)

WORD_END = "</w>"
GOES_ON = "@@"
"""What CTRL's vocabulary writes after a piece that does not end its word."""
INSIDE = "##"
"""What BERT's vocabulary writes before a piece inside a word."""
SEGMENTED = {"zh": "the Stanford segmenter", "ja": "KyTea", "th": "PyThaiNLP"}
"""Languages without spaces between words, and what cut them for XLM."""


def build_wordpiece(settings: TokenizerSettings) -> Backend:
    """Build BERT's tokenizer from `vocab.txt`. Source: Devlin et al. 2018, §3, arXiv:1810.04805."""
    if not settings.option("do_basic_tokenize", True):
        raise InputError("do_basic_tokenize false cannot be reproduced", where=settings.where,
                         remedy="give a folder with tokenizer.json")
    path = settings.folder / "vocab.txt"
    vocab, unk = read_vocab_lines(path), settings.names["unk"]
    if unk not in vocab:
        raise InputError(f"has no {unk!r}, which stands for unknown words", where=str(path),
                         remedy="name another as unk_token in tokenizer_config.json")
    prefix = settings.option("wordpieces_prefix", INSIDE)
    backend = Backend(models.WordPiece(vocab, unk_token=unk, continuing_subword_prefix=prefix))
    strip = settings.options.get("strip_accents")
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=settings.option("clean_text", True),
        handle_chinese_chars=settings.option("tokenize_chinese_chars", True),
        strip_accents=None if strip is None else settings.option("strip_accents", False),
        lowercase=settings.option("do_lower_case", True))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=prefix)
    return backend


def choose_byte_bpe(*, prefix_space: bool = False, normalizer: Callable[[], normalizers.Normalizer] | None = None,
                    words: str | None = None) -> Callable[[TokenizerSettings], Backend]:
    """Return the builder of a byte-level BPE from `vocab.json` and `merges.txt`; options are the class's defaults.

    `words`: the expression that cuts a text into words, where it is not GPT-2's own. Source: Radford et al. 2019, §2.2.
    """
    def build(settings: TokenizerSettings) -> Backend:
        vocab = read_vocab(settings.folder / "vocab.json")
        merges = read_merges(settings.folder / "merges.txt", vocab)
        backend = Backend(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix="",
                                     fuse_unk=False))
        if normalizer is not None:
            backend.normalizer = normalizer()
        space = settings.option("add_prefix_space", prefix_space)
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space) if words is None else (
            pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), behavior="isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False)]))
        backend.decoder = decoders.ByteLevel()
        return backend

    return build


def build_gpt_bpe(settings: TokenizerSettings) -> Backend:
    """Build the first GPT's tokenizer: pairs of characters merged inside lower-cased words."""
    vocab = read_vocab(settings.folder / "vocab.json")
    merges = read_merges(settings.folder / "merges.txt", vocab)
    backend = Backend(models.BPE(vocab, merges, unk_token=settings.names["unk"], continuing_subword_prefix="",
                                 end_of_word_suffix=WORD_END, fuse_unk=False))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return backend


def build_ctrl_bpe(settings: TokenizerSettings) -> Backend:
    """Build CTRL's tokenizer: its merges mark the end of a word, and its vocabulary the pieces before it.

    A line feed belongs to the word before it. A text that is cut inside a word is decoded without the mark at its end,
    which the release shows. Source: Keskar et al. 2019, §3.2, arXiv:1909.05858, and its code release.
    """
    path = settings.folder / "vocab.json"
    tokens, merges = read_vocab(path), read_codes(settings.folder / "merges.txt", heading=True)
    unk = settings.names["unk"]
    pieces = list_pieces(merges)
    vocab = {token if token in settings.names.values() else name_inner_token(token, pieces, str(path)): number
             for token, number in tokens.items()}
    vocab = add_pieces(vocab, pieces, path)
    settings.known = len(tokens) if len(vocab) > len(tokens) else None
    backend = Backend(models.BPE(vocab, merges, unk_token=unk, continuing_subword_prefix="",
                                 end_of_word_suffix=WORD_END, fuse_unk=False))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+\n?"), behavior="removed", invert=True)
    backend.decoder = decoders.Sequence([
        decoders.Replace(unk, unk + WORD_END), decoders.BPEDecoder(suffix=WORD_END), decoders.Fuse(),
        decoders.Replace(Regex(r"\A\s+|\s+\z"), "")])
    return backend


def build_xlm_bpe(settings: TokenizerSettings) -> Backend:
    """Build XLM's tokenizer: pairs of characters merged inside words that the Moses scripts have separated.

    Sets `settings.moses`. Source: Lample and Conneau 2019 (XLM), §3.1, arXiv:1901.07291, and its code release.
    """
    path = settings.folder / "vocab.json"
    tokens, merges = read_vocab(path), read_codes(settings.folder / "merges.txt", heading=False)
    settings.moses = choose_moses(settings)
    vocab = add_pieces(tokens, list_pieces(merges), path)
    settings.known = len(tokens) if len(vocab) > len(tokens) else None
    backend = Backend(models.BPE(vocab, merges, unk_token=settings.names["unk"], continuing_subword_prefix="",
                                 end_of_word_suffix=WORD_END, fuse_unk=False))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return backend


def choose_moses(settings: TokenizerSettings) -> Moses:
    """Return what prepares the texts of XLM. Raises `InputError` for a language that is not cut into words as there."""
    language, known = settings.option("src_lang", "en"), settings.options.get("lang2id")
    if language in SEGMENTED:
        raise InputError(f"texts in {language!r} were cut into words by {SEGMENTED[language]}, which cannot be "
                         "reproduced exactly", where=settings.where, remedy="choose another language as src_lang")
    if isinstance(known, Mapping) and known and language not in known:
        raise InputError(f"src_lang: the model knows no language {language!r}", where=settings.where,
                         remedy=suggest_name(language, [*known]))
    build_moses_scripts(language)
    return Moses(language, settings.option("do_lowercase_and_remove_accent", True))


def list_pieces(merges: Iterable[tuple[str, str]]) -> dict[str, None]:
    """Return the pieces that merges join, and their results, in order."""
    return dict.fromkeys(piece for pair in merges for piece in (*pair, "".join(pair)))


def name_inner_token(token: str, pieces: Container[str], where: str) -> str:
    """Return what merges call a token of CTRL. Raises `InputError` where two of their pieces have its one id."""
    ends, goes_on = token + WORD_END, token.removesuffix(GOES_ON)
    if not token.endswith(GOES_ON) or not goes_on:
        return ends
    if ends in pieces:
        raise InputError(f"{token!r} is a whole word too, and both have one id", where=where,
                         remedy="give a folder with tokenizer.json")
    return goes_on


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """One tokenizer class."""

    build: Callable[[TokenizerSettings], Backend | tuple[Backend, list[AddedToken]]]
    names: Mapping[str, str]
    """Role -> special token, where the folder says nothing else."""
    frame: tuple[str, str] | None = None
    """What is around a text and around a pair; roles in braces, `:n` is the token type.

    None: the options add_bos_token and add_eos_token say it."""
    extra: Callable[[TokenizerSettings], list[str]] = field(default=lambda settings: [])
    """Further special tokens."""
    left: bool = False
    """Whether padding is at the left."""
    spaced_mask: bool = False
    """Whether the mask takes the space before it along."""
    source: str = "en_XX"
    """The language that a text is in, where src_lang does not say it."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that a model with this class takes."""
        segments = self.frame is not None and {":1", ":2"} & {part[-2:] for part in self.frame[1].split()}
        return ("input_ids", "attention_mask", *(["token_type_ids"] if segments else []))


TWENTY_FIVE = [
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX",
    "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN",
]
"""The languages of mBART, in the order of their ids. Source: Liu et al. 2020, arXiv:2001.08210."""
FIFTY = [
    *TWENTY_FIVE,
    "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN", "mn_MN",
    "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK",
    "xh_ZA", "gl_ES", "sl_SI",
]
"""Those of mBART-50. Source: Tang et al. 2020, arXiv:2008.00401."""
QWEN_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")

BERT_NAMES = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
ANGLE_NAMES = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>",
               "mask": "<mask>"}
END_OF_TEXT = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
SEGMENTS = ("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
DOUBLE = ("{cls} $A {sep}", "{cls} $A {sep} {sep} $B {sep}")
FAIRSEQ = ("{bos} $A {eos}", "{bos} $A {eos} {eos} $B {eos}")
FAIRSEQ_FIRST = ("{bos}", "{pad}", "{eos}", "{unk}")
"""What fairseq puts in the place of a model's first three pieces."""

CLASSES: dict[str, TokenizerClass] = {
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
                     "ConvBertTokenizer", "DPRQuestionEncoderTokenizer", "DPRContextEncoderTokenizer",
                     "DPRReaderTokenizer", "RealmTokenizer", "RetriBertTokenizer", "SqueezeBertTokenizer",
                     "LxmertTokenizer"), TokenizerClass(build_wordpiece, BERT_NAMES, SEGMENTS)),
    "MPNetTokenizer": TokenizerClass(build_wordpiece, {**ANGLE_NAMES, "unk": "[UNK]"}, DOUBLE, spaced_mask=True),
    "FunnelTokenizer": TokenizerClass(build_wordpiece,
                                      {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>",
                                       "cls": "<cls>", "mask": "<mask>"},
                                      ("{cls}:2 $A:0 {sep}:0", "{cls}:2 $A:0 {sep}:0 $B:1 {sep}:1")),
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer"),
                    TokenizerClass(choose_byte_bpe(), ANGLE_NAMES, DOUBLE)),
    "DebertaTokenizer": TokenizerClass(choose_byte_bpe(), {"bos": "[CLS]", "eos": "[SEP]", **BERT_NAMES}, DOUBLE),
    "GPT2Tokenizer": TokenizerClass(choose_byte_bpe(), END_OF_TEXT),
    "GPTNeoXTokenizer": TokenizerClass(choose_byte_bpe(normalizer=normalizers.NFC),
                                       {**END_OF_TEXT, "pad": "<|padding|>"}),
    "Qwen2Tokenizer": TokenizerClass(choose_byte_bpe(normalizer=normalizers.NFC, words=QWEN_WORDS),
                                     {"eos": "<|endoftext|>", "unk": "<|endoftext|>", "pad": "<|endoftext|>"}),
    "OpenAIGPTTokenizer": TokenizerClass(build_gpt_bpe, {"unk": "<unk>"}),
    "CTRLTokenizer": TokenizerClass(build_ctrl_bpe, {"unk": "<unk>"}),
    "XLMTokenizer": TokenizerClass(build_xlm_bpe, {**ANGLE_NAMES, "cls": "</s>", "mask": "<special1>"},
                                   ("{bos} $A {sep}", "{bos} $A {sep} $B {sep}"),
                                   extra=lambda settings: [f"<special{number}>" for number in range(10)]),
    **dict.fromkeys(("T5Tokenizer", "MT5Tokenizer"), TokenizerClass(
        p.choose_unigram(p.normalize_as_model, order=p.order_sentinels_last, unk=2),
        {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, ("$A {eos}", "$A {eos} $B {eos}"), extra=p.list_sentinels)),
    **dict.fromkeys(("AlbertTokenizer", "FNetTokenizer"), TokenizerClass(
        p.choose_unigram(*p.PLAIN_QUOTES, p.strip_accents, p.lower_case(True), p.normalize_as_model, unk=1),
        {**ANGLE_NAMES, "bos": "[CLS]", "eos": "[SEP]", "sep": "[SEP]", "cls": "[CLS]", "mask": "[MASK]"}, SEGMENTS)),
    "XLNetTokenizer": TokenizerClass(p.choose_unigram(*p.PLAIN_QUOTES, normalizers.NFKD(), normalizers.StripAccents(),
                                                      p.lower_case(False), p.normalize_as_model),
                                     {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>",
                                      "cls": "<cls>", "mask": "<mask>"},
                                     ("$A:0 {sep}:0 {cls}:2", "$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2"),
                                     extra=lambda settings: ["<eop>", "<eod>"], left=True, spaced_mask=True),
    "CamembertTokenizer": TokenizerClass(p.choose_unigram(
        p.normalize_as_model, unk=3, order=p.order_pieces("<s>NOTUSED", "{pad}", "</s>NOTUSED", "{unk}", "<unk>NOTUSED",
                                                          replaced=1, last=["{mask}"])),
        ANGLE_NAMES, FAIRSEQ, extra=lambda settings: ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"], spaced_mask=True),
    "XLMRobertaTokenizer": TokenizerClass(p.choose_unigram(
        p.normalize_as_model, order=p.order_pieces(*FAIRSEQ_FIRST, replaced=3, last=["{mask}"]), unk=3),
        ANGLE_NAMES, FAIRSEQ),
    "MBartTokenizer": TokenizerClass(p.choose_unigram(
        order=p.order_pieces(*FAIRSEQ_FIRST, replaced=3, last=[*TWENTY_FIVE, "{mask}"]), unk=3), ANGLE_NAMES,
                                     ("$A {eos} {source}", "$A $B {eos} {source}"),
                                     extra=lambda settings: TWENTY_FIVE, spaced_mask=True),
    "MBart50Tokenizer": TokenizerClass(p.choose_unigram(
        p.normalize_as_model, p.JOIN_SPACES, unk=3, words=False,
        order=p.order_pieces(*FAIRSEQ_FIRST, replaced=3, last=[*FIFTY, "{mask}"])), ANGLE_NAMES,
                                       ("{source} $A {eos}", "{source} $A $B {eos}"),
                                       extra=lambda settings: FIFTY, spaced_mask=True),
    "PegasusTokenizer": TokenizerClass(p.choose_unigram(
        p.normalize_pegasus, p.JOIN_SPACES, unk_by_name=True, words=False,
        order=p.order_pieces("{pad}", "{eos}", "{mask}", replaced=2, names=p.list_pegasus_tokens)),
                                       {"eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask_2>"},
                                       ("$A {eos}", "$A $B {eos}"), extra=p.list_pegasus_tokens),
    "DebertaV2Tokenizer": TokenizerClass(p.choose_unigram(
        p.lower_case(False), normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(),
        normalizers.Strip(left=False, right=True), unk_by_name=True, words=False),
                                         {"bos": "[CLS]", "eos": "[SEP]", **BERT_NAMES}, SEGMENTS),
    "BigBirdTokenizer": TokenizerClass(p.choose_unigram(
        normalizers.Replace(Regex(r" {2,}"), p.SPACE), unk=100, unk_by_name=True, words=False),
                                       {**ANGLE_NAMES, "sep": "[SEP]", "cls": "[CLS]", "mask": "[MASK]"}, SEGMENTS,
                                       spaced_mask=True),
    "ReformerTokenizer": TokenizerClass(p.choose_bpe(p.normalize_reformer), {"eos": "</s>", "unk": "<unk>"}),
    "MarianTokenizer": TokenizerClass(p.build_marian, {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
                                      ("$A {eos}", "$A $B {eos}")),
    "M2M100Tokenizer": TokenizerClass(p.build_m2m_100,
                                      {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>"},
                                      ("__{source}__ $A {eos}", "__{source}__ $A $B {eos}"),
                                      extra=lambda settings: [f"__{code}__" for code in p.HUNDRED], source="en"),
    "LlamaTokenizer": TokenizerClass(p.choose_bpe(space="first", split=False),
                                     {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}, left=True),
}
"""Name -> what it does. A class of which tests do not hold the ids equal to transformers' is not listed."""

REFUSED = {
    "FlaubertTokenizer": "belongs to FlauBERT, whose models are not read here",
    "BertJapaneseTokenizer": "needs a Japanese morphological analyser, and its words cannot be reproduced exactly",
    "RoFormerTokenizer": "cuts Chinese words with jieba, and these cannot be reproduced exactly",
    "TransfoXLTokenizer": "keeps its vocabulary in a pickle, and a pickle can run code, so none is read",
}
"""Classes that are not read, and why."""

MODEL_TYPES = {
    **dict.fromkeys(("bert", "distilbert", "electra", "mobilebert", "convbert", "realm", "retribert", "squeezebert",
                     "megatron-bert", "dpr"), "BertTokenizer"),
    **dict.fromkeys(("roberta", "bart", "longformer", "led"), "RobertaTokenizer"),
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "opt"), "GPT2Tokenizer"),
    **dict.fromkeys(("t5", "mt5", "switch_transformers"), "T5Tokenizer"),
    **dict.fromkeys(("llama", "mistral", "mixtral"), "LlamaTokenizer"),
    **dict.fromkeys(("albert", "nystromformer", "yoso"), "AlbertTokenizer"),
    "marian": "MarianTokenizer", "m2m_100": "M2M100Tokenizer",
    "mpnet": "MPNetTokenizer", "funnel": "FunnelTokenizer", "deberta": "DebertaTokenizer",
    "deberta-v2": "DebertaV2Tokenizer", "gpt_neox": "GPTNeoXTokenizer", "openai-gpt": "OpenAIGPTTokenizer",
    "fnet": "FNetTokenizer", "xlnet": "XLNetTokenizer", "camembert": "CamembertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer", "mbart": "MBartTokenizer", "pegasus": "PegasusTokenizer",
    "big_bird": "BigBirdTokenizer", "reformer": "ReformerTokenizer", "qwen2": "Qwen2Tokenizer", "xlm": "XLMTokenizer",
    "flaubert": "FlaubertTokenizer", "roformer": "RoFormerTokenizer", "transfo-xl": "TransfoXLTokenizer",
    "ctrl": "CTRLTokenizer",
}
"""model_type -> the class that reads its tokenizer, where the folder names none."""

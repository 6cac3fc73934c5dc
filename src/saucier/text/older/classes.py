"""The tokenizer classes of transformers, as data: how each splits a text, its special tokens and its frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as Backend

from saucier.text.older import pieces as p
from saucier.text.older import renumbered as r
from saucier.text.older.settings import Settings
from saucier.text.older.words import byte_pairs, continued_pairs, moses_pairs, word_pairs, wordpiece

Built = Backend | tuple[Backend, list[AddedToken]]


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a text and around a pair; roles in braces, `:n` is the token type."""

    single: str
    pair: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that a model with this frame takes."""
        segments = ("token_type_ids",) if {":1", ":2"} & {part[-2:] for part in self.pair.split()} else ()
        return ("input_ids", "attention_mask", *segments)


@dataclass(frozen=True, slots=True)
class Class:
    """One tokenizer class."""

    build: Callable[[Settings], Built]
    names: Mapping[str, str]
    """Role -> special token, where the folder says nothing else."""
    frame: Frame | None = None
    """None: the options add_bos_token and add_eos_token say it."""
    extra: Callable[[Settings], list[str]] = field(default=lambda settings: [])
    """Further special tokens."""
    left: bool = False
    """Whether padding stands at the left."""
    spaced_mask: bool = False
    """Whether the mask takes the space before it along."""
    source: str = "en_XX"
    """The language that a text is in, where src_lang does not say it."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that a model with this class takes."""
        return ("input_ids", "attention_mask") if self.frame is None else self.frame.inputs


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
ALBERT_NAMES = {"bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "sep": "[SEP]", "pad": "<pad>", "cls": "[CLS]",
                "mask": "[MASK]"}
SEGMENTS = Frame("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
DOUBLE = Frame("{cls} $A {sep}", "{cls} $A {sep} {sep} $B {sep}")
FAIRSEQ = Frame("{bos} $A {eos}", "{bos} $A {eos} {eos} $B {eos}")
SENTENCE_END = Frame("$A {eos}", "$A {eos} $B {eos}")
BERT = Class(wordpiece, BERT_NAMES, SEGMENTS)
ROBERTA = Class(byte_pairs(), ANGLE_NAMES, DOUBLE)
GPT2 = Class(byte_pairs(), END_OF_TEXT)
T5 = Class(p.unigram(p.sentinels_last, unk=p.at(2)), {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, SENTENCE_END,
           extra=p.sentinels)
ALBERT = Class(p.unigram(p.as_is, p.quotes(lowercase=True, accents=True), unk=p.at(1)), ALBERT_NAMES, SEGMENTS)

CLASSES: dict[str, Class] = {
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
                     "ConvBertTokenizer", "DPRQuestionEncoderTokenizer", "DPRContextEncoderTokenizer",
                     "DPRReaderTokenizer", "RealmTokenizer", "RetriBertTokenizer", "SqueezeBertTokenizer",
                     "LxmertTokenizer"), BERT),
    "MPNetTokenizer": Class(wordpiece, {**ANGLE_NAMES, "unk": "[UNK]"}, DOUBLE, spaced_mask=True),
    "FunnelTokenizer": Class(wordpiece, {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>",
                                         "cls": "<cls>", "mask": "<mask>"},
                             Frame("{cls}:2 $A:0 {sep}:0", "{cls}:2 $A:0 {sep}:0 $B:1 {sep}:1")),
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer"), ROBERTA),
    "DebertaTokenizer": Class(byte_pairs(), {"bos": "[CLS]", "eos": "[SEP]", **BERT_NAMES}, DOUBLE),
    "GPT2Tokenizer": GPT2,
    "GPTNeoXTokenizer": Class(byte_pairs(normalizer=normalizers.NFC), {**END_OF_TEXT, "pad": "<|padding|>"}),
    "Qwen2Tokenizer": Class(byte_pairs(normalizer=normalizers.NFC, words=QWEN_WORDS),
                            {"eos": "<|endoftext|>", "unk": "<|endoftext|>", "pad": "<|endoftext|>"}),
    "OpenAIGPTTokenizer": Class(word_pairs, {"unk": "<unk>"}),
    "CTRLTokenizer": Class(continued_pairs, {"unk": "<unk>"}),
    "XLMTokenizer": Class(moses_pairs, {**ANGLE_NAMES, "cls": "</s>", "mask": "<special1>"},
                          Frame("{bos} $A {sep}", "{bos} $A {sep} $B {sep}"),
                          extra=lambda settings: [f"<special{number}>" for number in range(10)]),
    **dict.fromkeys(("T5Tokenizer", "MT5Tokenizer"), T5),
    **dict.fromkeys(("AlbertTokenizer", "FNetTokenizer"), ALBERT),
    "XLNetTokenizer": Class(p.unigram(p.as_is, p.quotes(lowercase=False, accents=False)),
                            {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "<sep>", "pad": "<pad>",
                             "cls": "<cls>", "mask": "<mask>"},
                            Frame("$A:0 {sep}:0 {cls}:2", "$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2"),
                            extra=lambda settings: ["<eop>", "<eod>"], left=True, spaced_mask=True),
    "CamembertTokenizer": Class(p.unigram(p.camembert_order, unk=p.at(3)), ANGLE_NAMES, FAIRSEQ,
                                extra=lambda settings: ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"], spaced_mask=True),
    "XLMRobertaTokenizer": Class(p.unigram(p.fairseq("{mask}"), unk=p.at(3)), ANGLE_NAMES, FAIRSEQ),
    "MBartTokenizer": Class(p.unigram(p.fairseq(*TWENTY_FIVE, "{mask}"), p.nothing, unk=p.at(3)), ANGLE_NAMES,
                            Frame("$A {eos} {source}", "$A $B {eos} {source}"),
                            extra=lambda settings: TWENTY_FIVE, spaced_mask=True),
    "MBart50Tokenizer": Class(p.unigram(p.fairseq(*FIFTY, "{mask}"), p.single_spaces, unk=p.at(3), words=False),
                              ANGLE_NAMES,
                              Frame("{source} $A {eos}", "{source} $A $B {eos}"),
                              extra=lambda settings: FIFTY, spaced_mask=True),
    "PegasusTokenizer": Class(p.unigram(p.pegasus_order, p.pegasus_normal, unk=p.named(p.models_own), words=False),
                              {"eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask_2>"},
                              Frame("$A {eos}", "$A $B {eos}"),
                              extra=p.pegasus_tokens),
    "DebertaV2Tokenizer": Class(p.unigram(p.as_is, p.deberta_normal, unk=p.named(p.models_own), words=False),
                                {"bos": "[CLS]", "eos": "[SEP]", **BERT_NAMES}, SEGMENTS),
    "BigBirdTokenizer": Class(p.unigram(p.as_is, p.marked_spaces, unk=p.named(p.at(100)), words=False),
                              {**ANGLE_NAMES, "sep": "[SEP]", "cls": "[CLS]", "mask": "[MASK]"}, SEGMENTS,
                              spaced_mask=True),
    "ReformerTokenizer": Class(p.merged(p.reformer_normal), {"eos": "</s>", "unk": "<unk>"}),
    "MarianTokenizer": Class(r.marian, {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
                             Frame("$A {eos}", "$A $B {eos}")),
    "M2M100Tokenizer": Class(r.m2m_100, {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>"},
                             Frame("__{source}__ $A {eos}", "__{source}__ $A $B {eos}"), extra=r.hundred,
                             source="en"),
    "LlamaTokenizer": Class(p.merged(p.nothing, space="first", split=False),
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

"""The Book as data: every system that this project owes, the tests that show it, and how far it has come.

Which recipes serve a row is written in the recipes (`book:`), not here. A test checks that the tests named here exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["works", "partly", "not yet"]


@dataclass(frozen=True, slots=True)
class Row:
    """One system of the Book. `tests` are pytest addresses; `missing` says what a row that works partly still lacks."""

    number: str
    system: str
    tests: tuple[str, ...] = ()
    state: State = "not yet"
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Rows that belong together."""

    letter: str
    title: str
    rows: tuple[Row, ...]


FOUNDATIONS = Chapter("A", "Foundations", (
    Row("A1", "Attention: scaled dot product; many heads, shared and grouped key-value heads"),
    Row("A2", "What a position may see: all, the past, a prefix, real tokens, its own document"),
    Row("A3", "The encoder-decoder Transformer, norms before or after, base size"),
    Row("A4", "Positions: learned, sinusoidal, Shaw, Music Transformer, Transformer-XL, T5, rotary, ALiBi, DeBERTa, "
        "none"),
    Row("A5", "Norms (layer, root mean square, none) and feed-forward layers (ReLU, GELU, gated)"),
    Row("A6", "Subword tokenizers: BPE, byte-level BPE, WordPiece, Unigram, SentencePiece files"),
    Row("A7", "Scores: BLEU, ROUGE, perplexity, bits per byte, GLUE metrics, exact match and F1, entity F1"),
    Row("A8", "Number formats and mixed precision"),
    Row("A9", "Recurrent encoder-decoders: RNN, LSTM, GRU"),
    Row("A10", "Attention over a recurrent encoder: Bahdanau, Luong global and local"),
    Row("A11", "Teacher forcing and scheduled sampling"),
    Row("A12", "The key-value cache and its price; the output layer on the last position only"),
))

UNDERSTANDING = Chapter("B", "Understanding: encoders and their relatives", (
    Row("B1", "ELMo"),
    Row("B2", "GPT-1 with its four task forms and the auxiliary language-model loss"),
    Row("B3", "BERT: masked words, next sentence, segments; base and large"),
    Row("B4", "XLNet: permutation language model, two streams, memory"),
    Row("B5", "RoBERTa: dynamic masks, full sentences, byte-level BPE"),
    Row("B6", "Megatron-LM: layers split over processes"),
    Row("B7", "XLM and XLM-R: translation language model"),
    Row("B8", "DeBERTa, versions 1 to 3"),
    Row("B9", "SpanBERT, whole-word, n-gram and PMI masking"),
    Row("B10", "BERT for a domain or a language; pretraining continued on one's own text"),
    Row("B11", "Feed-forward layers read as key-value memories"),
))

GENERATION = Chapter("C", "Generation", (
    Row("C1", "GPT-2 in four sizes"),
    Row("C2", "GPT-3: tasks from zero, one or a few examples in the prompt"),
    Row("C3", "BART: five noises; translation with a new source encoder"),
    Row("C4", "mBART: balanced sampling of languages, back-translation"),
    Row("C5", "T5: every task as text; span corruption, prefix language model, mixtures; v1.1, mT5"),
    Row("C6", "The T5 study: objectives, corruption rates, architectures and repeats compared"),
    Row("C7", "T-NLG and ZeRO: optimizer, gradients and weights sharded over processes"),
    Row("C8", "Mixtures of experts: GShard, Switch, GLaM"),
    Row("C9", "CTRL: control codes"),
    Row("C10", "GPT-Neo, GPT-J, GPT-NeoX, OPT, BLOOM, LLaMA, Mistral"),
    Row("C11", "M2M-100: many languages to many"),
    Row("C12", "Decoding: greedy, beams, temperature, top-k, top-p, with a cache"),
    Row("C13", "Text from masked models: Gibbs, Metropolis-Hastings, Mask-Predict"),
    Row("C14", "Sequence generation from pretrained encoders and decoders"),
    Row("C15", "Scaling laws"),
))

ADAPTING = Chapter("D", "Adapting and aligning", (
    Row("D1", "Fine-tuning for classification, regression, tagging, answers, translation, summaries"),
    Row("D2", "LoRA and QLoRA"),
    Row("D3", "Prefix tuning and prompt tuning"),
    Row("D4", "Instruction tuning"),
    Row("D5", "InstructGPT: reward model and PPO"),
    Row("D6", "Distilling step by step: rationales as a second task"),
))

SMALLER = Chapter("E", "Smaller", (
    Row("E1", "Knowledge distillation with soft and hard targets"),
    Row("E2", "DistilBERT and DistilGPT"),
    Row("E3", "TinyBERT"),
    Row("E4", "MobileBERT"),
    Row("E5", "MiniLM"),
    Row("E6", "Magnitude pruning with retraining"),
    Row("E7", "LayerDrop"),
    Row("E8", "Poor Man's BERT: layers left out"),
    Row("E9", "FLOP: factorized pruning with L0"),
    Row("E10", "Head pruning: gates, confidence, importance"),
    Row("E11", "Q8BERT: 8-bit training with fake quantization"),
    Row("E12", "Q-BERT: bits by the Hessian, group by group"),
    Row("E13", "LQ-Nets: learned quantization"),
    Row("E14", "ALBERT: factorized embedding, shared layers, sentence order"),
))

KNOWLEDGE = Chapter("F", "With knowledge", (
    Row("F1", "DPR: dense retrieval with two encoders"),
    Row("F2", "ORQA: the inverse cloze task, latent retrieval"),
    Row("F3", "REALM: retrieval inside masked language modelling"),
    Row("F4", "RAG, by sequence and by token"),
    Row("F5", "GoldEn Retriever: one question in several hops"),
))

LONGER = Chapter("G", "Longer and cheaper", (
    Row("G1", "Deep character models with auxiliary losses"),
    Row("G2", "Transformer-XL: memory across segments"),
    Row("G3", "Longformer: windows, gaps and global tokens"),
    Row("G4", "ETC: global and local attention"),
    Row("G5", "BigBird: random, window and global blocks"),
    Row("G6", "Sparse Transformer: strided and fixed patterns"),
    Row("G7", "Reformer: hashed attention, reversible layers"),
    Row("G8", "Linformer: keys and values projected to fewer"),
    Row("G9", "Performer: random features for softmax"),
    Row("G10", "ELECTRA: telling replaced tokens"),
))

WHOLE = Chapter("H", "The whole", (
    Row("H1", "Cleaning a crawl by the C4 rules, without duplicates, shuffled"),
    Row("H2", "Attention in the browser: head, model and neuron views"),
    Row("H3", "Taxonomy and comparison tables made from the recipes"),
    Row("H4", "Any task head and any objective on any body, where shapes allow"),
    Row("H5", "On the device: distilled, pruned, quantized, measured"),
))

CHAPTERS = (FOUNDATIONS, UNDERSTANDING, GENERATION, ADAPTING, SMALLER, KNOWLEDGE, LONGER, WHOLE)
"""All of it, in order."""

"""The samples of a run: what the finished model makes of held-out text, by what it has learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice, zip_longest
from pathlib import Path

import numpy as np
import torch

from saucier.devices import move_batch
from saucier.generation.generate import generate
from saucier.jobs.pretraining.data import PreparedData, iterate_held_out
from saucier.jobs.pretraining.held_out import translate_texts
from saucier.jobs.run.language_pairs import group_by_direction
from saucier.jobs.writing.writer import Writer, choose_decoding
from saucier.objectives.base import Batch, TokenIds
from saucier.objectives.config import (
    Bidirectional,
    Causal,
    ChosenTokens,
    ConditionalMasked,
    EveryToken,
    Masked,
    MaskedSides,
    Permutation,
    Replaced,
    SequenceToSequence,
    TranslationMasked,
)
from saucier.objectives.permutation import read_memory
from saucier.objectives.prediction import Prediction, select_model_inputs
from saucier.objectives.replaced_tokens import ReplacedTokens
from saucier.opened import OpenModel
from saucier.report.results import Sample
from saucier.text.config import list_languages
from saucier.text.languages import LanguageCorpus, set_language
from saucier.text.reading.corpus import PairCorpus
from saucier.text.reading.documents import Document, Pair
from saucier.text.rows.batch import PairRows
from saucier.text.rows.bucketed import make_text_rows
from saucier.text.rows.store import encode_sentences
from saucier.text.tokenizer.tokenizer import Tokenizer

RULE = "─" * 80
STEP = 2**30
"""Number of the step that samples are corrupted for: that of no update."""
LONGEST_TOKEN = 20
"""Characters of a text that are looked at for each token that is to be written."""


def make_samples(found: OpenModel, data: PreparedData) -> tuple[Sample, ...]:
    """Let the model show what it has learned. Called without gradients."""
    count = found.own_recipe.sampling.samples
    sample: Callable[[OpenModel, Document, int], Sample]
    match found.objectives[0].config:
        case Causal():
            return tuple(sample_continuations(found, data))
        case SequenceToSequence() | ConditionalMasked():
            groups = group_by_direction(held_out_pairs(data), count).values()  # pairs of each in turns
            turns = (pair for together in zip_longest(*groups) for pair in together if pair is not None)
            return tuple(sample_translations(found, list(islice(turns, count))))
        case TranslationMasked() | MaskedSides():
            pairs = enumerate(islice(held_out_pairs(data), count))
            return tuple(sample_masked_pair(found, pair, number) for number, pair in pairs)
        case Bidirectional():
            sample = sample_next_tokens
        case Permutation():
            sample = sample_permuted_tokens
        case Replaced(learns=EveryToken() | ChosenTokens()):
            sample = sample_replaced_tokens
        case Masked() | Replaced() if not found.is_encoder_decoder:
            sample = sample_masked_tokens
        case _:
            sample = sample_denoised_text
    return tuple(sample(found, document, number) for number, document in enumerate(spread_documents(data, count)))


def held_out_pairs(data: PreparedData) -> Iterator[Pair]:
    """Yield the held-out pairs; none where the text is no pairs."""
    return iter(data.corpus.held_out) if isinstance(data.corpus, PairCorpus) else iter(())


def held_out_documents(data: PreparedData) -> Iterator[Document]:
    """Yield the held-out documents; none where the text is pairs."""
    return iter(()) if isinstance(data.corpus, PairCorpus) else iter(iterate_held_out(data.corpus))


def spread_documents(data: PreparedData, count: int) -> list[Document]:
    """Return held-out documents, evenly spread over all of them, so that the samples differ."""
    if isinstance(data.corpus, LanguageCorpus):
        return list(islice(data.corpus.documents("held_out"), count))
    every = max(1, len(data.held_out) // max(1, count))
    whole = (document for document in held_out_documents(data) if document.part == 0)
    return list(islice(whole, every // 2, None, every))[:count]


def sample_continuations(found: OpenModel, data: PreparedData) -> Iterator[Sample]:
    """Write on from each prompt of the recipe, or else from the beginnings of held-out texts."""
    writer, sampling = Writer(found, found.own_recipe.training.length), found.own_recipe.sampling
    prompts = [(prompt, "the recipe") for prompt in sampling.prompts] or [
        (found.tokenizer.decode(encode_first_tokens(document.text, found.tokenizer, sampling.prompt_tokens)),
         Path(document.source).name) for document in spread_documents(data, sampling.samples)]
    for number, (prompt, source) in enumerate(prompts):
        decoding = choose_decoding(temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p,
                                   seed=sampling.seed + number)
        options = decoding | {"max_new_tokens": sampling.tokens, "repetition_penalty": sampling.repetition_penalty}
        yield Sample(prompt=prompt, text=writer.write(prompt, options)[0], source=source)


def sample_translations(found: OpenModel, pairs: list[Pair]) -> Iterator[Sample]:
    """Translate held-out sources."""
    written: dict[Pair, str] = {}
    for some in group_by_direction(iter(pairs), None).values():
        written |= zip(some, translate_texts(found, [one.source for one in some], languages=some[0].languages),
                       strict=True)
    for pair in pairs:
        where = Path(pair.where).name
        yield Sample(prompt=pair.source, text=written[pair], reference=pair.target,
                     source=f"{pair.direction}, {where}" if pair.direction else where)


def frame_text(found: OpenModel, document: Document, more: int = 0) -> list[int]:
    """Return the first ids of a text, inside [CLS] and [SEP] where there are such tokens."""
    tokenizer, length = found.tokenizer, found.own_recipe.training.length - 2 + more
    begin, end = ([] if number is None else [number] for number in (tokenizer.cls_id, tokenizer.sep_id))
    return [*begin, *encode_first_tokens(document.text, tokenizer, length), *end]


def sample_masked_tokens(found: OpenModel, document: Document, number: int) -> Sample:
    """Hide words of a held-out text as in training, and let the model fill them in."""
    batch = corrupt_text(found, frame_text(found, document), number)
    batch.pop("draws", None)
    return fill_masked_row(found, batch, document.source)


def sample_next_tokens(found: OpenModel, document: Document, number: int) -> Sample:
    """Let the model predict each token of a held-out text from those before it; the first one it is given."""
    ids = encode_first_tokens(document.text, found.tokenizer, found.own_recipe.training.length)
    best = found.model(torch.tensor([ids], device=found.device)).logits[0].argmax(-1)
    prompt, text, true = (found.tokenizer.decode(one, skip_special_tokens=False)
                          for one in (ids[:1], [ids[0], *best[:-1].tolist()], ids))
    return Sample(prompt=prompt, text=text, source=Path(document.source).name, reference=true)


def sample_masked_pair(found: OpenModel, pair: Pair, number: int) -> Sample:
    """Hide words of a held-out pair (where sides are separate, of its source) as in training; the model fills in."""
    sides = (found.tokenizer.encode(text) for text in (pair.source, pair.target))
    source, target = (np.array([ids], dtype=np.int64) for ids in sides)
    here = np.array([number])
    rows = PairRows(source, target, np.array([source.shape[1]]), np.array([target.shape[1]]), here, here)
    batch = found.objectives[0].corruption(rows, seed=found.own_recipe.sampling.seed, step=STEP)
    return fill_masked_row(found, move_batch(batch, found.device), pair.where)


def fill_masked_row(found: OpenModel, batch: Batch, source: str) -> Sample:
    """Let the model fill in the first row of a batch."""
    labels, tokenizer = batch.pop("labels")[0], found.tokenizer
    objective = found.objectives[0].objective
    auxiliary = objective.auxiliary if isinstance(objective, Prediction) else ()
    logits = found.model(**select_model_inputs(batch, auxiliary)).logits
    count = int(batch["attention_mask"][0].sum()) if "attention_mask" in batch else batch["input_ids"].shape[1]
    given, labels, best = (one[:count] for one in (batch["input_ids"][0], labels, logits[0].argmax(-1)))
    true, written = (torch.where(labels >= 0, one, given).tolist() for one in (labels, best))
    return Sample(prompt=tokenizer.decode(given.tolist(), skip_special_tokens=False), text=tokenizer.decode(written),
                  source=Path(source).name, reference=tokenizer.decode(true))


def sample_replaced_tokens(found: OpenModel, document: Document, number: int) -> Sample:
    """Let the generator replace words of a held-out text, and the model flag what it takes for replaced."""
    objective, ids = found.objectives[0].objective, frame_text(found, document)
    assert isinstance(objective, ReplacedTokens), "as the config says"
    filled, _ = objective.fill(found.model, corrupt_text(found, ids, number))
    flags = found.model(input_ids=filled.ids, **filled.inputs).logits[0] > 0
    prompt, text = (decode_with_marks(found.tokenizer, filled.ids[0].tolist(), marks.tolist())
                    for marks in (filled.replaced[0], flags))
    return Sample(prompt=prompt, text=text, source=Path(document.source).name, reference=found.tokenizer.decode(ids))


def sample_permuted_tokens(found: OpenModel, document: Document, number: int) -> Sample:
    """Let the model predict the tokens that come last in a random order of a text, each without those after it."""
    tokenizer = found.tokenizer
    batch = corrupt_text(found, frame_text(found, document, found.objectives[0].corruption.overlap), number)
    batch = read_memory(found.model, batch) if "earlier" in batch else batch
    labels = batch.pop("labels")[0]
    best = found.model(**batch).logits[0].argmax(-1)
    here, known = batch["input_ids"][0].clone(), labels >= 0
    places = batch["target_mapping"][0, known].argmax(-1)
    true, marks = here.tolist(), torch.zeros_like(here, dtype=torch.bool).index_fill(0, places, True).tolist()
    here[places] = best[known]
    return Sample(prompt=decode_with_marks(tokenizer, true, marks, "[...]"),
                  text=decode_with_marks(tokenizer, here.tolist(), marks), source=Path(document.source).name,
                  reference=decode_with_marks(tokenizer, true, marks))


def decode_with_marks(tokenizer: Tokenizer, ids: list[int], marks: list[bool], instead: str | None = None) -> str:
    """Decode a text with brackets around marked tokens, or something else in their place; split words are in pieces."""
    groups = groupby(zip(ids, marks, strict=True), key=lambda pair: pair[1])
    texts = [(is_marked, tokenizer.decode([number for number, _ in group]).strip()) for is_marked, group in groups]
    return " ".join((instead or f"[{text}]") if is_marked else text for is_marked, text in texts if text)


def sample_denoised_text(found: OpenModel, document: Document, number: int) -> Sample:
    """Damage a held-out text as in training, and let the model write what it has learned to write of it."""
    tokenizer, ids, recipe = found.tokenizer, TokenIds.of(found.tokenizer), found.own_recipe
    length = found.objectives[0].corruption.row_length(recipe.training.length)
    (tokens, starts), = encode_sentences([document.text[: LONGEST_TOKEN * length]], tokenizer)
    batch = corrupt_text(found, tokens[:length], number, [start for start in starts if start < length])
    labels, given = batch["labels"][0], batch["input_ids"]
    learned = (labels >= 0).nonzero()[:, 0]
    if batch.get("decoder_input_ids") is not None:
        start, given_before = {"decoder_start_token_id": int(batch["decoder_input_ids"][0, 0])}, 0
    else:  # source and target are in one row
        given = given[:, :int(learned[0]) + 1]
        start, given_before = {}, given.shape[1]
    most = min(recipe.sampling.tokens, 2 * len(learned), recipe.training.length - max(1, given_before))
    written = generate(found.model, given, max_new_tokens=max(1, most),
                       **ids.generation_options | start)[0, given_before:]
    return Sample(prompt=tokenizer.decode(given[0].tolist(), skip_special_tokens=False),
                  text=decode_spans(tokenizer, written.tolist()), source=Path(document.source).name,
                  reference=decode_spans(tokenizer, labels[learned].tolist()))


def encode_first_tokens(text: str, tokenizer: Tokenizer, count: int) -> list[int]:
    """Return the first ids of a text, without reading all of a long one."""
    return tokenizer.encode(text[: LONGEST_TOKEN * count], add_special_tokens=False)[:count]


def corrupt_text(found: OpenModel, ids: list[int], number: int, sentences: Sequence[int] = ()) -> Batch:
    """Make a batch of one text as in training; `sentences` is where they start."""
    tokens, here = np.array([ids], dtype=np.int64), np.array([number])
    rows = make_text_rows(tokens, np.array([len(ids)]), row=here, item=here,
                          sentence_starts=np.isin(np.arange(len(ids)), sentences)[None])
    languages = list_languages(found.own_recipe.data)
    if languages and found.objectives[0].config.needs_language_ids(found.model.config):
        rows = set_language(rows, number % len(languages))
    return move_batch(found.objectives[0].corruption(rows, seed=found.own_recipe.sampling.seed, step=STEP),
                      found.device)


def decode_spans(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Decode spans with their sentinels, without the other special tokens."""
    keep = set(tokenizer.sentinel_ids)
    return tokenizer.decode([number for number in ids if number in keep or number not in tokenizer.special_ids],
                            skip_special_tokens=False)


def format_samples(samples: tuple[Sample, ...]) -> str:
    """Return the text of samples.txt."""
    parts = []
    for number, sample in enumerate(samples, start=1):
        parts += [RULE, f"{number}. {sample.source}", RULE, f"[given]   {sample.prompt}", f"[written] {sample.text}"]
        parts += [f"[true]    {sample.reference}"] if sample.reference else []
        parts.append("")
    return "\n".join(parts)

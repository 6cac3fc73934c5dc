"""Pages of the documentation drawn from the code: docs/book.md with its later chapters, and docs/bodies.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import get_args

from saucier import config as architecture
from saucier.families import FAMILIES
from saucier.objectives import config as c
from saucier.objectives.checks import ObjectiveSetting, find_mismatches
from saucier.recipes import Recipe, names, recipe
from saucier.report.book_models import FOUNDATIONS, GENERATION, UNDERSTANDING, BookRow, Chapter
from saucier.text.config import Data, LanguageData, PairData, SpecialTokens, TextData, WordPiece

ADAPTING = Chapter("D", "Adapting and aligning", (
    BookRow("D1", "Fine-tuning for classification, regression, tagging, answers, translation, summaries",
            (
            "tests/unit/jobs/finetuning/test_finetune.py::test_a_task_is_learned_and_the_result_is_a_published_folder",
            "tests/unit/jobs/finetuning/test_finetune.py::test_numbers_are_learned",
            "tests/unit/jobs/finetuning/test_tagging.py::test_entities_are_learned_and_long_sentences_read_to_the_end",
            "tests/unit/jobs/finetuning/test_question_answering.py::test_answers_are_learned_also_that_there_is_none",
            "tests/unit/jobs/finetuning/test_multiple_choice.py::test_choices_are_learned_and_named_as_in_the_file",
            "tests/unit/jobs/finetuning/test_finetune.py::test_a_label_that_only_the_held_out_file_has_is_named",
        ), "partly", "summaries of whole documents that are better than the lead"),
    BookRow("D2", "LoRA and QLoRA",
            (
            "tests/unit/adaptation/test_lora.py::test_starts_as_no_change_and_comes_back",
            "tests/unit/adaptation/test_lora.py::test_only_the_pairs_get_gradients",
            "tests/unit/adaptation/test_nf4.py::test_qlora",
            "tests/checkpoints/test_peft.py::test_peft_reads_ours",
            "tests/checkpoints/test_peft.py::test_another_base_is_refused_where_we_wrote_the_adapter",
            "tests/cli/test_continued.py::test_a_tuned_run_learns_little_and_knows_its_base",
        ), "works"),
    BookRow("D3", "Prefix tuning and prompt tuning",
            (
            "tests/unit/adaptation/test_fronts.py::test_only_they_learn",
            "tests/unit/adaptation/test_fronts.py::test_generation_reads_them_once",
            "tests/unit/adaptation/test_fronts.py::test_a_prompt_before_the_target_is_tokens_of_its_own",
            "tests/checkpoints/test_peft_fronts.py::test_peft_reads_ours",
        ), "works"),
    BookRow("D4", "Instruction tuning",
            (
            "tests/unit/jobs/finetuning/test_instruction.py::test_every_answer_is_learned_and_nothing_else",
            "tests/unit/jobs/finetuning/test_instruction.py::test_a_chat_template_says_what_is_learned",
            "tests/unit/jobs/finetuning/test_instruction.py::test_conversations_in_one_row_are_learned_as_if_they_stood_alone",
            "tests/unit/jobs/finetuning/test_instruction.py::test_no_gradient_leaks_between_conversations_of_a_row",
            "tests/unit/jobs/finetuning/test_mixture.py::test_a_column_tells_tasks_apart_and_a_new_one_is_answered_too",
        ), "works"),
    BookRow("D5", "InstructGPT: reward model and PPO"),
    BookRow("D6", "Distilling step by step: rationales as a second task",
            (
            "tests/unit/jobs/finetuning/test_step_by_step.py::test_the_loss_is_the_answers_mean_and_lambda_times_that_of_the_reasons",
            "tests/unit/jobs/finetuning/test_step_by_step.py::test_each_prefix_asks_for_its_own",
        ), "partly", "a task on which reasons help: four were measured, and on none they do"),
))

SMALLER = Chapter("E", "Smaller", (
    BookRow("E1", "Knowledge distillation with soft and hard targets"),
    BookRow("E2", "DistilBERT and DistilGPT",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
        ), "partly", "distillation from a teacher, every second layer, DistilGPT"),
    BookRow("E3", "TinyBERT"),
    BookRow("E4", "MobileBERT",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_bottleneck.py::test_a_narrow_block_is_what_the_paper_draws",
        ), "partly", "the three ways of transfer"),
    BookRow("E5", "MiniLM",
            (
            "tests/checkpoints/test_sentence_folders.py::test_vectors_of_a_published_model",
            "tests/checkpoints/test_sentence_folders.py::test_sentences_that_mean_the_same_are_close",
        ), "partly", "its distillation"),
    BookRow("E6", "Magnitude pruning with retraining"),
    BookRow("E7", "LayerDrop"),
    BookRow("E8", "Poor Man's BERT: layers left out"),
    BookRow("E9", "FLOP: factorized pruning with L0"),
    BookRow("E10", "Head pruning: gates, confidence, importance"),
    BookRow("E11", "Q8BERT: 8-bit training with fake quantization"),
    BookRow("E12", "Q-BERT: bits by the Hessian, group by group"),
    BookRow("E13", "LQ-Nets: learned quantization"),
    BookRow("E14", "ALBERT: factorized embedding, shared layers, sentence order",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/config/test_published_sizes.py::test_parameters_are_those_of_the_reference",
            "tests/unit/text/test_sentence_rows.py::test_the_order_of_two_pieces_is_swapped_half_of_the_time",
            "tests/unit/objectives/test_masking.py::test_runs_of_n_words_are_as_likely_as_one_over_n",
        ), "works"),
))

KNOWLEDGE = Chapter("F", "With knowledge", (
    BookRow("F1", "DPR: dense retrieval with two encoders",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
        ), "partly", "training, the index, retrieval"),
    BookRow("F2", "ORQA: the inverse cloze task, latent retrieval"),
    BookRow("F3", "REALM: retrieval inside masked language modelling",
            (
            "tests/golden/test_published_folders.py::test_folder",
        ), "partly", "training with retrieval"),
    BookRow("F4", "RAG, by sequence and by token"),
    BookRow("F5", "GoldEn Retriever: one question in several hops"),
))

LONGER = Chapter("G", "Longer and cheaper", (
    BookRow("G1", "Deep character models with auxiliary losses",
            (
            "tests/unit/objectives/test_deeper.py::test_layer_l_of_n_rests_when_l_over_2n_of_the_training_is_over",
            "tests/unit/objectives/test_deeper.py::test_the_loss_is_the_sum_over_layers_and_distances",
            "tests/unit/objectives/test_deeper.py::"
            "test_the_published_model_has_219_million_weights_and_235_in_training",
            "tests/learn/test_objectives_learn.py::test_the_loss_falls",
        ), "works"),
    BookRow("G2", "Transformer-XL: memory across segments",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/golden/test_transfo_xl_losses.py::test_one_loss_a_token_and_their_mean",
            "tests/laws/test_memory.py::test_segments_with_a_memory_are_one_long_pass",
            "tests/unit/parts/test_transformer_xl.py::test_weights_are_those_of_the_definition",
            "tests/unit/parts/test_adaptive.py::test_log_probabilities_and_losses_are_those_of_the_definition",
            "tests/unit/objectives/test_carrying.py::test_the_losses_of_segments_are_those_of_one_long_pass",
            "tests/unit/training/test_memory_runs.py::test_stopped_and_set_back_it_is_bit_equal",
            "tests/cli/test_memory.py::test_the_loss_in_segments_is_that_of_one_pass",
        ), "works"),
    BookRow("G3", "Longformer: windows, gaps and global tokens",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_global_attention.py::test_global_tokens_by_definition",
            "tests/laws/test_sparse.py::test_a_plan_gives_what_the_dense_softmax_gives",
            "tests/laws/test_sparse.py::test_the_published_forms_of_gaps",
            "tests/laws/test_sparse.py::test_memory_grows_with_the_length_alone",
        ), "works"),
    BookRow("G4", "ETC: global and local attention",
            (
            "tests/unit/parts/test_etc.py::test_the_four_parts_and_their_labels",
            "tests/unit/parts/test_etc.py::test_a_global_input_stands_before_the_text",
            "tests/laws/test_sparse.py::test_memory_grows_with_the_length_alone",
        ), "works"),
    BookRow("G5", "BigBird: random, window and global blocks",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_blocks.py::test_attention_is_the_softmax_over_all_keys_and_their_repetitions",
            "tests/laws/test_sparse.py::test_drawn_blocks_are_read_as_they_are_drawn",
            "tests/laws/test_sparse.py::test_memory_grows_with_the_length_alone",
        ), "works"),
    BookRow("G6", "Sparse Transformer: strided and fixed patterns",
            (
            "tests/laws/test_sparse.py::test_the_published_forms_of_gaps",
            "tests/laws/test_leaks.py::test_every_visibility_shows_what_it_says",
            "tests/laws/test_sparse.py::test_what_the_patterns_cost_grows_as_the_root_of_the_length",
        ), "works"),
    BookRow("G7", "Reformer: hashed attention, reversible layers",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_reformer.py::test_hashes_are_a_softmax_over_the_chunks_of_all_rounds",
            "tests/unit/parts/test_reformer.py::test_two_streams_and_the_way_back",
            "tests/unit/adaptation/test_surgery.py::test_hashes_in_one_chunk_are_full_attention_and_many_rounds_come_near_to_it",
            "tests/parity/test_sparse_families.py::test_other_hashes_are_read_as_by_the_reference",
            "tests/unit/parts/test_computed_again.py::test_streams_give_the_ordinary_gradients",
            "tests/unit/parts/test_computed_again.py::test_what_streams_keep_does_not_grow_with_depth",
        ), "works"),
    BookRow("G8", "Linformer: keys and values projected to fewer",
            (
            "tests/unit/parts/test_low_rank.py::test_it_is_the_softmax_over_mixtures",
            "tests/unit/parts/test_low_rank.py::test_as_many_maps_as_published",
            "tests/unit/parts/test_low_rank.py::test_packed_documents_have_their_own_mixtures",
        ), "works"),
    BookRow("G9", "Performer: random features for softmax",
            (
            "tests/unit/parts/test_favor.py::test_sums_are_the_pairs_of_the_same_features",
            "tests/unit/parts/test_favor.py::test_the_error_falls_as_the_root_of_the_features",
            "tests/unit/parts/test_favor.py::test_products_of_features_have_the_mean_of_the_softmax_kernel",
            "tests/unit/parts/test_favor.py::test_a_cache_of_sums_gives_the_numbers_of_one_pass",
            "tests/unit/parts/test_favor.py::test_directions_are_drawn_anew_while_training_and_saved",
        ), "works"),
    BookRow("G10", "ELECTRA: telling replaced tokens",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/objectives/test_replaced.py::test_both_losses_are_those_of_the_definition",
            "tests/unit/objectives/test_replaced.py::test_no_gradient_goes_through_what_was_drawn",
            "tests/unit/objectives/test_replaced.py::test_any_encoder_has_a_generator",
        ), "works"),
))

WHOLE = Chapter("H", "The whole", (
    BookRow("H1", "Cleaning a crawl by the C4 rules, without duplicates, shuffled",
            (
            "tests/cli/test_clean.py::test_every_rule_takes_what_is_known_of_the_crawl",
            "tests/cli/test_clean.py::test_two_workers_of_an_engine_give_the_same_bytes",
            "tests/unit/text/cleaning/test_duplicates.py::test_near_duplicates_are_the_pairs_above_the_similarity",
            "tests/unit/text/cleaning/test_duplicates.py::test_shuffling_depends_on_the_seed_alone",
            "tests/unit/text/cleaning/test_rules.py::test_a_rule_of_documents_drops_what_it_names_and_keeps_prose",
            "tests/unit/text/cleaning/test_rules.py::test_a_rule_of_lines_removes_the_lines_it_names",
        ), "works"),
    BookRow("H2", "Attention in the browser: head, model and neuron views"),
    BookRow("H3", "Taxonomy and comparison tables made from the recipes"),
    BookRow("H4", "Any task head and any objective on any body, where shapes allow",
            (
            "tests/unit/report/test_bodies.py::test_what_fits_trains",
            "tests/unit/report/test_bodies.py::test_what_does_not_fit_is_refused_in_the_same_words",
            "tests/unit/tasks/test_tasks_on_bodies.py::test_a_task_learns_or_is_refused",
        ), "works"),
    BookRow("H5", "On the device: distilled, pruned, quantized, measured"),
))

CHAPTERS = (FOUNDATIONS, UNDERSTANDING, GENERATION, ADAPTING, SMALLER, KNOWLEDGE, LONGER, WHOLE)
"""All of it, in order."""

BOOK_HEADER = """# The Book

Every system that Saucier is to make, in the order of its chapters: the recipes that cook it, the tests that show it,
and how far it has come. Written by `saucier recipes --book`; a test holds this page current.

"""
COLUMNS = ("", "system", "recipes", "shown by", "state")


def book_page() -> str:
    """Return the whole page."""
    serving = recipes_by_row([recipe(name) for name in names()])
    return BOOK_HEADER + count_states() + "\n" + "\n".join(chapter_text(chapter, serving) for chapter in CHAPTERS)


def recipes_by_row(recipes: Sequence[Recipe]) -> dict[str, list[str]]:
    """Return the names of the recipes that serve each row."""
    serving: dict[str, list[str]] = {}
    for one in recipes:
        for number in one.book:
            serving.setdefault(number, []).append(one.name)
    return serving


def list_rows() -> list[BookRow]:
    """Return the rows of all chapters."""
    return [row for chapter in CHAPTERS for row in chapter.rows]


def count_states() -> str:
    """Count the rows by state."""
    states = [row.state for row in list_rows()]
    works, partly, not_yet = (states.count(state) for state in ("works", "partly", "not yet"))
    return f"{works} work, {partly} work partly, {not_yet} are not there yet.\n"


def chapter_text(chapter: Chapter, serving: Mapping[str, Sequence[str]]) -> str:
    """Return a chapter as a heading and a table."""
    lines = [f"## {chapter.letter}. {chapter.title}", "", markdown_row(COLUMNS), markdown_row(["---"] * len(COLUMNS))]
    return "\n".join(lines + [row_text(row, serving.get(row.number, ())) for row in chapter.rows]) + "\n"


def row_text(row: BookRow, recipes: Sequence[str]) -> str:
    """Return one line of a table."""
    state = f"{row.state}; missing: {row.missing}" if row.missing else row.state
    shown = "<br>".join(test_link(test) for test in row.tests)
    return markdown_row([row.number, row.system, ", ".join(f"`{name}`" for name in recipes), shown, state])


def test_link(test: str) -> str:
    """Return the name of a test as a link from the page to its file; of a benchmark likewise."""
    file, _, function = test.partition("::")
    return f"[{(function or file).removeprefix('test_').replace('_', ' ')}](../{file})"


def markdown_row(values: Sequence[str]) -> str:
    """Return one line of a markdown table."""
    return "|" + "|".join(f" {value} " if value else " " for value in values) + "|"


BODIES_HEADER = """# What trains what

Any objective trains any body where the shapes allow; where they do not, a recipe is refused before any text is read,
and the reason is the one below. Each objective stands here with its defaults. Written by `saucier recipes --bodies`;
tests hold this page current, and train every pair that is said to fit. What the objectives are:
[objectives.md](objectives.md).

"""
LENGTH_TOKEN = c.ConditionalMasked().length_token
TOKENIZER = WordPiece(special=SpecialTokens(
    pad="<pad>", bos="<s>", eos="</s>", cls="<cls>", sep="<sep>", mask="<mask>", sentinels=100,
    extra=(*c.MixtureOfDenoisers().mode_tokens, *c.MultilingualDenoising().tokens, LENGTH_TOKEN),
    single=f"{LENGTH_TOKEN} $A </s>"))
"""A tokenizer that has every token, and marks what goes on with a word."""
SIZE = {"dim": 16, "layers": 2, "heads": 2, "vocab": 200}
HEADS = (architecture.LanguageHead(tied=False), architecture.ReplacedTokenHead(), architecture.BidirectionalHead())
"""The heads that an objective may ask for; a recipe puts any of them on a body."""


def list_bodies() -> dict[str, architecture.Transformer]:
    """Return a small body of every kind, by what a table calls it."""
    prefix = architecture.Prefix()
    return {"encoder": FAMILIES["bert"](**SIZE, length=64),
            "encoder, two streams": FAMILIES["xlnet"](**SIZE, hidden=32),
            "encoder, two directions": FAMILIES["elmo"](dim=16, layers=2, cells=12, vocab=200, tied=True),
            "decoder": FAMILIES["gpt2"](**SIZE, length=64),
            "prefix decoder": FAMILIES["gpt2"](**SIZE, length=64, visibility=prefix),
            "encoder and decoder": FAMILIES["t5"](**SIZE, head_dim=8, hidden=32),
            "encoder and decoder, whole texts": FAMILIES["mask_predict"](**SIZE, hidden=32, mask=5, longest=512)}


def list_objectives() -> list[c.Single]:
    """Return every objective with its defaults."""
    return [kind() for kind in union_members(c.Single)]


def union_members(union: UnionType) -> Iterator[type[c.Single]]:
    """Yield the types of a union of unions."""
    for one in get_args(union):
        if isinstance(one, UnionType):
            yield from union_members(one)
        else:
            yield one


@dataclass(frozen=True, slots=True)
class ObjectiveOnBody:
    """An objective and a body, and why they do not go together, if they do not."""

    objective: c.Single
    body: architecture.Transformer
    """With the head that the objective asks for, where there is one that makes it fit."""
    reason: str | None


def check_pair(objective: c.Single, body: architecture.Transformer) -> ObjectiveOnBody:
    """Ask whether a body, with any head, can learn an objective."""
    several = isinstance(objective, c.MultilingualDenoising)
    data: Data = PairData() if objective.rows_read.kind == "text_pairs" else \
        LanguageData() if several else TextData()
    heads = (body.head,) if isinstance(body.head, architecture.LengthHead) else HEADS
    asked = [body.model_copy(update={"head": head}) for head in heads]
    reasons = [next((found.what for found in find_mismatches(objective, ObjectiveSetting(one, TOKENIZER, data))), None)
               for one in asked]
    best = reasons.index(None) if None in reasons else 0
    return ObjectiveOnBody(objective, asked[best], reasons[best])


def bodies_page() -> str:
    """Return docs/bodies.md."""
    kinds, reasons, lines = list_bodies(), dict[str, int](), []
    for objective in list_objectives():
        cells = []
        for body in kinds.values():
            reason = check_pair(objective, body).reason
            cells.append("yes" if reason is None else f"no ({reasons.setdefault(reason, len(reasons) + 1)})")
        lines.append(f"| `{objective.kind}` | " + " | ".join(cells) + " |")
    head = ["| objective | " + " | ".join(kinds) + " |", "|" + " --- |" * (len(kinds) + 1)]
    why = [f"{number}. {reason}" for reason, number in reasons.items()]
    return BODIES_HEADER + "\n".join([*head, *lines, "", *why]) + "\n"

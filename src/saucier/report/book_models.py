"""The first chapters of the Book as data: foundations, models that understand, models that write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RowState = Literal["works", "partly", "not yet"]


@dataclass(frozen=True, slots=True)
class BookRow:
    """One system of the Book. `tests` are pytest addresses; `missing` says what a row that works partly still lacks."""

    number: str
    system: str
    tests: tuple[str, ...] = ()
    state: RowState = "not yet"
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Rows that belong together."""

    letter: str
    title: str
    rows: tuple[BookRow, ...]


FOUNDATIONS = Chapter("A", "Foundations", (
    BookRow("A1", "Attention: scaled dot product; many heads, shared and grouped key-value heads",
            (
            "tests/unit/parts/test_attention.py::test_equals_the_definition",
            "tests/unit/parts/test_attention.py::test_a_query_that_sees_nothing_gives_zeros_forward_and_backward",
            "tests/laws/test_attention_paths.py::test_returning_weights_changes_nothing",
            "tests/laws/test_attention_paths.py::test_weights_are_weights",
        ), "works"),
    BookRow("A2", "What a position may see: all, the past, a prefix, real tokens, its own document",
            (
            "tests/laws/test_leaks.py::test_every_visibility_shows_what_it_says",
            "tests/laws/test_leaks.py::test_no_decoder_sees_the_future",
            "tests/laws/test_leaks.py::test_documents_of_a_packed_row_do_not_meet",
            "tests/laws/test_padding.py::test_what_stands_in_the_padding_does_not_matter",
        ), "works"),
    BookRow("A3", "The encoder-decoder Transformer, norms before or after, base size",
            (
            "benchmarks/multi30k.py",
            "tests/cli/test_cook.py::test_translation_is_scored_on_held_out_files",
            "tests/laws/test_cache.py::test_encoder_decoder_with_cache_equals_without",
            "tests/laws/test_leaks.py::test_a_decoder_sees_the_whole_source_and_only_its_own_past",
        ), "works"),
    BookRow("A4", "Positions: learned, sinusoidal, Shaw, Music Transformer, Transformer-XL, T5, rotary, ALiBi, "
            "DeBERTa, none",
            (
            "tests/unit/parts/test_attention.py::test_sinusoidal_positions_are_equation_19",
            "tests/unit/parts/test_attention.py::test_shaw_positions",
            "tests/unit/parts/test_attention.py::test_music_transformer_skew_equals_the_quadratic_form",
            "tests/unit/parts/test_attention.py::test_t5_buckets_are_exact_when_near_and_logarithmic_when_far",
            "tests/unit/parts/test_attention.py::test_rotary_scores_depend_only_on_the_distance_and_rotate_by_the_angle",
            "tests/unit/parts/test_attention.py::test_alibi_is_minus_slope_times_distance",
            "tests/laws/test_longer_than_trained.py::test_rotary_and_alibi_hold_where_learned_positions_fail",
            "tests/unit/parts/test_transformer_xl.py::test_weights_are_those_of_the_definition",
            "tests/unit/parts/test_disentangled.py::test_weights_are_those_of_the_definition",
            "tests/unit/parts/test_disentangled.py::test_log_buckets_are_exact_when_near_and_odd_functions",
        ), "works"),
    BookRow("A5", "Norms (layer, root mean square, none) and feed-forward layers (ReLU, GELU, gated)",
            (
            "tests/unit/parts/test_plain_norms.py::test_no_norm_is_a_gain_and_a_bias",
            "tests/unit/parts/test_activations.py::test_published_names_mean_the_same_function",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
        ), "works"),
    BookRow("A6", "Subword tokenizers: BPE, byte-level BPE, WordPiece, Unigram, SentencePiece files",
            (
            "tests/unit/text/test_train_tokenizer.py::test_byte_level_gives_back_every_unicode_string",
            "tests/unit/text/test_train_tokenizer.py::test_byte_pairs_merge_the_most_frequent_pair_each_time",
            "tests/unit/text/test_train_tokenizer.py::test_wordpiece_takes_the_longest_known_piece",
            "tests/unit/text/test_train_tokenizer.py::test_unigram_takes_the_likeliest_pieces",
            "tests/unit/text/test_tokenizer.py::test_ids_and_texts_of_published_tokenizers",
            "tests/unit/text/test_older_tokenizers.py::test_files_alone",
            "tests/unit/text/test_older_tokenizers.py::test_published_folders_without_tokenizer_json",
        ), "works"),
    BookRow("A7", "Scores: BLEU, ROUGE, perplexity, bits per byte, GLUE metrics, exact match and F1, entity F1",
            (
            "tests/unit/tasks/test_metrics.py::test_bleu_is_golden",
            "tests/unit/tasks/test_metrics.py::test_chrf_is_golden",
            "tests/unit/tasks/test_metrics.py::test_rouge_is_golden",
            "tests/unit/tasks/test_metrics.py::test_likelihoods",
            "tests/unit/tasks/test_scores.py::test_classes_are_golden",
            "tests/unit/tasks/test_scores.py::test_numbers_are_golden",
            "tests/unit/tasks/test_scores.py::test_squad_is_golden",
            "tests/unit/tasks/test_scores.py::test_entities_are_golden",
            "tests/unit/tasks/test_scores.py::test_intervals_hold_the_truth_nineteen_times_in_twenty",
        ), "works"),
    BookRow("A8", "Number formats and mixed precision",
            (
            "tests/unit/lens/test_numbers.py::test_stored_bits_are_those_of_torch",
            "tests/unit/lens/test_numbers.py::test_the_verb_prints_a_table_and_json",
            "tests/learn/test_objectives_learn.py::test_bfloat16_ends_within_one_percent_of_float32",
        ), "works"),
    BookRow("A9", "Recurrent encoder-decoders: RNN, LSTM, GRU",
            (
            "tests/unit/parts/test_recurrent.py::test_layers_are_torchs",
            "tests/unit/parts/test_recurrent.py::test_greedy_decoding_is_an_argmax_loop",
        ), "works"),
    BookRow("A10", "Attention over a recurrent encoder: Bahdanau, Luong global and local",
            (
            "tests/unit/parts/test_recurrent.py::test_bahdanau_is_its_equations",
            "tests/unit/parts/test_recurrent.py::test_luong_is_its_equations",
            "tests/cli/test_attention_map.py::test_the_map_of_a_pair",
        ), "works"),
    BookRow("A11", "Teacher forcing and scheduled sampling",
            (
            "tests/unit/objectives/test_scheduled_sampling.py::test_the_three_schedules_are_those_of_the_paper",
            "tests/unit/objectives/test_scheduled_sampling.py::"
            "test_predictions_take_the_place_of_true_tokens_as_often_as_the_schedule_says",
            "tests/learn/test_objectives_learn.py::test_the_loss_falls",
        ), "works"),
    BookRow("A12", "The key-value cache and its price; the output layer on the last position only",
            (
            "tests/laws/test_cache.py::test_decoder_with_cache_equals_without",
            "tests/laws/test_counting.py::test_the_counted_cache_is_the_allocated_one",
            "tests/laws/test_cache.py::test_last_only_is_the_last_of_all",
        ), "works"),
))

UNDERSTANDING = Chapter("B", "Understanding: encoders and their relatives", (
    BookRow("B1", "ELMo",
            (
            "tests/unit/objectives/test_bidirectional.py::test_the_loss_is_the_sum_of_both_directions",
            "tests/unit/parts/test_layer_mix.py::test_a_mix_is_its_equation",
            "tests/unit/parts/test_characters.py::test_the_network_is_convolutions_highways_and_a_map",
            "tests/unit/parts/test_characters.py::test_words_that_were_never_seen_get_vectors",
            "tests/unit/jobs/finetuning/test_characters.py::test_words_of_no_vocabulary_are_tagged_by_their_characters",
            "tests/unit/objectives/test_sampled.py::test_the_loss_is_a_softmax_over_target_and_drawn_tokens",
            "tests/unit/parts/test_layer_mix.py::test_the_published_size",
            "tests/learn/test_objectives_learn.py::test_the_loss_falls",
        ), "works"),
    BookRow("B2", "GPT-1 with its four task forms and the auxiliary language-model loss",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/unit/jobs/finetuning/test_transformed.py::test_a_text_is_classified_at_its_extract_token",
            "tests/unit/jobs/finetuning/test_transformed.py::test_a_premise_and_a_hypothesis_stand_around_a_delimiter",
            "tests/unit/jobs/finetuning/test_transformed.py::test_similarity_reads_both_orders_and_adds_their_vectors",
            "tests/unit/jobs/finetuning/test_transformed.py::test_choices_are_scored_by_the_double_head",
            "tests/unit/jobs/finetuning/test_transformed.py::test_the_loss_is_the_tasks_and_a_share_of_the_words",
        ), "works"),
    BookRow("B3", "BERT: masked words, next sentence, segments; base and large",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/unit/objectives/test_prediction.py::test_bert_has_two_losses_each_over_its_own_targets",
            "tests/unit/objectives/test_corruptions.py::test_masked_shares_are_15_percent_and_80_10_10",
            "tests/cli/test_cook.py::test_bert_learns_and_shows_its_guesses",
            "tests/unit/jobs/finetuning/test_finetune.py::test_a_task_is_learned_and_the_result_is_a_published_folder",
            "tests/unit/jobs/finetuning/test_finetune.py::test_numbers_are_learned",
            "tests/unit/jobs/finetuning/test_tagging.py::test_entities_are_learned_and_long_sentences_read_to_the_end",
            "tests/unit/jobs/finetuning/test_question_answering.py::test_answers_are_learned_also_that_there_is_none",
            "tests/unit/jobs/finetuning/test_multiple_choice.py::test_choices_are_learned_and_named_as_in_the_file",
        ), "works"),
    BookRow("B4", "XLNet: permutation language model, two streams, memory",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/laws/test_memory.py::test_a_permutation_leaks_nothing_to_the_one_who_asks",
            "tests/unit/parts/test_transformer_xl.py::test_the_second_stream_is_that_of_the_definition",
            "tests/unit/objectives/test_permutation.py::test_the_masks_of_a_small_example_are_those_of_the_figure",
            "tests/unit/objectives/test_permutation.py::test_no_target_sees_itself_or_a_later_one",
            "tests/learn/test_objectives_learn.py::test_the_loss_falls",
        ), "works"),
    BookRow("B5", "RoBERTa: dynamic masks, full sentences, byte-level BPE",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/objectives/test_corruptions.py::test_dynamic_masks_differ_by_step_and_static_ones_do_not",
            "tests/unit/objectives/test_masking.py::test_static_masks_have_as_many_copies_as_asked",
            "tests/unit/text/test_sentence_rows.py::"
            "test_full_sentences_go_on_into_the_next_document_behind_a_separator",
            "tests/unit/text/test_sentence_rows.py::test_document_sentences_never_cross_and_batches_grow",
            "tests/unit/text/test_sentence_rows.py::test_pairs_of_single_sentences_make_up_for_their_length",
        ), "works"),
    BookRow("B6", "Megatron-LM: layers split over processes"),
    BookRow("B7", "XLM and XLM-R: translation language model",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/objectives/test_parallel.py::test_the_target_stands_behind_its_source_and_begins_anew",
            "tests/unit/objectives/test_parallel.py::test_languages_and_reset_places_reach_the_model",
            "tests/unit/text/test_languages.py::test_languages_come_by_their_shares",
        ), "works"),
    BookRow("B8", "DeBERTa, versions 1 to 3",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_disentangled.py::test_weights_are_those_of_the_definition",
            "tests/unit/parts/test_disentangled.py::test_log_buckets_are_exact_when_near_and_odd_functions",
        ), "works"),
    BookRow("B9", "SpanBERT, whole-word, n-gram and PMI masking",
            (
            "tests/unit/objectives/test_masking.py::test_words_are_hidden_whole_and_the_budget_is_kept",
            "tests/unit/objectives/test_masking.py::test_spans_have_geometric_lengths_and_one_fate",
            "tests/unit/objectives/test_masking.py::test_runs_of_n_words_are_as_likely_as_one_over_n",
            "tests/unit/objectives/test_masking.py::test_known_n_grams_are_hidden_whole",
            "tests/unit/objectives/test_boundary.py::test_equals_the_definition_and_is_added_to_the_tokens",
            "tests/unit/objectives/test_boundary.py::test_only_the_tokens_around_a_span_are_read",
            "tests/unit/text/test_collocations.py::test_the_measure_is_that_of_the_definition",
        ), "works"),
    BookRow("B10", "BERT for a domain or a language; pretraining continued on one's own text",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/cli/test_continued.py::test_a_published_encoder_gets_a_head",
            "tests/cli/test_continued.py::test_new_words_get_tokens_and_vectors",
            "tests/unit/text/test_extension.py::test_the_domain_is_spelled_in_fewer_tokens_and_the_rest_as_before",
        ), "works"),
    BookRow("B11", "Feed-forward layers read as key-value memories"),
))

GENERATION = Chapter("C", "Generation", (
    BookRow("C1", "GPT-2 in four sizes",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/golden/test_published_folders.py::test_saved_again_it_is_the_same_checkpoint",
            "tests/unit/jobs/prompting/test_likelihood.py::test_decoders_find_answers_as_likely_as_transformers_does",
            "tests/unit/jobs/prompting/test_job.py::test_the_exact_text_is_sent_and_kept",
        ), "works"),
    BookRow("C2", "GPT-3: tasks from zero, one or a few examples in the prompt",
            (
            "tests/unit/jobs/prompting/test_likelihood.py::test_decoders_find_answers_as_likely_as_transformers_does",
            "tests/unit/jobs/prompting/test_likelihood.py::test_encoder_decoders_find_targets_as_likely_as_transformers_does",
            "tests/unit/jobs/prompting/test_job.py::test_the_exact_text_is_sent_and_kept",
            "tests/cli/test_prompt.py::test_answers_are_written",
            "tests/unit/recipes/test_gpt3.py::test_the_plan_of_gpt3_has_the_published_figures",
        ), "works"),
    BookRow("C3", "BART: five noises; translation with a new source encoder",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_counts_of_encoder_decoders.py::test_counts",
            "tests/unit/parts/test_two_sides.py::test_a_label_is_read_where_the_source_ends",
            "tests/unit/objectives/test_noise.py::test_bart_permutes_all_sentences_and_hides_30_percent",
            "tests/unit/objectives/test_noise.py::test_infilled_spans_are_of_poisson_lengths",
            "tests/unit/objectives/test_staged.py::test_only_what_is_named_learns_at_first",
            "tests/unit/objectives/test_staged.py::test_then_everything_learns",
            "tests/cli/test_source_encoder.py::test_a_new_encoder_learns_first",
            "tests/learn/test_objectives_learn.py::test_the_loss_falls",
        ), "works"),
    BookRow("C4", "mBART: balanced sampling of languages, back-translation",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/unit/parts/test_two_sides.py::test_a_rotated_source_begins_with_its_last_real_token",
            "tests/unit/text/test_languages.py::test_shares_are_those_of_the_formulas",
            "tests/unit/objectives/test_multilingual.py::test_the_language_ends_both_sides_and_begins_the_decoder",
            "tests/cli/test_languages.py::test_source_and_target_are_told_as_the_family_is",
            "tests/cli/test_backtranslate.py::test_texts_become_pairs",
            "tests/cli/test_backtranslate.py::test_synthetic_pairs_are_learned_and_never_held_out",
        ), "works"),
    BookRow("C5", "T5: every task as text; span corruption, prefix language model, mixtures; v1.1, mT5",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/unit/objectives/test_corruptions.py::test_spans_can_be_put_back",
            "tests/cli/test_cook.py::test_t5_learns_to_mend",
            "tests/unit/objectives/test_noise.py::test_a_prefix_is_cut_evenly",
            "tests/unit/objectives/test_noise.py::test_replaced_spans_can_be_put_back",
            "tests/unit/jobs/finetuning/test_mixture.py::test_rates_are_those_of_the_source",
            "tests/unit/jobs/finetuning/test_mixture.py::test_every_epoch_keeps_the_rates_and_every_row_has_its_turn",
            "tests/unit/jobs/finetuning/test_mixture.py::test_numbers_and_classes_as_words",
            "tests/unit/jobs/finetuning/test_mixture.py::test_tasks_are_learned_together_and_scored_apart",
        ), "works"),
    BookRow("C6", "The T5 study: objectives, corruption rates, architectures and repeats compared",
            (
            "tests/cli/test_compare.py::test_different_objectives_are_compared_by_fine_tuning",
            "tests/unit/tasks/test_statistics.py::test_equal_methods_are_told_apart_one_time_in_twenty",
            "tests/unit/jobs/comparison/test_studies.py::test_every_arm_of_a_study_is_a_recipe",
            "tests/unit/config/test_tied_stacks.py::test_counted_parameters_are_those_of_the_built_model",
            "tests/unit/generation/test_prefix.py::test_the_prompt_is_the_prefix",
        ), "works"),
    BookRow("C7", "T-NLG and ZeRO: optimizer, gradients and weights sharded over processes"),
    BookRow("C8", "Mixtures of experts: GShard, Switch, GLaM",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/unit/parts/test_experts.py::test_equal_to_the_definition",
            "tests/unit/parts/test_experts.py::test_only_chosen_experts_are_computed",
        ), "partly", "training with the balance loss, GShard and GLaM"),
    BookRow("C9", "CTRL: control codes",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/generation/test_control_codes.py::test_what_is_written_follows_from_the_code",
        ), "works"),
    BookRow("C10", "GPT-Neo, GPT-J, GPT-NeoX, OPT, BLOOM, LLaMA, Mistral",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/unit/recipes/test_decoder_sizes.py::test_as_many_parameters_as_published",
        ), "works"),
    BookRow("C11", "M2M-100: many languages to many",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/unit/parts/test_two_sides.py::test_padding_has_no_position",
            "tests/cli/test_languages.py::test_source_and_target_are_told_as_the_family_is",
            "tests/cli/test_many_to_many.py::test_each_direction_is_counted_scored_and_shown",
            "tests/cli/test_many_to_many.py::test_the_target_language_is_forced_behind_the_end_token",
            "tests/unit/text/test_told.py::test_both_ways_are_learned_and_both_are_held_out",
            "tests/unit/text/test_told.py::test_a_text_that_is_held_out_is_learned_in_no_table",
            "tests/unit/text/test_told.py::test_directions_come_by_their_shares",
        ), "works"),
    BookRow("C12", "Decoding: greedy, beams, temperature, top-k, top-p, with a cache",
            (
            "tests/unit/generation/test_reference_ids.py::test_greedy",
            "tests/unit/generation/test_reference_ids.py::test_beams",
            "tests/unit/generation/test_reference_ids.py::test_what_is_sampled_from",
            "tests/unit/generation/test_golden_ids.py::test_stored_ids",
            "tests/laws/test_cache.py::test_reordered_cache_continues_the_reordered_rows",
        ), "works"),
    BookRow("C13", "Text from masked models: Gibbs, Metropolis-Hastings, Mask-Predict",
            (
            "tests/unit/generation/test_chains.py::"
            "test_metropolis_hastings_draws_from_the_distribution_of_its_energy",
            "tests/unit/generation/test_chains.py::test_gibbs_draws_one_place_from_its_conditional",
            "tests/cli/test_masked_generation.py::test_gibbs_fills_in_what_is_open",
            "tests/unit/generation/test_mask_predict.py::test_tokens_are_those_of_the_definition",
            "tests/unit/objectives/test_whole_text.py::"
            "test_the_number_of_hidden_tokens_is_even_from_one_to_all",
            "tests/learn/test_objectives_learn.py::test_the_loss_falls",
        ), "works"),
    BookRow("C14", "Sequence generation from pretrained encoders and decoders",
            (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/adaptation/test_warm.py::test_both_sides_of_bert2bert_are_bert",
            "tests/unit/adaptation/test_warm.py::test_a_shared_model_holds_each_weight_once",
            "tests/cli/test_warm_start.py::test_bert2bert_is_cooked_and_translates",
            "tests/cli/test_two_tokenizers.py::test_both_sides_begin_with_their_weights",
        ), "works"),
    BookRow("C15", "Scaling laws",
            (
            "tests/unit/jobs/comparison/test_scaling.py::test_a_law_of_size_and_data_is_found_again",
            "tests/cli/test_compare.py::test_runs_are_points_of_a_scaling_law",
        ), "works"),
))

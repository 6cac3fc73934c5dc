"""The later chapters of the Book: what is made of models, from adapting and shrinking them to the whole."""

from __future__ import annotations

from saucier.inspection.book_types import Chapter, Row

ADAPTING = Chapter("D", "Adapting and aligning", (
    Row("D1", "Fine-tuning for classification, regression, tagging, answers, translation, summaries",
        (
            "tests/unit/finetuning/test_finetune.py::test_a_task_is_learned_and_the_result_is_a_published_folder",
            "tests/unit/finetuning/test_finetune.py::test_numbers_are_learned",
            "tests/unit/finetuning/test_tagging.py::test_entities_are_learned_and_long_sentences_read_to_the_end",
            "tests/unit/finetuning/test_question_answering.py::test_answers_are_learned_also_that_there_is_none",
            "tests/unit/finetuning/test_multiple_choice.py::test_choices_are_learned_and_named_as_in_the_file",
            "tests/unit/finetuning/test_finetune.py::test_a_label_that_only_the_held_out_file_has_is_named",
        ), "partly", "summaries of whole documents that are better than the lead"),
    Row("D2", "LoRA and QLoRA",
        (
            "tests/unit/adaptation/test_lora.py::test_starts_as_no_change_and_comes_back",
            "tests/unit/adaptation/test_lora.py::test_only_the_pairs_get_gradients",
            "tests/unit/adaptation/test_nf4.py::test_qlora",
            "tests/checkpoints/test_peft.py::test_peft_reads_ours",
            "tests/checkpoints/test_peft.py::test_another_base_is_refused_where_we_wrote_the_adapter",
            "tests/cli/test_continued.py::test_a_tuned_run_learns_little_and_knows_its_base",
        ), "works"),
    Row("D3", "Prefix tuning and prompt tuning",
        (
            "tests/unit/adaptation/test_fronts.py::test_only_they_learn",
            "tests/unit/adaptation/test_fronts.py::test_generation_reads_them_once",
            "tests/unit/adaptation/test_fronts.py::test_a_prompt_before_the_target_is_tokens_of_its_own",
            "tests/checkpoints/test_peft_fronts.py::test_peft_reads_ours",
        ), "works"),
    Row("D4", "Instruction tuning",
        (
            "tests/unit/finetuning/test_instruction.py::test_every_answer_is_learned_and_nothing_else",
            "tests/unit/finetuning/test_instruction.py::test_a_chat_template_says_what_is_learned",
            "tests/unit/finetuning/test_instruction.py::test_conversations_in_one_row_are_learned_as_if_they_stood_alone",
            "tests/unit/finetuning/test_instruction.py::test_no_gradient_leaks_between_conversations_of_a_row",
            "tests/unit/finetuning/test_mixture.py::test_a_column_tells_tasks_apart_and_a_new_one_is_answered_too",
        ), "works"),
    Row("D5", "InstructGPT: reward model and PPO"),
    Row("D6", "Distilling step by step: rationales as a second task",
        (
            "tests/unit/finetuning/test_step_by_step.py::test_the_loss_is_the_answers_mean_and_lambda_times_that_of_the_reasons",
            "tests/unit/finetuning/test_step_by_step.py::test_each_prefix_asks_for_its_own",
        ), "partly", "a task on which reasons help: four were measured, and on none they do"),
))

SMALLER = Chapter("E", "Smaller", (
    Row("E1", "Knowledge distillation with soft and hard targets"),
    Row("E2", "DistilBERT and DistilGPT",
        (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
        ), "partly", "distillation from a teacher, every second layer, DistilGPT"),
    Row("E3", "TinyBERT"),
    Row("E4", "MobileBERT",
        (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_bottleneck.py::test_a_narrow_block_is_what_the_paper_draws",
        ), "partly", "the three ways of transfer"),
    Row("E5", "MiniLM",
        (
            "tests/checkpoints/test_sentence_folders.py::test_vectors_of_a_published_model",
            "tests/checkpoints/test_sentence_folders.py::test_sentences_that_mean_the_same_are_close",
        ), "partly", "its distillation"),
    Row("E6", "Magnitude pruning with retraining"),
    Row("E7", "LayerDrop"),
    Row("E8", "Poor Man's BERT: layers left out"),
    Row("E9", "FLOP: factorized pruning with L0"),
    Row("E10", "Head pruning: gates, confidence, importance"),
    Row("E11", "Q8BERT: 8-bit training with fake quantization"),
    Row("E12", "Q-BERT: bits by the Hessian, group by group"),
    Row("E13", "LQ-Nets: learned quantization"),
    Row("E14", "ALBERT: factorized embedding, shared layers, sentence order",
        (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/config/test_published_sizes.py::test_parameters_are_those_of_the_reference",
            "tests/unit/text/test_sentence_rows.py::test_the_order_of_two_pieces_is_swapped_half_of_the_time",
            "tests/unit/objectives/test_masking.py::test_runs_of_n_words_are_as_likely_as_one_over_n",
        ), "works"),
))

KNOWLEDGE = Chapter("F", "With knowledge", (
    Row("F1", "DPR: dense retrieval with two encoders",
        (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
        ), "partly", "training, the index, retrieval"),
    Row("F2", "ORQA: the inverse cloze task, latent retrieval"),
    Row("F3", "REALM: retrieval inside masked language modelling",
        (
            "tests/golden/test_published_folders.py::test_folder",
        ), "partly", "training with retrieval"),
    Row("F4", "RAG, by sequence and by token"),
    Row("F5", "GoldEn Retriever: one question in several hops"),
))

LONGER = Chapter("G", "Longer and cheaper", (
    Row("G1", "Deep character models with auxiliary losses",
        (
            "tests/unit/objectives/test_deeper.py::test_layer_l_of_n_rests_when_l_over_2n_of_the_training_is_over",
            "tests/unit/objectives/test_deeper.py::test_the_loss_is_the_sum_over_layers_and_distances",
            "tests/unit/objectives/test_deeper.py::"
            "test_the_published_model_has_219_million_weights_and_235_in_training",
            "tests/learn/test_objectives_learn.py::test_the_loss_falls",
        ), "works"),
    Row("G2", "Transformer-XL: memory across segments",
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
    Row("G3", "Longformer: windows, gaps and global tokens",
        (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_global_attention.py::test_global_tokens_by_definition",
            "tests/laws/test_sparse.py::test_a_plan_gives_what_the_dense_softmax_gives",
            "tests/laws/test_sparse.py::test_the_published_forms_of_gaps",
            "tests/laws/test_sparse.py::test_memory_grows_with_the_length_alone",
        ), "works"),
    Row("G4", "ETC: global and local attention",
        (
            "tests/unit/parts/test_etc.py::test_the_four_parts_and_their_labels",
            "tests/unit/parts/test_etc.py::test_a_global_input_stands_before_the_text",
            "tests/laws/test_sparse.py::test_memory_grows_with_the_length_alone",
        ), "works"),
    Row("G5", "BigBird: random, window and global blocks",
        (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/parts/test_blocks.py::test_attention_is_the_softmax_over_all_keys_and_their_repetitions",
            "tests/laws/test_sparse.py::test_drawn_blocks_are_read_as_they_are_drawn",
            "tests/laws/test_sparse.py::test_memory_grows_with_the_length_alone",
        ), "works"),
    Row("G6", "Sparse Transformer: strided and fixed patterns",
        (
            "tests/laws/test_sparse.py::test_the_published_forms_of_gaps",
            "tests/laws/test_leaks.py::test_every_visibility_shows_what_it_says",
            "tests/laws/test_sparse.py::test_what_the_patterns_cost_grows_as_the_root_of_the_length",
        ), "works"),
    Row("G7", "Reformer: hashed attention, reversible layers",
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
    Row("G8", "Linformer: keys and values projected to fewer",
        (
            "tests/unit/parts/test_low_rank.py::test_it_is_the_softmax_over_mixtures",
            "tests/unit/parts/test_low_rank.py::test_as_many_maps_as_published",
            "tests/unit/parts/test_low_rank.py::test_packed_documents_have_their_own_mixtures",
        ), "works"),
    Row("G9", "Performer: random features for softmax",
        (
            "tests/unit/parts/test_favor.py::test_sums_are_the_pairs_of_the_same_features",
            "tests/unit/parts/test_favor.py::test_the_error_falls_as_the_root_of_the_features",
            "tests/unit/parts/test_favor.py::test_products_of_features_have_the_mean_of_the_softmax_kernel",
            "tests/unit/parts/test_favor.py::test_a_cache_of_sums_gives_the_numbers_of_one_pass",
            "tests/unit/parts/test_favor.py::test_directions_are_drawn_anew_while_training_and_saved",
        ), "works"),
    Row("G10", "ELECTRA: telling replaced tokens",
        (
            "tests/golden/test_published_folders.py::test_folder",
            "tests/parity/test_random_configs.py::test_same_numbers_both_ways",
            "tests/unit/objectives/test_replaced.py::test_both_losses_are_those_of_the_definition",
            "tests/unit/objectives/test_replaced.py::test_no_gradient_goes_through_what_was_drawn",
            "tests/unit/objectives/test_replaced.py::test_any_encoder_has_a_generator",
        ), "works"),
))

WHOLE = Chapter("H", "The whole", (
    Row("H1", "Cleaning a crawl by the C4 rules, without duplicates, shuffled",
        (
            "tests/cli/test_clean.py::test_every_rule_takes_what_is_known_of_the_crawl",
            "tests/cli/test_clean.py::test_two_workers_of_an_engine_give_the_same_bytes",
            "tests/unit/text/cleaning/test_duplicates.py::test_near_duplicates_are_the_pairs_above_the_similarity",
            "tests/unit/text/cleaning/test_duplicates.py::test_shuffling_depends_on_the_seed_alone",
            "tests/unit/text/cleaning/test_rules.py::test_a_rule_of_documents_drops_what_it_names_and_keeps_prose",
            "tests/unit/text/cleaning/test_rules.py::test_a_rule_of_lines_removes_the_lines_it_names",
        ), "works"),
    Row("H2", "Attention in the browser: head, model and neuron views"),
    Row("H3", "Taxonomy and comparison tables made from the recipes"),
    Row("H4", "Any task head and any objective on any body, where shapes allow",
        (
            "tests/unit/inspection/test_bodies.py::test_what_fits_trains",
            "tests/unit/inspection/test_bodies.py::test_what_does_not_fit_is_refused_in_the_same_words",
            "tests/unit/tasks/test_tasks_on_bodies.py::test_a_task_learns_or_is_refused",
        ), "works"),
    Row("H5", "On the device: distilled, pruned, quantized, measured"),
))

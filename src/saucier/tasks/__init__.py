"""Tasks: from labelled rows to a prediction for each, scored, and compared with simple baselines. Import from the
submodules.

`task.py` says what a task is; `classification.py`, `tagging.py`, `question_answering.py`, `multiple_choice.py` and
`text_embedding.py` are tasks that read a text's vectors, `written/` those that write an answer; `build.py` knows
them
all. `metrics/` and `scores/` say how well it went, `*_baselines.py` what simple methods reach.
"""

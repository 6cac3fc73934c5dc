"""Tasks: from labelled rows to a prediction for each. Import from the submodules.

`task.py` says what a task is; `classification.py`, `tagging.py`, `question_answering.py`, `multiple_choice.py` and
`embedding.py` are tasks that read a text's vectors, `written/` those that write an answer. `metrics/` and `scores/` say
how well it went, `baselines/` what simple methods reach. Training and the folder of a result are in `finetuning`.
"""

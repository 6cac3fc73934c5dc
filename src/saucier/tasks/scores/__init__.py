"""Scores: predictions beside golds, by which metrics, and two methods compared. The metrics are in `metrics`.

`scored.py` chooses metrics and scores; `golds.py`, `predictions.py` and `matching.py` read files; `job.py` and
`table.py` are `saucier score`. Nothing here runs a model.
"""

from saucier.tasks.scores.scored import KINDS, Score, metrics_for, per_class, score, score_difference, scored

__all__ = ["KINDS", "Score", "metrics_for", "per_class", "score", "score_difference", "scored"]

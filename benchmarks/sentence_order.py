"""The order of sentences: does ALBERT learn more of it than the words at the edges of the pieces tell?

`python -m benchmarks sentence_order`. The rows of both are those of the run's own text; what is finished is kept in
`runs/sentence_order`. Source of the task: Lan et al. 2020, §3.1, arXiv:1909.11942.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cooking import kept, needed
from benchmarks.section import Row, Section
from benchmarks.tuned import named

RUNS = Path("runs/sentence_order")
NEAR = 8
"""Words of each end of a piece that the simple method looks at."""
DRAWS = {"train": 4, "held_out": 3}
"""How often every row is drawn, each time in a new order of its pieces."""
QUICK = ["training.steps=4", "training.evaluate_every=4", "model.dim=32", "--no-calibrate"]


def measure(quick: bool) -> Section:
    """Learn from running prose, and from Python's documentation, as the recipe stands."""
    prose = [needed("lm", "wikitext2", "train.txt")]
    texts = {"WikiText-2": ["--data", *map(str, prose), "data.document=line"], "Python's documentation": []}
    about = ("`albert-nano` as it stands (4,000 steps of 16 rows of 128 tokens, seed 0): which of two pieces of a text "
             "came first, right among the held-out rows; beside it a logistic regression that reads the "
             f"{NEAR} tokens at each end of both pieces, learned from the same rows in {DRAWS['train']} draws.")
    return Section("The order of sentences", about, [row(name, words, quick=quick) for name, words in texts.items()],
                   [f"`{RUNS}` holds the runs."])


def row(text: str, words: list[str], *, quick: bool) -> Row:
    """Cook from one text, unless that is done, and return its line."""
    run = RUNS / ("quick" * quick) / text.split("'")[0]
    found = kept("albert-nano", run, [*words, *(QUICK if quick else [])])
    ours, (simple, count) = named(found["scores"], "sentence-order accuracy")["value"], by_edges(run)
    return Row(text, f"{ours:.3f}", f"{simple:.3f} of {count:,} draws", target="above", reached=ours > simple)


def by_edges(run: Path) -> tuple[float, int]:
    """Return how often the simple method is right about held-out rows, and how many it was asked about."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    vocab = json.loads((run / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]

    def table(name: str) -> tuple[Any, list[bool]]:
        found = list(edges(run, name))
        places = [(number, end * len(vocab) + token) for number, (ends, _) in enumerate(found)
                  for end, tokens in enumerate(ends) for token in tokens]
        rows, columns = zip(*places, strict=True)
        return (csr_matrix(([1.0] * len(places), (rows, columns)), shape=(len(found), 4 * len(vocab))),
                [swapped for _, swapped in found])

    (train, answers), (held_out, wanted) = table("train"), table("held_out")
    model = LogisticRegression(C=0.1, max_iter=1000).fit(train, answers)
    return float(model.score(held_out, wanted)), len(wanted)


def edges(run: Path, name: str) -> Iterator[tuple[list[list[int]], bool]]:
    """Yield the tokens at the four ends of two pieces, and whether these are swapped."""
    from saucier import recipe
    from saucier.objectives.config import list_single_objectives
    from saucier.text.rows.sentences import SentencePairBatches
    from saucier.text.rows.store import TokenStore
    from saucier.text.tokenizer.tokenizer import load_tokenizer

    made, tokenizer = recipe(run / "recipe.yaml"), load_tokenizer(run / "tokenizer")
    (objective,) = list_single_objectives(made.objective)
    assert objective.rows_read.has_two_pieces and tokenizer.cls_id is not None and tokenizer.sep_id is not None
    pairs = SentencePairBatches(TokenStore(run / "store" / name), objective.rows_read, length=made.training.length,
                                batch=made.training.batch, cls=tokenizer.cls_id, sep=tokenizer.sep_id, seed=1)
    for step in range(DRAWS[name] * pairs.steps_per_epoch):
        batch = pairs[step]
        for tokens, mask, segments, swapped in zip(batch.tokens, batch.mask, batch.segments, batch.sentence_label,
                                                   strict=True):
            first, second = ([int(one) for one in tokens[mask & (segments == side)]
                              if one not in (tokenizer.cls_id, tokenizer.sep_id)] for side in (0, 1))
            yield [first[:NEAR], first[-NEAR:], second[:NEAR], second[-NEAR:]], bool(swapped)

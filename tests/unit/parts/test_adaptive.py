"""The adaptive softmax and the tables of clusters against their definitions in float64."""

from __future__ import annotations

import pytest
import torch
from tests.tolerances import PART, assert_close
from torch import Tensor

from saucier import InputError
from saucier import config as c
from saucier.model import Transformer, build
from saucier.objectives.prediction import Prediction
from saucier.parts.adaptive import AdaptiveHead

DIM, VOCAB, CUTOFFS = 8, 23, (5, 11)
SHAPES = {
    "tied": ({"width": 8, "division": 2}, {"width": 8, "division": 2, "tied_maps": (False, True, True)}),
    "tied, own maps": ({"width": 6, "division": 2}, {"width": 6, "division": 2}),
    "one width": (None, {"width": 8}),
    "one narrow width": ({"width": 6}, {"width": 6, "tied_maps": (True, False, True)}),
    "untied": (None, {"width": 4, "division": 2, "tied": False}),
    "untied, one width": (None, {"width": 4, "tied": False}),
}


def model(name: str) -> Transformer:
    """A decoder of one feed-forward with an adaptive head, in double precision, its weights random."""
    tables, head = SHAPES[name]
    projection = None
    if tables is not None:
        projection = c.ProjectClusters(cutoffs=CUTOFFS, **tables) if "division" in tables else \
            c.ProjectNarrow(kind="tokens", **tables, bias=False)
    block = c.Block(sublayers=(c.PreNorm(inner=c.FeedForward(hidden=7)),))
    config = c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB, projection=projection),
                           decoder=c.Stack(layers=c.Repeat(block=block, times=1)),
                           head=c.AdaptiveHead(cutoffs=CUTOFFS, **head))
    made = build(config).double().eval()
    assert sum(parameter.numel() for parameter in made.parameters()) == c.parameters(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made


def by_hand(made: Transformer, hidden: Tensor) -> Tensor:
    """Log probabilities [V] of one vector: p(token) = p(cluster) · p(token | cluster), Grave et al. 2017, §4."""
    head, embed = made.head, made.embed
    starts, ends = (0, *CUTOFFS), (*CUTOFFS, VOCAB)
    scores = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        tables = list(head.tables)
        if head.config.tied:
            tables = [table.weight for table in getattr(embed.tokens, "tables", [embed.tokens])]
        table = tables[number] if len(tables) > 1 else tables[0][start:end]
        narrow = hidden
        if table.shape[1] != DIM or head.config.division > 1:
            own = str(number) in head.maps
            shared = embed.tokens.maps[number].weight if hasattr(embed.tokens, "maps") else getattr(
                embed.project, "weight", None)
            narrow = hidden @ (head.maps[str(number)] if own else shared)
        if number == 0:
            table = torch.cat([table, head.cluster_weight])
        biases = torch.cat([head.bias[start:end], *([head.cluster_bias] if number == 0 else [])])
        scores.append(((table @ narrow) + biases).softmax(0))
    first = scores[0]
    return torch.cat([first[:5], first[5] * scores[1], first[6] * scores[2]]).log()


@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_and_losses_are_those_of_the_definition(name: str) -> None:
    made = model(name)
    assert isinstance(made.head, AdaptiveHead)
    hidden = torch.randn(40, DIM, generator=torch.Generator().manual_seed(1)).double()
    targets = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(2))
    found = made.head(hidden)
    expected = torch.stack([by_hand(made, one) for one in hidden])
    assert_close(found, expected, PART, name)
    assert_close(found.exp().sum(-1), torch.ones(40).double())
    assert_close(made.head.losses(hidden, targets), -expected.gather(1, targets[:, None])[:, 0], PART, name)


@pytest.mark.parametrize("name", ["tied", "tied, own maps"])
def test_every_token_has_the_vector_of_its_cluster(name: str) -> None:
    made = model(name)
    ids = torch.arange(VOCAB)[None].repeat(2, 1)
    tables, maps = made.embed.tokens.tables, made.embed.tokens.maps
    expected = torch.cat([table.weight @ project.weight.T for table, project in zip(tables, maps, strict=True)])
    assert_close(made.embed.tokens(ids)[1], expected)


@pytest.mark.parametrize("name", SHAPES)
def test_the_loss_of_training_is_that_of_evaluation_and_reaches_everything(name: str) -> None:
    made = model(name)
    ids = torch.arange(VOCAB)[None]
    batch = {"input_ids": ids, "labels": ids.flip(1)}
    loss = Prediction()(made, batch)
    loss.total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters())
    with torch.no_grad():
        again = Prediction()(made, batch)
        logits = made(ids).logits
    assert_close(again.total, loss.total.detach())
    assert again.figures["correct"].total == (logits.argmax(-1) == ids.flip(1)).sum()


def test_what_clusters_cannot_do_is_refused() -> None:
    made = model("one width")
    with pytest.raises(InputError, match="smoothing"):
        Prediction(0.1)(made, {"input_ids": torch.zeros(1, 2).long(), "labels": torch.zeros(1, 2).long()})
    faults = {
        "rise": {"head": c.AdaptiveHead(cutoffs=(11, 5), width=8)},
        "leaves nothing": {"head": c.AdaptiveHead(cutoffs=CUTOFFS, width=8, division=4, tied=False)},
        "other clusters": {"head": c.AdaptiveHead(cutoffs=CUTOFFS, width=4)},
        "tied_maps": {"head": c.AdaptiveHead(cutoffs=CUTOFFS, width=8, tied_maps=(True,))},
        "several widths": {"head": c.LanguageHead(), "embed": c.Embedding(
            vocab=VOCAB, projection=c.ProjectClusters(width=8, division=2, cutoffs=CUTOFFS))},
    }
    for word, change in faults.items():
        with pytest.raises(InputError, match=word):
            c.check(made.config.model_copy(update=change))

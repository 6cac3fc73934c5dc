"""Any config is either refused with a path and a remedy, or it builds, counts, runs, learns, decodes and comes back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, event, given, settings
from tests.laws.configs import POSITIONS, VOCAB, transformers
from tests.laws.zoo import scrambled, tokens
from tests.tolerances import MODEL, assert_close
from torch import Tensor

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.model import Transformer, build
from saucier.parts.output import Output

LENGTH = 7
WITHOUT_LOGITS = (c.SpanHead, c.EmbeddingHead, c.ReaderHead, c.JointSpanHead)
EXAMPLES = settings(max_examples=120, deadline=None, derandomize=True, print_blob=True,
                    phases=(Phase.explicit, Phase.generate, Phase.shrink),
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large,
                                           HealthCheck.filter_too_much])


def refusal(config: c.Transformer) -> InputError | None:
    """Return how a config is refused, or None for a legal one."""
    try:
        c.check(config)
    except InputError as error:
        return error
    return None


def legal(config: c.Transformer) -> bool:
    """Say whether a config is accepted; a refusal names a place inside it and a remedy, and `build` refuses it too."""
    error = refusal(config)
    if error is None:
        return True
    assert error.where is not None
    assert error.where.split(".")[0] in {*type(config).model_fields}
    assert error.remedy
    assert "\n" not in str(error)
    with pytest.raises(InputError):
        build(config)
    return False


def run(model: Transformer, ids: Tensor, cut: int = LENGTH) -> Output:
    """Run on ids [B, L]; an encoder-decoder reads them backwards on its other side. `cut`: target tokens kept."""
    rest = {"prefix_length": torch.tensor([2, 3]), **named(model.config)}
    if model.config.encoder and model.config.decoder:
        return model(ids.flip(1), decoder_input_ids=ids[:, :cut], **rest)  # type: ignore[no-any-return]
    return model(ids[:, :cut], **rest)  # type: ignore[no-any-return]


def named(config: c.Transformer) -> dict[str, Tensor]:
    """Return a mask of global tokens for models whose first stack knows such tokens."""
    stack = config.encoder or config.decoder
    assert stack is not None
    inner = [residual.inner for block in stack.blocks() for residual in block.sublayers]
    if not any(c.global_terms(part.visibility) for part in inner if isinstance(part, c.SelfAttention)):
        return {}
    return {"global_attention_mask": torch.tensor([[0, 1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]])}


def logits_shape(head: c.Head) -> tuple[int, ...]:
    """Say what shape the logits of a head have for two texts."""
    match head:
        case c.ClassificationHead(classes=classes):
            return 2, classes
        case c.TokenHead(classes=classes):
            return 2, LENGTH, classes
        case c.ReplacedTokenHead():
            return 2, LENGTH
        case c.ChoiceHead():
            return (2,)
        case _:
            return 2, LENGTH, VOCAB


@pytest.mark.slow
@EXAMPLES
@given(transformers())
def test_any_legal_config_builds_counts_and_runs(config: c.Transformer) -> None:
    """Shapes, finiteness, the count, the same without gradients, and the same starting weights for the same seed."""
    event(f"legal: {legal(config)}")
    if not legal(config):
        return
    model = build(config, seed=3).eval()
    assert c.parameters(config) == sum(parameter.numel() for parameter in model.parameters())
    assert all(parameter.isfinite().all() for parameter in model.parameters()), "a parameter was never given a value"
    output = run(model, tokens(config, 2, LENGTH))
    assert output.last_hidden_state is not None
    assert output.last_hidden_state.shape == (2, LENGTH, config.width)
    assert output.last_hidden_state.isfinite().all()
    with torch.inference_mode():
        alone = run(model, tokens(config, 2, LENGTH)).last_hidden_state
    assert_close(alone, output.last_hidden_state.detach())
    assert (output.logits is None) == (config.head is None or isinstance(config.head, WITHOUT_LOGITS))
    assert output.logits is None or output.logits.shape == logits_shape(config.head)
    again = build(config, seed=3).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
@EXAMPLES
@given(transformers())
def test_any_legal_config_learns(config: c.Transformer) -> None:
    """In training mode every parameter gets a gradient that is finite: nothing is built and then left out."""
    if not legal(config):
        return
    torch.manual_seed(0)
    model = build(config).train()
    output = run(model, tokens(config, 2, LENGTH))
    results = [output.logits, output.sentence_logits, output.pooler_output, output.last_hidden_state, output.mc_logits,
               output.start_logits, output.end_logits, output.span_logits, output.embeddings, output.relevance_logits]
    sum(result.square().mean() for result in results if result is not None).backward()
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    beside = "head.language." if isinstance(config.head, c.EmbeddingHead) else None  # it takes no part in the vector
    assert reached == {name for name, _ in model.named_parameters() if beside is None or not name.startswith(beside)}
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.slow
@EXAMPLES
@given(transformers())
def test_any_legal_config_comes_back_from_disk(config: c.Transformer) -> None:
    """Through JSON, and through a saved folder: the same tree, the same bits, the same numbers."""
    if not legal(config):
        return
    assert c.Transformer.model_validate_json(config.model_dump_json()) == config
    model = scrambled(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        back = saucier.load(Path(folder) / "model", dtype="float32", device="cpu")
    assert back.config == config
    mine, theirs = model.state_dict(), back.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    ids = tokens(config, 2, LENGTH)
    assert torch.equal(run(model, ids).last_hidden_state, run(back, ids).last_hidden_state)


@pytest.mark.slow
@EXAMPLES
@given(transformers())
def test_any_legal_causal_config_decodes_from_its_cache(config: c.Transformer) -> None:
    """Where no position sees a later one, decoding piece by piece equals one pass."""
    if not legal(config) or config.decoder is None or not causal(config.decoder):
        return
    model = scrambled(config)
    ids = tokens(config, 2, LENGTH)
    whole, cache, found = run(model, ids).last_hidden_state, model.new_cache(2, POSITIONS), []
    with torch.no_grad():
        for start, end in ((0, 3), (3, 4), (4, LENGTH)):
            target = {"decoder_input_ids": ids[:, start:end], "prefix_length": torch.tensor([2, 3])}
            output = model(ids.flip(1), **target, cache=cache, **named(config)) if config.encoder else model(
                ids[:, start:end], cache=cache, **named(config))
            found.append(output.last_hidden_state)
        assert_close(torch.cat(found, dim=1), whole, MODEL)


def causal(stack: c.Stack) -> bool:
    """Say whether no self-attention of the stack sees a later position."""
    inner = [residual.inner for block in stack.blocks() for residual in block.sublayers]
    return all(c.is_causal(part.visibility) for part in inner if isinstance(part, c.SelfAttention))

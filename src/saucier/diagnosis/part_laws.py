"""Laws of a config and the model built from it: what is counted, what learns, and that no gradient leads where nothing
may be seen. `laws` compares two ways to run a model; here one run is compared with what the config says.

Letters: B batch, L length, Q output places, K input places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from saucier import config as c
from saucier.config.registry import is_outside
from saucier.diagnosis.doctor import Finding, check_saved_bits, draw_rows, examine_model
from saucier.diagnosis.laws import TextRow, make_batch
from saucier.diagnosis.scope import batch_reason, future_reason
from saucier.model import Transformer, build
from saucier.parts.output import Output

EXACT = 1e-9
"""Largest relative difference of two counts of work, which are sums in another order."""
CACHE = (3, 8, 5)
"""Rows, places and source tokens of the cache that is counted."""


class Watched:
    """A model whose token vectors are kept, so that outputs can be differentiated by them."""

    def __init__(self, model: Transformer) -> None:
        """Listen to the embeddings of a model."""
        self.model = model
        self.seen: list[Tensor] = []
        self.hooks = [embed.register_forward_hook(lambda module, inputs, output: self.seen.append(output))
                      for embed in filter(None, (model.embed, model.decoder_embed))]

    def stop(self) -> None:
        """Listen no longer."""
        for hook in self.hooks:
            hook.remove()

    def influence(self, output: Output, rows: int = 1) -> list[Tensor]:
        """Return for each embedded input which of its places [Q, rows·K] move each output place of row 0."""
        states = output.last_hidden_state
        assert states is not None, "every model gives it"
        probe = torch.randn(states.shape[-1], generator=torch.Generator().manual_seed(3)).to(states.dtype)
        found = [torch.zeros(states.shape[1], seen[:rows].flatten(0, 1).shape[0], dtype=torch.bool)
                 for seen in self.seen]
        for query in range(states.shape[1]):
            gradients = torch.autograd.grad((states[0, query] * probe).sum(), self.seen, retain_graph=True,
                                            allow_unused=True)
            for table, gradient in zip(found, gradients, strict=True):
                if gradient is not None:
                    table[query] = gradient[:rows].abs().sum(-1).flatten() > 0
        return found


def find_leaks(model: Transformer, rows: Sequence[TextRow]) -> Iterator[Finding]:
    """Say of gradients whether a place is moved by a later one, and a row by another row."""
    watched, name = Watched(model), "no gradient comes from a later place"
    if (reason := future_reason(model.config)) is not None:
        yield Finding(name, "does not apply", reason)
    else:
        by_target = watched.influence(model(**make_batch(model, rows[:1])))[-1]
        yield judge(name, [f"output {query} sees input {key}" for query, key in by_target.triu(1).nonzero().tolist()],
                    f"{len(by_target)} places")
    name = "no gradient comes from another row"
    if (reason := batch_reason(model.config)) is not None:
        watched.stop()
        yield Finding(name, "does not apply", reason)
        return
    watched.seen.clear()
    length = min(len(row.ids) for row in rows)
    output = model(**make_batch(model, [row.cut(length) for row in rows]))
    assert output.last_hidden_state is not None, "every model gives it"
    gradients = torch.autograd.grad(output.last_hidden_state[0].square().sum(), watched.seen)
    watched.stop()
    others = [number for gradient in gradients for number in range(1, len(gradient)) if gradient[number].any()]
    yield judge(name, [f"row 0 is moved by row {number}" for number in others], f"{len(rows)} rows")


def judge(name: str, faults: Sequence[str], fine: str) -> Finding:
    """Say that a law holds, or the first fault."""
    return Finding(name, "fails", faults[0]) if faults else Finding(name, "holds", fine)


def compare_counts(name: str, counted: float, found: float) -> Finding:
    """Say whether two counts agree."""
    gap = abs(counted - found) / (1 + abs(found))
    why = f"{counted:,.0f} counted, {found:,.0f} found"
    return Finding(name, "holds" if gap <= EXACT else "fails", why, gap, EXACT)


def check_counts(model: Transformer) -> Iterator[Finding]:
    """Parameters, work and the cache are those that the config says."""
    config = model.config
    yield compare_counts("parameters are those that are counted", c.parameters(config),
                         sum(parameter.numel() for parameter in model.parameters()))
    yield check_flops(model)
    if config.decoder is None or config.decoder.memory is not None:
        yield Finding("the cache has the size that is counted", "does not apply", "it keeps no cache")
        return
    rows, places, source = CACHE
    cache, ids = model.new_cache(rows, places), torch.zeros(rows, 2, dtype=torch.long)
    with torch.no_grad():
        if config.encoder is None:
            model(ids, cache=cache)
        else:
            model(torch.zeros(rows, source, dtype=torch.long), decoder_input_ids=ids, cache=cache)
    size = model.dtype.itemsize
    yield compare_counts("the cache has the size that is counted", c.cache_bytes(
        config, batch=rows, length=places, source_length=source, bytes_per_value=size), cache.bytes)


def check_flops(model: Transformer) -> Finding:
    """Products of matrices, as PyTorch counts them, once hidden scores are counted as if they were computed."""
    row = draw_rows(model)[0]
    length, once = len(row.ids), 2 * model.config.dim**2 if model.config.pooler and model.config.pooler.dense else 0
    batch = make_batch(model, [row if row.target is None else TextRow(row.ids, row.ids)])
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**{name: value for name, value in batch.items() if "mask" not in name}, output_attentions=True)
    return compare_counts("work is what is counted", length * unmasked_flops(model.config, length) + once,
                          counter.get_total_flops())


def unmasked_flops(config: c.Transformer, length: int) -> float:
    """Return the counted FLOPs a token as if every visibility were full, for kernels that compute hidden scores too."""
    hidden = 0.0
    for part in (part for stack in config.stacks for part in stack.attentions()):
        if part.kernel.exact or is_outside(part.kernel.kind):
            full, seen = (part.kernel.key_count(one, length) for one in (c.Full(), part.visibility))
            hidden += 4 * part.projection.widths(config.dim)[0] * (full - seen)
    return c.flops_per_token(config, length) + hidden


def check_learning(model: Transformer, rows: Sequence[TextRow]) -> Finding:
    """Every parameter gets a gradient that is finite: nothing is built and then left out."""
    model.train()
    output = model(**make_batch(model, rows))
    results = [value for name in Output.__dataclass_fields__ if isinstance(value := getattr(output, name), Tensor)]
    torch.stack([value.double().square().mean() for value in (*results, *output.more.values())
                 if value.requires_grad]).sum().backward()
    faults = [f"{name} gets no gradient" if one.grad is None else f"the gradient of {name} is not finite"
              for name, one in model.named_parameters() if one.grad is None or not bool(one.grad.isfinite().all())]
    model.zero_grad(set_to_none=True)
    model.eval()
    return judge("every parameter learns", faults, f"{sum(1 for _ in model.parameters())} tensors")


def scramble(model: nn.Module, seed: int) -> None:
    """Draw every parameter anew: a bias that is zero, or a gain that is one, hides faults."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            parameter.normal_(0.0 if parameter.dim() > 1 else 0.5, spread, generator=generator)


def examine_config(config: c.Transformer, seed: int = 0) -> Iterator[Finding]:
    """Build a model in 64 bits, and hold it to every law. Raises `InputError` for a config that is refused."""
    model = build(config, seed=seed, dtype=torch.float64).eval()
    scramble(model, seed)
    rows = draw_rows(model)
    yield from examine_model(model, rows)
    yield from find_leaks(model, rows)
    yield from check_counts(model)
    yield check_learning(model, rows)
    yield check_saved_bits(model.float())


PROJECTION = c.Projection(heads=4, kv_heads=2)
WHOLE = c.Projection(heads=4)
DIM, VOCAB = 24, 37


def stack_blocks(*inner: Any) -> c.Stack:
    """Return two blocks of these sublayers and a feed-forward."""
    block = c.Block(sublayers=tuple(c.PreNorm(inner=one) for one in (*inner, c.FeedForward(hidden=40))))
    return c.Stack(layers=c.Repeat(block=block, times=2), final_norm=c.LayerNorm())


def write_model(stack: c.Stack, head: Any = None) -> c.Transformer:
    """Return a small decoder."""
    return c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB), decoder=stack, head=head or c.LanguageHead())


def read_model(stack: c.Stack, head: Any = None) -> c.Transformer:
    """Return a small encoder."""
    return c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB), encoder=stack, head=head or c.LanguageHead(),
                         pooler=c.Pooler())


def list_models(part: c.Config) -> dict[str, Callable[[], c.Transformer]]:
    """Return what makes small models that hold a part, by what they are."""
    seen = {"decoder": c.Causal(), "decoder with a window": c.Causal() & c.Window(3), "encoder": c.Full()}

    def around(name: str, **slots: Any) -> Callable[[], c.Transformer]:
        make = read_model if name == "encoder" else write_model
        return lambda: make(stack_blocks(c.SelfAttention(visibility=seen[name], **slots)))

    match part:
        case c.Transformer():
            return {"model": lambda: part}
        case c.AttentionKernel():
            return {f"{name}, {heads} key-value heads": around(name, kernel=part, projection=projection)
                    for name in seen for heads, projection in ((2, PROJECTION), (4, WHOLE))}
        case c.PositionsInAttention():
            return {name: around(name, positions=part, projection=PROJECTION) for name in seen}
        case c.CustomSublayer():
            attention = {name: c.SelfAttention(projection=WHOLE, visibility=seen[name]) for name in seen}
            return {"decoder": lambda: write_model(stack_blocks(attention["decoder"], part)),
                    "encoder": lambda: read_model(stack_blocks(attention["encoder"], part))}
        case c.CustomHead():
            attention = {name: c.SelfAttention(projection=WHOLE, visibility=seen[name]) for name in seen}
            return {"decoder": lambda: write_model(stack_blocks(attention["decoder"]), part),
                    "encoder": lambda: read_model(stack_blocks(attention["encoder"]), part)}
        case _:
            return {}

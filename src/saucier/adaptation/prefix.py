"""Prefix-tuning and prompt tuning: what they begin as, and which models they fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch

from saucier import config as c
from saucier.adaptation import tuning as a
from saucier.config.questions import depends_on_order, list_key_widths, list_terms
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.embedding import Embedding
from saucier.parts.prefix import PrefixKeys, PrefixNetwork, SoftPrompt, TargetPrompt, TrainedValues


def writing_stack(config: c.Transformer) -> c.Stack:
    """Return the stack that a prefix is put into: the one that writes, or the only one."""
    stack = config.decoder or config.encoder
    assert stack is not None, "check() refuses a model without stacks"
    return stack


def add_prefix(model: Transformer, by: a.Prefix, generator: torch.Generator) -> None:
    """Put trained keys and values before the text. Raises `InputError` for a model that they do not fit."""
    stack = writing_stack(model.config)
    check_prefix_fits(model, stack, "a prefix")
    widths = list_key_widths(stack, model.config.dim)
    columns = 2 * sum(heads * width for heads, width in widths)
    made = TrainedValues(by.length, columns) if by.hidden is None else PrefixNetwork(by.length, columns,
                                                                                     dim=model.config.dim,
                                                                                     hidden=by.hidden)
    made.begin(generator)
    model.front = PrefixKeys(widths, made, by.length).to(model.device)
    model.front.by_distance = counts_distances(stack)


def add_prompt(model: Transformer, by: a.Prompt, generator: torch.Generator) -> None:
    """Put trained vectors before those of the tokens. Raises `InputError` for a model that they do not fit."""
    written = writing_stack(model.config)
    read = model.config.encoder or written
    if read is written and not isinstance(by.side, a.BeforeSource):
        raise InputError("this model has one side", where="tuning.side", remedy="leave it out")
    source = None if isinstance(by.side, a.BeforeTarget) else new_prompt(model, by, generator, read, model.embed)
    if isinstance(by.side, a.BeforeSource):
        model.front = source
    else:
        target = new_prompt(model, by, generator, written, model.decoder_embed or model.embed)
        model.front = TargetPrompt(target, source)


def new_prompt(model: Transformer, by: a.Prompt, generator: torch.Generator, stack: c.Stack,
               embed: Embedding) -> SoftPrompt:
    """Return the vectors before one side, as they begin. Raises `InputError` for a side that they do not fit."""
    check_prefix_fits(model, stack, "a prompt")
    if not hasattr(embed.tokens, "embedding_dim"):
        raise InputError("the token table is in clusters, so a prompt has no width", where="tuning",
                         remedy="use tuning.kind=prefix")
    prompt = SoftPrompt(by.length, int(cast(Any, embed.tokens).embedding_dim)).to(model.device)
    with torch.no_grad():
        if isinstance(by.start, a.FromNoise):
            prompt.vectors.uniform_(-by.start.reach, by.start.reach, generator=generator)
        else:
            ids = initial_ids(by.start, by.length, embed.config.vocab, generator)
            prompt.vectors.copy_(embed.scaled(embed.tokens(ids.to(prompt.vectors.device))))
    prompt.by_distance = counts_distances(stack)
    return prompt


def initial_ids(start: a.FromTokens | a.FromVocabulary, length: int, vocab: int,
                generator: torch.Generator) -> torch.Tensor:
    """Return the tokens whose vectors a prompt begins as. Raises `InputError` for ids that the model does not have."""
    if isinstance(start, a.FromVocabulary):
        return torch.randint(min(start.first, vocab), (length,), generator=generator)
    if wrong := [one for one in start.ids if not 0 <= one < vocab]:
        raise InputError(f"token {wrong[0]} is outside the vocabulary of {vocab}", where="tuning.start.ids",
                         remedy="use the model's own tokenizer")
    return torch.tensor([start.ids[place % len(start.ids)] for place in range(length)])


def check_prefix_fits(model: Transformer, stack: c.Stack, what: str) -> None:
    """Raise `InputError` for a model that counts places in a way that leaves no room before the text."""
    attentions = stack.attentions()
    if model.front is not None:
        fault = "there is one before the text already"
    elif not attentions or stack.memory is not None:
        fault = "its blocks have no attention to it" if not attentions else "it remembers earlier segments"
    elif not all(one.kernel.exact for one in attentions):
        fault = "its attention is cut into chunks"
    elif not all(depends_on_order(one.visibility) for one in attentions):
        fault = "its attention depends on which tokens stand where"
    else:
        return
    raise InputError(f"{what} does not fit this model: {fault}", where="tuning.kind", remedy="use lora")


def counts_distances(stack: c.Stack) -> bool:
    """Say whether attention depends on how far apart two columns are, padding counted."""
    return any(not isinstance(one.positions, c.NoPositions | c.Rotary)
               or any(isinstance(term, c.Window | c.Dilated | c.Strided) for term in list_terms(one.visibility))
               for one in stack.attentions())


def drop_prefix_network(model: Transformer) -> None:
    """Drop the network that makes a prefix while it is trained; its values stay."""
    if isinstance(model.front, PrefixKeys) and isinstance(model.front.made, PrefixNetwork):
        model.front.settle()
        rewrites = tuple(replace(one, by=one.by.model_copy(update={"hidden": None})) if isinstance(one.by, a.Prefix)
                         else one for one in model.provenance.rewrites)
        model.provenance = replace(model.provenance, rewrites=rewrites)

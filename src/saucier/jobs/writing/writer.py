"""Letting a model write: texts continued or translated, and the mask tokens of a text filled in; and the attention map
of a sentence pair, where the model looks in the source while it writes each token of the target.

Letters: H heads, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saucier.config import LengthHead, sees_prefix
from saucier.errors import InputError
from saucier.generation.decoding import Beams, Greedy, Strategy
from saucier.generation.plan_feed import write_rows
from saucier.generation.search import Listener, TextStream
from saucier.objectives.token_ids import TokenIds
from saucier.opened import OpenLowered, OpenModel, OpenWriter, room
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.generation.chains import Chains
    from saucier.jobs.run.language_pairs import Direction
    from saucier.lens.heat_map import HeatMap
    from saucier.objectives.config import Single


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that writes."""

    opened: OpenWriter
    longest: int
    """The most tokens of a text that it was trained on."""
    direction: Direction | None = None
    """Between which languages it translates; None: its own, or none."""

    @property
    def ids(self) -> TokenIds:
        """The special ids of what is written."""
        target = self.opened.tokenizer.target
        return TokenIds(target.vocab_size, target.pad_id, target.bos_id, target.eos_id)

    def translate(self, sources: Sequence[str], options: Mapping[str, Any]) -> list[str]:
        """Write the target of each source; `options` are those of generation, the likeliest one without any."""
        rows = [self.start(text)[: self.longest] for text in sources]
        most = min(self.longest, 2 * max(map(len, rows)) + 10)
        return self.generate(rows, {"do_sample": False, **options, "max_new_tokens": most})

    def write(self, prompt: str, options: Mapping[str, Any], listener: Listener | None = None) -> list[str]:
        """Write on from a prompt, or translate it; only what is new is returned.

        `options` are those of `saucier.generate`, with `max_new_tokens`.
        """
        ids = self.start(prompt)
        if not ids:
            raise InputError("there is no prompt, and this model has no token that begins a text", where="prompt",
                             remedy="give some text")
        return self.generate([ids], options, listener)

    def generate(self, prompts: Sequence[list[int]], options: Mapping[str, Any],
                 listener: Listener | None = None) -> list[str]:
        """Write for each row of ids, in the target language, as far as there is room; return the text of what is new.
        """
        used = 1 if self.opened.is_encoder_decoder else max(map(len, prompts))
        most = max(1, room(self.opened.model.config, options["max_new_tokens"], ahead=used))
        if self.writes_whole:  # nothing is drawn, and there are no beams
            options = {name: options.get(name) for name in ("strategy", "num_return_sequences")} | {"do_sample": False}
        given = {**self.special_tokens, **options, **self.target_start, "max_new_tokens": most,
                 "tokenizer": self.opened.tokenizer.target, "listener": listener}
        written = (write_rows(self.opened.model, prompts, **given) if isinstance(self.opened, OpenLowered)
                   else self.run_parts(self.opened, prompts, given))
        return [self.opened.tokenizer.target.decode(row[used:]) for row in written]

    def run_parts(self, opened: OpenModel, prompts: Sequence[list[int]], options: Mapping[str, Any]) -> list[list[int]]:
        """Write for each row by `saucier.generate`. A language model sees no part of a prompt as a prefix, any other
        all of it.
        """
        from saucier.generation.generate import generate
        from saucier.tasks.written.task import pad_rows

        ids, mask = pad_rows(prompts, opened.tokenizer.pad_id or 0, left=not opened.is_encoder_decoder)
        prefix = None
        if sees_prefix(opened.model.config.decoder):
            from saucier.objectives.config import Causal

            prefix = ids.new_zeros(len(ids)) if isinstance(self.objective, Causal) else None
        found: list[list[int]] = generate(opened.model, ids.to(opened.device), mask.to(opened.device),
                                          prefix_length=prefix, **options).tolist()
        return found

    @property
    def special_tokens(self) -> dict[str, Any]:
        """The special ids that generation takes: what the model's folder says of them, else the tokenizer's."""
        return {name: self.opened.model.generation.get(name, number)
                for name, number in self.ids.generation_options.items()}

    @property
    def target_start(self) -> dict[str, Any]:
        """The options that begin a target in its language."""
        return {} if self.direction is None else dict(self.direction.options)

    @property
    def writes_whole(self) -> bool:
        """Whether a target is written whole at once."""
        return isinstance(self.opened.model.config.head, LengthHead)

    def start(self, prompt: str) -> list[int]:
        """Return the ids of what is given: a source in its frame, or a text to go on with, after what begins a text.

        A decoder that has learned to write targets after their sources gets a source, as it was trained on.
        """
        if self.direction is not None:
            return self.direction.encode(prompt, self.opened.tokenizer)
        source, noisy, objective = self.opened.is_encoder_decoder, False, self.objective
        if objective is not None:
            from saucier.objectives.config import Noisy, SequenceToSequence

            source, noisy = source or isinstance(objective, SequenceToSequence), isinstance(objective, Noisy)
        if source:
            return self.opened.tokenizer.encode(prompt)
        ids = self.opened.tokenizer.encode(prompt, add_special_tokens=False)
        end = [] if self.ids.eos is None else [self.ids.eos]
        if noisy:
            return ids + end
        begin = end if self.ids.bos is None else [self.ids.bos]
        return begin + ids

    @property
    def objective(self) -> Single | None:
        """The objective by which a decoder alone writes: that of a language model, if it has learned it, or else the
        first."""
        if (recipe := self.opened.recipe) is None:
            return None
        from saucier.objectives.config import Causal, list_single_objectives

        known = list_single_objectives(recipe.objective)
        return next((one for one in known if isinstance(one, Causal)), known[0] if known else None)


def choose_decoding(*, beams: int = 1, length_penalty: float = 1.0, temperature: float = 0.8, top_k: int | None = None,
                    top_p: float | None = None, seed: int | None = None) -> dict[str, Any]:
    """Return the options of generation for how tokens are chosen: with beams, the likeliest at temperature 0, or drawn.

    What is None stays as the model's own defaults have it; one text is written, without further constraints.
    """
    plain = {"num_return_sequences": 1, "stop_strings": (), "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    if beams > 1:
        return plain | Beams(beams=beams, length_penalty=length_penalty).options()
    if temperature == 0:
        return plain | Greedy().options()
    return plain | {"num_beams": 1, "do_sample": True, "temperature": temperature, "top_k": top_k, "top_p": top_p,
                    "seed": seed}


def goes_on(opened: OpenWriter) -> bool:
    """Say whether a model writes on from a prompt, which a person then reads before the text."""
    return opened.model.config.encoder is None


def write_freely(opened: OpenWriter, prompt: str, options: Mapping[str, Any], *, direction: Direction | None = None,
                 speak: Callable[[str], None] | None = None) -> list[str]:
    """Let an opened model write; `speak` is given a language model's prompt, then the text while it is written.

    `options` are those of `Writer.write`.
    """
    writer = Writer(opened, opened.trained_length(options["max_new_tokens"]), direction)
    if speak is None:
        return writer.write(prompt, options)
    if writer.writes_whole:
        whole = writer.write(prompt, options)
        speak("".join(whole))
        return whole
    before = [prompt] if goes_on(opened) else []

    def aloud(piece: str) -> None:
        speak("".join([*before, piece]))  # the prompt with the first piece: options that are refused come before both
        before.clear()

    stream = TextStream(opened.tokenizer.target, aloud)
    written = writer.write(prompt, options, stream)
    stream.close()
    aloud("")
    return written


CHAINS = ("gibbs", "metropolis_hastings")
"""Strategies that fill in the mask tokens of a text."""


def read_strategy(text: str, tokenizer: Tokenizer) -> Strategy:
    """Understand `gibbs steps=200 order=sequential`: a kind, and its settings. Raises `InputError`."""
    import yaml
    from pydantic import TypeAdapter, ValidationError

    kind, *settings = text.split() or [""]
    values: dict[str, Any] = {"kind": kind}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"{setting!r} is no setting", where="--strategy", remedy="write name=value")
        values[name] = yaml.safe_load(value)
    if kind in CHAINS and tokenizer.mask_id is None:
        raise InputError("the tokenizer has no mask token", where="--strategy",
                         remedy="leave it out, or use a masked language model")
    known = {"mask": tokenizer.mask_id} if kind in CHAINS else {}
    try:
        return TypeAdapter(Strategy).validate_python(known | values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = " ".join(str(part) for part in fault["loc"][1:])
        raise InputError(f"{place}: {fault['msg']}".removeprefix(": "), where="--strategy",
                         remedy="docs/masked-generation.md lists the kinds and their settings") from error


def encode_masked_text(prompt: str, masks: int, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text in its frame, with a number of mask tokens after it. Raises `InputError` without any."""
    token = tokenizer.mask_id
    assert token is not None, "read_strategy refuses such a tokenizer"
    name = str(tokenizer.id_to_token(token))
    ids = tokenizer.encode(" ".join(part for part in (prompt, *[name] * masks) if part))
    if token not in ids:
        raise InputError(f"there is no {name} in the text, so nothing is to be written", where="prompt",
                         remedy=f"write {name} where words are wanted, or --masks 12 for so many behind the text")
    return ids


def fill_masks(opened: OpenModel, prompt: str, masks: int, options: Mapping[str, Any]) -> tuple[list[str], Chains]:
    """Let an opened model write where the prompt has mask tokens, and say how the chains went. Raises `InputError`."""
    import torch

    from saucier.generation.chains import walk  # few texts are filled in

    tokenizer = opened.tokenizer
    ids = torch.tensor([encode_masked_text(prompt, masks, tokenizer)], device=opened.device)
    done = walk(opened.model, ids, torch.ones_like(ids), suppress_tokens=tuple(tokenizer.special_ids), **options)
    return [tokenizer.decode(row) for row in done.ids.tolist()], done


BEAMS, LONGEST_TARGET = 4, 128
"""How a target is written where none is given."""


def attention_map(opened: OpenModel, source: str, target: str | None = None, *, layer: int = -1,
                  head: int | None = None, way: Direction | None = None) -> HeatMap:
    """Return what an encoder-decoder looks at while it writes a target; without one, while it writes its own.

    `layer` counts the attentions to the encoder, from 0 or, if negative, from the end; `head` None: their mean. The row
    of a token is the step that predicts it. Source: Bahdanau et al. 2015, §5.2.1 and figure 3, arXiv:1409.0473.
    Raises `InputError` for a model without attention to an encoder, and for a layer or head that it has not.
    """
    from saucier.lens.heat_map import HeatMap, clean_labels

    longest = opened.trained_length(LONGEST_TARGET)
    writer = Writer(opened, longest, way)
    if not opened.is_encoder_decoder:
        raise InputError("a map of a pair shows a decoder that looks at an encoder", where=str(opened.path),
                         remedy="give an encoder-decoder")
    source_ids = writer.start(source)[:longest]
    text = writer.translate([source], {"num_beams": BEAMS})[0] if target is None else target
    written = opened.tokenizer.target.encode(text) if way is None else way.written(text, opened.tokenizer)
    target_ids = written[:longest]
    weights = select_attention_head(cross_attention_weights(opened, writer, source_ids, target_ids), str(opened.path),
                                    layer=layer, head=head)
    pieces = [clean_labels([tokenizer.id_to_token(one) or str(one) for one in ids])
              for tokenizer, ids in ((opened.tokenizer.target, target_ids), (opened.tokenizer, source_ids))]
    return HeatMap(pieces[0], pieces[1], tuple(tuple(row) for row in weights.tolist()),
                   title="" if target is not None else text)


def cross_attention_weights(opened: OpenModel, writer: Writer, source: list[int],
                            target: list[int]) -> tuple[Tensor, ...]:
    """Return the weights of every attention to the encoder. Shapes: -> [H, T, S] each."""
    import torch

    read = [(writer.special_tokens | writer.target_start)["decoder_start_token_id"], *target[:-1]]
    with torch.inference_mode():
        ids, written = (torch.tensor([one], device=opened.device) for one in (source, read))
        output = opened.model.eval()(ids, decoder_input_ids=written, output_attentions=True)
    return tuple(weights[0].float().cpu() for weights in output.cross_attentions or ())


def select_attention_head(weights: tuple[Tensor, ...], where: str, *, layer: int, head: int | None) -> Tensor:
    """Return one attention's weights, of a head or their mean. Shapes: [H, T, S] each -> [T, S]."""
    if not weights:
        raise InputError("this decoder has no attention to its encoder", where=where,
                         remedy="give a model with attention; a thought vector cannot be drawn")
    if not -len(weights) <= layer < len(weights):
        raise InputError(f"there is no attention {layer} to the encoder", where="--layer",
                         remedy=f"use 0 to {len(weights) - 1}")
    found = weights[layer]
    if head is not None and not 0 <= head < len(found):
        raise InputError(f"there is no head {head}", where="--head", remedy=f"use 0 to {len(found) - 1}")
    return found.mean(0) if head is None else found[head]

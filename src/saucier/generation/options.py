"""The settings of generation: one frozen config with the names that transformers uses, checked once.

Values come from the call, then from the model's own defaults (as in generation_config.json), then from here. No
torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from saucier.config.base import Config
from saucier.errors import InputError, suggest_name
from saucier.generation.decoding import Native, Strategy, accept_kind_name

DEFAULT_NEW_TOKENS = 20
"""How many tokens are written where nobody says how many."""

LEAST_FACTOR = 1e-30
"""Scores that are divided by less, or multiplied by its inverse, are beyond the largest float32."""

SHOWN = 100
"""Letters of a wrong value that an error shows."""

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "encoder_repetition_penalty": (1,), "encoder_no_repeat_ngram_size": (0,), "num_beam_groups": (0, 1),
    "diversity_penalty": (0,), "penalty_alpha": (0,), "guidance_scale": (1,), "max_time": (),
    "exponential_decay_length_penalty": (), "sequence_bias": (), "watermarking_config": (), "token_healing": (0,),
    "constraints": (), "force_words_ids": (), "dola_layers": (), "prompt_lookup_num_tokens": (), "use_mtp": (0,),
    "speculation_type": (), "assistant_early_exit": (), "cache_config": ({},), "prefill_chunk_size": (),
    "cache_implementation": ("dynamic", "static", "offloaded", "offloaded_static", "sliding_window", "hybrid",
                             "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked")}
"""What transformers reads and we do not, with the values that ask for nothing, besides null; 0 is false too."""

NEUTRAL_SAMPLING_VALUES: dict[str, tuple[Any, ...]] = {
    "typical_p": (1,), "epsilon_cutoff": (0,), "eta_cutoff": (0,), "min_p": (0,), "top_h": ()}
"""The same, of what is read only where tokens are drawn."""

LEFT_TO_RIGHT_ONLY = ("num_beams", "length_penalty", "early_stopping", "repetition_penalty", "no_repeat_ngram_size",
                      "bad_words_ids", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
                      "min_new_tokens", "min_length", "stop_strings", "engine")
"""Options that speak of a text that grows at its end."""

TokenId = int


def wrap_single(value: Any) -> Any:
    """Take one stop string for a list of one, as transformers does."""
    return (value,) if isinstance(value, str) else value


class GenerationOptions(Config):
    """How `saucier.generate` writes: length, search, distribution, constraints, special tokens."""

    max_new_tokens: int | None = Field(default=None, gt=0)
    """The most tokens that are written, the prompt not counted; None: `max_length`, or else 20."""
    max_length: int | None = Field(default=None, gt=0)
    """The most tokens of prompt and text together; not read where `max_new_tokens` is given."""
    min_new_tokens: int = Field(default=0, ge=0)
    """The end tokens are forbidden before so many new tokens."""
    min_length: int = Field(default=0, ge=0)
    """The end tokens are forbidden while prompt and text together are shorter than this."""
    do_sample: bool = False
    """Draw tokens at random from the model's distribution instead of taking the likeliest."""
    temperature: float = Field(default=1.0, gt=0)
    """Scores are divided by it before sampling.

    Source: Ackley et al. 1985, "A learning algorithm for Boltzmann machines", §2.
    """
    top_k: int | None = Field(default=None, ge=0)
    """Sample from the k likeliest tokens only; None or 0: from all. Source: Fan et al. 2018, §5.1, arXiv:1805.04833."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the smallest set of tokens that holds this probability.

    Source: Holtzman et al. 2020, §3.1, arXiv:1904.09751.
    """
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    """Seed of the generator that samples; None: drawn from torch's global one."""
    use_cache: bool = True
    """Read each token once, beside what is kept of those before; False: read the whole text anew for each token.

    The tokens are the same, but where attention chooses what it sees by the whole text (Reformer's hashes).
    """
    num_beams: int = Field(default=1, gt=0, le=1024)
    """Hypotheses that beam search keeps; 1: no beam search. Source: Sutskever et al. 2014, §3.2, arXiv:1409.3215."""
    num_return_sequences: int = Field(default=1, gt=0, le=2**16)
    """Texts for each prompt: samples, or the best beams."""
    length_penalty: float = 1.0
    """A hypothesis scores its log probability divided by its new tokens to this power; above 0 favours long ones."""
    early_stopping: bool | Literal["never"] = False
    """Beam search ends when enough hypotheses ended (True), when no better is likely (False) or possible ("never")."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Scores of tokens that are already there are divided (or multiplied) by it.

    Source: Keskar et al. 2019, §4.1, arXiv:1909.05858.
    """
    no_repeat_ngram_size: int = Field(default=0, ge=0)
    """No n-gram of this size twice; 0: no limit. Source: Paulus et al. 2018, §2.5, arXiv:1705.04304."""
    bad_words_ids: tuple[tuple[TokenId, ...], ...] = ()
    """Token sequences that must not be written."""
    renormalize_logits: bool = False
    """Scores are made probabilities again after all else has changed them; beams add them up."""
    remove_invalid_values: bool = False
    """A score that is no number counts as 0, and an infinite one as the largest number, or the smallest."""
    suppress_tokens: tuple[TokenId, ...] = ()
    """Tokens that must not be written."""
    begin_suppress_tokens: tuple[TokenId, ...] = ()
    """Tokens that must not be written first."""
    forced_bos_token_id: TokenId | None = None
    """Written right after a start of one token (multilingual encoder-decoders)."""
    forced_eos_token_id: TokenId | tuple[TokenId, ...] | None = None
    """Written where the length is reached."""
    bos_token_id: TokenId | None = None
    """Begins a text that has no prompt."""
    eos_token_id: TokenId | tuple[TokenId, ...] | None = None
    """Ends a row."""
    pad_token_id: TokenId | None = None
    """Fills rows that ended early; None: the first end token."""
    decoder_start_token_id: TokenId | None = None
    """What an encoder-decoder's text begins with; None: `bos_token_id`."""
    stop_strings: Annotated[tuple[str, ...], BeforeValidator(wrap_single)] = ()
    """A row ends when its new text holds one of these; needs a tokenizer."""
    strategy: Strategy | None = None
    """How the text is written where not from left to right; None: from left to right."""
    engine: Annotated[Native, BeforeValidator(accept_kind_name)] | None = None
    """What computes the scores of the next token; None: the model's own parts."""

    @property
    def rows(self) -> int:
        """Rows that are written at a time, for each prompt."""
        return self.num_return_sequences if self.num_beams == 1 else self.num_beams

    @property
    def by_numpy(self) -> bool:
        """Whether a search can do with numpy: the native engine scores, and nothing is drawn, or made probabilities."""
        return self.engine is not None and not (self.do_sample or self.num_beams > 1 or self.renormalize_logits)

    @property
    def ends(self) -> tuple[TokenId, ...]:
        """The end tokens."""
        return as_tuple(self.eos_token_id)

    @property
    def pad(self) -> TokenId | None:
        """What fills a row that ended early."""
        return self.ends[0] if self.pad_token_id is None and self.ends else self.pad_token_id

    @property
    def padding(self) -> TokenId | None:
        """What stands at padding of a prompt that comes without a mask; None: nothing that could be told from text."""
        return None if self.pad_token_id in self.ends else self.pad_token_id

    def new_tokens(self, prompt: int) -> int:
        """Return the most tokens to write after a prompt of this length."""
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        if self.max_length is None:
            return DEFAULT_NEW_TOKENS
        if self.max_length <= prompt:
            raise InputError(f"the prompt has {prompt} tokens already, and max_length is {self.max_length}",
                             where="max_length",
                             remedy="give max_new_tokens")
        return self.max_length - prompt


def as_tuple(value: TokenId | tuple[TokenId, ...] | None) -> tuple[TokenId, ...]:
    """Return one, several or no ids as a tuple."""
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def resolve_options(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> GenerationOptions:
    """Put the call's options over the model's defaults; an option given as None leaves the default.

    Raises `InputError` for an unknown option, a value out of range, and for defaults of the model that we do not have.
    """
    said = {name: value for name, value in given.items() if value is not None}
    own = {name: value for name, value in defaults.items()
           if name in GenerationOptions.model_fields and value is not None}
    if "max_length" in said:  # the caller's length, whichever way it is said, goes before the model's
        own.pop("max_new_tokens", None)
    try:
        options = GenerationOptions.model_validate(own | said)
    except ValidationError as error:
        raise describe_error(error) from error
    refuse_unknown(defaults, sampled=options.do_sample)
    check_together(options)
    if options.strategy is not None:
        refuse_unread(options, said, options.strategy.kind)
    return options


def refuse_unread(options: GenerationOptions, said: Mapping[str, Any], strategy: str) -> None:
    """Raise `InputError` for an option of the call that a strategy does not read."""
    for name in LEFT_TO_RIGHT_ONLY:
        if name in said and getattr(options, name) != GenerationOptions.model_fields[name].default:
            raise InputError(f"is for texts written from left to right, and not read by {strategy}",
                             where=name, remedy="leave it out")


def refuse_unknown(defaults: Mapping[str, Any], *, sampled: bool) -> None:
    """Raise `InputError` for a default of the model that transformers follows and we cannot.

    What neither knows changes no token.
    """
    known = {**NEUTRAL_VALUES, **(NEUTRAL_SAMPLING_VALUES if sampled else {})}
    for name, value in defaults.items():
        if name in known and value is not None and value not in known[name]:
            raise InputError(f"{repr(value)[:SHOWN]}, which the model's defaults ask for, cannot be followed",
                             where=name, remedy="remove it from generation_config.json, or from model.generation")


def describe_error(error: ValidationError) -> InputError:
    """Return the first fault as one line: the option, what is wrong with it, and the remedy."""
    fault = error.errors(include_url=False)[0]
    name = str(fault["loc"][0])
    if len(fault["loc"]) > 1 and name == "strategy":
        return InputError(f"{fault['msg'].replace('Input should', 'should')}, not {fault['input']!r}",
                          where=".".join(map(str, fault["loc"])), remedy="docs/masked-generation.md lists its settings")
    if fault["type"] == "extra_forbidden" and (name in NEUTRAL_VALUES or name in NEUTRAL_SAMPLING_VALUES):
        return InputError(f"{repr(fault['input'])[:SHOWN]} cannot be followed: transformers has this option, we do not",
                          where=name, remedy="leave it out")
    if fault["type"] == "extra_forbidden":
        return InputError("unknown option of generate", where=name,
                          remedy=suggest_name(name, list(GenerationOptions.model_fields)))
    return InputError(f"{fault['msg'].replace('Input should', 'should')}, not {repr(fault['input'])[:SHOWN]}",
                      where=name, remedy=REMEDIES.get(name, "docs/generation.md lists the options"))


REMEDIES = {
    "num_beams": "1 is no beam search, 4 is usual",
    "repetition_penalty": "1 is none, 1.2 is usual",
    "top_p": "1 keeps all tokens, 0.9 is usual",
    "temperature": "for the likeliest token every time leave do_sample=False",
}
"""Option -> what to do instead of a value out of range."""


def check_together(options: GenerationOptions) -> None:
    """Refuse options that are each right and contradict each other."""
    sequences, beams = options.num_return_sequences, options.num_beams
    if beams > 1 and sequences > beams:
        raise InputError(f"{sequences} sequences of {beams} beams", where="num_return_sequences",
                         remedy=f"use num_beams={sequences}")
    if beams == 1 and sequences > 1 and not options.do_sample and options.strategy is None:
        raise InputError("the likeliest continuation is only one", where="num_return_sequences",
                         remedy="use do_sample=True or num_beams")
    for name in ("temperature", "repetition_penalty"):
        if not LEAST_FACTOR <= (value := getattr(options, name)) <= 1 / LEAST_FACTOR:
            raise InputError(f"is {value:g}, by which scores become infinite", where=name, remedy=REMEDIES[name])
    if options.stop_strings and options.pad is None:
        raise InputError("rows that end early must be filled", where="pad_token_id",
                         remedy="give pad_token_id or eos_token_id")
    for name in ("stop_strings", "bad_words_ids"):
        if not all(getattr(options, name)):
            raise InputError("an empty entry forbids or ends everything", where=name, remedy="remove it")

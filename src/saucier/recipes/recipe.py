"""`Recipe`: everything about one run as data, from the text to the samples, and what may stand under its
`model:`: a family with its hyper-parameters, or the whole tree of parts. The YAML files are in this folder.

The type of each family's hyper-parameters is made from the signature of its function: they are written down once.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Discriminator, Field, Tag, create_model

from saucier.adaptation.tuning import Tuning
from saucier.config import Head, SelfAttention, Transformer
from saucier.config.base import Config, rewrite_config
from saucier.config.kernels import Kernel
from saucier.config.model import Initialization
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.objectives.config import ObjectiveConfig
from saucier.objectives.config.distillation import Distillation
from saucier.text.config import Bytes, Characters, Data, TextData, TokenizerConfig
from saucier.training.hyperparameters import Training

TREE = "tree"
"""The tag of a model that is written out as a whole tree."""

COMMON = ("family", "head", "kernel", "initialization")
"""Keys that are no hyper-parameters of a family: every family has them."""


class Family(Config):
    """A `family` by name, and its hyper-parameters; what is left out has the published value."""

    family: str
    vocab: int | None = None
    """None: as many as the tokenizer has."""
    head: Head | None = None
    """What stands on top, in place of the family's own; None: the family's."""
    kernel: Kernel | None = None
    """How every self-attention weighs its keys, in place of the family's own ways; None: the family's."""
    initialization: Initialization | None = None
    """How weights begin, in place of the family's own way; None: the family's."""

    def tree(self, vocab: int, target_vocab: int | None = None) -> Transformer:
        """Return the whole config; `vocab` is used where the recipe does not say.

        `target_vocab`: the tokens of the side that writes, where it has a vocabulary of its own.
        """
        settings = {name: getattr(self, name) for name in type(self).model_fields if name not in COMMON}
        try:
            tree = FAMILIES[self.family](**(settings | {"vocab": self.vocab or vocab}))
        except ArithmeticError as error:
            none = [name for name, value in settings.items() if type(value) is int and value <= 0]
            raise InputError(f"no model has such a size: {error}", where=", ".join(none) or None,
                             remedy="give one above 0") from error
        tree = tree if self.kernel is None else with_kernel(tree, self.kernel)
        tree = tree if target_vocab is None else with_target_vocab(tree, target_vocab)
        given = {name: value for name in ("head", "initialization") if (value := getattr(self, name)) is not None}
        return tree.model_copy(update=given) if given else tree


def with_kernel(tree: Transformer, kernel: Kernel) -> Transformer:
    """Return a model whose self-attentions all have this kernel."""
    return rewrite_config(tree, lambda part: part.model_copy(update={"kernel": kernel})
                          if isinstance(part, SelfAttention) else part)


def with_target_vocab(tree: Transformer, vocab: int) -> Transformer:
    """Return a model whose decoder has its own token table; one of a single stack, which is refused later, as it is."""
    if tree.encoder is None or tree.decoder is None:
        return tree
    own = tree.output_embed.model_copy(update={"vocab": vocab, "tied": False})
    return tree.model_copy(update={"decoder_embed": own})


def family_type(name: str) -> type[Family]:
    """Return the type of a family's hyper-parameters: names, types and defaults as in the signature of its function."""
    signature = inspect.signature(FAMILIES[name], eval_str=True)
    fields: dict[str, Any] = {"family": (Literal[name], name)}
    fields |= {key: (found.annotation, found.default) for key, found in signature.parameters.items() if key != "vocab"}
    fields |= {"vocab": (int | None, None), "head": (Head | None, None), "kernel": (Kernel | None, None),
               "initialization": (Initialization | None, None)}
    return create_model(name, __base__=Family, __doc__=inspect.getdoc(FAMILIES[name]), **fields)


def tag_of(value: Any) -> str:
    """Tell a family from a whole tree: the first has a key `family`."""
    found = value.get("family", TREE) if isinstance(value, dict) else getattr(value, "family", TREE)
    return str(found)


if TYPE_CHECKING:
    Blueprint = Family | Transformer
else:
    choices = [Annotated[family_type(name), Tag(name)] for name in FAMILIES]
    Blueprint = Annotated[Union[(*choices, Annotated[Transformer, Tag(TREE)])], Discriminator(tag_of)]
"""A family, recognized by `family:`, or a `Transformer`."""

CHARACTER_VOCAB = 128
"""The vocabulary that is assumed of a character tokenizer before the text is read."""

Baseline = Literal["unigram", "ngram", "xz"]


class Claims(Config):
    """Figures that a recipe stands for; tests and benchmarks hold it to them."""

    parameters: int | None = None
    """Parameters of the published model, without what its authors do not count."""
    encoder_parameters: int | None = None
    """Parameters without the pretraining head, where that is what was published (BERT)."""
    bits_per_byte: float | None = None
    """At most so many bits per byte on held-out text, on the recipe's own data."""
    loss: float | None = None
    """At most this loss on held-out text, in nats a token."""
    bleu: float | None = None
    """At least this BLEU on held-out pairs."""


class Evaluation(Config):
    """What is measured on held-out text after training."""

    baselines: tuple[Baseline, ...] = ("unigram", "ngram", "xz")
    """What the model is compared with on running text."""
    batch: int = Field(default=16, gt=0)
    """Rows in one forward pass."""
    stride: int | None = Field(default=None, gt=0)
    """Causal models: score rows that overlap, each so many tokens after the last; None: no overlap."""
    tokens_while_training: int | None = Field(default=100_000, gt=0)
    """Evaluations during training score about so many held-out tokens; None: all, as after training."""
    beams: int = Field(default=4, gt=0)
    """Beams when translations are scored."""
    length_penalty: float = 1.0
    """Exponent of the length that a beam's score is divided by."""
    limit: int | None = Field(default=None, gt=0)
    """Score the translations of so many pairs only (of each direction, where languages are told)."""
    iterations: tuple[Annotated[int, Field(gt=0)], ...] = Field(default=(1, 4, 10), min_length=1)
    """Mask-Predict: translations are scored after so many iterations, each; samples have the last number of them."""
    length_candidates: int = Field(default=5, gt=0)
    """Mask-Predict: lengths that are tried for each translation."""


class Sampling(Config):
    """What is generated for samples.txt and the report."""

    prompts: tuple[str, ...] = ()
    """Texts to continue; none: the beginnings of held-out documents."""
    samples: int = Field(default=3, ge=0)
    """How many held-out texts are taken where there are no prompts."""
    prompt_tokens: int = Field(default=16, gt=0)
    """How much of a held-out document is given."""
    tokens: int = Field(default=200, gt=0)
    """The most new tokens."""
    temperature: float = Field(default=0.8, ge=0)
    """0 takes the likeliest token every time."""
    top_k: int | None = Field(default=None, gt=0)
    """Draw from the likeliest k tokens only; None: from all."""
    top_p: float | None = Field(default=0.95, gt=0, le=1)
    """Draw from the likeliest tokens that hold this probability; None: from all."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Above 1 tokens that are there already are less likely."""
    seed: int = Field(default=0, ge=0)
    """Of the first sample; the others count on."""


class WarmStart(Config):
    """Models of one stack whose weights the sides of an encoder-decoder begin with.

    Source: Rothe et al. 2020, §3, arXiv:1907.12461.
    """

    tokenizer: str
    """Folder of the model whose tokenizer cuts sources and targets."""
    target_tokenizer: str | None = None
    """Folder of the model whose tokenizer cuts the targets, where that is another one."""
    encoder: str | None = None
    """Folder of the model for the side that reads; None: random weights."""
    decoder: str | None = None
    """Folder of the model for the side that writes; None: random weights."""


def vocab_size_of(tokenizer: TokenizerConfig) -> int:
    """Return the size of a vocabulary as far as it is known before the text is read."""
    match tokenizer:
        case Characters():
            return CHARACTER_VOCAB
        case Bytes(special=special):
            names = (special.pad, special.unk, special.bos, special.eos, special.cls, special.sep, special.mask)
            return 256 + sum(name is not None for name in names) + len(special.extra) + special.sentinels
        case _:
            return tokenizer.vocab


class Recipe(Config):
    """Everything about one run as data."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """Also that of the run folder."""
    about: str = ""
    """One sentence for the table of recipes."""
    paper: str = ""
    """Who published it, and where."""
    year: int | None = None
    """When it was published."""
    book: tuple[str, ...] = ()
    """Rows of the Book that the recipe serves."""
    claims: Claims = Claims()
    """Figures that it stands for."""
    blueprint: Blueprint = Field(alias="model")
    """The architecture, as it is written in the file."""
    tokenizer: TokenizerConfig
    """How text becomes tokens."""
    target_tokenizer: TokenizerConfig | None = None
    """How targets become tokens, where the sides of an encoder-decoder have vocabularies of their own; None: as all."""
    data: Data = TextData()
    """The text, and what of it is held out."""
    objective: ObjectiveConfig
    """What is learned."""
    training: Training
    """How long, with which optimizer, how often it is saved."""
    evaluation: Evaluation = Evaluation()
    """What is measured in the end."""
    sampling: Sampling = Sampling()
    """What is written in the end."""
    tuning: Tuning | None = None
    """What of the model that a run begins with (`--from`) learns, where not all of it does."""
    distillation: Distillation | None = None
    """A teacher that is learned from beside the objective, and whose tokenizer cuts the text; None: nobody."""
    warm_start: WarmStart | None = None
    """Whose weights the sides of an encoder-decoder begin with; None: random ones, or those of `--from`."""

    @property
    def family(self) -> str:
        """The family of the model, or `own` for a whole tree."""
        return self.blueprint.family if isinstance(self.blueprint, Family) else "own"

    @property
    def vocab(self) -> int:
        """The size of the vocabulary as far as it is known before the text is read."""
        return vocab_size_of(self.tokenizer)

    @property
    def target_vocab(self) -> int | None:
        """The size of the targets' vocabulary; None: they have that of the sources."""
        return None if self.target_tokenizer is None else vocab_size_of(self.target_tokenizer)

    @cached_property
    def model(self) -> Transformer:
        """The config tree of the model, with the vocabulary that the recipe says."""
        return self.model_for(self.vocab)

    def model_for(self, vocab: int) -> Transformer:
        """Return the config tree for a tokenizer of this size, which is used where `model.vocab` is not given."""
        return self.blueprint.tree(vocab, self.target_vocab) if isinstance(self.blueprint, Family) else self.blueprint

    def as_dict(self) -> dict[str, Any]:
        """Return all values, as they stand in a file."""
        return self.model_dump(mode="json", by_alias=True)

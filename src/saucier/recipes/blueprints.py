"""What may stand under `model:`: a family with its hyper-parameters, or the whole tree of parts.

The type of each family's hyper-parameters is made from the signature of its function: they are written down once.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Discriminator, Tag, create_model

from saucier.config import Head, SelfAttention, Transformer
from saucier.config.base import Config
from saucier.config.initialization import Initialization
from saucier.config.layers import Kernel
from saucier.config.rewriting import rewritten
from saucier.errors import InputError
from saucier.families import FAMILIES

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
    return rewritten(tree, lambda part: part.model_copy(update={"kernel": kernel})
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
"""A family, told apart by `family:`, or a `Transformer`."""

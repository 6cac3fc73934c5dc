"""The operations, as data. Needs no torch."""

from __future__ import annotations

from pydantic import Field

from saucier.config import GlobalTokens, NoTokens
from saucier.config.base import Config


class Windows(Config):
    """Every token sees its neighbours alone, and some tokens all. Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.

    An encoder becomes a Longformer: its global tokens get maps of their own, which begin as those of all tokens. In a
    decoder a token sees those before it, and none is global.
    """

    width: int = Field(gt=0)
    """How many neighbours a token of an encoder sees, half on each side; of a decoder: the tokens up to itself."""
    tokens: GlobalTokens = NoTokens()
    """The tokens that are global where the batch names none."""


class Blocks(Config):
    """A token of an encoder sees the blocks beside its own, those at both ends and some that are drawn: a BigBird.

    Source: Zaheer et al. 2020, §2 and appendix D, arXiv:2007.14062.
    """

    size: int = Field(default=64, gt=0)
    """Positions in a block."""
    drawn: int = Field(default=3, ge=0)
    """Blocks that are drawn for each block."""


class RandomFeatures(Config):
    """Weights of attention by random features, linear in the length: a Performer.

    Source: Choromanski et al. 2021, §2.3 and §4.3, arXiv:2009.14794.
    """

    count: int = Field(default=256, gt=0)
    """Features of a query and of a key."""


class MixedKeys(Config):
    """Attention to a few mixtures of keys, linear in the length: a Linformer; the maps begin as means of neighbours.

    Source: Wang et al. 2020, §4, arXiv:2006.04768.
    """

    rank: int = Field(default=128, gt=0)
    """Mixtures that a token sees."""


class Hashes(Config):
    """Other chunks and rounds of hashes for a model whose attention hashes: a Reformer.

    Source: Kitaev et al. 2020, §4 (table 2: learned with full attention or few rounds, read with others),
    arXiv:2001.04451.
    """

    chunk: int = Field(default=64, gt=0)
    """Positions in a chunk of the sorted row; a text that is no longer is seen whole."""
    rounds: int | None = Field(default=None, gt=0)
    """Hashes of each position; None: as many as before."""


class Positions(Config):
    """A longer table of positions, made of copies of the one that is there, block behind block.

    Source: Beltagy et al. 2020, §5, arXiv:2004.05150.
    """

    length: int = Field(gt=0)
    """Tokens that there is room for."""


class GroupedHeads(Config):
    """Fewer heads for keys and values, each the mean of a group.

    Source: Ainslie et al. 2023, §2.1, arXiv:2305.13245.
    """

    count: int = Field(gt=0)
    """Heads for keys and values; 1 is multi-query attention."""


class Layers(Config):
    """Other layers in a stack: some are left out, some come again with weights of their own.

    Source: Sanh et al. 2019, §2, arXiv:1910.01108, for every second layer; Gong et al. 2019, §3, ICML, for stacking.
    """

    order: tuple[int, ...] = Field(min_length=1)
    """The layers by their number, from 0, in their new order."""
    decoder: bool = False
    """Whether they are the decoder's of a model with two stacks."""


class Tokens(Config):
    """Fewer tokens, whose ids close up: those that a text uses, as `saucier.text.trimming` finds them."""

    kept: tuple[int, ...] = Field(min_length=1)
    """The old ids, in the order of the new ones."""

    def numbers(self) -> dict[int, int]:
        """Return the new id of each old one."""
        return {old: new for new, old in enumerate(self.kept)}


class NewTokens(Config):
    """More tokens, whose ids stand behind all others, as `saucier.text.extension` finds them.

    A new token begins as the mean of the pieces that spelled it.
    """

    first: int = Field(gt=0)
    """The id of the first one; the others follow."""
    pieces: tuple[tuple[int, ...], ...] = Field(min_length=1)
    """For each new token the ids that spelled it so far."""


Seen = Windows | Blocks | RandomFeatures | MixedKeys | Hashes
"""What a token sees, and how it is weighed."""
Operation = Seen | Positions | GroupedHeads | Layers | Tokens | NewTokens

"""Where running text is cut into rows, and which row follows which from step to step, as data. Needs no torch."""

from __future__ import annotations

from typing import Literal

from saucier.config.base import Config


class ShuffledRows(Config):
    """Rows of running text, cut at other places in every epoch, in a drawn order; each begins without a memory."""

    kind: Literal["shuffled"] = "shuffled"


class DocumentRows(Config):
    """Rows of whole documents, several in one where they fit, in a drawn order; each row begins without a memory.

    Documents that are longer than a row are divided among rows; what a row has left is padded. Held-out text is
    measured in the same way. For texts that are worth little in pieces: poems, functions, records.
    Source: Ding et al. 2024 (best-fit packing), §2, arXiv:2404.10830.
    """

    kind: Literal["documents"] = "documents"


class ConsecutiveRows(Config):
    """Each row of a step goes on where the same row of the step before ended, beside the model's memory of it.

    What is remembered was read with the weights of then. Held-out text is measured in the same way.
    Source: Dai et al. 2019 (Transformer-XL), §3.2, arXiv:1901.02860.
    """

    kind: Literal["consecutive"] = "consecutive"

"""What is kept of a teacher so that it reads each row once, as data. Needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class EveryLikelihood(Config):
    """All tokens, exactly: the vectors are kept that the teacher's head makes them of, and the head is applied again.
    """

    kind: Literal["exact"] = "exact"


class MostLikely(Config):
    """The K most likely tokens of each place, and what is left of the probability as one more outcome."""

    kind: Literal["most_likely"] = "most_likely"
    tokens: int = Field(default=64, gt=0)
    """K."""


class StoredOutputs(Config):
    """What the teacher gives is computed once for each row, before training, and read from the disk in every epoch.

    A row is known by all that the teacher reads of it, a store by the teacher's weights and config and by what is kept:
    nothing else is served. For a fine-tuning, whose rows are the same in every epoch.
    """

    tokens: Annotated[EveryLikelihood | MostLikely, Field(discriminator="kind")] = EveryLikelihood()
    """What is kept of soft targets over a vocabulary; all else is kept whole."""
    cast: Literal["float16"] | None = None
    """Round what is kept to 16 bits; None: as the teacher gives it."""
    limit: int = Field(default=4 * 2**30, gt=0)
    """Bytes that the rows of a training may take; more is refused before anything is trained."""
    folder: str | None = None
    """Where it is kept, for other students of the same teacher too; None: in the run's folder, until it is finished."""

    def located(self) -> StoredOutputs:
        """Return it with its folder named so that it means the same from everywhere."""
        return self if self.folder is None else self.model_copy(
            update={"folder": str(Path(self.folder).expanduser().absolute())})

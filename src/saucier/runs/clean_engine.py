"""Pieces of a cleaning made by datatrove, on this machine or on many (an extra).

A block is all that datatrove needs: each of its tasks takes every so many-th order. It leaves the pieces where
`saucier clean` looks for them, and that command, run again, goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from saucier.errors import InputError, SaucierError
from saucier.files import write_text
from saucier.text.cleaning.piece import Order, clean_piece

LOGS = "engine"
ERROR = ".error"


@dataclass(frozen=True, slots=True)
class CleanBlock:
    """A step of a datatrove pipeline that cleans its share of the orders."""

    orders: tuple[Order, ...]

    def __call__(self, data: Iterable[Any] | None, rank: int, world_size: int) -> None:
        """Make the pieces of one task that are not there yet; what is wrong with a file is noted beside its piece."""
        for order in self.orders[rank::world_size]:
            if order.target.is_dir():
                continue
            try:
                clean_piece(order)
            except SaucierError as error:
                write_text(order.target.with_suffix(ERROR), str(error))


def run_here(orders: Sequence[Order], workers: int) -> None:
    """Make pieces with processes of this machine. Raises `InputError` for a fault of a file, or without datatrove."""
    if not orders:
        return
    try:
        from datatrove.executor import LocalPipelineExecutor
        from loguru import logger
    except ImportError as error:
        raise InputError("several workers are run by datatrove, which is not installed", where="--workers",
                         remedy="pip install 'saucier[clean]', or use one worker") from error
    logger.disable("datatrove")  # the screen is ours; processes made by fork inherit this
    for order in orders:
        order.target.with_suffix(ERROR).unlink(missing_ok=True)
    LocalPipelineExecutor([CleanBlock(tuple(orders))], tasks=len(orders), workers=min(workers, len(orders)),
                          logging_dir=str(orders[0].target.with_name(LOGS)), skip_completed=False,
                          start_method="fork").run()
    raise_first(orders)


def raise_first(orders: Sequence[Order]) -> None:
    """Raise what was noted of the first file with a fault, if there is one."""
    for order in orders:
        noted = order.target.with_suffix(ERROR)
        if noted.exists():
            raise InputError(noted.read_text(encoding="utf-8"))

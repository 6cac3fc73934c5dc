"""One process or many (torchrun): who this one is, and everything that all of them do together: sums, gradients, the
tensors of a checkpoint, who writes and who waits. No wrapper around the model.

Each process works on its share of the global batch's rows; gradients are summed, since the loss is already divided by
the targets of the whole batch. Every process holds the whole model and optimizer; what would be otherwise with shards
is in `finish_gradients`, `gather_state`, `gather_rows` and `scatter_rows`, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor, nn

from saucier.text.rows.batch import take_share

TIMEOUT = timedelta(days=30)
"""How long processes wait for one that packs or scores alone; torch gives up after 10 or 30 minutes. One that died ends
the others at once: its connections close, and torchrun stops the rest."""
BUCKET = 2**24
"""Values in one message: few messages, and little memory next to the gradients."""


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among `world`; alone by default."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add a small tensor up over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def sums(self, values: dict[str, float]) -> dict[str, float]:
        """Add up named numbers; every process has the same names."""
        if self.world == 1:
            return values
        total = self.sum(torch.tensor([values[name] for name in sorted(values)], dtype=torch.float64))
        return dict(zip(sorted(values), total.tolist(), strict=True))

    def mean(self, value: float) -> float:
        """Return the mean of a number over all processes."""
        return self.sums({"value": value})["value"] / self.world

    def finish_gradients(self, parameters: list[nn.Parameter], limit: float | None) -> float:
        """Make the gradients of the own rows those of the whole batch, of a norm of at most `limit`; return the norm.

        The norm that is returned is that before the scaling.
        """
        self.sum_gradients(parameters)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if limit is not None and norm > limit:
            torch._foreach_mul_(gradients, limit / norm)
        return float(norm)

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Add gradients up over all processes; a parameter that no process used keeps None."""
        if self.world == 1:
            return
        used = self.sum(torch.tensor([float(p.grad is not None) for p in parameters])).tolist()
        shared = [p for p, count in zip(parameters, used, strict=True) if count]
        for parameter in shared:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for bucket in group_into_buckets([p.grad for p in shared if p.grad is not None]):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, summed in zip(bucket, flat.split([one.numel() for one in bucket]), strict=True):
                gradient.copy_(summed.view_as(gradient))

    def gather_rows(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Put the rows of all processes under one another, in order; a process without rows has no names, either.

        Shapes: [rows of this process, ...] -> [rows of all, ...].
        """
        if self.world == 1:
            return dict(values)
        kinds: list[dict[str, tuple[torch.Size, torch.dtype]]] = [{} for _ in range(self.world)]
        dist.all_gather_object(kinds, {name: (value.shape, value.dtype) for name, value in values.items()})
        whole = {}
        for name in max(kinds, key=len):
            ends = list(accumulate(one[name][0][0] if one else 0 for one in kinds))
            shape, dtype = next(one[name] for one in kinds if one)
            mine = values.get(name, torch.zeros(0, *shape[1:], dtype=dtype))
            wide = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype
            found = mine.new_zeros(ends[-1], *shape[1:], dtype=wide)  # adding zeros changes no number
            found[ends[self.rank] - len(mine):ends[self.rank]] = mine
            whole[name] = self.sum(found).to(dtype)
        return whole

    def scatter_rows(self, values: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """Take this process's rows out of what `gather_rows` put together; return them, and the number of the first.

        Shapes: [rows of all, ...] -> [rows of this process, ...].
        """
        mine = take_share(len(next(iter(values.values()))), self.rank, self.world)
        return {name: rows[mine] for name, rows in values.items()}, mine.start

    def gather_state(self, state: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """Return whole tensors on the process that writes them, nothing on others; every process calls this.

        Each process holds them whole, so that only the first one has to take them out.
        """
        return state() if self.first else {}

    def write_once(self, write: Callable[[], object], *, wait: bool = True) -> None:
        """Let the first process write while the others wait; `wait`: False where none of them reads it soon."""
        if self.first:
            write()
        if wait:
            self.wait()

    @contextmanager
    def first_goes_ahead(self) -> Iterator[None]:
        """Let the first process do something before all others, which then find what it wrote."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    def any(self, value: bool) -> bool:
        """Return whether any process says yes."""
        return value if self.world == 1 else bool(self.sum(torch.tensor(float(value))).item())

    def agree(self, value: bool) -> bool:
        """Return the first process's answer to all."""
        return bool(self.sum(torch.tensor(float(value and self.first))).item())


def group_into_buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Group tensors, in order, into messages of about `BUCKET` values."""
    group: list[Tensor] = []
    for tensor in tensors:
        if group and sum(t.numel() for t in group) + tensor.numel() > BUCKET:
            yield group
            group = []
        group.append(tensor)
    if group:
        yield group


@contextmanager
def join_processes() -> Iterator[Processes]:
    """Join the group that torchrun announces in the environment; alone without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes()
        return
    ours = not dist.is_initialized()
    if ours:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    try:
        yield Processes(dist.get_rank(), world)
    finally:
        if ours:
            dist.destroy_process_group()

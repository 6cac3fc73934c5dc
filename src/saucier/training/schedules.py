"""The learning rate over the steps, as a factor of its highest value. Pure functions; no torch."""

from __future__ import annotations

import math

from saucier.training import config as c


def factor(schedule: c.ScheduleConfig, step: int, steps: int) -> float:
    """Return the factor (0 … 1) for update number `step` (from 0) of `steps`. Sources: see each schedule's config."""
    number = step + 1
    if number <= schedule.warmup:
        return number / schedule.warmup
    progress = (number - schedule.warmup) / max(1, steps - schedule.warmup)
    match schedule:
        case c.Cosine(final=final):
            return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        case c.Linear(final=final):
            return final + (1 - final) * max(0.0, 1 - progress)
        case c.Polynomial(power=power, final=final):
            return float(final + (1 - final) * max(0.0, 1 - progress) ** power)
        case c.InverseSquareRoot(warmup=warmup):
            return math.sqrt(warmup / number)
        case c.Constant(cooldown=cooldown):
            return min(1.0, (steps - step) / cooldown) if cooldown else 1.0

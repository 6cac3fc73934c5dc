"""The one training loop and what it stands on: optimizers, schedules, precision, checkpoints, processes, reports."""

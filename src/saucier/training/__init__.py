"""The one training loop and what it is made of: optimizers, schedules, precision, checkpoints, processes, reports."""

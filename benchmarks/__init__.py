"""Measurements of speed and memory against others, in one run on one machine. `make bench` writes RESULTS.md."""

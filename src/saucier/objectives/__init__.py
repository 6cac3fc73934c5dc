"""What is learned: a corruption on the data side and a loss. `config` needs no torch; `build` makes both halves."""

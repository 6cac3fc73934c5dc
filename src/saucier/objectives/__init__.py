"""Training objectives: a corruption on the data side and a loss on the model side. `config` needs no torch; `build`
makes both halves.
"""

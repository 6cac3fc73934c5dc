"""What a config tree costs, counted without building it: parameters, FLOPs, bytes; `model.anatomy` is the whole."""

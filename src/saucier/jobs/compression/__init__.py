"""`compress`: a model for a task made smaller by declared steps, each measured against the model that it came from."""

"""Fine-tuning: a labelled file and a model that is there become a model for a task, its scores and its predictions."""

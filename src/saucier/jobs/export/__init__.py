"""A model written for other engines, and held to what it was."""

"""Looking at models: their anatomy, their differences, what attends to what, and number formats."""

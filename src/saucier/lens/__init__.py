"""Looking at models: anatomy, differences, what attends to what, number formats, layouts that can be opened."""

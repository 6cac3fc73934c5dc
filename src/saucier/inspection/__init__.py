"""Looking at models and runs: anatomy, differences, cost before the run, the report after it, and the Book's state."""

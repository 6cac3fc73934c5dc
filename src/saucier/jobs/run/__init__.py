"""What jobs share: the run folder, who may write into it, the passport, the console, languages of pairs."""

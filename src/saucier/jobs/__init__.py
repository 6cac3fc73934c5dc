"""Jobs: what `saucier` does from beginning to end, each a short road of stages over one folder."""

"""Every folder that can be opened or written: models in our layout or a published one, adapters, runs."""

"""Changing a model that is there already. Import from the module you need."""

"""Tasks whose answer is a text that the model writes, alone or mixed. Import from the submodules."""

"""Every folder that can be opened or written: models in our layout or a published one, adapters, runs."""

from saucier.folders.save import save as save_model
from saucier.model import Transformer
from saucier.model import build as build

# The model imports nothing above itself: how it is written to a folder is handed in here.
Transformer.writer = save_model

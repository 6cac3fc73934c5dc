"""Text to token ids and back: tokenizers trained, read and saved, and what a model expects around the ids."""

from saucier.text.tokenizer.tokenizer import Tokenizer as Tokenizer
from saucier.text.tokenizer.tokenizer import load_tokenizer as load_tokenizer

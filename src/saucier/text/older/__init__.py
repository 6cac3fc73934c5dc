"""Tokenizers in the files from before `tokenizer.json`: vocab.txt, vocab.json with merges.txt, SentencePiece models."""

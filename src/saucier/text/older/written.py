"""Writing a tokenizer in the files of before tokenizer.json, where that file cannot say how texts are prepared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from saucier.files import write_json, write_text
from saucier.text.older.settings import TOKEN_FIELDS


def write_pairs(backend: Backend, known: int | None, folder: Path) -> dict[str, Any]:
    """Write `vocab.json` and `merges.txt` of XLM; ids from `known` on are no tokens, and stay away.

    Returns the fields of tokenizer_config.json that belong to them.
    """
    model = json.loads(backend.to_str())["model"]
    vocab = {token: number for token, number in model["vocab"].items() if known is None or number < known}
    write_json(folder / "vocab.json", vocab)
    write_text(folder / "merges.txt", "".join(f"{first} {second}\n" for first, second in model["merges"]))
    added = {str(number): {"content": token.content} | {name: getattr(token, name) for name in TOKEN_FIELDS}
             for number, token in sorted(backend.get_added_tokens_decoder().items())}
    return {"tokenizer_class": "XLMTokenizer", "added_tokens_decoder": added}

"""How XLM prepares a text before it is split: the Moses scripts (sacremoses, an extra), case and accents.

What stands in the text moves in this, so that the place of a token in it is not known.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from saucier.errors import InputError

PUNCTUATION = str.maketrans({
    **dict(zip("，、”“∶：？《》）！（；」「～’━〈〉【】％", ",,\"\"::?\"\")!(;\"\"~'-<>[]%", strict=True)),
    **dict(zip("０１２３４５６７８９", "0123456789", strict=True)),
    "…": "...",
})
"""What stands for the punctuation and the digits of wide scripts. Source: Moses, replace-unicode-punctuation."""
FULL_STOP = re.compile(r"[。．]\s*")
ROMANIAN = str.maketrans("ŞşŢţȘșȚțĂăÂâÎî", "SsTtSsTtAaAaIi")
"""Source: Sennrich et al. 2016, "Edinburgh Neural Machine Translation Systems for WMT 16", code release."""


@dataclass(frozen=True, slots=True)
class Moses:
    """Normal punctuation, no control characters, a space around each token.

    Source: Koehn et al. 2007 (Moses), as Lample and Conneau 2019 (XLM) use it, §4.1 and code release, arXiv:1901.07291.
    """

    language: str = "en"
    plain: bool = True
    """Whether letters lose case and accents."""

    def __call__(self, text: str) -> str:
        """Return a text with spaces between its tokens."""
        normalize, split = scripts(self.language)
        spaced = normalize(FULL_STOP.sub(". ", text.translate(PUNCTUATION)))
        shown = "".join(letter for letter in spaced if unicodedata.category(letter)[0] != "C")
        if self.language == "ro":
            shown = shown.translate(ROMANIAN)
        words = " ".join(split(shown))
        return without_accents(words) if self.plain else words

    def around(self, text: str, kept: Iterable[str]) -> str:
        """Return a text prepared between the tokens to be kept, which stay as they are."""
        text.encode("utf-8")  # half of a surrogate pair would be taken away as a control character
        tokens = "|".join(re.escape(token) for token in sorted(kept, key=len, reverse=True))
        parts = re.split(f"({tokens})", text) if tokens else [text]
        return " ".join(part if place % 2 else self(part) for place, part in enumerate(parts) if part)


def without_accents(text: str) -> str:
    """Return a text in small letters, without the marks over and under them."""
    apart = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in apart if unicodedata.category(letter) != "Mn").lower()


@functools.cache
def scripts(language: str) -> tuple[Callable[[str], str], Callable[[str], list[str]]]:
    """Return the Moses scripts of a language: normal punctuation, and the cut into tokens.

    Raises `InputError` without sacremoses.
    """
    try:
        import sacremoses
    except ImportError as error:
        raise InputError("XLM's texts are prepared by sacremoses, which is not installed", where="tokenizer",
                         remedy="pip install 'saucier[moses]'") from error
    tokenizer: Any = sacremoses.MosesTokenizer(lang=language)
    normalizer: Any = sacremoses.MosesPunctNormalizer(lang=language)
    return normalizer.normalize, functools.partial(tokenizer.tokenize, return_str=False, escape=False)

"""Which language a document is in, as py3langid says (an extra; its model comes with it)."""

from __future__ import annotations

import functools
from collections.abc import Callable

from saucier.errors import InputError, nearest
from saucier.text.cleaning.config import Language
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.verdict import Fault, PageJudge

Identify = Callable[[str], tuple[str, float]]


def language_judge(rule: Language) -> PageJudge:
    """Drop what is in another language, or not surely in this one.

    Raises `InputError` where the extra is missing or does not know the language.
    """
    identify, known = identifier()
    if rule.code not in known:
        raise InputError(f"no language has the code {rule.code!r}", where="language.code",
                         remedy=nearest(rule.code, sorted(known)))

    def judge(page: Page) -> Fault | None:
        code, probability = identify(page.text[:rule.characters])
        if code == rule.code and probability >= rule.probability:
            return None
        return Fault(f"is {code!r} with probability {probability:.2f}, not {rule.code!r} with {rule.probability:g}")

    return judge


@functools.cache
def identifier() -> tuple[Identify, frozenset[str]]:
    """Return what tells a text's language and its probability, and the codes that it knows. Loading takes seconds."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise InputError("languages are told apart by py3langid, which is not installed", where="language",
                         remedy="pip install 'saucier[clean]', or leave the rule out") from error
    found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return found.classify, frozenset(str(code) for code in found.nb_classes)

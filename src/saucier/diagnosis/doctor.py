"""`saucier doctor`: a model examined by every law on real text, and by checks of its weights, tokenizer and files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from rich.console import Group, RenderableType
from rich.text import Text

from saucier import config as c
from saucier.diagnosis.laws import LAWS, Law, TextRow
from saucier.errors import InputError
from saucier.files import is_folder
from saucier.folders.kinds import identify_folder
from saucier.folders.load import load, open_folder
from saucier.folders.save import save_bare
from saucier.model import Transformer
from saucier.opened import load_model_tokenizer, room, run_folder_of
from saucier.result import Result
from saucier.table import Table
from saucier.text.reading.documents import read_documents
from saucier.text.reading.python_texts import read_help_topics
from saucier.text.tokenizer.tokenizer import Tokenizer

Verdict = Literal["holds", "fails", "does not apply"]
SHOWN_FAULTS = 3
"""Names that a finding lists."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one law or check."""

    name: str
    verdict: Verdict
    why: str = ""
    """What was found, or why it does not apply."""
    difference: float | None = None
    tolerance: float | None = None


def check_model(model: Transformer, tokenizer: Tokenizer | None) -> Iterator[Finding]:
    """Look at everything that needs no text."""
    yield check_finite_weights(model)
    yield check_ties(model)
    if tokenizer is None:
        yield Finding("the tokenizer fits", "does not apply", "the folder holds no tokenizer")
    else:
        yield check_vocabulary("the tokenizer fits", model.config.input_embed, tokenizer)
        if tokenizer.has_own_target:
            yield check_vocabulary("the tokenizer of targets fits", model.config.output_embed, tokenizer.target)
        yield check_special_tokens(model, tokenizer)
    yield check_saved_bits(model)


def make_finding(name: str, faults: list[str], fine: str = "") -> Finding:
    """Say that a check holds, or list its first faults."""
    more = f" and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
    return Finding(name, "fails", "; ".join(faults[:SHOWN_FAULTS]) + more) if faults else Finding(name, "holds", fine)


def check_finite_weights(model: Transformer) -> Finding:
    """No weight is NaN or infinite."""
    faults, count = [], 0
    floats = ((name, one) for name, one in model.named_buffers() if one.is_floating_point())
    for name, weight in (*model.named_parameters(), *floats):
        wrong = int((~weight.isfinite()).sum())
        count += weight.numel()
        faults += [f"{name} holds {wrong:,} that are not finite"] if wrong else []
    return make_finding("weights are finite", faults, f"{count:,} of them")


def check_ties(model: Transformer) -> Finding:
    """What the config calls tied is one tensor."""
    ties: list[tuple[bool, str, str]] = []  # whether it is so, and what there is to say
    language, table = model.config.language_head, (model.decoder_embed or model.embed).tokens
    if language is not None and language.tied:
        head = getattr(model.head, "language", model.head)
        ties.append((shares_table(head, table),
                     "the output layer is the token table",
                     "the output layer is to be the token table, and is another tensor"))
    embed = model.config.decoder_embed
    if embed is not None and embed.tied and model.decoder_embed is not None:
        ties.append((shares_table(model.decoder_embed.tokens, model.embed.tokens), "both sides have one token table",
                     "the sides are to have one token table, and have two"))
    if not ties:
        return Finding("tied weights are tied", "does not apply", "the config ties none")
    return make_finding("tied weights are tied", [fault for holds, _, fault in ties if not holds],
                        "; ".join(said for _, said, _ in ties))


def shares_table(module: object, table: object) -> bool:
    """Say whether two modules have one table: the same one in few bits, or the same parameter."""
    if hasattr(table, "store"):
        return getattr(module, "table", module) is table
    return getattr(module, "weight", None) is getattr(table, "weight", None)


def check_vocabulary(name: str, embed: c.Embedding, tokenizer: Tokenizer) -> Finding:
    """Every id of a tokenizer has a row in the model's table; rows beyond are counted."""
    rows, ids = embed.vocab, tokenizer.vocab_size
    faults = [f"{ids:,} ids, and the model has {rows:,} rows for them"] if ids > rows else []
    more = f", and {rows - ids:,} rows that no id leads to" if rows > ids else ""
    return make_finding(name, faults, f"{ids:,} ids{more}")


def check_special_tokens(model: Transformer, tokenizer: Tokenizer) -> Finding:
    """The tokens that the tokenizer and the model name are there, and are the same."""
    faults = [f"{name!r} ({role}) is not in the vocabulary" for one in dict.fromkeys((tokenizer, tokenizer.target))
              for role, name in one.names.items() if one.token_to_id(name) is None]
    head = model.config.language_head
    if head is not None and isinstance(head.predicts, c.InPlace) and tokenizer.mask_id is None \
            and model.config.decoder is None:
        faults.append("it predicts hidden tokens, and the tokenizer has no mask")
    embed = model.config.input_embed
    if embed.padding is not None and tokenizer.pad_id is not None and embed.padding != tokenizer.pad_id:
        faults.append(f"padding is {embed.padding} for the model, {tokenizer.pad_id} for the tokenizer")
    named = [(name, number) for name, value in model.provenance.generation.items() if name.endswith("_token_id")
             for number in (value if isinstance(value, list) else [value]) if isinstance(number, int)]
    faults += [f"{name} is {number}, outside the vocabulary" for name, number in named
               if number >= model.config.output_embed.vocab]
    roles = ", ".join(tokenizer.names) or "none"
    return make_finding("special tokens are there", faults, roles)


def check_saved_bits(model: Transformer) -> Finding:
    """A model that is saved and loaded has the same bits."""
    with TemporaryDirectory() as folder:
        layout = save_bare(model, Path(folder) / "model", layout="own")
        again = open_folder(identify_folder(Path(folder) / "model"), "auto", model.dtype, model.device)
    before, after = ({**dict(one.named_parameters()), **dict(one.named_buffers())} for one in (model, again))
    faults = [f"{name} is lost" for name in before.keys() - after.keys()]
    faults += [f"{name} has other bits" for name, value in before.items()
               if name in after and not torch.equal(value.nan_to_num(7.0), after[name].nan_to_num(7.0))]
    return make_finding("saved and loaded, the same bits", faults, f"layout {layout}")


TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference, divided by 1 + the number's size, that another order of the same sums may make."""
LONGEST = 48
"""Tokens of the longest row."""
SHARES = (1.0, 0.55, 0.15)
"""Lengths of the rows, of the longest."""
WORDS = 400
"""Words of a text that are looked at."""


@dataclass(frozen=True, slots=True)
class Diagnosis(Result):
    """All that was found of a model."""

    model: str
    dtype: str
    parameters: int
    text: str
    """Where the rows came from."""
    lengths: tuple[int, ...]
    """Tokens of each row."""
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing fails."""
        return all(one.verdict != "fails" for one in self.findings)

    @property
    def failed(self) -> bool:
        """Whether a law fails."""
        return not self.sound

    def view(self) -> RenderableType:
        """Return what `saucier doctor` prints."""
        return render_diagnosis(self)

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the verdict of the whole."""
        return {**asdict(self), "sound": self.sound}


def read_texts(files: Sequence[str]) -> list[str]:
    """Return a few texts to read: of files, or Python's help topics."""
    texts = (document.text for document in read_documents(list(files))) if files else iter(read_help_topics().values())
    found = [" ".join(text.split()) for _, text in zip(range(WORDS), texts, strict=False)]
    return [text for text in sorted(found, key=lambda text: -len(text)) if text][:2 * len(SHARES)]


def cut_text_rows(model: Transformer, tokenizer: Tokenizer, texts: Sequence[str]) -> list[TextRow]:
    """Cut texts into rows of several lengths, each framed as the tokenizer frames a text."""
    if not texts:
        raise InputError("holds no text", where="--text", remedy="give a file with a few sentences")
    lengths = choose_lengths(model)
    read, written = ([fit_words(one, texts[place % len(texts)], lengths[place % len(lengths)]) for place in places]
                     for one, places in ((tokenizer, range(len(lengths))),
                                         (tokenizer.target, range(len(lengths), 2 * len(lengths)))))
    return add_targets(model, [*read, *written], len(lengths))


def fit_words(tokenizer: Tokenizer, text: str, length: int) -> tuple[int, ...]:
    """Return the ids of as many words as fit into a length; cut where not even one does."""
    words = text.split()[:WORDS]
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(tokenizer.encode(" ".join(words[:middle]))) <= length else (low, middle - 1)
    return tuple(tokenizer.encode(" ".join(words[:low]))[:length])


def draw_rows(model: Transformer) -> list[TextRow]:
    """Return rows of random ids, the same ones every time, none of them the padding."""
    generator, lengths = torch.Generator().manual_seed(0), choose_lengths(model)
    vocab = model.config.input_embed.vocab
    low = min(5, vocab - 2)
    ids = [tuple(torch.randint(low, vocab, (length,), generator=generator).tolist()) for length in lengths * 2]
    return add_targets(model, ids, len(lengths))


def add_targets(model: Transformer, ids: Sequence[tuple[int, ...]], count: int) -> list[TextRow]:
    """Give an encoder-decoder other texts as targets; ids without vectors, which the checks report, change."""
    read = [known_ids(one, model.config.input_embed) for one in ids[:count]]
    if model.config.encoder is None or model.config.decoder is None:
        return [TextRow(one) for one in read]
    return [TextRow(source, known_ids(target, model.config.output_embed))
            for source, target in zip(read, ids[count:], strict=True)]


def known_ids(ids: Sequence[int], embed: c.Embedding) -> tuple[int, ...]:
    """Return ids that a table has rows for."""
    return tuple(number % embed.vocab for number in ids)


def choose_lengths(model: Transformer) -> list[int]:
    """Return the lengths of the rows, such that all of them together fit into one row of the model."""
    most = room(model.config, None)
    longest = LONGEST if most is None else min(LONGEST, int(most / sum(SHARES)))
    return [max(2, int(share * longest)) for share in SHARES]


def examine_model(model: Transformer, rows: Sequence[TextRow]) -> Iterator[Finding]:
    """Check every law on a model."""
    tolerance = TOLERANCES[model.dtype]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for law in LAWS:
            yield check_law(law, model, rows, 0.0 if law.exact else tolerance)


def check_law(law: Law, model: Transformer, rows: Sequence[TextRow], tolerance: float) -> Finding:
    """Check one law on a model."""
    reason = law.reason(model.config)
    if reason is not None:
        return Finding(law.name, "does not apply", reason)
    with torch.no_grad():
        gap, left_out = law.gap(model, rows), law.text(model.config)
    return Finding(law.name, "holds" if gap <= tolerance else "fails", f"places only: {left_out}" if left_out else "",
                   gap, tolerance)


def diagnose(path: str, *, files: Sequence[str] = (), dtype: str = "float32", device: str = "auto",
             base: str | None = None) -> Diagnosis:
    """Open a model folder, a run or a hub id, and examine it. `base`: of an adapter, instead of the one that it names.

    Errors: `InputError` for what cannot be opened or read.
    """
    model = load(path, dtype=dtype, device=device, base=base)
    tokenizer, reason = find_tokenizer(path, base)
    rows, source = (draw_rows(model), f"random ids, since no tokenizer: {reason}") if tokenizer is None else \
        (cut_text_rows(model, tokenizer, read_texts(files)), ", ".join(files) or "Python's documentation")
    found = (*examine_model(model, rows), *check_model(model, tokenizer))
    return Diagnosis(path, str(model.dtype).removeprefix("torch."), c.parameters(model.config), source,
                     tuple(len(row.ids) for row in rows), found)


def find_tokenizer(path: str, base: str | None) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer of a model, or of an adapter's base; where none can be read, None and the reason."""
    try:
        return load_model_tokenizer(run_folder_of(Path(path)) if is_folder(path) else path, base), ""
    except InputError as error:
        return None, str(error)


COLOURS = {"holds": "green", "fails": "bold red", "does not apply": "dim"}


def render_diagnosis(found: Diagnosis) -> RenderableType:
    """Lay a diagnosis out for a person."""
    head = Text(f"{found.model}: {found.parameters:,} parameters in {found.dtype}; rows of "
                f"{', '.join(map(str, found.lengths))} tokens ({found.text})", style="dim", no_wrap=True,
                overflow="ignore")  # a path in pieces cannot be copied
    rows = [(one.name, format_difference(one.difference), format_difference(one.tolerance),
             Text(one.verdict, style=COLOURS[one.verdict]), one.why) for one in found.findings]
    table = Table(("law", "largest difference", "tolerance", "verdict", ""), rows, numbers=(1, 2), folded=(4,),
                  cut_words=True)
    return Group(head, Text(), table, Text(), conclude(found))


def format_difference(value: float | None) -> str:
    """Write a difference."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}".replace("-0", "-")


def conclude(found: Diagnosis) -> Text:
    """Say what it comes to."""
    failed = [one.name for one in found.findings if one.verdict == "fails"]
    held = sum(one.verdict == "holds" for one in found.findings)
    if failed:
        return Text(f"{len(failed)} of {held + len(failed)} fail: {'; '.join(failed)}", style=COLOURS["fails"])
    return Text(f"sound: all {held} that apply hold", style=COLOURS["holds"])

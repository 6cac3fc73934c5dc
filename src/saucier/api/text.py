"""Public functions about raw text and tokenizers: `clean`, `train_tokenizer`, `inspect_tokenizer`."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from saucier.api.options import Delimiter, Encoding, Quiet
from saucier.api.requests import file_names, format_changes, refuse_folder
from saucier.arguments import Changes, Files, Help, Place, format_overrides, is_override, public
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.jobs.cleaning.clean import Rejection, Rules
    from saucier.jobs.cleaning.summary import CleaningReport
    from saucier.text.tokenizer.splitting import SplitText, TrainedTokenizer


@public
def clean(
    raw: Annotated[Files, Help(
        "Raw text: txt, jsonl, csv, tsv, parquet, compressed or not, globs, - for standard input; and changes to the "
        "rules, such as short_lines.words=3 or bullets=off.", metavar="RAW|rule.key=value")] = (),
    set: Annotated[Changes, Help("Changes to the rules.", shell=False)] = (),
    *,
    out: Annotated[Place, Help("A new folder, or that of a run that was stopped.", metavar="DIR",
                               check=refuse_folder)] = "clean",
    rules: Annotated[str, Help("c4, gopher, all, or a .yaml file as --print-rules writes it.")] = "all",
    document: Annotated[str | None, Help("What one document is in a .txt file: file, paragraph or line.")] = None,
    column: Annotated[str | None, Help("The column of the text; `text` or the only one without it.")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    language: Annotated[str | None, Help("Keep this language only, such as en.", metavar="CODE")] = None,
    bad_words: Annotated[Place | None, Help("Drop documents with a word of this list.", metavar="FILE")] = None,
    against: Annotated[Files | None, Help("Drop documents that share 13 words in a row with this evaluation text. Can "
                                          "be given again.", metavar="FILE")] = None,
    keep_rejected: Annotated[bool, Help("Keep the text of dropped documents.")] = False,
    workers: Annotated[int, Help("Processes; several clean several files at once (extra `clean`).", minimum=1)] = 1,
    print_rules: Annotated[bool, Help("Print the rules as a file, and stop.")] = False,
    why: Annotated[str | None, Help("Say why document N (or FILE:LINE) of --out was dropped.", metavar="N")] = None,
    quiet: Quiet = False,
) -> "CleaningReport | Rules | Rejection":
    """Turn raw text into a corpus: rules of C4 and Gopher, no duplicates, shuffled, with a report of what went.

    From Python: returns the report; with `print_rules` the rules, with `why` what became of one document.
    """
    from saucier.jobs.cleaning.clean import CleaningOptions, Rules, clean_and_say, cleaning, explain_rejection
    from saucier.jobs.run.console import Console
    from saucier.text.reading.guessing import ReadOptions

    console = Console(silent=quiet)
    if why is not None:
        rejection = explain_rejection(Path(out), why)
        console.show(rejection.view())
        return rejection
    options = {"language.code": language, "bad_words.file": None if bad_words is None else str(bad_words),
               "column": column, "document": document, "contamination.files": file_names(against) or None}
    words = file_names(raw)
    changes = [*format_overrides({key: value for key, value in options.items() if value is not None}),
               *filter(is_override, words), *format_changes(set)]
    settings = cleaning(rules, changes)
    if print_rules:
        console.show(Rules(settings).view())
        return Rules(settings)
    files = [word for word in words if not is_override(word)]
    return clean_and_say(files, settings, Path(out), CleaningOptions(
        workers, keep_rejected, ReadOptions(delimiter, encoding)), quiet=quiet)


@public
def train_tokenizer(
    files: Annotated[Files | None, Help("Text to learn from; Python's own documentation without it.",
                                        metavar="FILE")] = None,
    *,
    out: Annotated[Place, Help("A new folder for tokenizer.json.", metavar="DIR", check=refuse_folder)] = "tokenizer",
    kind: Annotated[str, Help("byte_bpe, bpe, wordpiece, unigram, bytes or characters.",
                              choices=("byte_bpe", "bpe", "wordpiece", "unigram", "bytes", "characters"))] = "byte_bpe",
    vocab: Annotated[int, Help("Size of the vocabulary, special tokens included.", minimum=1)] = 8000,
) -> "TrainedTokenizer":
    """Train a tokenizer and save it as transformers reads it."""
    from saucier.text.tokenizer.splitting import TrainedTokenizer
    from saucier.text.tokenizer.training import train_tokenizer_on_files

    folder = Path(out)
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise InputError("is not empty", where=str(folder), remedy="give a new folder with --out")
    found = train_tokenizer_on_files(kind, vocab, file_names(files))
    found.save(folder)
    return TrainedTokenizer(folder, kind, found)


@public
def inspect_tokenizer(
    folder: Annotated[Place, Help("A run folder, or a folder with tokenizer.json.", metavar="RUN")],
    text: Annotated[str | Sequence[str], Help("The text to split; standard input without it.",
                                              metavar="TEXT")] = "",
) -> "SplitText":
    """Show how a tokenizer splits a text: its tokens, their ids, and bytes a token."""
    from saucier.opened import run_folder_of
    from saucier.text.tokenizer.splitting import SplitText
    from saucier.text.tokenizer.tokenizer import load_tokenizer

    return SplitText.of(load_tokenizer(run_folder_of(Path(folder))), text if isinstance(text, str) else " ".join(text))

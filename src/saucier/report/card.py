"""The model card: README.md in the folder of a saved model. It says what the model is, how to use it, what it was
trained on, and what was measured.

A card ends in a comment with what it was made of, so that a model that is converted keeps its history, and with a
digest, so that a card that a person has edited is known and never replaced. No torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from saucier.checkpoints.hub import ADAPTER_CONFIG, is_hub_id
from saucier.checkpoints.layout import MODEL_TYPE
from saucier.checkpoints.sentence_modules import MODULES
from saucier.config import Transformer, parameters
from saucier.files import LARGEST_JSON, TEMPORARY, parse_json, read_object
from saucier.plain import VERSION
from saucier.report.page import TEMPLATES

if TYPE_CHECKING:
    from jinja2 import Environment

CARD, ADAPTER = "README.md", ADAPTER_CONFIG
MARK = re.compile(r"\n<!-- saucier card (?P<digest>[0-9a-f]{16}) (?P<facts>\{.*\}) -->\n?\Z")
"""The end of a card that Saucier wrote, and nobody changed if the digest of all before it is the one it names."""
SHOWN = 200
"""Letters of a name: a hostile file has names of any length."""


@dataclass(frozen=True, slots=True)
class Data:
    """What a model was trained or measured on."""

    name: str
    digest: str = ""
    """SHA-256; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One score."""

    on: str
    """The part of the data."""
    metric: str
    value: float
    low: float | None = None
    """Ends of the 95 % interval; None where none is known."""
    high: float | None = None


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a folder does not say of its model by itself."""

    name: str = ""
    made_by: str = ""
    """The command."""
    task: str = ""
    """What it was trained to do: a task, or an objective."""
    base: str = ""
    """The model that it began with: a hub id, or the name of a folder."""
    changed: bool = False
    """Whether weights were changed after those of the base were loaded, by nobody knows what."""
    data: tuple[Data, ...] = ()
    scores: tuple[Measured, ...] = ()
    seeds: Mapping[str, int] = field(default_factory=dict)
    steps: int | None = None
    """Updates of the weights."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the libraries that trained it."""
    license: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """How a model is used."""

    ours: str
    shell: bool
    """Whether that is a command."""
    library: str
    """That reads the folder besides; empty for none."""
    theirs: str = ""


PIPELINES = {"classification": "text-classification", "regression": "text-classification",
             "many_labels": "text-classification", "ranking": "text-ranking", "tagging": "token-classification",
             "question_answering": "question-answering", "multiple_choice": "multiple-choice",
             "embedding": "sentence-similarity", "inverse_cloze": "sentence-similarity", "translation": "translation",
             "summarization": "summarization", "masked_retrieval": "fill-mask"}
"""Task -> what the hub calls it."""
HEADS = {"classification": "text-classification", "token_classification": "token-classification",
         "span": "question-answering", "choice": "multiple-choice", "embedding": "sentence-similarity"}
"""Kind of head -> the same."""


def write_card(folder: Path, config: Transformer, facts: CardFacts, *, keep: Sequence[Path] = ()) -> None:
    """Write the card into the folder of a model, for callers who make the folder atomic themselves.

    `keep`: folders whose README.md, where a person wrote one, is taken as it is, the first that there is.
    """
    for place in keep:
        path = place / CARD
        if path.is_file() and path.stat().st_size < LARGEST_JSON and read_facts(path) is None:
            (folder / CARD).write_bytes(path.read_bytes())
            return
    (folder / CARD).write_text(render_card(folder, config, facts), encoding="utf-8")


def read_facts(path: Path) -> CardFacts | None:
    """Return what a card was made of; None for a file that Saucier did not write, or that a person has changed."""
    try:
        text = path.read_text(encoding="utf-8")
        match = MARK.search(text)
        if match is None or digest_text(text[:match.start()]) != match["digest"]:
            return None
        return TypeAdapter(CardFacts).validate_python(parse_json(match["facts"]))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, ValidationError):
        return None


def find_facts(*folders: Path) -> CardFacts:
    """Return what the first card of Saucier's in some folders was made of; nothing where there is none."""
    found = (read_facts(folder / CARD) for folder in folders if (folder / CARD).is_file())
    return next((facts for facts in found if facts is not None), CardFacts())


def name_base(path: str | Path | None) -> str:
    """Return how a card names a base model: a hub id, or the last part of a path, which tells nothing of a machine."""
    return "" if path is None else str(path) if is_hub_id(str(path)) else Path(path).name


def digest_text(text: str) -> str:
    """Return what tells a text from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def environment() -> Environment:
    """Return what fills in the template: Markdown, in which nothing is escaped; `clean` does what is needed."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=False, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True)


def clean(value: Any) -> Any:
    """Return plain values with all texts as one line in which nothing is a tag, a code or the end of a cell."""
    match value:
        case str():
            return " ".join(value.split())[:SHOWN].replace("<", "&lt;").replace("|", "\\|").replace("`", "'")
        case dict():
            return {clean(name): clean(one) for name, one in value.items()}
        case list() | tuple():
            return [clean(one) for one in value]
        case _:
            return value


def render_card(folder: Path, config: Transformer, facts: CardFacts) -> str:
    """Return the card of the model whose files are in a folder already."""
    document = read_object(folder / "config.json") or read_object(folder / ADAPTER)
    usage = choose_usage(folder, document, config, facts)
    labels = document.get("id2label") if isinstance(document.get("id2label"), dict) else {}
    assert isinstance(labels, dict), "just looked at"
    text = environment().get_template("card.md").render(
        facts=clean(asdict(facts)), name=clean(TEMPORARY.sub(r"\g<name>", folder.name)) or "Model", usage=usage,
        metadata=format_metadata(document, config, facts, usage), what=clean(describe_kind(document, config, facts)),
        labels=", ".join(clean([str(one) for one in labels.values()])), details=clean(list_details(facts)))
    body = re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"
    return f"{body}\n<!-- saucier card {digest_text(body)} {encode_facts(facts)} -->\n"


def encode_facts(facts: CardFacts) -> str:
    """Return facts as JSON that a comment may hold."""
    plain = {name: value for name, value in asdict(facts).items() if value}
    return json.dumps(plain).replace(">", "\\u003e").replace("<", "\\u003c")


def describe_kind(document: Mapping[str, Any], config: Transformer, facts: CardFacts) -> str:
    """Return a sentence that says what the model is."""
    classes = document.get("architectures")
    family = str(document.get("model_type") or document.get("peft_type") or MODEL_TYPE)
    named = f"{family} ({classes[0]})" if isinstance(classes, list) and classes else \
        "Saucier's own layout" if family == MODEL_TYPE else family
    sides = [name for name in ("encoder", "decoder") if getattr(config, name) is not None]
    trained = f", trained for {facts.task.replace('_', ' ')}" if facts.task else ""
    article = "An" if sides[0] == "encoder" else "A"
    return f"{article} {' and '.join(sides)} with {parameters(config):,} parameters, {named}{trained}."


def list_details(facts: CardFacts) -> list[tuple[str, str]]:
    """Return how a model was made, name by name."""
    said = [("updates", f"{facts.steps:,}" if facts.steps is not None else ""),
            ("seeds", ", ".join(f"{name} {seed}" for name, seed in facts.seeds.items())),
            ("versions", ", ".join(f"{name} {version}" for name, version in facts.versions.items())),
            ("written by", f"Saucier {VERSION}"), ("license", facts.license or "unknown")]
    return [(name, value) for name, value in said if value]


def format_metadata(document: Mapping[str, Any], config: Transformer, facts: CardFacts, usage: Usage) -> str:
    """Return the card's front matter, as the hub reads it."""
    import yaml

    kind = "" if config.head is None else config.head.kind
    pipeline = PIPELINES.get(facts.task) or HEADS.get(kind) or (
        "fill-mask" if config.decoder is None and kind == "language" else "text-generation" if config.writes else None)
    tags = ["saucier", document.get("model_type"), facts.task]
    found = {"library_name": usage.library or "saucier", "pipeline_tag": pipeline,
             "tags": list(dict.fromkeys(str(one)[:SHOWN] for one in tags if one)),
             "license": facts.license or "unknown", "base_model": facts.base or None,
             "datasets": [one.name for one in facts.data], "metrics": sorted({one.metric for one in facts.scores})}
    dumped: str = yaml.safe_dump({name: value for name, value in found.items() if value}, sort_keys=False,
                                 allow_unicode=True)
    return dumped


def choose_usage(folder: Path, document: Mapping[str, Any], config: Transformer, facts: CardFacts) -> Usage:
    """Return how to use the model in a folder, with Saucier and with the library that its layout is from."""
    task = (folder / "task.json").is_file() or facts.task in PIPELINES
    head = "" if config.head is None else config.head.kind
    if head == "embedding":
        ours, shell = 'import saucier\n\nvectors = saucier.embed(path, ["a text", "another text"])', False
    elif task or head in HEADS:
        ours, shell = 'saucier predict path --text "a text"', True
    elif config.writes:
        ours, shell = 'saucier generate path "a text"', True
    else:
        ours, shell = ('import saucier\n\nmodel, tokenizer = saucier.load(path), saucier.load_tokenizer(path)\n'
                       'output = model(**tokenizer("a text"))'), False
    library, theirs = name_library(folder, document)
    return Usage(ours, shell, library, theirs)


def name_library(folder: Path, document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the library that reads a folder besides Saucier, and how it is called; empty where none does."""
    classes = document.get("architectures")
    if (folder / MODULES).is_file():
        found = "logits" if isinstance(document.get("id2label"), dict) else "vectors"
        return "sentence-transformers", ('from sentence_transformers import SentenceTransformer\n\n'
                                         f'{found} = SentenceTransformer(path).encode(["a text", "another text"])')
    if document.get("peft_type") not in (None, "SAUCIER"):
        return "peft", ("from peft import AutoPeftModel\n\nmodel = AutoPeftModel.from_pretrained(path)")
    if document.get("model_type") in (None, MODEL_TYPE) or not isinstance(classes, list) or not classes:
        return "", ""
    name = str(classes[0])
    if not name.isidentifier():
        return "", ""
    return "transformers", (f"from transformers import AutoTokenizer, {name}\n\n"
                            f"model = {name}.from_pretrained(path)\ntokenizer = AutoTokenizer.from_pretrained(path)")


def write_saved_card(folder: Path, config: Transformer, *, base: str | None, sources: Sequence[Path],
                     intact: bool) -> None:
    """Write the card of a model that `Transformer.save` writes.

    `base`: where it was loaded from; `sources`: folders whose card, where a person wrote it, is kept; `intact`: whether
    the weights are those of its base, so that what the base's card says is true of it.
    """
    facts = find_facts(*sources)
    if not intact:
        facts = CardFacts(task=facts.task, base=name_base(base), changed=base is not None, license=facts.license)
    elif facts == CardFacts():
        facts = CardFacts(base=name_base(base))
    write_card(folder, config, facts, keep=sources)

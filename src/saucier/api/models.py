"""Public functions of model folders: `convert` and `merge` make one of another, `export` writes one for other engines,
`push` sends one to the hub.
"""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from saucier.api.options import Base
from saucier.api.requests import file_names, optional_path, refuse_folder, refuse_missing_files, refuse_missing_model
from saucier.arguments import Files, Help, Place, public

if TYPE_CHECKING:
    from saucier.jobs.convert import Converted
    from saucier.jobs.export.export import Exported
    from saucier.jobs.merge import Merged
    from saucier.jobs.push import Pushed

SHAPE = "Another shape"
LONGEST = 2**24
"""Positions that there may be room for: a number with more digits is a slip of the hand."""
Target = Annotated[Place, Help("A new folder.", metavar="DST", check=refuse_folder)]


@public
def convert(
    source: Annotated[Place, Help("A model folder, an adapter, a run folder, or owner/name.", metavar="SRC",
                                 check=refuse_missing_model)],
    target: Target,
    *,
    to: Annotated[str, Help("own, published, a model_type, or auto: published where one fits.")] = "auto",
    dtype: Annotated[str, Help("float32, bfloat16 or float16; stored keeps what the files have.",
                               choices=("stored", "float32", "bfloat16", "float16", "float64"))] = "stored",
    head: Annotated[str, Help("Read the folder as this published class.")] = "auto",
    attention: Annotated[str | None, Help(
        "What a token sees: window:512 (neighbours; of an encoder makes a Longformer), blocks:64:3 (blocks of "
        "positions, of which some are drawn: a BigBird), or how it is weighed: features:256 (a Performer), "
        "mixtures:128 (a Linformer), hashes:64:4 (chunks and rounds of a Reformer).", metavar="KIND",
        section=SHAPE)] = None,
    global_tokens: Annotated[str | None, Help(
        "Beside a window: the tokens that see all and are seen by all where a batch names none: none, cls, question or "
        "choices.", metavar="TOKENS", option="--global", section=SHAPE)] = None,
    positions: Annotated[int | None, Help("Tokens to have room for: the table of positions is tiled.", minimum=1,
                                          maximum=LONGEST, section=SHAPE)] = None,
    kv_heads: Annotated[int | None, Help("Heads for keys and values, each the mean of a group; 1: multi-query.",
                                         minimum=1, section=SHAPE)] = None,
    layers: Annotated[str | None, Help("The layers to have, from 0: 0,2,4 leaves some out, 0-5,0-5 stacks them.",
                                       metavar="NUMBERS", section=SHAPE)] = None,
    decoder_layers: Annotated[str | None, Help("The same for the decoder of a model with two stacks.",
                                               metavar="NUMBERS", section=SHAPE)] = None,
    vocabulary: Annotated[Files | None, Help(
        "Keep the tokens that this text uses, special ones and single characters; the tokenizer too. Can be given "
        "again.", metavar="FILE", section=SHAPE, check=refuse_missing_files)] = None,
    new_tokens: Annotated[str | None, Help(
        "So many more tokens, those that save most in this text: 500:notes.txt. Each begins as the mean of the pieces "
        "that spelled it.", metavar="COUNT:FILE", section=SHAPE)] = None,
    text: Annotated[Files | None, Help("Compare the model with what it was on this text. Can be given again.",
                                       metavar="FILE", section=SHAPE, check=refuse_missing_files)] = None,
) -> "Converted":
    """Write a model into a new folder: in another layout, number format or shape, or with an adapter merged.

    From Python: raises `InputError` for a folder that is there already, and for a shape that the model cannot have.
    """
    from saucier.adaptation.surgery.operations import OperationOptions
    from saucier.jobs.convert import convert as work

    operations = OperationOptions(attention, global_tokens, positions=positions, kv_heads=kv_heads, layers=layers,
                                  decoder_layers=decoder_layers, vocabulary=tuple(file_names(vocabulary)),
                                  new_tokens=new_tokens)
    return work(Path(source), Path(target), layout=to, dtype=dtype, head=head, options=operations,
                texts=file_names(text))


@public
def export(
    source: Annotated[Place, Help("A model folder, a GGUF file, a run folder, or owner/name.", metavar="SRC",
                                 check=refuse_missing_model)],
    *,
    to: Annotated[str, Help("gguf (llama.cpp), ctranslate2 or onnx.", choices=("gguf", "ctranslate2", "onnx"))],
    out: Annotated[Place | None, Help("A new file (gguf) or folder; named after SRC, here, without it.",
                                      metavar="PATH")] = None,
    format: Annotated[str, Help("float32, float16 or bfloat16; q8_0 or q4_0 for gguf, int8 for ctranslate2; "
                                "stored keeps what the files have.", metavar="FORMAT")] = "stored",
    head: Annotated[str, Help("Read the folder as this published class; none for the body alone.")] = "auto",
    text: Annotated[Files | None, Help("Text to compare on; sentences of our own without. Can be given again.",
                                       metavar="FILE", check=refuse_missing_files)] = None,
) -> "Exported":
    """Write a model for another engine, and let that engine run it: what it gives is compared with the model's own.

    From Python: raises `InputError` for a target that is there already, and for a model, a tokenizer or a number format
    that the engine has no place for.
    """
    from saucier.jobs.export.export import export as work

    return work(Path(source), optional_path(out), to=to, form=format, head=head, texts=file_names(text))


@public
def merge(
    adapter: Annotated[Place, Help("The folder of a LoRA adapter, or a tuned run.", metavar="ADAPTER",
                                  check=refuse_missing_model)],
    out: Annotated[Place, Help("A new folder for the merged model.", metavar="DIR", option="--out",
                               check=refuse_folder)],
    *,
    base: Base = None,
    text: Annotated[Place | None, Help("Text to compare on; a few sentences of our own without.",
                                        check=refuse_missing_files)] = None,
) -> "Merged":
    """Add an adapter to its base model's weights, compare the outputs of both, and write the merged model.

    From Python: raises `InputError` for an adapter that is no sum of weights, and for a folder that is there already.
    """
    from saucier.jobs.merge import merge_adapter

    return merge_adapter(Path(adapter), Path(out), base=None if base is None else str(base), text=optional_path(text))


@public
def push(
    folder: Annotated[Place, Help("The folder of a saved model, a run, a fine-tuning or an adapter.",
                                  metavar="FOLDER")],
    hub_id: Annotated[str, Help("The repository, as owner/name; it is made where there is none.", metavar="HUB_ID")],
    *,
    private: Annotated[bool, Help("Make the repository a private one, where it is made.")] = False,
    dry_run: Annotated[bool, Help("Check the folder and list its files, without the network.")] = False,
    message: Annotated[str | None, Help("What the commit is called.", metavar="TEXT")] = None,
) -> "Pushed":
    """Send a model with its tokenizer and its card to the hub. Everything is checked before anything is sent.

    From Python: raises `InputError` for an id that is none, a folder that is not whole, holds something else or has no
    card, and where the token may not write; `WorkError` where sending fails.
    """
    from saucier.jobs.push import push as work

    return work(Path(folder), hub_id, private=private, dry_run=dry_run, message=message)

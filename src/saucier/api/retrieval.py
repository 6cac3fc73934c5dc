"""Public functions of retrieval: `mine_negatives`, `train_retriever`, `evaluate_retriever`."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from saucier.api.knowledge import REREAD
from saucier.api.options import NumberFormat, Quiet
from saucier.api.requests import file_names, format_changes, refuse_file, refuse_folder, refuse_missing_model
from saucier.arguments import Changes, Files, Help, Place, public
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.jobs.finetuning.finished import Finetuned
    from saucier.jobs.retrieval import MinedFile, RetrievalReport

Questions = Annotated[Place, Help("Questions with their passages: a folder with corpus.jsonl, queries.jsonl and "
                                  "qrels.tsv, or a file of SQuAD or HotpotQA.", metavar="COLLECTION")]
Split = Annotated[str, Help("Of a folder with several judgements: those of qrels/SPLIT.tsv.", metavar="SPLIT")]
Learner = Literal["retriever", "reranker"]
Retrievers = Annotated[Files | None, Help("A model that gives texts vectors. Can be given again.", metavar="MODEL",
                                          option="--model")]
PassageEncoder = Annotated[Place | None, Help("The encoder of passages of a retriever with two, as DPR's.",
                                              metavar="MODEL", option="--passage-model", check=refuse_missing_model)]
Negatives = Annotated[int, Help("Wrong passages for each question.", metavar="N", minimum=1)]
Depth = Annotated[int, Help("They are drawn among so many first passages of each system.", metavar="K", minimum=1)]
Seed = Annotated[int, Help("Draws them.", minimum=0)]


@public
def mine_negatives(
    collection: Questions,
    *,
    out: Annotated[Place, Help("The file of rows, as JSON lines.", metavar="FILE", check=refuse_file)],
    learner: Annotated[Learner, Help("What learns from them: retriever, reranker.", option="--for")] = "retriever",
    models: Retrievers = None,
    passage_model: PassageEncoder = None,
    reranker: Annotated[Place | None, Help(
        "Leave out passages that this reranker finds nearly as good as the right one, and write its scores.",
        metavar="MODEL", check=refuse_missing_model)] = None,
    negatives: Annotated[int, Help("Wrong passages for each question; 0: those of the batch are enough.", metavar="N",
                                   minimum=0)] = 1,
    depth: Depth = 20,
    margin: Annotated[float, Help("How far below the right one's a score must be.")] = 1.0,
    topics: Annotated[int | None, Help("Number topics of at most N passages, by the first model: a retriever then "
                                       "learns from batches of one topic.", metavar="N", minimum=1)] = None,
    split: Split = "train",
    seed: Seed = 0,
) -> "MinedFile":
    """Find wrong passages that look right, by BM25 and by the retrievers that are given: rows to learn from.

    No passage that is relevant, and none that holds an answer of the question, is among them.

    From Python: returns the file, the number of rows, and what was left out; raises `InputError` for what cannot be
    read.
    """
    from saucier.jobs.retrieval import Models, mine_file
    from saucier.retrieval.collection import read_collection
    from saucier.retrieval.mining import MiningOptions

    found = Models(check_retrievers(models, passage_model), None if passage_model is None else str(passage_model),
                   None if reranker is None else str(reranker))
    if learner == "reranker" and (not negatives or topics is not None):
        raise InputError("a reranker learns from wrong passages, in batches of any topics", where="--for reranker",
                         remedy="give --negatives 1 or more, and no --topics")
    if topics is not None and not found.retrievers:
        raise InputError("nothing tells what passages are about", where="--topics", remedy="give --model MODEL")
    return mine_file(read_collection(str(collection), split=split), learner, Path(out), found,
                     MiningOptions(negatives, depth, margin, seed, topics))


@public
def train_retriever(
    learner: Annotated[Learner, Help("retriever: vectors of questions and passages; reranker: a score of a question "
                                     "with a passage.", metavar="retriever|reranker")],
    data: Annotated[Place, Help("A collection, whose wrong passages are mined by BM25, or rows of `retrieve mine`.",
                                metavar="DATA")],
    set: Annotated[Changes, Help("Settings, such as training.epochs=2 or training.batch=1024.",
                                 metavar="key.sub=value")] = (),
    *,
    model: Annotated[Place, Help("The model to begin with.", metavar="MODEL", check=refuse_missing_model)],
    out: Annotated[Place, Help("The folder; one that was stopped goes on.", metavar="DIR", check=refuse_folder)],
    negatives: Negatives = 1,
    depth: Depth = 20,
    split: Split = "train",
    seed: Seed = 0,
    quiet: Quiet = False,
) -> "Finetuned":
    """Train a retriever by the negatives of each batch and hard ones, or a reranker by a softmax over passages.

    It is a fine-tuning: `saucier finetune DIR` goes on with it, and `saucier predict`, `embed` and `search` use it.

    From Python: returns and raises as `finetune`.
    """
    from saucier.jobs.retrieval import train_on
    from saucier.retrieval.mining import MiningOptions

    return train_on(learner, str(data), Path(out), model=str(model), settings=format_changes(set), split=split,
                    options=MiningOptions(negatives, depth, seed=seed), quiet=quiet)


@public
def evaluate_retriever(
    collection: Questions,
    *,
    models: Retrievers = None,
    passage_model: PassageEncoder = None,
    reranker: Annotated[Place | None, Help("Read the first passages of the last system again with this model.",
                                           metavar="MODEL", check=refuse_missing_model)] = None,
    sentences: Annotated[bool, Help("Let each retriever also look for the best sentence of a passage, beside the "
                                    "whole: for questions that ask for one fact.")] = False,
    depth: Annotated[int, Help("Passages that each system finds.", metavar="K", minimum=1)] = 100,
    feedback: Annotated[int, Help("The last system also asks for so many of the passages that it finds first.",
                                  metavar="K", minimum=0, maximum=100)] = 0,
    reread: Annotated[int, Help("Passages that the reranker reads.", metavar="K", minimum=1)] = REREAD,
    tuned_by: Annotated[Literal["recall@1", "recall@5", "recall@20", "nDCG@10", "MRR", "MAP"], Help(
        "What weights of fusions are tuned by, in folds, and systems compared by: recall@1, recall@5, recall@20, "
        "nDCG@10, MRR, MAP.")] = "MRR",
    format: NumberFormat = None,
    split: Split = "test",
) -> "RetrievalReport":
    """Measure BM25, retrievers, their fusions and a reranker on questions whose passages are known.

    Every system is compared with the one before it on the same questions. Weights are tuned on other questions than
    those that are scored.

    From Python: the report also holds what each system found; raises `InputError` for what cannot be read.
    """
    from saucier.jobs.retrieval import Models, compare_systems
    from saucier.retrieval.collection import read_collection

    found = Models(check_retrievers(models, passage_model), None if passage_model is None else str(passage_model),
                   None if reranker is None else str(reranker), sentences, format)
    if format is not None and not found.retrievers and reranker is None:
        raise InputError("no model is read", where="--format", remedy="give --model MODEL")
    if reread != REREAD and reranker is None:
        raise InputError("nothing reads again", where="--reread", remedy="give --reranker MODEL")
    if sentences and not found.retrievers:
        raise InputError("nothing gives sentences vectors", where="--sentences", remedy="give --model MODEL")
    return compare_systems(read_collection(str(collection), split=split), found, depth=depth,
                           feedback=feedback, reread=reread, tuned_by=tuned_by)


def check_retrievers(models: Files | None, passages: Place | None) -> tuple[str, ...]:
    """Return the folders of retrievers. Raises `InputError` for one that is not there, and for two with a passage one.
    """
    names = tuple(file_names(models))
    for name in names:
        refuse_missing_model(name)
    if passages is not None and len(names) != 1:
        raise InputError(f"belongs to one encoder of questions, and {len(names)} are given", where="--passage-model",
                         remedy="give one --model")
    return names

"""Answers written from retrieved passages (RAG), next to a span reader on the same passages and to the same writer
without passages. SQuAD's questions over the 978 paragraphs of their file.

`python -m benchmarks rag`. MiniLM becomes both sides of an encoder-decoder, and first a reader of spans. The reader
takes spans from the passages that MiniLM finds for 3,997 training questions, and from texts of WikiText-2 for questions
that are made of their sentences; the decoder learns to write what it took, from the reader's vectors, which stay as
they are, by a mix of the layers, since the last one does not hold the words. From this start all learns from questions
and answers with the passages that MiniLM finds. What is finished is kept in `runs/rag`. It takes hours on two cores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import cooking
from benchmarks.compression import DRAWS, SEEDS
from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.open_questions import TESTED, TRAINED, score
from benchmarks.realm import read_lines, write_lines
from benchmarks.section import Row, Section, at_least
from benchmarks.tuned import finetuned

RUNS = Path("runs/rag")
READ, LENGTH, TOKENS = 3, 256, 24
"""Passages that are read for each question, tokens of a passage with its question, and of an answer."""
START = {"steps": 8000, "batch": 32, "length": LENGTH}
"""How the decoder begins: updates, questions with what the reader took in each, and tokens of one with its text."""
RATE = "8e-4"
NEAR, MADE = 8, 32000
"""Passages that the reader reads for each training question, and made questions that it reads besides."""
EPOCHS, BATCH = 2, 16
"""Of all that learns from questions."""
WRITER = ("training.optimizer.learning_rate=1e-4", f"task.writing.tokens={TOKENS}")
WORDS = {"retrieval_augmented": (*WRITER, f"task.retrieval.count={READ}", f"training.length={LENGTH}",
                                 'task.after_question="[SEP]"',
                                 "task.marginal={kind: sequence, scoring: {kind: fast}}"),
         "text_to_text": (*WRITER, "task.input=question", "task.target=answer", "training.length=64"),
         "question_answering": (f"training.length={LENGTH}", "task.stride=128")}
LOOKED_AT = 64
"""Questions of the training file that are held out of it, to look at."""
WINDOW, HELD_OUT, QUICK_TEXTS = 3, 500, 40
"""Sentences before and after the one that is asked about; pairs that measure the start; texts of a quick run."""
NAME = re.compile(r"[A-Z][\w'-]+(?: (?:of the |of |the |and |de )?[A-Z][\w'-]+)*|\d[\d,.]*\d|\d+")
PIECE = re.compile(r"\b[a-z][a-z'-]{3,}(?: [a-z][a-z'-]{3,}){0,2}")
SHARE_KEPT, KEPT_OF_SPANS = 0.8, 0.7
"""Words of a question that stay, and what is promised: the share of the span reader's exact match."""


def measure(quick: bool) -> Section:
    """Learn, answer, and compare."""
    from saucier.tasks.metrics.statistics import paired_difference

    seeds = SEEDS[:1] if quick else SEEDS
    files = write_files(RUNS, quick)
    found = [answer(RUNS / ("quick" if quick else "full") / str(seed), files, seed, quick) for seed in seeds]
    right = {name: np.array([one[name] for one in found]) for name in found[0]}
    mean = {name: float(value.mean()) for name, value in right.items()}
    gap = paired_difference(right["RAG"], right["no passages"], np.ones(right["RAG"].shape[1]), draws=DRAWS)
    rows = [at_least(f"exact match, {right['RAG'].shape[1]:,} questions: RAG as a share of the span reader's on the "
                     "same passages", f"RAG {mean['RAG']:.3f}", f"span reader {mean['spans']:.3f}",
                     mean["RAG"] / mean["spans"] if mean["spans"] else float("nan"), KEPT_OF_SPANS),
            Row("RAG against the same writer without passages", f"{mean['RAG']:.3f}",
                f"{mean['no passages']:.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})",
                target="better", reached=bool(gap.low > 0)),
            Row("the answer stands in a passage that is read", f"{mean['found']:.3f}")]
    about = (f"MiniLM on both sides of an encoder-decoder, one start for all seeds ({START['steps']:,} updates of the "
             f"decoder with what a span reader took), then {EPOCHS} epochs of SQuAD's training "
             f"questions, {READ} passages each (RAG-Sequence). The span reader is MiniLM, fine-tuned on the same "
             "questions in their right paragraphs; its surest span of the same passages is its answer. Mean of the "
             "seeds; in brackets the 95 % interval of a paired bootstrap over seeds and questions. MiniLM has seen "
             "SQuAD.")
    return Section("Answers written from passages", about, rows, [f"`{RUNS}` holds every run."])


def write_files(place: Path, quick: bool) -> dict[str, Path]:
    """Write the questions to learn from, to look at and to ask, unless they are there."""
    place = place / ("quick-files" if quick else "files")
    files = {name: place / f"{name}.jsonl" for name in ("train", "dev", "test")}
    if files["test"].is_file():
        return files
    place.mkdir(parents=True, exist_ok=True)
    asked, test = ([{**row, "qas": [one]} for row in read_lines(needed("qa", f"squad_v1.1_{part}_part.jsonl"))
                    for one in row["qas"]] for part in ("train", "dev"))
    few = np.arange(LOOKED_AT) * (len(asked) // LOOKED_AT)
    write_lines(files["dev"], [asked[number] for number in few])
    write_lines(files["train"], [row for number, row in enumerate(asked) if number not in {*few.tolist()}]
                [:LOOKED_AT if quick else None])
    write_lines(files["test"], test[:LOOKED_AT // 8] if quick else test)
    return files


def read_articles(path: Path) -> list[str]:
    """Return the paragraphs of WikiText, written as people write; headings are left out."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [re.sub(r" @(.)@ ", r"\1", line) for line in lines if line and not line.startswith("=")]


def make_questions(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield questions, which are sentences with a question word in place of a name, a number or other words, and the
    stretches of text that hold them.
    """
    random = np.random.default_rng(0)
    for text in texts:
        sentences = text.split(" . ")
        for number, sentence in enumerate(sentences):
            pattern = NAME if random.random() < 0.6 else PIECE
            pieces = [one for one in pattern.finditer(sentence) if one.start() and "<unk>" not in one.group()]
            if len(sentence.split()) < 6 or not pieces:
                continue
            piece = pieces[random.integers(len(pieces))]
            first = max(0, number - int(random.integers(WINDOW + 1)))
            read = " . ".join(sentences[first:number + 1 + int(random.integers(WINDOW + 1))])
            around = [[word for word in half.split() if random.random() < SHARE_KEPT]
                      for half in (sentence[:piece.start()], sentence[piece.end():])]
            yield " ".join([*around[0], choose_question_word(piece.group()), *around[1], "?"]), read


def choose_question_word(piece: str) -> str:
    """Return the word that asks for a piece."""
    if re.fullmatch(r"1\d\d\d|20\d\d", piece):
        return "when"
    return "how many" if piece[0].isdigit() else "who" if piece[0].isupper() and " " in piece else "what"


def find_near(questions: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each question with the training passages that MiniLM finds for it."""
    from saucier.retrieval.encoder import open_encoder
    from saucier.retrieval.nearest import find_nearest
    from saucier.retrieval.passages import read_passages

    encoder = open_encoder(weights(), device="cpu")
    texts = [one.text for one in read_passages(needed("retrieval", TRAINED))]
    places = find_nearest(encoder.embed_tensor(questions), encoder.embed_tensor(texts), NEAR)[1]
    for question, found in zip(questions, places.tolist(), strict=True):
        yield from ((question, texts[place]) for place in found)


def write_taught(place: Path, reader: Path, files: dict[str, Path], quick: bool) -> tuple[Path, Path]:
    """Write what a reader takes from texts, for training questions and made ones, as pairs: most, and some held out."""
    from saucier.jobs.knowledge.spans import open_spans

    parts = place / "taught-train.tsv", place / "taught-dev.tsv"
    if parts[1].is_file():
        return parts
    random = np.random.default_rng(0)
    made = [*make_questions(read_articles(needed("lm", "wikitext2", "train.txt"))[:QUICK_TEXTS if quick else None])]
    made = [made[number] for number in random.permutation(len(made))[:MADE]]
    asked = [*find_near([row["qas"][0]["question"] for row in read_lines(files["train"])]), *made]
    spans = open_spans(str(reader)).find_spans(*map(list, zip(*asked, strict=True)))
    rows = ["\t".join(" ".join(part.split()) for part in (f"{question} [SEP] {text}", span.text))
            for (question, text), span in zip(asked, spans, strict=True) if span.text]
    rows = [rows[number] for number in random.permutation(len(rows))]
    held_out = min(HELD_OUT, len(rows) // 10)
    place.mkdir(parents=True, exist_ok=True)
    for path, some in zip(parts, (rows[held_out:], rows[:held_out]), strict=True):
        path.write_text("".join(f"{row}\n" for row in ("source\ttarget", *some)), encoding="utf-8")
    return parts


def learn_start(place: Path, reader: Path, files: dict[str, Path], quick: bool) -> Path:
    """Let MiniLM learn to write what a reader took, from the reader's vectors, unless that is done."""
    run, whole, size = place / "run", place / "model", {"steps": 4, "batch": 8, "length": LENGTH} if quick else START
    if not whole.is_dir():
        train, dev = write_taught(place, reader, files, quick)
        cooking.saucier("cook", "--encoder", str(reader / "model"), "--decoder", weights(), "--data", str(train),
                        "--held-out", str(dev), "--out", str(run), "data.kind=pairs",
                        "objective.kind=sequence_to_sequence", "tuning.kind=freeze",
                        'tuning.where=["embed.*","encoder.*","decoder_embed.tokens.*"]', "model.mix={}",
                        *(f"training.{key}={value}" for key, value in size.items()),
                        f"training.optimizer.learning_rate={RATE}", f"training.schedule.warmup={size['steps'] // 12}")
        cooking.saucier("convert", str(run), str(whole))
    return whole


def learn(run: Path, task: str, start: str, files: tuple[Path, Path], seed: int, quick: bool,
          more: Sequence[str] = ()) -> Path:
    """Learn a task from the questions, unless that is done."""
    return finetuned(run, task, start, files, [
        *WORDS[task], *more, f"training.seed={seed}", f"training.epochs={1 if quick else EPOCHS}",
        f"training.batch={8 if quick else BATCH}"])


def answer(place: Path, files: dict[str, Path], seed: int, quick: bool) -> dict[str, list[float]]:
    """Return which questions are answered rightly by RAG, by spans of the same passages, and without passages; and
    for which of them a right answer stands in the passages. What is done is kept.
    """
    import saucier
    from saucier.files import write_json
    from saucier.retrieval.encoder import open_encoder
    from saucier.retrieval.passages import PassageIndex, read_passages

    kept = place / "right.json"
    if kept.is_file():
        found: dict[str, list[float]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    learned = files["train"], files["dev"]
    readers = [learn(place.parent / one / "spans", "question_answering", weights(), learned, int(one), quick)
               for one in ("0", str(seed))]
    start = str(learn_start(place.parent / "start", readers[0], files, quick))
    run = learn(place / "rag", "retrieval_augmented", start, learned, seed, quick, [
        f"task.retrieval.retriever={weights()}", f"task.retrieval.passages={needed('retrieval', TRAINED)}"])
    PassageIndex.build(read_passages(needed("retrieval", TESTED)),
                       open_encoder(weights(), device="cpu")).write(run / "model" / "passages")
    right = score_all(run, readers[1], files["test"])
    train, dev, test = (write_table(path) for path in (*learned, files["test"]))
    closed = learn(place / "closed", "text_to_text", start, (train, dev), seed, quick)
    right["no passages"] = score(saucier.predict(closed, str(test)).answers, files["test"]).tolist()
    write_json(kept, right)
    return right


def score_all(rag: Path, spans: Path, asked: Path) -> dict[str, list[float]]:
    """Ask RAG, and give what it read to the span reader."""
    from saucier.jobs.finetuning.predict import predict_answers
    from saucier.jobs.knowledge.spans import open_spans
    from saucier.tasks.metrics.texts import normalize_answer

    said = predict_answers(rag, [str(asked)]).answers
    read = [[one["text"] for one in answer.more["evidence"]] for answer in said]
    questions = [row["qas"][0]["question"] for row in read_lines(asked)]
    found = iter(open_spans(str(spans)).find_spans([one for one, texts in zip(questions, read, strict=True)
                                                    for _ in texts], [text for texts in read for text in texts]))
    best = [max((next(found) for _ in texts), key=lambda span: span.score).text for texts in read]
    stands = [float(any(normalize_answer(one["text"]) in normalize_answer(text) for one in row["qas"][0]["answers"]
                        for text in texts)) for row, texts in zip(read_lines(asked), read, strict=True)]
    return {"RAG": score([str(one.prediction) for one in said], asked).tolist(),
            "spans": score(best, asked).tolist(), "found": stands}


def write_table(path: Path) -> Path:
    """Write questions with their first answers alone, next to a file of questions with paragraphs."""
    table = path.with_name(f"table-{path.name}")
    write_lines(table, [{"question": one["qas"][0]["question"], "answer": one["qas"][0]["answers"][0]["text"]}
                        for one in read_lines(path)])
    return table

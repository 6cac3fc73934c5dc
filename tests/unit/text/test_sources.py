"""Files, globs, standard input, compression, and what is said about a file that is no text."""

from __future__ import annotations

import gzip
import io
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.text.reading import sources
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import BLOCK, find_encoding, find_sources, read_blocks, read_lines

Write = Callable[[str, str | bytes], str]
TEXT = "Größe, 中文 🙂\nzweite Zeile\n" * 9000


def zstd(data: bytes) -> bytes:
    """Compress with zstd."""
    return pyarrow.Codec("zstd").compress(data, asbytes=True)


def read(name: str) -> str:
    """Read the whole text of one file."""
    return "".join(read_blocks(find_sources([name])[0]))


@pytest.mark.parametrize(("ending", "compress"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_reads_what_was_written(write: Write, ending: str, compress: Callable[[bytes], bytes]) -> None:
    assert read(write(f"a.txt{ending}", compress(TEXT.encode()))) == TEXT


def test_reads_zstd(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    with pyarrow.output_stream(str(path), compression="zstd") as stream:
        stream.write(TEXT.encode())
    assert read(str(path)) == TEXT


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("cut", [True, False])
def test_damaged_archive_is_one_clear_error(tmp_path: Path, write: Write, ending: str, cut: bool) -> None:
    data = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}[ending](TEXT.encode())
    name = write(f"a.txt{ending}", data[: len(data) // 2] if cut else b"not an archive at all")
    with pytest.raises(InputError, match=rf"a\.txt\{ending}: is not a whole {ending[1:]} file"):
        read(name)


@given(st.text(alphabet=st.sampled_from("aé中🙂\n\r"), max_size=400), st.integers(1, 9))
def test_blocks_join_to_the_text_whatever_the_block_size(text: str, block: int) -> None:
    class InMemory(io.BytesIO):
        """A file that gives few bytes at a time."""

        def read(self, size: int | None = -1) -> bytes:
            return super().read(block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_open_source", lambda source: InMemory(text.encode()))
        got = "".join(read_blocks(sources.SourceFile("x", Path("x"), "txt", None, encoding="utf-8")))
    assert got == text.replace("\r\n", "\n")


def test_blocks_are_small_and_end_at_lines(write: Write) -> None:
    blocks = list(read_blocks(find_sources([write("a.txt", TEXT)])[0]))
    assert max(len(block.encode()) for block in blocks) <= 2 * BLOCK
    assert all(block.endswith("\n") for block in blocks)


def test_byte_order_mark_is_dropped(write: Write) -> None:
    assert read(write("a.txt", b"\xef\xbb\xbfabc\n")) == "abc\n"


def test_only_real_line_ends_end_a_line(write: Write) -> None:
    name = write("a.txt", "one\u2028still\x0bone\r\ntwo\n\nfour")
    assert list(read_lines(find_sources([name])[0])) == [(1, "one\u2028still\x0bone"), (2, "two"), (3, ""), (4, "four")]


def test_wrong_encoding_names_the_byte(write: Write) -> None:
    head = b"x" * 70_000 + b"\n" + b"y" * 70_000
    name = write("a.txt", head + "é".encode("latin1") + b" more")
    with pytest.raises(InputError, match=r"a\.txt: byte 140001: 0xe9 is not UTF-8 here; convert"):
        "".join(read_blocks(find_sources([name], ReadOptions(encoding="utf-8"))[0]))
    assert read(name) == head.decode() + "é more"


def test_a_few_damaged_bytes_do_not_make_utf8_another_encoding(write: Write) -> None:
    with pytest.raises(InputError, match="byte 6: 0xff is not UTF-8 here"):
        read(write("a.txt", "größe".encode()[:6] + b"\xff" + "für über größe".encode()))


def test_unfinished_character_at_the_end_names_the_byte(write: Write) -> None:
    with pytest.raises(InputError, match="byte 3: 0xe4"):
        read(write("a.txt", b"abc\xe4\xb8"))


def test_binary_names_the_byte(write: Write) -> None:
    with pytest.raises(InputError, match="byte 5: holds a zero byte, so this is binary"):
        read(write("a.txt", b"hello\0world"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "cp1252", "latin-1"])
def test_encodings_are_guessed(write: Write, encoding: str) -> None:
    text = "Größe über alles, café\n" + "x\r\n" * BLOCK
    name = write("a.txt", text.encode(encoding))
    assert read(name) == text.replace("\r\n", "\n")
    guess = find_encoding(find_sources([name])[0])
    assert guess.value == {"latin-1": "cp1252"}.get(encoding, encoding)
    assert bool(guess.doubt) == (encoding in ("utf-16-le", "utf-16-be", "cp1252", "latin-1"))


def test_what_cp1252_has_no_letter_for_is_latin1(write: Write) -> None:
    assert read(write("a.txt", b"caf\xe9 \x81 na\xefve")) == "café \x81 naïve"


def test_an_encoding_that_is_said_is_taken(write: Write) -> None:
    name = write("a.txt", "Тихий Дон\n".encode("cp1251"))
    assert "".join(read_blocks(find_sources([name], ReadOptions(encoding="windows-1251"))[0])) == "Тихий Дон\n"
    with pytest.raises(InputError, match=r"a\.txt: about byte 0: is not ascii; give another --encoding"):
        "".join(read_blocks(find_sources([name], ReadOptions(encoding="ascii"))[0]))
    with pytest.raises(InputError, match="'utf-9' is no encoding"):
        ReadOptions(encoding="utf-9")


def test_binary_data_without_zeros_is_no_text(write: Write) -> None:
    with pytest.raises(InputError, match="byte 4: 0x89 is not UTF-8"):
        read(write("a.txt", b"\x01\x02ab\x89PNG\xe9"))


def test_missing_file_gets_the_nearest_name(write: Write, tmp_path: Path) -> None:
    write("train.txt", "a")
    with pytest.raises(InputError, match=r"trian\.txt: no such file; did you mean 'train\.txt'\?"):
        find_sources([str(tmp_path / "trian.txt")])


@pytest.mark.parametrize(
    ("name", "message"), [("empty.txt", "is empty"), (".", "is a folder"), ("*.nothing", "no file matches")]
)
def test_unusable_names(write: Write, tmp_path: Path, name: str, message: str) -> None:
    write("empty.txt", "")
    with pytest.raises(InputError, match=message):
        find_sources([str(tmp_path / name)])


def test_globs_are_sorted_and_go_down(write: Write, tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/er/c.txt", "no.csv"):
        write(name, "x")
    found = find_sources([str(tmp_path / "**/*.txt")])
    assert [source.path.name for source in found] == ["a.txt", "b.txt", "c.txt"]


@pytest.mark.parametrize(
    ("name", "kind", "compression"),
    [
        ("a.jsonl", "jsonl", None),
        ("a.tsv.gz", "tsv", "gz"),
        ("a.CSV", "csv", None),
        ("a", "txt", None),
        ("a.v1.md", "txt", None),
        ("a.parquet", "parquet", None),
        ("a.txt.zst", "txt", "zst"),
    ],
)
def test_format_by_ending(write: Write, name: str, kind: str, compression: str | None) -> None:
    source = find_sources([write(name, "x")])[0]
    assert (source.format, source.compression) == (kind, compression)


def test_standard_input_is_read_twice() -> None:
    script = (
        "from saucier.text.reading.documents import read_documents as r;"
        "print([[d.text for d in r(['-.jsonl'], column='t')] for _ in range(2)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=b'{"t": "a"}\n{"t": "b"}\n', capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "[['a', 'b'], ['a', 'b']]"


@pytest.mark.slow
def test_a_large_file_streams(tmp_path: Path) -> None:
    """Reading 64 MB takes less than 40 MB more memory than reading nothing."""
    path = tmp_path / "large.txt"
    with path.open("w") as file:
        for _ in range(64):
            file.write("all work and no play makes\n" * 38_837)
    script = (
        "import resource, sys; from saucier.text.reading.corpus import TextCorpus\n"
        "from saucier.text.config import TextData\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); corpus = TextCorpus(TextData(files=(sys.argv[1],)))\n"
        "print(sum(len(d.text) for d in corpus.train) + sum(len(d.text) for d in corpus.held_out), peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=True)
    size, growth = map(int, done.stdout.split())
    assert size == path.stat().st_size
    assert growth < 40_000

"""Documents for tests: written by what reads them elsewhere, or by hand where it writes none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import docx
from pypdf import PdfReader, PdfWriter


def write_pdf(path: Path, pages: Sequence[str], *, outline: Mapping[int, str] | None = None,
              password: str | None = None) -> Path:
    """Write a PDF with a line of text on each page; an empty one has none."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>",
               b"<< /Type /Pages /Count %d /Kids [%s] >>" % (
                   len(pages), b" ".join(b"%d 0 R" % (4 + 2 * place) for place in range(len(pages)))),
               b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    for place, text in enumerate(pages):
        drawn = b"BT /F1 12 Tf 50 700 Td (%s) Tj ET" % text.encode("latin-1") if text else b""
        objects += [b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
                    b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * place),
                    b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn)]
    content, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, start=1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    content += b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1, table, len(objects) + 1, len(content))
    path.write_bytes(content)
    if outline or password:
        writer = PdfWriter(clone_from=PdfReader(path))
        for page, title in (outline or {}).items():
            writer.add_outline_item(title=title, page_number=page)
        if password:
            writer.encrypt(password, algorithm="RC4-128")
        writer.write(path)
    return path


def write_docx(path: Path) -> Path:
    """Write a Word document with a title, a heading and a table."""
    made = docx.Document()
    made.add_heading("Manual", level=0)
    made.add_paragraph("Before.")
    made.add_heading("Wheels", level=1)
    made.add_paragraph("They are round.")
    table = made.add_table(rows=2, cols=2)
    for row, cells in zip(table.rows, (("name", "size"), ("front", "17")), strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    made.save(str(path))
    return path

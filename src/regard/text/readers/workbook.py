"""The first sheet of a workbook (.xlsx), read row by row with openpyxl.

A workbook is a zip archive of XML files. Their unpacked size is limited before they are read, as for every packed file,
and so is the number of rows and columns.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from pathlib import Path
from typing import Any, BinaryIO

from regard.base.errors import RegardError
from regard.base.reading import max_unpacked_bytes, reading, unpacks_to_too_much

MAX_ROWS = 1 << 20  # of a sheet, as Excel has it
MAX_FIELDS = 1000


class Workbook:
    """Its first sheet: the stored results of formulas, numbers and dates as text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._openpyxl()
        with reading(path) as stream:
            sheet, count = self._attempt(lambda: self._first_sheet(stream))
            self.sheet = f"sheet {sheet.title!r}" + (f", the first of {count}" if count > 1 else "")

    def rows(self) -> Iterator[tuple[int, Sequence[str]]]:
        """The number of each row, and its fields."""
        with reading(self.path) as stream:
            sheet, _ = self._attempt(lambda: self._first_sheet(stream))
            self._attempt(sheet.reset_dimensions)  # a sheet's stated size may be wrong
            cells = sheet.iter_rows(values_only=True)
            for number in range(1, MAX_ROWS + 1):
                values = self._attempt(lambda: next(cells, None))
                if values is None:
                    return
                fields = [_text(value) for value in values]
                while fields and not fields[-1]:
                    fields.pop()
                if len(fields) > MAX_FIELDS:
                    raise RegardError(f"{str(self.path)!r} has more than {MAX_FIELDS} columns; give a table of texts.")
                yield number, fields
        raise RegardError(
            f"{str(self.path)!r} has more than {MAX_ROWS} rows, more than a sheet can have: check the file."
        )

    def _first_sheet(self, stream: BinaryIO) -> tuple[Any, int]:
        """The first sheet that is not hidden, and the number of such sheets."""
        with zipfile.ZipFile(stream) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > max_unpacked_bytes(self.path):
                raise unpacks_to_too_much(self.path)
        book = self._openpyxl().load_workbook(stream, read_only=True, data_only=True, keep_links=False)
        shown = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
        if not shown:
            raise RegardError(f"{str(self.path)!r} has no visible sheet with cells; give a workbook that contains one.")
        return shown[0], len(shown)

    def _openpyxl(self) -> Any:
        try:
            import openpyxl
        except ImportError:
            raise RegardError(f"To read {str(self.path)!r}, install openpyxl: pip install 'regard[data]'.") from None
        warnings.filterwarnings("ignore", module="openpyxl")  # about styles and rules, which are not read
        return openpyxl

    def _attempt(self, read: Any) -> Any:
        try:
            return read()
        except RegardError:
            raise
        except Exception as error:  # a damaged part may raise anything
            raise RegardError(
                f"{str(self.path)!r} is not a complete workbook ({type(error).__name__}: {str(error)[:100]}); save it "
                "again as XLSX, or as CSV."
            ) from None


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()  # a day
    return str(value)

"""Tables that keep their numbers on a narrow terminal, and numbers of things in words.

Words are shortened, and columns go below.

A column with `no_wrap` is shown whole. The others are folded as far as that needs; where even that
is not enough, the table goes on below with its first column and those that found no room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

#: A column that may be folded keeps its longest word, or so many characters of it: those of a time.
_FOLDED: Final = 21


@dataclass(frozen=True)
class FittedTable:
    """A table that is cut to the width of where it is printed.

    Parameters
    ----------
    table
        The table; numbers are in columns with `no_wrap`.

    Examples
    --------
    >>> table = Table("name", box=None, padding=(0, 2, 0, 0))
    >>> for head in ("events", "matches"):
    ...     table.add_column(head, justify="right", no_wrap=True)
    >>> table.add_row("a long name", "1,000,000", "1,000")
    >>> Console(width=24).print(FittedTable(table))
    name            events
    a long name  1,000,000
    name         matches
    a long name    1,000
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = list(self.table.columns)
        for number, columns in enumerate(_blocks(self.table, whole, options.max_width)):
            yield _part(self.table, columns, titled=number == 0)


def counted(number: int, thing: str) -> str:
    """Return how many things there are, in words.

    Examples
    --------
    >>> counted(1, "row"), counted(2_000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def counted_bytes(size: int) -> str:
    """Return a number of bytes, in words.

    Examples
    --------
    >>> counted_bytes(200), counted_bytes(1_500), counted_bytes(64 * 2**20)
    ('200 bytes', '1.5 kB', '67.1 MB')
    """
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return counted(size, "byte")


def _blocks(table: Table, columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """Yield which columns stand beside each other."""
    boxed = table.box is not None
    gap = table.padding[1] + table.padding[3] + boxed
    least = [
        (_width(column) if column.no_wrap else min(_FOLDED, _width(column, words=True))) + gap
        for column in columns
    ]
    block: list[Column] = []
    used = int(boxed)
    for column, needed in zip(columns, least, strict=True):
        if len(block) > 1 and used + needed > room:
            yield block
            block, used = [columns[0]], int(boxed) + least[0]
        block.append(column)
        used += needed
    yield block


def _width(column: Column, *, words: bool = False) -> int:
    """Return how wide a column is, or the longest word in it."""
    cells = (column.header, *column.cells)
    texts = [cell.plain if isinstance(cell, Text) else str(cell) for cell in cells]
    parts = [part for text in texts for part in (text.split() if words else [text])]
    return max(map(cell_len, parts), default=0)


def _part(table: Table, columns: Sequence[Column], *, titled: bool) -> Table:
    part = Table(
        title=table.title if titled else None,
        title_justify=table.title_justify,
        box=table.box,
        padding=table.padding,
        pad_edge=table.pad_edge,
        show_header=table.show_header,
        header_style=table.header_style,
    )
    for column in columns:
        part.add_column(
            column.header,
            justify=column.justify,
            no_wrap=column.no_wrap,
            overflow=column.overflow if column.no_wrap else "fold",
            min_width=column.min_width,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*row)
    return part

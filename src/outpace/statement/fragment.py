"""Text put together from pieces of the user's statement, which remembers where each came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from outpace.errors import OutpaceError, Span


@dataclass(frozen=True, slots=True)
class Fragment:
    """Pieces of text, each with its place in the statement, or None where it is not from there.

    Examples
    --------
    >>> fragment = Fragment((("SELECT * FROM ", None), ("ticks", 40)))
    >>> fragment.text
    'SELECT * FROM ticks'
    >>> fragment.place(15), fragment.place(0)
    (41, None)
    """

    pieces: tuple[tuple[str, int | None], ...] = ()

    @staticmethod
    def join(parts: Iterable[str | Fragment]) -> Fragment:
        """Return one fragment of several parts; a plain string is not from the statement."""
        pieces: list[tuple[str, int | None]] = []
        for part in parts:
            pieces.extend(part.pieces if isinstance(part, Fragment) else ((part, None),))
        return Fragment(tuple(pieces))

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece for piece, _ in self.pieces)

    def place(self, index: int) -> int | None:
        """Return where in the statement the character at an index of the text comes from."""
        start = 0
        for piece, origin in self.pieces:
            if index < start + len(piece):
                return None if origin is None else origin + index - start
            start += len(piece)
        return None

    def relocate(self, error: OutpaceError, statement: str) -> OutpaceError:
        """Turn a place in the fragment's text into the place in the statement."""
        if error.span is not None and error.text is None:
            start = self.place(error.span.start)
            width = error.span.end - error.span.start
            error.span = None if start is None else Span(start, start + width)
        return error.located(statement, "statement")

"""The names of the SQL dialects: the library's own, and those that sqlglot knows."""

from __future__ import annotations

import sqlglot

from outpace.errors import UnsupportedError, did_you_mean

#: The library's own dialect: MATCH_RECOGNIZE as Outpace has it, inside the database's own SQL.
OWN = "outpace"


class Flink(sqlglot.Dialect):
    """Flink SQL as far as it differs from the standard: names are quoted with backticks."""

    TYPED_DIVISION = True

    class Tokenizer(sqlglot.Tokenizer):
        """The quotes of Flink SQL."""

        IDENTIFIERS = ["`"]  # noqa: RUF012 - sqlglot's metaclass reads a plain list


def check_dialect(dialect: str) -> str:
    """Return the name of a dialect in lower case, or fail with the closest known names.

    Examples
    --------
    >>> check_dialect("Trino")
    'trino'
    >>> check_dialect("trinno")
    Traceback (most recent call last):
    outpace.errors.UnsupportedError: [unsupported] there is no dialect 'trinno'
      hint: did you mean 'trino'?
    """
    name = dialect.lower()
    # The known ones are listed only for who asks for another: that loads them all.
    if name != OWN and (not name or sqlglot.Dialect.get(name) is None):
        known = {OWN, *(key for key in sqlglot.Dialect.classes if key)}
        raise UnsupportedError(
            f"there is no dialect '{dialect}'",
            hint=did_you_mean(name, known) or f"known dialects: {', '.join(sorted(known))}",
        )
    return name

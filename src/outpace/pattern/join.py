"""A join of two streams as a value: which columns are equal, and how far apart in time rows are."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any, Final

from outpace.errors import BindError, Hint, UnsupportedError
from outpace.pattern.argument import a_duration, a_text, an_instance, one_of, shown, some_names
from outpace.pattern.disorder import Disorder, Speculative
from outpace.pattern.query import JoinKind, Query

#: The sides of a join, which are the sources of its events.
SIDES: Final = ("left", "right")


@dataclass(frozen=True, kw_only=True)
class Join:
    """Two streams that are joined where columns are equal and times are close.

    Two rows are a pair where all columns of `on` are equal and not NULL, and their times are at
    most `within` apart. Each pair comes out once, in order of time.

    Parameters
    ----------
    on
        The column that is equal in both rows, or a list of columns; both sides have them.
    within
        How far apart the times of a pair may be, at most: "5 min", a timedelta, or an integer in
        units of an integer time column.
    time
        The column of event time, which both sides have.
    how
        "inner" for pairs alone; with "left" a row of the left side without a partner comes out too,
        once, with NULL for the right side, when no partner can come any more.
    uncertain
        How far the time between two rows may be off, as in `Query.uncertain`: rows are a pair that
        may be one, and the column `confidence` says whether they are in any case.
    disorder
        How far each side may be out of order, and what becomes of late rows, as in
        `Query.disorder`; by default both are in order.
    name
        What the result is called where several are told apart.

    Raises
    ------
    UnsupportedError
        The disorder does not go with joins.

    Examples
    --------
    >>> Join(on="id", within="5 min", time="ts").on
    ('id',)
    """

    on: tuple[str, ...] | list[str] | str
    within: str | datetime.timedelta | int
    time: str
    how: JoinKind | str = JoinKind.INNER
    uncertain: str | datetime.timedelta | int | None = None
    disorder: Disorder | None = None
    name: str = "join"

    def __post_init__(self) -> None:
        on: Any = self.on
        hint = 'write on="id", or on=["id", "site"]'
        names = (on,) if isinstance(on, str) else some_names(on, "on", hint=hint)
        if not names:
            raise BindError("a join is on one column at least", where="on", hint=hint)
        within = a_duration(self.within, "within")
        if (within < 0) if isinstance(within, int) else (within < datetime.timedelta(0)):
            raise BindError(
                f"within must not be negative, as {shown(self.within)} is",
                where="within",
                hint='write within="5 min", or a number in units of the time column',
            )
        uncertain = None if self.uncertain is None else _uncertain(self.uncertain, within)
        a_text(self.time, "the column of event time", hint='write time="ts"')
        if self.disorder is not None:
            an_instance(self.disorder, Disorder, "disorder", hint='write disorder=op.KSlack("2 s")')
            _check_disorder(self.disorder)
        a_text(self.name, "the name of a join")
        object.__setattr__(self, "on", tuple(names))
        object.__setattr__(self, "within", within)
        object.__setattr__(self, "uncertain", uncertain)
        object.__setattr__(self, "how", one_of(JoinKind, self.how, "how"))

    @property
    def outline(self) -> Query:
        """What is known of the query that joins without the columns: name, time and disorder."""
        return replace(Query(self.name).order_by(self.time), order_of_arrival=self.disorder)


def _uncertain(
    bound: str | datetime.timedelta | int, within: datetime.timedelta | int
) -> datetime.timedelta | int:
    """Return how far the time between two rows may be off."""
    value = Query().uncertain(bound).uncertainty
    assert value is not None
    if isinstance(value.bound, int) is not isinstance(within, int):
        raise BindError(
            "uncertain and within are in different units",
            where="uncertain",
            hint="give two durations, or two numbers in units of the time column",
        )
    if value.bound > within:  # type: ignore[operator]  # Both are integers, or both durations.
        raise BindError(
            "uncertain must not be longer than within",
            where="uncertain",
            detail="else no pair would be sure",
        )
    return value.bound


def _check_disorder(disorder: Disorder) -> None:
    """Refuse a disorder that the sides of a join cannot have."""
    if isinstance(disorder, Speculative):
        raise UnsupportedError(
            "op.Speculative does not go with a join",
            where="disorder",
            detail="each side of a join is brought into order by itself",
            hint=Hint(
                'wait with op.KSlack("2 s"), or correct: op.KSlack("2 s", late="correct", '
                'horizon="1 min")',
                "wait with SLACK '2 s', or correct: SLACK '2 s' LATE CORRECT HORIZON '1 min'",
            ),
        )
    if disorder.flag is not None:
        raise UnsupportedError(
            "a join gives the columns of its sides, and none that flags rows",
            where="disorder",
            hint="leave out flag",
        )

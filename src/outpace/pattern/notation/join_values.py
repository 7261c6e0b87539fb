"""Joins as plain values, which saved states and recordings hold: written, and read back."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from outpace.errors import OutpaceError, StateError
from outpace.pattern.duration import print_duration
from outpace.pattern.join import Join
from outpace.pattern.notation.disorder import disorder_clauses, parse_disorder
from outpace.pattern.query import JoinKind

_DISORDER: Final = "DISORDER "


def join_settings(join: Join) -> dict[str, Any]:
    """Return what decides which rows are joined, and how they come out, as plain values.

    Examples
    --------
    >>> join_settings(Join(on="id", within="5 min", time="ts", uncertain="1 s"))
    {'on': ['id'], 'within': '5 minutes', 'time': 'ts', 'how': 'inner', 'uncertain': '1 second'}
    """
    assert isinstance(join.how, JoinKind)
    within, uncertain = (
        print_duration(span) if isinstance(span, datetime.timedelta) else span
        for span in (join.within, join.uncertain)
    )
    return {
        "on": list(join.on),
        "within": within,
        "time": join.time,
        "how": join.how.value,
        "uncertain": uncertain,
    }


def write_join(join: Join) -> dict[str, Any]:
    """Return all settings of a join as plain values.

    Examples
    --------
    >>> write_join(Join(on="id", within=5, time="ts"))["disorder"]
    """
    disorder = [one.removeprefix(_DISORDER) for one in disorder_clauses(join.outline)]
    return {
        **join_settings(join),
        "name": join.name,
        "disorder": disorder[0] if disorder else None,
    }


def read_join(settings: Mapping[str, Any]) -> Join:
    """Return the join with such settings.

    Raises
    ------
    StateError
        There is no such join.

    Examples
    --------
    >>> join = Join(on="id", within=5, time="ts", how="left")
    >>> read_join(write_join(join)) == join
    True
    """
    known = dict(settings)
    disorder = known.pop("disorder", None)
    try:
        if disorder is not None:
            known["disorder"] = parse_disorder(disorder, "disorder")
        return Join(**known)
    except (OutpaceError, TypeError, AttributeError) as error:
        raise StateError("there is no such join", detail=str(error)) from error


def check_join(join: Join, saved: object) -> None:
    """Refuse the saved settings of another join.

    Examples
    --------
    >>> saved = join_settings(Join(on="id", within="5 min", time="ts"))
    >>> check_join(Join(on="id", within="9 min", time="ts"), saved)
    Traceback (most recent call last):
    outpace.errors.StateError: [state] the saved state belongs to a join with another `within`
      saved with 5 minutes, now 9 minutes
      hint: resume it with the join that it was saved from, or start from the input
    """
    for name, now in join_settings(join).items():
        before = saved.get(name) if isinstance(saved, Mapping) else None
        if before != now:
            raise StateError(
                f"the saved state belongs to a join with another `{name}`",
                detail=f"saved with {_shown(before)}, now {_shown(now)}",
                hint="resume it with the join that it was saved from, or start from the input",
            )


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

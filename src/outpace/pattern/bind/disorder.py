"""Binding disorder: what a query says of the order of its stream, as the schema has it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass
from enum import Enum
from string import Formatter
from typing import Any, Final

import pyarrow as pa

from outpace.errors import BindError, Hint
from outpace.pattern import types
from outpace.pattern.bind.scope import resolve_column
from outpace.pattern.bind.units import in_units
from outpace.pattern.checkpoints import CheckpointModel
from outpace.pattern.disorder import (
    AdaptiveSlack,
    Disorder,
    InOrder,
    Invalid,
    KSlack,
    Late,
    Punctuation,
    Sequence,
    Speculative,
)
from outpace.pattern.duration import print_duration
from outpace.pattern.query import Query
from outpace.pattern.setting import (
    ClockSpan,
    ColumnName,
    ColumnValues,
    EventSpan,
    FlagName,
    Number,
    Setting,
    SourceName,
    settings_of,
)
from outpace.pattern.types import type_name
from outpace.pattern.windows import SessionWindows, TimeWindows

#: Which types hold the values that a setting asks for.
_FITTING: Final[dict[ColumnValues, Callable[[pa.DataType], bool]]] = {
    ColumnValues.INTEGERS: types.is_integer,
    ColumnValues.NUMBERS: types.is_numeric,
    ColumnValues.TIMES: lambda kind: types.is_instant(kind) or types.is_integer(kind),
}

#: The column that says who sent an event.
SOURCE: Final = "source"

#: The column that makes a row an exchange with the clock of its source, and no event: four times.
CLOCK: Final = "clock"
CLOCK_TIMES: Final = ("asked", "received", "answered", "heard")

#: Columns that break ties where the input has them and the query does not order by them.
TIES: Final = ("seq", SOURCE)

_MICROSECOND: Final = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BoundDisorder:
    """Disorder that fits a schema.

    Parameters
    ----------
    time
        The column of event time: the first of the query's order.
    value
        What the query says.
    settings
        All its settings by their names: durations of event time in units of the time column, those
        by the clock in microseconds, columns as the schema spells them, another disorder bound too.
    ties
        Columns that order events beyond the query's order.
    """

    time: str
    value: Disorder
    settings: tuple[tuple[str, Any], ...]
    ties: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings)[name]

    @property
    def ahead(self) -> int | None:
        """How far an event may be ahead of all before it; None where as far as it likes."""
        ahead: int | None = self["ahead"]
        return ahead

    @property
    def horizon(self) -> int | None:
        """How far back late events correct what came out; None where none does."""
        horizon: int | None = self["horizon"]
        return horizon

    def changed(self, *, clocks: bool) -> frozenset[str]:
        """Return the columns whose values are known when it is the turn of an event, and no sooner.

        These are the time, where late events or those of compared clocks get another one, and what
        says which events went on because a time was up.
        """
        moved = [self.time] if clocks or self.late is Late.PASS else []
        return frozenset(name for name in (*moved, self["flag"]) if name is not None)

    def flag_for(self, schema: pa.Schema) -> pa.Field | None:
        """Return the column that flags events, where theirs have none; None where none is asked."""
        name = self["flag"]
        return None if name is None or name in schema.names else pa.field(name, pa.bool_())

    @property
    def divisible(self) -> bool:
        """Whether parts of a stream can be brought into order apart; see `Disorder`."""
        value = self.value
        return value.divisible and not value.clocked and self["arrival"] is None

    @property
    def weighed(self) -> str | None:
        """The column whose values it reads beside the times of events; None where it reads none."""
        column: str | None = dict(self.settings).get("column")
        return column

    @property
    def goes_by_times(self) -> bool:
        """Whether it decides by the times of events that come at once, whatever their order.

        Of events that no step can use it need know no more, then, but for what it weighs.
        """
        adapts = isinstance(self.value, AdaptiveSlack) and not self.value.clocked
        return self.divisible or (adapts and self["arrival"] is None)

    @property
    def deciding_columns(self) -> tuple[str, ...]:
        """The columns by which it decides how far time has come; none where ties count, too.

        Of events that no step can use it need know no more, and drops them.
        """
        if not isinstance(self.value, AdaptiveSlack | KSlack):
            return ()
        read = (self.time, self["arrival"], self.weighed)
        return tuple(dict.fromkeys(name for name in read if name is not None))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads: time, ties and those that settings name."""
        named = [one.name for one in settings_of(type(self.value)) if _is_column(one)]
        inner = [
            one
            for _, value in self.settings
            if isinstance(value, BoundDisorder)
            for one in value.columns
        ]
        read = (self.time, *self.ties, *(self[name] for name in named), *inner)
        return tuple(dict.fromkeys(name for name in read if name is not None))

    @property
    def late(self) -> Late:
        """What becomes of late events."""
        return Late(self.value.late)

    @property
    def invalid(self) -> Invalid:
        """What becomes of invalid events."""
        return Invalid(self.value.invalid)

    @property
    def takes_watermarks(self) -> bool:
        """Whether watermarks come, and nothing else says what time it is."""
        return isinstance(self.value, Punctuation)

    @property
    def given(self) -> str:
        """The kind, and all settings of the result that are not as they would be without a word."""
        value = self.value
        settings = {
            one.name: getattr(value, one.name)
            for one in settings_of(type(value))
            if one.name not in value.immaterial and getattr(value, one.name) != one.default
        }
        texts = [f"{name} {setting_text(one)}" for name, one in settings.items()]
        return f"{type(value).__name__}({', '.join(texts)})"

    def __str__(self) -> str:
        return disorder_text(self.value)


def disorder_text(value: Disorder) -> str:
    """Return how long events wait, as `explain` says it.

    Examples
    --------
    >>> from outpace.pattern.disorder import Quantile
    >>> disorder_text(Quantile(0.99, at_most=5))
    'an event waits until one is seen that is later by what 0.99 of delays are below (at_most 5)'
    """
    own = [one for one in settings_of(type(value)) if one not in settings_of(Disorder)]
    texts = {one.name: setting_text(getattr(value, one.name)) for one in own}
    said = {name for _, name, *_ in Formatter().parse(value.described)}
    others = [
        f"{one.name} {texts[one.name]}"
        for one in own
        if one.name not in said and getattr(value, one.name) != one.default
    ]
    sentence = value.described.format(**texts)
    return f"{sentence} ({', '.join(others)})" if others else sentence


def bind_disorder(query: Query, schema: pa.Schema) -> BoundDisorder:
    """Bind the disorder of a query, in order where it says nothing, to the schema of its stream.

    Raises
    ------
    BindError
        The query is not ordered by rising time, or a setting does not fit the schema.

    Examples
    --------
    >>> from outpace.pattern.disorder import KSlack
    >>> schema = pa.schema([("ts", pa.timestamp("ms")), ("seq", pa.int64())])
    >>> bound = bind_disorder(Query().order_by("ts").disorder(KSlack("2 s")), schema)
    >>> bound["slack"], bound.ties
    (2000000, ('seq',))
    """
    time = _time(query, schema)
    disorder = query.order_of_arrival or InOrder()
    if disorder.flag is not None:
        _check_flag(disorder.flag, query)
    ordered = {resolve_column(item.column, schema, "order by") for item in query.order}
    settings = {
        one.name: _bound(one, _value(one, query, disorder), time, schema)
        for one in settings_of(type(disorder))
    }
    for one in settings_of(type(disorder)):
        if isinstance(one.kind, Number) and one.kind.column is not None:
            _check_fits(one.name, settings[one.name], settings[one.kind.column], schema)
    if isinstance(disorder, Speculative):
        settings["slack"] = bind_disorder(query.disorder(disorder.certain), schema)
    if isinstance(disorder, Sequence):
        number = settings["number"]
        if types.value_type(schema.field(number).type).bit_width < 64:
            # Numbers that begin anew say by themselves nothing of who comes first.
            ordered.add(number)
    return BoundDisorder(
        time=time,
        value=disorder,
        settings=tuple(settings.items()),
        ties=tuple(name for name in TIES if name not in ordered and _is_sortable(name, schema)),
    )


def _value(setting: Setting, query: Query, disorder: Disorder) -> Any:
    """Return the value of a setting; where it is left out, what the query says."""
    value = getattr(disorder, setting.name)
    if value is not None or not (isinstance(setting.kind, EventSpan) and setting.kind.of_query):
        return value
    match query.windows:
        case TimeWindows(size=size) | SessionWindows(gap=size):
            return size
    if query.bound is None:
        raise BindError(
            f"{setting.name} is not known: the query has neither windows of time nor WITHIN",
            where="disorder",
            hint=Hint(
                f"write op.{type(disorder).__name__}({setting.name}=...)",
                f"write {setting.name.upper()} '10 s' behind the kind of disorder",
            ),
        )
    return query.bound.duration


def _bound(setting: Setting, value: Any, time: str, schema: pa.Schema) -> Any:
    """Return the value of a setting as the schema has it."""
    if value is None:
        return None
    match setting.kind:
        case EventSpan(of_query=of_query):
            kind = types.value_type(schema.field(time).type)
            units = in_units(value, time, kind, "disorder", f"{setting.name} is {{}}")
            if of_query and not units:
                raise BindError(f"{setting.name} must be longer than nothing", where="disorder")
            return units
        case ClockSpan() if isinstance(value, tuple):
            return tuple((source, span // _MICROSECOND) for source, span in value)
        case ClockSpan():
            return value // _MICROSECOND
        case ColumnName(values=values):
            column = resolve_column(value, schema, f"disorder, {setting.name}")
            kind = types.value_type(schema.field(column).type)
            if values is not None and not _FITTING[values](kind):
                raise BindError(
                    f"{setting.name} names a column of {values.value}, but '{column}' is a "
                    f"{type_name(kind)}",
                    where="disorder",
                )
            return column
        case FlagName():
            return _flag(value, schema)
        case SourceName() if SOURCE not in schema.names:
            raise BindError(
                f"{setting.name} names the source '{value}', but the input has no column"
                f" '{SOURCE}' that says who sent an event",
                where="disorder",
                hint=f"add the column, or leave out {setting.name}",
            )
        case SourceName():
            kind = types.value_type(schema.field(SOURCE).type)
            if pa.types.is_nested(kind) or types.is_binary(kind):
                raise BindError(
                    f"{setting.name} names the source '{value}', but the column '{SOURCE}' is a "
                    f"{type_name(kind)}, which is no name",
                    where="disorder",
                    hint="let it be text or a number",
                )
    return value


def _check_fits(name: str, number: int | None, column: str, schema: pa.Schema) -> None:
    """Refuse a number that a column of integers cannot have."""
    kind = types.value_type(schema.field(column).type)
    least, most = types.integer_range(kind)
    if number is not None and not least <= number <= most:
        raise BindError(
            f"{name} is {number}, but '{column}' is a {type_name(kind)}, from {least} to {most}",
            where="disorder",
            hint=f"give a number that '{column}' can have, or cast the column to a wider type",
        )


def missing_flag(query: Query, names: Iterable[str]) -> str | None:
    """Return the column that is to flag rows which do not have it; None where there is none.

    Examples
    --------
    >>> from outpace.pattern.disorder import Sequence
    >>> query = Query().disorder(Sequence("1 s", flag="timed"))
    >>> missing_flag(query, ["ts"]), missing_flag(query, ["ts", "Timed"]), missing_flag(Query(), [])
    ('timed', None, None)
    """
    flag = None if query.order_of_arrival is None else query.order_of_arrival.flag
    there = flag is None or flag.lower() in (name.lower() for name in names)
    return None if there else flag


def _check_flag(flag: str, query: Query) -> None:
    """Refuse to order by what is known when it is the turn of an event."""
    if flag.lower() in (item.column.lower() for item in query.order):
        raise BindError(
            f"events are ordered by '{flag}', which is known when it is their turn",
            where="disorder, flag",
            hint="name another column for flag, or leave it out of the order",
        )


def _flag(name: str, schema: pa.Schema) -> str:
    """Return the name of the column that flags events, as the schema spells it if it has it."""
    found = [field for field in schema if field.name.lower() == name.lower()]
    if not found:
        return name
    kind = found[0].type
    if len(found) > 1 or not pa.types.is_boolean(kind):
        raise BindError(
            f"flag names a column of booleans, but '{found[0].name}' is a {type_name(kind)}",
            where="disorder",
            hint="give it a name of its own",
        )
    return str(found[0].name)


def _is_column(setting: Setting) -> bool:
    return isinstance(setting.kind, ColumnName | FlagName)


def setting_text(value: Any) -> str:
    """Return the value of a setting as `explain` shows it."""
    match value:
        case CheckpointModel() if not is_dataclass(value):
            # One of a user's counts by its name.
            return f"{type(value).__module__}.{type(value).__qualname__}"
        case Disorder():
            own = [one for one in settings_of(type(value)) if one not in settings_of(Disorder)]
            values = [getattr(value, one.name) for one in own]
            texts = [setting_text(one) for one in values if one is not None]
            return " ".join([type(value).__name__, *texts])
        case (float() as low, float() as high):
            return f"{low} to {high}"
        case datetime.timedelta():
            return print_duration(value)
        case Enum():
            return str(value.value)
        case int():
            return f"{value:,}"
        case tuple():
            return ", ".join(f"{name} {setting_text(one)}" for name, one in value)
    return str(value)


def _time(query: Query, schema: pa.Schema) -> str:
    if not query.order:
        raise BindError(
            "a stream needs an order", where="order by", hint='name its time: order_by("ts")'
        )
    name = resolve_column(query.order[0].column, schema, "order by")
    kind = types.value_type(schema.field(name).type)
    if query.order[0].descending:
        raise BindError(f"a stream is ordered by rising time, but '{name}' is descending")
    if not (types.is_integer(kind) or types.is_instant(kind)):
        raise BindError(
            f"'{name}' of type {type_name(kind)} does not tell the time of a stream",
            where="order by",
            hint="order by a timestamp, a date or an integer first",
        )
    return name


def _is_sortable(name: str, schema: pa.Schema) -> bool:
    """Say whether the stream has a column of a name that has an order."""
    if name not in schema.names:
        return False
    kind = types.value_type(schema.field(name).type)
    return types.is_supported(kind) and not pa.types.is_nested(kind)

"""Disorder as a value: how far events are out of order, and what becomes of those that come late.

`Query.disorder` takes one of these, and `outpace.engine.order.choose` knows what runs each. Without
one, events are expected in order: in process a push refuses others; on Spark each micro-batch is
sorted, and an event before those of an earlier one is late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar

from outpace.errors import BindError, Hint
from outpace.pattern.argument import an_instance, plain
from outpace.pattern.checkpoints import CheckpointModel, Every, LeastWork
from outpace.pattern.setting import (
    Choice,
    ClockSpan,
    ColumnName,
    ColumnValues,
    Duration,
    EventSpan,
    FlagName,
    Inner,
    Number,
    NumberRange,
    SourceName,
    SourceSpans,
    check_settings,
    setting,
    settings_of,
)

#: The kinds, which `outpace` offers by these names.
__all__ = [
    "LDOP",
    "AQKSlack",
    "InOrder",
    "KSlack",
    "MPKSlack",
    "Punctuation",
    "Quantile",
    "Sequence",
    "Speculative",
]


class Late(Enum):
    """What becomes of an event whose time the watermark has passed; it is counted in any case."""

    DROP = "drop"
    PASS = "pass"
    """It takes part as if it had happened at the watermark."""
    SIDE = "side"
    """It goes to the side output `late`."""
    CORRECT = "correct"
    """It takes part in its place, and what it changes comes again; see `Disorder.horizon`."""

    @property
    def drops(self) -> bool:
        """Whether events that are late, or too late to correct anything, are lost."""
        return self in (Late.DROP, Late.CORRECT)


class WindowAggregate(Enum):
    """What a query computes over the events of a window, for which its errors are estimated."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class Invalid(Enum):
    """What becomes of an event without a time, or one too far in the future."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    """It goes to the side output `invalid`, with the reason."""


@dataclass(frozen=True, slots=True)
class Disorder:
    """What all kinds have in common.

    A kind adds its settings as fields, each with its kind of `outpace.pattern.setting`.

    Parameters
    ----------
    late
        "drop", "pass", "side" or "correct".
    invalid
        "fail" or "quarantine".
    ahead
        An event whose time is further than this ahead of all events before it, or with
        `Punctuation` of the time that was told last, is invalid; by default none is. A duration
        such as "1 hour", or an integer in units of an integer time column.
    arrival
        A column that says when events arrived, a timestamp or an integer. With it, what is late
        does not depend on how the stream is cut into pieces. Without it the events of a piece
        arrive at the same time. Those of one time of arrival count in the order of their times,
        and belong into one piece; an event that has none is invalid.
    horizon
        How far behind the watermark an event that comes late still corrects what came out, with
        late="correct". The result has a column `diff`: a match that is wrong now comes again with
        -1, one that is new with 1. Later events are dropped and counted. The watermark is that
        from before the piece that brings the event.
    patience
        Where there are several sources: how long, by the clock or by `arrival`, the others wait for
        one that says nothing: "2 s", or {"camera": "2 s", "door": "1 min"}. By default, and for a
        source that is not named, they wait until it speaks. What a source sends that lies behind
        the others, when it speaks again, is late.
    flag
        The name of a column that says of each event whether it went on because a time was up, by
        `patience` or by the timeout of `Sequence`, and not because it was its turn: others that
        belong before it may be missing. Conditions and measures read it like any other column. The
        input need not have it; where it does, an event that is flagged there stays so.
    """

    #: What `explain` says of a kind; the names of settings in braces become their values.
    described: ClassVar[str]
    #: Whether it decides by the greatest time of each piece and by no clock, so that parts of a
    #: stream can be brought into order apart, each without the events of the others.
    divisible: ClassVar[bool] = False
    #: Whether it is for one query alone, whose unused events it leaves out also where queries share
    #: an order.
    filters: ClassVar[bool] = False
    #: Settings that change no result, so that a saved stream goes on with others.
    immaterial: ClassVar[frozenset[str]] = frozenset()
    #: Whether events go on before it is certain that none comes before them.
    speculates: ClassVar[bool] = False

    late: Late | str = field(default=Late.DROP, kw_only=True, metadata=setting(Choice(Late)))
    invalid: Invalid | str = field(
        default=Invalid.FAIL, kw_only=True, metadata=setting(Choice(Invalid))
    )
    ahead: Duration | str | None = field(default=None, kw_only=True, metadata=setting(EventSpan()))
    arrival: str | None = field(
        default=None, kw_only=True, metadata=setting(ColumnName(ColumnValues.TIMES))
    )
    horizon: Duration | str | None = field(
        default=None, kw_only=True, metadata=setting(EventSpan())
    )
    patience: Duration | str | Mapping[str, Duration | str] | SourceSpans | None = field(
        default=None, kw_only=True, metadata=setting(ClockSpan(lasting=True, by_source=True))
    )
    flag: str | None = field(default=None, kw_only=True, metadata=setting(FlagName()))

    @property
    def corrects(self) -> bool:
        """Whether events that come late correct what came out."""
        return self.late is Late.CORRECT or self.speculates

    @property
    def follows_load(self) -> bool:
        """Whether events wait the less, the less the host has to do."""
        return False

    def __post_init__(self) -> None:
        name = f"op.{type(self).__name__}"
        check_settings(self, name)
        if (self.late is Late.CORRECT) != (self.horizon is not None):
            setting = 'late="correct"' if self.late is Late.CORRECT else "horizon"
            raise BindError(
                f"{setting} says nothing without {'horizon' if self.horizon is None else 'late'}",
                where=name,
                hint=Hint(
                    f'write {name}(..., late="correct", horizon="10 s")',
                    "write LATE CORRECT HORIZON '10 s'",
                ),
            )
        if self.flag is not None and not self._waits_by_clock:
            raise BindError(
                "flag says which events went on because a time was up, but none does so",
                where=name,
                hint=Hint(
                    'add patience="2 s", use op.Sequence, or leave out flag',
                    "add PATIENCE '2 s', use SEQUENCE, or leave out FLAG",
                ),
            )

    @property
    def options(self) -> dict[str, Any]:
        """The settings that all kinds have.

        Examples
        --------
        >>> list(KSlack(5, late="pass").options)
        ['late', 'invalid', 'ahead', 'arrival', 'horizon', 'patience', 'flag']
        """
        return {one.name: getattr(self, one.name) for one in settings_of(Disorder)}

    @property
    def clocked(self) -> bool:
        """Whether it goes by the clock of the host: it has a duration by that clock.

        Where a column tells when events arrived, that is the clock.
        """
        if self.arrival is not None:
            return False
        return self._waits_by_clock

    @property
    def _waits_by_clock(self) -> bool:
        spans = [one.name for one in settings_of(type(self)) if isinstance(one.kind, ClockSpan)]
        return any(getattr(self, name) is not None for name in spans)


@dataclass(frozen=True, slots=True)
class InOrder(Disorder):
    """Events come in order, piece by piece; what a query has that says nothing.

    Examples
    --------
    >>> InOrder(late="side").late
    <Late.SIDE: 'side'>
    """

    divisible = True
    described = "each batch is sorted; events before those of an earlier batch are late"


@dataclass(frozen=True, slots=True)
class KSlack(Disorder):
    """An event waits until one is seen whose time is more than `slack` later: a fixed K.

    Parameters
    ----------
    slack
        K: "2 s", a timedelta, or an integer in units of an integer time column. No event that is
        late by at most this much is lost.

    Examples
    --------
    >>> KSlack("2 s").slack
    datetime.timedelta(seconds=2)
    """

    divisible = True
    described = "an event waits until one is seen that is {slack} later"

    slack: Duration | str = field(metadata=setting(EventSpan()))


@dataclass(frozen=True, slots=True)
class Punctuation(Disorder):
    """An event waits until it is told that no earlier one comes.

    In process `advance` tells it, or the heartbeats and ends of sources. On Spark rows that are
    heartbeats do (`heartbeats=` of `outpace.match`), or else the watermark of the stream, which
    `withWatermark` gave the time column.

    Examples
    --------
    >>> Punctuation(late="pass", ahead="1 hour").ahead
    datetime.timedelta(seconds=3600)
    """

    divisible = True
    described = "an event waits until it is told that no earlier one comes"


@dataclass(frozen=True, slots=True)
class AdaptiveSlack(Disorder):
    """What kinds have in common that choose K themselves, from the delays of events.

    Parameters
    ----------
    at_least, at_most
        Bounds of K. Memory: the events of the last `at_most` units of time; without it, those of
        the largest K that was chosen.
    """

    at_least: Duration | str | None = field(
        default=None, kw_only=True, metadata=setting(EventSpan())
    )
    at_most: Duration | str | None = field(
        default=None, kw_only=True, metadata=setting(EventSpan(least="at_least"))
    )


@dataclass(frozen=True, slots=True)
class MPKSlack(AdaptiveSlack):
    """K is the largest delay so far: nothing is lost once the stream has shown how late it can be.

    How late an event is shows when time goes on, so one that is late before a pause is late by the
    pause as well. `at_most` bounds that.

    Mutschler and Philippsen 2013; Rajendran 2019, 2.3.2. There an event goes when its time is K
    before the greatest one (2.1), and one that comes late goes at once, out of order. Here one
    waits for a time that is more than K later, since others of its time may come, which are not
    late; what is late is left to `late`.

    Examples
    --------
    >>> MPKSlack(at_most="1 minute").at_most
    datetime.timedelta(seconds=60)
    """

    described = "an event waits until one is seen that is later by the largest delay so far"


@dataclass(frozen=True, slots=True)
class Quantile(AdaptiveSlack):
    """K follows a quantile of the delays of all events: about that share of them is in time.

    Delays of long ago count less and less.

    Parameters
    ----------
    share
        Which one: 0.999 loses about one event in a thousand.

    Examples
    --------
    >>> Quantile(0.999).share
    0.999
    """

    described = "an event waits until one is seen that is later by what {share} of delays are below"

    share: float = field(metadata=setting(Number(least=0, most=1)))


@dataclass(frozen=True, slots=True)
class AQKSlack(AdaptiveSlack):
    """K is as small as an aggregate over windows allows that may have an error.

    A controller lowers and raises K between 0 and the largest delay so far, so that of each window
    as many events are in time as the error of the aggregate needs, if they were a sample of it.

    Ji et al. 2015; Rajendran 2019, 2.3.3.

    Parameters
    ----------
    error, confidence
        The relative error that the aggregate may have, and how often at least it has no larger one.
        With 0 all events of a window are to be in time. "min" and "max" are right or wrong: for
        them `confidence` counts alone, whatever the error and the values are.
    aggregate
        "count", "sum", "avg", "min" or "max".
    column
        What is aggregated: "avg" needs it, and "count" has none. Without it all events count the
        same, so that a sum is a count.
    window
        The length of the windows; by default that of the query's windows, or of WITHIN.
    quantile
        A window is measured when this share of the late events has come, from its result on.
    proportional, derivative
        The gains of the controller.

    Examples
    --------
    >>> AQKSlack(error=0.01, aggregate="sum", column="price").aggregate
    <WindowAggregate.SUM: 'sum'>
    """

    described = "an event waits as long as an error of {error} in {aggregate} needs"

    error: float = field(default=0.01, kw_only=True, metadata=setting(Number(least=0, most=1)))
    confidence: float = field(
        default=0.95, kw_only=True, metadata=setting(Number(least=0.5, most=0.999999))
    )
    aggregate: WindowAggregate | str = field(
        default=WindowAggregate.SUM, kw_only=True, metadata=setting(Choice(WindowAggregate))
    )
    column: str | None = field(
        default=None, kw_only=True, metadata=setting(ColumnName(ColumnValues.NUMBERS))
    )
    window: Duration | str | None = field(
        default=None, kw_only=True, metadata=setting(EventSpan(of_query=True))
    )
    quantile: float = field(default=0.95, kw_only=True, metadata=setting(Number(least=0, most=1)))
    proportional: float = field(default=0.1, kw_only=True, metadata=setting(Number(least=0)))
    derivative: float = field(default=0.1, kw_only=True, metadata=setting(Number(least=0)))

    def __post_init__(self) -> None:
        # Named in full: a class with slots is made twice, and `super()` finds the first.
        Disorder.__post_init__(self)
        if self.aggregate is WindowAggregate.AVG and self.column is None:
            raise BindError(
                "an average needs a column whose values it is of",
                where="op.AQKSlack",
                hint=Hint('write column="price"', "write COLUMN price"),
            )
        if self.aggregate is WindowAggregate.COUNT and self.column is not None:
            raise BindError(
                f"a count looks at no values, but column names '{self.column}'",
                where="op.AQKSlack",
                hint=Hint(
                    'leave out column, or write aggregate="sum"',
                    "leave out COLUMN, or write AGGREGATE SUM",
                ),
            )


@dataclass(frozen=True, slots=True)
class LDOP(AdaptiveSlack):
    """K is the average delay of late events, the latency distance, times a slack factor.

    The factor is drawn for each stretch of time, between two bounds. Events that no step of the
    pattern can use do not wait, where matches are the same without them: time goes on with them and
    their delays count, but nothing is kept of them. They wait where a step asks for the very next
    event, a measure looks at neighbours, or windows count events.

    Rajendran 2019, 2.3.4, equations 2.4 and 2.5. There an event is also kept for the length of the
    window, since matches are looked for in the buffer. Here the buffer only orders, and the matcher
    keeps what its windows need, so an event waits for factor and distance alone.

    Parameters
    ----------
    window
        The stretch of time whose delays count; by default the query's windows, or WITHIN.
    low, high
        The bounds of the slack factor.

    Examples
    --------
    >>> LDOP(high=3).high
    3.0
    """

    described = "an event waits for {low} to {high} times the average delay of late events"
    filters = True

    window: Duration | str | None = field(
        default=None, kw_only=True, metadata=setting(EventSpan(of_query=True))
    )
    low: float = field(default=1.0, kw_only=True, metadata=setting(Number(least=0)))
    high: float = field(default=2.0, kw_only=True, metadata=setting(Number(least="low")))


@dataclass(frozen=True, slots=True)
class Sequence(Disorder):
    """An event waits for those that its source sent before it, as their sequence numbers tell.

    An event that follows the one before it waits for nothing. A gap is waited for as long as the
    events of the source are apart or gaps have taken to close, on average and four deviations more,
    and never longer than `timeout`. How long is measured by the clock, or by the column `arrival`.
    Events that are lost cost that time, so `timeout` is what you can wait for one that never comes;
    `at_least` is for delays that are rare but known.

    Rajendran 2019, 3.2.1, equations 3.1 to 3.11; with 0.6 for `alpha` and `beta` and two deviations
    there, which lose one of twenty late events where delays vary. Other than there the first
    deviation is half of the first value and not 0 (3.5, 3.10), a gap counts once and not with each
    event that was held (3.7), and one that was given up counts when its event comes.

    Parameters
    ----------
    timeout
        How long an event is held at most: "500 ms".
    number
        The column with the sequence numbers, which rise by one from event to event of a source. One
        that repeats or lies behind the number to come is late. Where the type of the column ends,
        if that has less than 64 bits, numbers begin anew: a step back by more than half of its
        range goes on, and events of one time stay as they were sent. With 64 bits no number follows
        9223372036854775807: all that comes behind it is late, and a greater one is invalid.
    alpha, beta
        How much of the old averages stays: of the times between events, and of those held.
    deviations
        How many mean deviations are added to the averages.
    at_least
        How long a gap is waited for at least.
    first
        The number with which each source begins, where that is known: an event that overtakes the
        first one waits for it, as at any other gap. Without it a source begins with the number that
        arrives first, and what it sent before that one is late.

    Examples
    --------
    >>> Sequence("500 ms").number
    'seq'
    """

    described = "an event waits for those with lower {number}, at most {timeout}"

    timeout: Duration | str = field(metadata=setting(ClockSpan(least="at_least")))
    number: str = field(
        default="seq", kw_only=True, metadata=setting(ColumnName(ColumnValues.INTEGERS))
    )
    alpha: float = field(default=0.95, kw_only=True, metadata=setting(Number(least=0, most=1)))
    beta: float = field(default=0.95, kw_only=True, metadata=setting(Number(least=0, most=1)))
    deviations: float = field(default=4.0, kw_only=True, metadata=setting(Number(least=0)))
    at_least: Duration | str | None = field(
        default=None, kw_only=True, metadata=setting(ClockSpan())
    )
    first: int | None = field(
        default=None,
        kw_only=True,
        metadata=setting(Number(least=0, most=1 << 62, whole=True, column="number")),
    )


def _slack(value: Any, name: str) -> Disorder:
    """Return what says how long K is: a reorderer, or a K that stays the same."""
    if not isinstance(value, Disorder):
        return KSlack(value)
    if isinstance(value, InOrder | Sequence | Speculative):
        raise BindError(
            f"op.{type(value).__name__} has no K that {name} could be",
            hint=Hint(
                "write op.MPKSlack(), another reorderer with a K, or a duration",
                "write (MP), another reorderer with a K, or a duration",
            ),
        )
    if value.options != Disorder().options:
        raise BindError(
            f"{name} says what K is and nothing else",
            hint=Hint(
                "give late, invalid, ahead, arrival and patience to op.Speculative",
                "write LATE, INVALID, AHEAD, ARRIVAL and PATIENCE behind SPECULATIVE",
            ),
        )
    return value


def _model(value: Any, name: str) -> CheckpointModel:
    """Return a model of checkpoints; a number is that of the events between them."""
    value = plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Every(value)
    hint = Hint(
        "write a number of events, or op.checkpoints.LeastWork()",
        "write a number of events, or (LEAST)",
    )
    model: CheckpointModel = an_instance(value, CheckpointModel, f"a model for {name}", hint=hint)
    return model


@dataclass(frozen=True, slots=True)
class Speculative(Disorder):
    """Events go on early, and what later ones change is corrected: answers now, right in the end.

    A reorderer would let an event wait for K. Here it waits for a part of that, alpha, so its
    matches come early, as tentative ones. An event that comes within K is put in its place, and
    what it changes is taken back or comes new. What K has passed is confirmed. Events that come
    after more than K are late.

    The result has three more columns. `match_id` tells matches apart. `diff` is 1 for a match that
    comes, -1 for one that is taken back, and 0 for one that is there and is confirmed now.
    `confirmed` says whether nothing takes the match back any more.

    Sardar 2018, 2.6 and 3.2; Mutschler and Philippsen 2013.

    Parameters
    ----------
    slack
        What K is: `op.MPKSlack()`, the largest delay so far, another reorderer, or a duration.
    alpha
        The part of K that events wait: 0 lets them go on at once, 1 waits like the reorderer. By
        default it follows the load: what is busy less than `target` says takes a lower alpha.
    target
        How busy the operator is to be, as parts of the time.
    clock
        The source whose events alone move the clock, as the column `source` names it: K is how far
        others are behind the next of them, and what lies ahead of them waits. As long as none of
        its events has come, all wait. By default events of all sources do.
    checkpoints
        Where checkpoints lie: a number of events between them, or a model of `op.checkpoints`. By
        default there are as many as make the least work: few where nothing is late, and many where
        much is or where events take long.
    memory
        So many events that are speculation are kept at most: the others wait longer than alpha
        says. By default all within K go on.

    Examples
    --------
    >>> Speculative("2 s", alpha=0.5).slack
    KSlack(late=<Late.DROP: 'drop'>, invalid=<Invalid.FAIL: 'fail'>, ahead=None, arrival=None,
    horizon=None, patience=None, flag=None, slack=datetime.timedelta(seconds=2))
    """

    immaterial: ClassVar[frozenset[str]] = frozenset({"checkpoints"})
    speculates = True
    described = "an event waits for a part of what {slack} says, and later ones correct it"

    slack: Disorder | Duration | str = field(
        default=MPKSlack(), metadata=setting(Inner(_slack, "disorder"))
    )
    alpha: float | None = field(
        default=None, kw_only=True, metadata=setting(Number(least=0, most=1))
    )
    target: tuple[float, float] = field(
        default=(0.7, 0.9), kw_only=True, metadata=setting(NumberRange())
    )
    clock: str | None = field(default=None, kw_only=True, metadata=setting(SourceName()))
    checkpoints: CheckpointModel | int = field(
        default=LeastWork(), kw_only=True, metadata=setting(Inner(_model, "checkpoints"))
    )
    memory: int | None = field(
        default=None, kw_only=True, metadata=setting(Number(least=1, whole=True))
    )

    def __post_init__(self) -> None:
        refused = (Late.PASS, Late.CORRECT)
        if self.late in (*refused, *(one.value for one in refused)) or self.horizon is not None:
            setting = "horizon" if self.horizon is not None else f'late="{Late(self.late).value}"'
            raise BindError(
                f"{setting} is not for op.Speculative: late is what comes after more than K",
                where="op.Speculative",
                hint=Hint(
                    'write late="drop" or "side", without horizon',
                    "write LATE DROP or LATE SIDE, without HORIZON",
                ),
            )
        if self.flag is not None:
            raise BindError(
                "flag is not for op.Speculative: events go on early, and are corrected",
                where="op.Speculative",
                hint="leave out flag",
            )
        # Named in full: a class with slots is made twice, and `super()` finds the first.
        Disorder.__post_init__(self)
        others = [name for name in ("ahead", "arrival") if getattr(self, name) is not None]
        others += ["slack=op.Punctuation()"] if isinstance(self.slack, Punctuation) else []
        if self.clock is not None and others:
            raise BindError(
                f"{others[0]} has no meaning where the events of one source move the clock",
                where="op.Speculative",
                hint=f"leave out clock, or {others[0].partition('=')[0]}",
            )

    @property
    def clocked(self) -> bool:
        """Whether the reorderer goes by the clock of the host."""
        return self.certain.clocked

    @property
    def follows_load(self) -> bool:
        """Whether alpha is lower the less the host has to do."""
        return self.alpha is None

    @property
    def certain(self) -> Disorder:
        """The reorderer that says what is certain, with the settings that all kinds have."""
        assert isinstance(self.slack, Disorder)
        return replace(self.slack, **self.options)

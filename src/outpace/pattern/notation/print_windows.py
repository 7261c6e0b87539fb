"""Windows and instances as text: the clauses OVER and INSTANCES, or the Python calls.

Both read back as the same windows. What a user wrote in Python has no SQL text.
"""

from __future__ import annotations

from collections.abc import Iterable

from outpace.errors import UnsupportedError
from outpace.pattern.duration import print_duration
from outpace.pattern.expression import Expression, Literal
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.notation.print_name import print_object
from outpace.pattern.query import Query
from outpace.pattern.schedulers import Batches, ByKey, LeastLoaded, RoundRobin, Scheduler
from outpace.pattern.windows import (
    BetweenWindows,
    CountWindows,
    LandmarkWindows,
    SessionWindows,
    TimeWindows,
    WindowSpan,
    WindowSpec,
)


def window_clauses(query: Query, dialect: str) -> Iterable[str]:
    """Yield the clauses of MATCH_RECOGNIZE that say which windows, and who matches them.

    Examples
    --------
    >>> list(window_clauses(Query().over(CountWindows(1000, 50)).instances(2), "outpace"))
    ['OVER COUNT (1000 SLIDE 50)', 'INSTANCES 2']
    """
    if query.windows is not None:
        counted = " WITH DUPLICATES" if query.duplicates else ""
        if query.drift is not None:
            counted = f" DRIFT {_span_text(query.drift)}"
        numbered = " NUMBERED" if query.numbered else ""
        yield f"OVER {_windows_text(query.windows, dialect)}{counted}{numbered}"
    if query.instance_count != 1 or query.scheduler is not None:
        schedule = query.scheduler
        named = "" if schedule is None else f" SCHEDULE {_scheduler_text(schedule)}"
        yield f"INSTANCES {query.instance_count}{named}"


def window_calls(query: Query) -> Iterable[str]:
    """Yield the Python calls that say which windows, and who matches them.

    Examples
    --------
    >>> list(window_calls(Query().over(CountWindows(1000, 50), numbered=True)))
    ['over(op.windows.count(1000, slide=50), numbered=True)']
    >>> list(window_calls(Query().over(CountWindows(1000, 50), drift=10)))
    ['over(op.windows.count(1000, slide=50), drift=10)']
    """
    if query.windows is not None:
        counted = ", duplicates=True" if query.duplicates else ""
        if query.drift is not None:
            counted = f", drift={_span_argument(query.drift)}"
        numbered = ", numbered=True" if query.numbered else ""
        yield f"over(op.windows.{_windows_call(query.windows)}{counted}{numbered})"
    if query.instance_count != 1 or query.scheduler is not None:
        schedule = query.scheduler
        named = "" if schedule is None else f", schedule={_scheduler_call(schedule)}"
        yield f"instances({query.instance_count}{named})"


def _windows_text(windows: WindowSpec, dialect: str) -> str:
    match windows:
        case CountWindows(size=size, slide=slide, offset=offset):
            return f"COUNT ({_sliding(size, slide, offset)})"
        case TimeWindows(size=size, slide=slide, offset=offset):
            return f"TIME ({_sliding(size, slide, offset)})"
        case SessionWindows(gap=gap):
            return f"SESSION ({_span_text(gap)})"
        case BetweenWindows(open=Expression() as opens, close=Expression() as closes):
            opening, closing = (print_expression(node, dialect) for node in (opens, closes))
            return f"BETWEEN ({opening}) AND ({closing})"
        case LandmarkWindows(at=None):
            return "LANDMARK"
        case LandmarkWindows(at=Expression() as at):
            return f"LANDMARK ({print_expression(at, dialect)})"
        case _:
            raise UnsupportedError(
                "windows that a Python object opens and closes have no SQL text",
                hint="use to_python, or conditions in place of the predicate",
            )


def _sliding(size: WindowSpan, slide: WindowSpan, offset: WindowSpan) -> str:
    sliding = "" if slide == size else f" SLIDE {_span_text(slide)}"
    shifted = "" if offset == size * 0 else f" OFFSET {_span_text(offset)}"
    return f"{_span_text(size)}{sliding}{shifted}"


def _span_text(span: WindowSpan) -> str:
    return str(span) if isinstance(span, int) else print_expression(Literal(span))


def _scheduler_text(scheduler: Scheduler) -> str:
    match scheduler:
        case RoundRobin():
            return "ROUND ROBIN"
        case Batches(size=size):
            return "BATCHES" if size is None else f"BATCHES OF {size}"
        case LeastLoaded():
            return "LEAST LOADED"
        case ByKey():
            return "BY KEY"
        case _:
            raise UnsupportedError(
                "a scheduler written in Python has no SQL text", hint="use to_python"
            )


def _windows_call(windows: WindowSpec) -> str:
    match windows:
        case CountWindows(size=size, slide=slide, offset=offset):
            return f"count({_sliding_arguments(size, slide, offset)})"
        case TimeWindows(size=size, slide=slide, offset=offset):
            return f"time({_sliding_arguments(size, slide, offset)})"
        case SessionWindows(gap=gap):
            return f"session({_span_argument(gap)})"
        case BetweenWindows(open=Expression() as opens, close=Expression() as closes):
            opening, closing = (repr(print_expression(node)) for node in (opens, closes))
            return f"between(open={opening}, close={closing})"
        case BetweenWindows(predicate=predicate):
            return f"between(predicate={print_object(predicate)})"
        case LandmarkWindows(at=at):
            return "landmark()" if at is None else f"landmark({print_expression(at)!r})"


def _sliding_arguments(size: WindowSpan, slide: WindowSpan, offset: WindowSpan) -> str:
    sliding = "" if slide == size else f", slide={_span_argument(slide)}"
    shifted = "" if offset == size * 0 else f", offset={_span_argument(offset)}"
    return f"{_span_argument(size)}{sliding}{shifted}"


def _span_argument(span: WindowSpan) -> str:
    return repr(span if isinstance(span, int) else print_duration(span))


def _scheduler_call(scheduler: Scheduler) -> str:
    known = isinstance(scheduler, RoundRobin | Batches | LeastLoaded | ByKey)
    return f"op.schedulers.{scheduler!r}" if known else print_object(scheduler)

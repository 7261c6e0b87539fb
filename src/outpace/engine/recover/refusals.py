"""What is not recovered by a replay, and what a replay misses: the errors that say so."""

from __future__ import annotations

from outpace.engine.operator_spec import OperatorSpec
from outpace.errors import StateError, UnsupportedError
from outpace.pattern.disorder import Late


def check_recoverable(spec: OperatorSpec) -> None:
    """Refuse operators that a replay cannot rebuild."""
    if spec.corrects:
        raise UnsupportedError(
            "matches that late events correct cannot be acknowledged by their numbers, so they are "
            "not recovered by a replay",
            hint='drop late events or set them aside, late="side", or save the state of the stream',
        )
    if spec.disorder is not None and spec.disorder.late is Late.PASS:
        raise UnsupportedError(
            "late events that are passed on get other times, and are retained with their own",
            hint='drop late events or set them aside, late="side", or save the state of the stream',
        )
    if spec.disorder is not None and spec.disorder["flag"] is not None:
        raise UnsupportedError(
            "events are retained as they came, without what flags those that a timeout let go on",
            hint="leave out flag, or save the state of the stream",
        )
    if spec.measured:
        raise compared_clocks()
    if spec.instances is not None and spec.windows is None:
        raise UnsupportedError(
            "instances that share partitions without windows are not recovered by a replay",
            hint="let one instance have all, or match in windows",
        )
    if spec.timeouts:
        raise UnsupportedError(
            "partial matches that time out have no numbers, so a replay would give them again",
            hint="leave timeouts out, or resume from a saved state",
        )


def compared_clocks() -> UnsupportedError:
    """Return the error of a stream whose clocks are compared."""
    return UnsupportedError(
        "clocks that are compared change the times of events, which are retained as they came",
        hint="say how far clocks are off, or save the state of the stream",
    )


def no_state() -> UnsupportedError:
    """Return the error of who asks for a state that nobody saves."""
    return UnsupportedError(
        "an operator that is rebuilt by a replay has no state to save",
        hint="acknowledge its matches, and keep the savepoint and the events that it needs",
    )


def missing_events(at: int) -> StateError:
    """Return the error of a log that lacks events which a savepoint needs."""
    return StateError(
        f"events that the savepoint at {at} needs were not retained",
        hint="retain all events but those that a savepoint has no use for",
    )

"""Going back in EXPLAIN: how far a late event reaches, what is noted for it, and what it costs.

`docs/explanation/going-back.md` tells how it works.
"""

from __future__ import annotations

from typing import Any

from outpace.explanation.text_table import counted
from outpace.pattern.bind.disorder import setting_text
from outpace.pattern.checkpoints import (
    Adaptive,
    CheckpointModel,
    Every,
    EverySpeculative,
    LeastWork,
)
from outpace.pattern.disorder import AdaptiveSlack, Disorder, Late, Punctuation, Speculative
from outpace.pattern.query import Query


def going_back_section(query: Query) -> list[str]:
    """Say how a query corrects what came out; nothing where all that comes out is final.

    Examples
    --------
    >>> query = Query().order_by("ts").disorder(Speculative(10, checkpoints=100))
    >>> for line in going_back_section(query):
    ...     print(line)
    reach: an event that is late by K at most, as KSlack 10 says, is put in its place; others: drop
    checkpoints: every 100 events
    each notes: the numbers of events, runs that are open, and matches that wait for others
    without copying rows: those that came since the last one are shared
    a late event: the events behind the last checkpoint before it are matched once more,
    as many as K holds at most, and half of those between two checkpoints on average
    """
    disorder = query.order_of_arrival
    if disorder is None or not disorder.corrects:
        return []
    parts = ["the numbers of events"]
    parts += ["keys"] if query.partitions else []
    parts += ["open windows", "who has them"] if query.windows is not None else []
    noted = ", ".join([*parts, "runs that are open", "and matches that wait for others"])
    model: Any = disorder.checkpoints if isinstance(disorder, Speculative) else LeastWork()
    kept = "K holds" if isinstance(disorder, Speculative) else "the horizon holds"
    return [
        f"reach: {_reach(disorder)}",
        f"checkpoints: {_places(model)}",
        f"each notes: {noted}",
        "without copying rows: those that came since the last one are shared",
        "a late event: the events behind the last checkpoint before it are matched once more,",
        f"as many as {kept} at most, and half of those between two checkpoints on average",
    ]


def kept_to_go_back(query: Query) -> list[str]:
    """Say what a stream keeps so that it can go back."""
    disorder = query.order_of_arrival
    if disorder is None or not disorder.corrects:
        return []
    if not isinstance(disorder, Speculative):
        return [f"and to go back the events of {setting_text(disorder.horizon)}, and their matches"]
    lines = [
        "and to go back the events within K, those behind one checkpoint more, and their matches"
    ]
    if disorder.memory is not None:
        lines.append(f"of which at most {disorder.memory:,} are speculation: others wait longer")
    elif isinstance(disorder.slack, AdaptiveSlack) and disorder.slack.at_most is None:
        lines.append("nothing bounds K: at_most of its reorderer would, and memory the events")
    return lines


def _reach(disorder: Disorder) -> str:
    late = Late(disorder.late).value
    if not isinstance(disorder, Speculative):
        horizon = setting_text(disorder.horizon)
        return f"an event that is at most {horizon} behind the watermark is put in its place"
    says = setting_text(disorder.slack)
    near = f"that is late by K at most, as {says} says,"
    if isinstance(disorder.certain, Punctuation):
        near = "that is not before the time that was told"
    return f"an event {near} is put in its place; others: {late}"


def _places(model: CheckpointModel) -> str:
    """Say where checkpoints lie."""
    match model:
        case Every():
            return f"every {counted(model.events, 'event')}"
        case EverySpeculative():
            most = f"{counted(model.most, 'event')} behind the last one at most"
            return f"every {counted(model.events, 'event')} of speculation, and {most}"
        case Adaptive():
            return "as soon as events took as long as a checkpoint does"
        case LeastWork():
            return (
                "where they and going back take least in all, by what is measured, and as a rule "
                f"apart by at least 0.7 of 1/{model.most} of the events that are kept"
            )
    return f"where {type(model).__name__} says"

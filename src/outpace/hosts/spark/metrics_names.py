"""The metrics of streaming queries: every name, with its kind, its labels and what it says.

This is the only list. Samples are made from it, and the table in the documentation is its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Sort(Enum):
    """What a metric's value does."""

    COUNTER = "counter"
    """It only grows, for as long as the query is watched."""
    GAUGE = "gauge"
    """It is what it was at the end of the last batch."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Parameters
    ----------
    name, sort, help
        Its name, what its value does, and what it says, in a sentence.
    labels
        What tells its values apart, besides the query.
    """

    name: str
    sort: Sort
    help: str
    labels: tuple[str, ...] = ()


_STAGE: Final = ("operator", "stage")


def _stage_counter(name: str, help: str) -> Metric:
    return Metric(f"outpace_stage_{name}_total", Sort.COUNTER, help, _STAGE)


def _stage_gauge(name: str, help: str) -> Metric:
    return Metric(f"outpace_stage_{name}", Sort.GAUGE, help, _STAGE)


#: For the counters of a stage that say what one step did.
STAGE_TOTALS: Final = {
    "events": _stage_counter("events", "Events that the stage took."),
    "released": _stage_counter("released", "Events that the stage put in order and handed on."),
    "matches": _stage_counter("matches", "Matches that became final."),
    "timed_out": _stage_counter("timed_out", "Partial matches that WITHIN ended."),
    "late": _stage_counter("late", "Events that came after the watermark had passed their time."),
    "invalid": _stage_counter(
        "invalid",
        "Events without a time, or with one too far ahead, and others that cannot be used.",
    ),
    "unawaited": _stage_counter(
        "unawaited", "Events that went on although a silent source had not come so far."
    ),
    "waited": _stage_counter(
        "waited",
        "How long events waited for their turn, added up: in the unit of outpace_stage_slack.",
    ),
    "tentative": _stage_counter("tentative", "Matches that came and might be taken back."),
    "confirmed": _stage_counter("confirmed", "Matches that nothing takes back any more."),
    "retracted": _stage_counter("retracted", "Matches that were taken back."),
    "rollbacks": _stage_counter("rollbacks", "How often the stage went back for a late event."),
    "replays": _stage_counter(
        "replays", "How often an instance was rebuilt from its savepoint and the log."
    ),
    "replayed": _stage_counter("replayed", "Events that it took once more, after either."),
    "checkpoints": _stage_counter(
        "checkpoints", "How often it noted how it stood, to go back there."
    ),
    "checkpoint_bytes": _stage_counter("checkpoint_bytes", "Bytes that it copied for that."),
    "deliveries": _stage_counter(
        "deliveries", "Pieces that went to instances, where late events correct what came out."
    ),
    "redeliveries": _stage_counter("redeliveries", "How many of these in steps that went back."),
    "full": _stage_counter(
        "full", "How often events had to wait longer than alpha says as memory was used up."
    ),
}

#: For the counters of a stage that say what is held after a step.
STAGE_HELD: Final = {
    "slack": _stage_gauge(
        "slack", "How far the watermark stays behind: microseconds, or units of an integer time."
    ),
    "longest_wait": _stage_gauge(
        "longest_wait",
        "The longest that an event has waited for its turn in the last batch, in the same unit.",
    ),
    "silent": _stage_gauge("silent", "Sources that nobody waits for because they say nothing."),
    "buffered": _stage_gauge("buffered", "Events that wait for their turn."),
    "kept": _stage_gauge("kept", "Events that undecided matches may still need."),
    "partials": _stage_gauge("partials", "Events that an undecided match may start with."),
    "open_windows": _stage_gauge("open_windows", "Windows that are open."),
    "keys": _stage_gauge("keys", "Keys that something is held of."),
    "state_bytes": _stage_gauge("state_bytes", "Size of the saved state."),
}

#: For the counters of a stage that say how long something took; they become the label `part`.
STAGE_TIMES: Final = {"restore_us": "restore", "step_us": "step", "save_us": "save"}

STAGE_SECONDS: Final = Metric(
    "outpace_stage_seconds_total",
    Sort.COUNTER,
    "Time that instances spent reading the state, working and writing the state, added up.",
    (*_STAGE, "part"),
)
STAGE_BATCH_SECONDS: Final = Metric(
    "outpace_stage_batch_seconds", Sort.GAUGE, "The same in the last batch.", (*_STAGE, "part")
)
STAGE_EVENT_RATE: Final = _stage_gauge(
    "events_per_second", "Events that the stage took since the batch before, per second."
)
STAGE_WAIT: Final = _stage_gauge(
    "wait_seconds",
    "How long events wait for their turn: those that wait, divided by those released per second.",
)
STAGE_LATENCY: Final = _stage_gauge(
    "latency",
    "How long events waited for their turn in the last batch, on average: by the column of arrival"
    " where the query names one and has one source; else from batch to batch, by event time, or"
    " with op.Sequence by the clock.",
)
#: For the counters of a stage that are waits of matches: how many these are, and their average.
STAGE_MATCH_WAITS: Final = {
    "tentative_wait": (
        "tentative",
        _stage_gauge(
            "tentative_latency",
            "How far time had come, on average, behind what decided tentative matches as they came"
            " in the last batch, in the unit of outpace_stage_slack.",
        ),
    ),
    "confirmed_wait": (
        "confirmed",
        _stage_gauge(
            "confirmed_latency", "The same for matches as they were confirmed in the last batch."
        ),
    ),
}
#: For the counters of a stage that are times of events which went on without a silent source.
STAGE_UNAWAITED: Final = {
    "unawaited_first": _stage_gauge(
        "unawaited_first",
        "The first time of events that went on without a silent source, in the last batch where any"
        " did: microseconds since 1970, or an integer time.",
    ),
    "unawaited_last": _stage_gauge(
        "unawaited_last", "The last time of these events: a match with events up to it is doubtful."
    ),
}
STAGE_CHECKPOINT_SECONDS: Final = _stage_counter(
    "checkpoint_seconds", "Time of its steps that checkpoints took, as far as it is measured."
)
STAGE_EARLY: Final = _stage_gauge(
    "early", "How much of the slack events do not wait: 1 - alpha, 0 where none goes on early."
)
STAGE_RETRACTED: Final = _stage_gauge(
    "retracted_share", "Matches that were taken back, as a part of those that might be."
)
STAGE_MATCH_RATE: Final = _stage_gauge(
    "matches_per_second", "Matches that became final since the batch before, per second."
)
DUPLICATION: Final = Metric(
    "outpace_duplication",
    Sort.GAUGE,
    "To how many instances an event went on average, in the last batch of a windowed query.",
    ("operator",),
)


def _operator(name: str, sort: Sort, help: str) -> Metric:
    return Metric(f"outpace_operator_{name}", sort, help, ("operator",))


#: For what is counted of the operators of `op.run` and `op.graph`.
OPERATOR: Final = {
    "events": _operator("events_total", Sort.COUNTER, "Events that the operator has taken."),
    "matches": _operator("matches_total", Sort.COUNTER, "Rows of matches that came out of it."),
    "late": _operator(
        "late_total", Sort.COUNTER, "Events that came after the watermark had passed their time."
    ),
    "invalid": _operator(
        "invalid_total",
        Sort.COUNTER,
        "Events without a time, or with one too far ahead, and others that cannot be used.",
    ),
    "slack": _operator(
        "slack",
        Sort.GAUGE,
        "How far the watermark stays behind: microseconds, or units of an integer time.",
    ),
    "buffered": _operator("buffered", Sort.GAUGE, "Events that wait for their turn."),
    "latency": _operator(
        "latency",
        Sort.GAUGE,
        "How long events waited for their turn on average, since the run began: by the column of"
        " arrival where the query names one and has one source; else from piece to piece, by event"
        " time, or with op.Sequence by the clock.",
    ),
    "longest_wait": _operator(
        "longest_wait", Sort.GAUGE, "The longest that an event has waited for its turn."
    ),
    "retained_events": _operator(
        "retained_events", Sort.GAUGE, "Events that are retained for a replay."
    ),
    "retained_bytes": _operator("retained_bytes", Sort.GAUGE, "The bytes that they take."),
    "skipped_share": _operator(
        "skipped_share", Sort.GAUGE, "The part of its events that no replay needs."
    ),
    "savepoint_age_s": _operator(
        "savepoint_age_seconds", Sort.GAUGE, "How old its last savepoint is."
    ),
    "replays": _operator("replays_total", Sort.COUNTER, "How often it was rebuilt by a replay."),
    "recover_s": _operator("recover_seconds", Sort.GAUGE, "How long that took the last time."),
    "doubles": _operator(
        "doubles_total", Sort.COUNTER, "Events and matches that came again and were dropped."
    ),
}

RUNNING: Final = Metric("outpace_query_running", Sort.GAUGE, "1 while the query runs, else 0.")
STARTS: Final = Metric(
    "outpace_query_starts_total", Sort.COUNTER, "How often the query was seen to be started."
)
FAILURES: Final = Metric(
    "outpace_query_failures_total", Sort.COUNTER, "How often the query ended with an error."
)
BATCHES: Final = Metric("outpace_batches_total", Sort.COUNTER, "Batches that were completed.")
BATCH_NUMBER: Final = Metric("outpace_batch_number", Sort.GAUGE, "The number of the last batch.")
BATCH_END: Final = Metric(
    "outpace_batch_end_timestamp_seconds", Sort.GAUGE, "When the last batch ended, since 1970."
)
BATCH_SECONDS: Final = Metric("outpace_batch_seconds", Sort.GAUGE, "How long the last batch took.")
PHASE_TOTAL: Final = Metric(
    "outpace_phase_seconds_total",
    Sort.COUNTER,
    "Time that Spark spent in a phase of batches: latestOffset, queryPlanning, walCommit, "
    "addBatch, commitOffsets and others.",
    ("phase",),
)
PHASE_SECONDS: Final = Metric(
    "outpace_phase_batch_seconds", Sort.GAUGE, "The same in the last batch.", ("phase",)
)

SOURCE_ROWS: Final = Metric(
    "outpace_source_rows_total",
    Sort.COUNTER,
    "Rows that were read from a source; a block of events is one row.",
    ("source",),
)
SOURCE_BEHIND_EVENTS: Final = Metric(
    "outpace_source_behind_events",
    Sort.GAUGE,
    "Events that the source has and the query has not taken yet.",
    ("source",),
)
SOURCE_BEHIND_BYTES: Final = Metric(
    "outpace_source_behind_bytes", Sort.GAUGE, "The size of these events.", ("source",)
)
SOURCE_BEHIND_SECONDS: Final = Metric(
    "outpace_source_behind_seconds",
    Sort.GAUGE,
    "How long the oldest of these events has been waiting.",
    ("source",),
)
SOURCE_LOST: Final = Metric(
    "outpace_source_lost_events",
    Sort.GAUGE,
    "Events that a crash took, or that were skipped as damaged, since the query was started.",
    ("source",),
)
SINK_ROWS: Final = Metric(
    "outpace_sink_rows_total", Sort.COUNTER, "Rows that the sink took, where it tells."
)

_STORE: Final = ("store",)
STORE_ROWS: Final = Metric(
    "outpace_store_rows", Sort.GAUGE, "Values in a state store of Spark, one an instance.", _STORE
)
STORE_BYTES: Final = Metric(
    "outpace_store_memory_bytes", Sort.GAUGE, "Memory that a state store uses.", _STORE
)
STORE_UPDATE_SECONDS: Final = Metric(
    "outpace_store_update_seconds_total",
    Sort.COUNTER,
    "Time in tasks that update a state store, their Python included.",
    _STORE,
)
STORE_COMMIT_SECONDS: Final = Metric(
    "outpace_store_commit_seconds_total", Sort.COUNTER, "Time to commit a state store.", _STORE
)

#: All of them, in the order in which they are served.
METRICS: Final = (
    RUNNING,
    STARTS,
    FAILURES,
    BATCHES,
    BATCH_NUMBER,
    BATCH_END,
    BATCH_SECONDS,
    PHASE_TOTAL,
    PHASE_SECONDS,
    SOURCE_ROWS,
    SOURCE_BEHIND_EVENTS,
    SOURCE_BEHIND_BYTES,
    SOURCE_BEHIND_SECONDS,
    SOURCE_LOST,
    *STAGE_TOTALS.values(),
    STAGE_EVENT_RATE,
    STAGE_MATCH_RATE,
    *STAGE_HELD.values(),
    *STAGE_UNAWAITED.values(),
    *(metric for _, metric in STAGE_MATCH_WAITS.values()),
    STAGE_CHECKPOINT_SECONDS,
    STAGE_EARLY,
    STAGE_RETRACTED,
    STAGE_WAIT,
    STAGE_LATENCY,
    STAGE_SECONDS,
    STAGE_BATCH_SECONDS,
    DUPLICATION,
    STORE_ROWS,
    STORE_BYTES,
    STORE_UPDATE_SECONDS,
    STORE_COMMIT_SECONDS,
    SINK_ROWS,
    *OPERATOR.values(),
)


def table() -> str:
    """Return all metrics as a table in Markdown, for the documentation.

    Examples
    --------
    >>> print(table().splitlines()[2])
    | `outpace_query_running` | gauge | | 1 while the query runs, else 0. |
    """
    rows = ["| metric | sort | labels | what it says |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        cells = (f" `{metric.name}` ", f" {metric.sort.value} ", f" {labels} " if labels else " ")
        rows.append("|" + "|".join(cells) + f"| {metric.help} |")
    return "\n".join(rows) + "\n"

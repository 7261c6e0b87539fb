"""The tables of the study `disorder`: what the paper measured and found, and what is done here."""

from __future__ import annotations

from typing import Final

from outpace.studies.report import Figure, PlotKind

SOURCE: Final = (
    "After S. Rajendran: Complex Event Processing over Out-of-order Event Streams, master's "
    "thesis, University of Moratuwa, 2019, chapter 5. It orders events by sequence numbers in the "
    "engine Siddhi, and compares that with MP-K-slack and AQ-K-slack, on 4 cores (i7-4770HQ, "
    "2.2 GHz) with Java 8."
)

_ACCURACY: Final = (
    "Accuracy is the part of the events out of order that came into order. An event that comes "
    "late is not in order."
)

DATASETS: Final = Figure(
    name="Table 5.2",
    title="events out of order",
    axis="dataset",
    quantity="events",
    unit="events",
    kind=PlotKind.BARS,
    said="Three datasets from a football match, brought out of order. Late events come 0.1 to 0.3 "
    "ms late on average in dataset 1, with two peaks of 750 to 1000 ms; less than 1 ms in dataset "
    "2, with peaks of up to 2 s all over it; 1 to 7 ms in dataset 3, with peaks of up to 30 s.",
    here="A stream with the fields, sensors and rates of the match (15 200 events a second), from "
    "a seed, and delays drawn in those ranges. An event is out of order if one before it has a "
    "later time. A single event is late in most peaks. Where they lie is not said in the text: in "
    "dataset 1 they were put so that MP-K-slack waits about as long as in the paper.",
)

DELAYS: Final = Figure(
    name="Figures 5.2-5.5",
    title="greatest delay in each second",
    axis="time (s)",
    quantity="delay",
    unit="ms",
    kind=PlotKind.TIME,
    said="See table 5.2.",
    here="By the time at which events happened.",
    log=True,
)

LATENCY: Final = Figure(
    name="Table 5.4",
    title="latency with dataset 1",
    axis="reorderer",
    quantity="latency",
    unit="ms",
    kind=PlotKind.BARS,
    said="On average 4.09 ms by sequence numbers, 399.56 ms with MP-K-slack and 79.04 ms with "
    "AQ-K-slack: 97 and 19 times as much.",
    here="From the arrival of an event until it is let go, in event time: a step of the clock is a "
    "millisecond (5 ms with --quick), and an event is let go at the end of one, so nothing can be "
    "faster than half a step on average. The paper's numbers have the time of its network and of "
    "its engine in them. The greatest latency is that of each second, on average: every second "
    "counts the same there, and every event in the average latency. Where many events wait long in "
    "a few seconds, it can be below the average. Sequence waits 500 ms at most, as in the paper, "
    "and is left as it is else; see table 5.7. AQ-K-slack keeps the sum of velocities in windows "
    "of 10 000 events to an error of 3 %, with gains of 0.5 and 0.8. The paper does not say what "
    "it took; these are what the reorderer of its engine has by itself. Here it also has a least "
    "K: no usual delay of the dataset is longer; see the other settings of table 5.7.",
    log=True,
)

OVER_TIME: Final = Figure(
    name="Figure 5.7",
    title="average latency in each second, dataset 1",
    axis="time (s)",
    quantity="latency",
    unit="ms",
    kind=PlotKind.TIME,
    said="Latency is highest where events come latest.",
    here="The same runs as in table 5.4. After a peak MP-K-slack holds every event as long as the "
    "latest one was late; AQ-K-slack comes down again, window by window.",
    log=True,
)

LEFT: Final = Figure(
    name="Table 5.5",
    title="events left out of order, dataset 1",
    axis="reorderer",
    quantity="events",
    unit="events",
    kind=PlotKind.BARS,
    said="Five with each of the three.",
    here="Events that came late: those of the two peaks, which nobody could know of.",
)

LATENCIES: Final = Figure(
    name="Table 5.6",
    title="average latency by dataset",
    axis="dataset",
    quantity="latency",
    unit="ms",
    kind=PlotKind.BARS,
    said="By sequence numbers 15,600 to 21,300 % faster than MP-K-slack.",
    here="As in table 5.4. In the paper an event of dataset 3 waits longer than the 30 s that any "
    "of them is late, which K alone does not explain. Here it waits for other events alone.",
    log=True,
)

ACCURACIES: Final = Figure(
    name="Table 5.7",
    title="accuracy by dataset",
    axis="dataset",
    quantity="accuracy",
    unit="%",
    kind=PlotKind.BARS,
    said="At least 99.96 % with each.",
    here=f"{_ACCURACY} Sequence gives up the peaks and orders all else. AQ-K-slack loses peaks "
    "that are later than its K has come down to.",
)

OTHERS: Final = Figure(
    name="Table 5.7, other settings",
    title="accuracy with other settings",
    axis="dataset",
    quantity="accuracy",
    unit="%",
    kind=PlotKind.BARS,
    said="See tables 5.6 and 5.7. The paper does not say what its AQ-K-slack took.",
    here="The paper's equations are read as outpace.engine.kernels.sequence says. With the paper's "
    "0.6, 0.6 and two deviations Sequence has one of twenty late: what a few gaps tell is an "
    "average of little. In table 5.7 older gaps count longer (0.95) and there are four deviations, "
    "as in the timeout of TCP. The controller of AQ-K-slack moves α by its gain times what a "
    "window is better than asked. With an error of 0.03 % that is 0.5 times 0.03 %, so α hardly "
    "changes in the fifty or hundred windows of a dataset, and it waits as MP-K-slack does. With "
    "3 % it comes down by a hundredth each, to half of the latency. In the hundred windows of "
    "dataset 3 it comes down to where usual delays are late, and nothing stops it before: 97 of "
    "100 events of a window are enough, and one of twelve is out of order, so a third of these "
    "may be lost. A least K as long as usual delays, in table 5.7, keeps them.",
)

SOURCES_LATENCY: Final = Figure(
    name="Table 5.8",
    title="average latency by the number of sources, dataset 3",
    axis="sources",
    quantity="latency",
    unit="ms",
    kind=PlotKind.STEPS,
    said="By sequence numbers it rises with the number of sources, from 0.4 to 1 s; with "
    "MP-K-slack it stays at 62 to 78 s, with AQ-K-slack it rises from 10 to 19 s.",
    here="Every source sends the whole dataset, each 3 ms behind the one before. Sequence knows "
    "the sources; the other two have one stream of all, as in the paper. With more than one "
    "source a step of the clock is 10 ms (20 ms with --quick).",
    log=True,
)

SOURCES_ACCURACY: Final = Figure(
    name="Table 5.9",
    title="accuracy by the number of sources, dataset 3",
    axis="sources",
    quantity="accuracy",
    unit="%",
    kind=PlotKind.STEPS,
    said="99.97 % by sequence numbers, at least 99.98 % with MP-K-slack; with AQ-K-slack it falls "
    "to 99.02 %.",
    here=f"The same runs as in table 5.8. {_ACCURACY}",
)

DRIFTS: Final = Figure(
    name="Table 5.10",
    title="events left out of order when the clock of a source is off, dataset 3",
    axis="drift",
    quantity="events",
    unit="events",
    kind=PlotKind.BARS,
    said="Of two sources one has a clock that is off. Where nobody corrects that, up to 539,849 "
    "events come out of order; with an hour 18,001, since one source then comes behind the other. "
    "Where clocks are compared before, 72 to 78 do.",
    here="Sequence, two sources. As in the paper an event is out of order if the one before it "
    "happened later, and late events pass. Clocks are compared by eight exchanges, whose messages "
    "take 50 µs and 20 µs more on average. Where clocks count whole milliseconds, as those of Java "
    "do, a drift of whole milliseconds is measured exactly. That is how the paper's numbers are "
    "read here: events are 33 µs apart, so a drift that is wrong by a few microseconds is enough "
    "to put thousands of them out of order, as clocks that count microseconds show. Of these none "
    "is behind by more than the bound that the exchanges tell, but those that came late. Here no "
    "source is given up as silent: with a large drift that nobody corrects all events of one "
    "source wait until the other has come so far.",
    log=True,
)

_WINDOWS: Final = (
    "The clock of one of two sources is 5 ms off, and that is measured 0.125 ms wrongly: the "
    "answer takes all of a round trip of 0.25 ms. Windows of 10 s (0.5 s with --quick) go by the "
    "corrected time. What an average is off is what that by clocks which are right has more."
)

ONE_WINDOW: Final = Figure(
    name="Table 5.11",
    title="averages of velocities where a drift is measured wrongly",
    axis="window",
    quantity="off by",
    unit="µm/s",
    kind=PlotKind.BARS,
    said="Averages over windows of 10 s, of 444 000 µm/s at most, are off by up to 1.54 µm/s.",
    here=f"{_WINDOWS} An event or two at each border count in the wrong window.",
)

THREE_WINDOWS: Final = Figure(
    name="Table 5.12",
    title="averages of three windows where a drift is measured wrongly",
    axis="window",
    quantity="off by",
    unit="µm/s",
    kind=PlotKind.BARS,
    said="The average of three windows, of which one begins 0.125 ms earlier and one later, is "
    "off by half as much as that of one window.",
    here="The same streams as in table 5.11, with a drift of 0.25 ms for the windows. That three "
    "windows halve the error does not show: over some hundred windows they are off by as much as "
    "one. It is not the set-up: windows as query 5.7 has them, by the true time of events that "
    "come in the corrected order, are off by half as much again where there are three. In 0.125 "
    "ms each source has two events. One window has the two of one source on the wrong side of a "
    "border. LOW and HIGH have both sources' events of 0.125 ms more or less there, four each, "
    "which count a third: neighbours are of different sensors, so what one adds another does not "
    "take away. Counted in eighths of a millisecond, X and X' before a border of the source whose "
    "clock is wrong, Y before it and Y' behind it of the other: one window is off by X, and three "
    "are off by (X + (X + X' + Y) - Y') / 3. That is X where all are alike, and 0.88 of it (the "
    "root of 7 by 3) where they have nothing to do with each other; half is luck. In the paper "
    "it is seven windows whose errors are sums of one or two events, and six tenths of what one "
    "window is off is a single event, between windows 3 and 4. What three "
    "windows do tell is how much the border matters: their least and their greatest average.",
)

PATTERNS: Final = Figure(
    name="Table 5.13",
    title="a pattern over two sources whose clocks are off",
    axis="drift, and how long messages take",
    quantity="found",
    unit="matches",
    kind=PlotKind.BARS,
    said="One source sees a shot, another one 44 ms later the goal. The pattern is found as long "
    "as messages take 10 ms, and not with 50 ms. A query for both orders finds it there as "
    "uncertain.",
    here="A second of the match with a shot and a goal, and query 5.8 as SHOT -> GOAL; then the "
    "same with .uncertain(bound), the bound being that of the exchange. The answer takes all of "
    "the round trip, so the drift is off by as much as the bound allows, which is what messages "
    "take.",
)

TICKS: Final = Figure(
    name="Ticks",
    title="latency against loss on real ticks of stocks",
    axis="events late (%)",
    quantity="latency",
    unit="ms",
    kind=PlotKind.STEPS,
    said="Not in the paper.",
    here="Ticks in the order in which they were recorded. One arrives as early as it can: at the "
    "latest time of those up to it. Steps of the clock are 10 ms. Each reorderer with some "
    "settings: the further down and to the left, the better. An event of the K-slack kinds waits "
    "for a later one also where K is 0. Where MP-K-slack is not bound, a tick that comes late "
    "before a pause counts as late by the whole pause, as in the paper. Sequence has the ticks "
    "numbered in the order of their times. Punctuation is told the time by somebody who knows "
    "which ticks have not come: that is what order takes at the least. Speculative is left "
    "out, which loses what the K-slack in it does: the study speculation shows what it corrects.",
    log=True,
)

FIGURES: Final = (
    DATASETS,
    DELAYS,
    LATENCY,
    OVER_TIME,
    LEFT,
    LATENCIES,
    ACCURACIES,
    OTHERS,
    SOURCES_LATENCY,
    SOURCES_ACCURACY,
    DRIFTS,
    ONE_WINDOW,
    THREE_WINDOWS,
    PATTERNS,
)

#: The names of the reorderers, as rows have them.
SEQUENCE, GREATEST, COVERAGE = "Sequence", "MP-K-slack", "AQ-K-slack"

#: The paper's numbers: average and greatest latency with dataset 1, in ms (table 5.4).
PAPER_LATENCY: Final = {
    SEQUENCE: (4.09, 10.98),
    GREATEST: (399.56, 465.37),
    COVERAGE: (79.04, 133.27),
}
#: Events left out of order, and accuracy in percent: the same with each (table 5.5).
PAPER_LEFT: Final = (5, 99.99)

#: By dataset: delays on average and at most, in words (section 5.1).
PAPER_DELAYS: Final = {
    "Dataset 1": ("0.1 to 0.3", "750 to 1000"),
    "Dataset 2": ("less than 1", "less than 2000"),
    "Dataset 3": ("1 to 7", "up to 30 000"),
}

#: By dataset: average latency in ms and accuracy in percent (tables 5.6 and 5.7).
PAPER_DATASETS: Final = {
    "Dataset 1": {SEQUENCE: (4.09, 99.99), GREATEST: (399.56, 99.99), COVERAGE: (79.04, 99.99)},
    "Dataset 2": {SEQUENCE: (6.52, 99.97), GREATEST: (1397.52, 99.98), COVERAGE: (176.48, 99.96)},
    "Dataset 3": {
        SEQUENCE: (398.12, 99.98),
        GREATEST: (62_507.29, 99.99),
        COVERAGE: (10_462.98, 99.98),
    },
}

#: By the number of sources: average latency in ms and accuracy in percent (tables 5.8 and 5.9).
PAPER_SOURCES: Final = {
    1: {SEQUENCE: (398.12, 99.98), GREATEST: (62_507.29, 99.99), COVERAGE: (10_462.98, 99.98)},
    2: {SEQUENCE: (412.23, 99.97), GREATEST: (67_274.41, 99.98), COVERAGE: (12_634.21, 99.47)},
    5: {SEQUENCE: (552.72, 99.97), GREATEST: (72_937.56, 99.99), COVERAGE: (13_432.69, 99.12)},
    10: {SEQUENCE: (652.34, 99.97), GREATEST: (66_178.05, 99.99), COVERAGE: (16_134.3, 99.02)},
    20: {SEQUENCE: (963.54, 99.97), GREATEST: (78_200.31, 99.99), COVERAGE: (19_313.43, 99.08)},
}

#: By the drift of one of two sources, in milliseconds: its words, and the events left out of order
#: with the accuracy in percent, where nothing is corrected and where clocks are compared (table
#: 5.10).
PAPER_DRIFTS: Final = {
    0: ("0 ms", (52, 99.97), (52, 99.97)),
    1: ("1 ms", (502_560, -201.98), (78, 99.95)),
    5: ("5 ms", (505_235, -203.58), (75, 99.95)),
    10: ("10 ms", (539_849, -224.38), (72, 99.96)),
    60_000: ("1 min", (441_979, -165.57), (74, 99.96)),
    3_600_000: ("1 hour", (18_001, 89.18), (73, 99.96)),
}

#: By window: the average of velocities in µm/s where clocks are right, and where one is measured
#: wrongly with one window and with three (tables 5.11 and 5.12).
PAPER_WINDOWS: Final = (
    (144_123.87, 144_123.87, 144_123.87),
    (133_834.17, 133_834.29, 133_833.95),
    (138_424.12, 138_422.58, 138_423.91),
    (157_036.12, 157_037.65, 157_036.48),
    (154_401.79, 154_401.73, 154_401.22),
    (138_580.31, 138_580.56, 138_580.91),
    (443_901.59, 443_900.16, 443_901.55),
)

#: Words, how far a clock is off and how long messages take, both in milliseconds, and whether the
#: pattern was found (table 5.13).
PAPER_PATTERNS: Final = (
    ("clocks are right", 0, 0.0, 1),
    ("1 s off", 1000, 0.0, 1),
    ("1 s off, 0.125 ms", 1000, 0.125, 1),
    ("1 s off, 1 ms", 1000, 1.0, 1),
    ("1 s off, 10 ms", 1000, 10.0, 1),
    ("1 s off, 50 ms", 1000, 50.0, 0),
)

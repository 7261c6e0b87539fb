"""The figures of the study `speculation`: what the paper measured and found, and what is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from outpace.studies.report import Figure, PlotKind

SOURCE: Final = (
    "After M. U. Sardar: In-Memory Check Pointing in Speculative Parallel Complex Event "
    "Processing, master's thesis, University of Stuttgart, 2018, chapter 7. It compares an "
    "operator whose parts save and go back by themselves with the technique of Mutschler and "
    "Philippsen, for which the operator is a black box, on 8 processors with 8 cores each "
    "(3 GHz), in Java."
)

_CLOCK: Final = (
    "Real parts on a clock of its own: what each step of front, instances and back takes is "
    "measured, the 100 µs that an instance is busy with an event of a window are added, and each "
    "instance has a processor."
)

_STEADY: Final = (
    "Events come at half the rate that instances can do. A host takes what came every 20 ms, so "
    "none is faster than that. K is the largest delay so far."
)


def _figure(
    name: str,
    title: str,
    quantity: str,
    said: str,
    here: str,
    *,
    unit: str = "ms",
    axis: str = "instances",
    kind: PlotKind = PlotKind.STEPS,
    log: bool = False,
) -> Figure:
    return Figure(name, title, axis, quantity, unit, kind, said, here, log)


THROUGHPUT: Final = _figure(
    "7-3",
    "throughput with K-slack alone",
    "throughput",
    "It rises linearly with the number of instances, and is the same for both techniques.",
    f"{_CLOCK} 100 000 events come in a second; K is 540 µs, as it is after the delays of "
    "figure 7-1, and no event is late. An event is in five windows, so an instance that only had "
    "its load would do 2000 in a second.",
    unit="events/s",
    log=True,
)

LATENCY: Final = _figure(
    "7-4",
    "latency with K-slack alone",
    "latency",
    "It rises linearly with the number of instances, maybe since events are sorted, or since there "
    "are many on their way between processors.",
    f"{_STEADY} From the arrival of an event until the host knows that all instances have done it, "
    "on average. What rises is time in the queues of instances: a window has one instance, which "
    "does 10 000 events in a second. With more instances than an event has windows, the events of "
    "a window come faster than that, and wait.",
)

SPECULATION: Final = _figure(
    "7-5",
    "throughput with speculation",
    "throughput",
    "Almost that of K-slack alone; the black box does not gain from more instances, as it saves "
    "the whole system before each event that is speculation.",
    "As figure 7-3, with an alpha of 0: each event is speculation. The black box is the same "
    "operator; its instances save their states at the same time. It has only as many events that "
    "its first windows open, so there is less load in it.",
    unit="events/s",
    log=True,
)

SPECULATION_LATENCY: Final = _figure(
    "7-6",
    "latency with speculation",
    "latency",
    "A little below K-slack alone; that of the black box is high, and the same for all numbers of "
    "instances.",
    "As figure 7-4. K is 540 µs, which is 54 events. The black box has events at half of its own "
    "rate, which is low; it takes each as soon as it comes, and not every 20 ms.",
    log=True,
)

DISORDERED: Final = _figure(
    "7-7",
    "latency with K-slack alone where events are late",
    "latency",
    "Higher than without late events, as K has grown and stays; least so for many instances.",
    f"{_STEADY} A third of the events, those of one source, come up to 510 µs late for a while "
    "(figure 7-1, in a shorter time); latency is that of the last fifth, when all come in order "
    "again.",
)

_FACTORS_SAID: Final = {
    1: "A peak while events are late, the higher the more is speculation; then latency falls to "
    "what the part of speculation says. Adaptive speculation is very near to 100 %.",
    2: "As with one instance; speculation has less effect.",
    4: "As before, but 20 % speculation has a much higher peak than 100 %. Nobody knows why.",
    8: "20 % speculation rises extremely high; the lines do not come down in the time.",
    16: "20 % speculation rises all the time; the others are as expected.",
}

_FACTORS_HERE: Final = (
    f"{_STEADY} 20 % speculation is an alpha of 0.8. A checkpoint every 50 events. What steps "
    "take is measured in runs before, and counts for all factors alike. Points are averages "
    "of a part in forty of the events, in the order of their arrival; the peak is the highest of "
    "them, and steady is the last fifth. The paper does not explain why 20 % is so high. Here it "
    "was, too, with 8 and 16 instances: the less is speculation, the fewer events lie between "
    "what is certain and what went on. Where none did no checkpoint lay there, and the next late "
    "event went back before all that was certain of the last turn. Now a checkpoint lies behind "
    "that before time goes on, and the peak with 20 % is 0.90 to 0.91 of that with 100 % for 16 "
    "instances, in five streams. With fewer instances it may be a little above, as to wait for "
    "0.8 of K takes as long as to go back. The rows below say it for this run: the peak with 20 "
    "% to that with 100 %, the least and the most of several streams, how often both went back, "
    "and how far 20 % came down from its peak. The more instances there are, the faster events "
    "come, and the less K is worth: with 16 it is 3 ms of 108, most of which events wait in the "
    "queues of instances (figure 7-4). To let events go on in pieces of 50 costs more, so there "
    "steady latency is up to 1.05 of that with 0 %. It is the checkpoints that cost this, not "
    "speculation: with those of the default, which lie where pieces end as long as nothing is "
    "late, it is 0.99. A row below says it for this run."
)

_INTERVALS_SAID: Final = {
    1: "The peak is highest with a checkpoint at each event, least with one every 100.",
    2: "Least with one every 50.",
    4: "Too high with one at each event and every 5000; least with one every 50.",
    8: "Least with one every 50 or 100; nothing comes down in the time.",
    16: "As with 8, but 1 and 5000 are not that bad.",
}

_INTERVALS_HERE: Final = (
    f"{_STEADY} Adaptive speculation: alpha follows how busy instances are on average, between "
    "0.7 and 0.9 of the time. A checkpoint is a snapshot that shares what did not change, so it "
    "costs little by itself; what costs is that events go on in pieces between checkpoints. What "
    "steps take is measured in runs before, and counts for all alike. The default (LeastWork) "
    "knows what events and checkpoints take, as hosts measure it, and how often it goes back; "
    "adaptive is equation 4.1. K-slack alone waits for K, with no more to do. Where the last row "
    "is above 0.5, no checkpoints bring the peak to half of that of the best interval. It is the "
    "greater of two: one is what events take where none is late; the other is a calculation with "
    "checkpoints that lie everywhere and cost nothing. In it an event waits for half a turn (10 "
    "ms) and for half of those that come with it (5 ms); before, the 48 events are matched again "
    "that went on behind a late one. With one instance these take 24 ms, and to wait for K would "
    "take 34, so the peak is 39 ms at least. That of the best interval was 56 ms, so half of it "
    "is not to be had. With 16 instances these take 1.5 ms only, but events take 108 ms where "
    "none is late, and 139 at the peak of the best interval; there K-slack had the least peak, "
    "110 ms, as K is 3 ms."
)


def _over_time(first: int, title: str, said: Mapping[int, str], here: str) -> dict[int, Figure]:
    """Return figures of latency over time by the number of instances, from a number of its own."""
    shown: dict[str, Any] = {"axis": "events that came", "kind": PlotKind.TIME, "log": True}
    return {
        count: _figure(f"7-{name}", f"{title}, {counted(count)}", "latency", text, here, **shown)
        for name, (count, text) in enumerate(said.items(), first)
    }


def counted(instances: int) -> str:
    """Return a number of instances in words."""
    return f"{instances} instance{'' if instances == 1 else 's'}"


PROCESSES: Final = _figure(
    "Processes",
    "rate of outpace.run with instances in processes",
    "rate",
    "Not in the paper: its instances are busy for 100 µs with each event.",
    "The query alone, without a load that is added: all that is measured is the operator. K-slack "
    "and speculation are measured in turns. They share the cores of this machine with whatever "
    "else runs on it. Counted in seconds of the processor, of the program and its processes, a "
    "run in order took K-slack 0.95 of what it took speculation with one instance, and 0.97 with "
    "two, by the least of three runs of each, without their start; by the medians it was 1.04 and "
    "0.99. With a third of the events late it was 0.3 and 0.4, by the least of two runs, as nearly "
    "each piece that came made it go back. Since what instances have travels with what is new "
    "where it is little, a piece of 20 000 events is two deliveries and not three, and the program "
    "took 0.72 s in place of 0.87 and its process 0.5 in place of 0.7, by the least of eight runs "
    "of 2 million events, K-slack 0.41 and 0.25; 0.2 s of the program are its start. What is left: "
    "to take few events costs about 1 ms in each place, and 20 000 cost 2 to 3.",
    unit="events/s",
)

TICKS: Final = _figure(
    "Ticks",
    "real ticks of stocks: how much earlier matches come",
    "earlier",
    "Not in the paper.",
    "Ticks in the order in which they were recorded, from a third of the file on. A match is "
    "a price of a stock that is above the one before. K is 890 ms, with which none of a day of "
    "ticks is late. Steps of the clock are 10 ms. Compared are the matches that stay: when they "
    "came for the last time, and when they come with K-slack.",
    axis="alpha",
)

#: Figures by the number of instances: of speculation factors, and of checkpoint intervals.
FACTORS: Final = _over_time(8, "latency by speculation", _FACTORS_SAID, _FACTORS_HERE)
INTERVALS: Final = _over_time(
    13, "latency by the interval of checkpoints", _INTERVALS_SAID, _INTERVALS_HERE
)

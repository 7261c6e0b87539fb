"""The figures of the study `space`: what the paper measured and found, and what is done here.

What stands here of the paper is what its text says in words and numbers; numbers that only a curve
shows are not read off it.
"""

from __future__ import annotations

from typing import Final

from outpace.studies.report import Figure, PlotKind

SOURCE: Final = (
    "After M. Amann: Efficient Splitter for Data Parallel Complex Event Processing, bachelor's "
    "thesis, University of Stuttgart, 2018. It improves the splitter of PACE, calls the result "
    "SPACE and compares both with Apache Flink, on seven servers of 8 or 16 cores (Xeon E5620, "
    "2.4 GHz) with gigabit links and Java 8."
)

SIZES: Final = Figure(
    name="5.1b",
    title="bytes of a serialised event",
    axis="event",
    quantity="size",
    unit="bytes",
    kind=PlotKind.BARS,
    said="PACE sends strings: 63 bytes for a SimpleEvent (metadata and a character) and 155 for a "
    "StockEvent (metadata, a symbol and prices). SPACE sends Protocol Buffers: 16 and 38 bytes.",
    here="Events travel in blocks of columns. Each bar is the whole block divided by its events.",
)

CODING: Final = Figure(
    name="5.1a",
    title="events serialised and read back in a second",
    axis="event",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.BARS,
    said="Protocol Buffers are read about ten times as fast as PACE's strings.",
    here="Serialising and reading back, one core. Reading makes columns in memory, not objects. "
    "Protocol Buffers (where they are installed) and JSON text go event by event, in Python, which "
    "is slower than the paper's Java: compare the blocks with them, not them with the paper.",
)

MAXIMUM: Final = Figure(
    name="5.2",
    title="highest rate of the splitter",
    axis="event",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.BARS,
    said="One source, one instance that discards what it gets, windows of 1000 events. SPACE has a "
    "speedup of 553 % over PACE, and is faster than Flink.",
    here="The same setting, measured where the splitter decides (order, numbers, windows and "
    "schedule), by processor time, and over the whole way: blocks of a source, splitter, shared "
    "memory, an instance in a process of its own that discards them.",
)

OVERLAP: Final = Figure(
    name="5.3",
    title="rate with windows of a million events and smaller and smaller slides",
    axis="slide (events)",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="SPACE holds its rate with many open windows, but at a slide of 10, with 100 000 windows "
    "open, it falls severely, since the predicate is checked for every open window.",
    here="One instance, as far as the splitter goes (order, numbers, windows, schedule); with an "
    "operator of a user in the same place, called once for all windows of a block; and over the "
    "whole way, as in figure 5.2. Open windows are a range of numbers, not a list, also in what an "
    "instance is told of them; with smaller slides more of them open and close.",
)

STABILITY: Final = Figure(
    name="5.4",
    title="rate over time while a source offers twice what can be done",
    axis="time (s)",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.TIME,
    said="PACE, slightly overloaded, loses speed clearly after a few seconds. The rate control of "
    "SPACE prevents this in some settings.",
    here="An instance computes for 1/35 000 s on every event; a source offers twice as many. Rate "
    "control is on.",
)

INSTANCES_SIMPLE: Final = Figure(
    name="5.5a",
    title="rate with more and more instances, SimpleEvents",
    axis="instances",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="Windows without overlap. SPACE shows no loss up to 254 instances, PACE falls beyond 64.",
    here="Windows of 1000 events without overlap. Instances are processes of this machine, so "
    "beyond its cores they share them: what is measured is what more instances cost, not what they "
    "gain.",
)

INSTANCES_STOCK: Final = Figure(
    name="5.5b",
    title="rate with more and more instances, StockEvents",
    axis="instances",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="SPACE gains a little with more instances; PACE neither gains nor loses.",
    here="As figure 5.5a.",
)

SOURCES: Final = Figure(
    name="5.6",
    title="rate with more and more sources",
    axis="sources",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="From 1 source to 16 PACE loses 66 % with SimpleEvents and 14 % with StockEvents. SPACE "
    "has a shortcut for one source and loses, too, with more.",
    here="The paper gives no numbers of SPACE here; those of PACE stand beside ours. Sources whose "
    "times interleave, put into one order by (time, sequence number, source) "
    "and split into windows of 1000 events, with and without an instance behind that. One source "
    "passes through. The splitter orders events by their keys; what else they carry is moved when "
    "somebody reads it, which is measured, too.",
)

DUPLICATION: Final = Figure(
    name="5.7",
    title="rate when an event goes to several instances",
    axis="slide (events)",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="Windows of a million events, given to the instances in turn. The more instances have a "
    "window open, the more often an event is sent; with more windows than instances it gets no "
    "worse. Where each event is sent twice, PACE reaches 201 859 events/s.",
    here="The same, in turn, where an event goes to each instance that has a window open, and in "
    "batches of consecutive windows, which send an event again only where two batches meet: "
    "1 + (size - slide) / (batch × slide) times in all, which is 1.5 for two instances and 1.25 "
    "for four. Rates count events of the stream, not copies. Over the whole way a block is written "
    "once, and all instances read it in shared memory.",
)

BUSY: Final = Figure(
    name="5.8-5.10",
    title="rate with busy instances",
    axis="instances",
    quantity="rate",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="Instances that can do 35 000 events a second each, windows of 1000 events, slides of "
    "500 and 250. Flink (5.8) grows to about 330 000 events/s and stays there. PACE (5.9) grows up "
    "to 4 instances, at most to 141 465 events/s, then breaks down. SPACE (5.10) grows to the "
    "limit of its splitter and then breaks down with a slide of 500; with 250 it stays at the "
    "limit, except with 2 sources.",
    here="Windows are given in turn, as in the paper. An instance needs 1/35 000 s for every event "
    "of a window: computing, which more instances than cores cannot do at the same time, or "
    "waiting for something elsewhere, which needs no core. Sources offer what the instances "
    "together can do, which is drawn, and then twice as much.",
)

FIGURES: Final = (
    CODING,
    SIZES,
    MAXIMUM,
    OVERLAP,
    STABILITY,
    INSTANCES_SIMPLE,
    INSTANCES_STOCK,
    SOURCES,
    DUPLICATION,
    BUSY,
)

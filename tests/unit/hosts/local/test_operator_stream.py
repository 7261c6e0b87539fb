"""Operators of one's own that are recovered by a replay, from push, pop, save and restore."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import outpace as op
from outpace.recover import OperatorStream, OwnMatch, RetainedLog, Savepoint


class Thirds:
    """Gives every third event of the kind b, and skips all others."""

    name = "thirds"

    def __init__(self) -> None:
        self.count, self.came, self.done = 0, 0, -1
        self.found: deque[OwnMatch] = deque()
        self.skipped: list[int] = []

    def push(self, events: pa.Table, numbers: npt.NDArray[np.int64]) -> None:
        for number, kind in zip(numbers.tolist(), events["k"].to_pylist(), strict=True):
            self.came = number + 1
            if kind != "b":
                self.skipped.append(number)
                continue
            self.count += 1
            if self.count % 3 == 0:
                self.found.append(OwnMatch(number, 0, {"at": number}))

    def pop(self) -> OwnMatch | None:
        return self.found.popleft() if self.found else None

    def save(self, match: OwnMatch | None) -> Savepoint:
        self.done = self.done if match is None else match.x
        skip, self.skipped = [one for one in self.skipped if one > self.done], []
        return Savepoint.of(self.name, at=self.came, trim=self.done, skip=skip)

    def restore(self, savepoint: Savepoint) -> None:
        self.done, self.came = savepoint.trim, savepoint.at


def letters(first: int, size: int) -> pa.Table:
    kinds = [Random(number).choice("abc") for number in range(first, first + size)]
    return pa.table({"ts": range(first, first + size), "k": kinds})


@pytest.mark.parametrize("folder", [False, True])
def test_an_operator_goes_on_from_its_log(*, folder: bool, tmp_path: Path) -> None:
    whole = OperatorStream(Thirds(), RetainedLog())
    expected = whole.push(letters(0, 300))
    path = tmp_path / "log" if folder else None
    log, random = RetainedLog(path), Random(5)
    stream, found = OperatorStream(Thirds(), log), list[OwnMatch]()
    waiting: list[OwnMatch] = []
    for first in range(0, 300, 10):
        waiting += stream.push(letters(first, 10))
        if waiting and random.random() < 0.5:
            taken = random.randrange(len(waiting)) + 1
            stream.acknowledge(waiting[taken - 1])
            found, waiting = found + waiting[:taken], waiting[taken:]
        if random.random() < 0.3:
            log.close()
            log = RetainedLog(path) if folder else log
            stream = OperatorStream(Thirds(), log)
            assert stream.replayed == waiting
    assert found + waiting == expected
    stream.acknowledge()
    assert log.came == 300
    assert len(log) < 5


def test_matches_that_come_again_on_the_way_are_dropped() -> None:
    class Slow(Thirds):
        """Trims nothing, so that a replay gives all matches again."""

        def save(self, match: OwnMatch | None) -> Savepoint:
            self.done = self.done if match is None else match.x
            return Savepoint.of(self.name, at=self.came, settled=(self.done, 0), content=b"own")

        def restore(self, savepoint: Savepoint) -> None:
            assert savepoint.own == b"own"

    log = RetainedLog()
    stream = OperatorStream(Slow(), log)
    found = stream.push(letters(0, 60))
    stream.acknowledge(found[1])
    assert len(log) == 60
    assert OperatorStream(Slow(), log).replayed == found[2:]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"at": "2"}, "at is a whole number of at least 0, not '2'"),
        ({"at": None}, "at is a whole number"),
        ({"at": 2, "trim": "1"}, "trim is a whole number of at least -1, not '1'"),
        ({"at": 2, "skip": 3}, "skip is a list of the numbers of events, not 3"),
        ({"at": 2, "skip": ["1"]}, "a number in skip is a whole number, not '1'"),
        ({"at": 2, "settled": 3}, "settled is the number x:y of a match, not 3"),
        ({"at": 2, "settled": ("a", 0)}, "a part of settled is a whole number, not 'a'"),
        ({"at": 2, "content": 3}, "content in bytes is expected, not 3"),
        ({"at": 2, "operator": 3}, "the name of an operator is text, not 3"),
    ],
)
def test_what_is_no_part_of_a_savepoint_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(op.StateError, match=message):
        Savepoint.of(**{"operator": "q", **given})


@pytest.mark.parametrize("name", ["savepoint", "stimuli"])
def test_a_folder_in_the_place_of_a_file_of_a_log_is_refused(name: str, tmp_path: Path) -> None:
    OperatorStream(Thirds(), RetainedLog(tmp_path / "log")).push(letters(0, 30))
    (tmp_path / "log" / name).unlink(missing_ok=True)
    (tmp_path / "log" / name).mkdir()
    with pytest.raises(op.DataError, match=f"{name}' is no regular file"):
        RetainedLog(tmp_path / "log")


def test_what_an_operator_cannot_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(op.BindError, match="an operator"):
        OperatorStream(object(), RetainedLog())  # type: ignore[arg-type]  # refused
    with pytest.raises(op.StateError, match="have not come"):
        Savepoint.of("q", at=3, trim=3)
    with pytest.raises(op.StateError, match="do not rise"):
        Savepoint.of("q", at=9, skip=[4, 2])
    stream = OperatorStream(Thirds(), RetainedLog(tmp_path / "log"))
    found = stream.push(letters(0, 30))
    stream.acknowledge(found[0])

    class Other(Thirds):
        name = "other"

    stream.log.close()
    with pytest.raises(op.StateError, match="another operator"):
        OperatorStream(Other(), RetainedLog(tmp_path / "log"))

    class Late(Thirds):
        def save(self, match: OwnMatch | None) -> Savepoint:
            return Savepoint.of(self.name, at=self.came - 1)

    late = OperatorStream(Late(), RetainedLog())
    late.push(letters(0, 30))
    with pytest.raises(op.StateError, match="knows of 29 events, but 30 have come"):
        late.acknowledge()


def test_a_push_that_fails_is_not_in_the_log() -> None:
    class Fails(Thirds):
        def push(self, events: pa.Table, numbers: npt.NDArray[np.int64]) -> None:
            if numbers[0] == 10:
                raise ValueError("no")
            super().push(events, numbers)

    log = RetainedLog(events=20)
    stream = OperatorStream(Fails(), log)
    stream.push(letters(0, 10))
    with pytest.raises(ValueError, match="no"):
        stream.push(letters(10, 10))
    with pytest.raises(op.DataError, match="an earlier push failed"):
        stream.push(letters(10, 10))
    again = OperatorStream(Thirds(), log)
    again.push(letters(10, 10))
    with pytest.raises(op.DataError, match="no room for 30"):
        again.push(letters(20, 30))
    again.acknowledge()
    assert log.came == 20


class Sums(op.EventOperator):
    """Sums the values of events of the kind b in a window; the others are of no use to it."""

    output = pa.schema([("sum", pa.int64())])

    def __init__(self) -> None:
        self.sum = 0

    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        value = event["ts"]
        assert isinstance(value, int)
        if event["k"] == "b":
            self.sum += value
            yield {"sum": self.sum}

    def skips(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        return np.array([kind != "b" for kind in events["k"].to_pylist()])


@pytest.mark.parametrize("disorder", [None, op.KSlack(3)])
def test_an_operator_in_windows_says_what_it_skips(disorder: op.KSlack | None) -> None:
    query = op.Query("q").order_by("ts").apply(Sums).over(op.windows.count(50, slide=20))
    query = query if disorder is None else query.disorder(disorder)
    log, whole = RetainedLog(), op.open(query)
    stream = op.open(query, recovery="replay", log=log)
    for first in range(0, 300, 10):
        expected = whole.push(letters(first, 10)).to_pylist()
        assert stream.push(letters(first, 10)).to_pylist() == expected
        if first % 30 == 0:
            stream = op.resume(query, log)
            assert stream.replayed.to_pylist() == expected
        stream.acknowledge()
    # A third of the events are of use, and those that open and close windows.
    assert len(log) < 30


def test_an_operator_that_says_too_little_of_what_it_skips_is_refused() -> None:
    class Some(Sums):
        def skips(self, events: pa.Table) -> npt.NDArray[np.bool_]:
            return np.array([True])

    query = op.Query("q").order_by("ts").apply(Some).over(op.windows.count(50))
    log = RetainedLog()
    stream = op.open(query, recovery="replay", log=log)
    with pytest.raises(op.DataError, match="says of 10 events which it skips"):
        stream.push(letters(0, 10))
    assert log.came == 0


def test_events_with_other_columns_than_the_log_are_refused() -> None:
    stream = OperatorStream(Thirds(), RetainedLog())
    stream.push(letters(0, 10))
    for wrong in ({"ts": ["x"], "k": ["b"]}, {"k": ["b"]}, {"ts": [1], "k": ["b"], "more": [1]}):
        with pytest.raises(op.DataError, match="column"):
            stream.push(wrong)
    # In another order they are the same.
    found = stream.push(letters(10, 90).select(["k", "ts"]))
    assert OperatorStream(Thirds(), stream.log).replayed[-len(found) :] == found


def test_a_folder_that_another_operator_wrote_to_meanwhile_is_read_again(tmp_path: Path) -> None:
    first = OperatorStream(Thirds(), RetainedLog(tmp_path / "log"))
    found = first.push(letters(0, 50))
    stale = RetainedLog(tmp_path / "log")
    found += first.push(letters(50, 50))
    first.log.close()
    again = OperatorStream(Thirds(), stale)
    assert again.replayed == found
    whole = OperatorStream(Thirds(), RetainedLog())
    whole.push(letters(0, 100))
    assert again.push(letters(100, 50)) == whole.push(letters(100, 50))

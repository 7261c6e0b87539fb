"""Where a search enters a core in the middle of the data, found by looking back.

A match rules out starts after its own, so the first start of a core depends on the matches before
it. But it forgets: of all starts from which the search might enter a stretch of earlier rows, each
leads through the matches of the stretch to one start behind it, and soon they all lead to the same.
Where they do not, a stretch further back is asked, down to the beginning of the data, where the
entry is known.

Memory: rows of two stretches, each at least one window of WITHIN long and otherwise as long as the
pieces that it is given, and one number for each row of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.divide.core import CoreMatcher, first_at, skip_rows, sorted_block, with_skip
from outpace.engine.kernels.starts import exit_positions
from outpace.engine.match.contract import Block, Task
from outpace.engine.match.reach import reach_of
from outpace.pattern.query import AfterMatch, Selection, Skip

#: The first look back goes over rows of this many windows; few queries need more.
_WINDOWS_FIRST = 16


def remembers(task: Task) -> bool:
    """Say whether it depends on the matches before a row whether the row may start a match."""
    query = task.bound.query
    every = query.effective_skip.skip in (Skip.NONE, Skip.TO_NEXT_ROW)
    return query.effective_selection is Selection.PREFERRED and not every


def find_entry(
    task: Task, before: Iterable[Block], rows_before: int, core: Callable[[], Iterable[Block]]
) -> int:
    """Return the first row of a core that may start a match.

    Parameters
    ----------
    task
        The query.
    before
        The rows before the core in sorted pieces, the nearest first, down to the data's beginning.
    rows_before
        How many rows that are.
    core
        Gives the rows of the core and behind it, in pieces.
    """
    if not remembers(task):
        return 0
    entries: Integers | None = None
    nearer: list[Block] = []
    for rows, context in _stretches(task, before, rows_before):
        entries = _entries(task, rows, context, chain(nearer, core()), entries)
        if (entries == entries[0]).all():
            break
        nearer = _enough(task, [_part(task, rows, context, rows.size), *nearer])
    return 0 if entries is None else int(entries[0])


def _entries(
    task: Task, rows: Block, context: int, following: Iterable[Block], entries: Integers | None
) -> Integers:
    """Return for each row from which a search may enter a stretch where it enters the core.

    The stretch begins after `context` rows that only PREV reads. `entries` says the same of the
    rows behind the stretch; without it the core follows.
    """
    starts, targets = _every_start(task, rows, context, following)
    exits = np.empty(rows.size - context, np.int64)
    exit_positions(starts - context, targets - context, exits)
    # A match that starts before the stretch ends before this row.
    times = rows.times[context:]
    window_end = first_at(times, int(times[0]) + _within(task))
    exits = exits[: window_end + 1]
    return exits if entries is None else entries[exits]


def _every_start(
    task: Task, rows: Block, context: int, following: Iterable[Block]
) -> tuple[Integers, Integers]:
    """Return all starts in a stretch that have a match, and the first start that each leaves."""
    matcher = CoreMatcher(with_skip(task, AfterMatch(Skip.TO_NEXT_ROW)), context)
    starts, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for part in chain(matcher.push(rows), matcher.finish(following)):
        first = part.found.start.astype(np.int64)
        starts.append(first + part.base)
        targets.append(np.maximum(skip_rows(task, part.found), first + 1) + part.base)
    return np.concatenate(starts), np.concatenate(targets)


def _stretches(
    task: Task, before: Iterable[Block], rows_before: int
) -> Iterator[tuple[Block, int]]:
    """Join pieces into stretches of at least one window; the first is no longer than it need be.

    Yields rows, and how many of them only PREV reads: they belong to the stretch before.
    """
    back, within = reach_of(task).back, _within(task)
    pieces: list[Block] = []
    unread = rows_before
    first = True
    for piece in before:
        pieces.insert(0, piece)
        unread -= piece.size
        if not unread:
            break
        begins = _time_at(pieces, back)
        if begins is None or int(pieces[-1].times[-1]) - begins < within:
            continue
        rows = _join(task, pieces)
        begin = _begin(rows.times, back, within) if first else 0
        first = False
        yield _part(task, rows, begin, rows.size), back
        pieces = [_part(task, rows, 0, begin + back)] if begin + back else []
    if pieces:
        yield _join(task, pieces), 0


def _time_at(pieces: list[Block], row: int) -> int | None:
    for piece in pieces:
        if row < piece.size:
            return int(piece.times[row])
        row -= piece.size
    return None


def _begin(times: Integers, back: int, within: int) -> int:
    """Return where the first stretch begins, which few queries look beyond."""
    last = int(times[-1])
    window = first_at(times, last - within + 1) - 1
    wanted = first_at(times, last - _WINDOWS_FIRST * within)
    return max(0, min(window - back, wanted))


def _enough(task: Task, nearer: list[Block]) -> list[Block]:
    """Keep what the windows of an earlier stretch, and what NEXT reads after them, may need."""
    ahead, deadline = reach_of(task).ahead, int(nearer[0].times[0]) + _within(task)
    kept: list[Block] = []
    behind = 0
    whole = False
    for block in nearer:
        kept.append(block)
        behind += block.size if whole else 0
        whole = whole or bool(block.times[-1] >= deadline)
        if whole and behind >= ahead:
            break
    return kept


def _within(task: Task) -> int:
    assert task.bound.within is not None
    return task.bound.within


def _join(task: Task, blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return sorted_block(task, pa.concat_tables(pa.table(block.columns) for block in blocks))


def _part(task: Task, block: Block, low: int, high: int) -> Block:
    if (low, high) == (0, block.size):
        return block
    return sorted_block(task, pa.table(block.columns).slice(low, high - low))

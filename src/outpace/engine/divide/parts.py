"""A complete block matched in parts, by several cores at once, with the result of the whole.

Partitions are matched each in one part, many to a part. One that is longer than a part is cut into
ranges of time where the query allows it: a range finds the matches that start in it, with the rows
that WITHIN lets them have. Where a match rules out later starts, a range begins as if there were no
match before it. What the range before it finds may rule out its first starts: then the search goes
on from there, up to the first place that both ways come to (`_behind`).

Memory: what the whole takes, and the rows of WITHIN once more for each cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from outpace.engine.arrays import Integers
from outpace.engine.cores import cores
from outpace.engine.divide.core import first_at, skip_rows
from outpace.engine.match.contract import Block, BlockMatches, Matcher, Task
from outpace.engine.match.task import match_block, take_matches
from outpace.engine.rows.partition import row_type
from outpace.pattern.query import Selection, Skip

#: A part has so many rows or more: what is done once for each then costs little.
LEAST_ROWS: Final = 1 << 18

#: A range is so many times as long as what lies behind it and is looked at twice.
_RANGE_FACTOR: Final = 4


@dataclass(frozen=True)
class _Part:
    """Some partitions, or a range of one.

    Parameters
    ----------
    block
        Its rows.
    segment, base
        The first partition and the first row in the whole.
    stop
        Of a range the row of the whole from which on matches are not its own; of partitions None.
    """

    block: Block
    segment: int
    base: int
    stop: int | None = None


def match_parts(task: Task, matcher: Matcher, block: Block, *, ranged: bool) -> BlockMatches:
    """Match a complete block by as many cores as there are.

    Parameters
    ----------
    task, matcher
        The query.
    block
        All rows.
    ranged
        Whether partitions may be cut into ranges of time.
    """
    parts = _parts(task, block, ranged=ranged)
    if len(parts) == 1:
        return match_block(matcher, block).found
    progress, size = task.pace.progress, block.size

    def told(done: int) -> None:
        if progress is not None:
            progress(min(done, size), size)

    def match(part: _Part) -> BlockMatches:
        return _in_whole(match_block(matcher, part.block).found, part, size)

    found = cores().each(match, parts, told)
    return _joined(task, matcher, block, parts, found)


def _parts(task: Task, block: Block, *, ranged: bool) -> list[_Part]:
    count = min(2 * cores().count, block.size // LEAST_ROWS) if cores().count > 1 else 1
    if count < 2:
        return [_Part(block, 0, 0)]
    rows = -(-block.size // count)
    parts: list[_Part] = []
    bounds = block.segments
    segment, last = 0, len(bounds) - 1
    while segment < last:
        begin = int(bounds[segment])
        # As many partitions as a part has rows for, but at least one.
        end = max(segment + 1, int(np.searchsorted(bounds, begin + rows, "right")) - 1)
        cuts = [begin, int(bounds[end])]
        if ranged and end == segment + 1:
            cuts = _ranges(task, block, begin, int(bounds[end]), rows)
        if len(cuts) > 2:
            parts += [
                _Part(_rows(task, block, low, high), segment, low, high)
                for low, high in pairwise(cuts)
            ]
        else:
            parts.append(_Part(block.part(segment, end), segment, begin))
        segment = end
    return parts


def _ranges(task: Task, block: Block, begin: int, end: int, rows: int) -> list[int]:
    """Return where a partition is cut; WITHIN may be too long for it to be worth it."""
    count = max(1, (end - begin) // rows)
    cuts = [begin + (end - begin) * part // count for part in range(count + 1)]
    overlap = max((_end(task, block, cut) - cut for cut in cuts[1:-1]), default=0)
    return cuts if _RANGE_FACTOR * overlap <= rows else [begin, end]


def _end(task: Task, block: Block, stop: int) -> int:
    """Return the row up to which matches can lie that start before another."""
    assert task.bound.within is not None
    # One row more tells what does not follow right behind a match.
    return stop + first_at(block.times[stop:], int(block.times[stop - 1]) + task.bound.within) + 1


def _rows(task: Task, block: Block, low: int, high: int) -> Block:
    """Return the rows that matches can have which start in some rows of a partition."""
    segment = int(np.searchsorted(block.segments, low, "right")) - 1
    end = min(_end(task, block, high), int(block.segments[segment + 1]))
    size = np.array([0, end - low])
    whole = replace(block, segments=np.array([low, end]), visible=np.array([end]), within=None)
    within = None if block.within is None else block.within[segment : segment + 1]
    ordinals = block.ordinals[low:end]
    return replace(
        whole,
        columns={name: column.slice(low, end - low) for name, column in block.columns.items()},
        segments=size,
        visible=size[1:],
        ordinals=ordinals,
        arrivals=ordinals if block.arrivals is block.ordinals else block.arrivals[low:end],
        times=block.times[low:end],
        within=within,
    )


def _in_whole(found: BlockMatches, part: _Part, size: int) -> BlockMatches:
    """Return a part's matches by the rows of the whole, which has so many."""
    kind: Any = row_type(size)
    found = replace(
        found,
        segment=found.segment + part.segment,
        start=found.start.astype(kind, copy=False) + part.base,
        rows=found.rows.astype(kind, copy=False) + part.base,
    )
    if part.stop is None:
        return found
    return take_matches(found, np.flatnonzero(found.start < part.stop))


def _joined(
    task: Task, matcher: Matcher, block: Block, parts: Sequence[_Part], found: list[BlockMatches]
) -> BlockMatches:
    """Put the matches of parts together."""
    query = task.bound.query
    preferred = query.effective_selection is Selection.PREFERRED
    rules_out = query.effective_skip.skip not in (Skip.NONE, Skip.TO_NEXT_ROW)
    pieces: list[BlockMatches] = []
    following, segment = 0, -1
    for part, own in zip(parts, found, strict=True):
        if part.stop is None or not (preferred and rules_out):
            pieces.append(own)
            continue
        following = following if part.segment == segment else part.base
        segment = part.segment
        mended, following = _behind(task, matcher, block, part, own, following)
        pieces += mended or [take_matches(own, np.zeros(0, np.int64))]
    whole = _concatenated(pieces)
    cut = {part.segment for part in parts if part.stop is not None}
    if not preferred and cut:
        # Matches come by their last row, which a later range may have before an earlier one.
        order = np.lexsort((whole.start, whole.rows[whole.offsets[1:] - 1], whole.segment))
        whole = take_matches(whole, order)
    if cut:
        first = np.searchsorted(whole.segment, whole.segment)
        number = np.arange(len(whole.start)) - first + 1
        ranged = np.isin(whole.segment, list(cut))
        whole = replace(whole, number=np.where(ranged, number, whole.number))
    return whole


def _behind(
    task: Task, matcher: Matcher, block: Block, part: _Part, found: BlockMatches, row: int
) -> tuple[list[BlockMatches], int]:
    """Return a range's matches where its first start is a row that an earlier match leads to.

    From a row a search finds the first start behind it that has a match, so it goes on like one
    from an earlier row which found nothing before this one. Elsewhere it is asked.
    """
    assert part.stop is not None
    after = _following(task, found)
    pieces: list[BlockMatches] = []
    row = max(row, part.base)
    while row < part.stop:
        place = int(np.searchsorted(found.start, row))
        reached = part.base if place == 0 else min(int(after[place - 1]), part.stop)
        if row < reached:
            again = _Part(_rows(task, block, row, reached), part.segment, row, reached)
            single = _in_whole(match_block(matcher, again.block).found, again, block.size)
            if len(single.start):
                single = take_matches(single, np.zeros(1, np.int64))
                pieces.append(single)
                row = int(_following(task, single)[0])
                continue
        rest = take_matches(found, np.arange(place, len(found.start)))
        pieces.append(rest)
        return pieces, int(after[-1]) if len(rest.start) else max(row, reached)
    return pieces, row


def _following(task: Task, found: BlockMatches) -> Integers:
    """Return the row where the search goes on after each match."""
    return np.maximum(skip_rows(task, found), found.start + 1)


def _concatenated(found: Sequence[BlockMatches]) -> BlockMatches:
    takes = np.cumsum([0, *(len(part.rows) for part in found)])
    offsets = [part.offsets[:-1] + base for part, base in zip(found, takes, strict=False)]
    return BlockMatches(
        segment=np.concatenate([part.segment for part in found]),
        start=np.concatenate([part.start for part in found]),
        number=np.concatenate([part.number for part in found]),
        offsets=np.concatenate([*offsets, takes[-1:]]).astype(np.int64),
        rows=np.concatenate([part.rows for part in found]),
        positions=np.concatenate([part.positions for part in found]),
        settled=np.concatenate([part.settled for part in found]),
    )

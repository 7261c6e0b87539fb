"""Pairs of rows of two sides that lie close in time: counted first, then written."""

from __future__ import annotations

from typing import Final

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Numbers

#: The sides of a join; a row of neither takes part in nothing.
LEFT: Final = 1
RIGHT: Final = 2


@compiled_when_worth
def find_partners(
    times: Numbers,
    side: Numbers,
    segments: Numbers,
    begin: Numbers,
    width: int,
    lefts: Numbers,
    rights: Numbers,
    first: Numbers,
    counts: Numbers,
) -> None:
    """Find for each row the rows of the other side before it, in its segment, less than `width`.

    Rows lie in order of time. `lefts` and `rights` are filled with the rows of each side, those of
    a segment from its first row on. Of a row from its segment's `begin` on, the partners are
    `counts` entries of the other side's list, from `first` on.
    """
    for segment in range(len(begin)):
        low = segments[segment]
        left, left_end, right, right_end = low, low, low, low
        for row in range(low, segments[segment + 1]):
            counts[row] = 0
            since = times[row] - width
            if side[row] == LEFT:
                while right < right_end and times[rights[right]] <= since:
                    right += 1
                if row >= begin[segment]:
                    first[row], counts[row] = right, right_end - right
                lefts[left_end] = row
                left_end += 1
            elif side[row] == RIGHT:
                while left < left_end and times[lefts[left]] <= since:
                    left += 1
                if row >= begin[segment]:
                    first[row], counts[row] = left, left_end - left
                rights[right_end] = row
                right_end += 1


@compiled_when_worth
def write_pairs(
    side: Numbers,
    lefts: Numbers,
    rights: Numbers,
    first: Numbers,
    counts: Numbers,
    pairs: Numbers,
    joined: Numbers,
) -> None:
    """Write the pairs that `find_partners` found, and note the rows of the left that are in one."""
    place = 0
    for row in range(len(counts)):
        left = side[row] == LEFT
        if left and counts[row]:
            joined[row] = 1
        for number in range(first[row], first[row] + counts[row]):
            other = rights[number] if left else lefts[number]
            if not left:
                joined[other] = 1
            pairs[place, 0], pairs[place, 1] = other, row
            place += 1

"""Reading and adding up matches: kernels over takes, laid out match after match.

An output row sees the takes of its match from `low` up to `high`. Output rows come match by match,
and within a match with `high` never falling, so a running total is carried from one to the next.
"""

from __future__ import annotations

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Numbers


@compiled_when_worth
def nth_last(
    wanted: Numbers, positions: Numbers, low: Numbers, high: Numbers, steps: int, out: Numbers
) -> None:
    """Find the last take at a wanted position, `steps` further in; -1 where there is none."""
    for row in range(len(low)):
        left = steps
        found = -1
        take = high[row] - 1
        while take >= low[row]:
            if wanted[positions[take]]:
                if left == 0:
                    found = take
                    break
                left -= 1
            take -= 1
        out[row] = found


@compiled_when_worth
def nth_first(
    wanted: Numbers, positions: Numbers, low: Numbers, high: Numbers, steps: int, out: Numbers
) -> None:
    """Find the first take at a wanted position, `steps` further in; -1 where there is none."""
    for row in range(len(low)):
        left = steps
        found = -1
        for take in range(low[row], high[row]):
            if wanted[positions[take]]:
                if left == 0:
                    found = take
                    break
                left -= 1
        out[row] = found


@compiled_when_worth
def rows_at(
    takes: Numbers,
    rows: Numbers,
    segment: Numbers,
    segments: Numbers,
    shift: int,
    out: Numbers,
) -> None:
    """Turn takes into block rows, moved by `shift` within their partition; -1: none."""
    for row in range(len(takes)):
        found = -1
        if takes[row] >= 0:
            found = rows[takes[row]] + shift
            if found < segments[segment[row]] or found >= segments[segment[row] + 1]:
                found = -1
        out[row] = found


@compiled_when_worth
def takes_of_rows(
    wanted: Numbers, rows: Numbers, low: Numbers, high: Numbers, out: Numbers
) -> None:
    """Find which take of a match took a block row; -1 where none did."""
    for row in range(len(wanted)):
        left, right = low[row], high[row]
        while left < right:
            middle = (left + right) // 2
            if rows[middle] < wanted[row]:
                left = middle + 1
            else:
                right = middle
        found = left < high[row] and wanted[row] >= 0 and rows[left] == wanted[row]
        out[row] = left if found else -1


@compiled_when_worth
def count_takes(counted: Numbers, low: Numbers, high: Numbers, out: Numbers) -> None:
    """Count the takes that count."""
    total = 0
    take = 0
    for row in range(len(low)):
        if row == 0 or low[row] != low[row - 1] or take > high[row]:
            total = 0
            take = low[row]
        while take < high[row]:
            # A flag has a byte, and so would a sum have that Python adds flags up to.
            total += 1 if counted[take] else 0
            take += 1
        out[row] = total


@compiled_when_worth
def sum_integers(
    values: Numbers, counted: Numbers, low: Numbers, high: Numbers, out: Numbers
) -> bool:
    """Add up the values that count; False if a sum does not fit into 64 bits."""
    total = 0
    take = 0
    for row in range(len(low)):
        if row == 0 or low[row] != low[row - 1] or take > high[row]:
            total = 0
            take = low[row]
        while take < high[row]:
            if counted[take]:
                more = total + values[take]
                if (total ^ more) & (values[take] ^ more) < 0:
                    return False
                total = more
            take += 1
        out[row] = total
    return True


@compiled_when_worth
def sum_floats(
    values: Numbers, counted: Numbers, low: Numbers, high: Numbers, out: Numbers
) -> None:
    """Add up the values that count, from left to right."""
    total = 0.0
    take = 0
    for row in range(len(low)):
        if row == 0 or low[row] != low[row - 1] or take > high[row]:
            total = 0.0
            take = low[row]
        while take < high[row]:
            if counted[take]:
                total += values[take]
            take += 1
        out[row] = total


@compiled_when_worth
def sum_squares(
    values: Numbers, counted: Numbers, low: Numbers, high: Numbers, out: Numbers
) -> None:
    """Add up the squares of how far the values that count are from their mean; see `_squares`."""
    mean = 0.0
    total = 0.0
    count = 0
    take = 0
    for row in range(len(low)):
        if row == 0 or low[row] != low[row - 1] or take > high[row]:
            mean = 0.0
            total = 0.0
            count = 0
            take = low[row]
        while take < high[row]:
            if counted[take]:
                count += 1
                distance = values[take] - mean
                mean += distance / count
                total += distance * (values[take] - mean)
            take += 1
        out[row] = total


@compiled_when_worth
def extreme_takes(
    values: Numbers, counted: Numbers, low: Numbers, high: Numbers, greatest: bool, out: Numbers
) -> None:
    """Find the take with the least or greatest value that counts; NaN is the greatest."""
    best = -1
    take = 0
    for row in range(len(low)):
        if row == 0 or low[row] != low[row - 1] or take > high[row]:
            best = -1
            take = low[row]
        while take < high[row]:
            if counted[take]:
                value = values[take]
                if best < 0:
                    best = take
                elif greatest:
                    if value > values[best] or (value != value and values[best] == values[best]):
                        best = take
                elif value < values[best] or (values[best] != values[best] and value == value):
                    best = take
            take += 1
        out[row] = best

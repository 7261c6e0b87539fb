"""Putting predicates together: one bit per variable in one small number per row."""

from __future__ import annotations

from outpace.compiler.kernel import compiled_when_worth
from outpace.engine.arrays import Numbers


@compiled_when_worth
def add_by_table(codes: Numbers, table: Numbers, masks: Numbers) -> None:
    """Add to each row's mask what the table holds for the row's code."""
    for row in range(len(codes)):
        masks[row] |= table[codes[row]]


@compiled_when_worth
def add_where(holds: Numbers, bit: int, masks: Numbers) -> None:
    """Add a bit to the masks of the rows where a predicate holds."""
    kind = masks.dtype.type
    for row in range(len(holds)):
        masks[row] |= kind(holds[row]) * kind(bit)


@compiled_when_worth
def add_compared(
    left: Numbers,
    left_shift: int,
    right: Numbers,
    right_shift: int,
    operator: int,
    bounds: Numbers,
    bit: int,
    masks: Numbers,
) -> None:
    """Add a bit where a value compares with another, each some rows away in the same partition.

    `operator` is 0 for <, 1 for <=, 2 for = and 3 for <>. Where a row is not in the partition, the
    comparison does not hold.
    """
    kind = masks.dtype.type
    flag = kind(bit)
    before = max(0, -left_shift, -right_shift)
    after = max(0, left_shift, right_shift)
    for group in range(len(bounds) - 1):
        low = bounds[group] + before
        high = max(low, bounds[group + 1] - after)
        # Indices that cannot be negative let the loops run on several values at once.
        one = left[low + left_shift : high + left_shift]
        other = right[low + right_shift : high + right_shift]
        out = masks[low:high]
        if operator == 0:
            for row in range(len(out)):
                out[row] |= kind(one[row] < other[row]) * flag
        elif operator == 1:
            for row in range(len(out)):
                out[row] |= kind(one[row] <= other[row]) * flag
        elif operator == 2:
            for row in range(len(out)):
                out[row] |= kind(one[row] == other[row]) * flag
        else:
            for row in range(len(out)):
                out[row] |= kind(one[row] != other[row]) * flag


@compiled_when_worth
def add_compared_to(
    values: Numbers, constant: float, operator: int, bit: int, masks: Numbers
) -> None:
    """Add a bit where a value compares with a constant of its type.

    `operator` is 0 for <, 1 for <=, 2 for =, 3 for <>, 4 for > and 5 for >=.
    """
    kind = masks.dtype.type
    flag = kind(bit)
    if operator == 0:
        for row in range(len(values)):
            masks[row] |= kind(values[row] < constant) * flag
    elif operator == 1:
        for row in range(len(values)):
            masks[row] |= kind(values[row] <= constant) * flag
    elif operator == 2:
        for row in range(len(values)):
            masks[row] |= kind(values[row] == constant) * flag
    elif operator == 3:
        for row in range(len(values)):
            masks[row] |= kind(values[row] != constant) * flag
    elif operator == 4:
        for row in range(len(values)):
            masks[row] |= kind(values[row] > constant) * flag
    else:
        for row in range(len(values)):
            masks[row] |= kind(values[row] >= constant) * flag


@compiled_when_worth
def share_rows(
    bits: Numbers,
    column: Numbers,
    bit: Numbers,
    begin: int,
    row_of: Numbers,
    query_of: Numbers,
    words: Numbers,
    count: Numbers,
    key: Numbers,
    whose: Numbers,
    ends: Numbers,
    due: Numbers,
) -> int:
    """Give each query the rows that have any of its bits, row by row, as long as there is room.

    Some also get the first row without a bit behind one that has any, which ends what follows each
    other.

    Parameters
    ----------
    bits
        Lines of bytes, with a place for each row.
    column, bit
        For each query a line that says in which line of `bits` each of its bits is, and where; -1
        where it has no such bit.
    begin
        The first row.
    row_of, query_of, words
        Filled in: which row it is, which query gets it, and the bits that this has of it.
    count
        Filled in: how many were given.
    key, whose
        The line of `due` for each row, and the place in it of each query.
    ends
        For each query whether it gets rows that end what follows each other.
    due
        Changed: whether such a row is due.

    Returns
    -------
    int
        The row from which on nothing is given yet. There is room for one row at least.
    """
    given = 0
    row = begin
    while row < bits.shape[1] and given + len(column) <= len(row_of):
        for query in range(len(column)):
            word = 0
            for place in range(column.shape[1]):
                if column[query, place] < 0:
                    break
                word |= ((bits[column[query, place], row] >> bit[query, place]) & 1) << place
            if word or due[key[row], whose[query]]:
                due[key[row], whose[query]] = word != 0 and ends[query]
                row_of[given] = row
                query_of[given] = query
                words[given] = word
                given += 1
        row += 1
    count[0] = given
    return row

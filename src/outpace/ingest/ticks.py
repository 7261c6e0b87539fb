"""Generated stock ticks: the same rows for the same arguments, on every machine.

The numbers come from the raw output of a seeded bit generator, which NumPy keeps the same across
releases, and from integer arithmetic; so examples and documentation may show exact results.
"""

from __future__ import annotations

import datetime
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.errors import DataError

#: Invented companies.
SYMBOLS: Final = ("ACME", "BOLT", "CORE", "DUNE")

#: The first tick is later than this by one gap.
OPENING: Final = datetime.datetime(2024, 1, 2, 9, 30, tzinfo=datetime.UTC)

SCHEMA: Final = pa.schema(
    [
        ("symbol", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("price", pa.float64()),
        ("volume", pa.int64()),
    ]
)

_STEP_BITS: Final = 24
_LEAST_CENTS: Final = 100


def generate_ticks(rows: int = 10_000, *, mean_gap_ms: int = 1_000) -> pa.Table:
    """Make trades of several symbols, each as likely as another, ordered by time.

    Each symbol's price is a random walk in cents, that of a later symbol higher and wilder. Gaps
    between trades are drawn evenly from 1 ms to twice the mean. Most volumes are small; about one
    trade in a hundred is a large one, of 10 000 shares or more.

    Parameters
    ----------
    rows
        How many trades.
    mean_gap_ms
        The mean time between two trades of any symbol.

    Returns
    -------
    pyarrow.Table
        The columns symbol, ts (microseconds, UTC), price and volume.

    Examples
    --------
    >>> ticks = generate_ticks(3)
    >>> ticks["symbol"].to_pylist()
    ['DUNE', 'BOLT', 'CORE']
    >>> generate_ticks(3) == ticks
    True
    """
    if rows < 0 or mean_gap_ms < 1:
        raise DataError("ticks need 0 or more rows and a mean gap of 1 ms or more")
    bits = np.random.PCG64(7)
    which = _draw(bits, rows, len(SYMBOLS))
    gaps = 1 + _draw(bits, rows, 2 * mean_gap_ms)
    times = _microseconds(OPENING) + 1_000 * np.cumsum(gaps)
    cents = _prices(which, _steps(bits, rows), len(SYMBOLS))
    columns = [
        pa.array(SYMBOLS, pa.string()).take(pa.array(which)),
        pa.array(times).cast(SCHEMA.field("ts").type),
        pa.array(cents / 100),
        pa.array(_volumes(bits, rows)),
    ]
    return pa.table(columns, schema=SCHEMA)


def _microseconds(time: datetime.datetime) -> int:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (time - epoch) // datetime.timedelta(microseconds=1)


def _draw(bits: np.random.PCG64, count: int, below: int) -> Integers:
    """Numbers from 0 to `below` - 1. The remainder's bias is far below what anyone can see."""
    raw = np.asarray(bits.random_raw(count), np.uint64)
    return (raw % np.uint64(below)).astype(np.int64)


def _steps(bits: np.random.PCG64, count: int) -> Integers:
    """Steps of a walk in cents: nearly normal, as the number of ones among some fair bits."""
    raw = np.asarray(bits.random_raw(count), np.uint64) >> np.uint64(64 - _STEP_BITS)
    ones: Integers = np.bitwise_count(raw).astype(np.int64)
    return ones - _STEP_BITS // 2


def _prices(which: Integers, steps: Integers, symbols: int) -> Integers:
    """One walk per symbol, all to the same scale, reflected so that no price is too low."""
    cents = np.zeros(len(which), np.int64)
    for symbol in range(symbols):
        mine = which == symbol
        walk = (1 + symbol) * (2_000 + np.cumsum(steps[mine]))
        cents[mine] = _LEAST_CENTS + np.abs(walk - _LEAST_CENTS)
    return cents


def _volumes(bits: np.random.PCG64, count: int) -> Integers:
    """Round lots of 100 to 2 000 shares, and one trade in a hundred a hundred times as large."""
    lots = 100 * (1 + _draw(bits, count, 20))
    large = _draw(bits, count, 100) == 0
    return np.where(large, 100 * lots, lots)

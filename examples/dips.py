"""Find the deepest dips in generated stock trades.

Run it with `python examples/dips.py`.
"""

import pyarrow.compute as pc

import outpace as op
from outpace.ingest.ticks import generate_ticks

dip = (
    op.Query("dip")
    .partition_by("symbol")
    .order_by("ts")
    .pattern("STRT DOWN{3,} UP{3,}")
    .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    .measures(
        starts="STRT.ts",
        top="STRT.price",
        bottom="LAST(DOWN.price)",
        fall="STRT.price - LAST(DOWN.price)",
        lasted="LAST(UP.ts) - STRT.ts",
    )
    .within("10 minutes")
)


def main() -> None:
    found = op.match(generate_ticks(50_000), dip)
    order = pc.sort_indices(found, sort_keys=[("fall", "descending")])
    print(f"{found.num_rows} dips; the deepest:")
    for match in found.take(order[:5]).to_pylist():
        print(f"{match['symbol']} at {match['starts']:%H:%M:%S}", end=" ")
        print(f"from {match['top']:.2f} to {match['bottom']:.2f} in {match['lasted']}")


if __name__ == "__main__":
    main()

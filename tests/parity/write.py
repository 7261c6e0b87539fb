"""Freeze results anew: `PYTHONPATH=tests python -m parity.write [GROUP ...]`.

Only for a change that is meant to give other results, or for new cases. What the oracles can answer
is compared with them first; nothing is written where they differ.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter

from parity.frozen import CASES, FOLDER, RECORDED, read, recorded, write
from parity.meaning import check


def main() -> None:
    logging.disable(logging.WARNING)
    for group in sys.argv[1:] or RECORDED:
        before = read(group) if (FOLDER / f"{group}.jsonl").exists() else {}
        records = [recorded(group, name) for name in RECORDED[group]]
        compared: Counter[str] = Counter()
        for found in records if group in CASES else ():
            compared.update(check(CASES[group][found["name"]], found))
        write(group, records)
        changed = sum(before.get(found["name"]) != found for found in records)
        print(f"{group}: {len(records)} cases, {changed} changed;", dict(compared))  # noqa: T201


if __name__ == "__main__":
    main()

"""Many simulated runs of the operator, or one again: `python -m outpace.testing.simulation`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from random import SystemRandom

from outpace.compiler.kernel import load_numba
from outpace.testing.simulation.simulated_run import simulate_operator
from outpace.testing.simulation.trace import SimulationError


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m outpace.testing.simulation",
        description="Simulate the operator with faults, and compare with what queries mean.",
    )
    parser.add_argument("--seed", type=int, help="the run, or the first of many")
    parser.add_argument("--minutes", type=float, help="go on with the next seeds for so long")
    parser.add_argument("--verbose", action="store_true", help="show every step")
    arguments = parser.parse_args()
    seed = SystemRandom().randrange(1 << 40) if arguments.seed is None else arguments.seed
    # Small inputs are done before Numba is there; the simulator is about what is compiled, too.
    load_numba()
    begin = time.monotonic()
    end = begin + 60 * (arguments.minutes or 0)
    counts: Counter[str] = Counter()
    try:
        while True:
            run = simulate_operator(seed=seed)
            counts.update(runs=1, steps=len(run.trace), matches=run.matches, crashes=run.crashes)
            if arguments.verbose:
                _say("\n".join([*run.trace, f"seed {seed}: {run.digest}"]))
            if time.monotonic() >= end:
                break
            seed += 1
    except SimulationError as failure:
        _say("\n".join([*(failure.trace if arguments.verbose else ()), str(failure)]))
        return 1
    hours = (time.monotonic() - begin) / 3600
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    _say(f"{found}; {counts['runs'] / hours:,.0f} runs an hour, up to seed {seed}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())

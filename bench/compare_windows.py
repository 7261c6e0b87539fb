"""Sliding windows in process beside Flink's: the same events, in turns, ratios of each turn.

Run `python bench/compare_windows.py`; `--help` lists the options. Each turn runs `outpace bench` on
one core and Flink at parallelism 1, which starts threads of its own beside the task. Flink counts
the matches of every window; `outpace bench` returns each of them. Prints a table with the rates and
the ratio of every turn. The exit code is 1 where the counts differ.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from compare import PROJECT, measure_flink, millions, say

WORKLOADS = "w5t,w5c"


def main():
    options = parse(sys.argv[1:])
    workloads = options.workload.split(",")
    turns = {name: [] for name in workloads}
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with options.log.open("w") as kept:
        for _ in range(options.turns):
            ours = measure_ours(options)
            command = [options.flink, options.workload, "1", f"{options.n // 5},{options.n}"]
            for flink in measure_flink(command, options.log.with_suffix(".err"), kept):
                turns[flink["workload"]].append((ours[flink["workload"]], flink))
    print(table(turns))
    if any(different(*turn) for name in workloads for turn in turns[name]):
        sys.exit("counts differ")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--flink",
        type=Path,
        default=Path(
            os.environ.get("FLINK_PEER", PROJECT.parent / "shared" / "peers" / "flink" / "run.sh")
        ),
        help="the program that runs Flink; FLINK_PEER in the environment does the same",
    )
    parser.add_argument("--workload", default=WORKLOADS, help="names, with commas")
    parser.add_argument("--n", type=int, default=1_000_000, help="events")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--log", type=Path, default=PROJECT / "build" / "bench" / "windows.txt")
    return parser.parse_args(arguments)


def measure_ours(options):
    command = [Path(sys.executable).with_name("outpace"), "bench", "--json"]
    command += ["--workload", options.workload, "--n", options.n, "--repeat", 5]
    command = list(map(str, command))
    say(" ".join(command))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {result["workload"]: result for result in results}


def different(ours, flink):
    return ours["matches_in_whole_windows"] != flink["sums"][-1]


def table(turns):
    lines = ["| workload | Flink | Outpace | ratio, turn by turn | median | counts |"]
    lines.append("|---|---|---|---|---|---|")
    for name, measured in turns.items():
        if not measured:
            continue
        ratios = [ours["events_per_s"] / flink["events_per_s"] for ours, flink in measured]
        cells = [
            name,
            ", ".join(millions(flink["events_per_s"]) for _, flink in measured),
            ", ".join(millions(ours["events_per_s"]) for ours, _ in measured),
            ", ".join(f"{ratio:.1f}" for ratio in ratios),
            f"{statistics.median(ratios):.1f}",
            "differ" if any(different(*turn) for turn in measured) else "agree",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""Outpace on Spark beside Flink CEP: the same workloads, the same machine, the same hour.

Run `python bench/compare.py`; `--help` lists the options. Flink runs first, keyed workloads at each
parallelism; its better rate counts. Then `outpace bench --host spark` measures the workloads from
Parquet and from a DataFrame, and how much two cores give over one. What either prints is kept under
`--out` as it comes, and the table is written anew after each step, so a run that is cut short
leaves what it had. A workload that fails is named and left out; the exit code is 1 then, or where
counts differ.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
WORKLOADS = "w1,w1n,w1t,w2,w1k,w2k,w3a,w3b,w4s,w4r"
#: Without a key Flink matches in one task: more parallelism makes it no faster, and slows it here.
UNKEYED = {"w1", "w1n", "w1t", "w1tn", "w2"}
SUMS = ("matches", "sum_start", "sum_end", "sum_length")


def main():
    options = parse(sys.argv[1:])
    begun = time.monotonic()
    workloads = options.workload.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    flink, failed = [], []
    results = {"parquet": [], "dataframe": [], "cores": []}
    reference = read_reference(options.flink.with_name("ref_counts.txt"))

    def write():
        text = table(workloads, flink, results, reference, options.cores)
        (options.out / "compare.md").write_text(text)
        return text

    if options.flink.is_file():
        with (options.out / "compare-flink.txt").open("w") as kept:
            for parallelism in options.parallelism.split(","):
                chosen = [w for w in workloads if parallelism == "1" or w not in UNKEYED]
                if not chosen:
                    continue
                command = [options.flink, ",".join(chosen), parallelism, options.sizes]
                for result in measure_flink(command, options.data / "flink.log", kept):
                    flink.append(result)
                    write()
        failed += missing("Flink", workloads, flink)
    else:
        say(f"Flink is left out: there is no {options.flink}")
    with (options.out / "compare-outpace.jsonl").open("w") as kept:
        runs = {
            "parquet": (workloads, options.n, options.cores, options.repeat),
            "dataframe": (workloads, options.dataframe_n, options.cores, options.dataframe_repeat),
            "cores": (
                options.scaling.split(","),
                options.scaling_n,
                f"1,{options.cores}",
                options.repeat,
            ),
        }
        for name, (chosen, n, cores, repeat) in runs.items():
            chosen = [workload for workload in chosen if workload in workloads]
            kind = "dataframe" if name == "dataframe" else "parquet"
            arguments = ["--input", kind, "--n", n, "--cores", cores, "--repeat", repeat]
            arguments += ["--data", options.data]
            for result in measure_outpace(chosen, arguments, kept):
                results[name].append(result)
                write()
            failed += missing(name, chosen, results[name])
    print(write())
    say(f"{time.monotonic() - begun:.0f} s in all; kept in {options.out}")
    different = [name for name in workloads if counts(name, flink, results, reference) == "differ"]
    if failed or different:
        sys.exit("\n".join([*failed, *(f"{name}: counts differ" for name in different)]))


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
    parser.add_argument("--parallelism", default="1,2", help="of Flink, with commas")
    parser.add_argument("--sizes", default="500000,2000000", help="of Flink; the first warms up")
    parser.add_argument("--workload", default=WORKLOADS, help="names, with commas")
    parser.add_argument("--n", type=int, default=20_000_000, help="events from Parquet")
    parser.add_argument("--repeat", type=int, default=3, help="timed runs from Parquet")
    parser.add_argument("--dataframe-n", type=int, default=20_000_000)
    parser.add_argument("--dataframe-repeat", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2, help="of Spark")
    parser.add_argument("--scaling", default="w1,w2", help="workloads to run on one core as well")
    parser.add_argument(
        "--scaling-n",
        type=int,
        default=200_000_000,
        help="events for that; a job of 20 million takes half a second, which says little",
    )
    parser.add_argument("--data", type=Path, default=PROJECT / "build" / "bench")
    parser.add_argument("--out", type=Path, default=PROJECT / "bench" / "results")
    return parser.parse_args(arguments)


def measure_flink(command, log, kept):
    """Give the measured runs of Flink as they come; one that fails is missing in them."""
    say(" ".join(map(str, command)))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as errors, started(command, errors) as process:
        for line in process.stdout:
            kept.write(line)
            kept.flush()
            say("  " + line.strip())
            result = read_flink(line)
            if result is not None:
                yield result
        if process.wait():
            say(f"  Flink failed; what it said is in {log}")


def read_flink(line):
    """Read a line of Flink's output; None where it is not a measured run."""
    parts = line.strip().split(",")
    if parts[0] != "RESULT" or "measured" not in parts:
        return None
    fields = dict(part.split("=") for part in parts if "=" in part)
    return {
        "workload": parts[1],
        "parallelism": int(fields["p"]),
        "n": int(fields["n"]),
        "events_per_s": int(fields["ev_s"]),
        "sums": tuple(int(fields[name]) for name in ("matches", "sumS", "sumE", "sumL")),
    }


def measure_outpace(workloads, arguments, kept):
    """Give the results of `outpace bench` as they come; after a failure, go on with the next."""
    left = list(workloads)
    while left:
        command = [Path(sys.executable).with_name("outpace"), "bench", "--host", "spark", "--json"]
        command += ["--workload", ",".join(left), *arguments]
        command = list(map(str, command))
        say(" ".join(command))
        done = []
        with started(command) as process:
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                result = json.loads(line)
                say("  " + describe(result))
                done.append(result["workload"])
                yield result
            if process.wait() == 0:
                return
        # Results come in the order asked for, so the one that failed is the next.
        left = left[left.index(done[-1]) + 2 :] if done else left[1:]


@contextmanager
def started(command, errors=None):
    """Start a program; it ends with this one, and so does all that it started."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()


def missing(what, workloads, results):
    found = {result["workload"] for result in results}
    return [f"{what}: no result for {name}" for name in workloads if name not in found]


def read_reference(path):
    """Return the sums that a reference gives, by workload and size; nothing where it is missing."""
    known = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        _, workload, size, *sums = line.split(",")
        known[workload, int(size.split("=")[1])] = tuple(int(s.split("=")[1]) for s in sums)
    return known


def counts(workload, flink, results, reference):
    """Say whether everything that was found of a workload is what the reference says."""
    found = {(run["n"], run["sums"]) for run in flink if run["workload"] == workload}
    for result in (result for kind in results.values() for result in kind):
        if result["workload"] == workload:
            found.add((result["n"], tuple(result[name] for name in SUMS)))
    if not found:
        return "-"
    sizes = [size for size, _ in found]
    if len(set(sizes)) < len(sizes):
        return "differ"
    known = [(size, sums) for size, sums in found if (workload, size) in reference]
    if any(reference[workload, size] != sums for size, sums in known):
        return "differ"
    return "agree" if len(known) == len(found) else "agree with each other"


def table(workloads, flink, results, reference, cores):
    """Return the table of everything measured so far, rates in million events per second."""
    head = ["workload", "Flink", "Parquet", "ratio", "of ceiling"]
    head += ["DataFrame", "ratio", "of ceiling", "counts"]
    rows = [head, ["---"] * len(head)]
    for name in workloads:
        peer = max(
            (run for run in flink if run["workload"] == name),
            key=lambda run: run["events_per_s"],
            default=None,
        )
        rate = peer and peer["events_per_s"]
        row = [name, f"{millions(rate)} (p={peer['parallelism']})" if peer else "-"]
        for kind in ("parquet", "dataframe"):
            ours = next((found for found in results[kind] if found["workload"] == name), {})
            own = ours.get("events_per_s")
            share = ours.get("share_of_ceiling")
            row += [
                millions(own),
                f"{own / rate:.1f}" if own and rate else "-",
                f"{share:.2f}" if share else "-",
            ]
        rows.append([*row, counts(name, flink, results, reference)])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    for found in results["cores"]:
        if "speedup" in found:
            name = found["workload"]
            lines += ["", f"{name}, Parquet: {cores} cores are {found['speedup']} times one core."]
    return "\n".join(lines) + "\n"


def millions(rate):
    return "-" if rate is None else f"{rate / 1e6:.3g}"


def describe(result):
    names = ("workload", "cores", "seconds", "events_per_s", "share_of_ceiling", "matches")
    return ", ".join(f"{name} {result[name]}" for name in names)


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # What was started is ended on the way out, so a polite request to end must be a way out.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    main()

"""The watch over a program's memory: it sees what its processes take, and nobody else's."""

import os
import subprocess
import sys
import time

from memory import Memory, PeakMemory, Process, memory_of, running

_MEGABYTE = 1 << 20


def test_it_sees_the_peak_of_the_processes_a_program_starts():
    # The grandchild takes a hundred megabytes for a moment and gives them back.
    take = "import time; block = b'x' * (100 << 20); time.sleep(0.4); del block; time.sleep(0.4)"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {take!r}], check=True)"
    child = subprocess.Popen([sys.executable, "-c", start])
    with PeakMemory(child.pid, every_s=0.02) as memory:
        assert child.wait() == 0
    assert memory.readings > 10
    assert 100 * _MEGABYTE < memory.peak.driver < 200 * _MEGABYTE
    assert memory.peak == Memory(driver=memory.peak.driver, total=memory.peak.total)
    assert memory.peak.driver == memory.peak.total


def test_it_does_not_see_its_own_memory():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with PeakMemory(child.pid, every_s=0.02) as memory:
            block = b"x" * (100 * _MEGABYTE)
            time.sleep(0.2)
            del block
        assert 0 < memory.peak.total < 60 * _MEGABYTE
    finally:
        child.communicate(b"\n")


def test_a_running_process_is_read_as_it_is():
    found = running()[os.getpid()]
    assert found.parent == os.getppid()
    assert found.resident_bytes > 10 * _MEGABYTE
    assert not any(name in found.name for name in "()")


def test_what_java_starts_are_workers_at_any_depth():
    processes = {
        1: Process(0, "init", 1000),
        10: Process(1, "python", 1),
        11: Process(10, "bash", 2),
        12: Process(11, "java", 4),
        13: Process(12, "python (daemon)", 8),
        14: Process(13, "python", 16),
        20: Process(1, "java", 5000),
        21: Process(20, "python", 7000),
    }
    assert memory_of(10, processes) == Memory(driver=3, jvm=4, workers=24, spark=28, total=31)


def test_a_circle_of_parents_is_of_no_program():
    processes = {1: Process(0, "python", 1), 2: Process(3, "a", 2), 3: Process(2, "b", 4)}
    assert memory_of(1, processes).total == 1


def test_sums_are_of_one_moment():
    first = memory_of(1, {1: Process(0, "python", 5), 2: Process(1, "java", 1)})
    second = memory_of(1, {1: Process(0, "python", 1), 2: Process(1, "java", 4)})
    assert first.peak(second) == Memory(driver=5, jvm=4, workers=0, spark=4, total=6)

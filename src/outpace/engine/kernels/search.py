"""The search kernel: the preferred match of each start, by backtracking over masks.

One call handles all partitions of a block. Moves are tried in the order that
`docs/explanation/semantics.md` defines; predicates that read the match are called through a
compiled function (`step`). Without such predicates a search remembers where it failed once it has
begun to backtrack, so that its cost is bounded by positions times rows.

A search is a stack of frames. A frame is one event that was taken: its state in the program, its
row, and the moves that are left to try behind it. The last frame either takes the next event that
one of its moves allows, which is a new frame, or has no move left and is dropped, so that the one
below tries its next move. ACCEPT among the moves ends the search with a match; an empty stack ends
it without one. For `A B* C` over a b b d c:

    rows            a      b      b      d      c
    frame 0   ──► start: may take A
    frame 1         a ──► may take B, else C
    frame 2                b ──► may take B, else C
    frame 3                       b ──► may take B, else C: d fits neither, so it is dropped;
    frame 2                b ──► may take C, but the next row is b: dropped
    frame 1         a ──► may take C, but the next row is b: dropped, and so is frame 0: no match

Where links let rows lie between, a move looks at the rows behind the frame for the first that fits,
and stops at one that a negation names or at the deadline of WITHIN. Where only rows with the same
value as an earlier one can fit, it goes from one of these to the next (`Joins`). A call ends early
when it has done so much work that Python should have the floor; the next one goes on in the same
frame. It also ends where matches, frames or remembered failures need more room; the start is
searched again then.

Where every match is wanted, a match is noted and the search goes on as if it had failed. Where one
may rule out another, the runs of a start are noted by themselves, and `_emit_start` tells which of
them are matches before the next start is searched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from outpace.compiler.kernel import compiled_in_place, compiled_within
from outpace.engine.arrays import Numbers

STRICT, NEXT, ANY = 0, 1, 2
AT_START, AT_END = 1, 2
WITHIN_NONE, WITHIN_FIRST, WITHIN_PREVIOUS = 0, 1, 2
SKIP_NEXT_ROW, SKIP_PAST_LAST, SKIP_TO_FIRST, SKIP_TO_LAST = 0, 1, 2, 3
CONSUME_NONE, CONSUME_SELECTED, CONSUME_ALL = 0, 1, 2

#: How a call ends: finished; more room is needed to go on; an error that the caller words.
DONE, FULL, STACK_FULL, MEMO_FULL = 0, 1, 2, 3
OVER_BUDGET, NO_TARGET, TARGET_IS_FIRST, PATH_FAILED = 4, 5, 6, 7
#: There is more to do; the next call goes on exactly where this one stopped.
PAUSED = 8
#: More room is needed for partial matches that timed out, and for the runs of one start.
TOLD_FULL, RUNS_FULL = 9, 10

#: What became of a start whose matches rule out others: more rows may give it matches; a match
#: ends what is looked for here; or all its runs were looked at.
WAITING, DECIDED, EXHAUSTED = 20, 21, 22

#: Places in `Stack.paused`: one more than the depth that a paused search has come to (0: the next
#: start is to be searched from its beginning), the steps that it has taken, the work of a call, and
#: the matches and takes that there were before this start, then those of partial matches, and the
#: `reach` and `passed` of then.
HELD_DEPTH, HELD_STEPS, WORK, HELD_MATCHES, HELD_TAKES = 0, 1, 2, 3, 4
HELD_TOLD, HELD_TOLD_TAKES = 5, 6
HELD_REACH, HELD_PASSED = 7, 8

#: A time before any time.
NO_TIME = -(1 << 63)

#: What the search of one start came to.
FAILED, MATCHED, PENDING = 0, 1, 2

#: The `reach` of a search that looked at the end of the input.
REACHED_END = (1 << 63) - 1

#: A row behind all rows.
NO_ROW = (1 << 63) - 1

#: So many variables have a place in `ProgramArrays.named` for each word.
NAMED = 64

#: Marks in `Stack.timed_out`.
TIMED_OUT, FRUITFUL, ENDED_HERE, LONGER = 1, 2, 4, 8

#: Which partial matches are told of that WITHIN ended: none; each run that it ended and that could
#: not go on otherwise; and where a run may be found twice, those that went on, too, marked LONGER.
TELL_NONE, TELL_ENDED, TELL_ALL = 0, 1, 2

#: A search begins to remember failures after this many takes.
MEMO_AFTER = 64

#: Stamps a remembered failure that holds for every start.
ANY_START = -1

#: To look for a row by its value is so much work.
_SEARCHED = 16


class ProgramArrays(NamedTuple):
    """A program as arrays. State 0 is before the first event, state p + 1 after position p.

    Sets of variables are bits of the state's masks: those of state s are the masks of rows from
    `word[s]` times the rows on, and bit b of them is the variable `named[NAMED * word[s] + b]`.
    `path` has for each word the variables whose predicates read the match, `fits` for each move the
    bit of its target's variable, and `skips` marks the variables that AFTER MATCH SKIP names.
    `first_move[state]` and `first_hold[move]` are bounds of ranges;
    `group_end[move]` is the first ACCEPT from that move on, or the end of the state's moves, and
    `group_bits[move]` the moves up to there, as bits counted within the state. `guarded` marks the
    ACCEPTs that depend on more than being reached. `strict_next` has the variables that the very
    next event must fit, for states that can only go on with it, else 0.
    """

    variable: Numbers
    first_move: Numbers
    target: Numbers
    link: Numbers
    flags: Numbers
    until: Numbers
    absent_next: Numbers
    absent: Numbers
    first_hold: Numbers
    hold: Numbers
    hold_until: Numbers
    group_end: Numbers
    group_bits: Numbers
    guarded: Numbers
    ends: Numbers
    ends_next: Numbers
    waits: Numbers
    strict_next: Numbers
    word: Numbers
    named: Numbers
    path: Numbers
    fits: Numbers
    skips: Numbers


class SearchRules(NamedTuple):
    """The rules of a query beside its pattern; `limit` -1 means none.

    There are `words` of masks, and with `path` predicates that read the match. `start_bits` are the
    variables that can be first, and `second_bits` those that must come right after, where that
    holds for every match, else 0. The search of one start is given up after `budget` steps; a call
    pauses after about `work` steps and rows looked at. With `every`, all runs of each start are
    wanted, not the preferred one alone; with `ruled` those that no match rules out, in the order of
    starts, at most `per_start` of each (-1: no limit). `repeats` says that runs may be the same
    match. `tells` says which partial matches are wanted, of starts without a match.
    """

    words: int
    path: bool
    start_bits: int
    second_bits: int
    matches_empty: bool
    within_kind: int
    skip: int
    skip_free: bool
    skip_strict: bool
    consume: int
    limit: int
    memo: bool
    budget: int
    work: int
    every: bool
    ruled: bool
    per_start: int
    repeats: bool
    tells: int


class SegmentRows(NamedTuple):
    """The rows of a block, by segment: from `begin` to `visible`; `stop` is the segment's end.

    No later row of a segment has a time less than its `floor`. What WITHIN allows its matches is
    `within`.
    """

    masks: Numbers
    times: Numbers
    begin: Numbers
    visible: Numbers
    stop: Numbers
    first_ordinal: Numbers
    floor: Numbers
    within: Numbers
    ended: bool


class Joins(NamedTuple):
    """What rows can follow a state whose moves all ask for the value of an earlier row.

    `of_state` has the number of a state's join, or -1. The earlier row is in the register
    `register[join]`, its value in the integer column `slot[join]`, and whether that is known says
    the column `column[join]` of `valid`. `rows` from `bounds[join]` to `bounds[join + 1]` are those
    that may fit, by their own value, which `values` has, and then by row.
    """

    of_state: Numbers
    register: Numbers
    column: Numbers
    slot: Numbers
    bounds: Numbers
    values: Numbers
    rows: Numbers


class PathInput(NamedTuple):
    """The input of compiled predicates: columns of both kinds, validity, and empty registers.

    The last integer is the number of the match that is searched for.
    """

    integers: Numbers
    floats: Numbers
    valid: Numbers
    first_integers: Numbers
    first_floats: Numbers
    joins: Joins


class Cursor(NamedTuple):
    """Where the search is: the segment, and for each the next start and the matches so far.

    `reach` and `passed` say what has been looked at, as in `Buffers`.

    Where `wanted` has flags for rows, each start is searched for itself that a search from a wanted
    row comes to, none is left out because an earlier one waits, and rows that matches lead to
    become wanted. `looked` then takes for each row that failed as a start the row behind the last
    that was looked at, or REACHED_END where that takes more rows; of a match, `reach` has the
    former, and `number` the row where the search goes on.

    Where every match is wanted, `looked` takes REACHED_END for each start that more rows may give
    more matches, and `number` of a match what became of its run in the end: FAILED, MATCHED or
    PENDING. Its `reach` and `passed` then say what had to be known for that alone.

    `consumed` flags the rows that no match may take any more, where matches consume. With every
    match that others do not rule out, starts up to `barrier` are ruled out, and matches of the next
    start that rows before `completed` complete have been found.
    """

    segment: Numbers
    next_row: Numbers
    number: Numbers
    reach: Numbers
    passed: Numbers
    wanted: Numbers
    looked: Numbers
    consumed: Numbers
    barrier: Numbers
    completed: Numbers


class Stack(NamedTuple):
    """Room for one search: a frame for each take so far and one before the first.

    A frame holds the take and what is left to try after it; `timed_out` says whether WITHIN,
    counted from this start, had a part in what failed after it (1), whether there may be a match
    (2), whether WITHIN ended this very run (4), and whether it went on or was a match (8).
    `integers` and `floats` are the registers of compiled predicates, those of the empty run first.
    The memo holds failures; `memo_state` is the number of entries, whether it is in use, the stamp
    of the current start, and the entries before it. `paused` says where a call paused.
    """

    state: Numbers
    row: Numbers
    event: Numbers
    move: Numbers
    group: Numbers
    alive: Numbers
    released: Numbers
    timed_out: Numbers
    run_rows: Numbers
    run_labels: Numbers
    integers: Numbers
    floats: Numbers
    memo_keys: Numbers
    memo_stamps: Numbers
    memo_state: Numbers
    paused: Numbers


class Buffers(NamedTuple):
    """Where matches go; `counts` has the matches, the takes, and the takes of one that did not fit.

    Takes of match m are from `ends[m]` to `ends[m + 1]`. `reach` is one more than the last row that
    had to be looked at, or REACHED_END; `passed` the time that had to pass, or NO_TIME.
    """

    counts: Numbers
    segment: Numbers
    start: Numbers
    number: Numbers
    ends: Numbers
    reach: Numbers
    passed: Numbers
    rows: Numbers
    positions: Numbers


@compiled_within
def memo_slot(keys: Numbers, stamps: Numbers, stamp: int, key: int) -> int:
    """Return where a key is, or the free slot where it belongs; stamps of other starts are free."""
    last = len(keys) - 1
    slot = (key * -7046029254386353131 >> 20) & last
    while (stamps[slot] == stamp or stamps[slot] == ANY_START) and keys[slot] != key:
        slot = (slot + 1) & last
    return slot


@compiled_within
def next_joined(joins: Joins, join: int, value: int, row: int) -> int:
    """Return the first row from one on that has the value that a join asks for, or NO_ROW."""
    values, rows = joins.values, joins.rows
    low, high = joins.bounds[join], joins.bounds[join + 1]
    last = high
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value or (values[middle] == value and rows[middle] < row):
            low = middle + 1
        else:
            high = middle
    if low < last and values[low] == value:
        return int(rows[low])
    return NO_ROW


@compiled_in_place
def search(
    step: Any,
    program: ProgramArrays,
    rules: SearchRules,
    rows: SegmentRows,
    path: PathInput,
    stack: Stack,
    cursor: Cursor,
    out: Buffers,
    told: Buffers,
    runs: Buffers,
) -> int:
    """Search from the cursor on, fill the buffers, and say how the call ended.

    `told` takes partial matches that WITHIN ended, laid out as matches are, and `runs` those of one
    start where a match may rule out another; their `number` says what became of each.
    """
    masks, times = rows.masks, rows.times
    size = len(masks) // rules.words
    word_of, fits_bit, skips = program.word, program.fits, program.skips
    first_move, target, link = program.first_move, program.target, program.link
    until, waits, strict_next = program.until, program.waits, program.strict_next
    first_hold, hold_bits, hold_until = program.first_hold, program.hold, program.hold_until
    ends, ends_next = program.ends, program.ends_next
    group_ends, group_bits = program.group_end, program.group_bits
    guarded, variables, flags = program.guarded, program.variable, program.flags
    frame_state, frame_row, frame_event = stack.state, stack.row, stack.event
    frame_move, frame_group, frame_alive = stack.move, stack.group, stack.alive
    frame_released, frame_timed_out = stack.released, stack.timed_out
    run_rows, run_labels = stack.run_rows, stack.run_labels
    integers, floats = stack.integers, stack.floats
    memo_keys, memo_stamps, memo_state = stack.memo_keys, stack.memo_stamps, stack.memo_state
    next_row, number = cursor.next_row, cursor.number
    out_counts, told_counts = out.counts, told.counts
    tells = rules.tells != TELL_NONE
    begins, visibles, stops, withins = rows.begin, rows.visible, rows.stop, rows.within
    ended = rows.ended
    wanted_rows, looked = cursor.wanted, cursor.looked
    sweeping = len(wanted_rows) > 0
    every, ruled = rules.every, rules.ruled
    noted_in = runs if ruled else out
    consuming, consumed = rules.consume != CONSUME_NONE, cursor.consumed
    joins = path.joins
    join_of, registers = joins.of_state, len(path.first_integers)
    floor, first_ordinal = rows.floor, rows.first_ordinal
    frames = len(frame_state)
    uses_path = rules.path
    # Pointers for compiled predicates, taken once: making them costs more than a call.
    rows_at, labels_at = run_rows.ctypes, run_labels.ctypes
    integers_at, floats_at = integers.ctypes, floats.ctypes
    integer_columns, float_columns = path.integers.ctypes, path.floats.ctypes
    valid = path.valid.ctypes
    paused = stack.paused
    resumed = paused[HELD_DEPTH] > 0
    work = 0

    for segment in range(cursor.segment[0], len(rows.begin)):
        cursor.segment[0] = segment
        begin, end, stop = begins[segment], visibles[segment], stops[segment]
        within = withins[segment]
        start = next_row[segment]
        reach = cursor.reach[segment]
        passed = cursor.passed[segment]
        if ruled and start <= cursor.barrier[segment]:
            start = min(cursor.barrier[segment] + 1, end)
            cursor.completed[segment] = begin
        limit_row = start
        searching = resumed or not sweeping
        while start < end:
            if rules.limit >= 0 and number[segment] >= rules.limit:
                start = end
                break
            if work > rules.work:
                next_row[segment] = start
                cursor.reach[segment] = reach
                cursor.passed[segment] = passed
                if searching and sweeping:
                    wanted_rows[start] = 1
                paused[WORK] = work
                return PAUSED
            while not searching and start < end:
                searching = wanted_rows[start] != 0
                start += not searching
            if start == end:
                break
            if not rules.matches_empty and not resumed:
                before = start
                # A start must fit a first step, and where known, its next row a strict second one.
                while start < end:
                    if np.int64(masks[start]) & rules.start_bits:
                        if rules.second_bits == 0 or start + 1 == end:
                            break
                        if np.int64(masks[start + 1]) & rules.second_bits:
                            break
                    start += 1
                if ruled and start > before:
                    cursor.completed[segment] = begin
                if start == end:
                    break
            if sweeping and not resumed:
                # Each start counts for itself, also when it is searched again for want of room.
                wanted_rows[start] = 1
                reach = 0
                passed = NO_TIME
            # Rows from `bound` on come after this start's deadline.
            bound = end
            deadline = 0
            if rules.within_kind == WITHIN_FIRST:
                limit_row = max(limit_row, start)
                while limit_row < end and times[limit_row] - times[start] < within:
                    limit_row += 1
                bound = limit_row
                deadline = times[start] + within
            depth = 0
            steps = 0
            memo_on = memo_state[1] != 0
            if resumed:
                depth = paused[HELD_DEPTH] - 1
                steps = paused[HELD_STEPS]
                paused[HELD_DEPTH] = 0
                resumed = False
            else:
                memo_state[2] += 1
                memo_state[3] = memo_state[0]
                paused[HELD_MATCHES] = out_counts[0]
                paused[HELD_TAKES] = out_counts[1]
                paused[HELD_TOLD] = told_counts[0]
                paused[HELD_TOLD_TAKES] = told_counts[1]
                paused[HELD_REACH] = reach
                paused[HELD_PASSED] = passed
                path.integers[-1] = number[segment] + 1
                if ruled:
                    runs.counts[0] = 0
                    runs.counts[1] = 0
                    reach = 0
                    passed = NO_TIME
                frame_state[0] = 0
                frame_row[0] = start - 1
                frame_event[0] = start
                frame_move[0] = 0
                frame_group[0] = 0
                frame_alive[0] = group_bits[0]
                frame_released[0] = 0
                frame_timed_out[0] = 0
                work += 1
            stamp = memo_state[2]
            reach = max(reach, start + 1)
            outcome = FAILED
            while True:
                if work > rules.work:
                    next_row[segment] = start
                    cursor.reach[segment] = reach
                    cursor.passed[segment] = passed
                    paused[HELD_DEPTH] = depth + 1
                    paused[HELD_STEPS] = steps
                    paused[WORK] = work
                    return PAUSED
                state = frame_state[depth]
                row = frame_row[depth]
                here = word_of[state] * size
                base, top = first_move[state], first_move[state + 1]
                group = frame_group[depth]
                group_end = group_ends[group] if group < top else top
                taken = False
                if group < group_end:
                    event = frame_event[depth]
                    move = frame_move[depth]
                    alive = frame_alive[depth]
                    released = frame_released[depth]
                    first = row + 1
                    work -= event
                    if rules.within_kind == WITHIN_PREVIOUS and state > 0:
                        deadline = times[row] + within
                    while True:
                        if move == group:
                            if alive == 0:
                                break
                            if state == 0:
                                if event > start:
                                    break
                            else:
                                if event > first:
                                    wanted = waits[state]
                                    join = join_of[state]
                                    if join >= 0:
                                        work += event + _SEARCHED
                                        ahead = NO_ROW
                                        earlier = integers[depth * registers + joins.register[join]]
                                        if (
                                            earlier >= 0
                                            and path.valid[joins.column[join] * size + earlier]
                                        ):
                                            value = path.integers[joins.slot[join] * size + earlier]
                                            ahead = next_joined(joins, join, value, event)
                                        limit = bound
                                        if rules.within_kind == WITHIN_PREVIOUS:
                                            limit = first_from(times, event, end, deadline)
                                        event = min(ahead, limit)
                                        work -= event
                                    elif rules.within_kind == WITHIN_PREVIOUS:
                                        while (
                                            event < end
                                            and np.int64(masks[here + event]) & wanted == 0
                                            and times[event] < deadline
                                        ):
                                            event += 1
                                    else:
                                        while (
                                            event < bound
                                            and np.int64(masks[here + event]) & wanted == 0
                                        ):
                                            event += 1
                                timed_out = event >= bound and event < end
                                if rules.within_kind == WITHIN_PREVIOUS and event < end:
                                    timed_out = times[event] >= deadline
                                if event >= end and rules.within_kind != WITHIN_NONE:
                                    timed_out = floor[segment] >= deadline
                                if timed_out:
                                    reach = max(reach, event)
                                    passed = max(passed, deadline)
                                    frame_timed_out[depth] |= TIMED_OUT | ENDED_HERE
                                    break
                                if event >= end:
                                    if ended:
                                        reach = REACHED_END
                                    elif every:
                                        looked[start] = REACHED_END
                                        frame_timed_out[depth] |= FRUITFUL
                                    else:
                                        outcome = PENDING
                                    break
                        bits = np.int64(masks[here + event])
                        reach = max(reach, event + 1)
                        if event == first and move == group and state > 0:
                            hit = ends_next[state] & bits
                            if hit:
                                held = _fits_one(
                                    step,
                                    program,
                                    word_of[state],
                                    hit,
                                    depth,
                                    event,
                                    begin,
                                    stop,
                                    size,
                                    run_rows,
                                    run_labels,
                                    integers,
                                    floats,
                                    path,
                                )
                                if held < 0:
                                    return PATH_FAILED
                                if held > 0:
                                    break
                        while move < group_end:
                            flag = 1 << (move - base)
                            if alive & flag:
                                dead = False
                                hit = until[move] & bits
                                if hit:
                                    held = _fits_one(
                                        step,
                                        program,
                                        word_of[state],
                                        hit,
                                        depth,
                                        event,
                                        begin,
                                        stop,
                                        size,
                                        run_rows,
                                        run_labels,
                                        integers,
                                        floats,
                                        path,
                                    )
                                    if held < 0:
                                        return PATH_FAILED
                                    dead = held > 0
                                for hold in range(first_hold[move], first_hold[move + 1]):
                                    mark = 1 << (hold - first_hold[base])
                                    if dead or released & mark:
                                        continue
                                    hit = hold_until[hold] & bits
                                    if hit:
                                        held = _fits_one(
                                            step,
                                            program,
                                            word_of[state],
                                            hit,
                                            depth,
                                            event,
                                            begin,
                                            stop,
                                            size,
                                            run_rows,
                                            run_labels,
                                            integers,
                                            floats,
                                            path,
                                        )
                                        if held < 0:
                                            return PATH_FAILED
                                        if held > 0:
                                            released |= mark
                                            continue
                                    hit = hold_bits[hold] & bits
                                    if hit:
                                        held = _fits_one(
                                            step,
                                            program,
                                            word_of[state],
                                            hit,
                                            depth,
                                            event,
                                            begin,
                                            stop,
                                            size,
                                            run_rows,
                                            run_labels,
                                            integers,
                                            floats,
                                            path,
                                        )
                                        if held < 0:
                                            return PATH_FAILED
                                        dead = held > 0
                                if dead:
                                    alive &= ~flag
                                else:
                                    position = target[move]
                                    variable = variables[position]
                                    fits = bits >> fits_bit[move] & 1 != 0
                                    if flags[move] & AT_START:
                                        fits = (
                                            fits and event == begin and first_ordinal[segment] == 0
                                        )
                                    if fits and uses_path:
                                        run_rows[depth] = event
                                        run_labels[depth] = variable
                                        held = step(
                                            variable,
                                            depth,
                                            event,
                                            begin,
                                            stop,
                                            size,
                                            rows_at,
                                            labels_at,
                                            integers_at,
                                            floats_at,
                                            integer_columns,
                                            float_columns,
                                            valid,
                                        )
                                        if held < 0:
                                            return PATH_FAILED
                                        fits = held > 0
                                    if link[move] == STRICT or (fits and link[move] == NEXT):
                                        alive &= ~flag
                                    if consuming and consumed[event]:
                                        fits = False
                                    if fits:
                                        taken = True
                                        wanted = strict_next[position + 1]
                                        if wanted != 0 and event + 1 < bound:
                                            there = word_of[position + 1] * size + event + 1
                                            taken = np.int64(masks[there]) & wanted != 0
                                            reach = max(reach, event + 2)
                                        if taken and memo_on:
                                            key = position * size + event
                                            place = memo_slot(memo_keys, memo_stamps, stamp, key)
                                            if memo_stamps[place] == stamp:
                                                taken = False
                                                frame_timed_out[depth] |= TIMED_OUT
                                            elif memo_stamps[place] == ANY_START:
                                                taken = memo_keys[place] != key
                                        if taken:
                                            move += 1
                                            break
                            move += 1
                        if taken:
                            break
                        # The event is skipped; it may end the run.
                        hit = ends[state] & bits
                        if hit and alive:
                            held = _fits_one(
                                step,
                                program,
                                word_of[state],
                                hit,
                                depth,
                                event,
                                begin,
                                stop,
                                size,
                                run_rows,
                                run_labels,
                                integers,
                                floats,
                                path,
                            )
                            if held < 0:
                                return PATH_FAILED
                            if held > 0:
                                break
                        event += 1
                        move = group
                    work += event + 1
                    if outcome == PENDING:
                        break
                if taken:
                    frame_event[depth] = event
                    frame_move[depth] = move
                    frame_alive[depth] = alive
                    frame_released[depth] = released
                    run_rows[depth] = event
                    frame_timed_out[depth] |= LONGER
                    depth += 1
                    if depth + 1 >= frames:
                        _forget_start(
                            rules, paused, cursor, segment, start, reach, passed, out, told
                        )
                        return STACK_FULL
                    steps += 1
                    if steps > rules.budget:
                        next_row[segment] = start
                        return OVER_BUDGET
                    if steps == MEMO_AFTER and rules.memo:
                        memo_on = True
                        memo_state[1] = 1
                    position = target[move - 1]
                    group = first_move[position + 1]
                    frame_state[depth] = position + 1
                    frame_row[depth] = event
                    frame_event[depth] = event + 1
                    frame_move[depth] = group
                    frame_group[depth] = group
                    frame_alive[depth] = group_bits[group]
                    frame_released[depth] = 0
                    frame_timed_out[depth] = 0
                    continue
                if group_end < top:
                    # A call costs more than most searches, so only what is guarded makes one.
                    free = guarded[group_end] == 0
                    if free and not every:
                        outcome = MATCHED
                        break
                    verdict = _Verdict(MATCHED, row + 1, NO_TIME, False)
                    if not free:
                        verdict = _accepts(
                            step,
                            program,
                            rules,
                            rows,
                            path,
                            state,
                            group_end,
                            start,
                            row,
                            segment,
                            depth,
                            run_rows,
                            run_labels,
                            integers,
                            floats,
                        )
                        if verdict.failed:
                            return PATH_FAILED
                    if every:
                        known = max(verdict.reach, row + 1)
                        if depth > 0 and not _note_match(
                            noted_in, segment, start, verdict.outcome, known, verdict.passed,
                            times, depth, run_rows, frame_state,
                        ):  # fmt: skip
                            _forget_start(
                                rules, paused, cursor, segment, start, reach, passed, out, told
                            )
                            return RUNS_FULL if ruled else FULL
                        if verdict.outcome != FAILED:
                            frame_timed_out[depth] |= FRUITFUL | LONGER
                    else:
                        reach = max(reach, verdict.reach)
                        passed = max(passed, verdict.passed)
                        if verdict.outcome != FAILED:
                            outcome = verdict.outcome
                            break
                    group = group_end + 1
                    if group < top:
                        frame_group[depth] = group
                        frame_event[depth] = row + 1
                        frame_move[depth] = group
                        frame_alive[depth] = group_bits[group]
                        frame_released[depth] = 0
                        continue
                # Nothing is left to try after this take.
                if depth == 0:
                    break
                marks = frame_timed_out[depth]
                longer = marks & LONGER
                noted = rules.tells == TELL_ALL if longer else tells and marks & ENDED_HERE != 0
                if noted and not _note_match(
                    told, segment, start, longer, 0, NO_TIME, times, depth, run_rows, frame_state
                ):
                    _forget_start(rules, paused, cursor, segment, start, reach, passed, out, told)
                    return TOLD_FULL
                if memo_on and marks & FRUITFUL == 0:
                    if 2 * memo_state[0] >= len(memo_keys):
                        _forget_start(
                            rules, paused, cursor, segment, start, reach, passed, out, told
                        )
                        return MEMO_FULL
                    key = (state - 1) * size + row
                    place = memo_slot(memo_keys, memo_stamps, stamp, key)
                    if memo_keys[place] != key or memo_stamps[place] != ANY_START:
                        memo_keys[place] = key
                        # What another start has looked at, this one has not.
                        depends = rules.within_kind == WITHIN_FIRST and marks & TIMED_OUT != 0
                        own = depends or sweeping or ruled
                        memo_stamps[place] = stamp if own else ANY_START
                        memo_state[0] += 1
                depth -= 1
                frame_timed_out[depth] |= marks & (TIMED_OUT | FRUITFUL)

            if ruled:
                cursor.reach[segment] = paused[HELD_REACH]
                cursor.passed[segment] = paused[HELD_PASSED]
                work += runs.counts[0]
                came_to = _emit_start(rules, program, runs, out, cursor, times, segment, start, end)
                if came_to < WAITING:
                    _forget_start(rules, paused, cursor, segment, start, reach, passed, out, told)
                    return came_to
                outcome = MATCHED
                if came_to == EXHAUSTED:
                    outcome = FAILED
                    cursor.reach[segment] = max(cursor.reach[segment], reach)
                    cursor.passed[segment] = max(cursor.passed[segment], passed)
                reach = cursor.reach[segment]
                passed = cursor.passed[segment]
                if came_to == WAITING:
                    outcome = PENDING
            if tells:
                if outcome == FAILED:
                    _settle_told(told, int(paused[HELD_TOLD]), times, reach, passed)
                else:
                    told_counts[0] = paused[HELD_TOLD]
                    told_counts[1] = paused[HELD_TOLD_TAKES]
            if outcome == PENDING:
                if not sweeping:
                    break
                looked[start] = REACHED_END
                searching = False
                start += 1
                continue
            if ruled:
                start = max(start, cursor.barrier[segment]) + 1
                cursor.completed[segment] = begin
                continue
            if sweeping:
                reach = known_from(times, reach, passed, start, end)
            if outcome == FAILED:
                if sweeping:
                    looked[start] = reach
                start += 1
                continue
            following = start + 1
            if depth > 0:
                if rules.skip == SKIP_PAST_LAST:
                    following = run_rows[depth - 1] + 1
                elif rules.skip >= SKIP_TO_FIRST:
                    found = -1
                    for take in range(depth):
                        variable = variables[frame_state[take + 1] - 1]
                        if skips[variable] and (found < 0 or rules.skip == SKIP_TO_LAST):
                            found = run_rows[take]
                    if found > start:
                        following = found
                    elif rules.skip_strict:
                        return NO_TARGET if found < 0 else TARGET_IS_FIRST
            named = following if sweeping else number[segment] + 1
            if not _note_match(
                out, segment, start, named, reach, passed, times, depth, run_rows, frame_state
            ):
                _forget_start(rules, paused, cursor, segment, start, reach, passed, out, told)
                return FULL
            number[segment] += 1
            if consuming and depth > 0:
                if rules.consume == CONSUME_ALL:
                    consumed[start : run_rows[depth - 1] + 1] = 1
                else:
                    for take in range(depth):
                        consumed[run_rows[take]] = 1
            if sweeping:
                searching = following == start + 1
                if following < end:
                    wanted_rows[following] = 1
                following = start + 1
            start = following
        next_row[segment] = start
        cursor.reach[segment] = reach
        cursor.passed[segment] = passed
    cursor.segment[0] = len(rows.begin)
    return DONE


@compiled_within
def time_to_pass(times: Numbers, reach: int, passed: int) -> int:
    """Return the time that has to pass, NO_TIME where a row looked at shows that it has."""
    shown = reach == REACHED_END or passed == NO_TIME or times[reach - 1] >= passed
    return NO_TIME if shown else passed


@compiled_within
def known_from(times: Numbers, reach: int, passed: int, start: int, end: int) -> int:
    """Return the row behind the last that had to come, those that told the time included."""
    if passed == NO_TIME:
        return reach
    return max(reach, first_from(times, start, end, passed) + 1)


@compiled_within
def first_from(times: Numbers, low: int, high: int, time: int) -> int:
    """Return the first row of some whose time is not before another, or their end."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


class _Verdict(NamedTuple):
    outcome: int
    reach: int
    passed: int
    failed: bool


@compiled_within
def _note_match(
    out: Buffers,
    segment: int,
    start: int,
    number: int,
    reach: int,
    passed: int,
    times: Numbers,
    depth: int,
    run_rows: Numbers,
    frame_state: Numbers,
) -> bool:
    """Note a match and say whether there was room for it."""
    matches, takes = out.counts[0], out.counts[1]
    if matches == len(out.start) or takes + depth > len(out.rows):
        out.counts[2] = depth
        return False
    for take in range(depth):
        out.rows[takes + take] = run_rows[take]
        out.positions[takes + take] = frame_state[take + 1] - 1
    out.segment[matches] = segment
    out.start[matches] = start
    out.number[matches] = number
    out.ends[matches + 1] = takes + depth
    out.reach[matches] = reach
    out.passed[matches] = time_to_pass(times, reach, passed)
    out.counts[0] = matches + 1
    out.counts[1] = takes + depth
    return True


@compiled_within
def _forget_start(
    rules: SearchRules,
    paused: Numbers,
    cursor: Cursor,
    segment: int,
    start: int,
    reach: int,
    passed: int,
    out: Buffers,
    told: Buffers,
) -> None:
    """Forget what was noted of a start, which is searched again.

    What the memo keeps of it has been looked at, unless it is of no start but this one.
    """
    cursor.next_row[segment] = start
    cursor.reach[segment] = paused[HELD_REACH] if rules.ruled else reach
    cursor.passed[segment] = paused[HELD_PASSED] if rules.ruled else passed
    out.counts[0] = paused[HELD_MATCHES]
    out.counts[1] = paused[HELD_TAKES]
    told.counts[0] = paused[HELD_TOLD]
    told.counts[1] = paused[HELD_TOLD_TAKES]


@compiled_within
def _emit_start(
    rules: SearchRules,
    program: ProgramArrays,
    runs: Buffers,
    out: Buffers,
    cursor: Cursor,
    times: Numbers,
    segment: int,
    start: int,
    end: int,
) -> int:
    """Emit the runs of a start that are matches, each before those that later events complete.

    Says what became of the start: WAITING, DECIDED, EXHAUSTED, or how the call ends. What had to be
    known for it is added to `reach` and `passed` of the cursor.
    """
    variables = program.variable
    count = runs.counts[0]
    emitted = 0
    found = 0
    group = -1
    while True:
        last = NO_ROW
        for run in range(count):
            row = runs.rows[runs.ends[run + 1] - 1]
            if group < row < last:
                last = row
        if last == NO_ROW:
            break
        group = last
        reach, passed = cursor.reach[segment], cursor.passed[segment]
        for run in range(count):
            if runs.rows[runs.ends[run + 1] - 1] != last:
                continue
            if rules.repeats and _is_noted(runs, run, variables):
                continue
            if runs.number[run] == PENDING:
                cursor.completed[segment] = last
                return WAITING
            reach = max(reach, runs.reach[run])
            passed = max(passed, runs.passed[run])
        cursor.reach[segment] = reach
        cursor.passed[segment] = passed
        for run in range(count):
            low, high = runs.ends[run], runs.ends[run + 1]
            if runs.rows[high - 1] != last or runs.number[run] != MATCHED:
                continue
            if rules.repeats and _is_noted(runs, run, variables):
                continue
            found += 1
            if last >= cursor.completed[segment]:
                if not _take_run(runs, run, out, cursor, times, segment, start):
                    cursor.number[segment] -= emitted
                    return FULL
                cursor.number[segment] += 1
                emitted += 1
                barrier = start - 1
                if rules.skip == SKIP_PAST_LAST:
                    barrier = last
                elif rules.skip >= SKIP_TO_FIRST:
                    target = -1
                    for take in range(low, high):
                        fits = program.skips[variables[runs.positions[take]]]
                        if fits and (target < 0 or rules.skip == SKIP_TO_LAST):
                            target = runs.rows[take]
                    if rules.skip_strict and target <= start:
                        return NO_TARGET if target < 0 else TARGET_IS_FIRST
                    barrier = max(barrier, target - 1)
                elif not rules.skip_free:
                    barrier = start
                cursor.barrier[segment] = max(cursor.barrier[segment], barrier)
                if rules.consume == CONSUME_ALL:
                    cursor.consumed[start : last + 1] = 1
                elif rules.consume == CONSUME_SELECTED:
                    for take in range(low, high):
                        cursor.consumed[runs.rows[take]] = 1
            if cursor.barrier[segment] >= start or found == rules.per_start:
                return DECIDED
            if rules.limit >= 0 and cursor.number[segment] >= rules.limit:
                return DECIDED
            if rules.consume != CONSUME_NONE and cursor.consumed[start]:
                return DECIDED
    if cursor.looked[start]:
        cursor.completed[segment] = end
        return WAITING
    return EXHAUSTED


@compiled_within
def _is_noted(runs: Buffers, run: int, variables: Numbers) -> bool:
    """Say whether a run is the same match as one noted before it."""
    low, high = runs.ends[run], runs.ends[run + 1]
    for earlier in range(run):
        shift = runs.ends[earlier] - low
        same = runs.number[earlier] == MATCHED and runs.ends[earlier + 1] - shift == high
        for take in range(low, high):
            if not same:
                break
            same = runs.rows[take] == runs.rows[take + shift]
            of_one, of_other = runs.positions[take], runs.positions[take + shift]
            same = same and variables[of_one] == variables[of_other]
        if same:
            return True
    return False


@compiled_within
def _take_run(
    runs: Buffers, run: int, out: Buffers, cursor: Cursor, times: Numbers, segment: int, start: int
) -> bool:
    """Note a run as the next match of a segment and say whether there was room for it."""
    matches, takes = out.counts[0], out.counts[1]
    low, high = runs.ends[run], runs.ends[run + 1]
    if matches == len(out.start) or takes + high - low > len(out.rows):
        out.counts[2] = high - low
        return False
    reach, passed = cursor.reach[segment], cursor.passed[segment]
    for take in range(high - low):
        out.rows[takes + take] = runs.rows[low + take]
        out.positions[takes + take] = runs.positions[low + take]
    out.segment[matches] = segment
    out.start[matches] = start
    out.number[matches] = cursor.number[segment] + 1
    out.ends[matches + 1] = takes + high - low
    out.reach[matches] = reach
    out.passed[matches] = time_to_pass(times, reach, passed)
    out.counts[0] = matches + 1
    out.counts[1] = takes + high - low
    return True


@compiled_within
def _settle_told(told: Buffers, first: int, times: Numbers, reach: int, passed: int) -> None:
    """Say of the partial matches of a start what had to be known for them."""
    for each in range(first, told.counts[0]):
        told.reach[each] = reach
        told.passed[each] = time_to_pass(times, reach, passed)


@compiled_within
def _fits_one(
    step: Any,
    program: ProgramArrays,
    word: int,
    bits: int,
    depth: int,
    event: int,
    begin: int,
    stop: int,
    size: int,
    run_rows: Numbers,
    run_labels: Numbers,
    integers: Numbers,
    floats: Numbers,
    path: PathInput,
) -> int:
    """Say whether an event fits one of the variables whose masks let it pass; -1: a failure."""
    if bits & ~program.path[word]:
        return 1
    run_rows[depth] = event
    for bit in range(63):
        if bits >> bit & 1:
            variable = program.named[NAMED * word + bit]
            run_labels[depth] = variable
            held = step(
                variable,
                depth,
                event,
                begin,
                stop,
                size,
                run_rows.ctypes,
                run_labels.ctypes,
                integers.ctypes,
                floats.ctypes,
                path.integers.ctypes,
                path.floats.ctypes,
                path.valid.ctypes,
            )
            if held != 0:
                return int(held)
    return 0


@compiled_within
def _accepts(
    step: Any,
    program: ProgramArrays,
    rules: SearchRules,
    rows: SegmentRows,
    path: PathInput,
    state: int,
    move: int,
    start: int,
    row: int,
    segment: int,
    depth: int,
    run_rows: Numbers,
    run_labels: Numbers,
    integers: Numbers,
    floats: Numbers,
) -> _Verdict:
    """Say whether a run may end here: its anchors hold and no negated step follows."""
    begin, end, stop = rows.begin[segment], rows.visible[segment], rows.stop[segment]
    size = len(rows.masks) // rules.words
    word = program.word[state]
    here = word * size
    reach = 0
    passed = NO_TIME
    flags = program.flags[move]
    if flags & AT_START and not (start == begin and rows.first_ordinal[segment] == 0):
        return _Verdict(FAILED, reach, passed, False)
    if flags & AT_END:
        if state == 0 or row + 1 < end:
            return _Verdict(FAILED, row + 2, passed, False)
        if not rows.ended:
            return _Verdict(PENDING, reach, passed, False)
        reach = REACHED_END
    absent_next, absent = program.absent_next[move], program.absent[move]
    if absent_next:
        if row + 1 < end:
            reach = max(reach, row + 2)
            hit = absent_next & np.int64(rows.masks[here + row + 1])
            if hit:
                held = _fits_one(
                    step,
                    program,
                    word,
                    hit,
                    depth,
                    row + 1,
                    begin,
                    stop,
                    size,
                    run_rows,
                    run_labels,
                    integers,
                    floats,
                    path,
                )
                if held:
                    return _Verdict(FAILED, reach, passed, held < 0)
        elif rows.ended:
            reach = REACHED_END
        else:
            return _Verdict(PENDING, reach, passed, False)
    if absent:
        deadline = 0
        if rules.within_kind == WITHIN_FIRST:
            deadline = rows.times[start] + rows.within[segment]
        elif rules.within_kind == WITHIN_PREVIOUS:
            deadline = rows.times[row] + rows.within[segment]
        event = row + 1
        while True:
            if rules.within_kind != WITHIN_NONE:
                now = rows.times[event] if event < end else rows.floor[segment]
                if now >= deadline:
                    passed = deadline
                    break
            if event >= end:
                if not rows.ended:
                    return _Verdict(PENDING, reach, passed, False)
                reach = REACHED_END
                break
            reach = max(reach, event + 1)
            hit = absent & np.int64(rows.masks[here + event])
            if hit:
                held = _fits_one(
                    step,
                    program,
                    word,
                    hit,
                    depth,
                    event,
                    begin,
                    stop,
                    size,
                    run_rows,
                    run_labels,
                    integers,
                    floats,
                    path,
                )
                if held:
                    return _Verdict(FAILED, reach, passed, held < 0)
            event += 1
    return _Verdict(MATCHED, reach, passed, False)

"""The kernel of strict patterns: every event follows the one before it, as in standard SQL.

Take d of a run is row `start + d`, so a search is a list of moves and nothing else, which makes it
a few times faster than the general kernel. It covers programs whose moves are all strict and have
no guards but anchors; the result is that of the general kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outpace.compiler.kernel import compiled_in_place
from outpace.engine.kernels.search import (
    ANY_START,
    AT_END,
    AT_START,
    DONE,
    FAILED,
    FULL,
    HELD_DEPTH,
    HELD_STEPS,
    MATCHED,
    MEMO_AFTER,
    MEMO_FULL,
    NO_TARGET,
    NO_TIME,
    OVER_BUDGET,
    PATH_FAILED,
    PAUSED,
    PENDING,
    REACHED_END,
    SKIP_PAST_LAST,
    SKIP_TO_FIRST,
    SKIP_TO_LAST,
    STACK_FULL,
    TARGET_IS_FIRST,
    WITHIN_FIRST,
    WORK,
    Buffers,
    Cursor,
    PathInput,
    ProgramArrays,
    SearchRules,
    SegmentRows,
    Stack,
    memo_slot,
)


@compiled_in_place
def search_strict(
    step: Any,
    program: ProgramArrays,
    rules: SearchRules,
    rows: SegmentRows,
    path: PathInput,
    stack: Stack,
    cursor: Cursor,
    out: Buffers,
) -> int:
    """Search from the cursor on, fill the buffers, and say how the call ended."""
    masks, times = rows.masks, rows.times
    size = len(masks)
    begins, visibles, stops, withins = rows.begin, rows.visible, rows.stop, rows.within
    floor, first_ordinal, ended = rows.floor, rows.first_ordinal, rows.ended
    first_move, target, flags = program.first_move, program.target, program.flags
    variables, strict_next = program.variable, program.strict_next
    # A frame holds its state and the next move to try; `timed_out` is as in the general kernel.
    frame_state, frame_move, frame_timed_out = stack.state, stack.move, stack.timed_out
    run_rows, run_labels = stack.run_rows, stack.run_labels
    memo_keys, memo_stamps, memo_state = stack.memo_keys, stack.memo_stamps, stack.memo_state
    next_row, number, reaches, passes = cursor.next_row, cursor.number, cursor.reach, cursor.passed
    out_counts, out_rows, out_positions = out.counts, out.rows, out.positions
    out_segment, out_start, out_number = out.segment, out.start, out.number
    out_ends, out_reach, out_passed = out.ends, out.reach, out.passed
    frames = len(frame_state)
    uses_path = rules.path
    rows_at, labels_at = run_rows.ctypes, run_labels.ctypes
    integers_at, floats_at = stack.integers.ctypes, stack.floats.ctypes
    integer_columns, float_columns = path.integers.ctypes, path.floats.ctypes
    valid = path.valid.ctypes
    paused = stack.paused
    resumed = paused[HELD_DEPTH] > 0
    work = 0

    for segment in range(cursor.segment[0], len(begins)):
        cursor.segment[0] = segment
        begin, end, stop = begins[segment], visibles[segment], stops[segment]
        within = withins[segment]
        start = next_row[segment]
        reach = reaches[segment]
        passed = passes[segment]
        limit_row = start
        while start < end:
            if rules.limit >= 0 and number[segment] >= rules.limit:
                start = end
                break
            if work > rules.work:
                next_row[segment] = start
                reaches[segment] = reach
                passes[segment] = passed
                paused[WORK] = work
                return PAUSED
            if not rules.matches_empty and not resumed:
                while start < end:
                    if np.int64(masks[start]) & rules.start_bits:
                        if rules.second_bits == 0 or start + 1 == end:
                            break
                        if np.int64(masks[start + 1]) & rules.second_bits:
                            break
                    start += 1
                if start == end:
                    break
            bound = end
            deadline = 0
            if rules.within_kind == WITHIN_FIRST:
                limit_row = max(limit_row, start)
                while limit_row < end and times[limit_row] - times[start] < within:
                    limit_row += 1
                bound = limit_row
                deadline = times[start] + within
            memo_on = memo_state[1] != 0
            depth = 0
            state = 0
            steps = 0
            if resumed:
                depth = paused[HELD_DEPTH] - 1
                state = frame_state[depth]
                steps = paused[HELD_STEPS]
                paused[HELD_DEPTH] = 0
                resumed = False
            else:
                memo_state[2] += 1
                memo_state[3] = memo_state[0]
                path.integers[-1] = number[segment] + 1
            stamp = memo_state[2]
            # A search pauses right after a take, when nothing has been tried after it.
            move = first_move[state]
            top = first_move[state + 1]
            frame_timed_out[depth] = 0
            outcome = FAILED
            last_seen = start
            begun = steps
            last_step = min(rules.budget, steps + rules.work - work)
            while True:
                event = start + depth
                if move < top:
                    position = target[move]
                    flag = flags[move]
                    move += 1
                    if position < 0:
                        if flag & AT_START and not (start == begin and first_ordinal[segment] == 0):
                            continue
                        if flag & AT_END:
                            if depth == 0 or event < end:
                                last_seen = max(last_seen, event)
                                continue
                            if not ended:
                                outcome = PENDING
                                break
                            reach = REACHED_END
                        outcome = MATCHED
                        break
                    if event >= bound:
                        timed_out = event < end
                        if event >= end and rules.within_kind == WITHIN_FIRST:
                            timed_out = floor[segment] >= deadline
                        if timed_out:
                            passed = max(passed, deadline)
                            frame_timed_out[depth] = 1
                        elif ended:
                            reach = REACHED_END
                        else:
                            outcome = PENDING
                            break
                        continue
                    last_seen = max(last_seen, event)
                    variable = variables[position]
                    if np.int64(masks[event]) >> variable & 1 == 0:
                        continue
                    if flag & AT_START and not (event == begin and first_ordinal[segment] == 0):
                        continue
                    wanted = strict_next[position + 1]
                    if wanted != 0 and event + 1 < bound and not uses_path:
                        last_seen = max(last_seen, event + 1)
                        if np.int64(masks[event + 1]) & wanted == 0:
                            continue
                    if uses_path:
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
                        if held == 0:
                            continue
                    if memo_on:
                        key = position * size + event
                        place = memo_slot(memo_keys, memo_stamps, stamp, key)
                        if memo_stamps[place] == stamp:
                            frame_timed_out[depth] = 1
                            continue
                        if memo_stamps[place] == ANY_START and memo_keys[place] == key:
                            continue
                    if depth + 2 >= frames:
                        next_row[segment] = start
                        reaches[segment] = reach
                        passes[segment] = passed
                        return STACK_FULL
                    steps += 1
                    if steps == MEMO_AFTER and rules.memo:
                        memo_on = True
                        memo_state[1] = 1
                    frame_state[depth] = state
                    frame_move[depth] = move
                    depth += 1
                    state = position + 1
                    move = first_move[state]
                    top = first_move[state + 1]
                    frame_timed_out[depth] = 0
                    if steps > last_step:
                        next_row[segment] = start
                        if steps > rules.budget:
                            return OVER_BUDGET
                        reaches[segment] = max(reach, last_seen + 1)
                        passes[segment] = passed
                        frame_state[depth] = state
                        paused[HELD_DEPTH] = depth + 1
                        paused[HELD_STEPS] = steps
                        paused[WORK] = work + steps - begun
                        return PAUSED
                    continue
                # Nothing is left to try after this take.
                if depth == 0:
                    break
                if memo_on:
                    if 2 * memo_state[0] >= len(memo_keys):
                        next_row[segment] = start
                        reaches[segment] = reach
                        passes[segment] = passed
                        return MEMO_FULL
                    key = (state - 1) * size + event - 1
                    place = memo_slot(memo_keys, memo_stamps, stamp, key)
                    if memo_keys[place] != key or memo_stamps[place] != ANY_START:
                        depends = rules.within_kind == WITHIN_FIRST and frame_timed_out[depth] != 0
                        memo_keys[place] = key
                        memo_stamps[place] = stamp if depends else ANY_START
                        memo_state[0] += 1
                depth -= 1
                frame_timed_out[depth] |= frame_timed_out[depth + 1]
                state = frame_state[depth]
                move = frame_move[depth]
                top = first_move[state + 1]

            reach = max(reach, last_seen + 1)
            work += steps - begun + 1
            if outcome == PENDING:
                break
            if outcome == FAILED:
                start += 1
                continue
            matches, takes = out_counts[0], out_counts[1]
            if matches == len(out_start) or takes + depth > len(out_rows):
                next_row[segment] = start
                reaches[segment] = reach
                passes[segment] = passed
                out_counts[2] = depth
                return FULL
            frame_state[depth] = state
            following = start + 1
            if depth > 0:
                if rules.skip == SKIP_PAST_LAST:
                    following = start + depth
                elif rules.skip >= SKIP_TO_FIRST:
                    found = -1
                    for take in range(depth):
                        if program.skips[variables[frame_state[take + 1] - 1]] and (
                            found < 0 or rules.skip == SKIP_TO_LAST
                        ):
                            found = start + take
                    if found > start:
                        following = found
                    elif rules.skip_strict:
                        return NO_TARGET if found < 0 else TARGET_IS_FIRST
            for take in range(depth):
                out_rows[takes + take] = start + take
                out_positions[takes + take] = frame_state[take + 1] - 1
            number[segment] += 1
            out_segment[matches] = segment
            out_start[matches] = start
            out_number[matches] = number[segment]
            out_ends[matches + 1] = takes + depth
            out_reach[matches] = reach
            shown = reach == REACHED_END or passed == NO_TIME or times[reach - 1] >= passed
            out_passed[matches] = NO_TIME if shown else passed
            out_counts[0] = matches + 1
            out_counts[1] = takes + depth
            start = following
        next_row[segment] = start
        reaches[segment] = reach
        passes[segment] = passed
    cursor.segment[0] = len(begins)
    return DONE

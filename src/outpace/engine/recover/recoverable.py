"""The operator whose state is not saved: it gives savepoints, and is rebuilt from one by a replay.

The host that feeds it retains the events, numbered as they arrive; where something orders them,
also all other stimuli, and in which pieces they came. A savepoint says from which event on
they are needed, and which of the later ones are not. A `MatchesAcknowledged` is answered by one,
whether or not any match was acknowledged with it. After a failure `rebuild` lets a new operator
take the events that were retained, and goes on: it gives the matches behind the last one that was
acknowledged, with the numbers that they had, so that a receiver that has them already knows them.

What a replay needs of the events depends on whether there are windows: see `window_replay` and
`partition_replay`.

Memory: that of the operator and of what a replay needs; seven integers for each match that is not
acknowledged or lies in a live window.
Paper: Lima et al., sections II and III.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import EVENT_ID, Events
from outpace.engine.message import (
    Acknowledgement,
    BatchBegun,
    ClockExchange,
    Deliver,
    Delivered,
    Emit,
    EventsArrived,
    Instruction,
    MatchesAcknowledged,
    Move,
    OperatorInput,
    OperatorLost,
    RowsAcknowledged,
    Save,
    Stimulus,
)
from outpace.engine.operator import WholeOperator, emit_of, joined_emit
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.arrivals import (
    ArrivedEvents,
    identity_of,
    is_put_in_order,
    retained_schema,
    with_rows,
)
from outpace.engine.recover.event_needs import NeededNumbers, Use, use_of
from outpace.engine.recover.match_places import GivenPlaces, PlaceColumns
from outpace.engine.recover.partition_replay import PartitionReplay
from outpace.engine.recover.refusals import (
    check_recoverable,
    compared_clocks,
    missing_events,
    no_state,
)
from outpace.engine.recover.window_replay import WindowReplay, blocks_of
from outpace.engine.rows.times import as_integers
from outpace.engine.savepoint import NOTHING, MatchPlace, Savepoint, is_behind
from outpace.engine.split.windows import OPEN
from outpace.engine.state import State, require
from outpace.engine.window_match.result import CLOSING, WindowMatches
from outpace.engine.wire import event_ids
from outpace.errors import DataError, StateError, missing_column


class RecoverableOperator(WholeOperator):
    """An operator that is rebuilt from a savepoint and the events that were retained.

    Examples
    --------
    >>> from outpace.pattern.query import Query
    >>> from outpace.pattern.windows import CountWindows
    >>> query = (Query().order_by("ts").pattern("A -> B").define(A="k = 'a'", B="k = 'b'")
    ...          .measures(at="B.ts").over(CountWindows(6, 6)))
    >>> rows = pa.table({"ts": range(6), "k": list("axxbxa")})
    >>> spec = OperatorSpec(query, rows.schema)
    >>> operator = RecoverableOperator(spec)
    >>> emit_of(operator.step(EventsArrived(rows.slice(0, 5)))).matches.table.to_pylist()
    [{'at': 3}]
    >>> savepoint = savepoint_of(operator.step(MatchesAcknowledged()))
    >>> savepoint.seed, savepoint.trim, savepoint.skip.tolist()
    ((3, 0), -1, [[1, 2], [4, 4]])
    >>> again = RecoverableOperator(spec)
    >>> numbers = np.array([0, 3])
    >>> again.rebuild(savepoint, rows.take(numbers), numbers).matches.table.to_pylist()
    [{'at': 3}]
    """

    def __init__(
        self,
        spec: OperatorSpec,
        place: int = 0,
        block_size: Callable[[pa.Table], int] | None = None,
    ) -> None:
        check_recoverable(spec)
        #: What arrived, where something puts it in order; elsewhere numbers tell all.
        self._arrived: ArrivedEvents | None = None
        if is_put_in_order(spec):
            self._arrived = ArrivedEvents()
        # What is bound is bound to the specification, so one that need not change stays.
        if self._arrived is not None and not spec.traced:
            spec = replace(spec, traced=True)
        use = use_of(spec)
        if spec.tells_used != (use is Use.MATCHED):
            spec = replace(spec, tells_used=use is Use.MATCHED)
        super().__init__(spec, place, block_size)
        #: What tells the query and its columns from others.
        self._identity = identity_of(spec)
        #: The matches that came out, of live windows or not acknowledged.
        self._given = GivenPlaces()
        #: The last match that was acknowledged, and a place before the first that was not.
        self._acknowledged = self._settled = NOTHING
        #: The number of the first match that a replay gives, where none is known.
        self._seed: tuple[int, int] | None = None
        #: How often matches came without an event, or where something puts events in order and
        #: not they alone decide, how many stimuli it has taken; it tells apart what came before the
        #: same event.
        self.turn = 0
        #: Matches that a replay gave again and that were settled, since the operator was made.
        self.doubles = 0
        #: What a replay needs of the events.
        self._replay: WindowReplay | PartitionReplay
        if spec.windows is None:
            self._replay = PartitionReplay(self, self._arrived)
        else:
            self._replay = WindowReplay(spec, use)
        #: How many events had had their turn when the last stimulus came, and whether matches came
        #: of it.
        self._before, self._gave = 0, False
        #: The matches of events before a savepoint, while answers are due; None: none is rebuilt.
        self._again: list[WindowMatches] | None = None

    def step(self, message: OperatorInput | Acknowledgement | OperatorLost) -> list[Instruction]:
        """Take what happened and return what is to be done.

        What came out is complete before it is retained, so every delivery is answered before the
        next stimulus.
        """
        acknowledged = isinstance(message, MatchesAcknowledged | RowsAcknowledged)
        if isinstance(self._replay, WindowReplay) and not acknowledged:
            self._replay.freeze()
        match message:
            case BatchBegun():
                return super().step(message)
            case Delivered():
                return self._given_of(super().step(message))
            case OperatorLost():
                return self._given_of(self._stand(message))
        if self.back.is_waiting:
            raise DataError(
                "answers to what came before are due",
                hint="let all instances answer an operator that is recovered by a replay before it "
                "takes more",
            )
        match message:
            case MatchesAcknowledged() | RowsAcknowledged():
                self._acknowledge(message)
                return [Save(self.spec.query.name, self._save())]
            case ClockExchange():
                raise compared_clocks()
        arrived, ids = self._arrived, None
        self._before = self.front.arrived
        if arrived is not None and isinstance(message, EventsArrived):
            ids = self.front.intake.ids_of(message)
        instructions = super().step(message)
        if arrived is not None and ids is not None:
            arrived.take(ids)
        return self._given_of(instructions)

    def _given_of(self, instructions: list[Instruction]) -> list[Instruction]:
        """Note the matches among instructions, and return these without what is settled."""
        emit, waiting = emit_of(instructions), self.back.is_waiting
        found = emit.matches
        if (again := self._again) is not None:
            again.append(found)
            found = WindowMatches.joined(self.spec.bound.output, [] if waiting else again)
        if len(found):
            turn: int | Integers = self.turn
            if again is not None and isinstance(self._replay, WindowReplay):
                turn = self._replay.turns(found)
            places = self._places(found, turn)
            if again is not None:
                order = np.lexsort(places[::-1])
                found, places = found.take(order), [column[order] for column in places]
            self._given.add(places)
            self._gave = True
            found = self._unsettled(found, places)
        if not waiting:
            self._end_turn()
        if found is emit.matches:
            return instructions
        return [*instructions[:-1], replace(emit, matches=found)]

    def _end_turn(self) -> None:
        """Tell apart what came before the same event, once all of it is known."""
        if self._again is None:
            apart = self._gave and self.front.arrived == self._before
            self.turn += apart or (self._arrived is not None and not self.spec.event_driven)
        self._again, self._gave = None, False

    def snapshot(self) -> Self:
        """Refuse: what a replay needs is known by its savepoints alone."""
        raise no_state()

    def state(self) -> State:
        """Refuse, as `snapshot` does."""
        raise no_state()

    def restore(self, state: State) -> None:
        """Refuse, as `snapshot` does; see `rebuild`."""
        raise no_state()

    def retained(self, stimulus: EventsArrived) -> pa.Table:
        """Return events that come next as they are to be retained, before it takes them."""
        schema = retained_schema(self.spec)
        rows = stimulus.rows
        for name in schema.names:
            if name not in rows.column_names and name != EVENT_ID.name:
                raise missing_column(name, rows.column_names)
        if self._arrived is None:
            return rows.select(schema.names)
        ids = self.front.intake.ids_of(stimulus)
        return rows.select(schema.names[:-1]).append_column(EVENT_ID, pa.array(ids))

    @property
    def came(self) -> int:
        """How many events have arrived."""
        return self.front.arrived if self._arrived is None else self._arrived.came

    @property
    def needed(self) -> Integers:
        """The numbers of the events before it that the last savepoint needs."""
        return self._replay.numbers if self._arrived is None else self._arrived.numbers

    @property
    def last_match(self) -> tuple[int, int] | None:
        """The number x:y of the last match that came out; None where nothing waits."""
        last = self._given.last
        return None if last is None else (last.event, last.window)

    def check(self, savepoint: Savepoint) -> None:
        """Refuse the savepoint of another query, or of other sources."""
        if savepoint.query != self._identity:
            raise StateError(
                "the savepoint belongs to another query or another schema",
                hint="go on with the query that it was made by, or start from the input",
            )
        if savepoint.sources != self.spec.sources:
            both = savepoint.sources, self.spec.sources
            named = [", ".join(one) if one else "none" for one in both]
            raise StateError(
                "the savepoint belongs to other sources",
                detail=f"it has {named[0]}, now there are {named[1]}",
                hint="go on with the sources that it was made with, or start from the input",
            )

    def _acknowledge(self, stimulus: Acknowledgement) -> None:
        """Take the acknowledgement of all matches up to one, where there is any."""
        assert isinstance(stimulus, MatchesAcknowledged), "nobody counts the rows of matches"
        if stimulus.last is None:
            return
        place = self._given.find(*stimulus.last)
        if place is not None:
            self._acknowledged = max(place, self._acknowledged)
        elif stimulus.last > (self._settled.event, self._settled.window):
            raise DataError(
                "no match with the number {}:{} is to be acknowledged".format(*stimulus.last),
                hint="acknowledge matches by the numbers that they came with",
            )

    def _save(self) -> Savepoint:
        """Return what is needed from now on."""
        self.front.check()
        done = max(self._acknowledged, self._settled)
        if (first := self._given.after(done)) is not None:
            settled = first._replace(partition=first.partition - 1)
        else:
            # Matches that come are made final by later events, or by time in a later turn.
            settled = MatchPlace(self.front.arrived, CLOSING, self.turn - 1, *[OPEN] * 4)
        self._settled = max(settled, done)
        known = self, self._arrived, self._given, self._settled
        if isinstance(self._replay, WindowReplay):
            skip, content = self._replay.save(*known)
            return self._savepoint(self.came, self.turn, skip, content)
        skip, base = self._replay.save(*known, self.turn)
        return self._savepoint(base.at, base.turn, skip, lambda: base.content)

    def rebuild(
        self,
        savepoint: Savepoint,
        rows: pa.Table,
        numbers: Integers,
        stimuli: Sequence[tuple[int, Stimulus]] = (),
        carry: Callable[[list[Instruction]], Sequence[Instruction]] = list,
    ) -> Emit:
        """Stand where the operator of a savepoint stood, with the events that were retained.

        Parameters
        ----------
        savepoint
            The last one.
        rows, numbers
            The events that were retained, and the number of each, which rise.
        stimuli
            The times and the end that came since: behind how many events, and which. Where
            something puts events in order, all stimuli, and those of events without their rows.
        carry
            Carries the deliveries among instructions to instances that are elsewhere, and returns
            what is to be done once they have answered, with one `Emit`.

        Returns
        -------
        Emit
            The matches behind the last one that was acknowledged.
        """
        self.check(savepoint)
        old = int(np.searchsorted(numbers, savepoint.at))
        later = numbers[old:]
        whole = not len(later) or int(later[-1]) == savepoint.at + len(later) - 1
        if not whole or not (np.diff(numbers) > 0).all():
            raise missing_events(savepoint.at)
        lost = OperatorLost(savepoint, rows.slice(0, old), numbers[:old])
        emits = [emit_of(carry(self.step(lost)))]
        for stimulus in _steps(rows.slice(old), savepoint.at, stimuli):
            # A time that came before the savepoint, behind as many events, tells nothing new.
            if not self.front.ended:
                emits.append(emit_of(carry(self.step(stimulus))))
        return joined_emit(emits)

    def _carry(self, moves: Sequence[Move]) -> list[Instruction]:
        """Let instances and back take what the front said, and note what is needed of it."""
        replay = self._replay
        # What is taken again was noted when the savepoint was made.
        if isinstance(replay, PartitionReplay) or self._again is not None:
            return super()._carry(self._without_ids(moves))
        blocks = blocks_of(moves)
        # Before anything is taken, as a user's operator may say what cannot be.
        used = [replay.used(events) for events, _ in blocks]
        instructions = super()._carry(self._without_ids(moves))
        for (events, split), some in zip(blocks, used, strict=True):
            replay.take(events, some, split, self.turn)
            if self._arrived is not None and len(events.arrival):
                self._arrived.places.take(events.arrival, event_ids(events))
        return instructions

    def _hear(self, answer: Delivered) -> None:
        super()._hear(answer)
        if isinstance(self._replay, WindowReplay):
            self._replay.use(answer.answer.used)

    def _without_ids(self, moves: Sequence[Move]) -> Sequence[Move]:
        """Return moves without the ids of events where a user's operator takes them."""
        if self._arrived is None or self.spec.task is not None:
            return moves
        known: dict[int, Events] = {}
        for one in moves:
            if isinstance(one, Deliver) and id(one.events) not in known:
                rows = one.events.rows.select(self.spec.kept.names)
                known[id(one.events)] = replace(one.events, rows=rows)
        return [
            replace(one, events=known[id(one.events)]) if isinstance(one, Deliver) else one
            for one in moves
        ]

    def _places(self, matches: WindowMatches, turn: int | Integers) -> PlaceColumns:
        """Return the places of matches that came out in a turn."""
        phase, window, partition = matches.phase, matches.window, matches.partition
        starts = partition
        if isinstance(self._replay, WindowReplay):
            starts = self._replay.starts(matches)
        turns = (phase == CLOSING) * turn if np.any(turn) else np.zeros(len(phase), np.int64)
        return matches.event, phase, turns, matches.turns, starts, window, partition

    def _unsettled(self, matches: WindowMatches, places: PlaceColumns) -> WindowMatches:
        """Return matches, which are in their order, without those that are settled."""
        if places[0][0] > self._settled.event:
            return matches
        new = is_behind(places, self._settled)
        self.doubles += len(new) - int(new.sum())
        return matches if new.all() else matches.take(np.flatnonzero(new))

    def _stand(self, lost: OperatorLost) -> list[Instruction]:
        """Stand where a savepoint was made, and return what is to be done for it."""
        savepoint, rows, numbers = lost.savepoint, lost.rows, lost.numbers
        self.check(savepoint)
        kept = ~savepoint.drops(numbers)
        if not kept.all():
            rows, numbers = rows.filter(pa.array(kept)), numbers[kept]
        fresh = type(self)(self.spec, self._place, self._block_size)
        instructions = fresh._carry(fresh._stood(savepoint, rows, numbers))
        self.become(fresh)
        return instructions

    def _stood(self, savepoint: Savepoint, rows: pa.Table, numbers: Integers) -> list[Move]:
        """Stand where a savepoint was made, and return what instances are to take again."""
        self._settled, self._seed = savepoint.settled, savepoint.seed
        self.turn, self._again = savepoint.turn, []
        content = State.decode(savepoint.content)
        front = content.part("front")
        if self._arrived is not None:
            front = with_rows(front, rows, self.spec.arriving)
            self._arrived = ArrivedEvents(savepoint.at, numbers, as_integers(rows[EVENT_ID.name]))
        self.front.restore(front, scheduled=False)
        require(self.came == savepoint.at, "other events have come")
        if isinstance(self._replay, PartitionReplay):
            self._replay.stand(self, self._arrived, savepoint, content, rows, numbers)
            return []
        return self.front.step(
            self._replay.stand(self.front, self._arrived, content, rows, numbers)
        )

    def _savepoint(
        self, at: int, turn: int, skip: Integers, make: Callable[[], bytes]
    ) -> Savepoint:
        """Return a savepoint that needs what is needed now."""
        trim = NeededNumbers(at, self.needed).trim
        first = self._given.first or self._acknowledged
        if first != NOTHING:
            self._seed = first.event, first.window
        # They rise.
        skip = skip[int(skip[:, 0].searchsorted(trim, "right")) :]
        known = self._identity, self._seed, trim, skip, self._settled, at, turn
        return Savepoint(*known, make, self.spec.sources)


def savepoint_of(instructions: Sequence[Instruction]) -> Savepoint:
    """Return the savepoint that answers an acknowledgement."""
    (savepoint,) = [one.savepoint for one in instructions if isinstance(one, Save)]
    return savepoint


def _steps(
    rows: pa.Table, first: int, stimuli: Sequence[tuple[int, Stimulus]]
) -> Iterator[Stimulus]:
    """Yield what is taken again: events, of which the first has a number, and other stimuli."""
    begin, piece, begun = first, EventsArrived(rows.slice(0, 0)), False
    for end, stimulus in [*stimuli, (first + rows.num_rows, None)]:
        if end > begin or begun:
            yield replace(piece, rows=rows.slice(begin - first, end - begin))
            begin, begun = max(begin, end), False
        if isinstance(stimulus, EventsArrived):
            piece, begun = stimulus, True
        elif stimulus is not None:
            yield stimulus

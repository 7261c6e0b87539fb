"""What a replay needs without windows: where the searches stood, and the rows that they held.

A search goes on for ever, so a replay begins where the searches stood when the last match that was
acknowledged came out, or before.

Memory: where the searches stood then, and where they stood when all that came out later is
acknowledged; a number for each event that is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.operator import WholeOperator
from outpace.engine.recover.arrivals import (
    ArrivedEvents,
    find_places,
    waiting_ids,
    without_rows,
)
from outpace.engine.recover.event_needs import NeededEvents
from outpace.engine.recover.match_places import GivenPlaces
from outpace.engine.recover.place_runs import read_ids, write_ids
from outpace.engine.recover.refusals import missing_events
from outpace.engine.rows.times import as_integers
from outpace.engine.savepoint import NOTHING, MatchPlace, Savepoint
from outpace.engine.state import State, integers
from outpace.engine.window_match.partition_matcher import PartitionTables


@dataclass(frozen=True)
class SearchStanding:
    """Where searches without windows stood: behind so many events and turns, and which match.

    `held` are the numbers of the rows that they held, or where something puts events in order, the
    ids of these and of events that waited; `content` is what a savepoint has.
    """

    at: int
    turn: int
    last: MatchPlace
    held: Integers
    content: bytes


class PartitionReplay:
    """Where searches stood that a replay goes on with, and which events these need.

    Parameters
    ----------
    operator, arrived
        The operator that begins, and what arrived at it, where something puts it in order.
    """

    def __init__(self, operator: WholeOperator, arrived: ArrivedEvents | None) -> None:
        #: Where searches stood when all that had come out is acknowledged, and where they stood
        #: later.
        self._base = _standing(operator, arrived, NOTHING, 0)
        self._later: SearchStanding | None = None
        #: How many events it was said of whether they are needed.
        self._needed, self._needed_until = NeededEvents(), 0

    @property
    def numbers(self) -> Integers:
        """The numbers of the events that are needed."""
        return self._needed.numbers

    def save(
        self,
        operator: WholeOperator,
        arrived: ArrivedEvents | None,
        given: GivenPlaces,
        settled: MatchPlace,
        turn: int,
    ) -> tuple[Integers, SearchStanding]:
        """Return the events that are not needed, and where a replay goes on with the others.

        That is where searches stood when all that had come out is acknowledged now.
        """
        last = given.last or NOTHING
        if last <= settled:
            self._base, self._later = _standing(operator, arrived, last, turn), None
        else:
            if self._later is not None and self._later.last <= settled:
                self._base, self._later = self._later, None
            if self._later is None:
                self._later = _standing(operator, arrived, last, turn)
        given.keep(settled, settled.event, None)
        base, needed = self._base, self._needed
        if arrived is not None:
            return arrived.keep(base.held, base.at), base
        if base.at > self._needed_until:
            needed.add(np.arange(self._needed_until, base.at))
            self._needed_until = base.at
        return needed.thin(np.isin(needed.numbers, base.held)), base

    def stand(
        self,
        operator: WholeOperator,
        arrived: ArrivedEvents | None,
        savepoint: Savepoint,
        content: State,
        rows: pa.Table,
        numbers: Integers,
    ) -> None:
        """Let searches stand where they stood, with the rows that they held."""
        header, (stops, places) = content.part("instance").content(2)
        (held,), known = integers(places, arrival=range(operator.front.arrived)), numbers
        if arrived is not None:
            _, (origin,) = content.part("held").content(1)
            held, known = read_ids(origin, held), arrived.ids
        at = find_places(held, known)
        if (at < 0).any():
            raise missing_events(savepoint.at)
        kept = rows.select(operator.spec.kept.names).take(pa.array(at))
        operator.instance.restore(State(header, [stops, places, kept]), operator.front)
        if arrived is None:
            self._needed.add(numbers)
        else:
            held = np.concatenate([held, waiting_ids(content.part("front"))])
        self._needed_until = savepoint.at
        self._base = SearchStanding(
            savepoint.at, savepoint.turn, savepoint.settled, held, savepoint.content
        )


def _standing(
    operator: WholeOperator, arrived: ArrivedEvents | None, last: MatchPlace, turn: int
) -> SearchStanding:
    """Return where searches stand, with the numbers of the rows that they hold."""
    instance = operator.instance.state()
    saved = PartitionTables.of(instance)
    held = np.array(saved.places.column("arrival"), np.int64)
    parts = {
        "front": operator.front.state(),
        "instance": replace(instance, tables=saved[:2]),  # Without the rows.
    }
    came = operator.front.arrived
    if arrived is not None:
        came, ids = arrived.came, as_integers(saved.rows.column(EVENT_ID.name))
        parts["held"] = State({}, [write_ids(ids, held)])
        held = np.concatenate([ids, waiting_ids(parts["front"])])
        parts["front"] = without_rows(parts["front"], operator.spec.arriving)
    # What is saved is read before the next step, or written.
    return SearchStanding(came, turn, last, held, State({}, parts=parts).encode())

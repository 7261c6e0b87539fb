"""Random patterns over random tables of truth values, and how to ask the oracle and a matcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from outpace.engine.arrays import NO_TIME
from outpace.engine.match.contract import WORK_AT_ONCE, Block, Matcher, Outcome, Pace, Resume, Task
from outpace.engine.match.masks import Ask
from outpace.engine.match.program import compile_program
from outpace.engine.match.twin import TwinMatcher
from outpace.pattern import ast
from outpace.pattern.ast import Link, Mode
from outpace.pattern.bound import BoundQuery, Constant, Predicate, PredicateClass
from outpace.pattern.query import (
    AfterMatch,
    Consume,
    Limit,
    Per,
    Query,
    Selection,
    Skip,
    Within,
    WithinKind,
)
from outpace.testing import oracle

LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Case:
    """A pattern, its events as truth values (one row per event), and the rules of the query."""

    pattern: ast.Pattern
    table: tuple[tuple[bool, ...], ...]
    times: tuple[int, ...]
    reading_run: frozenset[str] = frozenset()
    within: int | None = None
    kind: WithinKind = WithinKind.FIRST_TO_LAST
    selection: Selection = Selection.PREFERRED
    after: AfterMatch = field(default_factory=lambda: AfterMatch(Skip.PAST_LAST_ROW))
    consume: Consume = Consume.NONE
    per_start: int | None = None
    per_partition: int | None = None
    #: What compiled code does at once.
    work: int = WORK_AT_ONCE

    @property
    def size(self) -> int:
        return len(self.table)

    def holds(self, name: str, event: int, run: oracle.Run) -> bool:
        if name in self.reading_run and (event + 2 * len(run) + len(run and run[-1][1])) % 3 == 0:
            return False
        return self.table[event][LETTERS.index(name)]

    def question(self) -> oracle.Question:
        targets = frozenset() if self.after.variable is None else frozenset((self.after.variable,))
        return oracle.Question(
            self.pattern,
            self.size,
            self.holds,
            self.times,
            self.within,
            self.kind,
            self.selection,
            self.after,
            targets,
            self.consume,
            self.per_start,
            self.per_partition,
        )

    def task(self, *, timeouts: bool = False, step_budget: int = 1_000_000) -> Task:
        limits = [(self.per_start, Per.START), (self.per_partition, Per.PARTITION)]
        query = Query(
            tree=self.pattern,
            skip=self.after,
            bound=None if self.within is None else Within(self.within, self.kind),
            selection=self.selection,
            consumption=self.consume,
            limits=tuple(Limit(count, per) for count, per in limits if count is not None),
        )
        # A matcher must not look at the expression of a predicate: the table answers for it.
        predicates = tuple(
            Predicate(
                name,
                Constant(pa.bool_(), None),
                PredicateClass.PATH if name in self.reading_run else PredicateClass.LOCAL,
            )
            for name in LETTERS
        )
        empty = pa.schema([])
        bound = BoundQuery(
            query, empty, predicates, {}, (), (), (), (), (), "ts", self.within, (), empty
        )
        program = compile_program(self.pattern, LETTERS)
        return Task(bound, program, timeouts, step_budget, Pace(self.work))

    def matcher(self, **options: Any) -> Matcher:
        return TwinMatcher(self.task(**options), lambda block: TablePredicates(self, block))

    def prefix(self, size: int) -> Case:
        return replace(self, table=self.table[:size], times=self.times[:size])


class TablePredicates:
    """Answers from a case's table; the block's ordinals say which events it holds."""

    def __init__(self, case: Case, block: Block) -> None:
        self._case = case
        self._ordinals = block.ordinals.tolist()

    def masks(self, segment: int) -> Sequence[bytes | None]:
        return [
            None
            if name in self._case.reading_run
            else bytes(self._case.table[ordinal][letter] for ordinal in self._ordinals)
            for letter, name in enumerate(LETTERS)
        ]

    def asking(self, segment: int) -> Ask:
        def ask(variable: int, row: int, rows: list[int], labels: list[int], number: int) -> bool:
            run = tuple(
                (self._ordinals[taken], LETTERS[label])
                for taken, label in zip(rows, labels, strict=True)
            )
            return self._case.holds(LETTERS[variable], self._ordinals[row], run)

        return ask


def block_of(case: Case, first: int, last: int, *, ended: bool, watermark: int = NO_TIME) -> Block:
    """Return the events from `first` to `last` (exclusive) as a block."""
    ordinals = np.arange(first, last, dtype=np.int64)
    return Block(
        columns={},
        segments=np.array([0, last - first], np.int64),
        visible=np.array([last - first], np.int64),
        ordinals=ordinals,
        arrivals=ordinals,
        times=np.array(case.times[first:last], np.int64),
        ended=ended,
        watermark=watermark,
    )


Match = tuple[int, oracle.Run]


def matches_of(case: Case, outcome: Outcome, first: int) -> list[Match]:
    """Return what was found as the oracle does, by event number."""
    found, program = outcome.found, case.task().program
    runs = _runs(case, found.offsets, found.rows + first, found.positions, program)
    return [(int(start) + first, run) for start, run in zip(found.start, runs, strict=True)]


def timed_out_of(case: Case, outcome: Outcome, first: int) -> list[oracle.Run]:
    late = outcome.timed_out
    assert late is not None
    return list(_runs(case, late.offsets, late.rows + first, late.positions, case.task().program))


def _runs(case, offsets, rows, positions, program) -> Iterator[oracle.Run]:  # type: ignore[no-untyped-def]
    for low, high in pairwise(offsets):
        yield tuple(
            (int(row), LETTERS[program.positions[position].variable])
            for row, position in zip(rows[low:high], positions[low:high], strict=True)
        )


@dataclass
class Pushed:
    """What a stream of blocks gave: matches, when each was final, timed-out runs."""

    matches: list[Match] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    timed_out: list[oracle.Run] = field(default_factory=list)
    #: How many matches had been emitted after each block.
    emitted_after: list[int] = field(default_factory=list)


def push_all(
    case: Case, cuts: Sequence[int], *, timeouts: bool = False, finish: bool = True
) -> Pushed:
    """Feed the events piece by piece, keeping only what the matcher asks to keep."""
    matcher = case.matcher(timeouts=timeouts)
    resume = Resume.fresh(1)
    pushed = Pushed()
    keep = 0
    ends = [(cut, False) for cut in cuts] + ([(case.size, True)] if finish else [])
    for last, ended in ends:
        outcome = matcher(block_of(case, keep, last, ended=ended), resume)
        pushed.matches += matches_of(case, outcome, keep)
        pushed.settled += outcome.found.settled.tolist()
        pushed.numbers += outcome.found.number.tolist()
        if timeouts:
            pushed.timed_out += timed_out_of(case, outcome, keep)
        pushed.emitted_after.append(len(pushed.matches))
        resume = outcome.resume
        keep += int(outcome.keep_from[0])
    return pushed


# --- Strategies -----------------------------------------------------------------------------------

names = st.sampled_from(LETTERS)


def patterns(
    *, links: Sequence[Link] = tuple(Link), leaves: int = 5
) -> st.SearchStrategy[ast.Pattern]:
    """Random patterns: sequences, alternations, permutations, quantifiers, anchors, negations."""
    link = st.sampled_from(links)
    leaf = st.one_of(
        names.map(ast.Var),
        names.map(ast.Var),
        names.map(ast.Var),
        names.map(ast.Var),
        st.sampled_from([ast.Empty(), ast.AtStart(), ast.AtEnd()]),
    )
    return st.recursive(leaf, lambda inner: _compound(inner, link), max_leaves=leaves)


def _compound(
    inner: st.SearchStrategy[ast.Pattern], link: st.SearchStrategy[Link]
) -> st.SearchStrategy[ast.Pattern]:
    bounds = st.sampled_from(
        [(0, 1), (0, None), (1, None), (2, None), (0, 2), (1, 2), (2, 2), (1, 3)]
    )
    repeat = st.builds(
        lambda item, bound, mode, own, until: ast.Repeat(item, *bound, mode, own, until),
        inner,
        bounds,
        st.sampled_from(Mode),
        link,
        st.one_of(st.none(), st.none(), names),
    )
    return st.one_of(
        repeat,
        repeat,
        _sequences(inner, link),
        _sequences(inner, link),
        st.lists(inner, min_size=2, max_size=3).map(ast.alternate),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: ast.Permute(tuple(items))),
        inner.map(ast.Exclude),
    )


@st.composite
def _sequences(
    draw: Callable, inner: st.SearchStrategy[ast.Pattern], link: st.SearchStrategy[Link]
) -> ast.Pattern:
    items = [draw(inner)]
    between = []
    for _ in range(draw(st.integers(1, 3))):
        between.append(draw(link))
        items.append(draw(st.one_of(inner, inner, inner, names.map(ast.Not))))
    return ast.concat(items, between)


def trailing_lasting_negation(pattern: ast.Pattern) -> bool:
    """Whether a match may end with `-> !B`, which needs WITHIN."""
    program = compile_program(pattern, LETTERS)
    return any(
        move.target < 0 and any(not negation.immediate for negation in move.negations)
        for moves in program.follow
        for move in moves
    )


@st.composite
def cases(
    draw: Callable, *, size: int = 6, links: Sequence[Link] = tuple(Link), **fixed: object
) -> Case:
    """Random cases; keyword arguments fix fields."""
    pattern = draw(patterns(links=links))
    count = draw(st.integers(0, size))
    rows = draw(st.lists(st.tuples(*[st.booleans()] * 4), min_size=count, max_size=count))
    gaps = draw(st.lists(st.sampled_from([0, 1, 1, 3]), min_size=count, max_size=count))
    needs_within = trailing_lasting_negation(pattern)
    variables = ast.variables(pattern)
    skips = [Skip.NONE, Skip.TO_NEXT_ROW, Skip.PAST_LAST_ROW]
    skips += [Skip.TO_FIRST, Skip.TO_LAST] if variables else []
    skip = draw(st.sampled_from(skips))
    variable = draw(st.sampled_from(variables)) if skip in (Skip.TO_FIRST, Skip.TO_LAST) else None
    values = {
        "within": draw(st.integers(1, 6) if needs_within else st.none() | st.integers(1, 6)),
        "kind": draw(st.sampled_from(WithinKind)),
        "selection": draw(st.sampled_from(Selection)),
        "after": AfterMatch(skip, variable),
        "consume": draw(st.sampled_from([Consume.NONE, Consume.NONE, *Consume])),
        "per_start": draw(st.sampled_from([None, None, 1, 2])),
        "per_partition": draw(st.sampled_from([None, None, None, 1, 2])),
        "work": draw(st.sampled_from([0, 20, WORK_AT_ONCE])),
        "reading_run": frozenset(draw(st.sampled_from([(), (), ("A",), ("B", "C"), LETTERS]))),
    }
    times = tuple(int(t) for t in np.cumsum(gaps)) if count else ()
    return Case(pattern, tuple(rows), times, **{**values, **fixed})  # type: ignore[arg-type]

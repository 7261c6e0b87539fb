"""EXPLAIN: what a query means and where each part of it runs, as text and as a picture.

Without a schema the explanation says what is known without types: the tree, the automaton, and the
class of each condition as its text shows it. With a schema it adds the matcher that will run, the
columns of the result, and the warnings. Nothing is matched. Of several queries over one stream it
says what they share, then each of them. Which parts of the operator there are, and the matcher, is
read off the `OperatorSpec` that runs: that of the plan, where a host has made one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import pyarrow as pa

from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.candidates import CandidateMatcher
from outpace.engine.match.choose import matcher_name, plain_reason
from outpace.engine.match.codegen import PathPlan
from outpace.engine.match.contract import STEP_BUDGET, Task
from outpace.engine.match.kernel import KernelMatcher
from outpace.engine.match.program import Program, compile_program
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.split.schedule import overlapping, scheduler_of
from outpace.engine.window_match.sharing import sharable
from outpace.errors import UnsupportedError
from outpace.explanation.conditions import Condition, conditions_of, conditions_section
from outpace.explanation.cost import cost_section, memory_section
from outpace.explanation.going_back import going_back_section, kept_to_go_back
from outpace.explanation.pattern import automaton_section, tree_section
from outpace.explanation.picture import Picture, dot, picture_of
from outpace.explanation.picture_svg import svg
from outpace.pattern import ast
from outpace.pattern.bind.check import check_clauses
from outpace.pattern.bind.disorder import disorder_text, missing_flag
from outpace.pattern.disorder import Late
from outpace.pattern.group import QueryGroup, naming_query
from outpace.pattern.notation.print_pattern import print_pattern
from outpace.pattern.notation.print_query import print_fluent, print_match_recognize
from outpace.pattern.notation.print_windows import window_calls
from outpace.pattern.query import Consume, Emission, Query, RowsPerMatch, Selection, Skip
from outpace.pattern.types import type_name
from outpace.plan.plan import Plan


@dataclass(frozen=True, repr=False)
class Explanation:
    """What is known of a query; `str()` gives the text, a notebook shows text and picture.

    Parameters
    ----------
    query
        The query that is explained.
    program
        Its automaton.
    operator
        The operator that runs, or None without a schema.
    placement
        How a host divides the rows of its data, a title and indented lines; empty in process.

    Examples
    --------
    >>> up = Query("up").order_by("ts").pattern("A B+").define(B="price > PREV(price)")
    >>> print(explain(up).text)
    query up
      MATCH_RECOGNIZE (
      ...
    >>> explain(up).svg.startswith("<svg")
    True
    """

    query: Query
    program: Program
    operator: OperatorSpec | None = None
    placement: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    @property
    def matcher(self) -> str | None:
        """The name of the matcher that will run, or None without a schema."""
        if self.operator is None or self.operator.matcher is None:
            return None
        return matcher_name(self.operator.matcher)

    @cached_property
    def text(self) -> str:
        """The explanation as plain text."""
        kept = kept_to_go_back(self.query)
        sections = [
            (f"query {self.query.name}", _query_text(self.query).splitlines()),
            ("tree", tree_section(self._tree)),
            ("automaton", automaton_section(self.program)),
            (
                "conditions",
                conditions_section(self._conditions, self.matcher, self._joined, self._asked),
            ),
            ("stages", self._stages()),
            *(
                [(self.placement[0], [line[2:] for line in self.placement[1:]])]
                if self.placement
                else []
            ),
            ("cost", self._cost()),
            ("going back", going_back_section(self.query)),
            ("memory", [*memory_section(self.query, self.program, self._task), *kept]),
        ]
        if self.operator is not None:
            sections.append(("result", _columns(self.operator.output)))
            sections.append(("warnings", [*self.operator.bound.warnings, *self._slow()]))
        else:
            sections.append(("result", ["its types are known when the query meets a schema"]))
        return "\n\n".join(
            "\n".join([title, *(f"  {line}" for line in lines)])
            for title, lines in sections
            if lines
        )

    @cached_property
    def picture(self) -> Picture:
        """What the picture of the automaton shows."""
        return picture_of(self.program, f"{self.query.name}: {print_pattern(self._tree)}")

    @cached_property
    def dot(self) -> str:
        """The automaton as Graphviz DOT."""
        return dot(self.picture)

    @cached_property
    def svg(self) -> str:
        """The automaton as SVG."""
        return svg(self.picture)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f"<div>{self.svg}<pre>{escape(self.text)}</pre></div>"

    @property
    def _tree(self) -> ast.Pattern:
        assert self.query.tree is not None
        return self.query.tree

    @property
    def _task(self) -> Task | None:
        return None if self.operator is None else self.operator.task

    @property
    def _streamed(self) -> bool:
        """Whether events come out of order, and a reorderer puts them in order."""
        return self.operator is not None and self.operator.disorder is not None

    @property
    def _plan(self) -> PathPlan | None:
        """How a compiled search runs the conditions."""
        matcher = None if self.operator is None else self.operator.matcher
        if isinstance(matcher, CandidateMatcher | KernelMatcher):
            return matcher.search.plan
        return None

    @property
    def _joined(self) -> frozenset[int]:
        """The variables whose rows are found by a value."""
        return frozenset() if self._plan is None else self._plan.joined

    @property
    def _asked(self) -> frozenset[int]:
        """The variables for which Python is asked."""
        return frozenset() if self._plan is None else frozenset(self._plan.asked)

    def _slow(self) -> list[str]:
        """Say where the query leaves compiled code."""
        if self.matcher == "twin" and self._task is not None:
            reason = plain_reason()
            return [f"{reason}, so it is matched in plain Python: some ten thousand rows a second"]
        return [
            f"a part of {self._conditions[variable].name}'s condition is not compiled: Python is"
            " asked for each row that fits otherwise, some hundred thousand times a second"
            for variable in sorted(self._asked)
        ]

    @cached_property
    def _conditions(self) -> list[Condition]:
        return conditions_of(self.query, None if self.operator is None else self.operator.bound)

    def _cost(self) -> list[str]:
        budget = STEP_BUDGET if self._task is None else self._task.step_budget
        return cost_section(self.query, self.program, self._conditions, budget)

    def _stages(self) -> list[str]:
        """Say what happens to the rows, in order, and which parts are left out."""
        query = self.query
        ordered = ", ".join(
            item.column + (" desc" if item.descending else "") for item in query.order
        )
        keys = ", ".join(query.partitions)
        measured = ", ".join(
            [name for name, _ in query.outputs]
            if self.operator is None
            else [measure.name for measure in self.operator.bound.measures]
        )
        ties = "" if self.placement else "; rows with equal values keep the input's order"
        windows = _window_stages(query, self.operator, placed=bool(self.placement))
        lines = [
            f"order: a reorderer puts the events of the stream in order by {ordered}"
            if self._streamed
            else f"order: rows are sorted by {ordered}{ties}"
            if ordered
            else "order: none given, rows keep the input's order",
            *self._stream_order(),
            f"partition: by {keys}, each matched on its own"
            if keys
            else "partition: none, all rows are one",
            *windows,
            f"match: {_MATCHERS[self.matcher]}" if self.matcher else "match: chosen with a schema",
            f"select: {_selection(query)}",
            f"measures: {measured or _NO_MEASURES[bool(keys) and query.rows is RowsPerMatch.ONE]}",
            f"rows: {query.rows.value}",
            *([f"emit: {_EMISSIONS[query.emission]}"] if query.corrects else []),
        ]
        left_out = ", ".join(self._left_out())
        return [*lines, *([f"left out: {left_out}"] if left_out else [])]

    def _left_out(self) -> list[str]:
        """Return the parts of the operator that have nothing to do here, and why."""
        parts = [] if self._streamed else ["reorderer (the rows are sorted here)"]
        windowed = self.query.windows is not None
        if not windowed:
            parts.append("splitter (the query has no windows)")
        # How the tasks of a divided table come together the lines of its plan say.
        alone = not windowed and not self.placement
        if self._streamed:
            alone = self.operator is not None and self.operator.instances is None
        if alone:
            keyed = self._streamed and self.query.partitions
            parts.append(f"merger ({'each key has one' if keyed else 'one'} instance)")
        return parts

    def _stream_order(self) -> list[str]:
        """Say how a stream in process orders its events; a host says it with the placement."""
        disorder = self.query.order_of_arrival
        if disorder is None or self.placement:
            return []
        late = Late(disorder.late).value
        return [f"order in a stream: {disorder_text(disorder)}; late events: {late}"]


def explain(query: Query, data: pa.Schema | Plan[Any] | None = None) -> Explanation:
    """Explain a query, with a schema also what depends on types.

    Parameters
    ----------
    query
        What to explain.
    data
        The columns of its input, or the plan that a host has made of the query and its input.

    Raises
    ------
    BindError
        Where the query does not fit itself or the schema.

    Examples
    --------
    >>> query = Query().order_by("ts").pattern("A B").define(B="x > 1").measures(n="COUNT(*)")
    >>> explain(query).program.names
    ('A', 'B')
    """
    tree = check_clauses(query)
    program = compile_program(tree, ast.predicates(tree))
    if data is None:
        return Explanation(query, program)
    if isinstance(data, pa.Schema):
        if (flag := missing_flag(query, data.names)) is not None:
            data = data.append(pa.field(flag, pa.bool_()))
        operator = OperatorSpec(query, data)
        assert operator.task is not None, "the clauses have a pattern"
        return Explanation(query, program, operator)
    return Explanation(query, program, data.operator, tuple(data.lines()))


def _query_text(query: Query) -> str:
    try:
        return print_match_recognize(query)
    except UnsupportedError:
        # Windows, schedulers and checkpoints may be of classes of users, which have no SQL text.
        return print_fluent(query)


#: Whether a match without measures shows its partition columns and nothing else.
_NO_MEASURES = {
    False: "none",
    True: "none, so a match shows its partition alone; add some, as measures(rows='COUNT(*)')",
}
_EMISSIONS = {
    Emission.CHANGES: "all changes: matches come, are taken back, are confirmed",
    Emission.CONFIRMED: "matches that nothing takes back any more, each once",
    Emission.LATEST: "what brings a table of the present matches up to date, by match_id",
}
_MATCHERS = {
    "graph": "by the graph, which shares the work of all matches that overlap",
    "kernel": "by the kernel, a compiled search for the preferred match of each start",
    "search": "by a compiled search for all matches of each start",
    "uncertain order": "in every order that the bound allows, by a compiled search",
    "twin": "by the twin, plain Python, as no compiled matcher covers the query; see the warnings",
}


def _selection(query: Query) -> str:
    """Say which candidates become matches, defaults included."""
    if query.uncertainty is not None:
        return "every match that some order has, and whether every order has it"
    after = query.effective_skip
    preferred = query.effective_selection is Selection.PREFERRED
    words = ["the preferred match of each start" if preferred else "all matches of each start"]
    if after.skip is not Skip.NONE:
        words.append(f"after a match skip {after.skip.value} {after.variable or ''}".strip())
    if query.consumption is not Consume.NONE:
        words.append(f"consume {query.consumption.value}")
    words += [f"at most {limit.count} per {limit.per.value}" for limit in query.limits]
    return ", ".join(words)


def _columns(schema: pa.Schema) -> list[str]:
    return [f"{field.name}: {type_name(field.type)}" for field in schema]


def _window_stages(
    query: Query, operator: OperatorSpec | None, *, placed: bool = False
) -> list[str]:
    """Say what the splitter, the instances and the merger do; nothing for a query without windows.

    Parameters
    ----------
    query, operator
        The query, and the operator that runs.
    placed
        Whether a host says by itself who matches which windows, and what is merged.

    Examples
    --------
    >>> from outpace.pattern.windows import CountWindows
    >>> query = Query().order_by("ts").pattern("A B").over(CountWindows(1000, 50)).instances(4)
    >>> for line in _window_stages(query, None):
    ...     print(line)
    splitter: over(op.windows.count(1000, slide=50)), each matched as if it were all there is
    instances: 4, chosen by Batches(size=76)
    merger: by match number x:y, a match of several windows once
    """
    if query.windows is None:
        return []
    over = next(iter(window_calls(query)))
    lines = [f"splitter: {over}, each matched as if it were all there is"]
    if query.drift is not None:
        lines.append("windows: LOW, MIDDLE and HIGH of each, matched when all three have closed")
    elif query.uncertainty is not None:
        lines.append("windows: by true time, matched when no other event can be in them")
    elif operator is not None and operator.task is not None and operator.matcher is not None:
        shared = overlapping(query.windows) and sharable(operator.task, operator.matcher)
        lines.append(
            "windows: share the search of each start, so that overlap costs little"
            if shared
            else "windows: matched one by one"
        )
    if placed:
        return lines
    if query.instance_count > 1:
        lines.append(f"instances: {query.instance_count}, chosen by {scheduler_of(query)}")
    kept = "in every window that finds it" if query.duplicates else "of several windows once"
    return [*lines, f"merger: by match number x:y, a match {kept}"]


@dataclass(frozen=True, repr=False)
class GroupExplanation:
    """What is known of a group; `str()` gives the text, a notebook shows it and all pictures.

    Parameters
    ----------
    queries
        The explanation of each query, by its name.
    shared
        What the queries share; empty without a schema.
    placement
        Where they run, a title and indented lines; empty in process.
    """

    queries: dict[str, Explanation]
    shared: tuple[str, ...] = ()
    placement: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    @cached_property
    def text(self) -> str:
        """The explanation as plain text."""
        count = len(self.queries)
        shared = self.shared or ("what they share is known when they meet a schema",)
        title = f"group of {count} {'query' if count == 1 else 'queries'}"
        own = "\n".join([title, *(f"  {line}" for line in shared)])
        place = "\n".join(self.placement)
        each = [one.text for one in self.queries.values()]
        return "\n\n".join(filter(None, [own, place, *each]))

    def _repr_html_(self) -> str:
        pictures = "".join(one.svg for one in self.queries.values())
        return f"<div>{pictures}<pre>{escape(self.text)}</pre></div>"


def explain_group(group: QueryGroup, data: pa.Schema | Plan[Any] | None = None) -> GroupExplanation:
    """Explain several queries, with a schema also what they share.

    Parameters
    ----------
    group
        The queries.
    data
        The columns of their input, or the plan that a host has made of them and their input.

    Examples
    --------
    >>> from outpace.pattern.disorder import KSlack
    >>> from outpace.pattern.query import Query
    >>> low = Query("low").order_by("ts").pattern("A").define(A="x < 1").disorder(KSlack(1))
    >>> deep = Query("deep").order_by("ts").pattern("A -> B").define(A="x < 1", B="x < 0")
    >>> schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    >>> explained = explain_group(QueryGroup((low, deep.disorder(KSlack(5)))), schema)
    >>> for line in explained.shared:
    ...     print(line)
    ordered once for low, deep, in a chain
      an event waits until one is seen that is 1 later: low
      an event waits until one is seen that is 5 later: deep
    conditions on single rows: 3, of which 2 are computed
    """
    explained = {}
    for query in group.queries:
        with naming_query(query):
            explained[query.name] = explain(query)
    if data is None:
        return GroupExplanation(explained)
    placement: list[str] = []
    if isinstance(data, pa.Schema):
        spec = GroupSpec(group.queries, data)
    else:
        spec, placement = data.group, data.lines()
    for name, operator in zip(explained, spec.operators, strict=True):
        explained[name] = replace(explained[name], operator=operator)
    shared = GroupOperator(spec).lines()
    return GroupExplanation(explained, tuple(shared), tuple(placement))

"""Published cases of event patterns, with their builder calls made in the fluent API.

The cases were cut out of programs, and some lost a part on the way that their name still tells.
What is missing is put back by `_completed`, by three rules that look at the name and the calls,
never at the expected matches:

1. A skip strategy that was a parameter: the name says NoSkip, SkipToNext or SkipPastLast.
2. A step with both `consecutive` and `allowCombinations`, which no program may call together (they
   were the branches of a switch): the name says Strict, SkipTillNext (neither) or SkipTillAny.
3. A negation whose pattern was built by a method: `NotFollowedBy[Any]{After,Before}{One,Zero}OrMore
   {Eager,Combinations}[SkipTillAny]` is `a`, then repeated `b`, no `c` after or before the `b`s,
   then `d`; `Any` and `SkipTillAny` say that any `b` follows, otherwise the next.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outpace.engine.match.task import match_block, prepare, whole_block
from outpace.engine.match.twin import TwinMatcher
from outpace.errors import MatchError
from outpace.hosts.local.table import match
from outpace.pattern.builder import Fluent, Steps, col, step
from outpace.pattern.query import AfterMatch, Query, Skip, WithinKind

CASES = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "cep_patterns.jsonl"

Call = list[Any]


def _load() -> list[dict[str, Any]]:
    if not CASES.is_file():
        return []
    return [json.loads(line) for line in CASES.read_text().splitlines() if line.strip()]


def _ids(case: dict[str, Any]) -> str:
    return case["id"]


# --- Putting back what the cases lost -------------------------------------------------------------

_SKIPS = {"NoSkip": "noSkip", "SkipToNext": "skipToNext", "SkipPastLast": "skipPastLastEvent"}
_NEGATION = re.compile(
    r"testNotFollowedBy(?P<any>Any)?(?P<place>After|Before)(?P<least>One|Zero)OrMore"
    r"(?P<inner>Eager|Combinations|Consecutive|Strict)?(?P<till>SkipTillAny|SkipTillNext)?$"
)


def _completed(name: str, calls: list[Call]) -> list[Call]:
    method = name.split(".")[-1]
    calls = _with_skip(method, calls)
    calls = _with_one_inner_link(method, calls)
    return _with_negation_tail(method, calls)


def _with_skip(method: str, calls: list[Call]) -> list[Call]:
    told = next((skip for word, skip in _SKIPS.items() if method.startswith(f"test{word}")), None)
    if told is None or len(calls[0]) > 2:
        return calls
    return [[*calls[0], {"skip": told}], *calls[1:]]


def _with_one_inner_link(method: str, calls: list[Call]) -> list[Call]:
    kept: list[Call] = []
    for part in _parts(calls):
        called = {call[0] for call in part}
        if {"consecutive", "allowCombinations"} <= called:
            wanted = {"Strict": "consecutive", "SkipTillAny": "allowCombinations"}
            keep = next((call for word, call in wanted.items() if word in method), None)
            part = [
                call
                for call in part
                if call[0] not in ("consecutive", "allowCombinations") or call[0] == keep
            ]
        kept += part
    return kept


def _with_negation_tail(method: str, calls: list[Call]) -> list[Call]:
    told = _NEGATION.match(method)
    if told is None or any(call[1:2] == ["d"] or _asks_for(call, "d") for call in calls):
        return calls
    links = "followedByAny" if told["any"] or told["till"] == "SkipTillAny" else "followedBy"
    repeated: list[Call] = [[links, "b"], _named("b"), ["oneOrMore"]]
    if told["inner"] == "Combinations":
        repeated.append(["allowCombinations"])
    elif told["inner"] in ("Consecutive", "Strict"):
        repeated.append(["consecutive"])
    if told["least"] == "Zero":
        repeated.append(["optional"])
    negated: list[Call] = [["notFollowedBy", "not c"], _named("c")]
    middle = [*repeated, *negated] if told["place"] == "After" else [*negated, *repeated]
    return [["begin", "a"], _named("a"), *middle, ["followedBy", "d"], _named("d")]


def _named(letter: str) -> Call:
    return ["where", {"field": "name", "op": "eq", "value": letter}]


def _asks_for(call: Call, letter: str) -> bool:
    return call[0] == "where" and call[1].get("value") == letter


_STEPS = ("begin", "next", "followedBy", "followedByAny", "notNext", "notFollowedBy")


def _parts(calls: list[Call]) -> list[list[Call]]:
    """Cut a list of calls before each one that begins a step."""
    parts: list[list[Call]] = []
    for call in calls:
        if call[0] in _STEPS:
            parts.append([])
        parts[-1].append(call)
    return parts


# --- Translating ----------------------------------------------------------------------------------

_COMPARISONS = {
    "eq": lambda field, value: field == value,
    "equals": lambda field, value: field == value,
    "==": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
    "contains": lambda field, value: field.like(f"%{_literally(value)}%", "!"),
    "startsWith": lambda field, value: field.like(f"{_literally(value)}%", "!"),
    "endsWith": lambda field, value: field.like(f"%{_literally(value)}", "!"),
}


def _literally(text: str) -> str:
    return re.sub(r"([!%_])", r"!\1", text)


def _condition(condition: dict[str, Any]) -> Fluent:
    return _COMPARISONS[condition["op"]](col(condition["field"]), condition["value"])


class _Translation:
    """Makes the fluent calls of a case and collects its definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Fluent] = {}
        self.skip: dict[str, Any] = {}
        self.within: tuple[int, WithinKind] | None = None

    def steps(self, calls: list[Call]) -> Steps:
        built: Steps | None = None
        for part in _parts(calls):
            built = self._step(built, part)
        assert built is not None
        return built

    def _step(self, built: Steps | None, part: list[Call]) -> Steps:
        (verb, named, *options), *rest = part
        name = named if isinstance(named, str) else ""
        item: str | Steps = named if isinstance(named, str) else self.steps(named["group"])
        if options and isinstance(options[-1], dict):
            self.skip = options[-1]
        match verb:
            case "begin":
                built = step(item)
            case "next":
                built = built.then(item)
            case "followedBy":
                built = built.followed_by(item)
            case "followedByAny":
                built = built.followed_by_any(item)
            case "notNext":
                built = built.not_then(name)
            case "notFollowedBy":
                built = built.not_followed_by(name)
        for call in rest:
            built = self._call(built, name, *call)
        return built

    def _call(self, built: Steps, name: str, verb: str, *given: Any) -> Steps:
        match verb:
            case "where" | "subtype":
                condition = self._asked(verb, given)
                before = self.definitions.get(name)
                self.definitions[name] = condition if before is None else before & condition
            case "or":
                self.definitions[name] = self.definitions[name] | _condition(given[0])
            case "oneOrMore":
                return built.one_or_more()
            case "times":
                return built.times(*given[:2])
            case "timesOrMore":
                return built.times_or_more(given[0])
            case "optional":
                return built.optional()
            case "greedy":
                return built.possessive()
            case "consecutive":
                return built.consecutive()
            case "allowCombinations":
                return built.allow_combinations()
            case "until":
                self.definitions[f"until {name}"] = _condition(given[0])
                return built.until(f"until {name}")
            case "within":
                kind = WithinKind.FIRST_TO_LAST
                if len(given) > 1 and "PREVIOUS" in str(given[1]):
                    kind = WithinKind.PREVIOUS_TO_CURRENT
                self.within = given[0]["ms"], kind
            case _:
                raise AssertionError(f"no translation of {verb}")
        return built

    def _asked(self, verb: str, given: tuple[Any, ...]) -> Fluent:
        if verb == "subtype":
            return col("type") == str(given[0]).removesuffix(".class")
        return _condition(given[0])

    def after(self) -> AfterMatch:
        kinds = {
            "noSkip": Skip.NONE,
            "skipToNext": Skip.TO_NEXT_ROW,
            "skipPastLastEvent": Skip.PAST_LAST_ROW,
            "skipToFirst": Skip.TO_FIRST,
            "skipToLast": Skip.TO_LAST,
        }
        strict = any("throw" in key.lower() and value for key, value in self.skip.items())
        kind = kinds[self.skip.get("skip", "noSkip")]
        return AfterMatch(kind, self.skip.get("pattern"), strict)


def _query(case: dict[str, Any]) -> Query:
    translation = _Translation()
    pattern = translation.steps(_completed(case["id"], case["pattern"])).tree
    query = (
        Query("case")
        .order_by("time", "position")
        .pattern(pattern)
        .define(translation.definitions)
        .measures(match="MATCH_NUMBER()")
        .all_rows_per_match()
        .select("all")
        .limit(1_000_000, per="start")
    )
    query = _skipping(query, translation.after())
    if translation.within is not None:
        query = query.within(*translation.within)
    return query


def _skipping(query: Query, after: AfterMatch) -> Query:
    match after.skip:
        case Skip.NONE:
            return query.no_skip()
        case Skip.TO_NEXT_ROW:
            return query.skip_to_next_row()
        case Skip.PAST_LAST_ROW:
            return query.skip_past_last_row()
        case Skip.TO_FIRST:
            return query.skip_to_first(after.variable, strict=after.strict)
        case Skip.TO_LAST:
            return query.skip_to_last(after.variable, strict=after.strict)


def _table(case: dict[str, Any]) -> pa.Table:
    events = case["input"]
    times: list[int] = []
    for position, event in enumerate(events):
        time = position if event.get("ts") is None else event["ts"]
        # The cases are fed in the order given, whatever their times say.
        times.append(max(time, times[-1]) if times else time)
    return pa.table(
        {
            "position": pa.array(range(len(events)), pa.int64()),
            "time": pa.array(times, pa.int64()),
            "type": pa.array([event["type"] for event in events], pa.string()),
            "id": pa.array([event["id"] for event in events], pa.int64()),
            "name": pa.array([event["name"] for event in events], pa.string()),
            "price": pa.array([float(event["price"]) for event in events], pa.float64()),
            "volume": pa.array([event.get("volume") for event in events], pa.float64()),
        }
    )


# --- Comparing ------------------------------------------------------------------------------------

Matches = Counter[tuple[tuple[Any, ...], ...]]


def _event(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["type"], event["id"], event["name"], float(event["price"])


def _multiset(matches: list[list[dict[str, Any]]]) -> Matches:
    return Counter(tuple(sorted(_event(event) for event in match)) for match in matches)


def _by_host(case: dict[str, Any]) -> Matches:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in match(_table(case), _query(case)).to_pylist():
        found.setdefault(row["match"], []).append(case["input"][row["position"]])
    return _multiset(list(found.values()))


def _by_twin(case: dict[str, Any]) -> Matches:
    table = _table(case)
    task = prepare(_query(case), table.schema)
    block = whole_block(task, table)
    found = match_block(TwinMatcher(task), block).found
    runs = [
        found.rows[low:high] for low, high in zip(found.offsets, found.offsets[1:], strict=False)
    ]
    return _multiset([[case["input"][block.arrivals[row]] for row in run] for run in runs])


@pytest.mark.parametrize("matcher", [_by_host, _by_twin], ids=["host", "twin"])
@pytest.mark.parametrize("case", _load(), ids=_ids)
def test_the_case_gives_its_matches(shared, case, matcher):
    if "error" in case:
        with pytest.raises(MatchError):
            matcher(case)
        return
    assert matcher(case) == _multiset(case["expected"])

"""Pattern text: `STRT DOWN+ UP+`, with links, negation and quantifiers, read into the pattern tree.

    A B             B is the very next event        A -> B     the next event that fits
    A ->> B         any later event that fits       A -> !B    no B
    A | B           one of them, A preferred        (A B)      a group;  () matches nothing
    A* A+ A? A{2} A{2,} A{,3} A{2,3}                as many as possible
    A+? A++         as few as possible; never leaves an event that it could have taken
    B(->)+ B(->>)+ B(.)+                            the link between repetitions: next, any, strict
    B+ UNTIL U      no repetition from the first event on that satisfies U
    {- A -}         matched, but not shown          PERMUTE(A, B)   in any order
    ^ $             before the first event, after the last

Without its own link, a quantifier has the one that `own_link` tells. Names in double quotes or
backticks may hold any characters. The parser keeps its own stack, and nesting is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outpace.errors import Span
from outpace.pattern import ast
from outpace.pattern.notation.lexer import CaseFold, SourceText, Token, TokenCursor, TokenKind
from outpace.pattern.notation.own_link import ALONE, default_link, item_links
from outpace.pattern.size import MOST_LEVELS, MOST_NESTED, pattern_is_too_deep

#: The largest bound of a quantifier.
MOST_REPETITIONS = 1_000_000

_LINKS = {"->": ast.Link.NEXT, "->>": ast.Link.ANY, ".": ast.Link.STRICT}
_QUANTIFIERS = frozenset({"*", "+", "?", "{"})
_CLOSERS = {"(": ")", "{-": "-}", "PERMUTE": ")"}


def parse_pattern(text: str) -> ast.Pattern:
    """Read pattern text, without the word PATTERN and its parentheses.

    Raises
    ------
    PatternSyntaxError
        With the place in the text.

    Examples
    --------
    >>> parse_pattern("A -> B+")
    Concat(items=(Var(name='A'), Repeat(item=Var(name='B'), least=1, most=None,
        mode=<Mode.GREEDY: 'greedy'>, link=<Link.NEXT: 'next'>, until=None)),
        links=(<Link.NEXT: 'next'>,))
    """
    cursor = TokenCursor(SourceText(text, "pattern", is_pattern=True))
    pattern = read_pattern(cursor)
    cursor.expect_end()
    return pattern


def read_pattern(cursor: TokenCursor, fold: CaseFold | None = None) -> ast.Pattern:
    """Read a pattern from a cursor, up to the end or a closing parenthesis that is not its own."""
    pattern = _PatternReader(cursor, fold or (lambda name, _quoted: name)).read()
    return replace(pattern, span=cursor.source.marked(pattern.span))


@dataclass(slots=True)
class _OpenGroup:
    """An open group: what was read of it so far."""

    opener: str
    start: Token
    arguments: list[ast.Pattern] = field(default_factory=list)
    options: list[ast.Pattern] = field(default_factory=list)
    items: list[ast.Pattern] = field(default_factory=list)
    links: list[ast.Link] = field(default_factory=list)
    #: The `->` or `->>` that was read last and still needs its right side.
    pending: Token | None = None


class _PatternReader:
    def __init__(self, cursor: TokenCursor, fold: CaseFold) -> None:
        self.cursor = cursor
        self.fold = fold
        self.stack: list[_OpenGroup] = [_OpenGroup("", cursor.token)]
        #: The quantifiers whose own link the text sets, by identity.
        self.explicit: set[int] = set()

    def read(self) -> ast.Pattern:
        cursor = self.cursor
        while True:
            token = cursor.token
            frame = self.stack[-1]
            if token.key in ("->", "->>"):
                self._link(frame)
            elif token.key == "|":
                self._finish_option(frame)
                cursor.advance()
            elif token.key == "," and frame.opener == "PERMUTE":
                self._finish_argument(frame)
                cursor.advance()
            elif token.kind is TokenKind.END or token.key in (")", "-}"):
                if len(self.stack) == 1:
                    return self._finish_pattern(frame)
                self._close(frame)
            else:
                self._step(frame)

    def _step(self, frame: _OpenGroup) -> None:
        cursor = self.cursor
        token = cursor.token
        if token.key == "PERMUTE" and cursor.ahead().key == "(":
            cursor.advance()
            self._open("PERMUTE", token)
        elif token.is_name:
            cursor.advance()
            self._add(frame, ast.Var(self._name(token), span=token.span))
        elif token.key == "!":
            self._negation(frame)
        elif cursor.at("(", ")"):
            cursor.accept("(", ")")
            self._add(frame, ast.Empty(span=cursor.span_from(token.start)))
        elif token.key == "{-" and cursor.ahead().kind is TokenKind.NUMBER:
            place = Span(token.start, cursor.ahead().end)
            raise cursor.error("a quantifier bound cannot be negative", place)
        elif token.key in ("(", "{-"):
            self._open(token.key, token)
        elif token.key in ("^", "$"):
            cursor.advance()
            anchor = ast.AtStart if token.key == "^" else ast.AtEnd
            self._add(frame, anchor(span=token.span))
        elif token.key in _QUANTIFIERS:
            raise cursor.error(f"{cursor.found()} has nothing to repeat", hint="write A+ or (A B)+")
        else:
            hint = "write A | B for an alternation" if token.key == "||" else None
            raise cursor.unexpected("a pattern variable or a group", hint=hint)

    def _name(self, token: Token) -> str:
        return self.fold(token.value, token.kind is TokenKind.QUOTED)

    def _link(self, frame: _OpenGroup) -> None:
        cursor = self.cursor
        if frame.pending is not None:
            raise cursor.error(f"{cursor.found()} follows another link", hint="write A -> B")
        if not frame.items:
            raise cursor.error(f"{cursor.found()} needs a step before it", hint="write A -> B")
        frame.pending = cursor.advance()

    def _open(self, opener: str, token: Token) -> None:
        cursor = self.cursor
        if opener == "(" and cursor.ahead().key in _LINKS:
            raise cursor.error(
                "a link in parentheses stands between an item and its quantifier",
                hint="write B(->)+",
            )
        if len(self.stack) > MOST_NESTED:
            raise cursor.error(f"groups are nested deeper than {MOST_NESTED} levels", token.span)
        cursor.advance()
        self.stack.append(_OpenGroup(opener, token))

    def _close(self, frame: _OpenGroup) -> None:
        cursor = self.cursor
        closer = _CLOSERS[frame.opener]
        if cursor.token.key != closer:
            if cursor.token.kind is TokenKind.END:
                raise cursor.error(
                    f"'{frame.opener}' is never closed", frame.start.span, hint=f"add '{closer}'"
                )
            raise cursor.unexpected(f"'{closer}'")
        if frame.opener == "PERMUTE":
            self._finish_argument(frame)
        else:
            self._finish_option(frame)
        cursor.advance()
        self.stack.pop()
        span = cursor.span_from(frame.start.start)
        pattern: ast.Pattern
        if frame.opener == "PERMUTE":
            pattern = ast.Permute(tuple(frame.arguments), span=span)
        elif frame.opener == "{-":
            pattern = ast.Exclude(ast.alternate(frame.options), span=span)
        else:
            pattern = ast.alternate(frame.options)
            if isinstance(pattern, ast.Concat | ast.Alternate):
                pattern = replace(pattern, span=span)
        self._append(self.stack[-1], self._quantified(pattern, span.start))

    def _finish_option(self, frame: _OpenGroup) -> None:
        cursor = self.cursor
        if frame.pending is not None:
            raise cursor.unexpected(f"a step after '{frame.pending.key}'")
        if not frame.items:
            raise cursor.unexpected(
                "a pattern variable or a group", hint="the empty pattern is written ()"
            )
        option = ast.concat(frame.items, frame.links)
        if isinstance(option, ast.Concat):
            option = replace(option, span=_cover(frame.items))
        frame.options.append(option)
        frame.items, frame.links = [], []

    def _finish_argument(self, frame: _OpenGroup) -> None:
        self._finish_option(frame)
        frame.arguments.append(ast.alternate(frame.options))
        frame.options = []

    def _finish_pattern(self, frame: _OpenGroup) -> ast.Pattern:
        if not frame.items and not frame.options and frame.pending is None:
            raise self.cursor.error("the pattern is empty", hint="the empty pattern is written ()")
        self._finish_option(frame)
        pattern = ast.alternate(frame.options)
        if isinstance(pattern, ast.Alternate):
            pattern = replace(pattern, span=_cover(frame.options))
        if pattern_is_too_deep(pattern):
            raise self.cursor.error(
                f"the pattern is nested deeper than {MOST_LEVELS} levels", frame.start.span
            )
        return self._resolve(pattern, ALONE)

    def _negation(self, frame: _OpenGroup) -> None:
        cursor = self.cursor
        mark = cursor.advance()
        token = cursor.expect_name("a variable after '!'")
        span = Span(mark.start, token.end)
        passive = ast.AtStart | ast.AtEnd | ast.Empty
        if all(isinstance(item, passive) for item in frame.items):
            raise cursor.error(
                "a negation cannot begin a sequence", span, hint="write A !B or A -> !B -> C"
            )
        if cursor.token.key in _QUANTIFIERS:
            raise cursor.error(
                "a negation cannot be repeated", hint="write !B without a quantifier"
            )
        self._append(frame, ast.Not(self._name(token), span=span))

    def _add(self, frame: _OpenGroup, item: ast.Pattern) -> None:
        assert item.span is not None, "a step that was read has a place"
        self._append(frame, self._quantified(item, item.span.start))

    def _append(self, frame: _OpenGroup, item: ast.Pattern) -> None:
        if frame.items:
            frame.links.append(_LINKS[frame.pending.key] if frame.pending else ast.Link.STRICT)
        frame.pending = None
        frame.items.append(item)

    def _quantified(self, item: ast.Pattern, start: int) -> ast.Pattern:
        cursor = self.cursor
        own: ast.Link | None = None
        if cursor.at("(") and cursor.ahead().key in _LINKS and cursor.ahead(2).key == ")":
            own = _LINKS[cursor.ahead().key]
            cursor.index += 3
            if cursor.token.key not in _QUANTIFIERS:
                raise cursor.unexpected("a quantifier after the link", hint="write B(->)+")
        if cursor.token.key not in _QUANTIFIERS:
            return item
        least, most = self._bounds()
        mode = self._mode()
        if cursor.token.key in _QUANTIFIERS:
            raise cursor.error(
                f"{cursor.found()} repeats a repetition", hint="put the inner one in parentheses"
            )
        until: str | None = None
        if cursor.token.key == "UNTIL" and cursor.ahead().is_name:
            cursor.advance()
            until = self._name(cursor.advance())
        span = cursor.span_from(start)
        repeat = ast.Repeat(item, least, most, mode, own or ALONE, until, span=span)
        if own is not None:
            self.explicit.add(id(repeat))
        return repeat

    def _mode(self) -> ast.Mode:
        if self.cursor.accept("?"):
            return ast.Mode.RELUCTANT
        return ast.Mode.POSSESSIVE if self.cursor.accept("+") else ast.Mode.GREEDY

    def _bounds(self) -> tuple[int, int | None]:
        cursor = self.cursor
        start = cursor.advance()
        if start.key != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[start.key]
        low = self._bound()
        high = low
        if cursor.accept(","):
            high = self._bound()
        elif low is None:
            raise cursor.unexpected("a quantifier bound", hint="write A{2} or A{2,5}")
        cursor.expect("}", "'}' after the quantifier bounds")
        span = cursor.span_from(start.start)
        if high == 0:
            raise cursor.error("the upper bound of a quantifier is at least 1", span)
        if high is not None and high < (low or 0):
            raise cursor.error(
                f"the quantifier bounds {low} and {high} are in the wrong order", span
            )
        return low or 0, high

    def _bound(self) -> int | None:
        cursor = self.cursor
        token = cursor.token
        if token.key == "-":
            raise cursor.error("a quantifier bound cannot be negative")
        if token.kind is not TokenKind.NUMBER:
            return None
        if not token.value.isdigit():
            raise cursor.error("a quantifier bound is a whole number")
        if len(token.value) > 18 or int(token.value) > MOST_REPETITIONS:
            raise cursor.error(f"a quantifier bound is at most {MOST_REPETITIONS}")
        cursor.advance()
        return int(token.value)

    def _resolve(self, pattern: ast.Pattern, around: ast.Link) -> ast.Pattern:
        """Give the quantifiers without a link in the text the one that the rule tells."""
        match pattern:
            case ast.Concat(items=items):
                parts = zip(items, item_links(pattern), strict=True)
                return replace(pattern, items=tuple(self._resolve(p, own) for p, own in parts))
            case ast.Alternate(options=options):
                return replace(pattern, options=tuple(self._resolve(p, around) for p in options))
            case ast.Permute(items=items):
                return replace(pattern, items=tuple(self._resolve(p, around) for p in items))
            case ast.Exclude(item=item):
                return replace(pattern, item=self._resolve(item, around))
            case ast.Repeat(item=item):
                explicit = id(pattern) in self.explicit
                own = pattern.link if explicit else default_link(pattern, around)
                return replace(pattern, item=self._resolve(item, around), link=own)
            case _:
                return pattern


def _cover(items: list[ast.Pattern]) -> Span | None:
    first, last = items[0].span, items[-1].span
    return first.join(last) if first and last else None

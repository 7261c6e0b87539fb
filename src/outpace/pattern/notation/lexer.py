"""The tokenizer of every notation: pattern text, expressions, MATCH_RECOGNIZE, whole statements.

Every token knows its place in the user's text. The scan is linear in the length of the text; what
is never closed (a string, a quoted name, a comment) is an error at the place where it opens.
Characters that no notation uses become single tokens, so that a statement of any SQL dialect can be
scanned.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, NoReturn

from outpace.errors import PatternSyntaxError, Span, UnsupportedError

#: Turns a variable as written into its name: (text, whether it was quoted) to name.
CaseFold = Callable[[str, bool], str]

#: Dialects in which `"x"` is a string (names are quoted with backticks) and `\` escapes in strings.
BACKSLASH_DIALECTS = frozenset(
    {"spark", "spark2", "databricks", "hive", "bigquery", "mysql", "doris", "starrocks"}
    | {"singlestore"}
)
_POSTGRES = frozenset({"postgres", "redshift", "materialize", "risingwave"})
#: Dialects in which `\` escapes in strings, and `"x"` is a name all the same.
_BACKSLASH_STRINGS = BACKSLASH_DIALECTS | {"snowflake", "redshift", "clickhouse"}
#: Dialects with `E'it\'s'`; the library's own is DuckDB's here.
_ESCAPE_STRINGS = frozenset({"outpace", "duckdb"}) | _POSTGRES
#: Dialects with `$$it's$$`, also with a name between the dollars, except in Snowflake's.
_DOLLAR_STRINGS = frozenset({"outpace", "duckdb", "snowflake", "clickhouse"}) | _POSTGRES
#: Dialects with `r'\d'`, in which nothing escapes.
_RAW_STRINGS = frozenset({"spark", "databricks", "bigquery"})
#: Dialects in which a comment may be inside another one.
_NESTED_COMMENTS = frozenset({"outpace", "duckdb", "spark", "databricks"}) | _POSTGRES


class TokenKind(Enum):
    """What a token is."""

    WORD = "word"
    """A name or keyword without quotes."""
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """A piece of text.

    `key` is what parsers compare with: a word in upper case, a symbol as it stands, else empty, so
    that a quoted name is never taken for a keyword. `value` is the name or string without quotes.
    """

    kind: TokenKind
    key: str
    value: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The place of the token."""
        return Span(self.start, self.end)

    @property
    def is_name(self) -> bool:
        """Whether it can stand for a column or variable."""
        return self.kind is TokenKind.WORD or self.kind is TokenKind.QUOTED


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text that is parsed and what errors say about it.

    Parameters
    ----------
    text
        The text of a query or of a part of it.
    where
        What the text is: "pattern", "define DOWN".
    offset
        Where the text begins in a longer one; places count from that one's beginning.
    whole
        That longer text, for errors. Without it, errors of a text with an offset have no text, and
        the caller fills it in (`OutpaceError.located`).
    dialect
        The SQL dialect; "outpace" is the library's own.
    is_pattern
        Whether the text is a pattern, in which a dollar is the end of the input and no string.
    """

    text: str
    where: str | None = None
    offset: int = 0
    whole: str | None = None
    dialect: str = "outpace"
    is_pattern: bool = False

    @property
    def shown(self) -> str | None:
        """The text that places count in, where it is known."""
        return self.text if self.whole is None and self.offset == 0 else self.whole

    def marked(self, span: Span | None) -> Span | None:
        """Return a place with its text, so that errors found after parsing can show it."""
        return None if span is None else replace(span, text=self.shown)

    def error(self, message: str, span: Span, *, hint: str | None = None) -> PatternSyntaxError:
        """Return a syntax error at a place."""
        text, where = self._shown()
        return PatternSyntaxError(message, span=span, text=text, where=where, hint=hint).in_sql()

    def unsupported(self, message: str, span: Span, *, hint: str | None = None) -> UnsupportedError:
        """Return the error that something valid elsewhere is not offered here."""
        text, where = self._shown()
        return UnsupportedError(message, span=span, text=text, where=where, hint=hint).in_sql()

    def _shown(self) -> tuple[str | None, str | None]:
        text = self.text if self.whole is None and self.offset == 0 else self.whole
        return text, self.where if text is not None else None


_TOKEN = re.compile(
    r"""
      (?P<space>\s++)
    | (?P<line_comment>--[^\n]*+)
    | (?P<block_comment>/\*)
    | (?P<word>[^\W\d]\w*+)
    | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    | (?P<quote>['"`])
    | (?P<symbol>->>|->|\{-|-\}|\|\||<>|!=|<=|>=|::|==|//|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = {
    quote: re.compile(f"[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+{quote}") for quote in "'\"`"
}
_BACKSLASH = {
    quote: re.compile(
        rf"[^{quote}\\]*+(?:(?:\\.|{quote}{quote})[^{quote}\\]*+)*+{quote}", re.DOTALL
    )
    for quote in "'\""
}
# The second half of a doubled quote, or what follows a backslash.
_ESCAPE = re.compile(r"(?:\\|'(?=')|\"(?=\"))(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_ESCAPED = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>[0-7]{1,3})|(?P<one>.))|''", re.DOTALL
)
_ESCAPED_ONE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_DOLLAR = re.compile(r"\$(?:[^\W\d]\w*+)?+\$")
_ORACLE = {"[": "]", "(": ")", "{": "}", "<": ">"}
_COMMENT = re.compile(r"/\*|\*/")
_UNCLOSED = {"'": "string", '"': "quoted name", "`": "quoted name"}


#: How many tokens a text may have: to read, bind and plan it takes time in proportion to them.
MOST_TOKENS = 20_000


def tokenize(source: SourceText, nested_max: int | None = None) -> list[Token]:
    """Split a text into tokens; the last one has the kind END.

    Parameters
    ----------
    source
        The text.
    nested_max
        How many parentheses may be open; a text with more is refused where they are met.

    Examples
    --------
    >>> [token.value for token in tokenize(SourceText("A{2,3} -> {- B -}"))]
    ['A', '{', '2', ',', '3', '}', '->', '{-', 'B', '-}', '']
    >>> tokenize(SourceText("price = 'it''s'"))[2].value
    "it's"
    """
    text, offset = source.text, source.offset
    tokens: list[Token] = []
    position = 0
    #: How many parentheses are open in a pattern.
    inside = int(source.is_pattern)
    nested = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        assert found is not None, "every character starts a token"
        group = found.lastgroup
        end = found.end()
        anchor = inside > 0 and found.group() == "$"
        special = None if anchor else _special_string(source, position, found)
        if special is not None:
            tokens.append(special)
            end = special.end - offset
        elif group == "word":
            word = found.group()
            tokens.append(
                Token(TokenKind.WORD, word.upper(), word, position + offset, end + offset)
            )
        elif group == "symbol":
            symbol = found.group()
            if symbol == "(" and (inside or (tokens and tokens[-1].key == "PATTERN")):
                inside += 1
            elif symbol == ")":
                inside = max(0, inside - 1)
            nested += (symbol == "(") - (symbol == ")")
            if nested_max is not None and nested > nested_max:
                place = Span(position + offset, end + offset)
                raise source.error("the statement is nested too deeply", place)
            tokens.append(Token(TokenKind.SYMBOL, symbol, symbol, position + offset, end + offset))
        elif group == "number":
            tokens.append(
                Token(TokenKind.NUMBER, "", found.group(), position + offset, end + offset)
            )
        elif group == "quote":
            token = _quoted(source, position)
            tokens.append(token)
            end = token.end - offset
        elif group == "block_comment":
            end = _comment_end(source, position)
        if len(tokens) > MOST_TOKENS:
            raise source.error(
                f"the text has more than {MOST_TOKENS} words and signs",
                tokens[-1].span,
                hint="put long lists of values into a table or a column of the input",
            )
        position = end
    tokens.append(Token(TokenKind.END, "", "", len(text) + offset, len(text) + offset))
    return tokens


def _comment_end(source: SourceText, start: int) -> int:
    depth, end = 1, start + 2
    while depth:
        found = _COMMENT.search(source.text, end)
        if found is None:
            _refuse_unclosed(source, "comment", start, 2, "close it with */")
        end = found.end()
        if found.group() == "*/":
            depth -= 1
        elif source.dialect in _NESTED_COMMENTS:
            depth += 1
    return end


def _special_string(source: SourceText, start: int, found: re.Match[str]) -> Token | None:
    """Return the string of a dialect's own notation that begins at a place, if there is one."""
    text, dialect, word = source.text, source.dialect, found.group()
    if word == "$" and dialect in _DOLLAR_STRINGS:
        fence = _DOLLAR.match(text, start)
        # A dollar may be part of a name.
        within = start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_$")
        if fence is None or within or (dialect == "snowflake" and len(fence.group()) > 2):
            return None
        return _fenced(source, start, fence.end(), fence.group())
    quote = text[found.end() : found.end() + 1]
    if not quote or quote not in "'\"" or found.lastgroup != "word":
        return None
    prefix, inner = word.upper(), found.end() + 1
    if prefix == "E" and quote == "'" and dialect in _ESCAPE_STRINGS:
        closed = _BACKSLASH[quote].match(text, inner)
        if closed is None:
            _refuse_unclosed(source, "string", start, 2, f"close it with {quote}")
        value = _unescaped(source, closed.group()[:-1], start, closed.end())
        return _string(source, value, start, closed.end())
    if prefix == "R" and dialect in _RAW_STRINGS:
        return _fenced(source, start, inner, quote)
    if prefix in ("Q", "NQ") and quote == "'" and dialect == "oracle" and inner < len(text):
        return _fenced(source, start, inner + 1, _ORACLE.get(text[inner], text[inner]) + "'")
    return None


def _fenced(source: SourceText, start: int, inner: int, fence: str) -> Token:
    """Return a string that ends with the next fence, whatever is before it."""
    end = source.text.find(fence, inner)
    if end < 0:
        _refuse_unclosed(source, "string", start, inner - start, f"close it with {fence}")
    return _string(source, source.text[inner:end], start, end + len(fence))


def _string(source: SourceText, value: str, start: int, end: int) -> Token:
    return Token(TokenKind.STRING, "", value, start + source.offset, end + source.offset)


def _unescaped(source: SourceText, written: str, start: int, end: int) -> str:
    """Return what an `E'...'` says; numbers in it are bytes of UTF-8."""
    parts, position = [], 0
    for found in _ESCAPED.finditer(written):
        parts.append(written[position : found.start()].encode("utf-8", "surrogatepass"))
        position = found.end()
        if found["hex"] or found["octal"]:
            parts.append(
                bytes([int(found["hex"] or found["octal"], 16 if found["hex"] else 8) % 256])
            )
        else:
            one = found["one"] or "'"
            parts.append(_ESCAPED_ONE.get(one, one).encode("utf-8", "surrogatepass"))
    parts.append(written[position:].encode("utf-8", "surrogatepass"))
    try:
        return b"".join(parts).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        place = Span(start + source.offset, end + source.offset)
        raise source.error("the escapes of the string are no UTF-8", place) from None


def _quoted(source: SourceText, start: int) -> Token:
    quote = source.text[start]
    own = BACKSLASH_DIALECTS if quote == '"' else _BACKSLASH_STRINGS
    backslash = source.dialect in own and quote != "`"
    rule = _BACKSLASH[quote] if backslash else _PLAIN[quote]
    found = rule.match(source.text, start + 1)
    what = "string" if backslash else _UNCLOSED[quote]
    if found is None:
        _refuse_unclosed(source, what, start, 1, f"close it with {quote}")
    value = found.group()[:-1]
    if backslash:
        value = _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), value)
    else:
        value = value.replace(quote * 2, quote)
    kind = TokenKind.STRING if what == "string" else TokenKind.QUOTED
    if kind is TokenKind.QUOTED and not value:
        span = Span(start + source.offset, found.end() + source.offset)
        raise source.error("a quoted name is empty", span)
    return Token(kind, "", value, start + source.offset, found.end() + source.offset)


def _refuse_unclosed(source: SourceText, what: str, start: int, width: int, hint: str) -> NoReturn:
    place = Span(start + source.offset, start + source.offset + width)
    raise source.error(f"a {what} is never closed", place, hint=hint)


class TokenCursor:
    """A place in a list of tokens, with the questions that parsers ask there."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.index = 0

    @property
    def token(self) -> Token:
        """The token at the place."""
        return self.tokens[self.index]

    @property
    def previous(self) -> Token:
        """The token that was taken last (the first one where none was)."""
        return self.tokens[max(0, self.index - 1)]

    def ahead(self, distance: int = 1) -> Token:
        """Return a later token; past the end it is the end."""
        return self.tokens[min(self.index + distance, len(self.tokens) - 1)]

    def at(self, *keys: str) -> bool:
        """Whether the next tokens are these keywords or symbols."""
        if len(keys) == 1:
            return self.tokens[self.index].key == keys[0]
        return all(self.ahead(distance).key == key for distance, key in enumerate(keys))

    def advance(self) -> Token:
        """Take the token at the place."""
        token = self.tokens[self.index]
        if token.kind is not TokenKind.END:
            self.index += 1
        return token

    def accept(self, *keys: str) -> bool:
        """Take these keywords or symbols if they come next."""
        if not self.at(*keys):
            return False
        self.index += len(keys)
        return True

    def expect(self, key: str, what: str | None = None) -> Token:
        """Take this keyword or symbol, or fail."""
        if self.token.key != key:
            raise self.unexpected(what or f"'{key}'")
        return self.advance()

    def expect_name(self, what: str) -> Token:
        """Take a name, or fail."""
        if not self.token.is_name:
            raise self.unexpected(what)
        return self.advance()

    def expect_end(self) -> None:
        """Fail unless everything was taken."""
        if self.token.kind is not TokenKind.END:
            raise self.error(f"{self.found()} does not belong here")

    def found(self) -> str:
        """Describe the token at the place."""
        token = self.token
        if token.kind is TokenKind.END:
            return "the end of the text"
        start = token.start - self.source.offset
        text = self.source.text[start : token.end - self.source.offset]
        return text if token.kind is TokenKind.STRING and len(text) <= 40 else f"'{text[:40]}'"

    def unexpected(self, what: str, *, hint: str | None = None) -> PatternSyntaxError:
        """Return the error that something else was expected here."""
        return self.error(f"expected {what}, found {self.found()}", hint=hint)

    def error(
        self, message: str, span: Span | None = None, *, hint: str | None = None
    ) -> PatternSyntaxError:
        """Return a syntax error at a place, or here."""
        return self.source.error(message, span or self.token.span, hint=hint)

    def span_from(self, start: int) -> Span:
        """Return the place from a start to the end of the last token taken."""
        return Span(start, max(start, self.previous.end))

"""Clocks of sources compared with the clock of this machine, by datagrams, as NTP does it.

A source asks, and is answered with the times at which its question came and the answer left; with
the next question it says when it heard the answer. So each exchange is complete here with the next
question of the source, and its four times tell the drift of its clock
(`outpace.engine.order.drift`). The server gives them as values; it decides nothing.

A datagram has a fixed layout, below. Anything else is counted and left alone, and nothing in it is
ever evaluated. An answer is not longer than the question, and goes nowhere but back. What a source
says of an exchange counts only if the server has answered its question, from where it came.
Datagrams carry no secret: who can reach the port can ask in the name of a source. Serve on loopback
or in a network that you trust.

Memory: the last exchange of each source, and of no more than 4096; those that nobody has taken yet,
no more than 65 536.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from outpace.engine.message import ClockExchange
from outpace.errors import DataError
from outpace.hosts.clock import clock_time
from outpace.pattern.argument import a_number, a_text, a_whole_number, check_characters

#: The port that a server takes by itself, and the greatest there is.
PORT: Final = 7452
PORT_MAX: Final = 65_535

#: What a datagram begins with: a sign, the version, and its kind. Then the number of the exchange
#: and the time at which it was asked. A question has the number of the last exchange that was
#: answered, 0 for none, when the answer was heard, and the source in 64 bytes; an answer has the
#: times at which the question came, and at which the answer left.
_SIGN: Final = b"OPCK"
_VERSION: Final = 1
_QUESTION, _ANSWER, _REFUSAL = 1, 2, 3
_ASK: Final = struct.Struct("<4sBBQqQqB64s")
_TELL: Final = struct.Struct("<4sBBQqqq")
_NAME_MAX: Final = 64

#: Sources whose last exchange is remembered, and exchanges that nobody has taken.
SOURCES_MAX: Final = 4096
_WAITING_MAX: Final = 65_536

#: How long a thread waits for a datagram before it looks whether it is to end.
_TURN_S: Final = 0.1

#: A source waits no longer than a day for an answer.
_TIMEOUT_S_MAX: Final = 86_400


@dataclass
class ClockCounters:
    """What came to a server.

    Parameters
    ----------
    questions, exchanges
        Questions that were answered, and exchanges that became complete.
    malformed
        Datagrams that are none of ours.
    unknown
        Questions of sources that are not served, which are told so.
    unmatched
        Times of an exchange that the server has not answered, or has forgotten.
    dropped
        Exchanges that nobody took in time.
    """

    questions: int = 0
    exchanges: int = 0
    malformed: int = 0
    unknown: int = 0
    unmatched: int = 0
    dropped: int = 0


class ClockSync:
    """A server that sources ask what time it is, in a thread of its own.

    Parameters
    ----------
    sources
        The identifiers of the sources that are served; all that ask where it is left out.
    host, port
        Where it listens; by default on this machine alone. Port 0 takes any that is free.
    clock
        The clock of reference, in microseconds. Where it fails, serving ends, and `take` says so.

    Examples
    --------
    >>> with ClockSync(port=0) as sync, ClockClient(sync.address, "east") as client:
    ...     answered = [client.ask() is not None for _ in range(3)]
    ...     heard = next(iter(sync.wait(2)))
    >>> answered, heard.source, heard.answered >= heard.received
    ([True, True, True], 'east', True)
    """

    def __init__(
        self,
        sources: list[str] | tuple[str, ...] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        clock: Callable[[], int] = clock_time,
    ) -> None:
        if isinstance(sources, str):
            raise DataError("sources is a list of names", hint='write ["east", "west"]')
        named = None if sources is None else [_name(source) for source in sources]
        self._sources = None if named is None else frozenset(named)
        self._clock = clock
        self._failed: Exception | None = None
        self.counters = ClockCounters()
        self._taken = threading.Condition()
        self._complete: deque[ClockExchange] = deque()
        #: The last exchange of each source: from where, its number, and its first three times.
        self._last: OrderedDict[bytes, tuple[Any, int, int, int, int]] = OrderedDict()
        self._socket = _bound(a_text(host, "host"), a_whole_number(port, "port", least=0))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="outpace-clock", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: host and port."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def take(self) -> list[ClockExchange]:
        """Return the exchanges that became complete since the last call.

        Raises
        ------
        DataError
            The clock of reference failed, so there will be no more.
        """
        with self._taken:
            taken = list(self._complete)
            self._complete.clear()
        if self._failed is not None and not taken:
            raise DataError(
                "the clock of reference failed",
                detail=f"{type(self._failed).__name__}: {self._failed}",
                hint="give a clock that returns microseconds as a whole number",
            ) from self._failed
        return taken

    def wait(self, seconds: float) -> list[ClockExchange]:
        """Return the same, after waiting for one no longer than so many seconds.

        Parameters
        ----------
        seconds
            The longest wait.
        """
        most = min(a_number(seconds, "seconds"), _TIMEOUT_S_MAX)
        with self._taken:
            self._taken.wait_for(lambda: self._complete or self._failed, most)
        return self.take()

    def close(self) -> None:
        """Serve no more."""
        self._stopped.set()
        self._thread.join(10 * _TURN_S)
        self._socket.close()

    def __enter__(self) -> ClockSync:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve(self) -> None:
        self._socket.settimeout(_TURN_S)
        while not self._stopped.is_set():
            try:
                data, sender = self._socket.recvfrom(_ASK.size + 1)
                received = _time(self._clock)
                answer = self._answer(data, sender, received)
                if answer is not None:
                    self._socket.sendto(answer, sender)
            except TimeoutError:
                continue
            except OSError:
                # A sender that is gone is no reason to leave the others alone.
                if self._stopped.wait(_TURN_S / 10):
                    return
            except Exception as error:  # The clock is the user's.
                with self._taken:
                    self._failed = error
                    self._taken.notify_all()
                return

    def _answer(self, data: bytes, sender: Any, received: int) -> bytes | None:
        """Return the answer to a datagram, and complete the exchange before it."""
        question = _read_question(data)
        if question is None:
            self.counters.malformed += 1
            return None
        number, asked, before, heard, name = question
        if self._sources is not None and name.decode() not in self._sources:
            self.counters.unknown += 1
            return _TELL.pack(_SIGN, _VERSION, _REFUSAL, number, asked, received, received)
        if before:
            self._complete_exchange(name, sender, before, heard)
        answered = _time(self._clock)
        self._last[name] = sender, number, asked, received, answered
        self._last.move_to_end(name)
        if len(self._last) > SOURCES_MAX:
            self._last.popitem(last=False)
        self.counters.questions += 1
        return _TELL.pack(_SIGN, _VERSION, _ANSWER, number, asked, received, answered)

    def _complete_exchange(self, name: bytes, sender: Any, before: int, heard: int) -> None:
        known = self._last.pop(name, None)
        if known is None or known[:2] != (sender, before):
            self.counters.unmatched += 1
            return
        _, _, asked, received, answered = known
        exchange = ClockExchange(name.decode(), asked, received, answered, heard)
        with self._taken:
            if len(self._complete) == _WAITING_MAX:
                self._complete.popleft()
                self.counters.dropped += 1
            self._complete.append(exchange)
            self.counters.exchanges += 1
            self._taken.notify_all()


class ClockClient:
    """A source that asks a `ClockSync` what time it is.

    Parameters
    ----------
    address
        Host and port of the server.
    source
        The identifier of the source.
    timeout
        How many seconds it waits for an answer, at most a day.
    clock
        The clock of the source, in microseconds: that by which its events have their times.

    Examples
    --------
    >>> with ClockSync(port=0) as sync, ClockClient(sync.address, "east") as client:
    ...     exchange = client.ask()
    >>> exchange.source, exchange.asked <= exchange.heard
    ('east', True)
    """

    def __init__(
        self,
        address: tuple[str, int],
        source: str,
        *,
        timeout: float = 1.0,
        clock: Callable[[], int] = clock_time,
    ) -> None:
        self._name, self._clock = _name(source), clock
        self._timeout = a_number(timeout, "timeout")
        if self._timeout > _TIMEOUT_S_MAX:
            raise DataError(f"timeout is at most {_TIMEOUT_S_MAX} seconds, not {timeout}")
        host, port = _place(address)
        try:
            (family, kind, _, _, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            self._socket = socket.socket(family, kind)
            # Datagrams of others do not come in.
            self._socket.connect(place)
        except (OSError, UnicodeError) as error:
            raise _no_address(address, str(error)) from None
        # Who guesses numbers cannot answer for the server.
        self._number = secrets.randbits(48)
        self._last = 0, 0

    def ask(self) -> ClockExchange | None:
        """Ask once; return the exchange, or None where no answer came in time.

        The server learns of it with the next question, or with `close`.

        Raises
        ------
        DataError
            The server does not serve this source.
        """
        self._number += 1
        asked = _time(self._clock)
        before, heard = self._last
        self._last = 0, 0
        try:
            self._send(asked, before, heard)
            received, answered, heard = self._hear(asked)
        except OSError:
            return None
        self._last = self._number, heard
        return ClockExchange(self._name, asked, received, answered, heard)

    def close(self) -> None:
        """Tell the server of the last exchange, and end."""
        if self._last[0]:
            self._number += 1
            with suppress(OSError):
                self._send(_time(self._clock), *self._last)
        self._socket.close()

    def __enter__(self) -> ClockClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send(self, asked: int, before: int, heard: int) -> None:
        name = self._name.encode()
        self._socket.send(
            _ASK.pack(
                *(_SIGN, _VERSION, _QUESTION, self._number, asked, before, heard),
                *(len(name), name),
            )
        )

    def _hear(self, asked: int) -> tuple[int, int, int]:
        """Return when the question came, when its answer left, and when that was heard."""
        for left in _until(self._timeout):
            self._socket.settimeout(left)
            data = self._socket.recv(_TELL.size + 1)
            heard = _time(self._clock)
            if len(data) != _TELL.size:
                continue
            sign, version, kind, number, echoed, received, answered = _TELL.unpack(data)
            ours = (sign, version) == (_SIGN, _VERSION) and kind in (_ANSWER, _REFUSAL)
            if ours and (number, echoed) == (self._number, asked):
                if kind == _REFUSAL:
                    raise DataError(
                        f"the server of clocks does not serve the source '{self._name}'",
                        hint="name it there: outpace clock serve --source, or ClockSync([...])",
                    )
                return received, answered, heard
        raise TimeoutError


def _read_question(data: bytes) -> tuple[int, int, int, int, bytes] | None:
    """Return number, time, the exchange before and its end, and the source; None: it is none."""
    if len(data) != _ASK.size:
        return None
    sign, version, kind, number, asked, before, heard, length, padded = _ASK.unpack(data)
    if (sign, version, kind) != (_SIGN, _VERSION, _QUESTION) or not number:
        return None
    name = padded[:length]
    if not 0 < length <= _NAME_MAX or padded[length:].strip(b"\0"):
        return None
    try:
        name.decode()
    except UnicodeDecodeError:
        return None
    return number, asked, before, heard, name


def _time(clock: Callable[[], int]) -> int:
    return a_whole_number(clock(), "the time of a clock", error=DataError)


def _name(source: str) -> str:
    name = a_text(source, "the identifier of a source", error=DataError)
    check_characters(name, "the identifier of a source")
    if not 0 < len(name.encode()) <= _NAME_MAX:
        raise DataError(f"the identifier of a source has 1 to {_NAME_MAX} bytes, not '{name}'")
    return name


def _place(address: Any) -> tuple[str, int]:
    fits = isinstance(address, tuple | list) and len(address) == 2
    if not fits or not isinstance(address[0], str) or type(address[1]) is not int:
        raise _no_address(address, "it is no pair of a host and a port")
    if not 0 < address[1] <= PORT_MAX:
        raise _no_address(address, f"ports are from 1 to {PORT_MAX}")
    return address[0], address[1]


def _no_address(address: object, why: str) -> DataError:
    shown = ":".join(map(str, address)) if isinstance(address, tuple) else address
    return DataError(
        f"'{shown}' is no address of a server of clocks",
        detail=why,
        hint=f"give host and port, such as 127.0.0.1 and {PORT}",
    )


def _until(seconds: float) -> Iterator[float]:
    """Yield how many seconds are left, as long as some are."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        yield left


def _bound(host: str, port: int) -> socket.socket:
    made = None
    try:
        if port > PORT_MAX:
            raise OverflowError(f"ports are up to {PORT_MAX}")
        (family, kind, _, _, place), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
        made = socket.socket(family, kind)
        made.bind(place)
    except (OSError, OverflowError, UnicodeError) as error:
        if made is not None:
            made.close()
        raise DataError(
            f"cannot serve clocks on {host}, port {port}",
            detail=str(error),
            hint="take another port; 0 takes any that is free",
        ) from None
    return made

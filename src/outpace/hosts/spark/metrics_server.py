"""Metrics over HTTP: `/metrics` as text for Prometheus, `/metrics.json` for programs.

It listens on the loopback address unless told otherwise, only reads, and answers in threads that
end with the process: at most `CLIENTS_MAX` at a time, each for at most about `TIMEOUT_SECONDS`,
however slow its client is. What it is asked with is bounded by Python's own limits for headers. Who
asks for another host than this one is refused: a page of a stranger, opened in a browser on this
machine, would else read the metrics under a name of its own that leads here.
"""

from __future__ import annotations

import http.server
import ipaddress
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from outpace.errors import OutpaceError
from outpace.hosts.spark.metrics_text import CONTENT_TYPE

#: The port where nothing is said, and how many after it are tried if it is taken.
PORT: Final = 9468
PORTS: Final = 10

TIMEOUT_SECONDS: Final = 5.0
#: Further clients are sent away until one of these is answered.
CLIENTS_MAX: Final = 16

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_Pages = dict[str, tuple[str, Callable[[], str]]]


class MetricsServer:
    """Serves what two functions return.

    Parameters
    ----------
    text, values
        What returns the text for Prometheus, and what becomes JSON.
    host, port
        Where to listen; 0 is any free port, and None the first free one from `PORT` on.

    Raises
    ------
    OutpaceError
        The address cannot be used.

    Examples
    --------
    >>> server = MetricsServer(lambda: "", dict, "127.0.0.1", 0)
    >>> server.url.startswith("http://127.0.0.1:")
    True
    >>> server.close()
    """

    def __init__(
        self, text: Callable[[], str], values: Callable[[], Any], host: str, port: int | None
    ) -> None:
        pages: _Pages = {
            "/metrics": (CONTENT_TYPE, text),
            "/metrics.json": ("application/json", lambda: json.dumps(values())),
        }
        self._server = _listening(pages, host, port)
        name, number = self._server.server_address[:2]
        self.url = f"http://{f'[{name!s}]' if ':' in str(name) else str(name)}:{number}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="outpace metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A server that fails where another one listens, and writes nothing to standard error."""

    allow_reuse_port = False
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pages: _Pages) -> None:
        self.pages = pages
        #: The connections that are being answered, and until when they may last.
        self._clients: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)
        bound = str(self.server_address[0])
        self._is_open = bound in ("0.0.0.0", "::")
        self._hosts = _LOOPBACK | {address[0].lower(), bound}
        if self._is_open:
            name = socket.gethostname().lower()
            self._hosts |= {name, name.partition(".")[0]}

    def serves(self, host: str) -> bool:
        """Whether a Host header names this server; any address does where it listens on all."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._is_open

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take no more clients than there may be."""
        with self._lock:
            if len(self._clients) >= CLIENTS_MAX:
                return False
            self._clients[request] = time.monotonic() + TIMEOUT_SECONDS
        return True

    def shutdown_request(self, request: Any) -> None:
        """Forget a client."""
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Let go of clients that take too long; a timeout holds for each read alone."""
        now = time.monotonic()
        with self._lock:
            slow = [client for client, until in self._clients.items() if until < now]
            for client in slow:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of ours."""


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = TIMEOUT_SECONDS
    server_version = "outpace"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host", [""])
        if not all(map(self.server.serves, hosts)):
            self.send_error(421, "this server has another name")
            return
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(404, "there are /metrics and /metrics.json")
            return
        kind, content = page
        body = content().encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


def _listening(pages: _Pages, host: str, port: int | None) -> _Server:
    ports = range(PORT, PORT + PORTS) if port is None else (port,)
    for number in ports:
        try:
            return _Server((host, number), pages)
        except (OSError, OverflowError) as error:
            failed = error
    raise OutpaceError(
        f"cannot listen on {host}, port {port if port is not None else f'{PORT} or one after it'}",
        detail=str(failed),
        hint="port=0 takes any free port",
    ) from failed

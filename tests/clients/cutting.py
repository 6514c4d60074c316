"""A bad connection: a proxy on this machine that cuts a connection in the middle of what it passes on."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)  # what was not sent yet is dropped, and the other side is told at once


class Cutter:
    """Passes bytes on to a server, and back until the next of `cuts` is among them; there the connection ends."""

    def __init__(self, server: str, cuts: tuple[str, ...]) -> None:
        self._address = ("127.0.0.1", urlsplit(server).port)
        self._cuts = [cut.encode() for cut in cuts]
        self._is_closed = False
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    @property
    def left(self) -> int:
        """How often it has yet to cut."""
        return len(self._cuts)

    def close(self) -> None:
        """End every connection."""
        self._is_closed = True
        socket.create_connection(self._listener.getsockname()).close()  # wakes the thread that accepts
        self._threads[0].join()
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work, *given) -> None:
        self._threads.append(threading.Thread(target=work, args=given))
        self._threads[-1].start()

    def _accept(self) -> None:
        with self._listener:
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                if self._is_closed:
                    return
                self._open.append(server := socket.create_connection(self._address))
                self._start(self._pass_on, client, server)
                self._start(self._pass_back, server, client)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        seen = b""
        with suppress(OSError):
            while data := server.recv(65536):
                start, seen = len(seen), seen + data
                if (end := self._to_cut(seen)) is not None:
                    client.sendall(seen[start:end])
                    self._cut(server, client)
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

    def _to_cut(self, seen: bytes) -> int | None:
        with self._lock:
            if not self._cuts or (at := seen.find(self._cuts[0])) < 0:
                return None
            return at + len(self._cuts.pop(0))

    @staticmethod
    def _cut(*ends: socket.socket) -> None:
        for end in ends:
            end.shutdown(socket.SHUT_RD)  # wakes the thread that reads there
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.close()


@contextmanager
def cutting(server: str, *cuts: str) -> Iterator[Cutter]:
    """Put a bad connection before a server."""
    cutter = Cutter(server, cuts)
    try:
        yield cutter
    finally:
        cutter.close()

"""Asks NCCL's RAS service for its report: a few lines of text over a socket of the job's own process.

NCCL 2.24 and later listen on localhost, port 28028, or where NCCL_RAS_ADDR says. The client says which protocol it
speaks, may set a time-out and a format (JSON from 2.28 on; older ones answer with an error), asks for the status,
and reads until the other end closes.
"""

from __future__ import annotations

import socket
import time
from contextlib import closing
from io import BufferedRWPair

HOST, PORT = "localhost", 28028
PROTOCOL = 2
SECONDS = 8.0  # all together; NCCL itself waits 5 s for its peers by default
ASK_PEERS = 3  # seconds that NCCL waits for each of them
MOST = 1 << 20  # bytes of one report


def address(text: str) -> tuple[str, int]:
    """Where to ask: host and port of NCCL_RAS_ADDR (``host:port``), or NCCL's own.

    >>> address("[::1]:28030"), address("n3:28030"), address(""), address("n3:70000")
    (('::1', 28030), ('n3', 28030), ('localhost', 28028), ('localhost', 28028))
    """
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        return HOST, PORT
    return host.strip("[]") or HOST, int(port)


def status(named: str = "", seconds: float = SECONDS) -> str:
    """The report, as JSON where NCCL can, else as text; empty where nobody answers in time."""
    deadline = time.monotonic() + seconds
    for as_json in (True, False):
        try:
            with closing(socket.create_connection(address(named), timeout=1.0)) as connection:
                if report := _ask(connection, as_json, deadline):
                    return report
        except (OSError, ValueError):
            return ""
    return ""


def _ask(connection: socket.socket, as_json: bool, deadline: float) -> str:
    """One conversation; empty where it does not know the format."""
    connection.settimeout(max(0.1, deadline - time.monotonic()))
    stream = connection.makefile("rwb")
    if not _said(stream, f"CLIENT PROTOCOL {PROTOCOL}").upper().startswith("SERVER PROTOCOL "):
        raise ValueError("it speaks another protocol")
    _said(stream, f"TIMEOUT {ASK_PEERS}")
    if as_json and _said(stream, "SET FORMAT json").upper() != "OK":
        return ""
    stream.write(b"VERBOSE STATUS\n")
    stream.flush()
    parts, size = [], 0
    while size < MOST and time.monotonic() < deadline and (part := stream.read1(1 << 16)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:MOST].decode("utf-8", "replace")


def _said(stream: BufferedRWPair, words: str) -> str:
    stream.write(words.encode() + b"\n")
    stream.flush()
    answer: bytes = stream.readline(4096)
    return answer.decode("utf-8", "replace").strip()

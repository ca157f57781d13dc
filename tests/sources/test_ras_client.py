"""NCCL's RAS service, by a small server that speaks its protocol: new, old, and one that does not answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpslurm.sources import ras_client

JSON = '{"nccl_version":"2.28.3","communicators":[]}\n'
TEXT = "NCCL version 2.24.3 compiled with CUDA 12.8\n\nJob summary\n===========\n"


@contextmanager
def service(
    knows_json: bool = True, hello: str = "SERVER PROTOCOL 2", silent: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Address, and what was asked."""
    server = socket.create_server(("127.0.0.1", 0))
    asked: list[str] = []

    def talk(connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            as_json = False
            for line in stream:
                words = line.decode().strip()
                asked.append(words)
                if silent:
                    time.sleep(5)
                elif words.startswith("CLIENT PROTOCOL"):
                    stream.write(f"{hello}\n".encode())
                elif words.startswith("TIMEOUT"):
                    stream.write(b"OK\n")
                elif words.startswith("SET FORMAT"):
                    as_json = knows_json
                    stream.write(b"OK\n" if knows_json else b"ERROR: Unknown command\n")
                else:
                    stream.write((JSON if as_json else TEXT).encode())
                    return
                stream.flush()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{server.getsockname()[1]}", asked
    server.close()


def test_json_is_asked_for_first() -> None:
    with service() as (address, asked):
        assert JSON == ras_client.status(address)
    assert ["CLIENT PROTOCOL 2", "TIMEOUT 3", "SET FORMAT json", "VERBOSE STATUS"] == asked


def test_an_older_nccl_is_asked_again_for_text() -> None:
    with service(knows_json=False) as (address, asked):
        assert TEXT == ras_client.status(address)
    assert ["CLIENT PROTOCOL 2", "TIMEOUT 3", "VERBOSE STATUS"] == asked[3:]


@pytest.mark.parametrize("hello", ["220 mail.example ESMTP", ""])
def test_something_else_at_that_port_is_left_alone(hello: str) -> None:
    with service(hello=hello) as (address, asked):
        assert "" == ras_client.status(address)
    assert ["CLIENT PROTOCOL 2"] == asked


def test_one_that_does_not_answer_costs_its_time_and_no_more() -> None:
    began = time.monotonic()
    with service(silent=True) as (address, _):
        assert "" == ras_client.status(address, seconds=0.3)
    assert time.monotonic() - began < 2


def test_nobody_there_is_no_report() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "" == ras_client.status(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ("localhost", 28028)),
        ("n1:4000", ("n1", 4000)),
        ("[::1]:4000", ("::1", 4000)),
        ("n1:0", ("localhost", 28028)),
        ("n1:99999", ("localhost", 28028)),
        ("nonsense", ("localhost", 28028)),
    ],
)
def test_the_address_is_that_of_the_job_or_nccls_own(text: str, wanted: tuple[str, int]) -> None:
    assert wanted == ras_client.address(text)

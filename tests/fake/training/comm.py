"""A collective of our own: every rank sends a number to rank 0 and waits for the sum; no torch, no GPU."""

from __future__ import annotations

import os
import socket
import struct
import time

RANK = int(os.environ.get("RANK", os.environ["SLURM_PROCID"]))
WORLD = int(os.environ.get("WORLD_SIZE", os.environ["SLURM_NTASKS"]))
PORT = int(os.environ.get("TRAIN_PORT") or 10_000 + int(os.environ["SLURM_JOB_ID"]) % 900)


class Group:
    def __init__(self) -> None:
        self.peers: list[socket.socket] = []
        self.link_is_down = False

    def init_process_group(self) -> None:
        if RANK == 0:
            server = socket.create_server(("127.0.0.1", PORT), backlog=WORLD)
            while len(self.peers) < WORLD - 1:
                self.peers.append(server.accept()[0])
            for peer in self.peers:
                peer.sendall(b"go")
            return
        while not self.peers:
            try:
                self.peers = [socket.create_connection(("127.0.0.1", PORT))]
            except OSError:
                time.sleep(0.05)
        self.peers[0].recv(2)

    def all_reduce(self, value: int) -> int:
        return self._reduce(value)

    def barrier(self) -> None:
        """Whoever is here alone waits for ever: the others are in another collective."""
        self._number(self.peers[0])

    def _reduce(self, value: int) -> int:
        if self.link_is_down:  # nothing comes through, for nobody
            return self._number(self.peers[0])
        if RANK:
            self.peers[0].sendall(struct.pack("!q", value))
            return self._number(self.peers[0])
        total = value + sum(self._number(peer) for peer in self.peers)
        for peer in self.peers:
            peer.sendall(struct.pack("!q", total))
        return total

    def _number(self, peer: socket.socket) -> int:
        data = b""
        while len(data) < 8:
            part = peer.recv(8 - len(data))
            if not part:
                time.sleep(3600)  # a peer is gone; NCCL waits here for its watchdog
            data += part
        return struct.unpack("!q", data)[0]

"""Runs a command, and ends what it leaves behind: ``python tests/lab/contain.py COMMAND WORD...``

Tests start programs that hang, ignore signals, or hide from their parent, because hooks must live
with such. Here they cannot outlive the run: the kernel gives every orphan below this process to
it, and what is left when the command has ended is killed. Exits with the command's own status.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.lab import processes  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36


def main(words: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command as well
    signal.signal(signal.SIGTERM, lambda *_: command.send_signal(signal.SIGTERM))
    status = _wait_for(command.pid)
    for _ in range(5):  # the dying may still start others
        if left := processes.below_this():
            processes.stop(left, grace=0.5)
        _reap()
    return status


def _wait_for(wanted: int) -> int:
    """Wait for one child, and take every orphan that ends meanwhile."""
    while True:
        pid, status = os.wait()
        if pid == wanted:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Run the server by itself: ``python -m tests.aws_server SCENARIO [-- COMMAND ...]``.

With a command, it runs with an environment that points at the server, and its exit
status is ours. Without one, the environment is printed and the server stays up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.aws_server.scenario import FOLDER, load
from tests.aws_server.server import Server


def main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        print("Scenarios:", ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml"))))
        return 0 if words else 2
    server = Server(load(words[0]))
    server.start()
    try:
        if words[1:2] == ["--"] and words[2:]:
            clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            return subprocess.run(words[2:], env={**clean, **server.environ}, check=False).returncode
        for name, value in server.environ.items():
            print(f"export {name}={value}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        return 130
    finally:
        server.stop()
        if server.off_list:
            print(f"operations off the read list: {server.off_list}", file=sys.stderr)
    return 0


sys.exit(main(sys.argv[1:]))

"""After a run of all tests that failed: the few that did, once more, alone and one at a time.

Tests with real daemons wait for real things, and on a machine that others use as well a wait may be too short. What
fails twice fails; what failed beside others and passes alone is named, with its first failure left above.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache/v/cache/lastfailed")
MOST_FILES = 3  # more than these are no accident


def main() -> int:
    try:
        failed = sorted(json.loads(CACHE.read_text()))
    except (OSError, ValueError) as error:
        print(f"which tests failed is not known: {error}")
        return 1
    if not failed or len({test.partition("::")[0] for test in failed}) > MOST_FILES:
        return 1
    print(f"\n{len(failed)} failed beside the others; once more, alone:", *failed, sep="\n  ", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-p", "no:xdist", *failed], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

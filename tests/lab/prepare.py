"""Sets up what ``make test`` and ``make demo`` need; does nothing when all is there.

    python3 tests/lab/prepare.py             the virtual environment, and Slurm where we are root
    python3 tests/lab/prepare.py --daemons   fails where Slurm's daemons cannot be had

A machine with a site's Slurm is refused first. Packages come from apt, with services kept from
starting; of one only promtool is taken. Apart from these nothing is written outside the checkout
and /tmp/hpslurm-<uid>. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

if sys.version_info < (3, 10):  # noqa: UP036 - whatever python3 is
    sys.exit(f"Python 3.10 or later is needed, {sys.executable} is {sys.version.split()[0]}: PYTHON=... make test")

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[0] = CHECKOUT

from tests.lab import guard, lab  # noqa: E402

VENV = os.path.join(CHECKOUT, ".venv")
BUILD = os.path.join(CHECKOUT, "build")
CONSTRAINTS = "constraints.txt"
POLICY = "/usr/sbin/policy-rc.d"  # asked by Debian's packages before they start or stop a service
SERVICES = ("munge", "slurmctld", "slurmd", "slurmdbd", "mariadb-server")
# What shows that a package is there, and its name. The last four are for tests with a real fi_info,
# a file system that hangs, and small libraries that stand in for hardware.
PACKAGES = (
    ("munged", "munge"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("srun", "slurm-client"),
    ("fi_info", "libfabric-bin"),
    ("mkfs.ext4", "e2fsprogs"),
    ("gcc", "gcc"),
    ("ip", "iproute2"),
    ("/usr/include/stdlib.h", "libc6-dev"),
)
# For tests of the accounting: slurmdbd and its database. The demo needs none.
ACCOUNTING_PACKAGES = (("slurmdbd", "slurmdbd"), ("mariadbd", "mariadb-server"))
PROMTOOL = os.path.join(BUILD, "promtool", "promtool")
# For tests that start ranks by real MPI: mpirun, PMIx as Slurm's plugin opens it, Slurm's PMI-2. The demo needs none.
MPI_PACKAGES = (
    ("mpirun", "openmpi-bin"),
    ("/usr/lib/*/pmix2/lib/libpmix.so", "libpmix-dev"),
    ("/usr/lib/*/libpmi2.so.0", "libpmi2-0"),
)


class PrepareError(Exception):
    """Set-up cannot go on; the text says what a person can do."""


def say(text: str) -> None:
    print(f"set-up: {text}", flush=True)


# packages


def missing_packages() -> list[str]:
    return _missing(PACKAGES) + ([] if can_make_venv() else ["python3-venv"])


def _missing(packages: Sequence[tuple[str, str]]) -> list[str]:
    return [package for sign, package in packages if not _there(sign)] if os.geteuid() == 0 else []


def _there(sign: str) -> bool:
    return bool(glob.glob(sign) if sign.startswith("/") else shutil.which(sign, path=lab.SYSTEM_PATH))


def can_make_venv() -> bool:
    """Debian's python3 comes without ensurepip; python3-venv brings it."""
    if os.path.exists(os.path.join(VENV, "bin", "pip")):
        return True
    return subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0


def install(packages: list[str]) -> None:
    """By apt, with services kept from starting, now and at the next boot. Raises PrepareError."""
    if not shutil.which("apt-get"):
        raise PrepareError(f"no apt-get here; install the equivalents of: {' '.join(packages)}")
    say(f"installing with apt: {' '.join(packages)}")
    fresh = [name for name in SERVICES if name in packages]
    # The environment stays: it may name a proxy.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8"}
    options = ("-q", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0")
    with services_kept_from_starting():
        for words in (("update",), ("install", "--no-install-recommends", *packages)):
            _logged("apt", ["apt-get", *options, *words], env)
        if fresh and shutil.which("systemctl"):
            # Or munged would run after the next boot, and be taken for a site's.
            units = [name.removesuffix("-server") for name in fresh]
            subprocess.run(["systemctl", "disable", *units], env=env, stdin=subprocess.DEVNULL, capture_output=True)


@contextlib.contextmanager
def services_kept_from_starting(path: str = POLICY) -> Iterator[None]:
    """Say no to every service start for a while; a policy that is there already comes back afterwards."""
    kept = f"{path}.before-hpslurm"
    if os.path.lexists(path) and not os.path.lexists(kept):  # where both exist an earlier run was killed
        os.rename(path, kept)
    with open(path, "w") as file:
        file.write("#!/bin/sh\nexit 101\n")
    os.chmod(path, 0o755)
    try:
        yield
    finally:
        if os.path.lexists(kept):
            os.replace(kept, path)
        else:
            os.unlink(path)


def _logged(name: str, words: list[str], env: Mapping[str, str], folder: str = CHECKOUT) -> None:
    """Run a long command quietly; its output is in build/ and, when it fails, on the screen."""
    os.makedirs(BUILD, exist_ok=True)
    path = os.path.join(BUILD, f"{name}.log")
    with open(path, "w") as log:
        done = subprocess.run(words, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    if done.returncode:
        with open(path, errors="replace") as log:
            end = "".join(log.readlines()[-15:])
        raise PrepareError(f"{' '.join(words)} failed with exit status {done.returncode} ({path}):\n{end}")


def promtool() -> str:
    """The path of promtool, which tests of metrics and alert rules ask; empty where there is none."""
    return shutil.which("promtool", path=lab.SYSTEM_PATH) or (PROMTOOL if os.access(PROMTOOL, os.X_OK) else "")


def get_promtool() -> None:
    """Take promtool out of its package, without root. Raises PrepareError.

    The package is not installed: in Debian 12 it is prometheus, 332 MB with what it needs, with a service and a user.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PrepareError("no apt-get and dpkg-deb here; promtool, of Prometheus, can be put on the PATH")
    say("taking promtool out of its package")
    folder = os.path.dirname(PROMTOOL)
    shutil.rmtree(folder, ignore_errors=True)
    unpacked = os.path.join(folder, "unpacked")
    os.makedirs(unpacked)
    try:
        _download_promtool(folder)
    except PrepareError:  # lists of packages that are old, or not there yet
        if os.geteuid() != 0:
            raise
        _logged("apt", ["apt-get", "-q", "update"], os.environ)
        _download_promtool(folder)
    (package,) = (entry.path for entry in os.scandir(folder) if entry.name.endswith(".deb"))
    _logged("promtool", ["dpkg-deb", "-x", package, unpacked], os.environ)
    os.replace(os.path.join(unpacked, "usr", "bin", "promtool"), PROMTOOL)
    shutil.rmtree(unpacked)
    os.unlink(package)


def _download_promtool(folder: str) -> None:
    """From Debian 13 on it has a package of its own."""
    try:
        _logged("promtool", ["apt-get", "-q", "download", "promtool"], os.environ, folder)
    except PrepareError:
        _logged("promtool", ["apt-get", "-q", "download", "prometheus"], os.environ, folder)


# the virtual environment


def make_venv() -> None:
    """Create or refresh .venv; nothing to do while what is asked for, Python and the place are the same."""
    asked = b"".join(_bytes(os.path.join(CHECKOUT, name)) for name in ("pyproject.toml", CONSTRAINTS))
    wanted = f"{sys.version.split()[0]}\n{sys.base_prefix}\n{CHECKOUT}\n{hashlib.sha256(asked).hexdigest()}\n"
    stamp = os.path.join(VENV, "hpslurm-ready")
    python = os.path.join(VENV, "bin", "python")
    if _text(stamp) == wanted and os.access(python, os.X_OK):
        return
    if not os.access(CHECKOUT, os.W_OK):
        raise PrepareError(f"this user may not write {CHECKOUT}: work in a clone of your own")
    began = time.monotonic()
    say(f"virtual environment with Python {sys.version.split()[0]} in {VENV}")
    env = {**os.environ, "PIP_CACHE_DIR": os.path.join(BUILD, "pip"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    env |= {"PIP_ROOT_USER_ACTION": "ignore", "TMPDIR": lab.BASE}
    # The tests run with one version of each package. Relative to the checkout, for pip takes blanks in it for an end.
    env |= {"PIP_CONSTRAINT": CONSTRAINTS, "PIP_BUILD_CONSTRAINT": CONSTRAINTS}
    # Packages of another Python, or of a place from which the folder was moved, would not run.
    clear = ["--clear"] if _text(stamp).splitlines()[:3] != wanted.splitlines()[:3] else []
    _logged("venv", [sys.executable, "-m", "venv", *clear, VENV], env)
    _logged("pip", [python, "-m", "pip", "install", "--no-input", "-e", ".[test]"], env)
    with open(stamp, "w") as file:
        file.write(wanted)
    say(f"virtual environment ready after {time.monotonic() - began:.0f} s")


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


# all of it


def prepare(daemons: bool) -> None:
    """Raises PrepareError, or LabError; ``daemons`` says that there is no going on without Slurm."""
    if found := guard.signs():
        raise PrepareError(guard.refusal(found))
    if daemons and os.geteuid() != 0:
        raise PrepareError(
            "the demo starts real Slurm daemons, and so needs root: sudo make demo\n"
            "(slurmd starts jobs for other users; nothing listens beyond 127.0.0.1). make test runs without root."
        )
    lab.base_folder()
    if missing := missing_packages():
        try:
            if os.geteuid() != 0:
                raise PrepareError(f"{sys.executable} cannot make a virtual environment: install python3-venv")
            install(missing)
        except PrepareError as error:
            if daemons or "python3-venv" in missing:
                raise
            say(f"{error}\nset-up: going on without")
    if not daemons and (absent := _missing(MPI_PACKAGES)):
        try:
            install(absent)
        except PrepareError as error:
            say(f"{error}\nset-up: going on without; tests with real MPI are left out")
    if not daemons and (absent := _missing(ACCOUNTING_PACKAGES)):
        try:
            install(absent)
        except PrepareError as error:
            say(f"{error}\nset-up: going on without; tests of the accounting are left out")
    if daemons and (absent := lab.missing_programs()):
        raise PrepareError(f"not installed: {', '.join(absent)}")
    make_venv()
    if not daemons and not promtool():
        try:
            get_promtool()
        except (PrepareError, OSError, ValueError) as error:
            say(f"{error}\nset-up: going on without promtool")
    for folder in lab.stop_abandoned():
        say(f"stopped a lab that a killed run had left in {folder}")


def main(words: list[str]) -> int:
    try:
        prepare("--daemons" in words)
    except (PrepareError, lab.LabError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

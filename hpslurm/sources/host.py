"""The door to this machine: files, free space, environment, and a few programs.

Everything is read below ``root``, so that a saved machine can stand in for a real one.
A program is started by its name from ``COMMANDS``: no shell, no PATH, no stdin, no
options from callers, and always a time limit. A program that may hang is started
first and collected last. One that is stuck in the kernel cannot be killed: it is left
behind by name, and the lock it holds keeps a second one from joining it.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping

from hpslurm.core.expected import Expected
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean, whole
from hpslurm.core.values import dataclass

PAGE = 4096  # bytes; a sysfs attribute is never longer, and comes with one read
MOST_BYTES = 1 << 20  # of one file, and of one program's output
NO_LOCK = -1
STUCK = "D"  # the state of a process that waits in the kernel and cannot be killed
KILL_GRACE = 0.3  # seconds after SIGKILL in which a process that can die does

# Our own package by its place (a folder or a zip file), because -I ignores PYTHONPATH.
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PYSLURM_CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]); from hpslurm.sources import pyslurm_child as child; child.main()"
)
_NVML_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from hpslurm.sources import nvml; nvml.main()"


@dataclass(frozen=True)
class Command:
    """Where a program may be, the options it always gets, and its whole environment.

    ``settings`` are variables that come from our environment, else hold the first of
    these files that exists, else stay unset. ``most`` bounds each output, in bytes.
    ``terminal`` gives it a terminal to read from, on which nobody types.
    """

    candidates: tuple[str, ...]
    options: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    most: int = MOST_BYTES
    called: str = ""  # in messages, where the words of the command tell a person nothing
    terminal: bool = False


# sudo drops SLURM_CONF and /opt/slurm from PATH. HyperPod's controller, Debian (new and old), a node
# without a file of its own (configless: slurmd's cache).
SLURM_CONF = (
    "SLURM_CONF",
    (
        "/opt/slurm/etc/slurm.conf",
        "/etc/slurm/slurm.conf",
        "/etc/slurm-llnl/slurm.conf",
        "/run/slurm/conf/slurm.conf",
        "/var/spool/slurmd/conf-cache/slurm.conf",
    ),
)


def _slurm(program: str, *options: str, most: int = 64 << 20) -> Command:
    """Times are asked for in UTC: text forms carry no zone."""
    return Command((f"/opt/slurm/bin/{program}", f"/usr/bin/{program}"), options, (("TZ", "UTC"),), (SLURM_CONF,), most)


def _pyslurm(what: str) -> Command:
    """Our own interpreter: importing pyslurm may end the process, and a call may never return."""
    options = ("-I", "-B", "-c", _PYSLURM_CHILD, _OURS, what)
    return Command((sys.executable,), options, settings=(SLURM_CONF,), most=64 << 20, called="pyslurm")


# Foreign text (a path, a name, a reason) stands last, so that it cannot shift the others.
SACCT_FIELDS = (
    "JobIDRaw,JobID,User,UID,GID,State,ExitCode,DerivedExitCode,Partition,Submit,Start,End,NodeList,"
    "Reason,WorkDir,JobName"
)
SACCT_MARK = "\x1f"
# Of many jobs: nothing that a user may write (names, paths, comments), so that no row can be imitated.
SACCT_ENDED_FIELDS = "JobIDRaw,State,ExitCode,Start,End,User,Partition,NodeList"
EVENT_FIELDS = "Cluster,NodeName,TimeStart,TimeEnd,State,User,Reason"
_SACCT = ("-X", "-n", "-P", f"--delimiter={SACCT_MARK}", f"--format={SACCT_FIELDS}")
_FAILED = ("-S", "now-1day", "-E", "now", "-s", "BF,CA,DL,F,NF,OOM,PR,TO")
SQUEUE_FORMAT = "%A|%T|%u|%U|%P|%D|%S|%e|%N|%r"  # no job name: nobody needs it here, and anybody writes it

# Installed beside us (the extra "hang"), else where a person would find it; no hook starts it.
_SPY_FOLDERS = (
    os.path.dirname(sys.executable),
    "/usr/local/bin",
    "/usr/bin",
    *(folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/")),
)

COMMANDS = {
    # 10,000 nodes are 24 MB of JSON or 5 MB of text. One line per node (-o) would turn a line break in a
    # reason into blanks that a comment can imitate; the long form indents it.
    "scontrol_nodes_json": _slurm("scontrol", "--json", "show", "nodes", most=256 << 20),
    "scontrol_nodes": _slurm("scontrol", "show", "nodes"),
    "scontrol_job_json": _slurm("scontrol", "--json", "show", "job"),
    "scontrol_job": _slurm("scontrol", "-d", "show", "job"),
    # slurmd prints its release without a configuration, scontrol only with one.
    "slurmd_version": Command(("/opt/slurm/sbin/slurmd", "/usr/sbin/slurmd"), ("-V",)),
    "scontrol_version": _slurm("scontrol", "-V"),
    "scontrol_ping": _slurm("scontrol", "ping"),
    "scontrol_config": _slurm("scontrol", "show", "config"),
    "pyslurm_nodes": _pyslurm("nodes"),
    "pyslurm_jobs": _pyslurm("jobs"),
    "sacctmgr": _slurm("sacctmgr", "-n", "-P", "list", "cluster", "format=Cluster"),
    "sinfo": _slurm("sinfo", "-a"),
    "squeue": _slurm("squeue", "-h", "-a", "-o", SQUEUE_FORMAT),
    # Text: the JSON of 22.05 calls failed jobs SUCCESS.
    "sacct": _slurm("sacct", *_SACCT, "-j"),
    "sacct_day": _slurm("sacct", *_SACCT, *_FAILED, "-u"),
    "sacct_day_all": _slurm("sacct", *_SACCT, *_FAILED, "-a"),
    "sacct_line": _slurm(
        *("sacct", "-X", "-n", "-P", f"--delimiter={SACCT_MARK}", "--format=JobIDRaw,UID,SubmitLine", "-j")
    ),
    # Every run of requeued jobs, too (-D); a page of time, since a month may hold a million jobs.
    "sacct_ended": _slurm(
        *("sacct", "-a", "-X", "-D", "-n", "-P", f"--delimiter={SACCT_MARK}", f"--format={SACCT_ENDED_FIELDS}"),
        *("--starttime={}", "--endtime={}"),
    ),
    "sacctmgr_events": _slurm("sacctmgr", "-n", "-P", "show", "event", f"format={EVENT_FIELDS}", "start={}"),
    # FI_HMEM=system: without it libfabric starts CUDA on a GPU that may be sick or another job's.
    "fi_info": Command(("/opt/amazon/efa/bin/fi_info", "/usr/bin/fi_info"), ("-p", "efa"), (("FI_HMEM", "system"),)),
    "systemctl_active": Command(("/usr/bin/systemctl", "/bin/systemctl"), ("is-active", "--")),
    "chronyc": Command(("/usr/bin/chronyc",), ("-n", "tracking")),
    # The name service itself may hang on a dead server; a child can be left behind, a call of ours cannot.
    "getent": Command(("/usr/bin/getent",), ("ahosts",)),
    "iptables_save": Command(("/usr/sbin/iptables-legacy-save", "/usr/sbin/iptables-save"), ("-t", "filter")),
    "nft": Command(("/usr/sbin/nft",), ("-s", "-n", "list", "ruleset")),
    # With /dev/null to read from it ends at once. The response to StartSession comes by a variable.
    "session_manager_plugin": Command(
        (
            "/usr/local/sessionmanagerplugin/bin/session-manager-plugin",
            "/usr/local/bin/session-manager-plugin",
            "/usr/bin/session-manager-plugin",
        ),
        settings=(("AWS_SSM_START_SESSION_RESPONSE", ()),),
        terminal=True,
    ),
    # --nonblocking: the process is not paused. Never --locals: values of variables are nobody's business.
    "py_spy": Command(
        tuple(dict.fromkeys(f"{folder}/py-spy" for folder in _SPY_FOLDERS)),
        ("dump", "--json", "--nonblocking", "--full-filenames", "--pid"),
    ),
    # Our own interpreter, because a call into the GPU driver may never return. LD_LIBRARY_PATH: a
    # container may have NVML's library in a place that only this variable names.
    "nvml": Command(
        (sys.executable,), ("-I", "-B", "-c", _NVML_CHILD, _OURS), settings=(("LD_LIBRARY_PATH", ()),), called="NVML"
    ),
}


@dataclass(frozen=True)
class Output:
    """What a program printed, cut to its command's ``most``; ``status`` is negative for a signal.

    ``late`` says why we stopped waiting for it, or is empty; ``out`` is then what came until then. ``seconds`` is how
    long it was seen to run: what ended while nobody waited for it may have run a little longer.
    """

    status: int
    out: str
    err: str = ""
    late: str = ""
    left: Left | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Left:
    """A process that outlived SIGKILL, or one of an earlier look that still holds the lock."""

    pid: int
    state: str  # as in /proc/<pid>/stat: D is stuck in the kernel
    seconds: float  # since it was started
    where: str = ""  # the kernel function it waits in, where we may read it


class Busy(Unknown):
    """Another process of ours runs the same program on this machine, and holds the lock."""

    def __init__(self, message: str, left: Left | None) -> None:
        super().__init__(message)
        self.left = left


@dataclass(frozen=True)
class Space:
    """Free and total bytes and inodes of the file system that holds a path."""

    total: int
    free: int
    inodes: int
    inodes_free: int


BROKEN = 99  # of a child: it ended without an answer


def _touch(path: str) -> int:
    try:
        os.stat(path)
        os.statvfs(path)
    except OSError as error:
        return error.errno or BROKEN
    return 0


def _lock_name(path: str) -> str:
    """A file name of its own for each path."""
    return "reach-" + "".join(sign if sign.isalnum() and sign.isascii() else f"_{ord(sign):x}_" for sign in path)[-200:]


def space_of(df: str, path: str) -> Space | None:
    """The line of a path in what ``df -B1 --output=target,size,avail,itotal,iavail`` prints, or None.

    >>> space_of('''
    ... Mounted on         1B-blocks         Avail    Inodes     IFree
    ... /dev/shm       1099511627776 1099511627776 268435456 268435400
    ... ''', "/dev/shm")
    Space(total=1099511627776, free=1099511627776, inodes=268435456, inodes_free=268435400)
    """
    for line in df.splitlines():
        words = line.split()
        if len(words) == 5 and words[0] == path and all(whole(word) is not None for word in words[1:]):
            return Space(*map(int, words[1:]))
    return None


class _Child:
    """A running program, and what it printed so far."""

    def __init__(self, name: str, pid: int, out: int, err: int, terminal: int = -1) -> None:
        self.name = name
        self.terminal = terminal  # our end of it; -1 where there is none
        self.pid = pid
        self.began = time.monotonic()
        self.ran = 0.0  # seconds, as far as was seen
        self.parts = {out: bytearray(), err: bytearray()}
        self.open = {out, err}
        self.status: int | None = None

    def age(self) -> float:
        return time.monotonic() - self.began

    def text(self, which: int) -> str:
        part = list(self.parts.values())[which]
        del part[COMMANDS[self.name].most :]  # no copy: this may be megabytes
        return part.decode("utf-8", "replace")

    @property
    def program(self) -> str:
        """``scontrol --json show nodes``: what a person would type."""
        command = COMMANDS[self.name]
        return command.called or clean(" ".join([os.path.basename(command.candidates[0]), *command.options]), 60)

    def ended(self) -> bool:
        if self.status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None


REST = 300.0  # seconds for which a program that failed or was late is left alone by hooks
AT_ONCE = 0.005  # seconds; who waits longer for a pipe has found it empty at first


class Host:
    """One machine. ``seconds`` bounds all programs together, counted from now."""

    def __init__(
        self,
        root: str = "/",
        *,
        env: Mapping[str, str] | None = None,
        in_hook: bool = False,
        seconds: float = 20.0,
        locks: str = "",
    ) -> None:
        self.root = root.rstrip("/")
        self.env: Mapping[str, str] = os.environ if env is None else env
        self.in_hook = in_hook
        self.deadline = time.monotonic() + seconds
        self.locks = locks
        self.expected = Expected()  # what the site's policy says must be here
        self.mount_answer_max = 2.0  # seconds; the policy's
        self._pids: dict[str, int] = {}
        self.shared: dict[str, tuple[str, ...]] = {}  # lists that several probes of one look need
        self._children: dict[tuple[str, ...], _Child | Output] = {}

    # files

    def path(self, path: str) -> str:
        return self.root + path

    def read(self, path: str, most: int = MOST_BYTES) -> str:
        """The text of a file, cut to ``most`` bytes; raises OSError as open() does."""
        return self.read_bytes(path, most).decode("utf-8", "replace")

    def read_bytes(self, path: str, most: int = MOST_BYTES) -> bytes:
        """The first ``most`` bytes of a file, as they are."""
        handle = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            parts, left = [], most
            while left > 0 and (part := os.read(handle, min(left, 1 << 16))):
                parts.append(part)
                left -= len(part)
        finally:
            os.close(handle)
        return b"".join(parts)

    def read_end(self, path: str, most: int = MOST_BYTES) -> str:
        """The last ``most`` bytes of a file, without the line that they cut; raises OSError as open() does."""
        handle = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            begin = max(0, os.fstat(handle).st_size - most)
            data = os.pread(handle, most, begin)
        finally:
            os.close(handle)
        return (data.partition(b"\n")[2] if begin else data).decode("utf-8", "replace")

    def word(self, path: str) -> str | None:
        """The one line of a sysfs file, or None where it does not exist."""
        try:
            handle = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return os.read(handle, PAGE).decode("utf-8", "replace").strip("\0 \t\n")
        finally:
            os.close(handle)

    def glob(self, pattern: str) -> list[str]:
        """Paths on the machine, without the root in front, sorted."""
        paths = glob.glob(glob.escape(self.root) + pattern)
        return sorted(path[len(self.root) :] for path in paths)

    def exists(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def space(self, path: str) -> Space:
        """Space of the file system below ``path``; a saved machine has it in ``commands/df.txt``."""
        if self.root:
            return self._saved_space(path)
        about = os.statvfs(path)
        size = about.f_frsize
        return Space(about.f_blocks * size, about.f_bavail * size, about.f_files, about.f_favail)

    def _saved_space(self, path: str) -> Space:
        space = space_of(self.read("/commands/df.txt"), path)
        if space is None:
            raise Unknown(f"commands/df.txt has no line for {path}")
        return space

    def reach(self, path: str) -> int | str:
        """0, the number of the error that the file system answers with, or in words why there is no answer.

        A mount whose server is gone holds whoever touches it, so a child does, and waits at its own lock for
        the one of an earlier look. A saved machine lists what does not answer in ``commands/unreachable.txt``.
        Raises Unknown where nobody can be sent.
        """
        if self.root:
            return self._saved_reach(path)
        if not self.locks:
            raise Unknown(f"{path} is only looked at by hooks: what hangs must not be touched twice")
        from hpslurm.core import records

        seconds = min(self.mount_answer_max, self.deadline - time.monotonic())
        if seconds <= 0:
            raise Unknown(f"no time left to look at {path}")
        answer = records.in_child(lambda: _touch(path), seconds, self.locks, _lock_name(path))
        if isinstance(answer, str) and answer.startswith("no lock"):
            raise Unknown(f"{path}: {answer}")
        if answer in (BROKEN, *range(-64, 0)):  # a child that was killed or broke says nothing of the path
            raise Unknown(f"{path}: the child that looked at it ended with {answer}")
        return answer

    def _saved_reach(self, path: str) -> int | str:
        if self.exists("/commands/unreachable.txt") and path in self.read("/commands/unreachable.txt").split():
            return f"no answer within {self.mount_answer_max:.1f} s"
        mounted = f" {path} " in self.read("/proc/self/mounts")  # its folder is empty, and may not have been saved
        return 0 if mounted or self.exists(path) else errno.ENOENT

    def uptime(self) -> float:
        """Seconds since boot. Raises Unknown."""
        text = self.read("/proc/uptime")
        words = text.split(".", 1)
        seconds = whole(words[0])
        if seconds is None or not words[1:] or not words[1][:1].isdigit():
            raise Unknown("/proc/uptime shows no number")
        return float(seconds)

    def number(self, path: str) -> int | None:
        """The one whole number of a sysfs file, or None where it does not exist. Raises Unknown for other text."""
        text = self.word(path)
        if text is None:
            return None
        number = whole(text)
        if number is None:
            raise Unknown(f"{path} is not a number: {clean(text, 40)!r}")
        return number

    # processes

    def pid_of(self, name: str) -> int:
        """Our own ancestor of that name, else the oldest process of it; root's (or our own). Raises Unknown.

        A user can call a process anything, so the name alone is no proof. A hook is a descendant of its
        slurmd: looking upwards costs three files, where a p5 has some thousand processes.
        """
        if name in self._pids:
            return self._pids[name]
        for pid in self._ancestors():
            if self._is(pid, name):
                self._pids[name] = pid
                return pid
        by_age = []
        for path in self.glob("/proc/[0-9]*/comm"):
            pid = int(path.split("/")[2])
            try:
                if self._is(pid, name):
                    by_age.append((self._start_ticks(pid), pid))
            except (OSError, ValueError, IndexError):  # it ended meanwhile
                continue
        if not by_age:
            raise Unknown(f"no process named {name} of root is running")
        self._pids[name] = min(by_age)[1]
        return self._pids[name]

    def _is(self, pid: int, name: str) -> bool:
        path = f"/proc/{pid}/comm"
        try:
            return os.stat(self.path(path)).st_uid in (0, os.geteuid()) and self.word(path) == name
        except OSError:
            return False

    def _ancestors(self) -> Iterator[int]:
        """Our parent, its parent, and so on; none on a saved machine."""
        pid = 0 if self.root else os.getppid()
        while pid > 1:
            yield pid
            try:
                pid = int(self.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return

    def _start_ticks(self, pid: int) -> int:
        return int(self.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])

    # programs

    def start(self, name: str, *words: str) -> None:
        """Start a program of COMMANDS unless it runs already; ``run`` collects it.

        Raises Unknown where it is not installed. Where another process of ours runs it
        just now, nothing is started yet: ``run`` waits for that one.
        """
        self._start(name, words, wait=False)

    def _start(self, name: str, words: tuple[str, ...], *, wait: bool) -> None:
        key = (name, *words)
        if key in self._children:
            return
        if any(word.startswith("-") for word in words):
            raise ValueError(f"options of {name} belong into COMMANDS: {words}")
        command = COMMANDS[name]
        program = next((path for path in command.candidates if os.access(self.path(path), os.X_OK)), None)
        if program is None:
            self._children[key] = self._saved_output(name, command, words)
            return
        lock = self._lock(name, wait)
        if lock is None:
            return
        try:
            child = self._spawn(
                name, [self.path(program), *_filled(command.options, words)], self._environment(command)
            )
            self._children[key] = child
            _sign(lock, child.pid)
        except OSError as error:
            raise Unknown(f"could not start {program}: {error.strerror}") from error
        finally:
            if lock != NO_LOCK:
                os.close(lock)  # the child keeps it until it is really gone

    def _environment(self, command: Command) -> dict[str, str]:
        env = dict(command.env)
        for name, files in command.settings:
            named = self.env.get(name)
            if named and not self.root and not self.exists(named):  # Slurm's programs wait a minute for it
                raise Unknown(f"{name} names {named}, which does not exist; unset it, or name the file in use")
            value = named or next((path for path in files if self.exists(path)), "")
            if value:
                env[name] = value
        return env

    def _spawn(self, name: str, words: list[str], env: dict[str, str]) -> _Child:
        # not subprocess: importing it costs a hook as much as everything else that it does here
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        stdin: tuple[object, ...] = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        terminal: tuple[int, ...] = ()
        if COMMANDS[name].terminal:
            terminal = os.openpty()
            stdin = (os.POSIX_SPAWN_DUP2, terminal[1], 0)
        try:
            pid = os.posix_spawn(
                words[0],
                words,
                {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **env},
                file_actions=[
                    stdin,
                    (os.POSIX_SPAWN_DUP2, out_end, 1),
                    (os.POSIX_SPAWN_DUP2, err_end, 2),
                ],
                # Slurm ends the hook's process group with the hook, which reaches grandchildren too;
                # elsewhere a group of its own lets us end them.
                setpgroup=os.getpgrp() if self.in_hook else 0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT],
            )
        except OSError:
            for fd in (out, err, *terminal[:1]):
                os.close(fd)
            raise
        finally:
            for fd in (out_end, err_end, *terminal[1:]):
                os.close(fd)
        return _Child(name, pid, out, err, terminal[0] if terminal else -1)

    def run(self, name: str, *words: str) -> Output:
        """What the program printed. Raises Unknown when it did not end within the time."""
        output = self.answer(name, *words)
        if output.late:
            raise Unknown(output.late)
        return output

    def forget(self, name: str) -> None:
        """What this program printed is not needed any more; asked again, it is run again."""
        if isinstance(self._children.get((name,)), Output):
            del self._children[name,]

    def rests(self, name: str) -> str:
        """Why this program is not asked now: it failed or was late a while ago. Empty where it may be asked."""
        try:
            ago = time.time() - os.stat(f"{self.locks}/{name}.late").st_mtime if self.locks else REST
        except OSError:
            return ""
        return f"{name} failed or was late {ago:.0f} s ago, asked again after {REST:.0f} s" if 0 <= ago < REST else ""

    def rest(self, name: str) -> None:
        """It failed or was late: for a while nobody here asks it again, or each job would wait for it."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(f"{self.locks}/{name}.late", flags, 0o600) if self.locks else -1
        except OSError:
            return
        if handle >= 0:
            os.utime(handle)
            os.close(handle)

    def answer(self, name: str, *words: str) -> Output:
        """Like ``run``, but a program that is late is no exception: what came is in ``out``."""
        self._start(name, words, wait=True)
        key = (name, *words)
        child = self._children[key]
        if isinstance(child, _Child):
            child = self._collect(child)
            self._children[key] = child
        return child

    def _saved_output(self, name: str, command: Command, words: tuple[str, ...]) -> Output:
        for saved in ("-".join((name, *words)), name):  # commands/getent-ip-10-1-0-3.txt, else commands/getent.txt
            if self.root and self.exists(f"/commands/{saved}.txt"):
                status = self.word(f"/commands/{saved}.status") or "0"
                return Output(int(status), self.read(f"/commands/{saved}.txt", command.most))
        program = os.path.basename(command.candidates[0])
        raise Unknown(f"{program} is not installed: none of {', '.join(command.candidates)}")

    def _lock(self, name: str, wait: bool) -> int | None:
        """Held by the child, so that one stuck in the kernel is never joined by a second.

        None: another one has it, and we shall not wait. NO_LOCK: there is none to hold.
        """
        if not self.locks:
            return NO_LOCK
        path = f"{self.locks}/{name}.lock"
        try:
            os.makedirs(self.locks, mode=0o700, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:  # a full or read-only disk is no reason to look away
            return NO_LOCK
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.set_inheritable(handle, True)
                return handle
            except BlockingIOError:
                holder = _holder(handle)
                if not wait:
                    os.close(handle)
                    return None
                if time.monotonic() > self.deadline:
                    os.close(handle)
                    told = f", process {holder.pid} in state {holder.state}" if holder else ""
                    raise Busy(f"another {name} still runs ({path}{told}); not starting a second", holder) from None
                time.sleep(0.02)

    def _collect(self, wanted: _Child) -> Output:
        while wanted.open:
            left = self.deadline - time.monotonic()
            running = {fd: child for child in self._children.values() if isinstance(child, _Child) for fd in child.open}
            asked = time.monotonic()
            ready = select.select(list(running), [], [], max(0.0, left))[0]
            waited = time.monotonic() - asked > AT_ONCE
            for fd, child in running.items():
                if waited or fd not in ready:
                    child.ran = child.age()
            for fd in ready:
                _take(running[fd], fd)
            if not ready and left <= 0:
                return self._late(wanted, f"{wanted.program} did not answer within {wanted.age():.1f} s")
        return self._reap(wanted)

    def _reap(self, child: _Child) -> Output:
        """Both pipes are closed, so it is ending; one that is not must not hold us."""
        while not child.ended():
            if time.monotonic() > self.deadline:
                return self._late(child, f"{child.program} closed its output but did not end")
            time.sleep(0.001)
        self._end(child)
        assert child.status is not None
        return Output(child.status, child.text(0), child.text(1), seconds=child.ran)

    def _late(self, child: _Child, why: str) -> Output:
        """Kill it, and see whether it can be killed at all."""
        self._end(child)
        until = time.monotonic() + KILL_GRACE
        while not child.ended() and time.monotonic() < until:
            time.sleep(0.005)
        left = None if child.ended() else left_behind(child.pid)
        told = f"{why}; ended"
        if left:
            told = f"{why} and cannot be killed: process {left.pid} is left behind in state {left.state}"
        return Output(-signal.SIGKILL, child.text(0), child.text(1), told, left, child.ran)

    def _end(self, child: _Child) -> None:
        """Kill without waiting: a process stuck in the kernel cannot be killed."""
        for fd in (*child.parts, child.terminal):
            try:
                os.close(fd)
            except OSError:
                continue
        child.open.clear()
        child.terminal = -1
        if not child.ended():
            try:
                (os.kill if self.in_hook else os.killpg)(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def end_all(self) -> None:
        """End every program that nobody collected; one that can die is gone afterwards."""
        running = [child for child in self._children.values() if isinstance(child, _Child)]
        for child in running:
            self._end(child)
        until = time.monotonic() + KILL_GRACE
        while any(not child.ended() for child in running) and time.monotonic() < until:
            time.sleep(0.005)


def _filled(options: tuple[str, ...], words: tuple[str, ...]) -> list[str]:
    """The words behind the options; first those that options have a place for, written {}."""
    left = list(words)
    made = [option.replace("{}", left.pop(0)) if "{}" in option and left else option for option in options]
    return [*made, *left]


def _take(child: _Child, fd: int) -> None:
    try:
        part = os.read(fd, 1 << 16)
    except BlockingIOError:
        return
    if not part:
        child.open.discard(fd)
    elif len(child.parts[fd]) < COMMANDS[child.name].most:
        child.parts[fd] += part


def left_behind(pid: int) -> Left | None:
    """How a process of this machine (never of a saved one) is doing; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        with open("/proc/uptime") as file:
            uptime = float(file.read().split()[0])
        seconds = uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    try:
        with open(f"/proc/{pid}/wchan") as file:
            where = clean(file.read(), 60).strip("0")
    except OSError:
        where = ""
    return None if words[0] in "ZX" else Left(pid, words[0], round(seconds, 1), where)


def _sign(lock: int, pid: int) -> None:
    """Write who holds the lock into it; without it a later look only has a poorer message."""
    try:
        if lock != NO_LOCK:
            os.pwrite(lock, b"%-20d\n" % pid, 0)
    except OSError:
        return


def _holder(lock: int) -> Left | None:
    word = os.pread(lock, 32, 0).strip()
    return left_behind(int(word)) if word.isdigit() else None


def error_of(output: Output) -> str:
    """The last line a program wrote to stderr, harmless, or its exit status in words."""
    lines = [line for line in output.err.splitlines() if line.strip()]
    return clean(lines[-1]) if lines else f"exit status {output.status}"

"""Lines of programs and of what started them: exceptions, signals, launchers' summaries."""

from __future__ import annotations

import re

from hpslurm.core import linear
from hpslurm.core.text import whole
from hpslurm.scan import prefix
from hpslurm.scan.hit import Context, Hit, check

# The class name says that another process or another line is to blame.
_WRAPPERS = linear.late(
    r"(?:ChildFailedError|DistBackendError|DistNetworkError|DistStoreError|ProcessRaisedException|ProcessExitedException|CalledProcessError|"
    r"RayTaskError\S*|RayActorError|ActorDiedError|EngineDeadError|SystemExit|KeyboardInterrupt|SignalException|ConnectionResetError|"
    r"ConnectionAbortedError|BrokenPipeError|EOFError|ConnectionError|ConnectionRefusedError|CancelledError|RendezvousConnectionError|"
    r"RendezvousTimeoutError|RendezvousClosedError|WorkerTerminated|SubprocessTerminated)$"
)


_OTHERS_FAULT = linear.late(
    r"NCCL|nccl|[Ww]atchdog|TCPStore|[Cc]onnection (?:reset|closed|refused|timed|aborted|lost)|Broken pipe|timed out|Socket Timeout|"  # noqa: E501
    r"Engine (?:core|process)|EngineCore|[Cc]ancelled|exited unexpectedly|process \d+ terminated|[Ll]ost connection|[Gg]loo|"  # noqa: E501
    r"remote (?:process|peer|rank)|[Pp]eer (?:closed|reset|gone)|[Ww]orker failed|Horovod has been shut down|onitoredBarrier|onitored_barrier|inconsistent 0 params|store->|HCCL|RCCL|hccl|died unexpectedly|wait timeout|more than 1EB"  # noqa: E501
)


@check("exception")
def _exception(hit: Hit, match: re.Match[str], context: Context) -> bool:
    name = match["cls"]
    if _WRAPPERS.search(name) or _OTHERS_FAULT.search(hit.text[:300]):
        return False
    if name.endswith(("Warning",)) or "ignored" in hit.text[:60]:
        return False
    hit.facts["class"] = name
    if name.rsplit(".", 1)[-1] in ("MemoryError", "_ArrayMemoryError"):
        hit.turn("exception-memory")
    return True


_EXCEPTION_LINE = linear.late(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: .*|:?)$")


_SHM_FRAMES = linear.late(
    r"multiprocessing/(?:spawn|resource_tracker|resource_sharer|synchronize|shared_memory|reduction|heap|popen\w*)\.py"
)


@check("traceback")
def _traceback(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Walks to the exception that ends a traceback, also among other ranks' lines."""
    frames, exception = _end_of_traceback(prefix.read(hit.line), context)
    ended = _EXCEPTION_LINE.match(exception)
    if ended is None:
        hit.turn("traceback-cut")
        hit.facts["cut"] = "yes"
    elif _shm_file_vanished(ended[1], exception, frames):
        hit.turn("traceback-shm")
        hit.facts["at"] = exception[:200]
    elif _WRAPPERS.search(ended[1]) or _OTHERS_FAULT.search(exception[:300]):
        return False
    else:
        hit.facts["at"] = exception[:300]
        hit.facts["class"] = ended[1]
    return True


def _end_of_traceback(own: prefix.Mark, context: Context) -> tuple[list[str], str]:
    """The frames below its head and the line with the exception; that is empty where it was cut off.

    Only lines with the head's own rank and pid count, where it has any.
    """
    frames: list[str] = []
    for line in context.after(400):
        mark = prefix.read(line)
        if (mark.rank, mark.pid) != (own.rank, own.pid) and (own.rank is not None or own.pid is not None):
            continue
        if mark.text.startswith((" ", "\t")):
            frames.append(mark.text)
        elif mark.text.strip():
            ended = _EXCEPTION_LINE.match(mark.text.rstrip())
            if not ended or mark.text.startswith(("During handling", "The above exception", "Traceback")):
                break
            if re.search(r"[A-Z.]", ended[1]):  # not another program's line in between
                return frames, mark.text.strip()
    return frames, ""


def _shm_file_vanished(name: str, exception: str, frames: list[str]) -> bool:
    return (
        name.rsplit(".", 1)[-1] == "FileNotFoundError"
        and bool(_SHM_FRAMES.search("\n".join(frames)) and re.search(r"Errno 2\]", exception))
        and not re.search(r"\.(?:py|json|yaml|pt|bin|txt|parquet|arrow)\b", exception)
    )


_OF_SCRIPT = linear.compile(r": line \d{1,6}: ")  # of a shell
_FAILED = linear.compile(
    r"Watchdog caught|sigkill_handler|ChildFailedError|exited with exit code|Traceback \(most recent"
)


@check("modmiss")
def _module_missing(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """What a script says after its program has failed did not fail it."""
    if _OF_SCRIPT.search(hit.line) and any(_FAILED.search(line) for line in context.before(60)):
        return False
    return not re.search(
        r"[Ww]arning|optional|falling back|skipping|nvidia-smi: command|/etc/profile|\.bashrc", hit.line
    )


@check("segv")
def _segfault(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"Abort|Bus error|SIGABRT", hit.line) and not re.search(r"SIGSEGV|[Ss]egmentation|segfault", hit.line):
        return False
    if "noticed that process rank" in hit.line:  # the launcher's word, which names the rank: another row's
        return False
    return not ("core dumped" in match[0] and not re.search(r"fault|SEGV|instruction|exception", hit.line))


@check("abort")
def _abort(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The watchdog ends its process by abort; only another reason in the next lines makes it a cause."""
    hit.turn("abort-alone")
    for line in context.after(3):
        if (what := re.search(r"what\(\): +(.+)", line)) and not _OTHERS_FAULT.search(what[1]):
            hit.turn("abort-with-reason")
            hit.facts["at"] = what[1].strip()[:300]
            break
    return True


@check("abortreason")
def _abort_reason(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.turn_by("abortreason", match["text"])
    return True


@check("mpisignal")
def _mpi_signal(hit: Hit, match: re.Match[str], context: Context) -> bool:
    signal = match["signal"] or match["code"] or ""
    if not signal and (more := re.match(r"\s*signal (\d+)", next(iter(context.after(1)), ""))):
        signal = more[1]
    hit.turn_by("mpisignal", signal)
    return bool(signal)


@check("fatalword")
def _fatal_word(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(
        r"NVRM|EngineDeadError|See stack trace|log_?level|--|NCCL|[Nn]on-?fatal|CRITICAL\s*[=:]\s*\d|0 fatal|AER|slurm",
        hit.line,
    )


@check("rayip")
def _ray_ip(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Ray names the node on the line after the error's class."""
    for line in [hit.line, *context.after(3)]:
        if named := re.search(r"\bIP: (\d{1,3}(?:\.\d{1,3}){3})", line):
            hit.host = named[1]
            break
    return True


@check("remotedaemon")
def _remote_daemon(hit: Hit, match: re.Match[str], context: Context) -> bool:
    for line in context.after(6):
        if named := re.search(r"Remote daemon: \S+ on node ([\w.-]+)", line):
            hit.peer = named[1]
            break
    return True


@check("localof")
def _local_of(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if named := re.search(r"local_rank: (\d+)", hit.line):
        hit.local_rank = whole(named[1])
    return True


_BLOCK_FIELD = linear.late(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: *(.*)$")


@check("launcher")
def _launcher(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """torchrun's summary: one block per failed rank; the earliest counts, wherever it is printed."""
    groups = match.groupdict()
    code = next((value for key, value in groups.items() if key.startswith("code") and value), "")
    if groups.get("pid") or groups.get("pid2"):
        hit.pid = whole(groups.get("pid") or groups.get("pid2") or "")
    if re.match(r"\s*exitcode", hit.text):
        for line in [*context.before(5), *context.after(4)]:
            _take_field(hit, line)
        hit.facts["block"] = "yes"
        hit.turn("launcher-block")
    if not hit.turn_by("launcher", code) and _is_wrapper(match[0]):
        hit.turn("launcher-wrapper")
    hit.facts["code"] = code
    return True


def _is_wrapper(text: str) -> bool:
    return "ChildFailedError" in text or bool(re.match(r"Process\w+Exception", text))


def _take_field(hit: Hit, line: str) -> None:
    """One line of a block: who failed, where and when."""
    text = prefix.read(line).text if "host" not in line and "time" not in line else line
    field = _BLOCK_FIELD.match(re.sub(r"^(?:\s*\d+: |\[\S+\]:? ?)", "", text))
    if field is None:
        return
    name, value = field[1], field[2].strip()
    if name == "rank" and (ranks := re.match(r"(\d+) \(local_rank: (\d+)\)", value)):
        hit.rank, hit.local_rank = whole(ranks[1]), whole(ranks[2])
    elif name == "host":
        hit.host = value
    elif name == "time":
        hit.time = prefix.read(value.replace("_", "T") + " ").time
    elif name == "traceback" and "Traceback" not in value and "see:" not in value:
        hit.facts["at"] = value[:200]

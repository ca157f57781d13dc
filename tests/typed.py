"""What our texts tell a person to type: every command of the guide, the docs and the code, by construction.

In Markdown a command is a line of an indented block, or a code span that begins with a program and goes
on. A remark stands behind `` # ``, so that a line can be copied as it is. In code it is the third word of
a ``Suggestion``, and in tables the field ``command``, or the third word of an ``advice``.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpslurm.cluster.node_records import COLLECT
from hpslurm.core import suggest, toml
from hpslurm.core.values import dataclass

ROOT = Path(__file__).parents[1]
GUIDE = ("debugging-guide.md", "operations.md", "performance-testing.md")
DOCS = ("README.md", *(f"docs/{name}.md" for name in ("install", "admin", "user", "faq", "security")))
ENDS = frozenset(";|&()")
# A block that does not begin with one of these is no command; in the guide there are no such blocks.
_PROGRAMS = """
aws bash cat chmod chown chronyc clush dcgmi df dmesg echo env eval export fi_info find getent git grep head hpslurm
hpslurm-check install ip iptables-save journalctl ldd less ln ls lsmod lsof lspci make mkdir munge nc ncclras nft
nv-fabricmanager nvidia-smi ping pip ps py-spy python python3 resolvectl rm sacct sacctmgr salloc sbatch
scancel scontrol sdiag sinfo slurmd squeue srun ssh systemctl systemd-analyze tail timedatectl touch ulimit
all_reduce_perf
"""
PROGRAMS = frozenset(_PROGRAMS.split())

# Blocks of the docs that show something else than commands, by their first line.
SHOWN = {
    "# /etc/hpslurm/policy.toml": "a policy",
    "PartitionName=canary Nodes=ip-10-1-0-[1-2] MaxTime=01:00:00 State=UP": "slurm.conf",
    "would have been drained: efa-missing  n2  "
    "(2 times, first 2026-11-30 04:23: 16 of 32 EFA devices of a p5.48xlarge)": "output of what-if",
    "[[mutes]]": "a policy",
    '[nodes."*"]                            # every node': "a policy",
    '[nodes."gpu-[1-64],ip-10-1-*"]         # names as Slurm has them, ranges, and * for any characters': "a policy",
    'gate = ["efa-missing", "gpu-missing", "gpu-lost", "row-remap-failed"]': "a policy",
    "HealthCheckProgram=/etc/slurm/healthcheck.d/hpslurm.sh": "slurm.conf",
    "hpslurm: n2 efa-missing: 16 of 32 EFA devices of a p5.48xlarge; see hpslurm report 4711": "a job's output",
    **dict.fromkeys(("[Unit]", "[Service]", "[Timer]", "[Install]"), "a unit of systemd"),
    "15 5 * * * root /opt/hpslurm/bin/hpslurm history --keep --since 28d > /dev/null": "a line for cron",
    "* * * * * root /opt/hpslurm/bin/hpslurm metrics "
    "--output /var/lib/node_exporter/textfile_collector/hpslurm.prom": "a line for cron",
    "[FAIL] P0 memlock-default  n3  this process may lock 64 KiB, expected 8 GiB": "output of hpslurm-check -v",
    "[FAIL] collective_timeout_unknown  (low confidence)": "output of scan",
    "Job 12 of alice: 8 of 8 ranks seen on n[1-4]": "output of hang",
}
# What the code puts into a suggested command, and a value of its kind.
PUT_IN = {
    "advised['command']": "hpslurm scan LOGFOLDER",
    "away": "sudo mv /etc/slurm/prolog.d/README /root/",
    "only": """'[{"InstanceGroupName":"gpu"}]'""",
    "runs": "sudo chmod 755 /etc/slurm/prolog.d/hpslurm.sh",
    "s.command.replace('{nodes}', _where(s, where))": "srun -w NODE nvidia-smi",
    "step.command.replace('{node}', _where(step, where))": "srun -w NODE nvidia-smi",
    "shlex.quote(stream)": "i-0123456789abcdef0/training",
    "cause": "gpu_ecc",
    "shlex.quote(operation.id)": "12345678-1234-1234-1234-123456789012",
    "shlex.quote(event.id)": "12345678-1234-1234-1234-123456789012",
    "shlex.quote(instance.group)": "gpu",
    "shlex.quote(log_group(cluster))": "/aws/sagemaker/Clusters/demo/abcdefghij12",
    "shlex.quote(query)": "'ClusterNodeSummaries[].InstanceId'",
    "named_by": "--node-id",
    "which": "--log-stream-name-prefix LifecycleConfig",
    "COLLECT.format(shlex.quote(nodeset.fold(up[at:at + MOST_AT_ONCE])))": COLLECT.format("n3"),
    "_action(ACTION_REBOOT)": suggest.reboot("").command,
    "_action(ACTION_REPLACE)": suggest.replace("").command,
    "_cluster(members)": "aws sagemaker describe-cluster --cluster-name demo",
    "' '.join((shlex.quote(path) for path in _few(facts)))": "/usr/bin /usr/lib",
    "' '.join(PSTORE)": "/sys/fs/pstore /var/lib/systemd/pstore",
    "' '.join(map(shlex.quote, ids))": "i-0123456789abcdef0 i-0fedcba9876543210",
    "' '.join(map(str, pids))": "4242 4243",
    "FILES": "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "MANAGER": "nvidia-fabricmanager",
    "SWITCH": "/run/hpslurm.off",
    "_ids(held)": "JOBID",
    "_ids(waiting, ',')": "JOBID",
    "_region(cluster)": " --region us-west-2",
    "_region(facts.cluster)": " --region us-west-2",
    "all_ids": "efa-missing, gpu-lost",
    "bad[0][0]": "/var/lib/hpslurm",
    "facts.first": "OTHER-NODE",
    "first.pid": "PID",
    "job": "JOBID",
    "job.id": "JOBID",
    "pipes": "/tmp/fr_",
    "shlex.quote(first.node)": "n3",
    "facts.path": "OFI-PLUGIN",
    "shlex.quote(facts.output.source)": "run.txt",
    "shlex.quote(node.name)": "n3",
    "shlex.quote(history.uuid)": "UUID",
    "shlex.quote(gpu)": "UUID",
    "shlex.quote(nodeset.fold(named.nodes))": "n3",
    "shlex.quote(output.source)": "run.txt",
    "shlex.quote(nodeset.fold(nodes))": "n[2-3]",
    "group": "sg-0123456789abcdef0",
    "ids": "sg-0123456789abcdef0",
    "interface.address": "10.1.2.3",
    "members.cluster or 'NAME'": "demo",
    "named(cluster)": "--cluster-name demo --region us-west-2",
    "query": "nvidia-smi -L",
    "region": "--region us-west-2 ",
    "rule_id": "efa-missing",
    "shlex.quote(PACKAGE)": "/opt/hpslurm/lib/python3.11/site-packages/hpslurm",
    "shlex.quote(facts.path)": "/etc/slurm/slurm.conf",
    "shlex.quote(folders[0])": "/etc/slurm/prolog.d",
    "shlex.quote(group.name)": "worker-group-1",
    "shlex.quote(instance.id)": "i-0123456789abcdef0",
    "shlex.quote(members.cluster)": "demo",
    "shlex.quote(permission)": """'[{"IpProtocol":"-1","UserIdGroupPairs":[{"GroupId":"sg-0123456789abcdef0"}]}]'""",
    "shlex.quote(sys.executable)": "/opt/hpslurm/bin/python",
    "verb": "reboot",
    "way": "ingress",
}
# Not worded there, but handed on from a table or a record.
PASSED_ON = {
    "command",
    "clean(str(row.get('command') or ''), 2000)",
    "advised['command'].replace('{node}', where)",
    "s.command.replace('{nodes}', where)",
}


@dataclass(frozen=True)
class Typed:
    """One command as it is printed, and where it stands."""

    where: str
    text: str


def blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Indented blocks: number of the first line, and the lines without their four blanks.

    What stands between fences is what a command printed, whole.
    """
    found: list[str] = []
    first = 0
    fenced = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fenced ^= line.startswith("```")
        if line.startswith("    ") and line.strip() and not fenced:
            first = first if found else number
            found.append(line[4:])
        elif found:
            yield first, found
            found = []


def whole(lines: list[str]) -> Iterator[str]:
    """Commands of a block, each with the lines that it goes on over."""
    so_far = ""
    for line in lines:
        if not so_far and line.startswith("#"):
            continue
        so_far += ("\n" if so_far else "") + line
        if not line.endswith("\\") and _closed(so_far):
            yield so_far
            so_far = ""
    assert not so_far, f"a quote that nothing closes: {so_far}"


def _closed(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def is_command(text: str) -> bool:
    words = text.split()
    if re.match(r"[A-Z_]+=\$\(", text):
        return True
    while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words = words[1:]
    return bool(words) and words[0].rpartition("/")[2] in PROGRAMS


def spans(text: str) -> Iterator[tuple[int, str]]:
    """Code spans outside blocks that begin with a program and go on: line, and the text on one line."""
    prose = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    prose = re.sub(r"^    .*$", "", prose, flags=re.M)
    for match in re.finditer(r"`([^`]+)`", prose):
        span = " ".join(match[1].replace("\\|", "|").split())
        if " " in span and is_command(span):  # a lone word is a name
            yield prose.count("\n", 0, match.start()) + 1, span


def of_file(path: str, no_commands: frozenset[str] = frozenset()) -> Iterator[Typed]:
    """Commands of a Markdown file. A block in ``no_commands`` (by its first line) shows something else."""
    text = (ROOT / path).read_text(encoding="utf-8")
    name = path.rpartition("/")[2]
    for first, lines in blocks(text):
        if lines[0] not in no_commands:
            for command in whole(lines):
                yield Typed(f"{name}:{first}", command)
    for number, span in spans(text):
        yield Typed(f"{name}:{number}", span)


def guide() -> list[Typed]:
    return [one for name in GUIDE for one in of_file(f"references/{name}")]


def suggested() -> Iterator[tuple[Typed, list[str]]]:
    """Commands of every ``Suggestion(step, why, command)`` in the code and of the tables.

    What an f-string puts in stands as ``<expression>``; the expressions come with it.
    """
    for path in sorted((ROOT / "hpslurm").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _name(node) == "see" and isinstance(node.args[0], ast.Constant):
                yield Typed(f"{path.name}:{node.lineno}", f"srun -w {{nodes}} {node.args[0].value}"), []
            if isinstance(node, ast.Call) and _name(node) == "Suggestion":
                words = [*node.args, *(one.value for one in node.keywords if one.arg == "command")]
                if len(words) == 3 and ast.unparse(words[2]) not in PASSED_ON:
                    text, filled = _text_of(words[2])
                    yield Typed(f"{path.name}:{node.lineno}", text), filled
    for path in sorted((ROOT / "hpslurm/tables").glob("*.toml")):
        for command in _commands_in(toml.loads(path.read_text(encoding="utf-8"))):
            yield Typed(path.name, command), []


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def _text_of(node: ast.expr) -> tuple[str, list[str]]:
    if isinstance(node, ast.IfExp):
        return _text_of(node.body)
    if isinstance(node, ast.Constant):
        return str(node.value), []
    if not isinstance(node, ast.JoinedStr):
        return f"<{ast.unparse(node)}>", [ast.unparse(node)]
    parts, filled = [], []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            expression = ast.unparse(part.value)
            filled.append(expression)
            parts.append(f"<{expression}>")
    return "".join(parts), filled


def _commands_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            if key == "command" and isinstance(one, str) and one:
                yield one
            elif key == "advice":
                yield from (row[2] for row in one if row[2])
            else:
                yield from _commands_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _commands_in(one)


def simple(command: str) -> list[list[str]]:
    """The words of each simple command: parted at ``;``, ``|``, ``&&``; redirections and remarks left out."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if word.startswith("#"):
            break
        if set(word) <= ENDS:
            found.append([])
        elif set(word) <= set("<>&"):
            skip = True
        elif not skip:
            found[-1].append(word)
        else:
            skip = False
    return [words for words in found if words]


def own(command: str) -> Iterator[list[str]]:
    """The words behind ``hpslurm`` (or ``check`` and the words behind ``hpslurm-check``) of each part."""
    for words in simple(command):
        while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=.*", words[0])):
            words = words[1:]
        for at, word in enumerate(words):
            name = word.rpartition("/")[2]
            starter = words[0] in ("srun", "salloc") and "/" not in word and not words[at - 1].startswith("-o")
            if name in ("hpslurm", "hpslurm-check") and (at == 0 or starter):
                yield (["check"] if name == "hpslurm-check" else []) + words[at + 1 :]
                break


def filled_in(command: str) -> str:
    """The command with a value for what the code puts in, and for the nodes."""
    for expression, value in PUT_IN.items():
        command = command.replace(f"<{expression}>", value)
    return re.sub(r"\{nodes?\}", "n3", command)

"""``hpslurm nccl-tests``: run nccl-tests in the caller's allocation, judge it, find the slow node.

``judge`` judges saved output on any machine.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from hpslurm.core import nodeset, records, whole_file
from hpslurm.core import policy as policies
from hpslurm.core.finding import P0, Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import replace
from hpslurm.nccl_tests import baseline, report, steps, view
from hpslurm.nccl_tests import judge as bandwidth
from hpslurm.nccl_tests import search as localise
from hpslurm.nccl_tests.judge import Facts, Verdict
from hpslurm.nccl_tests.search import Result, Run, State
from hpslurm.node import instance
from hpslurm.scan import nccl_rails
from hpslurm.scan import nccl_tests as reading
from hpslurm.show import render
from hpslurm.show.progress import Progress
from hpslurm.sources import launch
from hpslurm.sources.host import Host

LARGEST = 256 << 20  # bytes of one file
PRODUCT = "/sys/devices/virtual/dmi/id/product_name"
HELP = {"help_option_names": ["-h", "--help"]}
EXIT_CODES = "Exit codes: 0 judged fine (P1 between warn and fail), 1 could not run or judge, 2 wrong command line, "
EXIT_CODES += "3 below the floor or wrong data, 130 interrupted."
SEARCH_FILE = "find-slow.jsonl"


def fail(text: str) -> click.ClickException:
    """An error of ours: exit 1."""
    return click.ClickException(text)


def warn(text: str) -> None:
    click.echo(f"{render.label('WARN')} {text}", err=True)


def read_file(path: str) -> str:
    """The text of a file or of standard input (``-``), or an error that says what to do."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        raise fail(f"{path}: {error.strerror}: give the file that holds what nccl-tests printed") from None
    if len(data) > LARGEST:
        raise fail(f"{path}: more than {LARGEST >> 20} MiB; give nccl-tests its own file, NCCL's lines another")
    return data.decode("utf-8", "replace")


def type_here() -> str:
    """The instance type of this machine, or empty."""
    try:
        return instance.instance_type(Host())
    except (Unknown, OSError):
        return ""


def known_type(name: str | None) -> str:
    """The type that the user named, checked against the table; of this machine where none is named."""
    if name is None:
        return type_here()
    name = name.removeprefix("ml.")
    if bandwidth.limits_of(name) is None:
        from difflib import get_close_matches

        names = [row["type"] for row in bandwidth.tables()["limits"]]
        close = get_close_matches(name, names, n=3) or names
        raise click.BadParameter(f"{clean(name, 60)!r} is not in the table; known are {', '.join(close)}")
    return name


def with_own(facts: Facts, own: baseline.Baselines | None) -> Facts:
    """The same run, with the site's own figures of its kind."""
    about = bandwidth.shape(facts)
    if own is None or about is None:
        return facts
    collective, nodes, ranks, nccl = about
    return replace(facts, own=own.own(baseline.kind_of(facts.instance, collective, nodes, ranks, nccl)))


def load_baselines(path: str | None, policy: Policy) -> baseline.Baselines:
    """The file named, or the one in the results folder; what is wrong with it is said on stderr."""
    found = baseline.load(path or os.path.join(policy.results, baseline.NAME))
    if found.problem:
        warn(f"baselines not used: {found.problem}")
    if found.unreadable:
        warn(f"{found.path}: {bandwidth.count(found.unreadable, 'line')} cannot be read, passed over")
    return found


def show(verdict: Verdict, output: reading.Output) -> list[str]:
    """All that a person sees of one run."""
    heading = render.fitted(view.heading(verdict, output))
    lines = [*heading, *view.table_lines(verdict.sizes), *view.nic_lines(output.log.rails)]
    for one in render.fold(verdict.findings):
        lines += render.finding_lines(one)
    return [*lines, *render.fitted(view.last_line(verdict))]


def json_lines(verdict: Verdict, output: reading.Output) -> list[str]:
    """The same as JSON lines: one ``bandwidth`` line, then findings, then ``end``."""
    table = output.tables[-1] if output.tables else None
    about = {
        "schema": records.SCHEMA,
        "type": "bandwidth",
        "source": clean(output.source),
        "collective": clean(table.collective, 40) if table else "",
        "instance": verdict.instance,
        "nodes": verdict.nodes,
        "ranks": verdict.ranks,
        "nccl": (table.nccl if table else "") or output.log.version,
        "verdict": verdict.words,
        "sizes": [
            {
                "size": one.size,
                "busbw": one.busbw,
                "outcome": one.outcome,
                "expected": one.expected,
                "warn_below": one.warn,
                "fail_below": one.fail,
                "ceiling": one.ceiling,
                "source": one.source,
            }
            for one in verdict.sizes
        ],
        "nics": [
            {
                "host": clean(host, 80),
                "rank": number,
                "gpu": rank.gpu,
                "count": nccl_rails.count(output.log.rails, host, rank),
            }
            for (host, number), rank in sorted(output.log.rails.ranks.items())
        ],
    }
    lines = [about, *(records.finding_line(finding) for finding in verdict.findings)]
    lines.append({"schema": records.SCHEMA, "type": "end", "findings": len(verdict.findings)})
    return [records.encode(line) for line in lines]


def pick_table(output: reading.Output, number: int | None) -> None:
    """Leave only the table that the user chose, counted from 1."""
    if number is None:
        return
    if not 1 <= number <= len(output.tables):
        raise click.BadParameter(f"{output.source} holds {len(output.tables)} tables", param_hint="--table")
    output.tables[:] = [output.tables[number - 1]]


# running


class Told:
    """What one step has printed so far, and how it ended; its lines are kept in a file, too."""

    def __init__(self, step: launch.Step, folder: str) -> None:
        self.step = step
        self.reader = reading.Reader(step.name)
        self.end: launch.End | None = None
        self.row: reading.Row | None = None
        self.said: list[str] = []
        self.file = open(os.path.join(folder, f"{step.name}.out"), "w", encoding="utf-8") if folder else None

    def take(self, event: launch.Line | launch.End) -> None:
        if isinstance(event, launch.End):
            self.end = event
            if self.file:
                self.file.close()
            return
        if self.file:
            self.file.write(f"{event.text}\n")
        if len(self.said) < 10:
            self.said.append(clean(event.text))
        self.row = self.reader.feed(event.text) or self.row

    def progress(self) -> str:
        if self.row is None:
            return f"{self.step.name}: starting"
        rate = min(half.busbw for half in self.row.halves)
        return f"{self.step.name}: {bandwidth.size_name(self.row.size)} {rate:.1f} GB/s"


def run_steps(
    wanted: Sequence[launch.Step], where: launch.Allocation, most: int, folder: str, what: str = ""
) -> Iterator[Told]:
    """Run steps side by side; yields each when it has ended."""
    told = {step.name: Told(step, folder) for step in wanted}
    progress, over = Progress(), 0
    try:
        for event in launch.run(wanted, where, most):
            one = told[event.step.name]
            one.take(event)
            if isinstance(event, launch.End):
                over += 1
                progress.done()
                yield one
            else:
                count = f"{over} of {len(wanted)} done, " if len(wanted) > 1 else ""
                progress.say(f"{what}{count}{one.progress()}")
    finally:
        progress.done()


def allocation() -> launch.Allocation:
    try:
        return launch.allocation()
    except launch.CannotLaunch as error:
        raise fail(str(error)) from None


def folder_for(path: str, job: str, dry: bool) -> str:
    """The folder for output and NCCL's lines, made; it must be one that all nodes see."""
    path = os.path.abspath(path.replace("%j", job))
    if not dry:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise fail(f"{path}: {error.strerror}: name a folder that all nodes share with --output") from None
    return path


def type_of(where: launch.Allocation, given: str | None) -> str:
    """The instance type of the nodes: given, of this machine if it is one of them, else asked of the first node."""
    name = known_type(given)
    if bandwidth.limits_of(name) is not None:
        return name
    step = launch.Step("instance-type", where.nodes[:1], ("cat", PRODUCT), seconds=60)
    words = [
        event.text.strip() for event in launch.run([step], where) if isinstance(event, launch.Line) and not event.error
    ]
    return next((word for word in words if bandwidth.limits_of(word) is not None), "")


def gpus_of(given: int | None, where: launch.Allocation, name: str) -> int:
    about = bandwidth.limits_of(name)
    found = given or where.gpus or (about or {}).get("gpus")
    if not found:
        raise fail(
            "how many GPUs has a node? Slurm does not say (no gres) and the instance type is not known: use --gpus"
        )
    return int(found)


def facts_of(told: Told, name: str, nodes: int, gpus: int, folder: str) -> Facts:
    """What a step that has ended came to, with NCCL's own lines."""
    output = told.reader.output
    for path in steps.log_files(folder, told.step.name):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                reading.read_nccl_lines(file, output.log)
        except OSError as error:
            warn(f"{path}: {error.strerror}")
    end = told.end
    timed_out = told.step.seconds if end is not None and end.timed_out and end.started else 0.0
    if end is not None and not end.started:
        output.launcher.insert(0, end.why)
    return Facts(output, name, nodes, gpus, end.status if end else None, timed_out)


def record_run(facts: Facts, verdict: Verdict, path: str, job: str) -> str:
    """Keep a run that is fit to be a measure; says what was done, or why not."""
    about = bandwidth.shape(facts)
    rates = [(one.size, one.busbw) for one in verdict.sizes if one.busbw > 0]
    if verdict.exit_code or verdict.against:
        why = ", ".join(dict.fromkeys(one.rule.id + (" (muted)" if one.muted else "") for one in verdict.against))
        return f"not recorded: this run is {verdict.words} ({why}), and a measure must be good"
    if about is None or not rates or not facts.instance:
        return "not recorded: the instance type, or what was run, is not known"
    collective, nodes, ranks, nccl = about
    kind = baseline.kind_of(facts.instance, collective, nodes, ranks, nccl)
    try:
        count = baseline.record(path, kind, nccl, rates, job)
    except OSError as error:
        raise fail(f"{path}: {error.strerror or error}: name a file that you may write with --baselines") from None
    return f"recorded {count} sizes in {path}"


# finding the slow node


def blocks_of(where: launch.Allocation) -> dict[str, str]:
    """The leaf switch of each node, where Slurm knows a topology; else nothing."""
    found: dict[str, str] = {}
    for line in launch.ask("scontrol", ["show", "topology"], where).splitlines():
        words = dict(word.partition("=")[::2] for word in line.split())
        if words.get("Level") == "0" and words.get("Nodes"):
            try:
                found.update((node, clean(words.get("SwitchName", ""), 80)) for node in launch.nodes_in(words["Nodes"]))
            except launch.CannotLaunch:
                continue
    mine = {node: found[node] for node in where.nodes if node in found}
    return mine if len(mine) == len(where.nodes) and len(set(mine.values())) > 1 else {}


def result_of(run: Run, told: Told) -> Result:
    """What a planned run came to. A table that is not complete is a failure, whatever it shows."""
    end, output = told.end, told.reader.output
    if end is not None and end.timed_out:
        return Result(run, None, localise.HUNG if end.started else localise.FAILED)
    table = output.tables[-1] if output.tables else None
    if table is not None and (table.bounds_ok is False or any(row.wrong for row in table.rows)):
        return Result(run, None, localise.WRONG)
    if table is None or not table.complete or table.reduced is not None or table.errors:
        return Result(run, None, localise.FAILED)
    if table.announced and not table.concluded:
        return Result(run, None, localise.FAILED)
    if not table.rows or not table.rows[-1].halves or len(output.tables) > 1:
        return Result(run, None, localise.FAILED)
    rate = min(half.busbw for half in table.rows[-1].halves)
    return Result(run, rate) if 0 <= rate < float("inf") else Result(run, None, localise.FAILED)


class Search:
    """One search: plans, runs, writes each result as it comes."""

    def __init__(self, where: launch.Allocation, how: steps.How, state: State, path: str, most: int) -> None:
        self.where, self.how, self.state, self.path, self.most = where, how, state, path, most
        self.done: tuple[Result, ...] = ()  # of the round that was cut off
        self.size = how.preset.largest

    def resume(self, path: str) -> None:
        try:
            self.state, self.done = report.resumed(read_file(path), path)
        except ValueError as error:
            raise fail(str(error)) from None
        self.path = path

    def write(self, line: dict[str, Any]) -> None:
        """Append one whole line; a line that a killed call left behind without its end is closed first."""
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(handle).st_size
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            os.write(handle, (("\n" if torn else "") + records.encode(line) + "\n").encode())
        finally:
            os.close(handle)

    def begin(self) -> None:
        if not os.path.exists(self.path):
            self.write(report.head_line(self.state, self.how.program))

    def rounds(self) -> Iterator[str]:
        """Run all rounds; yields a line about each one that is over."""
        while runs := localise.next_round(self.state):
            number = len(self.state.rounds)
            began = time.monotonic()
            have = {one.run: one for one in self.done}
            self.done = ()
            for result in self._round([run for run in runs if run not in have], number):
                have[result.run] = result
                self.write(report.result_line(result, number))
            results = [have[run] for run in runs]
            self.state = localise.observe(self.state, results)
            if number == 0 and all(one.status == localise.FAILED for one in results):
                os.unlink(self.path)  # there is nothing in it to go on from
                raise fail(f"not one of {len(results)} runs printed a table. {self.first_words}")
            yield self._told(number, results, time.monotonic() - began)

    def _round(self, runs: Sequence[Run], number: int) -> Iterator[Result]:
        here = set(self.where.nodes)
        lost = [run for run in runs if not set(run.nodes) <= here]
        for run in lost:  # the node is no longer in the allocation: that is what this run came to
            yield Result(run, None, localise.FAILED)
        wanted = {}
        for place, run in enumerate(runs):
            if run not in lost:
                step = steps.of_run(run, self.how, f"{number}.{place}")
                wanted[step.name] = (run, step)
        self.first_words = ""
        what = f"round {number + 1}, {runs[0].kind if runs else ''}: "
        for told in run_steps([step for _, step in wanted.values()], self.where, self.most, "", what):
            if not self.first_words:
                self.first_words = first_words(told)
            yield result_of(wanted[told.step.name][0], told)

    def _told(self, number: int, results: Sequence[Result], seconds: float) -> str:
        rates = sorted(one.rate for one in results if one.rate is not None)
        bad = [one for one in results if one.status != localise.OK]
        span = f"{rates[0]:.1f} to {rates[-1]:.1f} GB/s" if rates else "no rate"
        more = f", {len(bad)} hung, failed or wrong" if bad else ""
        kind = results[0].run.kind
        return f"round {number + 1}: {len(results)} x {kind}, {span}{more}, {seconds:.0f} s"


def first_words(told: Told) -> str:
    """What a run said that printed no table, and what to do about it where that is known."""
    text = "The first one said:\n" + ("\n".join(told.said) or (told.end.why if told.end else ""))
    trouble = bandwidth.start_trouble(told.reader.output)
    if trouble is not None:
        text += f"\n{trouble.detail}" + "".join(f"\n  {one.why}: {one.command}" for one in trouble.suggestions)
    return text


def nics_of_rails(verdict: localise.Verdict, folder: str) -> dict[tuple[str, int], list[str]]:
    """For each slow rail, by node and GPU, its NICs as NCCL's lines of the rail runs name them."""
    found: dict[tuple[str, int], list[str]] = {}
    for one in verdict.named:
        if one.rail is None:
            continue
        log = reading.NcclLog()
        for path in steps.rail_files(folder, one.rail):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    reading.read_nccl_lines(file, log)
            except OSError as error:
                warn(f"{path}: {error.strerror}")
        found[(one.nodes[0], one.rail)] = nccl_rails.of_gpu(log.rails, one.nodes[0], one.rail)
    return found


def search_lines(search: Search, verdict: localise.Verdict, found: Sequence[Finding]) -> list[str]:
    """The verdict of a search as lines."""
    lines = [line for one in render.fold(found) for line in render.finding_lines(one)]
    lines += view.ranking_lines(search.state, verdict)
    nodes = len(search.state.nodes)
    named = sorted({node for one in verdict.named for node in one.nodes})
    if named:
        return [*lines, f"Named: {nodeset.fold(named)}"]
    if verdict.tested == nodes and not any(one.rule.priority == P0 for one in found):
        return [*lines, f"No slow node: all {nodes} were fast with a partner ({verdict.normal:.1f} GB/s is normal)"]
    never = nodes - verdict.tested
    return [*lines, f"No node named; {f'{never} of {nodes} were never fast, ' if never else ''}see above"]


# the commands


@click.group("nccl-tests", context_settings=HELP, invoke_without_command=True, epilog=EXIT_CODES)
@click.option("--find-slow", is_flag=True, help="Find the node, path or rail that holds the others back.")
@click.option(
    "--preset",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="quick: 1 to 8 GiB, under a minute. full: 1 MiB to 16 GiB; with --find-slow also faults that come and go.",
)
@click.option(
    "--test", "test", default=steps.PROGRAM, show_default=True, help="all_gather_perf, sendrecv_perf and so on."
)
@click.option(
    "--program", "given", default="", metavar="PATH", help="The program, or its folder (in a container: there)."
)
@click.option("--nodes", "count", type=click.IntRange(1), help="Use only the first N nodes of the allocation.")
@click.option("--gpus", type=click.IntRange(1), help="GPUs of a node; without it, as Slurm or the instance table says.")
@click.option("--instance-type", metavar="TYPE", help="p5.48xlarge and so on; without it, that of the nodes.")
@click.option(
    "--launcher",
    default="srun",
    show_default=True,
    metavar="WORD",
    help="srun, mpirun (Open MPI, for builds that srun's PMI cannot start), or the path of an mpirun.",
)
@click.option("--mpi", default="auto", show_default=True, help="For srun --mpi; auto takes PMIx, else PMI-2.")
@click.option(
    "--per-node", is_flag=True, help="One process a node that drives all its GPUs (no PMI needed for one node)."
)
@click.option("--container-image", metavar="IMAGE", help="Run inside this image (pyxis).")
@click.option("--container-mounts", metavar="LIST", help="Mounts for the image (pyxis).")
@click.option(
    "--srun-option",
    "options",
    multiple=True,
    metavar="WORD",
    help="Handed to srun as it is; may be repeated. With mpirun, to the srun that starts its daemons.",
)
@click.option("--time-limit", type=click.FloatRange(1), metavar="SECONDS", help="For one step; without it, by preset.")
@click.option(
    "--side-by-side",
    type=click.IntRange(1, launch.MOST_SIDE_BY_SIDE),
    default=launch.MOST_SIDE_BY_SIDE,
    show_default=True,
    help="Steps at once.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="For the pairs of --find-slow.")
@click.option(
    "--output",
    default="hpslurm-nccl-tests-%j",
    show_default=True,
    metavar="FOLDER",
    help="For output and NCCL's lines; all nodes must see it. %j is the job.",
)
@click.option("--resume", metavar="FILE", help=f"Go on with a search ({SEARCH_FILE} in its folder).")
@click.option("--record", is_flag=True, help="Keep this run as the site's own figure.")
@click.option("--baselines", metavar="FILE", help="The site's own figures.")
@click.option("--policy", "policy_path", default=policies.PATH, show_default=True, help="Thresholds and mutes.")
@click.option("--html", "html_path", metavar="FILE", help="Write one page that needs no network.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.option("--dry-run", is_flag=True, help="Print what would run, and what it may cost at most; start nothing.")
@click.pass_context
def command(ctx: click.Context, /, **chosen: Any) -> int:
    """Run nccl-tests in this allocation, judge each size, find what is slow.

    \b
    In a job script (sbatch), and by hand:
      #SBATCH --nodes=4 --exclusive --gpus-per-node=8 --time=00:20:00
      hpslurm nccl-tests --find-slow
    \b
      salloc -N2 --exclusive --gpus-per-node=8 hpslurm nccl-tests
      hpslurm nccl-tests --launcher /opt/amazon/openmpi/bin/mpirun
    \b
    Saved output, on any machine:
      hpslurm nccl-tests judge slurm-4711.out --instance-type p5.48xlarge
    """
    if ctx.invoked_subcommand is not None:
        return 0
    where = allocation()
    if chosen["count"]:
        if chosen["count"] > len(where.nodes):
            raise fail(f"--nodes {chosen['count']}, but job {where.job} has {len(where.nodes)}")
        where = replace(where, nodes=where.nodes[: chosen["count"]])
    dry = chosen["dry_run"]
    name = known_type(chosen["instance_type"]) if dry else type_of(where, chosen["instance_type"])
    policy = policies.load(chosen["policy_path"], instance=name)
    how = how_to(chosen, where, gpus_of(chosen["gpus"], where, name))
    folder = folder_for(chosen["output"], where.job, dry)
    if chosen["find_slow"] or chosen["resume"]:
        return find_slow(chosen, where, replace(how, logs=folder), folder, policy, name)
    return measure(chosen, where, replace(how, logs=folder), folder, policy, name)


def how_to(chosen: dict[str, Any], where: launch.Allocation, gpus: int) -> steps.How:
    """The program and srun's options, from the command line and from what is here."""
    search = chosen["find_slow"] or chosen["resume"]
    preset = steps.SEARCH if search else steps.PRESETS[chosen["preset"]]
    if chosen["time_limit"]:
        preset = replace(preset, seconds=chosen["time_limit"])
    image = chosen["container_image"]
    given = chosen["given"] or ("/opt/nccl-tests/build" if image else "")
    program = (
        os.path.join(given, chosen["test"])
        if image
        else steps.find_program(chosen["test"], given, where.env.get("PATH", ""))
    )
    if program is None or (not image and not os.access(program, os.X_OK)):
        tried = given or f"PATH and {', '.join(steps.PLACES)}"
        raise fail(
            f"{chosen['test']} not found (tried {tried}): name it with --program, or its image with --container-image"
        )
    options = list(chosen["options"])
    if image:
        options += [f"--container-image={image}", "--no-container-mount-home", "--no-container-remap-root"]
    if chosen["container_mounts"]:
        options.append(f"--container-mounts={chosen['container_mounts']}")
    mpirun, mpi = mpirun_of(chosen, where), chosen["mpi"]
    if mpi == "auto":
        mpi = "none" if mpirun else steps.best_mpi(launch.ask("srun", ["--mpi=list"], where))
    return steps.How(program, gpus, preset, mpi, chosen["per_node"], tuple(options), mpirun=mpirun)


def mpirun_of(chosen: dict[str, Any], where: launch.Allocation) -> str:
    """The path of mpirun where the user wants it; empty for srun."""
    given = chosen["launcher"]
    if given == "srun":
        return ""
    if given != "mpirun" and os.sep not in given:
        raise click.BadParameter(f"{clean(given, 60)!r} is not srun, mpirun or a path", param_hint="--launcher")
    if chosen["container_image"] or chosen["container_mounts"]:
        raise click.BadParameter(
            "a container (pyxis) is a matter of srun: leave out --launcher", param_hint="--launcher"
        )
    if chosen["mpi"] != "auto":
        raise click.BadParameter("--mpi is for srun, not for mpirun", param_hint="--launcher")
    if strange := [word for word in chosen["options"] if any(map(str.isspace, word))]:
        raise click.BadParameter(f"{clean(strange[0], 60)!r}: mpirun cannot hand on a word with blanks")
    if (found := steps.find_mpirun(given, where.env.get("PATH", ""))) is None:
        tried = clean(given, 200) if os.sep in given else f"PATH and {', '.join(steps.MPIRUNS)}"
        raise fail(f"mpirun not found (tried {tried}): give its path with --launcher, or leave it out for srun")
    return found


def measure(
    chosen: dict[str, Any], where: launch.Allocation, how: steps.How, folder: str, policy: Policy, name: str
) -> int:
    """One run over all nodes, judged."""
    step = steps.whole(where.nodes, how)
    if chosen["dry_run"]:
        click.echo(shlex.join(launch.command(step, where)))
        click.echo(f"at most {how.preset.seconds:.0f} s on {len(where.nodes)} nodes; output in {folder}")
        return 0
    own = load_baselines(chosen["baselines"], policy)  # first: what is wrong with the file costs no run
    told = next(run_steps([step], where, 1, folder))
    facts = with_own(facts_of(told, name, len(where.nodes), how.gpus, folder), own)
    verdict = bandwidth.verdict(facts, policy)
    output = facts.output
    click.echo("\n".join(json_lines(verdict, output) if chosen["as_json"] else show(verdict, output)))
    if chosen["record"]:
        click.echo(record_run(facts, verdict, own.path, where.job), err=chosen["as_json"])
    if chosen["html_path"]:
        write_html(chosen["html_path"], view.page(verdict, output))
    return verdict.exit_code


def find_slow(
    chosen: dict[str, Any], where: launch.Allocation, how: steps.How, folder: str, policy: Policy, name: str
) -> int:
    """Pairs, suspects with good partners, and what else the planner asks for."""
    if len(where.nodes) < 2:
        raise fail("--find-slow needs two nodes or more; one node alone: hpslurm nccl-tests")
    options = localise.FULL if chosen["preset"] == "full" else localise.QUICK
    options = replace(options, seed=chosen["seed"], rails=how.gpus if how.gpus > 1 else 0)
    state = State(where.nodes, options, blocks_of(where))
    search = Search(where, how, state, os.path.join(folder, SEARCH_FILE), chosen["side_by_side"])
    if chosen["resume"]:
        search.resume(chosen["resume"])
    elif os.path.exists(search.path) and not chosen["dry_run"]:
        raise fail(
            f"{search.path} is there already: go on with --resume {shlex.quote(search.path)}, or name another --output"
        )
    for line in plan_lines(search):
        click.echo(line, err=chosen["as_json"])
    if chosen["dry_run"]:
        return 0
    search.begin()
    for line in search.rounds():
        click.echo(line, err=chosen["as_json"])
    verdict = localise.verdict(search.state)
    known = name if os.path.basename(how.program) == steps.PROGRAM else ""  # figures exist for all_reduce only
    found = report.findings(verdict, policy, known, how.gpus, search.size, nics_of_rails(verdict, folder))
    lines = search_lines(search, verdict, found)
    if chosen["as_json"]:
        lines = [records.encode(records.finding_line(finding)) for finding in found]
        lines.append(records.encode({"schema": records.SCHEMA, "type": "end", "findings": len(found)}))
    click.echo("\n".join(lines))
    if chosen["html_path"]:
        write_html(chosen["html_path"], view.search_page(search.state, verdict, name, found))
    return report.exit_code(verdict, found, policy)


def plan_lines(search: Search) -> Iterator[str]:
    """What it may cost at most, and the first round."""
    state = search.state
    most = localise.bound(len(state.nodes), state.options, search.most, search.how.preset.seconds)
    yield (
        f"at most {most.rounds} rounds in {most.waves} waves of {search.most} steps, {most.minutes:.0f} minutes, "
        f"{most.node_minutes:.0f} node-minutes; a healthy cluster needs {healthy_rounds(state)} rounds"
    )
    runs = localise.next_round(state)
    if state.rounds:
        yield f"{len(state.rounds)} rounds are done already"
    if runs:
        yield f"next: {len(runs)} x {runs[0].kind}, {' '.join(nodeset.fold(run.nodes) for run in runs[:4])}" + (
            " ..." if len(runs) > 4 else ""
        )
        yield shlex.join(launch.command(steps.of_run(runs[0], search.how, f"{len(state.rounds)}.0"), search.where))


def healthy_rounds(state: State) -> int:
    """Rounds of a cluster on which every run is equally fast: the planner is asked."""
    trial = State(state.nodes, state.options, state.blocks)
    while runs := localise.next_round(trial):
        trial = localise.observe(trial, [Result(run, 1.0) for run in runs])
    return len(trial.rounds)


def write_html(path: str, text: str) -> None:
    try:
        whole_file.write(path, text.encode())
    except OSError as error:
        raise fail(f"could not write {path}: {error.strerror}") from None
    click.echo(f"page written: {path}", err=True)


@command.command("judge", context_settings=HELP, epilog=EXIT_CODES)
@click.argument("file")
@click.option("--instance-type", metavar="TYPE", help="p5.48xlarge and so on; without it, that of this machine.")
@click.option(
    "--nodes", type=click.IntRange(1), help="How many nodes were meant; without it, those in the device list."
)
@click.option("--gpus", type=click.IntRange(1), help="How many GPUs of each node were meant.")
@click.option("--table", "number", type=click.IntRange(1), metavar="N", help="Judge the Nth table of the file.")
@click.option("--nccl-log", "logs", multiple=True, metavar="FILE", help="NCCL_DEBUG_FILE output; may be repeated.")
@click.option("--baselines", metavar="FILE", help="The site's own figures (see --record).")
@click.option("--policy", "policy_path", default=policies.PATH, show_default=True, help="Thresholds and mutes.")
@click.option("--html", "html_path", metavar="FILE", help="Write one page that needs no network.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def judge(
    file: str,
    instance_type: str | None,
    nodes: int | None,
    gpus: int | None,
    number: int | None,
    logs: Sequence[str],
    baselines: str | None,
    policy_path: str,
    html_path: str | None,
    as_json: bool,
) -> int:
    """Judge what nccl-tests printed (text or the JSON of -J); - reads standard input.

    \b
    Examples:
      hpslurm nccl-tests judge slurm-4711.out --instance-type p5.48xlarge
      hpslurm nccl-tests judge run.txt --nodes 2 --gpus 8 --nccl-log nccl.ip-10-1-0-1.4242
    """
    name = known_type(instance_type)
    policy = policies.load(policy_path, instance=name)
    output = reading.read_text(read_file(file), file)
    pick_table(output, number)
    for log in logs:
        reading.read_nccl_lines(read_file(log).splitlines(True), output.log)
    facts = with_own(Facts(output, name, nodes, gpus), load_baselines(baselines, policy))
    verdict = bandwidth.verdict(facts, policy)
    click.echo("\n".join(json_lines(verdict, output) if as_json else show(verdict, output)))
    if html_path:
        write_html(html_path, view.page(verdict, output))
    return verdict.exit_code

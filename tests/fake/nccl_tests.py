#!/usr/bin/env python3
"""Prints what nccl-tests prints, without a GPU: the table of a model cluster, in the layout of a version.

As a program it stands in for all_reduce_perf under a real srun: only rank 0 prints, the bandwidth is that of
the slowest node or path it runs on, and HPSLURM_MODEL names a JSON file with the faults. Ranks and nodes are
those of the step, or those that mpi_perf.c learned by MPI (HPSLURM_RANK, HPSLURM_HOSTS):

    {"busbw": 480, "slow": {"ip-10-1-0-3": 0.5}, "paths": {"ip-10-1-0-3 ip-10-1-0-4": 0.5},
     "rails": {"ip-10-1-0-3 1": 0.5}, "hang": ["ip-10-1-0-5"], "wrong": ["ip-10-1-0-6"], "crash": ["ip-10-1-0-7"],
     "seconds": 0.1, "scale": {"8": 0.5}, "nics": {"ip-10-1-0-3 1": 2}, "show": ["SOME_VARIABLE"], "stamps": "FILE"}

With NCCL_DEBUG=INFO every rank writes what NCCL and its plugin would, to NCCL_DEBUG_FILE: of a p5, four NICs a GPU,
less where ``nics`` says so. ``show`` prints variables of the task, ``stamps`` notes when a run began and ended,
with the variable that ``note`` names.
"""

import json
import os
import sys
import time

FACTORS = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "sendrecv": lambda n: 1.0}


def short(value, width):
    """A number in the fewest decimals that fit, as the tests print it from 2.17.3 on."""
    for digits in (2, 1, 0):
        if len(text := f"{value:{width}.{digits}f}") <= width:
            return text
    return f"{value:{width}.1e}"


def head(version="2.19", test="all_reduce_perf", smallest=1 << 30, largest=8 << 30, factor=2, iterations=20, check=1):
    number = tuple(int(part) for part in version.split("."))
    lines = []
    if number >= (2, 17, 4):
        lines.append(f"# nccl-tests version {version} nccl-headers=22707 nccl-library=22707")
    if number >= (2, 16, 4):
        lines.append(f"# Collective test starting: {test}")
    aggregate = " agg iters: 1" if number >= (2, 13) else ""
    tail = " graph: 0" if number >= (2, 14) else ""
    tail += " unalign: 0" if number >= (2, 18, 2) else ""
    step = f"{factor}(factor)" if factor > 1 else "1048576(bytes)"
    lines.append(
        f"# nThread 1 nGpus 1 minBytes {smallest} maxBytes {largest} step: {step} warmup iters: 5 "
        f"iters: {iterations}{aggregate} validation: {check}{tail}"
    )
    return [*lines, "#"]


def devices(hosts, gpus=8, version="2.19", name="NVIDIA H100 80GB HBM3"):
    number = tuple(int(part) for part in version.split("."))
    lines = ["# Using devices"]
    for node, host in enumerate(hosts):
        for gpu in range(gpus):
            group = " Group  0" if number >= (2, 13, 4) else ""
            pci = f"[0000:{83 + gpu:02x}:00]" if number >= (2, 14, 1) else f"[0x{83 + gpu:02x}]"
            lines.append(
                f"#  Rank {node * gpus + gpu:2d}{group} Pid {1000 + gpu:6d} on {host:>10} device {gpu:2d} {pci} {name}"
            )
    return lines


def columns(version="2.19", test="all_reduce_perf", stamps=False, each=False, cpu=False):
    number = tuple(int(part) for part in version.split("."))
    old = number < (2, 13)
    half = ["cputime" if cpu else "time", "algbw", "busbw", "error" if old else "#wrong"]
    half += ["i_min", "i_max", "i_p99", "i_cv%"] if each else []
    names = ["size", "count", "type"]
    names += ["redop"] if not old or test in ("all_reduce_perf", "reduce_perf") else []
    names += ["root"] if not old or test in ("broadcast_perf", "reduce_perf") else []
    title = "#" + " " * 40 + "out-of-place" + " " * 23 + "in-place"
    units = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
    return [
        "#",
        title,
        "# " + "  ".join(f"{name:>8}" for name in [*names, *half, *half, *(["timestamp"] if stamps else [])]),
        units,
    ]


def row(size, busbw, ranks, version="2.19", test="all_reduce_perf", stamps=False, each=False, check=1, wrong=0):
    number = tuple(int(part) for part in version.split("."))
    old = number < (2, 13)
    factor = FACTORS[test.removesuffix("_perf")](ranks)
    algbw = busbw / factor if factor else 0.0
    micro = size / algbw / 1e3 if algbw else 12.5
    words = [f"{size:12d}", f"{size // 4:12d}", f"{'float':>8}"]
    words += [f"{'sum':>6}"] if not old or test in ("all_reduce_perf", "reduce_perf") else []
    words += [f"{-1:6d}"] if not old or test in ("broadcast_perf", "reduce_perf") else []
    for _ in range(2):
        words += [short(micro, 7), short(algbw, 6), short(busbw, 6)]
        words += ["N/A" if not check else ("4e-07" if old else f"{wrong:6g}")]
        words += [short(micro * 0.99, 7), short(micro * 1.1, 7), short(micro * 1.1, 7), short(1.25, 7)] if each else []
    return "  ".join(words) + ("  2026-07-09 16:03:21" if stamps else "")


def foot(busbw, version="2.19", test="all_reduce_perf", wrong=0):
    number = tuple(int(part) for part in version.split("."))
    lines = [f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}", f"# Avg bus bandwidth    : {busbw:g} "]
    return lines + (["#", f"# Collective test concluded: {test}"] if number >= (2, 16, 4) else ["#"])


def sizes(smallest, largest, factor=2):
    while smallest <= largest:
        yield smallest
        if factor < 2:
            return
        smallest *= factor


def table(rates, hosts=("ip-10-1-0-1", "ip-10-1-0-2"), gpus=8, version="2.19", test="all_reduce_perf", wrong=0, **form):
    """The whole text of one run; ``rates`` maps size in bytes to busbw in GB/s."""
    head_form = {"check": form.get("check", 1)}
    column_form = {key: form[key] for key in ("stamps", "each", "cpu") if key in form}
    row_form = {key: form[key] for key in ("stamps", "each", "check") if key in form}
    lines = head(version, test, min(rates), max(rates), **head_form)
    lines += devices(hosts, gpus, version) + columns(version, test, **column_form)
    ranks = len(hosts) * gpus
    lines += [row(size, rate, ranks, version, test, wrong=wrong, **row_form) for size, rate in rates.items()]
    lines += foot(sum(rates.values()) / len(rates), version, test, 2 * wrong * len(rates))
    return "\n".join(lines) + "\n"


def unfolded(text):
    """ip-10-1-0-[1-2,4] as names; enough for the lab's lists."""
    names, rest = [], text
    while rest:
        one, _, rest = (
            rest.partition(",")
            if "[" not in rest.split(",")[0]
            else (rest[: rest.index("]") + 1], "", rest[rest.index("]") + 2 :])
        )
        if "[" not in one:
            names.append(one)
            continue
        stem, _, ranges = one.rstrip("]").partition("[")
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            names += [f"{stem}{number:0{len(low)}d}" for number in range(int(low), int(high or low) + 1)]
    return names


def size_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]] if text[-1] in "KMG" else int(text)


def rate_on(hosts, size, model, visible=()):
    rate = model.get("busbw", 480.0) * min(1.0, 0.85 + 0.05 * (size / (1 << 30)) ** 0.5)
    rate *= min([model.get("slow", {}).get(host, 1.0) for host in hosts])
    for path, factor in model.get("paths", {}).items():
        rate *= factor if set(path.split()) <= set(hosts) else 1.0
    for place, factor in model.get("rails", {}).items():
        host, rail = place.split()
        rate *= factor if host in hosts and len(hosts) > 1 and (len(visible) > 1 or rail in visible) else 1.0
    for nodes, factor in model.get("scale", {}).items():
        rate *= factor if len(hosts) >= int(nodes) else 1.0
    return rate


def nics_of(host, model):
    """The PCI addresses of each GPU's NICs, as the plugin lists them."""
    counts = [model.get("nics", {}).get(f"{host} {gpu}", 4) for gpu in range(8)]
    return [[f"0000:{0x40 + 16 * gpu + nic:02x}:00.0" for nic in range(count)] for gpu, count in enumerate(counts)]


def nccl_lines(host, pid, rank, gpu, gpus, ranks, groups):
    """What one rank says under INIT,NET,ENV."""
    said = [
        "NET/OFI Initializing aws-ofi-nccl 1.16.2",
        f"NET/OFI Selected provider is efa, fabric is efa-direct (found {sum(map(len, groups))} nics)",
    ]
    for group, addresses in enumerate(groups):
        said += [f"NET/OFI NIC group {group} device #{one} {address}" for one, address in enumerate(addresses)]
    said.append("Using network Libfabric")
    said.append(
        f"ncclCommInitRank comm 0x55d0 rank {rank} nranks {ranks} cudaDev 0 nvmlDev {gpu} busId 53000 - Init START"
    )
    for dev, addresses in enumerate(groups):
        if addresses:
            bus = int(addresses[0].split(":")[1], 16)
            said.append(f"NET/Libfabric : GPU Direct RDMA Enabled for HCA {dev} 'rdmap{bus}s0'")
    if ranks > gpus:
        there, back = (rank + gpus) % ranks, (rank - gpus) % ranks
        for channel in (gpu, gpu + 8):
            via = f"via NET/Libfabric/{gpu}/GDRDMA"
            said.append(f"Channel {channel:02d}/0 : {back}[{gpu}] -> {rank}[{gpu}] [receive] {via}")
            said.append(f"Channel {channel:02d}/0 : {rank}[{gpu}] -> {there}[{gpu}] [send] {via}")
    said.append(f"comm 0x55d0 rank {rank} nranks {ranks} cudaDev 0 busId 53000 - Destroy COMPLETE")
    return [f"{host}:{pid}:{pid + 40} [{gpu}] NCCL INFO {text}" for text in said]


def write_nccl(host, rank, gpu, gpus, ranks, model):
    path = os.environ.get("NCCL_DEBUG_FILE", "").replace("%h", host).replace("%p", str(os.getpid()))
    if not path or os.environ.get("NCCL_DEBUG") != "INFO":
        return
    lines = nccl_lines(host, os.getpid(), rank, gpu, gpus, ranks, nics_of(host, model))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    test = os.path.basename(sys.argv[0])
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    with open(os.environ["HPSLURM_MODEL"], encoding="utf-8") as file:
        model = json.load(file)
    host = os.environ.get("SLURMD_NODENAME", "here")
    if "HPSLURM_RANK" in os.environ:
        rank, every = int(os.environ["HPSLURM_RANK"]), os.environ["HPSLURM_HOSTS"].split(",")
        hosts, tasks = list(dict.fromkeys(every)), len(every)
    else:
        rank = int(os.environ.get("SLURM_PROCID", "0"))
        hosts, tasks = unfolded(os.environ.get("SLURM_STEP_NODELIST", host)), int(os.environ.get("SLURM_NTASKS", "1"))
    gpus = tasks * int(given.get("-g", "1")) // len(hosts)
    devices_seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    visible = devices_seen.split(",") if devices_seen else [str(gpu) for gpu in range(8)]
    write_nccl(host, rank, int(visible[rank % gpus % len(visible)]), gpus, gpus * len(hosts), model)
    if rank != 0:
        if host in model.get("crash", []):
            print("Segmentation fault", file=sys.stderr)
            sys.exit(139)
        return 0
    began = time.time()
    smallest, largest, factor = size_of(given["-b"]), size_of(given["-e"]), int(given.get("-f", "1"))
    say = lambda lines: print("\n".join(lines), flush=True)  # noqa: E731
    say([f"{name}={os.environ.get(name, '')}" for name in model.get("show", [])])
    say(head("2.19", test, smallest, largest, factor) + devices(hosts, gpus) + columns("2.19", test))
    if set(hosts) & set(model.get("hang", [])):
        time.sleep(600)
    rates = []
    for size in sizes(smallest, largest, factor):
        time.sleep(model.get("seconds", 0.05))
        wrong = 7 if set(hosts) & set(model.get("wrong", [])) else 0
        rates.append(rate_on(hosts, size, model, visible))
        say([row(size, rates[-1], gpus * len(hosts), "2.19", test, wrong=wrong)])
    say(foot(sum(rates) / len(rates), "2.19", test, wrong * len(rates)))
    if "stamps" in model:
        with open(model["stamps"], "a", encoding="utf-8") as file:
            note = model.get("note")
            told = f"{note}={os.environ.get(note, '')}" if note else ""
            file.write(f"{','.join(hosts)} {began} {time.time()} {told}\n")
    return 7 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

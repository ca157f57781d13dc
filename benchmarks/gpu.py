"""What asking eight GPUs adds to a prolog, and that slow doors wait side by side.

    python benchmarks/gpu.py

A stand-in libnvidia-ml.so.1 answers at once, so this is our own cost: a second
interpreter, NVIDIA's bindings, and some 400 calls. A real driver adds its own time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from hpslurm.core.policy import Policy  # noqa: E402
from hpslurm.core.probe import UNKNOWN, run_all  # noqa: E402
from hpslurm.node import efa, gpu_driver  # noqa: E402
from hpslurm.sources.host import Host  # noqa: E402
from tests.sources import nvml_fake  # noqa: E402
from tests.test_hosts import build  # noqa: E402

ROUNDS = 9
FI_INFO = "opt/amazon/efa/bin/fi_info"


def best(work: Callable[[], None], rounds: int = ROUNDS) -> float:
    """The fastest of some rounds, in milliseconds: what the machine does besides only adds."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken) * 1000


def python(*words: str, env: dict[str, str] | None = None) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=env, cwd="/")


def together(root: Path, library: Path) -> None:
    """fi_info and NVML, 300 ms each, through the doors of one look."""
    host = Host(str(root), env={"LD_LIBRARY_PATH": str(library)}, in_hook=True)
    results = list(run_all([("efa", efa), ("gpu_driver", gpu_driver)], host, Policy()))
    assert UNKNOWN not in {result.outcome for result in results}, results


def main() -> int:
    if not (shutil.which("gcc") or shutil.which("cc")):
        print("left out: no C compiler here, the stand-in for libnvidia-ml.so.1 cannot be built")
        return 0
    with tempfile.TemporaryDirectory(prefix="hpslurm-bench-") as folder:
        base = Path(folder)
        saved, asked, library = base / "saved", base / "asked", nvml_fake.build(base / "lib")
        for root in (saved, asked):
            build("p5-healthy", root)
        (asked / "gpus.json").unlink()
        nvml_fake.machine(asked, library)

        hook = f"import sys; sys.path.insert(0, {str(HERE)!r}); from hpslurm import hooks; hooks.main(sys.argv[1:])"

        def prolog(root: Path) -> None:
            env = {**os.environ, "LD_LIBRARY_PATH": str(library)}
            python("-c", hook, "prolog", "--root", str(root), "--results", str(base / "results"), env=env)

        bare = best(lambda: python("-c", "pass"))
        imported = best(lambda: python("-c", "import pynvml")) - bare
        without, with_gpus = best(lambda: prolog(saved)), best(lambda: prolog(asked))
        record = next((base / "results/nodes").glob("*.prolog.jsonl")).read_text()
        assert "GPU-00000000-0000-0000-0000-000000000007" in record, "the stand-in library was not asked"
        print(f"interpreter alone                    {bare:7.1f} ms")
        print(f"import pynvml (in the child)         {imported:7.1f} ms more")
        print(f"prolog, GPUs from a file             {without:7.1f} ms")
        print(f"prolog, eight GPUs asked             {with_gpus:7.1f} ms")
        print(f"added by asking                      {with_gpus - without:7.1f} ms, {with_gpus / without:.2f} times")

        words = (saved / "commands/fi_info.txt").read_text()
        (base / "fi_info.txt").write_text(words)
        slow = asked / FI_INFO
        slow.parent.mkdir(parents=True, exist_ok=True)
        slow.write_text(f"#!/bin/sh\nsleep 0.3\nexec cat {base}/fi_info.txt\n")
        slow.chmod(0o755)
        (library / "scenario").write_text("init_ms=300")
        both = best(lambda: together(asked, library), 5)
        print(f"fi_info 300 ms and NVML 300 ms       {both:7.1f} ms together, below 450 wanted")
        return 0 if both < 450 else 1


if __name__ == "__main__":
    raise SystemExit(main())

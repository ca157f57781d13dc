"""What a single expression cannot say: functions that refuse a line or sharpen the event it makes.

Each takes the hit (which it may change), the match and the surrounding lines, and returns whether the
line counts. A refused line is offered to the next pattern. What a line then proves stands in
tables/reasoning.toml (``Hit.turn``). Each has a name in ``hit.CHECKS``, by which patterns.toml asks for it.
"""

from __future__ import annotations

from hpslurm.scan.checks import collectives, gpu, machine, networks, programs, slurm
from hpslurm.scan.hit import CHECKS

__all__ = ["CHECKS", "collectives", "gpu", "machine", "networks", "programs", "slurm"]

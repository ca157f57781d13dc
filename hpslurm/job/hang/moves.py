"""Does a job get on? Bytes that move, GPUs that compute, ranks that come to a collective or leave one."""

from __future__ import annotations

from hpslurm.job.hang import places as hang_places
from hpslurm.job.hang.case import BYTES_MOVE, HIGH, HIGH_POWER, MEDIUM, MOVING, Case, Verdict, bytes_rate, powers
from hpslurm.job.hang.facts import Rank
from hpslurm.scan.reason import HEALTHY


def does_it_move(case: Case) -> Verdict | None:
    """A job that gets on, even if one of its ranks waits at this moment."""
    reasons = list(filter(None, (_bytes_move(case), _power_is_high(case), _stacks_move(case))))
    if not reasons:
        return None
    sure = HIGH if len(reasons) > 1 and not case.sample.silent else MEDIUM
    return Verdict(HEALTHY, sure, f"It does not hang: {_listed(reasons)}")


def _listed(reasons: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(reasons[:-1]), reasons[-1])))


def _bytes_move(case: Case) -> str:
    rates = [rate for node in case.sample.nodes if (rate := bytes_rate(node)) is not None]
    moving = [rate for rate in rates if rate >= BYTES_MOVE]
    if len(moving) * 2 <= len(rates):
        return ""
    return f"{sum(moving) / len(moving) / 1e9:.2f} GB/s go through {len(moving)} of {len(rates)} nodes"


def _power_is_high(case: Case) -> str:
    shares = powers(case)
    high = [share for share in shares if share >= HIGH_POWER]
    return f"{len(high)} of {len(shares)} GPUs compute" if shares and len(high) * 2 > len(shares) else ""


def _stacks_move(case: Case) -> str:
    """Whoever waited for others and then did not, or the other way round, shows that the job gets on."""
    looked = [rank for rank in case.ranks if rank.stack and rank.later]
    moving = [rank for rank in looked if moves(rank)]
    if len(moving) * MOVING < len(looked) or not moving:
        return ""
    return f"{len(moving)} of {len(looked)} ranks came to or left a collective within 2 s"


def moves(rank: Rank) -> bool:
    """It came to a collective, or left one, between the looks."""
    if not rank.stack or not rank.later or rank.stack == rank.later:
        return False
    before, after = hang_places.of_stack(rank.stack), hang_places.of_stack(rank.later)
    return before.label != after.label and (before.kind.waits or after.kind.waits)

"""The site's policy: what is taken, what is reported, and what is ignored."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.core import toml
from hpslurm.core.finding import P0, Finding, Rule
from hpslurm.core.policy import Mute, Policy, _is_date, load
from hpslurm.core.values import asdict

RULE = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6")
Write = Callable[..., Path]


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    loaded = load(str(tmp_path / "none.toml"))
    assert (Policy().memlock_min, ()) == (loaded.memlock_min, loaded.problems)


def test_the_admin_guide_has_every_default() -> None:
    text = (
        (Path(__file__).parents[2] / "docs/admin.md")
        .read_text("utf-8")
        .partition("## policy.toml")[2]
        .partition("##")[0]
    )
    shown = {}
    for keys, defaults in re.findall(r"^\| (`[a-z_`, ]+) \| (`[^|]+`) \|", text, re.M):
        values = re.findall(r"`([^`]+)`", defaults)
        shown |= dict(zip(re.findall(r"`([a-z_]+)`", keys), map(json.loads, values), strict=True))
    defaults = json.loads(json.dumps(asdict(Policy())))
    assert defaults == defaults | shown
    assert {"mutes", "nodes", "node", "instance", "hash", "problems"} == set(defaults) - set(shown)


def test_a_known_key_of_the_right_type_is_taken(write: Write) -> None:
    loaded = load(str(write("p.toml", "memlock_min = 17179869184\ngate = ['efa-missing']\n")))
    assert (17179869184, ("efa-missing",), ()) == (loaded.memlock_min, loaded.gate, loaded.problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memlok_min = 1\n", ["unknown key", "memlok_min", "memlock_min"]),
        ("memlock_min = 'big'\n", ["memlock_min", "whole number"]),
        ("memlock_min = true\n", ["memlock_min", "whole number"]),
        ("memlock_min = -1\n", ["memlock_min", "zero or more"]),
        ("shm_used_max = 'all'\n", ["shm_used_max", "a number"]),
        ("gate = 'efa-missing'\n", ["gate", "list of strings"]),
        ("results = 7\n", ["results", "a string"]),
        ('results = "\\u0000"\n', ["results", "control characters"]),
        ('results = "/var/lib\\n/hpslurm"\n', ["results", "control characters"]),
        ("[[mutes]]\nrule = 'x-y'\n", ["mutes", "number 1", "reason"]),
        ("[[mutes]]\nrule = 'x-y'\nreason = 'r'\nnodes = 'n1'\n", ["mutes", "unknown", "nodes"]),
        ("[[mutes]]\nrule = 'x-y'\nreason = 'r'\nuntil = 'next week'\n", ["number 1", "a date", "next week"]),
        ("[[mutes]]\nrule = 'x-y'\nreason = 'r'\nuntil = '2099-02-30'\n", ["number 1", "a date", "2099-02-30"]),
        ("mutes = 3\n", ["mutes", "strings only"]),
        ("nodes = 3\n", ["nodes must be tables", '[nodes."gpu-[1-64]"]']),
        ("[nodes]\nmounts = ['/fsx']\n", ["nodes must be tables", '[nodes."gpu-[1-64]"]']),
        ('[nodes."gpu-[1-"]\ncpus_min = 1\n', ["gpu-[1-", "missing bracket", "write gpu-[1-64]"]),
        ('[nodes."gpu-[1-x]"]\ncpus_min = 1\n', ["gpu-[1-x]", "bad range", "write gpu-[1-64]"]),
        ('[nodes."n[1-1000000000]"]\ncpus_min = 1\n', ["1000000000 names, 65536 at most", "ignored"]),
        ('[nodes."*a*b*c*d*"]\ncpus_min = 1\n', ["5 stars, 4 at most"]),
        ('[nodes."a,,b"]\ncpus_min = 1\n', ["a,,b", "a name is empty"]),
        ('[nodes."a b"]\ncpus_min = 1\n', ["a b", "a blank"]),
        ('[nodes."@all"]\ncpus_min = 1\n', ["@all", "@ in it"]),
        ('[nodes."*"]\nmount = ["/fsx"]\n', ['[nodes."*"]', "unknown key 'mount'", "known: mounts, services"]),
        ('[nodes."*"]\nmounts = "/fsx"\n', ['[nodes."*"]', "mounts must be a list of strings"]),
        ('[nodes."*"]\nmounts = ["fsx"]\n', ["'fsx'", "an absolute path", "/fsx lustre"]),
        ('[nodes."*"]\nmounts = ["/fsx lustre rw"]\n', ["'/fsx lustre rw'", "an absolute path"]),
        ('[nodes."*"]\nfiles = ["etc/x"]\n', ["'etc/x'", "an absolute path"]),
        ('[nodes."*"]\nservices = ["--system"]\n', ["'--system'", "a name"]),
        ('[nodes."*"]\nmodules = ["../../etc"]\n', ["'../../etc'", "a name without"]),
        ('[nodes."*"]\nprocesses = ["a", "b c"]\n', ["'b c'", "a name without blanks"]),
        ('[nodes."*"]\ncpus_min = 1.5\n', ["cpus_min must be a whole number above zero"]),
        ('[nodes."*"]\nmemory_min = 0\n', ["memory_min must be a whole number above zero"]),
        ('[nodes."*"]\nP0 = ["mount"]\n', ["P0 must be a list of these", "mounts, services", "cpus, memory"]),
        ("memlock_min = \n", ["line 1", "defaults used"]),
        ("a = 1\nb = = 2\n", ["line 2", "defaults used"]),
        ("a=" + "[" * 3000, ["ignored", "defaults used", "too deep"]),
    ],
)
def test_a_mistake_is_reported_and_the_default_used(write: Write, text: str, words: list[str]) -> None:
    path = write("p.toml", text)
    loaded = load(str(path))
    assert 1 == len(loaded.problems), loaded.problems
    for word in [*words, str(path)]:
        assert word in loaded.problems[0]
    assert (Policy().memlock_min, Policy().gate, Policy().results, ()) == (
        loaded.memlock_min,
        loaded.gate,
        loaded.results,
        loaded.mutes,
    )


def test_the_least_that_a_site_may_expect_is_one(write: Write) -> None:
    loaded = load(str(write("p.toml", '[nodes."*"]\nmemory_min = 1\n')))
    assert ((), [1]) == (loaded.problems, [table.expected.memory_min for table in loaded.nodes])


SITE = """
[nodes."*"]
mounts = ["/fsx lustre"]
P1 = ["mounts"]
memory_min = 1000
[nodes."gpu-[1-64]"]
mounts = ["/scratch", "/fsx lustre"]
modules = ["nvidia"]
cpus_min = 192
P2 = ["modules", "mounts"]
[nodes."gpu-64,cpu-*"]
cpus_min = 96
"""


@pytest.mark.parametrize(
    ("node", "cpus", "mounts", "priorities"),
    [
        ("gpu-7", 192, ("/fsx lustre", "/scratch"), {"mounts": "P2", "modules": "P2"}),
        ("gpu-64", 96, ("/fsx lustre", "/scratch"), {"mounts": "P2", "modules": "P2"}),
        ("gpu-65", 0, ("/fsx lustre",), {"mounts": "P1"}),
        ("cpu-a", 96, ("/fsx lustre",), {"mounts": "P1"}),
    ],
)
def test_the_tables_that_name_a_node_hold_for_it_together_and_the_last_number_counts(
    write: Write, node: str, cpus: int, mounts: tuple[str, ...], priorities: dict[str, str]
) -> None:
    loaded = load(str(write("p.toml", SITE)), node=node)
    expected = loaded.expected()
    assert () == loaded.problems
    assert (cpus, mounts, 1000) == (expected.cpus_min, expected.mounts, expected.memory_min)
    assert priorities == expected.priorities


def test_node_tables_are_read_without_the_reader_of_the_standard_library() -> None:
    assert toml.loads(SITE) == toml.plain(SITE)


@pytest.mark.parametrize(
    "text",
    [
        '[nodes."a"]\n[nodes."a"]\n',
        '[[nodes]]\n[nodes."a"]\nx = 1\n',
        'nodes = 1\n[nodes."a"]\n',
        '[nodes."a"]\n[[nodes]]\n',
        "[nodes.'a']\nx = 1\n",
        '[nodes."a\\u0062"]\n',
    ],
)
def test_what_could_mean_something_else_in_toml_is_left_to_its_reader(text: str) -> None:
    assert toml.plain(text) is None


def test_a_list_that_would_take_a_hooks_time_is_cut_and_told(write: Write) -> None:
    names = json.dumps([f"m{number}" for number in range(100)])
    loaded = load(str(write("p.toml", f'[nodes."*"]\nmodules = {names}\n')), node="n1")
    assert 64 == len(loaded.expected().modules)
    assert "100 entries, the first 64" in loaded.problems[0]


def test_one_mistake_does_not_cost_the_other_keys(write: Write) -> None:
    loaded = load(str(write("p.toml", "memlock_min = 'big'\nshm_min = 5\n")))
    assert (Policy().memlock_min, 5) == (loaded.memlock_min, loaded.shm_min)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_ignored_and_reported(write: Write, mode: int) -> None:
    path = write("p.toml", "memlock_min = 1\n", mode)
    loaded = load(str(path))
    assert Policy().memlock_min == loaded.memlock_min
    assert "chmod go-w" in loaded.problems[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_ignored_and_reported(write: Write) -> None:
    path = write("p.toml", "memlock_min = 1\n")
    os.chown(path, 4242, 4242)
    loaded = load(str(path))
    assert Policy().memlock_min == loaded.memlock_min
    assert "owned by uid 4242" in loaded.problems[0]


def test_a_link_a_folder_and_a_fifo_are_ignored_and_reported(write: Write, tmp_path: Path) -> None:
    real = write("p.toml", "memlock_min = 1\n")
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "folder", "fifo"):
        loaded = load(str(tmp_path / name))
        assert Policy().memlock_min == loaded.memlock_min
        assert str(tmp_path / name) in loaded.problems[0]


def test_text_that_is_no_utf8_is_reported(write: Write) -> None:
    assert "ignored" in load(str(write("p.toml", b"memlock_min = 1 # \xff\n"))).problems[0]


def test_the_hash_tells_two_policies_apart(write: Write) -> None:
    one = load(str(write("a.toml", "memlock_min = 1\n")))
    two = load(str(write("b.toml", "memlock_min = 2\n")))
    assert one.hash != two.hash


@pytest.mark.parametrize(
    ("mute", "muted"),
    [
        (Mute("efa-missing", "known"), "known"),
        (Mute("efa-*", "known"), "known"),
        (Mute("xid-*", "known"), ""),
        (Mute("efa-*", "known", node="n1"), "known"),
        (Mute("efa-*", "known", node="n2"), ""),
        (Mute("efa-*", "known", until="2000-01-01"), ""),
        (Mute("efa-*", "known", until="2999-01-01"), "known (until 2999-01-01)"),
        (Mute("efa-*", "known", until="2999-01-01", author="ops"), "known (ops, until 2999-01-01)"),
        (Mute("efa-*", "known", instance="i-0123456789abcdef0"), ""),
    ],
)
def test_a_mute_marks_what_it_covers_and_nothing_else(mute: Mute, muted: str) -> None:
    policy = Policy(node="n1", instance="i-0fedcba9876543210", mutes=(mute,))
    assert muted == policy.mute(Finding(RULE, "16 of 32")).muted


def test_a_mute_past_its_date_is_known_and_is_no_mistake(write: Write) -> None:
    today = time.strftime("%Y-%m-%d")
    rows = [f"[[mutes]]\nrule = 'efa-*'\nreason = 'r'\nuntil = '{day}'\n" for day in ("2000-01-01", today)]
    loaded = load(str(write("p.toml", "".join(rows))))
    assert ((), ["2000-01-01"]) == (loaded.problems, [mute.until for mute in loaded.expired()])


@given(st.dates())
def test_every_day_of_the_calendar_is_a_date(day: datetime.date) -> None:
    assert _is_date(day.isoformat())


@given(st.from_regex(r"[0-9]{3,5}-[0-9]{1,3}-[0-9]{1,3}|.{10}", fullmatch=True))
def test_what_the_calendar_does_not_have_is_none(text: str) -> None:
    try:
        day = time.strptime(text, "%Y-%m-%d")
        good = f"{day.tm_year:04}-{day.tm_mon:02}-{day.tm_mday:02}" == text
    except ValueError:
        good = False
    assert good == _is_date(text)


PLAIN = """
# thresholds
memlock_min = 17179869184   # bytes
shm_used_max = 0.75
scan_job_output = false
gate = ["efa-missing", "gpu-lost"]
partitions = []
results_shared = "/fsx/hpslurm"

[[mutes]]
rule = "mtu-*"
reason = "ticket 4711, ü # no remark"
[[mutes]]
rule = "x"
reason = ""
"""


def test_a_plain_policy_is_read_without_the_reader_of_the_standard_library() -> None:
    assert toml.loads(PLAIN) == toml.plain(PLAIN)


@pytest.mark.parametrize(
    "line",
    ["a = 'x'", "a.b = 1", "[a]", "a = 1_000", "a = 01", 'a = "x\\n"', "a = [1]", 'a = ["x" "y"]', "a = 1979-05-27",
     'a = ["x",', "a = 1\na = 2", "a = 1\r", "a", "= 1", 'a = """x"""', "a = 1 b = 2", "a = 1\n[[a]]", "a = # x"],
)  # fmt: skip
def test_anything_else_is_left_to_the_standard_library(line: str) -> None:
    assert None is toml.plain(line)


LINES = [*PLAIN.splitlines(), "a = -1", "a = ['x']", 'b = ["x",]', "c = [,]", "d = -0", "[[a]]", "a=1.5", "e = +1"]
LINES += ["\tf = true # x", "g = 1.", "h = .5", 'i = "\t"', "mutes = 3", 'j = ""', "k = [ ]", 'l = [ "x" , "y" ]']


@given(st.lists(st.sampled_from(LINES)))
def test_what_is_read_plainly_means_the_same_to_the_standard_library(lines: list[str]) -> None:
    text = "\n".join(lines)
    read = toml.plain(text)
    if read is not None:
        assert toml.loads(text) == read


@given(st.text(alphabet="ab=[]\",.\\# \n\t\r\x0b\x85\u2028019-_truefals'"))
def test_plain_reading_never_takes_what_the_standard_library_refuses(text: str) -> None:
    read = toml.plain(text)
    if read is not None:
        assert toml.loads(text) == read


def test_a_file_of_a_mebibyte_is_read_and_a_larger_one_is_not(write: Write) -> None:
    text = "memlock_min = 1\n"
    for more, words in ((0, []), (1, ["1048577 bytes, more than 1048576"])):
        loaded = load(str(write("p.toml", text + "#" * ((1 << 20) - len(text) + more))))
        assert words == [one.partition("used: ")[2] for one in loaded.problems]
        assert (Policy().memlock_min if more else 1) == loaded.memlock_min


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_file_of_root_is_believed_whoever_reads_it() -> None:
    os.seteuid(65534)
    try:
        assert not any("owned by" in one for one in load("/etc/passwd").problems)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "day", ["2028-02-29", "2000-02-29", "2026-02-28", *(f"2026-{month:02}-30" for month in (1, *range(3, 13)))]
)
def test_the_last_days_of_a_month_are_dates(day: str) -> None:
    assert _is_date(day)


@pytest.mark.parametrize(
    "day",
    ["2027-02-29", "2100-02-29", "2028-02-30", "2026-00-01", "2026-13-01", "2026-01-00", "0000-01-01", "2026-1-01"]
    + [f"2026-{month:02}-31" for month in (4, 6, 9, 11)]
    + [f"2026-{month:02}-32" for month in (1, 3, 5, 7, 8, 10, 12)],
)
def test_the_day_after_the_last_is_none(day: str) -> None:
    assert not _is_date(day)


def test_the_last_day_of_a_long_month_is_a_date() -> None:
    assert all(_is_date(f"2026-{month:02}-31") for month in (1, 3, 5, 7, 8, 10, 12))


def test_zero_is_a_number(write: Write) -> None:
    loaded = load(str(write("p.toml", "gate_per_hour = 0\nguard_share = 0\n")))
    assert (0, 0.0, ()) == (loaded.gate_per_hour, loaded.guard_share, loaded.problems)

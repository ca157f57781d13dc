"""The page: complete, harmless, and in a real browser as it is meant."""

from __future__ import annotations

import http.server
import re
import threading
from functools import partial
from html.parser import HTMLParser

import pytest

from hpslurm.cluster import guard, view
from hpslurm.cluster.model import CONTROLLER, WORKER, Member, Members
from hpslurm.cluster.node_rows import node_rows
from hpslurm.cluster.plans import plans
from hpslurm.core.finding import LOOK, P0, P1, P2, Evidence, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.records import Record
from hpslurm.show import page as html
from hpslurm.sources.slurm import SlurmNode
from tests.show import browser

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>'\"&"
BAD = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6")
SLOW = Rule("shm-small", P1, "Shared memory small", "debugging-guide.md § 17")
NOTE = Rule("record-missing", P2, "Nodes that were not looked at", "operations.md § 7")


def members(count=3, reason=""):
    nodes = [SlurmNode(f"ip-10-1-0-{n}", "IDLE", ("DRAIN",) if reason else (), reason) for n in range(1, count + 1)]
    record = Record("n", "check", {"time": 1_799_999_000.0}, ())
    everyone = tuple(Member(node.name, slurm=node, role=WORKER, record=record) for node in nodes)
    return Members(everyone, 1_800_000_000.0, "demo")


def finding(rule=BAD, subject="ip-10-1-0-2", text="31 of 32"):
    steps = [Suggestion(LOOK, "see them", "srun -w {nodes} ls")]
    return rule.found(text, evidence=[Evidence("sysfs", text)], suggest=steps, subject=subject)


def page(*findings, **how):
    found = Result("efa", "fail", findings=findings) if findings else Result("efa", "pass")
    results, everyone = [found, *how.pop("more", ())], members(**how)
    answer = view.answer(results, everyone, plans(results, guard.scene_of(results, everyone, Policy()), Policy()))
    rows = node_rows(results, everyone)
    return html.page(results, rows, ["Slurm nodes: 3"], everyone.now, everyone.cluster, answer=answer)


def tags(text):
    """All elements with their attributes, and the text of the rest."""
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append((tag, dict(attrs)))

    Reader().feed(text)
    return found


def test_foreign_text_is_shown_and_never_run():
    text = page(finding(text=EVIL), reason=EVIL, more=[Result("x", "unknown", EVIL), Result("y", "skip", EVIL)])
    elements = tags(text)
    assert 1 == sum(tag == "script" for tag, _ in elements)
    assert [] == [
        tag for tag, attributes in elements if tag == "img" or any(key.startswith("on") for key in attributes)
    ]
    assert text.count("&lt;/script&gt;") >= 5


def test_the_page_loads_nothing_from_anywhere():
    text = page(finding())
    assert [] == [
        (tag, a) for tag, a in tags(text) if {"src", "href", "srcset", "data"} & set(a) or tag in ("link", "iframe")
    ]
    assert "url(" not in text and "@import" not in text
    assert "default-src 'none'" in text


def test_findings_commands_and_sections_are_there():
    text = page(finding(), finding(SLOW, "ip-10-1-0-3"), finding(NOTE, ""))
    for words in (
        "[FAIL] P0 efa-missing · ip-10-1-0-2",
        "[FAIL] P1 shm-small · ip-10-1-0-3",
        "[INFO] P2 record-missing",
        '<pre class="command">srun -w ip-10-1-0-2 ls</pre>',
        "debugging-guide.md § 17 (hpslurm explain shm-small)",
        "Issues found: 3 (1 P0, 1 P1, 1 P2)",
    ):
        assert words in text


def test_without_findings_what_could_not_be_checked_is_said():
    text = page(more=[Result("hyperpod", "unknown", "grant sagemaker:DescribeCluster, operations.md § 2")])
    assert "No findings in what could be checked." in text
    assert "grant sagemaker:DescribeCluster" in text


def test_the_table_has_a_row_for_each_node_gravest_first_and_the_picture_a_square():
    rows = node_rows([Result("efa", "fail", findings=(finding(), finding(NOTE, "ip-10-1-0-3")))], members())
    assert [("ip-10-1-0-2", "p0"), ("ip-10-1-0-3", "p2"), ("ip-10-1-0-1", "ok")] == [(r.name, r.grade) for r in rows]
    squares = html.picture(rows * 20)
    assert (0, 0, "p0", "ip-10-1-0-2 efa-missing") == squares[0]
    assert (0, html.SQUARE) == squares[html.COLUMNS][:2]


def test_a_node_that_nobody_saw_is_not_shown_as_fine():
    node = SlurmNode("n1", "IDLE")
    for role, grade in ((WORKER, "unknown"), (CONTROLLER, "ok")):
        (row,) = node_rows([], Members((Member("n1", slurm=node, role=role),), 0.0))
        assert grade == row.grade


def test_the_page_begins_with_the_verdict_and_the_plan_of_each_node() -> None:
    text = page(finding(), finding(SLOW, "ip-10-1-0-2"), finding(SLOW, "ip-10-1-0-3"))
    verdict, plan, rules = (
        text.index(words)
        for words in (
            "[FAIL] Cluster demo: 2 of 3 nodes need attention",
            "What to do, by node",
            "<h2>All findings, by rule</h2>",
        )
    )
    assert verdict < plan < rules
    assert "<h3>P0 · ip-10-1-0-2" in text[plan:rules]
    assert 2 == text[plan:rules].count("<article")


def test_a_column_that_no_node_has_is_left_out() -> None:
    heads = re.findall(r'<th aria-sort="none">(\w+)</th>', page(finding()))
    assert ["Node", "Role", "Slurm", "Record", "Findings"] == heads


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """One for all tests. It takes ``report.test`` for this machine: an address whose pages get no clipboard."""
    if browser.CHROMIUM is None:
        pytest.skip("needs chromium: apt-get install chromium")
    options = ("--host-resolver-rules=MAP report.test 127.0.0.1",)
    with browser.Browser(tmp_path_factory.mktemp("profile"), *options) as started:
        yield started


def test_in_a_browser_the_script_runs_the_filter_works_and_foreign_script_does_not(tmp_path, chromium):
    path = tmp_path / "report.html"
    path.write_text(page(finding(text=EVIL), finding(SLOW, "ip-10-1-0-3"), reason=EVIL))
    shown = chromium.open(path.as_uri())
    # the policy that the page gives itself lets its own script run
    assert "3 of 3 nodes" == shown.value("document.getElementById('shown').textContent")
    assert "hpslurm diagnose · demo" == shown.value("document.title")
    shown.click("document.getElementById('words')")
    shown.type("EFA-missing")
    assert "1 of 3 nodes" == shown.value("document.getElementById('shown').textContent")
    assert 2 == shown.value("document.querySelectorAll('#nodes tr[hidden]').length")
    filtered = chromium.open(f"{path.as_uri()}#shm-small")
    assert "1 of 3 nodes" == filtered.value("document.getElementById('shown').textContent")


def test_in_a_browser_ten_thousand_nodes_are_sorted_by_the_column_that_is_clicked(tmp_path, chromium):
    path = tmp_path / "report.html"
    path.write_text(page(finding(), count=10_000))
    assert path.stat().st_size < 6_000_000
    shown = chromium.open(path.as_uri())
    names = "[...document.querySelectorAll('#nodes tbody tr')].map(row => row.cells[0].textContent.split(' ').pop())"
    head = "document.querySelector('#nodes th')"
    for first, last, order in (("1", "10000", "ascending"), ("10000", "1", "descending")):
        shown.click(head)
        listed = shown.value(names)
        assert (10_000, f"ip-10-1-0-{first}", f"ip-10-1-0-{last}") == (len(listed), listed[0], listed[-1])
        assert order == shown.value(f"{head}.ariaSort")


COMMAND = f"srun -w {{nodes}} sh -c 'dmesg  | grep -e \"a & <b>\" | tail -{'4' * 120}'"


@pytest.mark.parametrize("host", ["", "http://127.0.0.1", "http://report.test"])  # the last one has no clipboard for us
def test_in_a_browser_the_copy_button_puts_exactly_the_command_into_the_clipboard(tmp_path, chromium, served, host):
    path = tmp_path / "report.html"
    command = COMMAND + (host or "file")  # another one each time: the clipboard keeps the last
    steps = [Suggestion(LOOK, "see them", command)]
    path.write_text(page(BAD.found("31 of 32", suggest=steps, subject="ip-10-1-0-2")))
    shown = chromium.open(f"{host}:{served}/report.html" if host else path.as_uri())
    assert (host != "http://report.test") == shown.value("!!navigator.clipboard")
    button = "document.querySelector('ol.steps button')"
    shown.click(button)
    shown.wait_for(f"{button}.textContent === 'copied'")
    assert command.replace("{nodes}", "ip-10-1-0-2") == chromium.open(browser.PASTE_INTO).paste()


def test_in_a_browser_that_copies_nothing_the_button_does_not_say_that_it_did(tmp_path, chromium):
    path = tmp_path / "report.html"
    path.write_text(page(finding()))
    shown = chromium.open(path.as_uri())
    shown.value("navigator.clipboard.writeText = () => Promise.reject(), document.execCommand = () => false")
    shown.click("document.querySelector('ol.steps button')")
    shown.wait_for("document.querySelector('ol.steps button').textContent === 'selected: press Ctrl+C'")
    assert "srun -w ip-10-1-0-2 ls" == shown.value("getSelection().toString()")


@pytest.fixture
def served(tmp_path):
    """The port of a server that hands out the files of the test's folder."""
    handler = partial(QuietHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

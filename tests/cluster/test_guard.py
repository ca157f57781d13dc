"""The guard: what it withdraws, pins and adds."""

from __future__ import annotations

from hpslurm.cluster import guard
from hpslurm.cluster.model import CONTROLLER, LOGIN, Instance, Member, Members
from hpslurm.core import suggest
from hpslurm.core.finding import DRAIN, LOOK, P1, REBOOT, REPLACE, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.show.render import fold, in_order_of_harm
from hpslurm.sources.slurm import Queued, SlurmNode

BAD = Rule("gpu-bad", P1, "GPU bad", "debugging-guide.md § 7")
ADVICE = (
    Suggestion(LOOK, "look", "scontrol show node {nodes}"),
    suggest.save_evidence(),
    suggest.drain("gpu-bad"),
    suggest.reboot("first"),
    suggest.replace("later"),
)


def cluster(count=20, cluster="", **special):
    """Nodes n1.. that are fine, but for those named: n3=Member(...)."""
    names = [f"n{number}" for number in range(1, count + 1)]
    return Members(tuple(special.get(name) or Member(name, SlurmNode(name, "IDLE")) for name in names), 0.0, cluster)


def guarded(members, *names, policy=None, advice=ADVICE):
    findings = tuple(BAD.found("bad", suggest=advice, subject=name) for name in names)
    return guard.apply([Result("gpu", "fail", findings=findings)], members, policy or Policy())


def commands(results, step):
    """As the report shows them: of the one folded finding, in order."""
    (folded,) = fold(finding for result in results if result.probe == "gpu" for finding in result.findings)
    return [item.command for item in in_order_of_harm(folded.suggestions) if item.harm == step and item.command]


def notes(results):
    return [item.why for result in results for one in result.findings for item in one.suggestions if not item.command]


def test_a_bad_worker_keeps_all_that_was_suggested():
    results = guarded(cluster(), "n2", "n3")
    assert ["sudo scontrol update nodename='n[2-3]' state=fail reason='Action:Reboot'"] == commands(results, REBOOT)
    assert ["sudo scontrol update nodename='n[2-3]' state=fail reason='Action:Replace'"] == commands(results, REPLACE)
    assert ["scontrol show node {nodes}", ADVICE[1].command] == commands(results, LOOK)


def test_controller_and_login_nodes_are_never_rebooted_or_replaced():
    members = cluster(n1=Member("n1", SlurmNode("n1", "IDLE"), role=CONTROLLER), n2=Member("n2", role=LOGIN))
    results = guarded(members, "n1", "n2", "n3")
    assert ["sudo scontrol update nodename=n3 state=fail reason='Action:Reboot'"] == commands(results, REBOOT)
    assert any("nothing that changes it is suggested for n1: this is the controller" in note for note in notes(results))
    assert any("nothing that changes it is suggested for n2: this is a login node" in note for note in notes(results))


def test_a_node_that_slurm_does_not_list_gets_no_command_that_acts():
    results = guarded(cluster(), "evil; rm -rf /")
    assert [] == commands(results, REBOOT) + commands(results, REPLACE)


def test_a_node_that_hyperpod_handles_is_left_alone():
    handled = Member("n1", SlurmNode("n1", "IDLE", ("FAIL",), "Action:Reboot : Not responding"))
    results = guarded(cluster(n1=handled), "n1", "n2")
    drain = "sudo scontrol update nodename=n2 state=drain reason='hpslurm: gpu-bad'"
    assert [drain] == commands(results, DRAIN)
    assert ["scontrol show node {nodes}", ADVICE[1].command] == commands(results, LOOK)
    assert any(
        "suggested for n1: HyperPod handles the node by its reason: leave it alone" in note for note in notes(results)
    )


def test_an_old_action_on_a_node_that_is_back_does_not_count():
    back = Member("n1", SlurmNode("n1", "IDLE", (), "Action:Reboot"))
    assert 1 == len(commands(guarded(cluster(n1=back), "n1"), REBOOT))


def test_beyond_the_sites_share_it_looks_like_one_cause():
    names = [f"n{number}" for number in range(1, 6)]
    assert 1 == len(commands(guarded(cluster(20), *names), REBOOT))  # 25 percent is not beyond it
    results = guarded(cluster(19), *names)
    assert [] == commands(results, REBOOT) + commands(results, REPLACE)
    assert "this looks like one cause, do not act node by node" in results[-1].findings[0].detail
    assert ["cluster-one-cause"] == [one.rule.id for one in results[-1].findings]
    assert 1 == len(commands(guarded(cluster(19), *names, policy=Policy(guard_share=0.5)), REBOOT))


def test_three_of_four_nodes_say_nothing_about_a_share():
    assert 1 == len(commands(guarded(cluster(4), "n1", "n2", "n3"), REBOOT))


def test_at_most_25_nodes_a_call():
    names = [f"n{number}" for number in range(1, 31)]
    first, second = commands(guarded(cluster(200), *names), REBOOT)
    assert ("nodename='n[1-25]'", "nodename='n[26-30]'") == (first.split()[3], second.split()[3])


def test_both_forms_where_the_ids_are_known():
    known = Member("n1", SlurmNode("n1", "IDLE"), instance_id="i-0123456789abcdef0")
    results = guarded(cluster(20, "ml-cluster", n1=known), "n1")
    api = "aws sagemaker batch-reboot-cluster-nodes --cluster-name ml-cluster --node-ids i-0123456789abcdef0"
    assert api == commands(results, REBOOT)[1]
    assert "batch-replace-cluster-nodes" in commands(results, REPLACE)[1]


def test_jobs_that_would_end_are_listed():
    job = Queued(7, "RUNNING", "alice", 1, "all", 1, None, None, "n1", "None")
    busy = Member("n1", SlurmNode("n1", "MIXED"), jobs=(job,))
    results = guarded(cluster(n1=busy), "n1")
    (act,) = [one for one in results[0].findings[0].suggestions if one.harm == REBOOT]
    assert "first; jobs there: 7 of alice (state=fail waits until they end)" == act.why


def test_a_suggestion_for_some_nodes_of_a_finding_names_them():
    findings = (
        BAD.found("bad", suggest=ADVICE[:1], subject="n1"),
        BAD.found("bad", suggest=(Suggestion(LOOK, "only here", "lspci # {nodes}"),), subject="n2"),
    )
    results = guard.apply([Result("gpu", "fail", findings=findings)], cluster(), Policy())
    assert ["scontrol show node n1", "lspci # n2"] == commands(results, LOOK)


def test_a_finding_of_the_whole_cluster_is_left_as_it_is():
    finding = BAD.found("bad", suggest=[Suggestion(LOOK, "look", "sinfo")])
    (result,) = guard.apply([Result("gpu", "fail", findings=(finding,))], cluster(), Policy())
    assert (finding,) == result.findings


def test_from_four_nodes_on_a_share_says_something():
    assert 1 == len(commands(guarded(cluster(8), "n1", "n2", "n3"), REBOOT))
    assert [] == commands(guarded(cluster(8), "n1", "n2", "n3", "n4"), REBOOT)


def test_ten_jobs_that_would_end_are_named_and_of_more_the_first_ten():
    for count, more in ((10, ""), (11, " and 1 more")):
        jobs = tuple(Queued(number, "RUNNING", "a", 1, "all", 1, None, None, "n1", "None") for number in range(count))
        busy = Member("n1", SlurmNode("n1", "MIXED"), jobs=jobs)
        (act,) = [one for one in guarded(cluster(n1=busy), "n1")[0].findings[0].suggestions if one.harm == REBOOT]
        assert f"9 of a{more} (state=fail" in act.why


def test_four_in_five_have_something_in_common():
    for alike, others, told in ((4, 1, "4 of them with image 'a'"), (7, 2, "")):
        images = ["a"] * alike + [f"b{number}" for number in range(others)]
        members = [
            Member(f"n{number}", instance=Instance(f"i-{number}", f"g{number}", f"s{number}", image=image))
            for number, image in enumerate(images)
        ]
        assert told == guard._shared(members)

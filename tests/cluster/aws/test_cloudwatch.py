from __future__ import annotations

import pytest

from hpslurm.cluster.aws import deep_checks, health_agent, lifecycle
from hpslurm.cluster.aws.health_agent import Facts, LogLine
from hpslurm.core.policy import Policy
from hpslurm.core.values import replace
from tests.cluster.aws.test_hyperpod import HEALTHY, NOW, ONE, with_group

MARK = '"HealthMonitoringAgentDetectionEvent":"HealthEvent"'
XID_71 = (
    '{"level":"info","ts":"2024-08-21T18:35:35Z","msg":"NPD caught event: %v","details: ":{"severity":"warn",'
    '"reason":"XidHardwareFailure","message":"Node condition NvidiaErrorReboot is now: True, reason: '
    'XidHardwareFailure, message: \\"NVRM: Xid (PCI:0000:b9:00): 71, pid=<unknown>, name=<unknown>\\""},' + MARK + "}"
)
DCGM = (
    '{"level":"info","msg":"DCGM Policy Violation found ","condition: ":"XID Error","data: ":{"ErrNum":79},'
    + MARK
    + "}"
)
REPLACE = (
    '{"level":"info","msg":"Event detail","event: ":{"Action":"Replace","Type":"NvidiaGPUUnhealthy",'
    '"Reason":"NvidiaGpuXidErrorPendingReplacement","Message":"x"},' + MARK + "}"
)
PROGRAM = (
    '{"msg":"NPD caught event: %v","details: ":{"reason":"XidUserAppError","message":"NVRM: Xid (PCI:0000:b9:00): 31"},'
    + MARK
    + "}"
)


def line(text, minutes=10.0, stream="SagemakerHealthMonitoringAgent/worker-group-1/" + ONE.id):
    return health_agent.parse({"logStreamName": stream, "timestamp": (NOW - minutes * 60) * 1000, "message": text})


def agent(*lines, instances=(ONE,)):
    return list(health_agent.judge(Facts(lines, instances, NOW), Policy()))


def ids(found):
    return [(finding.rule.id, finding.subject) for finding in found]


@pytest.mark.parametrize(
    ("text", "rule", "what", "wants"),
    [
        (XID_71, "agent-fault", "XidHardwareFailure Xid 71 on 0000:b9:00", "a reboot"),
        (
            XID_71.replace("NvidiaErrorReboot", "NvidiaErrorTerminate"),
            "agent-fault",
            "Xid 71 on 0000:b9:00",
            "a replacement",
        ),
        (DCGM, "agent-violation", "XID Error 79", ""),
        (REPLACE, "agent-fault", "NvidiaGPUUnhealthy NvidiaGpuXidErrorPendingReplacement", "Replace"),
        (PROGRAM, "agent-program", "Xid 31 on 0000:b9:00", ""),
    ],
)
def test_a_line_of_the_agent_is_understood(text, rule, what, wants):
    said = health_agent.understand(text)
    assert (rule, wants) == (said.rule.id, said.wants)
    assert what in said.what


ENDED = '{"condition details":{"type":"NvidiaErrorReboot","status":"False"},' + MARK + "}"


def test_a_line_that_is_no_health_event_says_nothing():
    assert health_agent.understand('{"msg":"starting"}') is None


def test_a_condition_that_ended_takes_its_earlier_lines_back_and_not_its_later_ones():
    assert [] == agent(line(XID_71, 20), line(ENDED, 10))
    assert [] == agent(line(XID_71, 20), line(XID_71.replace("is now: True", "is now: False"), 10))
    assert [("agent-fault", "ip-10-1-0-1")] == ids(agent(line(ENDED, 20), line(XID_71, 10)))
    assert ["agent-violation"] == [rule for rule, _ in ids(agent(line(DCGM, 20), line(ENDED, 10)))]


def test_of_a_condition_that_names_a_good_state_false_is_the_trouble():
    sick, well = (
        XID_71.replace("NvidiaErrorReboot is now: True", f"NeuronHealth is now: {state}") for state in (False, True)
    )
    (found,) = agent(line(sick))
    assert ("agent-violation", True) == (found.rule.id, "NeuronHealth" in found.detail)
    assert [] == agent(line(well))


def test_a_line_that_is_no_json_is_still_read():
    assert "agent-fault" == health_agent.understand("Node condition NvidiaErrorReboot is now: True " + MARK).rule.id


def test_a_condition_of_another_device_is_a_fault_that_wants_what_its_last_word_says():
    report = health_agent.understand("Node condition EFAErrorTerminate is now: True " + MARK)
    assert ("agent-fault", "a replacement") == (report.rule.id, report.wants)


def test_the_fault_is_told_of_the_node_once_with_all_lines():
    found = agent(line(XID_71, 5), line(XID_71, 9))
    assert [("agent-fault", "ip-10-1-0-1")] == ids(found)
    assert found[0].detail.startswith("2 times, last 5 minutes ago on i-0123456789abcdef0: ")
    assert found[0].detail.endswith("; the agent asks for a reboot")


def test_the_fault_of_an_instance_that_was_replaced_is_history():
    assert [] == agent(line(XID_71), instances=(replace(ONE, id="i-0fedcba9876543210"),))


def test_without_the_list_of_instances_the_instance_id_is_the_name():
    assert [("agent-fault", ONE.id)] == ids(agent(line(XID_71), instances=None))


FAULTY = (
    "Encountered FaultyInstance. Replace the Instance. Region: us-west-2, InstanceType: p5.48xlarge. ERROR: Bandwidth "
    "has less than threshold: Expected minimum threshold: 80, NCCL Test output Bw: 30"
)


def deep(*lines, instances=(ONE,)):
    return list(deep_checks.judge(Facts(lines, instances, NOW), Policy()))


def test_a_deep_check_that_failed_says_what_was_measured():
    found = deep(line(FAULTY + f" {ONE.id}", stream="DeepHealthCheckResults/abc"))
    assert [("deep-check-failed", "ip-10-1-0-1")] == ids(found)
    assert "10 minutes ago: NCCL test reached 30, expected 80 (GB/s)" == found[0].detail


def test_a_deep_check_that_names_no_instance_is_told_of_its_stream():
    assert [("deep-check-failed", "DeepHealthCheckResults/abc")] == ids(
        deep(line(FAULTY, stream="DeepHealthCheckResults/abc"))
    )


def test_a_deep_check_of_a_replaced_instance_is_history():
    assert [] == deep(line(FAULTY + " i-0fedcba9876543210", stream="DeepHealthCheckResults/abc"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("summary: x replacementRequired: true rebootRequired: false", "DCGM asks to replace it"),
        ("summary: x replacementRequired: false rebootRequired: true", "DCGM asks to reboot it"),
        ("summary: x replacementRequired: false rebootRequired: false", ""),
        ("all well", ""),
    ],
)
def test_dcgm_says_what_it_asks_for(text, what):
    assert what == deep_checks.understand(text)


STREAM = "LifecycleConfig/worker-group-1/" + ONE.id
DOWNLOAD, SUCCEEDED = "[SageMaker] Downloading lifecycle scripts", "[SageMaker] The lifecycle scripts succeeded."
TROUBLE = "ERROR Connect timeout on endpoint URL: https://s3.us-west-2.amazonaws.com"


def scripts(*texts, status="Failure", cluster=HEALTHY, instances=None):
    lines = tuple(line(text, 60 - n, STREAM) for n, text in enumerate(texts))
    listed = (replace(ONE, status=status),) if instances is None else instances
    return list(lifecycle.judge(lifecycle.Facts(lines, cluster, listed, NOW), Policy()))


def test_errors_of_a_failed_instance_are_explained():
    found = scripts(DOWNLOAD, TROUBLE)
    assert [("lifecycle-failed", "ip-10-1-0-1")] == ids(found)
    assert "S3 cannot be reached" in found[0].detail


def test_errors_before_a_success_or_before_the_last_attempt_are_history():
    assert [] == scripts(DOWNLOAD, TROUBLE, SUCCEEDED)
    assert [] == scripts(TROUBLE, DOWNLOAD)


def test_an_instance_that_runs_has_finished_its_scripts():
    assert [] == scripts(DOWNLOAD, TROUBLE, status="Running")


def test_an_instance_between_two_attempts_is_missing_and_its_group_short():
    assert [] == scripts(DOWNLOAD, TROUBLE, instances=())
    found = scripts(DOWNLOAD, TROUBLE, instances=(), cluster=with_group(current=3))
    assert [("lifecycle-failed", "worker-group-1")] == ids(found)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("/bin/bash^M: bad interpreter: No such file", "Windows line ends"),
        ("An error occurred (AccessDenied) when calling the GetObject operation", "lacks a permission"),
        ("KeyError: 'worker-group-9'", "provisioning_parameters.json"),
        ("failed to ping 10.1.0.9@tcp: Network is down", "FSx"),
        ("fatal: unable to access 'https://example.invalid/'", "download from the internet"),
        ("cp: No space left on device", "root volume is full"),
        ("Error: something else", ""),
    ],
)
def test_known_script_errors_have_a_meaning(text, meaning):
    assert meaning in lifecycle.understand(text)
    assert bool(meaning) == bool(lifecycle.understand(text))


def test_a_line_knows_its_group_and_instance_by_its_stream():
    assert LogLine(NOW - 600, STREAM, "x", "worker-group-1", ONE.id) == line("x", 10, STREAM)
    assert "" == line("x", 10, "DeepHealthCheckResults/abc").instance

"""What leaves the site in a bundle: no secret survives, and the error lines still say what they said."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpslurm.bundle.masking import MASKED, Masker, rules
from hpslurm.core import nodeset, toml
from tests.scan.cases import CORPUS, HEALTHY, WRITTEN, diagnose, log_of

ROWS: list[dict[str, Any]] = toml.table("masking")
by_id = pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])


def masked(text: str, **known: Any) -> str:
    return Masker(**known).mask(text)


class TestTable:
    @by_id
    def test_a_row_hides_what_its_example_holds(self, row: dict[str, Any]) -> None:
        masker = Masker()
        text = masker.mask(row["example"])
        assert row["it"] in row["example"]
        assert row["it"] not in text
        assert masker.counts[row["id"]] > 0
        if row["kind"] == "token":
            assert f"{MASKED}{row['id']}>" in text

    @by_id
    def test_a_row_leaves_what_only_looks_like_it(self, row: dict[str, Any]) -> None:
        masker = Masker()
        masker.mask(row["silent"])
        assert 0 == masker.counts[row["id"]]

    @by_id
    def test_the_hints_of_a_row_are_lower_case_and_stand_in_its_example(self, row: dict[str, Any]) -> None:
        assert all(hint == hint.lower() for hint in row["hints"])
        assert any(hint in row["example"].lower() for hint in row["hints"])

    def test_ids_are_unique_and_kinds_are_known(self) -> None:
        assert len(ROWS) == len({rule.id for rule in rules()})
        assert {"token", "account", "user"} == {rule.kind for rule in rules()}


class TestPseudonyms:
    def test_a_node_and_its_address_stay_one(self) -> None:
        assert "198.18.0.1 is ip-198-18-0-1, not 198.18.0.2" == masked("10.1.0.7 is ip-10-1-0-7, not 10.1.0.8")

    def test_the_same_in_every_file(self) -> None:
        masker = Masker()
        assert masker.mask("n 10.1.0.7") == masker.mask("n 10.1.0.7")

    def test_nodes_given_first_are_numbered_as_given_so_that_lists_fold(self) -> None:
        masker = Masker(nodes=[f"ip-10-1-0-{number}" for number in range(3, 7)])
        assert "on ip-198-18-0-[1-3]," == masker.mask("on ip-10-1-0-[3-5],")
        assert "on ip-198-18-0-[1,3-4]," == masker.mask("on ip-10-1-0-[3,5-6],")

    def test_a_list_in_two_dimensions_is_hidden_too(self) -> None:
        text = masked("NodeName=ip-10-1-[0-1]-[3-4] CPUs=1")
        assert "NodeName=ip-198-18-0-[1-4] CPUs=1" == text

    @pytest.mark.parametrize("text", ["ip-10-1-0-[3-", "ip-10-[0-255]-[0-255]-[1-200]", "ip-10-1-0-[3-1]"])
    def test_a_list_that_is_none_leaves_no_address(self, text: str) -> None:
        assert "10-1" not in masked(f"on {text} x").replace("ip-198-18", "")

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("[::ffff:10.1.0.7]:29500", "[::ffff:198.18.0.1]:29500"),
            ("[fe80::8ff:1]%eth0", "[fe80::8ff:1]%eth0"),
            ("2600:1f14:0:1:2:3:4:7:29500 up", "2001:db8::1:29500 up"),
            ("2600:1f14::7:29500", "2001:db8::1:29500"),
            ("ip_10_9_8_7 IP-10-9-8-6 ip_10_9_8_7", "ip_198_18_0_2 IP-198-18-0-1 ip_198_18_0_2"),
            ("connect to peer 10.1.2.3", "connect to peer 198.18.0.1"),
            ("node1     10.1.2.3", "node1     198.18.0.1"),
            ("head-node  3.80.1.2", "head-node  198.18.0.1"),
            ("NCCL 10.1.2.3, driver of 9.1.2.3", "NCCL 198.18.0.1, driver of 198.18.0.2"),
            ("2600:1f14::7 and 2600:1f14:0::7", "2001:db8::1 and 2001:db8::1"),
            ("peer ip-10-1-0-8<51159>", "peer ip-198-18-0-1<51159>"),
            ("ip-10-1-0-7.us-west-2.compute.internal:29500", "ip-198-18-0-1.us-west-2.compute.internal:29500"),
            ("nccl.ip-10-1-0-7.4711.log", "nccl.ip-198-18-0-1.4711.log"),
            ("10.1.0.0/16", "198.18.0.1/16"),
            ("v10.1.0.7", "v198.18.0.1"),
        ],
    )
    def test_forms_of_an_address(self, text: str, wanted: str) -> None:
        assert wanted == masked(text)

    def test_an_account_is_hidden_wherever_it_stands_once_it_is_known(self) -> None:
        masker = Masker()
        masker.learn("arn:aws:iam::123456789012:role/x")
        assert "s3://logs-000000000001/x" == masker.mask("s3://logs-123456789012/x")

    def test_a_user_is_hidden_wherever_the_name_is_a_word(self) -> None:
        text = masked("UserId=alice(1000) JobName=alice_llama WorkDir=/fsx/alice malice")
        assert "UserId=user-1(1000) JobName=user-1_llama WorkDir=/fsx/user-1 malice" == text

    def test_a_user_who_is_called_like_a_word_of_error_lines_takes_none_of_them_along(self) -> None:
        assert "/home/user-1/x NCCL WARN nccl error" == masked("/home/nccl/x NCCL WARN nccl error")

    @pytest.mark.parametrize(
        "text",
        [
            "aws configure set aws_secret_access_key hunter2/K7MDENG",
            "MYSQL_PWD=hunter2 mysql -u slurm -phunter2 slurm_acct_db",
            'curl -H "X-Auth-Token: hunter2hunter2" -u hunter2:hunter2 https://x',
            """Namespace(hf_token='hunter2hunter2', lr=0.1, tokenizer='llama', max_tokens=2048)""",
            "Authorization: AWS4-HMAC-SHA256 Credential=hunter2/2025, Signature=hunter2",
            "ConnectionError: redis://:hunter2@10.1.2.3:6379/0",
            "{'MLFLOW_TRACKING_TOKEN': 'hunter2hunter2', 'SENTRY_AUTH': 'hunter2'}",
            "  DEPLOY_TOKEN: hunter2hunter2",
            "http_proxy=http://bob:p@hunter2!@proxy:3128",
            "train.py --hf_token hunter2 --wandb-api-key hunter2 --aws_secret_access_key hunter2",
            "train.py --password='a hunter2' --lr 1",
            "sshpass -p hunter2 ssh n1; sshpass -p 'a hunter2' ssh n1",
            "password='my hunter2 phrase' secret: 'x hunter2'",
            r"{\"url\": \"https://b/x?a=1\u0026X-Amz-Security-Token=hunter2\u0026X-Amz-Signature=hunter2\"}",
            "x%3FX-Amz-Credential%3DAKIAhunter2%252F2025%26X-Amz-Signature%3Dhunter2%26x-id%3DGet",
            "Authorization: Bearer 'hunter2hunter2hunter2'",
            "curl -H 'PRIVATE-TOKEN: hunter2hunter2' https://x",
            "POST https://discord.com/api/webhooks/4711/hunter2",
            "AIzahunter2hunter2hunter2hunter2hunter2 ya29.hunter2hunter2hunter2 dckr_pat_hunter2hunter2hunter2",
            "npm_hunter2hunter2hunter2 hvs.hunter2hunter2hunter2 AWS_BEARER_TOKEN_BEDROCK=hunter2",
            "wandb: Currently logged in as: hunter2 (hunter2-team). View https://wandb.ai/hunter2-team/x",
            "hunter2@node1:~/run$ srun x",
            "/fsx/users/hunter2/run uid=1001(hunter2) gid=1001(hunter2), opened by hunter2(uid=1001)",
        ],
    )
    def test_secrets_in_commands_and_dumps(self, text: str) -> None:
        assert "hunter2" not in masked(text)

    @pytest.mark.parametrize("text", ["redis://:Tr0ub4dor@10.1.2.3:6379/0", "amqp://guest:Tr0ub4dor@10.1.2.3/"])
    def test_a_password_before_an_address_is_learnt_as_no_user(self, text: str) -> None:
        masker = Masker()
        masker.learn(text)
        masker.mask(text)
        assert {} == masker.mapping()["users"]

    @pytest.mark.parametrize(
        "text",
        [
            "secret=true password=false, secret: expired use_auth_token=deprecated credentials: none.",
            "token: <|im_end|> EOS_TOKEN: </s> TRITON_CACHE_KEY=zzzz CACHE_KEY=abcdefgh1",
            "RuntimeError: owner 140737488355",
        ],
    )
    def test_what_stands_where_a_secret_could_but_is_none(self, text: str) -> None:
        assert text == masked(text)

    def test_a_folder_that_is_called_like_a_node_is_no_user(self) -> None:
        text = "/home/node0/x on node0, /home/trn1/x on trn1"
        assert text == masked(text, nodes=["trn1"])
        assert "/home/user-1/x on user-1" == masked("/home/trn1/x on trn1")

    def test_a_password_of_a_url_may_be_as_long_as_a_token_of_a_package_index(self) -> None:
        assert "https://<masked:url-password>@x.example.com/" == masked(f"https://aws:{'aB3_' * 600}@x.example.com/")

    def test_an_object_that_is_called_credentials_stays_an_object(self) -> None:
        line = json.loads(masked('{"Credentials": {"AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "Expiration": "2025"}}'))
        assert "2025" == line["Credentials"]["Expiration"]

    def test_the_mapping_leads_back_and_holds_no_token(self) -> None:
        masker = Masker()
        masker.mask("UserId=alice(1) 10.1.0.7 arn:aws:iam::123456789012:x password=hunter2")
        assert {
            "accounts": {"000000000001": "123456789012"},
            "users": {"user-1": "alice"},
            "addresses": {"198.18.0.1": "10.1.0.7"},
        } == masker.mapping()


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0000:00:1e.0 fell off the bus, PCI:0000:b9:00, uuid GPU-12345678-1234-1234-1234-123456789abc",
        "NCCL version 2.21.5+cuda12.4, libfabric 1.22.0amzn1.0, driver 535.183.01, nvidia-cudnn-cu12==9.1.0.70",
        "nvidia-cudnn-cu12-9.1.0.70 cudnn v8.9.2.26 tensorrt==10.0.1.6 Version: 10.0.1.6 aws-ofi-nccl 1.11.0",
        "nvidia-cudnn-cu12        9.10.2.21\nnvidia-cublas-cu12       12.8.4.1\nonnx-tool   1.2.3.4   pypi_0\n",
        "cudnn   9.1.0.70   cuda12.4_0, cuDNN 9.10.2.21, TensorRT 10.3.0.26, FW 4.0.0.1, aws-ofi-nccl 1.16.3.1",
        "[E1130 03:11:02.112233 ProcessGroupNCCL.cpp:616] 2025-11-30T03:11:02Z 12:34:56:78",
        "Timeout(ms)=600000 NumelIn=123456789012 ran for 600012 ms, job 123456789012 rank 3 of 256",
        "std::bad_alloc c10::Error at::Tensor dead::beef a::b void foo<int>::bar",
        "169.254.169.254 127.0.0.1:29500 0.0.0.0 ::1 netmask 255.255.0.0 02:42:ac:11:00:02",
        "i-0123456789abcdef0 sg-0123456789abcdef0 vpc-0a1b subnet-0a1b cluster/abcdefghij12",
        "0x7f0000000000 opCount 0xf4240 commHash 0x7a1b2c3d4e5f6071 cudaDev 3 busId 1e0",
        "tokens per second: 123456.7, num_tokens=4096, eos_token_id=128001, key: value, seq_key=3",
        "NCCL WARN Connect to n7<47251> failed : Connection refused; NET/OFI Request completed with error",
    ],
)
def test_what_an_engineer_needs_stays(text: str) -> None:
    assert text == masked(text)


# ------------------------------------------------------------------ anything at all

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
octet = st.integers(0, 255)
private = st.tuples(st.just(10), octet, octet, st.integers(1, 254))
secret = st.text(LETTERS + "+/", min_size=12, max_size=40).filter(lambda one: any(ch.isalpha() for ch in one))
person = st.from_regex(r"[a-z][a-z0-9]{7,15}", fullmatch=True)
key = st.text(LETTERS + "+/", min_size=64, max_size=64)
local = st.integers(0xFD << 120, (0xFE << 120) - 1).map(
    lambda number: ":".join(f"{number:032x}"[at : at + 4] for at in range(0, 32, 4))
)
FORMS = {
    "password": (secret, "password={}"),
    "aws secret": (secret, "aws_secret_access_key = {}"),
    "json": (secret, '"SecretAccessKey": "{}"'),
    "session": (secret, "AWS_SESSION_TOKEN={}"),
    "wandb": (st.text("0123456789abcdef", min_size=40, max_size=40), "WANDB_API_KEY={}"),
    "bearer": (secret.map(lambda one: one.ljust(20, "x")), "Authorization: Bearer {}"),
    "key id": (st.text("ABCDEFGHIJKLMNOP234567", min_size=16, max_size=16), "AKIA{}"),
    "hf": (st.text(LETTERS, min_size=20, max_size=40), "hf_{}"),
    "github": (st.text(LETTERS, min_size=36, max_size=36), "ghp_{}"),
    "signed": (st.text("0123456789abcdef", min_size=64, max_size=64), "https://b/x?a=1&X-Amz-Signature={}&b=2"),
    "url": (secret.map(lambda one: one.replace("/", "_")), "https://u:{}@example.com/x"),
    "email": (person, "mail {}@example.com"),
    "home": (person, "/home/{}/train.py"),
    "slurm": (person, "UserId={}(1000)"),
    "sudo": (person, "sudo:  {} : TTY=pts/0"),
    "account": (st.integers(10**11, 10**12 - 1).map(str), "arn:aws:sagemaker:us-west-2:{}:cluster/abcdefghij12"),
    "address": (private.map(lambda four: ".".join(map(str, four))), "{}<4000>"),
    "node": (private.map(lambda four: "ip-" + "-".join(map(str, four))), "{}:1:2 [0] NCCL INFO x"),
    "address 6": (local, "[{}]:29500"),
    "private key": (key, "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"),
}  # fmt: skip
planted = st.sampled_from(sorted(FORMS)).flatmap(
    lambda name: FORMS[name][0].map(lambda value: (value, FORMS[name][1].format(value)))
)
LINES = [
    *HEALTHY.read_text(encoding="utf-8").splitlines()[:60],
    *(log_of(c).decode("utf-8", "replace")[:300] for c in CORPUS[:30]),
]
around = st.one_of(st.text(max_size=80), st.sampled_from(LINES))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(around, planted, around), min_size=1, max_size=4))
def test_what_is_planted_never_survives(parts: list[tuple[str, tuple[str, str], str]]) -> None:
    text = "\n".join(f"{before} {line} {after}" for before, (_, line), after in parts)
    assume(not any(value in f"{one[0]} {one[2]}" for one in parts for _, (value, _), _ in parts))
    out = masked(text)
    for _, (value, line), _ in parts:
        assert value not in out, line


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(around, planted, around), min_size=1, max_size=3))
def test_nor_does_it_inside_json_which_stays_json(parts: list[tuple[str, tuple[str, str], str]]) -> None:
    assume(not any(value in f"{one[0]} {one[2]}" for one in parts for _, (value, _), _ in parts))
    lines = [json.dumps({"text": f"{before} {line} {after}"}, ensure_ascii=False) for before, (_, line), after in parts]
    out = masked("\n".join(lines))
    assert len(lines) == len([json.loads(line) for line in out.split("\n")])
    for _, (value, line), _ in parts:
        assert value not in out, line


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(around, planted), min_size=1, max_size=4))
def test_masking_what_is_masked_changes_nothing(parts: list[tuple[str, tuple[str, str]]]) -> None:
    once = masked("\n".join(f"{before} {line}" for before, (_, line) in parts))
    assert once == masked(once)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789.:-[],iptokenasx= /@\n\"'<>", max_size=200))
def test_near_misses_neither_break_it_nor_change_twice(text: str) -> None:
    once = masked(text)
    assert once == masked(once)


# ------------------------------------------------------------------ scan reads it as before

ALL = [*CORPUS, *WRITTEN]


def judged(data: bytes, back: dict[str, str]) -> tuple[Any, ...]:
    """The diagnosis, its culprit by real names."""
    found = diagnose(data)
    culprit = found.culprit
    named = tuple(real(str(value), back) for value in vars(culprit).values()) if culprit else ()
    return found.cause, found.confidence, named, found.decisive.line if found.decisive else None


def real(text: str, back: dict[str, str]) -> str:
    if text.startswith("ip-") and "[" in text and back:
        return nodeset.fold(real(one, back) for one in nodeset.unfold(text))
    for fake, value in back.items():
        text = text.replace(fake, value).replace(fake.replace(".", "-"), value.replace(".", "-"))
    return text


@pytest.mark.parametrize("case", ALL, ids=[case["id"] for case in ALL])
def test_scan_says_the_same_of_the_masked_log(case: dict[str, Any]) -> None:
    raw = log_of(case).decode("utf-8", "replace")
    masker = Masker()
    text = masker.mask(raw)
    mapping = masker.mapping()
    back = dict(sorted((mapping["addresses"] | mapping["users"]).items(), key=lambda pair: -len(pair[0])))
    assert judged(raw.encode(), {}) == judged(text.encode(), back)
    assert raw.count("\n") == text.count("\n") or "PRIVATE KEY" in raw


def test_the_corpus_puts_the_rules_to_work() -> None:
    hidden = Masker()
    total = 0
    for case in ALL:
        hidden.mask(log_of(case).decode("utf-8", "replace"))
        total += sum(hidden.counts.values())
    assert total > 150
    assert not re.search(r"ip-10-1-0-\d", hidden.mask("".join(log_of(case).decode("utf-8", "replace") for case in ALL)))


def test_four_numbers_of_which_one_is_above_255_are_no_address() -> None:
    assert "10.256.0.1 ip-10-256-0-1" == masked("10.256.0.1 ip-10-256-0-1")
    assert "10.255.0.1" not in masked("10.255.0.1 ip-10-255-0-1")

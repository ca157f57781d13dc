"""Known forms of secrets, each with a value that must not leave the site; and that no text makes masking slow.

The forms are those of published detectors and of what AWS's and others' programs print; the values are made up.
"""

from __future__ import annotations

import time

import pytest

from hpslurm.bundle.masking import Masker

TOKEN = "IQoJb3JpZ2luX2VjEXAMPLEaWQtZWFzdC0xIkcwRQIhAJ"
HEX = "0123456789abcdef" * 4
LETTERS = "Zq3xYw9vTs7uRp5oNm1lKj8iHg6fEd4cBa2Z0q1w"
LEADS = """
hf_ ghp_ gho_ github_pat_ glpat- gldt- glrt- xoxb- xapp-1-A0- sk- sk-ant-api03- sk_live_ rk_live_ pk_test_ gsk_ glsa_
glc_ nvapi- pypi- AIza GOCSPX- ya29. dckr_pat_ npm_ hvs. tskey-auth- r8_ pplx- xai- lsv2_pt_ sntrys_ figd_ PMAK- NRAK-
whsec_ ntn_ lin_api_ dp.pt.
"""
FORMS = (
    # botocore, urllib3 and http.client in their debug logs
    f"botocore.endpoint Sending http request: headers={{'X-Amz-Security-Token': b'{TOKEN}'}}",
    f"headers={{b'X-Amz-Security-Token': b'{TOKEN}', b'X-Amz-Date': b'20251130T031100Z'}}",
    f"x-amz-security-token:{TOKEN}",
    f"'X-Amz-Security-Token', '{TOKEN}'",
    f"header: X-Amz-Security-Token: {TOKEN}",
    f"send: b'POST / HTTP/1.1\\r\\nX-Amz-Security-Token: {TOKEN}\\r\\nHost: x'",
    f"Authorization': b'AWS4-HMAC-SHA256 Credential=A/20251130/us-west-2/sts/aws4_request, Signature={HEX}'",
    f"botocore.auth [DEBUG] Signature:\n{HEX}",
    f"Signature={HEX}",
    f"'Signature': '{HEX}'",
    f"X-aws-ec2-metadata-token: {TOKEN}",
    f"Response body: b'<SessionToken>{TOKEN}</SessionToken>'",
    f"<SecretAccessKey>{LETTERS}</SecretAccessKey>",
    f'"SecretAccessKey" : "{LETTERS}", "Token" : "x"',
    f"{{'SessionToken': '{TOKEN}'}}",
    f'{{"sessionToken":"{TOKEN}"}}',
    f'{{"secretAccessKey":"{LETTERS}"}}',
    f"AWS Secret Access Key [None]: {LETTERS}",
    f"AWS Secret Access Key [****************ABCD]: {LETTERS}",
    f"aws configure set aws_secret_access_key {LETTERS}",
    # files and commands
    f"machine api.wandb.ai\n  login user\n  password {LETTERS}",
    f"machine api.wandb.ai login user password {LETTERS}",
    f"default login anonymous password {LETTERS}",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{LETTERS}{LETTERS}\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
    f"-----BEGIN RSA PRIVATE KEY-----\n[rank0]: {LETTERS}{LETTERS}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN EC PRIVATE KEY-----\n{LETTERS}{LETTERS}\n{LETTERS}{LETTERS}",
    f"SECRET=$'{LETTERS}'",
    f"DB_PASSWORD=$'{LETTERS}'",
    f'{{"clientSecret": "{LETTERS}"}}',
    f"clientSecret={LETTERS}",
    f"client_secret={LETTERS}",
    f"JobCompPass={LETTERS}",
    f"StoragePass={LETTERS}",
    f"AccountingStoragePass={LETTERS}",
    f"<password>{LETTERS}</password>",
    f"<ns:apiKey id='3'>{LETTERS}</ns:apiKey>",
    f"curl -s -H 'x: y' -u bob:{LETTERS} https://example.com",
    f"x-api-key: {LETTERS}",
    f"X-Vault-Token: {LETTERS}",
    f"PRIVATE-TOKEN: {LETTERS}",
    f"Cookie: session={LETTERS}; other=1",
    f"accessToken: {LETTERS}",
    f"authToken={LETTERS}",
    f"apiKey = '{LETTERS}'",
    # tokens by their form alone
    *(
        f"found {lead}{LETTERS} there"
        for lead in LEADS.split()
    ),
    f"found dapi{HEX[:32]} there",
    f"found SG.{LETTERS[:22]}.{LETTERS} there",
    f"found dop_v1_{HEX} there",
    f"found shpat_{HEX[:32]} there",
    f"eyJhbGciOiJIUzI1NiJ9.{LETTERS}.{LETTERS}",
)  # fmt: skip


@pytest.mark.parametrize("text", FORMS, ids=range(len(FORMS)))
@pytest.mark.parametrize("around", ["{}", "[rank3]: {}", "2025-11-30 03:11:00,123 DEBUG {} and more words"])
def test_no_known_form_of_a_secret_survives(text: str, around: str) -> None:
    masked = Masker().mask(around.format(text))
    assert [] == [one for one in (TOKEN, HEX[:32], LETTERS, LETTERS[:22]) if one in masked], masked


QUARTER = 1 << 18  # of a MiB
PUMPED = (
    *("-----BEGIN RSA PRIVATE KEY-----\n", "A" * 40 + "\n", "-----END PRIVATE KEY-----", "curl -u", "curl ", "://a:b"),
    *("SECRET_KEY_", "BEARER_TOKEN_", "_", "secret\t", "password=", "account\t", "aws-", "eyJaaaaaaaaa-", "a@a."),
    *("token.", "ip-10-1-0-[1,", "1.1.1.1.", ":::a", "<password", "\n", " ", "\\", '"', "signature:\n", "mysql "),
    *("machine a ", "proxy=a:", "hf_", "-"),
)  # fmt: skip


@pytest.mark.parametrize("pump", PUMPED)
def test_a_mebibyte_is_masked_in_a_second_whatever_it_holds(pump: str) -> None:
    hints = "private key----- secret token password account proxy "
    text = (hints + pump * (QUARTER // len(pump)))[:QUARTER]
    began = time.process_time()
    Masker().mask(text)
    assert time.process_time() - began < 1.0  # 0.25 on a quiet machine

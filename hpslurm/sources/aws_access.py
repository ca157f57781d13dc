"""As whom do we ask AWS? Credentials go wrong in many ways, all of them here, in one line and in time.

A program that hands out credentials may hang, and a role may want a code from a person's
telephone: neither may hold up what Slurm has to say, so the first is ended after a while and
the second is refused with what to type instead.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from hpslurm.core.text import clean
from hpslurm.sources.aws_errors import IAM, LOG_IN, NoAccess, told, unknown

PROCESS_SECONDS = 15.0  # for a program that hands out credentials; those of AWS and of SSO tools take under five


class _WantsToken(Exception):
    """The role wants a code of a person."""


def session(region: str, profile: str) -> Any:
    """A session of boto3 whose credentials neither ask nor hang. Raises NoAccess where there is no such profile."""
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        made = boto3.Session(profile_name=profile or None, region_name=region or None)
        _tame(made)
    except BotoCoreError as error:
        raise NoAccess(f"{told(error)}; pass another --profile, {IAM}") from error
    return made


def _tame(made: Any) -> None:
    """Put a limit on the programs and no question in the way. The names are botocore's own; a test holds them."""
    resolver = made._session.get_component("credential_provider")
    for provider in resolver.providers:
        if hasattr(provider, "_prompter"):
            provider._prompter = _refuse
        if hasattr(provider, "_popen"):
            provider._popen = _limited(provider._popen)
        builder = getattr(provider, "_profile_provider_builder", None)
        if builder is not None:
            _tame_builder(builder)


def _tame_builder(builder: Any) -> None:
    """The same for a source profile, whose provider is made when it is needed."""
    make = builder._create_process_provider

    def made(profile_name: str) -> Any:
        provider = make(profile_name)
        provider._popen = _limited(provider._popen)
        return provider

    builder._create_process_provider = made


def _refuse(prompt: str) -> str:
    raise _WantsToken(prompt)


def _limited(popen: Any) -> Any:
    def start(*words: Any, **how: Any) -> Any:
        process = popen(*words, **how, start_new_session=True)
        timer = threading.Timer(PROCESS_SECONDS, _end, (process,))
        timer.daemon = True
        timer.start()
        return process

    return start


def _end(process: Any) -> None:
    """End the program that we started, and what it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def check(made: Any, profile: str) -> None:
    """Get credentials now. Raises NoAccess with one line that says what is wrong and what to do."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        credentials = made.get_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()
    except _WantsToken:
        raise NoAccess(f"the role of {_named(profile)} wants an MFA code; {_exported(profile)}, {IAM}") from None
    except (BotoCoreError, ClientError) as error:
        why = unknown(error, "sts:GetCallerIdentity")
        raise why if isinstance(why, NoAccess) else NoAccess(f"{why}; {LOG_IN}, {IAM}") from None
    except FileNotFoundError as error:
        raise NoAccess(f"{_missing(error, profile)}, {IAM}") from None
    except ValueError:  # what such a program printed is a secret, or may be: it is not shown
        raise NoAccess(f"credential_process of {_named(profile)} printed no JSON; run it by hand, {IAM}") from None
    except Exception as error:
        raise NoAccess(f"credentials: {type(error).__name__}: {told(error)}; {LOG_IN}, {IAM}") from None
    if credentials is None:
        raise NoAccess(f"no AWS credentials; {LOG_IN}, {IAM}")


def _named(profile: str) -> str:
    return f"profile {profile or os.environ.get('AWS_PROFILE') or 'default'}"


def _exported(profile: str) -> str:
    word = f" --profile {profile}" if profile else ""
    return f'type  eval "$(aws configure export-credentials{word} --format env)"  and run again without --profile'


def _missing(error: FileNotFoundError, profile: str) -> str:
    name = clean(str(error.filename), 120)
    token = os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE", "")
    if name == token:
        return f"AWS_WEB_IDENTITY_TOKEN_FILE names {name}, which does not exist; unset it, or {LOG_IN}"
    return f"{_named(profile)} needs {name} for its credentials (a token file or a program), which does not exist"

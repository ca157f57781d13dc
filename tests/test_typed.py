"""Commands in our texts that need no cluster to be checked: their shape, AWS's against botocore, ours against click."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import botocore.session
import click
import jmespath
import pytest
from botocore.validate import ParamValidator

from hpslurm import cli
from tests import typed
from tests.typed import Typed

GLOBAL = {"--query", "--output", "--region", "--profile"}
# Commands of the AWS command line that are no operation of a service: the operation behind, and their options.
MADE_OF = {
    "logs tail": ("filter-log-events", {"--since", "--log-stream-names", "--log-stream-name-prefix", "--follow"}),
}


@cache
def everything() -> dict[str, Typed]:
    found = [*typed.guide(), *(one for name in typed.DOCS for one in typed.of_file(name, frozenset(typed.SHOWN)))]
    found += [one for one, _ in typed.suggested()]
    return {one.text: one for one in found if typed.is_command(one.text)}


@cache
def session() -> botocore.session.Session:
    return botocore.session.Session()


def aws() -> dict[str, list[str]]:
    """Every ``aws`` of every command, with what the code puts in left to a word of the right shape."""
    found = {}
    for one in everything().values():
        if re.search(r"\baws ", one.text):
            for words in typed.simple(typed.filled_in(one.text)):
                if words[0] == "aws":
                    found[f"{one.where} {' '.join(words[1:3])}"] = words[1:]
    return found


@pytest.mark.parametrize("name", aws())
def test_an_aws_command_names_an_operation_and_members_that_botocore_knows(name: str) -> None:
    service, command, *rest = aws()[name]
    operation, own = MADE_OF.get(f"{service} {command}", (command, set()))
    model = session().get_service_model(service)
    operations = {_dashes(one): one for one in model.operation_names}
    assert operation in operations
    shape = model.operation_model(operations[operation])
    members = {f"--{_dashes(key)}": key for key in shape.input_shape.members}
    options = dict(_options(rest[1:] if own and not rest[0].startswith("-") else rest))
    assert set() == options.keys() - GLOBAL - own - members.keys()
    for option, values in options.items():
        if option == "--query":
            assert set() == _fields(values[0]) - _members(shape.output_shape)
        elif option in members and option not in own:
            _fits(shape.input_shape.members[members[option]], values)
    if not own:
        wanted = {f"--{_dashes(key)}" for key in shape.input_shape.required_members}
        assert wanted <= options.keys() or not options  # a name in prose stands without its options


def test_there_are_aws_commands_to_check() -> None:
    assert 15 < len(aws())


def _dashes(name: str) -> str:
    from botocore import xform_name

    return str(xform_name(name, "-"))


def _options(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    name, values = "", []
    for word in [*words, "--"]:
        if word.startswith("--"):
            if name:
                yield name, values
            name, values = word, []
        else:
            assert name, f"{word} belongs to no option"
            values.append(word)


def _fits(shape: Any, values: list[str]) -> None:
    """The words of an option make a value that botocore takes; JSON and Name=x,Values=y are read as the CLI does."""
    assert values
    if shape.type_name == "list" and shape.member.type_name != "structure":
        value: Any = values
    elif values[0].startswith(("[", "{")):
        value = json.loads(values[0])
    elif shape.type_name == "list":
        value = [_short(shape.member, one) for one in values]
    else:
        [value] = values
    assert "" == ParamValidator().validate(value, shape).generate_report()
    if shape.type_name == "string" and getattr(shape, "enum", None):
        assert value in shape.enum


def _short(shape: Any, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in re.findall(r"(\w+)=((?:[^,=]+(?:,(?!\w+=))?)+)", text):
        found[key] = value.split(",") if shape.members[key].type_name == "list" else value
    return found


def _fields(query: str) -> set[str]:
    def names(node: dict[str, Any]) -> Iterator[str]:
        if node["type"] == "field":
            yield node["value"]
        for child in node["children"]:
            yield from names(child)

    return set(names(jmespath.compile(query).parsed))


def _members(shape: Any, seen: frozenset[str] = frozenset()) -> set[str]:
    if shape.name in seen:
        return set()
    seen |= {shape.name}
    if shape.type_name == "structure":
        return {*shape.members, *(name for one in shape.members.values() for name in _members(one, seen))}
    return _members(shape.member, seen) if shape.type_name == "list" else set()


def own() -> dict[str, list[str]]:
    found = {}
    for one in everything().values():
        for words in typed.own(typed.filled_in(one.text)):
            found[f"{one.where} hpslurm {' '.join(words)}"] = words
    return found


@pytest.mark.parametrize("name", own())
def test_a_command_of_ours_is_taken_by_its_own_parser(name: str) -> None:
    words = own()[name]
    command: click.Command = cli.group
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        sub = command.get_command(click.Context(command), words[0])
        assert sub or command is not cli.group, f"no command {words[0]}"
        if not sub:
            break
        command, words = sub, words[1:]
    try:
        command.make_context(command.name, list(words))
    except click.MissingParameter:
        pass  # a command that prose names without what it needs
    except click.BadParameter as error:
        assert "does not exist" in error.message  # files of the reader's
    except click.exceptions.Exit as done:  # --help
        assert 0 == done.exit_code


def test_there_are_commands_of_ours_to_check() -> None:
    assert 40 < len(own())


def test_hpslurm_is_never_taken_from_a_package_index_by_its_name() -> None:
    """Anybody could put a package of that name there."""
    installs = [words for one in everything().values() for words in _words(one.text) if "pip" in one.text]
    bare = [words for words in installs if "install" in words and re.search(r"\bhpslurm(\[|$)", words[-1])]
    assert bare
    assert [] == [words for words in bare if "--no-index" not in words]


def _words(command: str) -> Iterator[list[str]]:
    """Simple commands, those inside a quoted word as well."""
    for words in typed.simple(typed.filled_in(command)):
        yield words
        yield from (inner for word in words if " " in word for inner in typed.simple(word))


@pytest.mark.parametrize("text", everything())
def test_bash_reads_it(text: str) -> None:
    done = subprocess.run(["bash", "-n", "-c", typed.filled_in(text)], capture_output=True, text=True, timeout=20)
    assert (0, "") == (done.returncode, done.stderr)


def test_what_the_code_puts_into_a_command_has_a_value_here() -> None:
    put_in = {expression for _, expressions in typed.suggested() for expression in expressions}
    assert put_in == typed.PUT_IN.keys()


@pytest.mark.parametrize("name", typed.DOCS)
def test_blocks_that_show_something_else_are_named(name: str) -> None:
    heads = [lines[0] for _, lines in typed.blocks((typed.ROOT / name).read_text(encoding="utf-8"))]
    assert (
        set()
        == {head for head in heads if not head.startswith("#!") and not typed.is_command(head)} - typed.SHOWN.keys()
    )


def test_no_name_is_left_of_a_block_that_is_gone() -> None:
    heads = {
        lines[0] for name in typed.DOCS for _, lines in typed.blocks((typed.ROOT / name).read_text(encoding="utf-8"))
    }
    assert set() == typed.SHOWN.keys() - heads


@pytest.mark.parametrize("name", typed.GUIDE)
def test_every_line_of_a_block_of_the_guide_is_a_command_or_a_remark(name: str) -> None:
    text = (typed.ROOT / "references" / name).read_text(encoding="utf-8")
    for _, lines in typed.blocks(text):
        for command in typed.whole(lines):
            assert typed.is_command(command), command
            for part in shlex.split(command, comments=True):
                assert part

"""The recipes for systemd and launchd start what there is, and give it time to stop."""

import configparser
import plistlib
import re
import shlex

import pytest

from handlers import gunicorn_conf
from handlers.cli import cli
from handlers.settings import READERS
from tests.live import ROOT

FOREIGN = {"HF_HOME", "XDG_CACHE_HOME"}


class Once(dict):
    """Keeps every value of a key that is given more than once."""

    def __setitem__(self, key, value):
        if isinstance(value, list) and key in self:
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


@pytest.fixture(scope="module")
def unit():
    parser = configparser.RawConfigParser(dict_type=Once, strict=False)
    parser.optionxform = str
    parser.read_string(_block("systemd.md", "ini"))
    return parser["Service"]


@pytest.fixture(scope="module")
def agent():
    return plistlib.loads(_block("launchd.md", "xml").encode())


def test_the_unit_starts_a_command_there_is(unit):
    _parse(shlex.split(unit["ExecStart"]))


def test_the_agent_starts_a_command_there_is(agent):
    _parse(agent["ProgramArguments"])


def test_the_variables_are_settings(unit, agent):
    named = {line.partition("=")[0] for line in unit["Environment"].split("\n")}

    assert {*named, *agent["EnvironmentVariables"]} <= {*READERS, *FOREIGN}
    assert len(named) == 3


def test_there_is_time_to_stop(unit, agent):
    assert min(int(unit["TimeoutStopSec"]), agent["ExitTimeOut"]) > gunicorn_conf.graceful_timeout


def _block(page, language):
    return re.search(rf"```{language}\n(.*?)```", (ROOT / "docs/deploy" / page).read_text(), re.DOTALL)[1]


def _parse(command):
    program, subcommand, *arguments = command
    assert program.endswith("/.venv/bin/interlock")
    cli.commands[subcommand].make_context(subcommand, arguments)

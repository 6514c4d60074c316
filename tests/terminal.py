"""The command line, run within the test."""

from click.testing import CliRunner

from handlers.cli import cli


def run(*arguments, **options):
    """Run `interlock` with these arguments, and give its output and exit code."""
    return CliRunner().invoke(cli, arguments, **options)

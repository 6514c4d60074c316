"""How a command ends that cannot do what was asked: one sentence, exit code 1."""

from typing import IO, Any

import click


class Fault(click.ClickException):
    """What went wrong, in a sentence that says what to do."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence to standard error."""
        click.echo(f"interlock: {self.message}", file=file, err=file is None)

"""The directive ``commands``: the help of every ``lowtucker`` command, as shown in a terminal."""

from __future__ import annotations

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# Width of the help in columns, to fit the page
WIDTH = 74


class Commands(SphinxDirective):
    """A section for each command."""

    def run(self) -> list[nodes.Node]:
        """Generate the sections from the commands, so that the page is always up to date."""
        from lowtucker.cli import main

        self.env.note_reread()  # the commands can change without the page
        program = click.Context(main, info_name="lowtucker", terminal_width=WIDTH)
        made: list[nodes.Node] = []
        for name in main.list_commands(program):
            command = main.get_command(program, name)
            assert command is not None
            context = click.Context(
                command,
                info_name=name,
                parent=program,
                terminal_width=WIDTH,
                max_content_width=WIDTH,
            )
            text = command.get_help(context)
            section = nodes.section(ids=[f"lowtucker-{name}"])
            section += nodes.title(text=f"lowtucker {name}")
            section += nodes.literal_block(text, text, language="text")
            made.append(section)
        return made


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The table of commands that are disturbed holds every command that writes."""

import typer
from crash_commands import COMMANDS, DRIVEN

import curate.cli

WITHOUT_OUT = {"run", "round init", "round next", "round import"}  # that write, at places they know
WRITE_NOTHING = {"doctor", "explain", "info", "models", "review", "round status", "verify"}


def commands(group, before=()):
    """Yield the words of every command, and its options."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield " ".join((*before, name)), {option for each in command.params for option in each.opts}


def test_the_table_holds_every_command_that_writes():
    options = dict(commands(typer.main.get_command(curate.cli.app)))
    modules = {name: curate.cli.module_of(name) for name, _ in curate.cli.COMMANDS}
    inner = {f"{group} {name}" for group in modules for name in getattr(modules[group], "SUBCOMMANDS", ())}
    assert inner == {"review plan", "review verdicts", "models convert"}
    writing = {name for name, known in options.items() if "--out" in known} | WITHOUT_OUT
    writing |= {"review plan", "models convert"}  # which the tree of commands does not hold
    driven = {name for name in writing for key in DRIVEN if f"{COMMANDS[key].line} ".startswith(f"{name} ")}
    assert writing - driven == set()
    assert options.keys() - writing == WRITE_NOTHING


def test_a_command_that_stands_before_another_is_in_the_table():
    assert all(name in COMMANDS for command in COMMANDS.values() for name in command.after)

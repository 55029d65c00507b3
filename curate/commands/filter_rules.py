"""The command line of ``curate filter``: rules in the order typed, including rules of other packages."""

import inspect
from typing import Any

import typer

from curate.commands.declared import parameter
from curate.commands.groups import OrderedCommand
from curate.commands.printing import say
from curate.options.option import Field
from scoring.errors import InputError


class RuleCommand(OrderedCommand):
    """A command that also has the options of rules; rules of other packages are imported on demand."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._params: list[Any] = []
        self._is_complete = True
        super().__init__(*args, **named)
        self._is_complete = False

    @property
    def params(self) -> list[Any]:
        """Return the parameters; InputError for a package whose rule uses a name twice."""
        if not self._is_complete:
            from curate.policies.filter.options import with_rules
            from curate.policies.filter.table import OF_RULES, RULES

            added = RULES.added()
            with_rules(OF_RULES | added)  # raises for a taken name
            of_rules = [index for index, each in enumerate(self._params) if each.name.replace("_", "-") in OF_RULES]
            self._params[of_rules[-1] + 1 : of_rules[-1] + 1] = [_option(*each) for each in added.items()]
            self._is_complete = True
        return self._params

    @params.setter
    def params(self, params: list[Any]) -> None:
        self._params = params

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **named: Any) -> Any:
        """Parse a line; a package whose rule cannot be used, or clashes, ends it with one message."""
        from curate.policies.filter.table import RULES

        try:
            _ = self.params
            flags = {word.partition("=")[0] for word in args}
            for name, error in RULES.broken().items():
                if f"--{name}" in flags:
                    raise error
        except InputError as error:
            say(f"error: {error}")
            raise typer.Exit(1) from None
        return super().make_context(info_name, args, *more, **named)


def _option(name: str, kind: Any) -> Any:
    """Return the option of a rule, whose values come from the order of the line."""
    field = Field(name.replace("-", "_"), kind.__origin__, None, kind.__metadata__[0])

    def command(**values: Any) -> None: ...

    command.__dict__["__signature__"] = inspect.Signature([parameter(field)])
    app = typer.Typer(add_completion=False)
    app.command()(command)
    param = next(each for each in typer.main.get_command(app).params if each.name == field.name)
    param.expose_value = False
    return param

"""One run of a pipeline: steps that are up to date are skipped, the others run in order, and one receipt covers all."""

import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path

from curate.pipeline.file import Pipeline, read_pipeline
from curate.pipeline.options import RunOptions
from curate.pipeline.plan import Commands, Planned, plan
from curate.pipeline.receipt import digest_of, outputs_of, stage_of, write_receipt
from curate.pipeline.state import Done, Stage, looks, read_state, version_of, write_state
from curate.policies.receipts import PIPELINE_RECEIPT
from scoring.lock import HeldFolder
from scoring.lookup import require_known

MOST_SHOWN = 600  # letters of a command line


@dataclass(frozen=True)
class Ran:
    """The outcome of a step.

    Attributes:
        name: of the step.
        command: its command line, relative to the folder of the file.
        state: ``done``, ``up to date``, ``to do`` (in a dry run) or ``stopped``.
        stage: counts of its rows, if known.
    """

    name: str
    command: str
    state: str
    stage: Stage | None = None


@dataclass(frozen=True)
class PipelineResult:
    """The result of a run of a pipeline.

    Attributes:
        steps: in order, up to the first that failed.
        code: exit code of the failed step; 0 if none failed.
        folder: the output folder.
        receipt: of all steps; None unless all are done.
    """

    steps: list[Ran] = field(default_factory=list)
    code: int = 0
    folder: Path = Path()
    receipt: Path | None = None


def run_file(options: RunOptions, commands: Commands) -> PipelineResult:
    """Run the steps of a file; as ``run_pipeline``."""
    return run_pipeline(
        read_pipeline(Path(options.file)),
        commands,
        until=options.until,
        again=options.again,
        dry_run=options.dry_run,
        allow_outside=options.allow_outside,
        announce=options.announce,
    )


def run_pipeline(
    pipeline: Pipeline,
    commands: Commands,
    *,
    until: str | None = None,
    again: str | Sequence[str] | None = None,
    dry_run: bool = False,
    allow_outside: bool = False,
    look: bool = True,
    announce: Callable[[str], None] = lambda text: None,
) -> PipelineResult:
    """Run every step that is not up to date, in order, and write a receipt over all.

    A step is up to date if its command line, version, inputs and outputs are unchanged. Outputs of a repeated step are
    replaced, except scores, which are resumed, or refused if they do not match.

    Args:
        pipeline: from ``read_pipeline``.
        commands: to run the steps.
        until: the last step to run; None for all.
        again: steps to repeat, with all steps that depend on them.
        dry_run: write only into a temporary folder; steps that depend on a slow step stay ``to do``.
        allow_outside: let steps write outside of the folder of the file.
        look: whether to run steps that detect changes themselves even if no file has changed.
        announce: called when a step begins.

    Raises:
        InputError: for an error in the file, with its line, or an unusable folder.
    """
    steps = plan(pipeline, commands, allow_outside=allow_outside)
    names = [planned.step.name for planned in steps]
    repeated = {again} if isinstance(again, str) else set(again or ())
    for name in (until, *sorted(repeated)):
        if name is not None:
            require_known(name, names, f"{pipeline.path} has no step", "steps")
    some = steps[: names.index(until) + 1] if until is not None else steps
    base = pipeline.path.parent.resolve()
    folder = base / pipeline.folder
    run = _Run(pipeline, commands, base, folder, read_state(folder), repeated, look, announce)
    if dry_run:
        with chdir(base):
            return run.dry_run_steps(some)
    with HeldFolder(folder), chdir(base):
        run.state = read_state(folder)  # another run may have finished while waiting for the lock
        result = run.all(some, len(steps))
        if result.code or until is not None:
            return result
        return run.with_receipt(result)


@dataclass
class _Run:
    """One run: the steps done by earlier runs, and by this one; paths are relative to the folder of the file."""

    pipeline: Pipeline
    commands: Commands
    base: Path
    folder: Path
    state: dict[str, Done]
    again: set[str]
    look: bool
    announce: Callable[[str], None]

    def all(self, steps: list[Planned], n_steps: int) -> PipelineResult:
        """Run the steps that are not up to date, up to a given number; stop at the first that fails."""
        result = PipelineResult(folder=self.folder)
        for number, planned in enumerate(steps, 1):
            name, line = planned.step.name, _line(planned)
            up_to_date = self.up_to_date(planned)
            if up_to_date and not self.detects_changes(planned):
                result.steps.append(Ran(name, line, "up to date", self.state[name].stage))
                continue
            before = self.state[name].outputs if up_to_date else None
            self.announce(f"step {number} of {n_steps}, {name}: {_shortened(line)}")
            code = self.do(planned)
            if code:
                result.steps.append(Ran(name, line, "stopped"))
                return replace(result, code=code)
            done = "up to date" if self.state[name].outputs == before else "done"
            result.steps.append(Ran(name, line, done, self.state[name].stage))
        return result

    def detects_changes(self, planned: Planned) -> bool:
        """Return whether a step detects changes itself: a growing table, from images outside its listed folders."""
        places = planned.arguments.places
        is_named = all((self.base / place).is_dir() for place in places)
        return self.look and "--add" in planned.arguments.options and not is_named

    def up_to_date(self, planned: Planned) -> bool:
        """Return whether a step can be skipped: its command line, inputs and outputs are unchanged."""
        done = self.state.get(planned.step.name)
        if done is None or not done.outputs or planned.step.name in self.again:
            return False
        same = done.words == _words(planned) and done.curate == version_of(planned.step.command)
        return same and done.inputs == self._inputs(planned) and self._states(done.outputs) == done.outputs

    def do(self, planned: Planned) -> int:
        """Run one step and record it; return its exit code."""
        name, before = planned.step.name, self.state.get(planned.step.name)
        version = version_of(planned.step.command)
        anew = name in self.again or (not planned.kind.goes_on and before is not None)
        # Recorded first, so that leftovers of a killed run under the step's names are recognised.
        self.state[name] = Done(_words(planned), {}, {}, curate=version)
        write_state(self.folder, self.state)
        inputs = self._inputs(planned)
        words = planned.words()
        code = self.commands.run(planned.step.command, [*words, "--overwrite"] if anew else words)
        if code:
            return code
        written = [*planned.writes(), *(path for path in self._inputs(planned) if path not in inputs)]
        inputs = {path: look for path, look in inputs.items() if path not in written} | self._states(written)
        stage = stage_of(planned.table, planned.out)
        outputs = outputs_of(planned.out)
        digests = {Path(os.path.relpath(path, self.folder)).as_posix(): digest_of(Path(path)) for path in outputs}
        self.state[name] = Done(_words(planned), inputs, self._states(outputs), digests, stage, version)
        write_state(self.folder, self.state)
        self.again.discard(name)
        return 0

    def with_receipt(self, result: PipelineResult) -> PipelineResult:
        """Return the result with the receipt of all steps, after writing it."""
        receipt = self.folder / PIPELINE_RECEIPT
        write_receipt(receipt, self.pipeline, {ran.name: self.state[ran.name] for ran in result.steps})
        return replace(result, receipt=receipt)

    def dry_run_steps(self, steps: list[Planned]) -> PipelineResult:
        """Run steps that are not up to date in a temporary folder, up to the first slow step."""
        result = PipelineResult(folder=self.folder)
        moved: dict[str, str] = {}
        pending: set[str] = set()  # outputs of steps that are skipped in the dry run
        unknown = False
        with tempfile.TemporaryDirectory(
            prefix=".pipeline.", dir=self.folder if self.folder.is_dir() else None
        ) as place:
            for planned in steps:
                name, line = planned.step.name, _line(planned)
                stale = planned.table in moved or not self.up_to_date(planned) or self.detects_changes(planned)
                if not stale and pending.isdisjoint(planned.reads()):
                    result.steps.append(Ran(name, line, "up to date", self.state[name].stage))
                    continue
                unknown = unknown or planned.kind.goes_on
                if unknown or not planned.kind.makes_table:
                    pending.add(planned.out)
                    result.steps.append(Ran(name, line, "to do"))
                    continue
                table = moved.get(str(planned.table), planned.table)
                out = moved[planned.out] = str(Path(place) / f"{name}{Path(planned.out).suffix}")
                code = self.commands.run(planned.step.command, planned.trial(table, out))
                if code:
                    result.steps.append(Ran(name, line, "stopped"))
                    return replace(result, code=code)
                result.steps.append(Ran(name, line, "to do", stage_of(table, out)))
        return result

    def _inputs(self, planned: Planned) -> dict[str, str]:
        return self._states(planned.reads())

    def _states(self, names: Iterable[str]) -> dict[str, str]:
        return looks(self.base, names, self.folder)


def _words(planned: Planned) -> tuple[str, ...]:
    return (planned.step.command, *planned.words())


def _shortened(line: str) -> str:
    """Return a command line shortened in the middle if it lists many files."""
    return line if len(line) <= MOST_SHOWN else f"{line[: MOST_SHOWN // 2]} ... {line[-MOST_SHOWN // 2 :]}"


def _line(planned: Planned) -> str:
    return shlex.join(["curate", *_words(planned)])

"""``curate doctor``: what this machine and installation can do."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import EXIT_GATE, NextCommand, emit, show, suggest
from curate.diagnosis.options import DoctorOptions

if TYPE_CHECKING:
    from curate.diagnosis.contract import MachineFact

RUNS_ALONE = True  # without arguments
MARKS = {"ok": " ", "note": "!", "problem": "X"}


@command_of(DoctorOptions)
def run(request: DoctorOptions, json_: options.Json = False) -> NextCommand:
    """Report what this machine can do, how fast, and what to change.

    Checks versions, processors, memory, GPU, disk, decoders, models and extras, and scores images for ten seconds. The
    output contains no name, path or secret, so you can paste it into a public issue. ! marks a possible improvement; X
    marks something that will not work, and sets exit code 3.

    Example:

        curate doctor
        curate doctor /mnt/big
        curate doctor --seconds 0 --json
    """
    from curate.diagnosis.contract import PROBLEM
    from curate.diagnosis.run import examine, require_target

    folder = Path(request.folder)
    require_target(folder)
    findings = []
    section = ""
    for finding in examine(folder, seconds=request.seconds):
        findings.append(finding)
        if not json_:
            if finding.section != section:
                section = finding.section
                show(section)
            show(f"{MARKS[finding.state]} {finding.name}: {finding.value}")
            if finding.advice:
                show(f"    {finding.advice}")
    problems = sum(finding.state == PROBLEM for finding in findings)
    if json_:
        emit([asdict(finding) for finding in findings])
    else:
        show(_verdict(findings))
    return suggest("models", code=EXIT_GATE if problems else 0)


def _verdict(findings: "list[MachineFact]") -> str:
    from curate.counted import counted
    from curate.diagnosis.contract import NOTE, PROBLEM

    problems = [finding for finding in findings if finding.state == PROBLEM]
    notes = sum(finding.state == NOTE for finding in findings)
    if problems:
        return f"{counted(len(problems), 'problem')}: {', '.join(problem.name for problem in problems)}"
    return f"everything works, and {counted(notes, 'thing')} could be better" if notes else "all works"

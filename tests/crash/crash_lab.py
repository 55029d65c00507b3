"""Where commands are disturbed: one folder at one path, put back before each trial, and a process that forks them."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_commands import COMMANDS, PIPELINE, SCORE

HERE = Path(__file__).parent
COUNT, FAIL, DIE_BEFORE, DIE_AFTER, TEAR, FAIL_FROM, TERMINATE, INTERRUPT, READ_ONLY = range(9)
Snapshot = dict[str, bytes]


def compiled(folder: Path) -> Path:
    """Return the shim as a library; raise ``FileNotFoundError`` where no compiler is."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise FileNotFoundError("a C compiler on Linux")
    out = folder / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(out), str(HERE / "shim.c"), "-ldl"], check=True)
    return out


@dataclass(frozen=True)
class Call:
    """A call that changed the disk: its kind, the paths, where in the file, and the bytes where they were kept."""

    kind: str
    one: str
    two: str
    at: int
    data: bytes


def read_calls(log: Path) -> list[Call]:
    """Return what the shim noted."""
    calls = []
    with log.open("rb") as file:
        while line := file.readline():
            _, kind, one, two, at, size = os.fsdecode(line[:-1]).split("\t")
            calls.append(Call(kind, one, two, int(at), file.read(int(size))))
    return calls


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, or minus a signal; what it said; how long it took, in seconds; its calls.

    Attributes:
        beside: exit code and last line of each command that ran at the same time.
    """

    code: int
    said: str
    printed: str
    seconds: float
    calls: list[Call] = field(default_factory=list)
    beside: list[tuple[int, str]] = field(default_factory=list)


class Lab:
    """A folder and a server of forks.

    Args:
        place: an empty folder.
        shim: from ``compiled``, or None: without faults by call.
    """

    def __init__(self, place: Path, shim: Path | None) -> None:
        self.place, self.shim = place, shim
        self.folder = place / "here"
        self.templates: dict[tuple[str, ...], Path] = {}
        self.benches: dict[str, Any] = {}
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Lab":
        single_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
        env = {**os.environ, **single_thread, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])}
        env |= {"LD_PRELOAD": str(self.shim)} if self.shim else {}
        command = [sys.executable, str(HERE / "crash_server.py")]
        self._server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)

    def _answer(self) -> dict[str, Any]:
        assert self._server is not None
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, "the server is gone"
        return json.loads(line)

    def run(self, line: str, *, beside: Sequence[str] = (), **how: Any) -> Ended:
        """Run one command line in the folder.

        Args:
            line: what is typed after `curate`.
            beside: lines that are run at the same time.
            how: ``signals`` (seconds, number), ``fault`` of the shim, ``log`` to list the calls.
        """
        out, said, log = (self.place / name for name in ("stdout", "stderr", "log"))
        for path in self.place.glob("std*"):
            path.unlink()
        how = {"argv": shlex.split(line), "folder": str(self.folder), "stdout": str(out), "stderr": str(said)} | how
        how["log"] = str(log) if how.get("log") else None
        how["beside"] = [
            {"argv": shlex.split(other), "stderr": f"{said}-{number}", "fault": None, "log": None}
            for number, other in enumerate(beside)
        ]
        assert self._server is not None
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(how) + "\n")
        self._server.stdin.flush()
        answer = self._answer()
        assert not answer["late"], f"{line} did not end"
        calls = read_calls(log) if how["log"] else []
        text = [path.read_text(errors="replace") if path.exists() else "" for path in (said, out)]
        texts = [Path(f"{said}-{number}").read_text().strip() for number in range(len(beside))]
        others = list(zip(answer["codes"][1:], texts, strict=True))
        return Ended(answer["code"], text[0], text[1], answer["seconds"], calls, others)

    def template(self, after: tuple[str, ...]) -> Path:
        """Return a folder as it is when some commands have been run, made the first time."""
        if after not in self.templates:
            if after:
                self.put(self.template(after[:-1]))
                ended = self.run(COMMANDS[after[-1]].line)
            else:
                make_beginning(self.place)
                ended = self.run(f"{SCORE} --label-from-folder -o scores.parquet")
            assert ended.code == 0, ended.said  # none that is before another ends otherwise
            kept = self.place / f"template-{len(self.templates)}"
            shutil.copytree(self.folder, kept, symlinks=True)
            self.templates[after] = kept
        return self.templates[after]

    def put(self, template: Path) -> None:
        """Put the folder back as a template is."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(template, self.folder, symlinks=True)

    def begin(self, name: str) -> None:
        """Put the folder back to before a command."""
        self.put(self.template(COMMANDS[name].after))

    def snapshot(self) -> Snapshot:
        """Return what is in the folder, by name: bytes of files, where links point, and folders."""
        content: Snapshot = {}
        for at, folders, files in os.walk(self.folder):
            for name in (*folders, *files):
                path = Path(at, name)
                key = str(path.relative_to(self.folder))
                if path.is_symlink():
                    content[key] = f"-> {path.readlink()}".encode()
                elif path.is_dir():
                    content[f"{key}/"] = b""
                else:
                    content[key] = path.read_bytes()
        return content


def make_beginning(place: Path) -> None:
    """Make photos of two classes, of which two are the same and one is text, labels, a pipeline, a model."""
    import numpy as np
    import timm
    import torch
    from PIL import Image
    from safetensors.torch import save_file

    from scoring.checkpoint import save_checkpoint
    from scoring.heads import KappaHeadSpec
    from scoring.images import Preprocessing
    from scoring.model import ModelSpec, ScoringModel

    folder = place / "here"
    generator = np.random.default_rng(0)
    rows = ["key,label"]
    for kind in ("cat", "dog"):
        (folder / "photos" / kind).mkdir(parents=True)
        for i in range(27):
            small = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(small).resize((40, 36)).save(folder / "photos" / kind / f"{i:02}.png")
            rows.append(f"{kind}/{i:02}.png,{kind}")
    (folder / "photos/dog/03.png").write_bytes((folder / "photos/dog/02.png").read_bytes())
    (folder / "photos/dog/04.png").write_text("hello")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    (folder / "curate.toml").write_text(PIPELINE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        spec = ModelSpec("test_resnet", {}, {"visimsiam": KappaHeadSpec(16, 31.0)}, Preprocessing(size=32, resize=32))
        model = ScoringModel(spec).eval()
        with torch.no_grad():  # or random weights give every image nearly the same kappa
            model.heads["visimsiam"].out.weight.mul_(20)
        network = timm.create_model("test_resnet", pretrained=False)
    card = {"method": "visimsiam", "training": {"data": "none"}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(place / "model.safetensors", model, card)
    save_file(network.state_dict(), place / "weights.safetensors")

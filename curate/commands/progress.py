"""Progress bars on stderr; silent when quiet, or where stderr is no terminal."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from curate.engines.local import ScoreProgress
    from trainers.loop import Progress


class ScoreBar:
    """Images per second, time left and failures, while a run goes on."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, progress: "ScoreProgress") -> None:
        """Show where the run is."""
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(
                total=progress.total,
                initial=progress.resumed,
                unit=" images",
                disable=True if self._quiet else None,
                dynamic_ncols=True,
                file=sys.stderr,
            )
        if progress.failed:
            self._bar.set_postfix_str(f"{progress.failed:,} failed", refresh=False)
        self._bar.update(progress.done - self._bar.n)


class TrainBar:
    """Steps, loss, mean kappa and warnings, while training goes on."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._warned: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, progress: "Progress") -> None:
        """Show where the run is; a new warning gets a line of its own."""
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(
                total=progress.steps,
                unit=" steps",
                disable=True if self._quiet else None,
                dynamic_ncols=True,
                file=sys.stderr,
            )
        measured = ", ".join(f"{name} {value:.4g}" for name, value in progress.measures.items())
        self._bar.set_postfix_str(
            f"epoch {progress.epoch}, {measured}, {progress.images_per_second:,.0f} images/s", refresh=False
        )
        self._bar.update(progress.step - self._bar.n)
        kind = progress.warning and progress.warning.split(":")[0]
        if kind != self._warned and progress.warning and not self._quiet:
            tqdm.write(f"warning: {progress.warning}", file=sys.stderr)
        self._warned = kind

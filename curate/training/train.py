"""`curate.train`: training of a model for `curate.score`."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.options.function import callable_of
from curate.options.values import several
from curate.training.options import TrainOptions
from curate.training.recipe import TrainRequest, recipe_of, request_of
from scoring.errors import InputError
from scoring.settings import require_between

if TYPE_CHECKING:
    from curate.training.course import Probe, RunCourse
    from curate.training.dataset import Inputs
    from scoring.marks import Marks
    from scoring.model import ScoringModel
    from trainers.cache import CachedFeatures
    from trainers.config import TrainConfig
    from trainers.methods.method import Method
    from trainers.monitor import Epoch
    from trainers.start import Start
    from trainers.work import TrainingFolder

Line = Callable[[str], None]


@dataclass(frozen=True)
class TrainResult:
    """The result of training a checkpoint.

    Attributes:
        path: of the checkpoint.
        model: its digest.
        method: the training method.
        images: number of training images.
        metrics: final measures by name.
    """

    path: Path
    model: str
    method: str
    images: int
    metrics: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {**asdict(self), "path": str(self.path)}


def run_train(options: TrainOptions) -> TrainResult:
    """Train a model, or a head on a backbone, and write the checkpoint.

    A stopped call continues when it is repeated: Ctrl-C saves the state, and a killed call loses at most a minute. In a
    script started by ``torchrun``, all processes train one model, and the first one writes it.

    Raises:
        InputError: for an unusable option, image or output.
    """
    from trainers import ranks

    with ranks.joined(options.device) as taken:
        if not ranks.is_first():
            options = replace(options, report=lambda progress: None, announce=lambda text: None)
        return _train(replace(options, device=taken))


train = callable_of(TrainOptions, run_train)


def _train(options: TrainOptions) -> TrainResult:
    if (options.data is None) == (options.cached is None):
        raise InputError("expected images to train on, or a cache of features, got both or neither; pass one of them")
    from scoring.atomic import refuse_existing
    from trainers import ranks
    from trainers.work import TrainingFolder, sweep_finished

    request, out = request_of(options), Path(options.out)
    work = TrainingFolder(out, keep=request.keep_state)
    if not ranks.is_first():
        return _trained(request, work)
    if out.is_file() and not request.overwrite:
        sweep_finished(out)
    check_out(out, request.overwrite)
    with work:
        refuse_existing(out, overwrite=request.overwrite)  # another process may have finished meanwhile
        return _trained(request, work)


def _trained(request: TrainRequest, work: "TrainingFolder") -> TrainResult:
    """Train and write the checkpoint; the first process holds the folder's lock."""
    from curate.training.dataset import fitted, report_failures
    from scoring.marks import Marks
    from scoring.runner import select_device, select_precision
    from trainers import ranks
    from trainers.build import build
    from trainers.loop import train as fit
    from trainers.memory import device_memory
    from trainers.monitor import Monitor
    from trainers.state import kept_earlier
    from trainers.stream import ImageStream

    line = request.announce
    ranks.first("folder", str)  # locked by the first process
    where = select_device(request.device)
    cache, start = _start(request)
    precision = "fp16" if request.precision == "fp16" else select_precision(request.precision, where)
    config = recipe_of(request, start, cache, precision=precision)
    _warn_of_settings(config, start, slow=where.type == "cpu" and cache is None, line=line)
    fresh, asks = build(config, 2, init=start.model)  # built first, so that errors are raised before decoding
    _report_heads(config, start, fresh, line)
    if cache is None:
        _warn_of_views(config, fresh, asks, line)
    _check_course(request)
    probe = _probe(config, request, fresh, line) if ranks.is_first() else None
    with Marks(work.folder) as marks:  # until the end, since a resumed run decodes again
        inputs = _inputs(config, request, work, cache, fresh, line, marks, room=device_memory(where))
        config = fitted(replace(config, stream=isinstance(inputs.data, ImageStream)), inputs.data.n, request, line)
        origin = {"data": inputs.digest, "start": start.about.get("digest", start.about)}
        made_of = _made_of(config, inputs, start, request, cache=cache is not None)
        course = _course(config, request, probe, work, origin, made_of) if ranks.is_first() else None
        if work.state.exists():
            line(f"resuming from {work.state}")
        model, measures = fit(
            config,
            inputs.data,
            state=work.state,
            device=where,
            start=build(config, len(inputs.data.classes), init=start.model, n=inputs.data.n),
            origin=origin,
            compiled=request.compile,
            monitor=Monitor(course=course, report=request.report),
        )
    if ranks.is_first() and (earlier := kept_earlier(work.state)):
        made_of["earlier"] = earlier
    if isinstance(inputs.data, ImageStream):
        report_failures(inputs.data.failures, line, after="; each was replaced by the next of its batch")
        made_of["replaced"] = inputs.data.failures
    card = {"method": config.method, "training": made_of, "metrics": measures, "data_licence": request.licence}
    exact = exact_parts(config, model) if request.half else None

    def save() -> str:
        digest = _save(work, model, card, exact=exact, overwrite=request.overwrite, line=line)
        work.finish()
        return digest

    digest = ranks.first("model", save)
    return TrainResult(work.out, digest, config.method, inputs.data.n, dict(measures))


def _inputs(
    config: "TrainConfig",
    request: TrainRequest,
    work: "TrainingFolder",
    cache: "CachedFeatures | None",
    model: "ScoringModel",
    line: Line,
    marks: "Marks",
    *,
    room: int | None,
) -> "Inputs":
    """Return the data of a run: a cache, or images, streamed if they were before or exceed ``room`` bytes."""
    from curate.training.dataset import cached_inputs, image_inputs
    from trainers.state import kept_identity

    if request.stream is None:  # the available memory may differ when a run is resumed
        request = replace(request, stream=kept_identity(work.state).get("stream"))
    if cache is None:
        return image_inputs(config, request, model.spec.preprocessing, line, marks, room=room)
    return cached_inputs(config, cache, line)


def _check_course(request: TrainRequest) -> None:
    """Raise ``InputError`` for inconsistent options on monitoring."""
    from curate.training.course import MEASURES

    folder, measure = request.course, request.save_best
    require_between("--every", request.every, 1, unit="epoch")
    if measure is not None and (measure not in MEASURES or folder is None or request.measure_on is None):
        raise InputError(
            f"--save-best takes {', '.join(MEASURES)}, of --measure-on and written to --course; got {measure!r}"
            f"{'' if measure in MEASURES else ', which is not one'}: give all three"
        )
    if folder is None and request.measure_on is not None:
        raise InputError("--measure-on writes what it measures to --course FOLDER, and got none; add one")


def _probe(config: "TrainConfig", request: TrainRequest, model: "ScoringModel", line: Line) -> "Probe | None":
    """Return the images of ``--measure-on``; None without."""
    from curate.training.course import load_probe

    if request.measure_on is None:
        return None
    sources = [str(source) for source in several(request.measure_on)]
    return load_probe(sources, request, model, precision=config.precision, line=line)


def _course(
    config: "TrainConfig",
    request: TrainRequest,
    probe: "Probe | None",
    work: "TrainingFolder",
    origin: Mapping[str, Any],
    made_of: Mapping[str, Any],
) -> "RunCourse | None":
    """Return the monitoring of the run, or None if not requested."""
    from curate.training.course import RunCourse, is_begun
    from scoring.atomic import refuse_existing
    from scoring.checkpoint import save_checkpoint
    from trainers.state import SCHEDULE

    if request.course is None:
        return None
    folder, measure = Path(request.course), request.save_best
    run = config.to_json() | dict(origin)
    schedule = {name: run.pop(name) for name in SCHEDULE}
    path = work.out.with_name(f"{work.out.stem}.best.safetensors")
    if measure is not None and not work.state.exists() and not is_begun(folder, run, config.epochs):
        refuse_existing(path, overwrite=request.overwrite)

    def save(best: "Epoch", row: Mapping[str, float | None]) -> None:
        training = {**made_of, **({"earlier": best.earlier} if best.earlier else {})}
        card = {"method": config.method, "training": training, "data_licence": request.licence}
        save_checkpoint(path, best.model, {**card, "metrics": dict(row)})

    best = None if measure is None else (measure, save)
    return RunCourse(folder, run, schedule=schedule, probe=probe, best=best)


def _warn_of_settings(config: "TrainConfig", start: "Start", *, slow: bool, line: Line) -> None:
    """Warn, before the start, of settings that make a run slow or useless."""
    if slow:
        line("training on the CPU: this is slow; small images, a small backbone and --backbone CHECKPOINT help")
    if start.model is None and config.freeze == "trunk":
        line(f"{start.backbone} has random weights, and --freeze keeps them: a head on it learns little (--backbone)")


def _made_of(
    config: "TrainConfig", inputs: "Inputs", start: "Start", request: TrainRequest, *, cache: bool
) -> dict[str, Any]:
    """Return the data and the initial model of a trained model, for its card."""
    of_cache = {"cache": inputs.digest} if cache else {}
    of_name = {} if request.recipe is None else {"recipe_name": request.recipe}
    return {
        "data": inputs.description,
        "images": inputs.data.n,
        "recipe": config.to_json(),
        "start": start.about,
        **of_cache,
        **of_name,
        "note": request.note,
    }


def _save(
    work: "TrainingFolder",
    model: "ScoringModel",
    card: dict[str, Any],
    *,
    exact: list[str] | None,
    overwrite: bool,
    line: Line,
) -> str:
    """Write the checkpoint in float16, except weights with prefixes listed in ``exact``."""
    import torch

    from scoring.checkpoint import save_checkpoint, stored_names

    stored = stored_names(model)
    weights = [value for name, value in model.named_parameters() if name in stored and name.startswith("backbone.")]
    if exact and not all(torch.equal(v.half().float(), v.float()) for v in weights):
        line("the backbone is stored as float32: as float16 it would compute other embeddings")
    dtype = torch.float32 if exact is None else torch.float16
    kept = exact or []
    return save_checkpoint(
        work.out, model, card, dtype=dtype, exact=kept, record_outcome=work.record_outcome, overwrite=overwrite
    )


def _start(request: TrainRequest) -> "tuple[CachedFeatures | None, Start]":
    """Return the cache, if any, and the initial model: with a cache, the model that it was made with."""
    from scoring.backbone_options import parse_backbone_options
    from trainers.cache import open_cache
    from trainers.start import find_start, start_of

    options = parse_backbone_options(request.backbone_set)
    if request.cached is None:
        return None, find_start(request.backbone, size=request.size, settings=options)
    if options:
        raise InputError("--backbone-set is for a new network, and a cache has its features; leave it out")
    cache = open_cache(Path(request.cached))
    return cache, start_of(cache, request.backbone)


def check_out(out: Path, overwrite: bool) -> None:
    """Raise ``InputError`` unless a checkpoint can be written to the path."""
    from scoring.atomic import refuse_existing, require_folder

    refuse_existing(out, overwrite=overwrite)
    if out.suffix != ".safetensors":
        raise InputError(f"expected a checkpoint name that ends in .safetensors, got {out}")
    require_folder(out)


def exact_parts(config: "TrainConfig", model: "ScoringModel") -> list[str]:
    """Return the prefixes of weights stored without rounding, because they must not change."""
    if config.freeze != "trunk":
        return []
    return ["backbone.", *(f"heads.{name}." for name in model.heads if name != config.method)]


def _warn_of_views(config: "TrainConfig", model: "ScoringModel", method: "Method[Any]", line: Line) -> None:
    """Warn of views that cost more than needed, and of a network with a last map of 1 x 1."""
    from trainers.build import small_map

    if method.n_small and method.small_size > config.size:
        line(
            f"the low-resolution views, of {method.small_size} pixels, are larger than the others, of {config.size}, "
            f"and cost more: --set small_size={max(1, config.size // 2)}, or --set n_small=0"
        )
    if (note := small_map(config, model, method)) is not None:
        line(note)


def _report_heads(config: "TrainConfig", start: "Start", model: "ScoringModel", line: Line) -> None:
    """Report which heads of the initial model are kept."""
    before = [] if start.model is None else list(start.model.spec.heads)
    kept = [name for name in before if name in model.heads and name != config.method]
    if kept:
        line(f"kept as they are: {', '.join(kept)}")
    if config.freeze == "trunk" and config.method in before:
        line(f"the head {config.method} is trained again")
    gone = [name for name in before if name not in kept and name != config.method]
    if gone:
        line(f"dropped, because the backbone trains: {', '.join(gone)}; --freeze keeps them")

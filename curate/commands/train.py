"""``curate train``: fit a model that ``curate score`` can use."""

from dataclasses import replace
from typing import Annotated

import typer

from curate.commands.declared import command_of
from curate.commands.elapsed import replace_elapsed
from curate.commands.methods import MethodCommand
from curate.commands.printing import NextCommand, Output, emit, suggest, unused
from curate.commands.progress import TrainBar
from curate.options import fields
from curate.options.option import Option
from curate.options.values import several
from curate.training.options import TrainOptions

PARSER = MethodCommand


@command_of(TrainOptions, devices="device", engine="device")
def run(
    request: TrainOptions,
    output: Output,
    devices: Annotated[
        int, Option("Number of GPUs, one process each; with --device cpu, of processes.", metavar="N")
    ] = 1,
    engine: fields.Engine = "local",
) -> NextCommand:
    """Train a model, or a head on an existing model.

    --set sets parameters of the method, its views and its steps; curate train METHOD --help lists them with the paper,
    whose values are the defaults. Repeat the command to resume: Ctrl-C saves the state, and a killed run has one at
    most a minute old. `curate plot FOLDER course` draws the output of --course. For small images or on a CPU, start
    from a backbone trained on labels. --devices 4 trains on 4 GPUs.

    Example:

        curate train visimsiam photos/ -o mine.safetensors --backbone resnet18 --epochs 200
        curate train simsiam cifar10.parquet -o four.safetensors --recipe cifar10
        curate train supervised photos/ --label-from-folder -o backbone.safetensors --size 64 --epochs 16
        curate train visimsiam photos/ -o one.safetensors --set small_size=32 --backbone backbone.safetensors --freeze
        curate train losspred labelled.parquet -o two.safetensors --backbone one.safetensors --freeze --set folds=3
        curate train mcinfonce --cached features/ -o three.safetensors --backbone two.safetensors
    """
    from curate.training.launch import is_launcher, is_silent, launch

    if is_silent():
        replace_elapsed(lambda: None)  # only the first process shows the seconds
    from curate.engines.table import engine_of
    from curate.training.train import run_train
    from scoring.errors import InputError

    if (request.data is None) == (request.cached is None):
        raise typer.BadParameter("expected either images to train on after METHOD, or --cached FOLDER")
    name, address = engine_of(engine)
    if name not in ("local", "ray") or (name == "local" and address is not None):
        raise InputError(f"expected --engine local, ray, ray:auto or ray:HOST:PORT, got {engine!r}")
    if is_launcher(devices) and name == "local":
        replace_elapsed(lambda: None)
        launch(devices)
        return NextCommand("")  # the first process shows it
    output = replace(output, quiet=output.quiet or is_silent())
    with TrainBar(quiet=output.quiet) as bar:
        typed = replace(request, report=bar.update, announce=output.note)
        if name == "ray":
            from curate.training.on_ray import train_on_ray

            result = train_on_ray(typed, address, devices)
        else:
            result = run_train(typed)
    output.note(", ".join(f"{name} {value:.4g}" for name, value in result.metrics.items()))
    output.note(f"model {result.model[:12]}: {request.out}")
    if output.json and not is_silent():
        emit(result.to_json())
    if is_silent():
        return NextCommand("")
    if request.data is None:
        return suggest("models", request.out)
    return suggest("score", *several(request.data), "--model", request.out, "-o", unused("scores.parquet"))

"""Options that several commands share, so that they mean and say the same everywhere."""

from typing import Annotated

import typer

Backbone = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="timm:NAME (published weights), a checkpoint, a shipped model, or a timm name (random weights); "
        "by default resnet18.",
        show_default=False,
    ),
]
Label = Annotated[str, typer.Option("--label", help="Column with the class, for methods that read labels.")]
LabelFromFolder = Annotated[
    bool, typer.Option("--label-from-folder", help="Take the first sub-folder's name as the class.")
]
LossColumn = Annotated[
    str | None,
    typer.Option("--loss-column", help="losspred: predict the losses in this column instead.", show_default=False),
]
Limit = Annotated[int | None, typer.Option("--limit", help="Use the first N images only.", show_default=False)]
Scale = Annotated[
    float | None,
    typer.Option("--scale", help="Least share of the area in a standard view.", show_default=False),
]
Jitter = Annotated[
    float | None, typer.Option("--jitter", help="Chance of colour jitter on a view.", show_default=False)
]
Gray = Annotated[float | None, typer.Option("--gray", help="Chance of a grey view.", show_default=False)]
Blur = Annotated[float | None, typer.Option("--blur", help="Chance of blur on a view.", show_default=False)]
BlurSigma = Annotated[
    float | None, typer.Option("--blur-sigma", help="Most blur, in pixels on a side of 224.", show_default=False)
]
Corrupt = Annotated[
    float | None, typer.Option("--corrupt", help="Chance of noise, and of a grey box, on a view.", show_default=False)
]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same result.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.")]
Precision = Annotated[str, typer.Option("--precision", help="auto, fp32 or bf16.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")]
SourceKey = Annotated[
    str | None, typer.Option("--key", help="Column of --source that holds the key.", show_default=False)
]
SourcePathColumn = Annotated[
    str | None, typer.Option("--path-column", help="Column of --source that holds paths or URLs.", show_default=False)
]
SourceImageColumn = Annotated[
    str | None, typer.Option("--image-column", help="Column of --source that holds image bytes.", show_default=False)
]
SourceRoot = Annotated[
    str | None, typer.Option("--root", help="Where relative paths of --source start.", show_default=False)
]

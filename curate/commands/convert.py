"""``curate models convert``: third-party weights -> a checkpoint."""

from curate.commands.declared import command_of
from curate.commands.printing import Output, emit, say
from curate.training.options import ModelsConvertOptions


@command_of(ModelsConvertOptions)
def run(request: ModelsConvertOptions, output: Output) -> None:
    """Convert third-party weights into a checkpoint; no code in them is run.

    Reads the published models of Pretrained Visual Uncertainties (.pth.tar), whose head becomes the column
    unc_losspred, and weights of any timm model, for --backbone of `curate train` and `curate cache`. Preprocessing is
    as in timm.

    Example:

    \b
        curate models convert vit_base_uncertainty.pth.tar -o uncertain.safetensors
        curate models convert weights.pth --backbone vit_small_patch16_224 -o small.safetensors
    """
    from curate.training.models import run_models_convert

    result = run_models_convert(request)
    if output.json:
        emit(result.to_json())
    elif not output.quiet:
        head = f"with the head {result.head}" if result.head else "without a head: `curate train --freeze` adds one"
        say(f"{result.facts['architecture']} at {result.size} pixels, {head}")
        say(f"model {result.digest[:12]}: {request.out}")

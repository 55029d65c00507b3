from dataclasses import replace

import killed
import pytest
import torch
import two_ranks
from test_ranks import read

from scoring.errors import InputError
from trainers.half import DTYPES, LossScale, compiled
from trainers.loop import train

CPU = torch.device("cpu")


def weight():
    parameter = torch.nn.Parameter(torch.ones(2))
    return parameter, torch.optim.SGD([parameter], lr=0.5)


def test_the_scale_changes_no_gradient_and_is_lowered_where_one_overflows():
    parameter, optimizer = weight()
    scale = LossScale(CPU, "fp16", {})
    scale.backward((parameter * torch.tensor([3.0, 4.0])).sum())
    assert parameter.grad.norm() > 1000
    norm = scale.norm(optimizer, [parameter], 1.0)
    assert norm == 5.0
    assert parameter.grad.tolist() == pytest.approx([0.6, 0.8])
    assert scale.step(optimizer, norm)
    assert parameter.tolist() == pytest.approx([0.7, 0.6])
    before = scale.to_json()["scale"]
    scale.backward((parameter * 1e38).sum())
    assert not scale.step(optimizer, scale.norm(optimizer, [parameter], 0.0))
    assert parameter.tolist() == pytest.approx([0.7, 0.6])
    assert scale.to_json()["scale"] == before / 2
    assert not scale.is_lost
    assert LossScale(CPU, "fp16", scale.to_json()).to_json() == scale.to_json()


def test_other_precisions_are_not_scaled():
    parameter, optimizer = weight()
    scale = LossScale(CPU, "bf16", {})
    scale.backward(parameter.sum())
    assert parameter.grad.tolist() == [1.0, 1.0]
    assert scale.step(optimizer, scale.norm(optimizer, [parameter], 0.0))
    assert parameter.tolist() == [0.5, 0.5]
    assert scale.to_json() == {}


def fp16(folder, **named):
    return train(
        replace(two_ranks.recipe("simclr"), precision="fp16", epochs=2),
        two_ranks.data(),
        state=folder / "s",
        device=CPU,
        **named,
    )


def test_a_run_in_float16_goes_on_to_the_bit(tmp_path, monkeypatch):
    (tmp_path / "cut").mkdir()
    undisturbed, _ = fp16(tmp_path)
    killed.kill_at(2, lambda **named: fp16(tmp_path / "cut", **named), monkeypatch)
    resumed, _ = fp16(tmp_path / "cut")
    ends, again = (read(folder / "s")[0] for folder in (tmp_path, tmp_path / "cut"))
    assert ends == again
    assert 0 < ends["scale"]["scale"] < 65536  # the first gradients overflowed
    for name, value in undisturbed.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_a_gradient_that_no_scale_helps_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(LossScale, "step", lambda *rest: False)
    monkeypatch.setattr(LossScale, "is_lost", True)
    with pytest.raises(InputError, match=r"gradient .*at step 0"):
        fp16(tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_what_is_compiled_holds_its_precision(monkeypatch, precision):
    monkeypatch.setattr(torch, "compile", lambda read, **options: read)
    read = compiled(torch.nn.Linear(3, 2), torch.device("cpu"), precision)
    assert read(torch.ones(4, 3)).dtype == DTYPES.get(precision, torch.float32)

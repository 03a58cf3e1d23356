"""The last layer alone, for inner loops that adapt nothing else."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from alfa.models import DEFAULT_MODE, ExecutionMode, Model
from alfa.types import Layers


class LastLayer(Model):
    """The last layer of a model, whose inputs are the features of the other layers."""

    def __init__(self, model: Model, name: str) -> None:
        super().__init__()
        self.name = name
        # The parameters belong to the model, which is no submodule.
        self._classify = model.classify
        self.names = {own for own, _ in model.named_parameters() if own.startswith(f"{name}.")}

    def stacked(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        return self._classify(params, x)


def last_layer_of(model: nn.Module, layers: Layers) -> LastLayer | None:
    """Return the last layer if tasks adapt nothing else and all steps have the same features.

    With dropout, each step has other features.
    """
    if not isinstance(model, Model) or model.head_name is None:
        return None
    # A subclass that changes `stacked` or `embedded` may do more than the last layer.
    last = _owner(model, "classify")
    if last is Model or not all(
        issubclass(last, _owner(model, name)) for name in ("stacked", "embedded")
    ):
        return None
    dropped = any(isinstance(m, _DropoutNd) and m.training and m.p > 0 for m in model.modules())
    is_last = all(name.startswith(f"{model.head_name}.") for name in layers)
    return LastLayer(model, model.head_name) if is_last and not dropped else None


def _owner(model: nn.Module, name: str) -> type:
    """Return the class that defines a method of a module."""
    return next(cls for cls in type(model).__mro__ if name in vars(cls))

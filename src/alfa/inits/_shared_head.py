"""The init of UNICORN-MAML: one vector for all classes."""

import torch
from torch import Tensor, nn

from alfa.inits._base import Support, register_init
from alfa.inits._heads import TaskHead
from alfa.inits._inits import Patterns
from alfa.types import Params


@register_init("shared-head")
class SharedHead(TaskHead):
    """UNICORN-MAML: all classes start with one learned vector (Ye and Chao, 2022, section 5).

    W_k = w for every class k, so permuting the classes of a task permutes the outputs, and tasks
    may have any number of classes. The bias starts at 0: a bias that all classes share would change
    neither the gradients nor the probabilities.

    Args:
        model: a model with the parameters theta; w starts as the first row of its last layer.
        adapt: patterns of the names of the adapted parameters, which must include the last layer;
            by default all parameters except normalization parameters.
        head: the name of the last layer; by default the model's `head_name`, or else its last
            linear layer.

    Examples:
        >>> import torch
        >>> from alfa import MLP, SGD, adapt, cross_entropy
        >>> from alfa.inits import SharedHead
        >>> model = MLP((3,), 5, hidden=[8])
        >>> init = SharedHead(model)
        >>> x, y = torch.randn(1, 14, 3), torch.arange(7).repeat(2)[None]  # 7 classes
        >>> options = {"init": init, "rule": SGD(init.layers), "loss": cross_entropy}
        >>> outputs = adapt(model, x, y, num_steps=0, **options).predict(x)
        >>> outputs.shape, bool((outputs == outputs[..., :1]).all())
        (torch.Size([1, 14, 7]), True)
    """

    def __init__(
        self, model: nn.Module, *, adapt: Patterns | None = None, head: str | None = None
    ) -> None:
        super().__init__(model, adapt=adapt, head=head)
        last = model.get_parameter(f"{self.head}.weight")
        self.vector = nn.Parameter(last.detach()[0].clone())

    def initial_head(self, body: Params, support: Support, way: int) -> dict[str, Tensor]:
        # W_k = w, so the gradient of w is the sum of the gradients of all rows
        weight = self.vector.expand(support.num_tasks, way, -1)
        return {"weight": weight, "bias": torch.zeros_like(weight[..., 0])}

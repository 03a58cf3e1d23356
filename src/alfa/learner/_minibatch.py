"""The support examples of an inner step."""

import torch
from torch import Tensor


def minibatch(step: int, num_examples: int, batch_size: int | None) -> Tensor | slice:
    """Return the examples of an inner step; consecutive steps go through permutations of all.

    The permutations are the same for all tasks, which draw their examples randomly.
    """
    if batch_size is None or batch_size >= num_examples:
        return slice(None)
    begin, end = step * batch_size, (step + 1) * batch_size
    rounds = range(begin // num_examples, -(-end // num_examples))
    permutations = [
        torch.randperm(num_examples, generator=torch.Generator().manual_seed(number))
        for number in rounds
    ]
    first = begin - rounds.start * num_examples
    return torch.cat(permutations)[first : first + batch_size]

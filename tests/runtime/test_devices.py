"""The devices of this machine."""

from __future__ import annotations

import pytest
import torch

from alfa._runtime import check_device
from alfa.errors import ConfigError


def test_every_machine_has_a_cpu() -> None:
    check_device("cpu", name="`device`")
    check_device(torch.device("cpu"), name="`device`")


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "meta", "hpu", "", None, 1.5])
def test_what_is_not_there_is_said_with_what_is(device: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_device(device, name="`device`")
    told = str(caught.value)
    assert told.startswith(f"`device` is {device!r}, which this machine does not have; it has cpu")

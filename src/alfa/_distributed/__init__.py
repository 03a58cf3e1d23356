"""One run computed by several processes, on one or more machines."""

from alfa._distributed._processes import (
    ALONE,
    Processes,
    check_cards,
    is_launched,
    is_one_of_many,
    is_restarted,
    joined,
    launch_name,
)

__all__ = [
    "ALONE",
    "Processes",
    "check_cards",
    "is_launched",
    "is_one_of_many",
    "is_restarted",
    "joined",
    "launch_name",
]

"""Assessment of a classifier by the few labeled photos that it trains on."""

from alfa.assessment._accuracy import AccuracyEstimate, share_interval
from alfa.assessment._calibration import Calibration, calibration_error
from alfa.assessment._folds import Folds, stratified_folds
from alfa.assessment._held_out import HeldOut, cross_validate, held_out_values
from alfa.assessment._label_next import label_next
from alfa.assessment._rejection import Rejection
from alfa.assessment._selection import Selection, select

__all__ = [
    "AccuracyEstimate",
    "Calibration",
    "Folds",
    "HeldOut",
    "Rejection",
    "Selection",
    "calibration_error",
    "cross_validate",
    "held_out_values",
    "label_next",
    "select",
    "share_interval",
    "stratified_folds",
]

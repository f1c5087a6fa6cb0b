"""Learning through the simulator: losses, fits of any leaf, least squares, and gradient certificates."""

from jaxdae.tuning.certificate import CHAOTIC, GradientReport, LeafCheck, check_gradients
from jaxdae.tuning.checkpoint import Checkpoint
from jaxdae.tuning.differentiation import ByCount, Forward, Mode, Reverse
from jaxdae.tuning.fitting import FitResult, FitStep, fit
from jaxdae.tuning.levenberg_marquardt import LeastSquaresResult, least_squares
from jaxdae.tuning.losses import (
    constraint_violation,
    effort,
    energy_error,
    final,
    nan_if_failed,
    reaction,
    time_average,
    tracking,
    velocity_violation,
)
from jaxdae.tuning.parameters import (
    AtLeast,
    AtMost,
    Between,
    Bound,
    Entries,
    Positive,
    Reparametrization,
    Unbounded,
    reparametrize,
)
from jaxdae.tuning.rollout_loss import RolloutLoss

__all__ = [
    "CHAOTIC",
    "AtLeast",
    "AtMost",
    "Between",
    "Bound",
    "ByCount",
    "Checkpoint",
    "Entries",
    "FitResult",
    "FitStep",
    "Forward",
    "GradientReport",
    "LeafCheck",
    "LeastSquaresResult",
    "Mode",
    "Positive",
    "Reparametrization",
    "Reverse",
    "RolloutLoss",
    "Unbounded",
    "check_gradients",
    "constraint_violation",
    "effort",
    "energy_error",
    "final",
    "fit",
    "least_squares",
    "nan_if_failed",
    "reaction",
    "reparametrize",
    "time_average",
    "tracking",
    "velocity_violation",
]

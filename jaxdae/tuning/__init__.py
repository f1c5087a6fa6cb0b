"""Learning through the simulator: losses of rollouts, fits of any leaf by gradient, least squares, and the certificate of gradients."""

from jaxdae.tuning.checkpoint import Checkpoint
from jaxdae.tuning.differentiation import ByCount, Forward, Mode, Reverse
from jaxdae.tuning.fit import FitResult, FitStep, fit
from jaxdae.tuning.least_squares import LeastSquaresResult, least_squares
from jaxdae.tuning.parameters import AtLeast, AtMost, Between, Bound, Entries, Positive, Reparametrization, Unbounded, reparametrize

__all__ = [
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
    "LeastSquaresResult",
    "Mode",
    "Positive",
    "Reparametrization",
    "Reverse",
    "Unbounded",
    "fit",
    "least_squares",
    "reparametrize",
]

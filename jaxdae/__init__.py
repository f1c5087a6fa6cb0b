"""jaxdae: mechanics with hard constraints, compiled, batched and differentiable.

The equation, rollouts, methods, solvers and statuses are here. Other names are in the namespaces `diffrax`,
`interfaces`, `operators`, `switching`, `textbook` and `tree`. Mechanisms, in the plane and in space, are in
`jaxdae.mechanisms`.

`import jaxdae` alone does not import JAX, so that `jaxdae --help` starts fast. The first use of a name does.
"""

from typing import TYPE_CHECKING

from jaxdae._version import __version__ as __version__
from jaxdae.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxdae.public_names import *  # noqa: F403
else:
    __getattr__, __dir__ = lazy_names(__name__, "jaxdae.public_names")

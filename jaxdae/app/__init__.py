"""The command `jaxdae` and its parts: configs, runs, results and plots. It needs the extra `app`."""

from typing import TYPE_CHECKING

from jaxdae.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxdae.app.experiment_names import *  # noqa: F403
else:
    __getattr__, __dir__ = lazy_names(__name__, "jaxdae.app.experiment_names")

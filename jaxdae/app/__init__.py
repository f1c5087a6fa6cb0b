"""The command `jaxdae` and its parts: configs, runs, results and plots. It needs the extra `app`."""

from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.draw.animation import write_animation
from jaxdae.app.draw.picture_space import skeleton
from jaxdae.app.draw.plot_style import line_style, styled
from jaxdae.app.experiment_report import conclude, show_table, table_lines
from jaxdae.app.experiment_script import Script, script, settings
from jaxdae.app.jobs.run_config import run
from jaxdae.app.jobs.run_record import begin, finish, table
from jaxdae.app.model.load_config import load

__all__ = [
    "ConfigError",
    "Script",
    "begin",
    "conclude",
    "finish",
    "line_style",
    "load",
    "precision",
    "run",
    "script",
    "settings",
    "show_table",
    "skeleton",
    "styled",
    "table",
    "table_lines",
    "write_animation",
]

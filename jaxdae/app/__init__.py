"""The command `jaxdae` and what it is made of: configs, runs, results, plots. Needs the extra `app`."""

from jaxdae.app.animation import write_animation
from jaxdae.app.config import load
from jaxdae.app.findings import conclude, show_table, table_lines
from jaxdae.app.picture_space import skeleton
from jaxdae.app.precision import precision
from jaxdae.app.problems import ConfigError
from jaxdae.app.run import run
from jaxdae.app.run_record import begin, finish, table
from jaxdae.app.script import Script, script, settings
from jaxdae.app.style import line_style, styled

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

"""The script `jaxdae`, beside the package: what XLA reads when it is loaded must be said before `import jaxdae` loads it.

Where it loads a compiled program, XLA reports at length, as errors, that the processor lacks two features which are hints to its own
compiler and no features of any processor. They are switched off with the rest of what XLA logs; what fails still raises an exception.
"""

import os


def main() -> None:
    """Runs the command line."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from jaxdae.app.command import main as command

    command()

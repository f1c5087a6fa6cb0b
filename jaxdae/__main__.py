"""The command, as `python -m jaxdae` and as the script `jaxdae`.

XLA reads its log level when JAX is imported, so the command sets it first. `import jaxdae` alone does not
import JAX.

When XLA loads a compiled program, it reports at length, as errors, that the processor lacks two features.
They are hints to its own compiler and no features of any processor. The log level 3 hides these reports with
the rest of XLA's log. Failures still raise an exception.
"""

import os
import sys

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def main() -> None:
    """Run the command line, or name the missing package of the extra `app`."""
    os.environ.setdefault(_LEVEL, "3")
    try:
        from jaxdae.app.cli import main as command
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "jaxdae":
            raise
        sys.stderr.write(
            f"jaxdae: the command needs the extra app ({error.name} is missing); install it with pip install "
            "'.[app]' in a clone of jaxdae\n"
        )
        sys.exit(2)
    command()


if __name__ == "__main__":
    main()

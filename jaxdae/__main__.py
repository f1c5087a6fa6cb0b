"""The command, as `python -m jaxdae` and, copied beside the package, as the script `jaxdae`.

What XLA reads when it is loaded must be said before `import jaxdae` loads it, so the script lies beside the
package, and `python -m jaxdae`, which comes too late, begins anew with it said.

Where it loads a compiled program, XLA reports at length, as errors, that the processor lacks two features
which are hints to its own compiler and no features of any processor. They are switched off with the rest of
what XLA logs; what fails still raises an exception.
"""

import os
import sys

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def main() -> None:
    """Runs the command line; says what to install where a package of the extra `app` is missing."""
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
    if _LEVEL not in os.environ:
        os.environ[_LEVEL] = "3"
        os.execv(sys.executable, sys.orig_argv)
    main()

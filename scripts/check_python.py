"""Stop with a clear message where this interpreter cannot run Outpace.

It must itself run on old interpreters, so it uses nothing that Python 2 does not know.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "outpace needs Python 3.11 or newer; %s is %d.%d\n"
        "hint: name another interpreter, for example: make PYTHON=python3.11 setup"
        % (sys.executable, sys.version_info[0], sys.version_info[1])
    )

try:
    import ensurepip  # noqa: F401  only its presence matters: venv needs it
except ImportError:
    sys.exit(
        "%s cannot create virtual environments: the module ensurepip is missing\n"
        "hint: on Debian and Ubuntu run: sudo apt-get install python3-venv" % sys.executable
    )

"""Signs that a machine runs the program: a runner of continuous integration, or a test runner.

A container of a test would be a new client with a new secret each time, and no report of it can be removed later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath

FLAGS = (
    "CI",
    "CONTINUOUS_INTEGRATION",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "TF_BUILD",
    "TRAVIS",
    "CIRCLECI",
    "APPVEYOR",
    "DRONE",
    "BUILDKITE",
    "CIRRUS_CI",
    "SEMAPHORE",
)
"""Variables that are signs unless they are empty, 0, false, no or off."""
VARIABLES = (
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "BITBUCKET_BUILD_NUMBER",
    "CODEBUILD_BUILD_ID",
    "BUILD_BUILDID",
    "PYTEST_CURRENT_TEST",
    "PYTEST_VERSION",
    "TOX_ENV_NAME",
    "NOX_CURRENT_SESSION",
)
"""Variables that are signs unless they are empty."""
_FALSE_VALUES = ("", "0", "false", "no", "off")
_TEST_RUNNERS = ("pytest", "py.test", "nose2", "unittest", "stestr", "trial", "behave")


def sign_of_automation(environment: Mapping[str, str], program: str | None = None) -> str | None:
    """Return the first sign: a variable, else the program; None if there is none, or if HUBBUB_CONSENT lets this process record.

    program : `sign_of_this_program`

    >>> sign_of_automation({"CI": "true"}), sign_of_automation({"CI": "false"}), sign_of_automation({}, "pytest")
    ('CI', None, 'pytest')
    >>> sign_of_automation({"CI": "true", "HUBBUB_CONSENT": "on"}, "pytest")
    """
    if environment.get("HUBBUB_CONSENT", "").strip().lower() in ("on", "local"):
        return None
    values = {name: environment.get(name, "").strip().lower() for name in (*FLAGS, *VARIABLES)}
    return next(
        (name for name, value in values.items() if value not in (_FALSE_VALUES if name in FLAGS else ("",))), program
    )


def sign_of_program(arguments: Sequence[str], module: str) -> str | None:
    """Return the test runner that is this program; None if it is another program.

    arguments : `sys.argv`      module : name of the module that `python -m` runs; "" for a script

    >>> sign_of_program(["/usr/bin/pytest", "-q"], ""), sign_of_program(["manage.py", "test"], ""), sign_of_program(["app.py"], "")
    ('pytest', 'manage.py test', None)
    """
    script = PurePath(arguments[0]).name if arguments else ""
    runner = next(
        (name for name in (module.partition(".")[0], script.removesuffix(".exe")) if name in _TEST_RUNNERS), None
    )
    if runner is None and script == "manage.py" and list(arguments[1:2]) == ["test"]:
        return "manage.py test"
    return runner


def sign_of_this_program() -> str | None:
    """Return `sign_of_program` of this process."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return sign_of_program(sys.argv, "" if spec is None else spec.name)

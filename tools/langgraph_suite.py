"""Run LangGraph's own tests on deltastore's saver and say where it does worse than InMemorySaver.

Nouns: a *package* is one whose source distribution carries tests (langgraph, langgraph-prebuilt).
The *baseline* is a run with InMemorySaver; a *regression* is a test that passes there and not with
the saver under test. *Excused* tests look into InMemorySaver itself and are listed below, each with
its reason. The *work directory* holds the environment, the distributions and the baselines. It can
be deleted at any time, and nothing of it belongs in the repository: it is LangGraph's code.

Exit status: 0 no regression, 1 regressions, 2 the suite could not be run.
How to use it and how to judge a regression: docs/guides/langgraph-suite.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PLUGIN = Path(__file__).resolve().with_name("langgraph_suite_plugin.py")

PACKAGES = ("langgraph", "langgraph-prebuilt")
SAVER = "deltastore:DeltaStoreSaver"

# What the test modules and their conftest import, beside the packages themselves. The clients of
# PostgreSQL and Redis are imported and never used: the plugin deselects what would connect.
TEST_REQUIREMENTS = (
    "aiosqlite",
    "httpx",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite",
    "psycopg[binary]",
    "psycopg-pool",
    "pycryptodome",
    "pytest",
    "pytest-asyncio",
    "pytest-mock",
    "pytest-timeout",
    "pytest-xdist",
    "redis",
    "syrupy",
)

# Left out of both runs: they test another saver on a server of its own.
IGNORED_FILES = {"langgraph": ("tests/test_prune_postgres.py",), "langgraph-prebuilt": ()}

PIP = ("-m", "pip", "--disable-pip-version-check")

WORKERS = 2
TEST_SECONDS_MAX = 60
RUN_SECONDS_MAX = 1200
RERUN_TESTS_MAX = 40
RERUNS_MAX = 3

# Test id without its parameters -> why it can pass on InMemorySaver only.
_BY_WRITES = "the saver it derives sorts pending writes by the private InMemorySaver.writes"
_UPDATES = "tests/test_delta_channel_update_state.py::"
EXCUSED = {
    "tests/test_channels.py::test_delta_channel_snapshot_version_based": (
        "looks for snapshots in the private InMemorySaver.blobs"
    ),
    f"{_UPDATES}test_bulk_update_state_replays_updates_in_the_order_given": _BY_WRITES,
    f"{_UPDATES}test_abulk_update_state_replays_updates_in_the_order_given": _BY_WRITES,
}


class SuiteError(Exception):
    """The suite could not be run; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Results:
    """What one run of one package's tests came to.

    Attributes:
        outcomes: Test id -> passed, failed, skipped or xfailed.
        messages: Test id -> where and why it failed, at most 400 characters and the phase.
        savers_opened: How many savers under test the run built; 0 in a baseline.
    """

    outcomes: dict[str, str]
    messages: dict[str, str]
    savers_opened: int

    @classmethod
    def read(cls, path: Path) -> Results:
        """Return what the plugin wrote to `path`."""
        return cls(**json.loads(path.read_text()))


def digest(*parts: str) -> str:
    """Return 12 hexadecimal digits that change whenever one of `parts` does."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def say(text: str) -> None:
    """Print a line at once: a run takes minutes, and its reader watches a log."""
    print(text, flush=True)


def call(command: Sequence[str | Path], cwd: Path) -> str:
    """Run a command to its end and return its output; raises `SuiteError` if it fails."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, text=True, capture_output=True, check=False)
    if done.returncode:
        what = f"`{' '.join(words[:6])} ...` failed with status {done.returncode}"
        raise SuiteError(f"{what}:\n{done.stderr[-3000:]}")
    return done.stdout


def make_environment(work: Path) -> Path:
    """Return the interpreter of an environment with deltastore, langgraph and what tests import.

    Reused while constraints, the project's metadata and the requirements above stay the same.
    """
    stamp_text = digest(
        sys.version,
        str(ROOT),
        CONSTRAINTS.read_text(),
        (ROOT / "pyproject.toml").read_text(),
        *TEST_REQUIREMENTS,
    )
    venv, stamp = work / "venv", work / "venv" / "suite-stamp"
    python = venv / "bin" / "python"
    if stamp.exists() and stamp.read_text() == stamp_text:
        return python
    say(f"making the environment in {venv} ...")
    shutil.rmtree(venv, ignore_errors=True)
    call([sys.executable, "-m", "venv", venv], cwd=work)
    wanted: list[str | Path] = ["-c", CONSTRAINTS, "-e", ROOT, *PACKAGES, *TEST_REQUIREMENTS]
    call([python, *PIP, "install", "--quiet", *wanted], cwd=work)
    stamp.write_text(stamp_text)
    return python


def get_releases(python: Path, work: Path) -> dict[str, str]:
    """Return the releases installed of the packages and of langgraph-checkpoint."""
    names = (*PACKAGES, "langgraph-checkpoint")
    code = (
        "import importlib.metadata as m, json, sys;"
        "print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    )
    releases: dict[str, str] = json.loads(call([python, "-c", code, *names], cwd=work))
    return releases


def fetch_tests(python: Path, work: Path, package: str, release: str) -> Path:
    """Return a directory with the tests of `package` at `release` and their pytest settings.

    Only these are taken from the source distribution: its package directory beside them would be
    imported in place of the installed one.
    """
    suite = work / "suites" / f"{package}-{release}"
    if suite.exists():
        return suite
    say(f"fetching the source distribution of {package} {release} ...")
    downloads = work / "downloads" / f"{package}-{release}"
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir(parents=True)
    # --no-binary for this one name: with `:all:` the build backend is built from source as well.
    wanted = ["--no-deps", "--no-binary", package, f"{package}=={release}"]
    call([python, *PIP, "download", "--quiet", *wanted], cwd=downloads)
    (archive,) = downloads.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(downloads, filter="data")
    (source,) = (path for path in downloads.iterdir() if path.is_dir())
    if not (source / "tests").is_dir():
        raise SuiteError(f"{archive.name} carries no tests/; test a release whose archive does.")
    # Renamed when whole: a copy that was broken off must not be taken for the suite.
    half = suite.with_name(suite.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    shutil.copytree(source / "tests", half / "tests")
    shutil.copy(source / "pyproject.toml", half)
    half.rename(suite)
    return suite


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs one package's tests. `arguments` are pytest's, added to those of every run."""

    python: Path
    work: Path
    package: str
    suite: Path
    strict: bool
    arguments: tuple[str, ...]

    def report_path(self, name: str) -> Path:
        """Return where the outcomes of the run called `name` are; its output is beside, `.log`."""
        strict = "-strict" if self.strict else ""
        return self.work / "runs" / f"{self.package}{strict}-{name}.json"

    def run(self, name: str, saver: str | None, tests: Sequence[str] = ()) -> Results:
        """Run with `saver` (None: InMemorySaver) and return what it came to.

        Args:
            tests: Ids to run one after the other; empty runs what `arguments` select, in parallel.

        Raises:
            SuiteError: pytest could not run the tests, or took more than RUN_SECONDS_MAX.
        """
        report = self.report_path(name)
        log = report.with_suffix(".log")
        report.parent.mkdir(exist_ok=True)
        report.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="stores-", dir=self.work) as stores:
            env = self._environment(report, saver, stores)
            status = run_bounded(self._command(tests), self.suite, env, log)
        # 0 all passed, 1 some failed, 5 nothing selected; the rest means that tests were not run.
        if status not in {0, 1, 5} or not report.exists():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise SuiteError(f"pytest ended with status {status}; see {log}:\n{tail}")
        return Results.read(report)

    def _command(self, tests: Sequence[str]) -> list[str]:
        # Their own addopts ask for full tracebacks of several thousand lines each.
        settings = ["-o", "addopts=", "--strict-markers", "--strict-config", "-q", "--tb=short"]
        command = [str(self.python), "-m", "pytest", "-p", PLUGIN.stem, "-p", "no:cacheprovider"]
        command += [*settings, f"--timeout={TEST_SECONDS_MAX}", "--durations=10"]
        command += [f"--ignore={path}" for path in IGNORED_FILES[self.package]]
        return command + (["-n", "0", *tests] if tests else ["-n", str(WORKERS), *self.arguments])

    def _environment(self, report: Path, saver: str | None, stores: str) -> dict[str, str]:
        # The caller's own settings must not reach the tests: they turn on tracing, or strictness.
        foreign = ("LANGGRAPH_", "LANGCHAIN_", "LANGSMITH_", "PYTEST_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        path = os.pathsep.join(filter(None, (str(PLUGIN.parent), env.get("PYTHONPATH"))))
        env.update(PYTHONPATH=path, TMPDIR=stores, NO_DOCKER="false")
        env["LANGGRAPH_SUITE_REPORT"] = str(report)
        if saver is not None:
            env["LANGGRAPH_SUITE_SAVER"] = saver
        if self.strict:
            env["LANGGRAPH_STRICT_MSGPACK"] = "true"
        return env


def run_bounded(command: Sequence[str], cwd: Path, env: dict[str, str], log: Path) -> int | str:
    """Run a command with its workers and return its exit status; end them all if it takes long."""
    with log.open("w") as out:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that the workers can be ended with it
        )
        try:
            return child.wait(RUN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return f"none after {RUN_SECONDS_MAX} s"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def excuse(test: str) -> str | None:
    """Return why this test is excused; None if it is not."""
    return EXCUSED.get(test.partition("[")[0])


def get_baseline(runner: Runner, key: str) -> Results:
    """Return the baseline from the work directory; runs it first where there is none."""
    path = runner.work / "baselines" / f"{runner.package}-{key}.json"
    if path.exists():
        return Results.read(path)
    say(f"{runner.package}: baseline with InMemorySaver ...")
    results = runner.run("memory", None)
    path.parent.mkdir(exist_ok=True)
    shutil.copy(runner.report_path("memory"), path)
    return results


def compare(runner: Runner, saver: str, key: str) -> tuple[int, int]:
    """Run and report one package; returns how many tests passed with `saver`, how many regress.

    Regressions are run again, one at a time, up to RERUNS_MAX times: on a busy machine LangGraph's
    timing tests fail with any saver. One that passes then is named in the report, not counted.
    """
    baseline = get_baseline(runner, key)
    say(f"{runner.package}: run with {saver} ...")
    began = time.monotonic()
    ours = runner.run("saver", saver)
    seconds = time.monotonic() - began
    good = {test for test, outcome in baseline.outcomes.items() if outcome == "passed"}
    passed = {test for test, outcome in ours.outcomes.items() if outcome == "passed"}
    if passed and not ours.savers_opened and not runner.arguments:
        raise SuiteError(f"no test of {runner.package} built a {saver}: nothing was tested.")
    # A test that was skipped or not run at all did not pass either.
    excused = sorted(test for test in good - passed if excuse(test))
    regressions = sorted(good - passed - set(excused))
    unsteady: list[str] = []
    for _ in range(RERUNS_MAX):
        if not 0 < len(regressions) <= RERUN_TESTS_MAX:
            break
        again = runner.run("again", saver, regressions)
        unsteady += [test for test in regressions if again.outcomes.get(test) == "passed"]
        regressions = [test for test in regressions if test not in unsteady]
    failed = sorted(test for test, outcome in ours.outcomes.items() if outcome == "failed")

    say(f"{runner.package}: {seconds:.0f} s, {ours.savers_opened} savers opened")
    say(f"  passed with both: {len(good & passed)}; with this saver only: {len(passed - good)}")
    say_tests("failed with both", [test for test in failed if test not in good], ours)
    say_tests("excused", excused, ours)
    say_tests("unsteady: failed, then passed alone", unsteady, ours)
    say_tests("REGRESSIONS", regressions, ours)
    idle = {test for test in good if excuse(test)} - set(excused)
    say_tests("excused and passing: take them off the list", sorted(idle), ours)
    return len(passed) + len(unsteady), len(regressions)


def say_tests(title: str, tests: Sequence[str], results: Results) -> None:
    """Print how many tests these are and, for each, its id and the reason in one line."""
    if tests or title == "REGRESSIONS":
        say(f"  {title}: {len(tests)}")
    for test in tests:
        reason = excuse(test) or results.messages.get(test) or "skipped, or not run"
        say(f"    {test}\n      {reason.splitlines()[0][:200]}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/langgraph_suite",
        description="Run LangGraph's own tests with a saver and compare with InMemorySaver.",
        epilog="Arguments after -- go to pytest, in both runs.",
    )
    parser.add_argument("--package", choices=(*PACKAGES, "both"), default="both")
    parser.add_argument(
        "--saver",
        metavar="import:MODULE:CLASS",
        default=f"import:{SAVER}",
        help="class built with a directory path (default: %(default)s)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="with LANGGRAPH_STRICT_MSGPACK=true in both runs"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / ".langgraph-suite",
        metavar="DIR",
        help="environment, distributions, baselines and logs (default: %(default)s)",
    )
    own, theirs = list(arguments), []
    if "--" in own:
        cut = own.index("--")
        own, theirs = own[:cut], own[cut + 1 :]
    parsed = parser.parse_args(own)
    parsed.pytest_arguments = tuple(theirs)
    if not parsed.saver.startswith("import:") or parsed.saver.count(":") != 2:
        parser.error(f"--saver {parsed.saver!r}: must be import:MODULE:CLASS")
    return parsed


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    saver = options.saver.removeprefix("import:")
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    # The directory keeps itself out of version control, wherever it is.
    (work / ".gitignore").write_text("*\n")
    passed = regressions = 0
    try:
        python = make_environment(work)
        releases = get_releases(python, work)
        say(", ".join(f"{name} {release}" for name, release in releases.items()))
        for package in PACKAGES if options.package == "both" else (options.package,):
            suite = fetch_tests(python, work, package, releases[package])
            runner = Runner(python, work, package, suite, options.strict, options.pytest_arguments)
            chosen = (releases, options.strict, options.pytest_arguments, IGNORED_FILES)
            key = digest(repr(chosen), PLUGIN.read_text(), sys.version)
            counts = compare(runner, saver, key)
            passed, regressions = passed + counts[0], regressions + counts[1]
        if not passed and not regressions:
            raise SuiteError("no test was selected, so nothing was tested.")
    except SuiteError as error:
        print(f"langgraph_suite: {error}", file=sys.stderr)
        return 2
    say(f"{passed} passed, {regressions} failed")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The rules of the house that no linter knows: purity, size, words that must not be committed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.tree import (
    GROUP,
    PACKAGES,
    ROOT,
    Rule,
    findings,
    parse,
    rule,
    rule_of_tests_too,
    show,
    sources,
    texts,
)

pytestmark = GROUP

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

# The modules that decide and never act: no await, clock, file or socket. Globs from the root.
PURE = (
    "kafka_clients/bearer_tokens.py",
    "kafka_clients/distinguished_names.py",
    "kafka_clients/principal_mapping.py",
    "kafka_clients/security.py",
    "kip405/*.py",
    "rlm/api/method_rights.py",
    "rlm/api/safety_of_status.py",
    "rlm/console/access.py",
    "rlm/console/costs.py",
    "rlm/console/paging.py",
    "rlm/console/rows.py",
    "rlm/reading/eviction.py",
    "rlm/config/draft_names.py",
    "rlm/config/environment.py",
    "rlm/config/history.py",
    "rlm/config/refusals.py",
    "rsm_plugins/process/yaml_text.py",
    "rlm/diagnosis/checks.py",
    "rlm/diagnosis/disks.py",
    "rlm/diagnosis/host.py",
    "rlm/diagnosis/listeners.py",
    "rlm/diagnosis/observed.py",
    "rlm/diagnosis/readers.py",
    "rlm/diagnosis/services.py",
    "rlm/diagnosis/stores.py",
    "rlm/diagnosis/table.py",
    "rlm/diagnosis/topics.py",
    "rlm/download/plan.py",
    "rlm/plans/*.py",
    "rlm/proxy/account.py",
    "rlm/proxy/client_counts.py",
    "rlm/proxy/fetch_plan.py",
    "rlm/proxy/identities.py",
    "rlm/proxy/memory.py",
    "rlm/proxy/own_topics.py",
    "rlm/proxy/introductions.py",
    "rlm/proxy/position_answers.py",
    "rlm/proxy/splice.py",
    "rlm/proxy/session.py",
    "rlm/reading/cursors.py",
    "rlm/reading/values.py",
    "rlm/reading/segment_indexes.py",
    "rlm/reading/fair_queue.py",
    "rlm/stores/reports.py",
    "rlm/topics/recreated.py",
    "rlm/topics/needed_acls.py",
    "kafka_protocol/**/*.py",
    "rlm_spark/plan/offset_specs.py",
    "rlm_spark/pipelines/buckets.py",
    "rlm_spark/pipelines/chunks.py",
    "rlm_spark/pipelines/findings.py",
    "rlm_spark/pipelines/segment_audit.py",
    "rlm_spark/pipelines/spans.py",
    "rlm_spark/plan/planning.py",
    "tiered_reads/values.py",
    "rlmm/command_codec.py",
    "rlmm/cover.py",
    "rlmm/giveback_codec.py",
    "rlmm/json_fields.py",
    "rlmm/leader_answers.py",
    "rlmm/ledger.py",
    "rlmm/ledger_values.py",
    "rlmm/log_time.py",
    "rlmm/packed.py",
    "rlmm/records.py",
    "rlmm/replay.py",
    "rlmm/segment_store.py",
    "rlmm/settings_codec.py",
    "rlmm/settings_view.py",
    "rsm_plugins/endpoints.py",
    "rsm_plugins/hdfs/rights.py",
    "rsm_plugins/layout/keys.py",
    "rsm_plugins/layout/manifest.py",
    "rsm_plugins/s3/rights.py",
)
IMPURE_IMPORTS = {
    "aiohttp",
    "aiokafka",
    "asyncio",
    "fcntl",
    "grpc",
    "io",
    "mmap",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "structlog",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
THREAD_MAKERS = {"to_thread", "run_in_executor", "ThreadPoolExecutor", "Thread"}
# The one module that makes threads, and where another kind of process needs its own: the child that
# kills a plugin when its parent ends.
MAY_MAKE_THREADS = {"rsm_plugins/threads.py", "rsm_plugins/process/spawn_child.py"}
IMPURE_CALLS = {"open", "input", "print"}

# Written in pieces, so that this file keeps its own rule.
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(".".join(labels))
        for labels in (
            ("pypi", "org"),
            ("files", "pythonhosted", "org"),
            ("repo1", "maven", "org"),
            ("repo", "maven", "apache", "org"),
            ("registry", "npmjs", "org"),
            ("static", "crates", "io"),
            ("proxy", "golang", "org"),
        )
    )
)
MACHINE_PATHS = re.compile(r"(?<![\w.$})/-])/(?:home|root|work|Users|opt/wheels)/\w")
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")


def lines_matching(path: Path, pattern: re.Pattern[str]) -> Iterator[str]:
    """Each line of a file that has the pattern, with its path and number."""
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            yield f"{show(path)}:{number}: {line.strip()[:100]}"


def impurities(module: ast.Module) -> Iterator[str]:
    """What makes a module impure: imports of the outer world, awaits, files."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").partition(".")[0]]
        elif isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"line {node.lineno}: awaits"
            continue
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                yield f"line {node.lineno}: calls {node.func.id}()"
            continue
        else:
            continue
        yield from (
            f"line {node.lineno}: imports {name}" for name in names if name in IMPURE_IMPORTS
        )


@rule_of_tests_too
def long_functions(module: ast.Module) -> Iterator[str]:
    """Each function that is longer than the house allows."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {length} lines"


@rule
def prints(module: ast.Module) -> Iterator[str]:
    """Each call of print."""
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield f"line {node.lineno}: print()"


@rule
def threads_made(module: ast.Module) -> Iterator[str]:
    """Each way into asyncio's own threads, which all share, or to threads of one's own."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        if name in THREAD_MAKERS:
            yield f"line {node.lineno}: {name}"


@rule
def unimplemented(module: ast.Module) -> Iterator[str]:
    """Each mention of the error that is raised for work not done."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and node.id == "NotImplemented" + "Error":
            yield f"line {node.lineno}: {node.id}"


def in_sources(of: Rule) -> list[str]:
    """What a rule finds in every Python file written by hand that it is for."""
    return [f"{show(path)}: {found}" for path, found in findings(of)]


def test_pure_modules_are_pure() -> None:
    paths = {path for glob in PURE for path in ROOT.glob(glob) if "_pb2" not in path.name}
    found = [f"{show(path)}: {what}" for path in sorted(paths) for what in impurities(parse(path))]
    assert found == []


@pytest.mark.parametrize("glob", PURE)
def test_every_pure_module_named_here_exists(glob: str) -> None:
    assert list(ROOT.glob(glob)), "moved or renamed: change its row in PURE"


def test_files_are_short() -> None:
    lengths = {path: len(path.read_bytes().splitlines()) for path in sources(with_tests=True)}
    assert [f"{show(path)}: {n}" for path, n in lengths.items() if n > MAX_FILE_LINES] == []


def test_functions_are_short() -> None:
    assert in_sources(long_functions) == []


def test_nothing_is_left_unfinished() -> None:
    found = [
        line
        for path in texts()
        if show(path).split("/")[0] != "tests"
        for line in lines_matching(path, UNFINISHED)
    ]
    assert found + in_sources(unimplemented) == []


def test_products_do_not_print() -> None:
    found = in_sources(prints)
    assert [line for line in found if line.split("/")[0] in PACKAGES] == []


def test_h17_threads_are_made_in_one_module() -> None:
    """Where all share some threads, copies and hanging disks hold up what a barrier waits for."""
    services = ("rlm/", "rlmm/", "kip405/", "rsm_plugins/")
    others = ("rlm_sandbox/", "rlm_sandbox/demo/")
    found = [
        line
        for line in in_sources(threads_made)
        if line.startswith(services)
        and not line.startswith(others)
        and line.partition(":")[0] not in MAY_MAKE_THREADS
    ]
    assert found == []


def test_no_registry_is_named() -> None:
    assert [line for path in texts() for line in lines_matching(path, REGISTRY_HOSTS)] == []


def test_no_path_of_a_machine_is_named() -> None:
    assert [line for path in texts() for line in lines_matching(path, MACHINE_PATHS)] == []


@pytest.mark.parametrize("package", [name for name in PACKAGES if (ROOT / name).is_dir()])
def test_packages_say_that_they_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os.path", "line 1: imports os"),
        ("from asyncio import Queue", "line 1: imports asyncio"),
        ("async def f(g):\n    await g()", "line 2: awaits"),
        ("open('x')", "line 1: calls open()"),
    ],
)
def test_the_purity_rule_can_fail(source: str, expected: str) -> None:
    assert list(impurities(ast.parse(source))) == [expected]


def test_the_length_rule_can_fail() -> None:
    body = "def f():\n" + "    pass\n" * MAX_FUNCTION_LINES
    assert list(long_functions(ast.parse(body))) == [
        f"line 1: f has {MAX_FUNCTION_LINES + 1} lines"
    ]


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        (REGISTRY_HOSTS, "https://" + ".".join(("pypi", "org")) + "/simple", True),
        (REGISTRY_HOSTS, "https://kafka.apache.org/43/", False),
        (MACHINE_PATHS, "cache = '" + "/".join(("", "home", "me", "x")) + "'", True),
        (MACHINE_PATHS, "state/work/x and ${HOME}/root/x", False),
        (UNFINISHED, "# TO" + "DO later", True),
    ],
)
def test_the_word_rules_can_fail(pattern: re.Pattern[str], line: str, matches: bool) -> None:
    assert (pattern.search(line) is not None) == matches

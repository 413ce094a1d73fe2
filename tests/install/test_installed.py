"""The wheels in environments that have what they ask for and nothing else."""

import re
import shutil
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from build_tools.dist import KAFKA_RLM_SPARK, build_one
from rlm.cli.main import COMMANDS
from tests.install.environments import VERSION, Environment, handed_on, make_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

IS_COMPILED = "import rlm_spark.decode as d; print(d.is_compiled())"
SERVICE_ALONE = {"aiohttp", "click", "rich", "structlog", "psutil", "prometheus_client", "yaml"}


@pytest.fixture(scope="module")
def bare(built: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install kafka-rlm`."""
    return make_environment(tmp_path_factory.mktemp("bare") / "v", built["kafka_rlm.whl"])


@pytest.fixture(scope="module")
def executor(built: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install kafka-rlm-spark`."""
    return make_environment(tmp_path_factory.mktemp("spark") / "v", built["kafka_rlm_spark.whl"])


def test_a_program_gets_the_downloads_of_this_machine_and_no_setting_of_it() -> None:
    of_machine = {"RLM_CACHE_DIR": "/c", "RLM_MAVEN_REPO": "http://127.0.0.1:9", "PATH": "/bin"}
    of_tests = {"RLM_TEST_WORKERS": "2", "RLM_HTTP_SERVICE_PORT": "1", "PYTHONPATH": "/here"}
    assert handed_on(of_machine | of_tests) == of_machine


def test_both_programs_work_without_any_extra(bare: Environment) -> None:
    for program in ("rlm", "rsm-plugin"):
        done = bare.run(program, "--version", check=True)
        assert done.stdout.strip() == f"{program}, version {VERSION}"
    assert "serve" in bare.run("rsm-plugin", "--help", check=True).stdout
    code = (
        "from click.testing import CliRunner; from rlm.cli.main import COMMANDS, main\n"
        "for name in COMMANDS: print(name, CliRunner().invoke(main, [name, '--help']).exit_code)"
    )
    done = bare.python(code)
    assert done.stdout.splitlines() == [f"{name} 0" for name in COMMANDS], done.stderr
    code = "import rlm.service.broker_service, rlm.service.reader_service, rlm.service.supervised"
    assert bare.python(code).returncode == 0


def test_wheels_have_the_compiled_decoder(executor: Environment, built: Mapping[str, Path]) -> None:
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which("cc") is None or not headers.exists():
        pytest.skip("no compiler here")
    for name in ("kafka_rlm", "kafka_rlm_spark"):
        path = built[f"{name}.whl"]
        assert re.fullmatch(rf"{name}-{VERSION}-cp311-abi3-\w+\.whl", path.name)
        with zipfile.ZipFile(path) as archive:
            assert "rlm_spark/decode/_native.abi3.so" in archive.namelist()
    assert executor.python(IS_COMPILED).stdout == "True\n"


def test_without_a_compiler_a_wheel_fits_every_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "false")
    _, wheel = build_one(KAFKA_RLM_SPARK, tmp_path, VERSION)
    assert wheel.name == f"kafka_rlm_spark-{VERSION}-py3-none-any.whl"
    one = make_environment(tmp_path / "v", wheel)
    assert one.python(IS_COMPILED).stdout == "False\n"


def test_manual_pages_and_units_come_along(bare: Environment, built: Mapping[str, Path]) -> None:
    pages = bare.folder / "share/man/man1"
    assert sorted(path.name for path in pages.iterdir()) == ["rlm.1", "rsm-plugin.1"]
    with tarfile.open(built["kafka_rlm.tar.gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"systemd/kafka-rlm.service", "LICENSE", "rlm_spark/decode/crc32c.h"} <= names
    assert not [name for name in names if name.startswith("tests")]


def serve_config(folder: Path, plugin: str) -> str:
    """Settings of a reader with a store of that kind."""
    path = folder / "reader.yaml"
    path.write_text(
        "cluster.id: 4L6g3nShT-eMCtK--X86sw\nkafka.bootstrap.servers: [127.0.0.1:1]\n"
        f"state.dir: {folder}/state\ngrpc.listen: unix:{folder}/g\nhttp.listen: 127.0.0.1:1\n"
        f"{plugin}"
    )
    return str(path)


S3 = "plugin: s3\nrsm.config.s3.bucket.name: bucket\nrsm.config.s3.region: r\n"
HDFS = "plugin: hdfs\nrsm.config.hdfs.url: hdfs://127.0.0.1:1\nrsm.config.root: /r\n"


@pytest.mark.parametrize(
    ("plugin", "library", "settings"),
    [
        ("s3", "aiobotocore", S3),
        ("hdfs", "hdfs_native", HDFS),
    ],
)
def test_a_store_without_its_extra_says_what_to_install(
    bare: Environment, tmp_path: Path, plugin: str, library: str, settings: str
) -> None:
    said = f"plugin {plugin} needs {library}: pip install 'kafka-rlm[{plugin}]'\n"
    config = serve_config(tmp_path, settings)
    done = bare.run("rlm", "serve", "--role", "reader", "--config", config)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rlm: {said}")
    own = tmp_path / "plugin.yaml"
    own.write_text(f"listen: unix:{tmp_path}/p\n{settings}")
    done = bare.run("rsm-plugin", "serve", "--config", str(own))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(said) and done.stderr.count("\n") == 1


def test_a_sandbox_without_its_extra_says_what_to_install(
    bare: Environment, tmp_path: Path
) -> None:
    root = tmp_path / "s"
    done = bare.run("rlm", "sandbox", "up", "--dir", str(root), variables={"JAVA_HOME": ""})
    assert done.returncode == 1
    assert "no Java: pip install 'kafka-rlm[sandbox]'" in done.stderr
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin/java").touch(mode=0o755)
    empty = {"JAVA_HOME": str(java), "RLM_CACHE_DIR": str(tmp_path / "cache")}
    done = bare.run("rlm", "sandbox", "up", "--dir", str(root), variables=empty)
    assert done.returncode == 1
    assert "pip install 'kafka-rlm[sandbox]'" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_commands_of_spark_without_it_say_what_to_install(
    bare: Environment, executor: Environment
) -> None:
    arguments = ("export", "t", "--dir", "x", "--address", "127.0.0.1:1")
    done = bare.run("rlm", *arguments)
    said = "this needs pyspark: pip install 'kafka-rlm[spark]'"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rlm: {said}\n")
    done = executor.run("python", "-m", "rlm_spark.pipelines", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "export: this needs pyspark: pip install pyspark\n"


def test_an_executor_needs_no_library_of_the_service(executor: Environment) -> None:
    """All that needs no pyspark is imported: with it, every module of it is in the other tests."""
    code = (
        "import importlib, pkgutil, sys, rlm_spark\n"
        "lacking = set()\n"
        "for one in pkgutil.walk_packages(rlm_spark.__path__, 'rlm_spark.'):\n"
        "    try: importlib.import_module(one.name)\n"
        "    except ModuleNotFoundError as error: lacking.add(error.name)\n"
        "print(sorted(lacking), len([name for name in sys.modules if 'rlm_spark' in name]))\n"
        f"print(sorted({SERVICE_ALONE!r} & sys.modules.keys()))\n"
        "from kip405.process import software_version; print(software_version())"
    )
    done = executor.python(code)
    assert done.returncode == 0, done.stderr
    lacking, service, version = done.stdout.splitlines()
    assert lacking.startswith("['py4j', 'pyspark'] ") and int(lacking.split()[-1]) > 30
    assert (service, version) == ("[]", VERSION)
    assert not (executor.folder / "bin/rlm").exists()

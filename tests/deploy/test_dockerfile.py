"""docker/Dockerfile: rules of ours, and its steps carried out below a folder."""

import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from build_tools.locks import PROFILES
from tests.deploy.dockerfile import Dockerfile, Stage, parse
from tests.deploy.image import Built, Ignored, build
from tests.project.tree import ROOT

PATH = ROOT / "docker" / "Dockerfile"
TEXT = PATH.read_text(encoding="utf-8")
PARSED = parse(TEXT)
RUNTIME = PARSED.stages[-1]
MAX_INSTALLED_BYTES = 125_000_000
"""Of 250 MB for the image; the base image takes about 125."""

SAME_FILES = {"pyproject.toml", "README.md", "LICENSE"}


def faults(parsed: Dockerfile) -> list[str]:
    """What no image of ours may do."""
    of_stages = [fault for stage in parsed.stages for fault in stage_faults(stage)]
    return of_stages + runtime_faults(parsed.stages[-1])


def stage_faults(stage: Stage) -> list[str]:
    found = [f"ADD {one.rest}" for one in stage.all("ADD")]
    if ":" not in stage.image or stage.image.endswith(":latest"):
        found.append(f"{stage.image}: no version")
    if "." in stage.image.partition(":")[0]:
        found.append(f"{stage.image}: names a registry")
    fetching = [one.rest for one in stage.all("RUN") if re.search(r"\bpip\b.* install ", one.rest)]
    return found + [
        f"not locked: {command}"
        for command in fetching
        if "--no-index" not in command and "--require-hashes" not in command
    ]


def runtime_faults(stage: Stage) -> list[str]:
    found = [f"no {name}" for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK") if not stage.all(name)]
    users = stage.all("USER")
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1].rest):
        found.append("runs as root, or as a user that only a name says")
    found += [
        f"{one.name} is run by a shell, which keeps signals for itself"
        for one in (*stage.all("ENTRYPOINT"), *stage.all("CMD"))
        if not one.is_exec_form
    ]
    if stage.all("RUN"):
        found.append("RUN in the last stage: it would need an emulator for the other platform")
    return found


def test_the_rules_are_kept() -> None:
    assert faults(PARSED) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("python:3.13-slim-bookworm\n", "python\n", "python: no version"),
        ("python:3.13-slim-bookworm\n", "python:latest\n", "python:latest: no version"),
        ("BUILDER_IMAGE=python", "BUILDER_IMAGE=quay.example/python", "names a registry"),
        ("USER 10001:10001", "USER rlm", "runs as root"),
        ("USER 10001:10001", "USER 0:0", "runs as root"),
        ("COPY . /build/source", "ADD . /build/source", "ADD . /build/source"),
        ('ENTRYPOINT ["rlm"]', "ENTRYPOINT rlm", "keeps signals"),
        (" --require-hashes", "", "not locked"),
        ("HEALTHCHECK", "LABEL", "no HEALTHCHECK"),
    ],
)
def test_a_broken_rule_is_noticed(old: str, new: str, fault: str) -> None:
    arguments = TEXT.partition("\nARG ")
    text = arguments[0] + "".join(arguments[1:]).replace(old, new)
    assert text != TEXT
    assert any(fault in one for one in faults(parse(text)))


def test_it_is_said_how_both_images_are_pinned_by_digest() -> None:
    assert set(PARSED.arguments) == {"BUILDER_IMAGE", "RUNTIME_IMAGE"}
    for name, image in PARSED.arguments.items():
        assert f"imagetools inspect {image} " in TEXT
        assert f"--build-arg {name}={image}@sha256:..." in TEXT


def test_every_file_that_is_copied_is_in_the_context() -> None:
    left_out = Ignored(ROOT)
    for stage in PARSED.stages:
        for one in stage.all("COPY"):
            for source in one.words[:-1] if "from" not in one.flags else ():
                assert (ROOT / source).exists()
                assert not left_out.leaves_out(Path(source))


def test_the_context_has_all_of_the_package_and_nothing_that_was_made() -> None:
    left_out = Ignored(ROOT)
    assert not any(left_out.leaves_out(Path(name)) for name in SAME_FILES | {"rlm", "rlm_spark"})
    for name in (".git", ".venv", "tests", "rlm/__pycache__", "rlm_spark/decode/_native.abi3.so"):
        assert left_out.leaves_out(Path(name)), name


def test_locks_that_are_installed_exist() -> None:
    named = set(re.findall(r"-r /build/requirements/([\w-]+)\.txt", TEXT.replace("\\\n", "")))
    assert named == {"bootstrap", "service"} and named <= set(PROFILES)


def test_ports_are_those_of_the_configurations() -> None:
    service = yaml.safe_load((ROOT / "docker" / "rlm.yaml").read_text(encoding="utf-8"))
    listening = {service[key].rpartition(":")[2] for key in service if key.endswith(".listen")}
    assert set(RUNTIME.last("EXPOSE").words) == listening


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image as a folder, with the packages of this environment instead of downloaded ones."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        pytest.skip("no compiler here")
    folder = tmp_path_factory.mktemp("image")
    packages = locked_packages(folder / "packages")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    tools = f"/build/tools/lib/{name}/site-packages"
    instead = {
        "requirements/bootstrap.txt": f"rm -rf {tools}/setuptools*; echo {packages} >{tools}/a.pth",
        "requirements/service.txt": f"echo {packages} >/opt/rlm/lib/{name}/site-packages/a.pth",
    }
    return build(PARSED, folder / "stages", instead)


def locked_packages(folder: Path) -> Path:
    """Links to all packages of this environment but our own."""
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and "kafka_rlm" not in path.name:
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.timeout(900)
def test_what_is_installed_is_the_package_with_the_compiled_decoder(built: Built) -> None:
    where = "import rlm, rlm_spark.decode._native as n; print(rlm.__file__); print(n.__file__)"
    done = built.run(["/opt/rlm/bin/python", "-c", where])
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(f"{built.root}/opt/rlm/lib/") for line in done.stdout.splitlines())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", ["rlm", "rsm-plugin"])
def test_both_programs_start_by_their_names(built: Built, program: str) -> None:
    done = built.run([program, "--version"])
    assert done.returncode == 0 and done.stdout.startswith(f"{program}, version"), done.stderr


@pytest.mark.timeout(900)
def test_entry_point_command_and_health_check_read_the_mounted_file(built: Built) -> None:
    commands = [
        RUNTIME.last("ENTRYPOINT").words + RUNTIME.last("CMD").words,
        parse_health(RUNTIME.last("HEALTHCHECK").rest),
    ]
    for command in commands:
        done = built.run(command)
        assert done.returncode == 2, done.stderr
        assert f"{built.root}/etc/rlm/rlm.yaml cannot be read" in done.stderr


def parse_health(rest: str) -> list[str]:
    """The command after CMD."""
    return (
        parse(f"FROM a:1\n{rest.partition('CMD ')[1]}{rest.partition('CMD ')[2]}")
        .stages[0]
        .last("CMD")
        .words
    )


@pytest.mark.timeout(900)
def test_the_folder_of_the_state_is_there(built: Built) -> None:
    (volume,) = RUNTIME.last("VOLUME").words
    assert (built.root / volume[1:]).is_dir()
    assert RUNTIME.last("WORKDIR").rest == volume


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_step_word_for_word_gives_an_image_that_is_small(tmp_path: Path) -> None:
    made = build(PARSED, tmp_path, {})
    for program in ("rlm", "rsm-plugin"):
        assert made.run([program, "--version"]).returncode == 0
    clients = "[make(one, region_name='eu-west-1') for one in ('s3', 'sts', 'sso', 'sso-oidc')]"
    s3 = f"import botocore.session; make = botocore.session.Session().create_client; {clients}"
    done = made.run(["/opt/rlm/bin/python", "-c", s3])
    assert done.returncode == 0, done.stderr
    files = [path for path in made.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < MAX_INSTALLED_BYTES

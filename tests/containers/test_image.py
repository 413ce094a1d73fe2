"""The image, built and started by an engine: without root, and on a read-only root file system."""

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage

from tests.project.tree import ROOT

pytestmark = pytest.mark.integration
TAG = "kafka-rlm:test"
MAX_BYTES = 250_000_000


@pytest.mark.timeout(1800)
def test_the_image_is_small_and_its_programs_start_as_compose_starts_them(engine: None) -> None:
    with DockerImage(path=str(ROOT), dockerfile_path="docker/Dockerfile", tag=TAG) as image:
        found = image.get_wrapped_image()
        assert found.attrs["Size"] <= MAX_BYTES
        assert found.attrs["Config"]["User"] == "10001:10001"
        for program in ("rlm", "rsm-plugin"):
            status, said = _run(program, "--version")
            assert (status, said.startswith(f"{program}, version")) == (0, True), said
        status, said = _run("rlm", "serve", "--config", "/etc/rlm/rlm.yaml")
        assert (status, "cannot be read" in said) == (2, True), said


def _run(program: str, *arguments: str) -> tuple[int, str]:
    """Exit status and output of a container that ends by itself."""
    limits = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
    container = DockerContainer(TAG).with_command([*arguments]).with_kwargs(**limits)
    with container.with_kwargs(**limits, entrypoint=[program]) as started:
        wrapped = started.get_wrapped_container()
        status = wrapped.wait(timeout=60)["StatusCode"]
        return int(status), wrapped.logs().decode()

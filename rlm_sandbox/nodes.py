"""Files of the Kafka nodes: server.properties, log settings, formatted storage."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlm_sandbox.broker import LOG4J, broker_properties, controller_properties, encode_properties
from rlm_sandbox.errors import SandboxError
from rlm_sandbox.files import write_atomically
from rlm_sandbox.kafka_dist import KafkaDist
from rlm_sandbox.spec import CONTROLLER_NODE_ID, Layout, SandboxSpec
from rlm_sandbox.state import SandboxState

_FORMAT_TIMEOUT_S = 90


def write_node_files(layout: Layout, state: SandboxState) -> None:
    """Write (again) what the nodes read at their start."""
    write_atomically(layout.log4j, LOG4J)
    for node_id in node_ids(state.spec):
        if node_id == CONTROLLER_NODE_ID:
            properties = controller_properties(state.spec, layout, state.quorum_port)
        else:
            properties = broker_properties(
                state.spec, layout, node_id, state.ports, state.quorum_port
            )
        write_atomically(layout.server_properties(node_id), encode_properties(properties))
    if state.spec.native_tiering:
        layout.native_store.mkdir(exist_ok=True)


def format_storage(dist: KafkaDist, layout: Layout, state: SandboxState) -> None:
    """Run Kafka's own format on every node with a directory that is not formatted.

    That is each node at first, and a broker whose disk was emptied (H4).
    """
    unformatted = [
        node_id
        for node_id in node_ids(state.spec)
        if not all((path / "meta.properties").exists() for path in _dirs(layout, state, node_id))
    ]

    def format_node(node_id: int) -> None:
        config = str(layout.server_properties(node_id))
        done = dist.run_tool(
            "storage",
            *("format", "--cluster-id", state.cluster_id, "--config", config, "--ignore-formatted"),
            timeout_s=_FORMAT_TIMEOUT_S,
        )
        if done.returncode != 0:
            reason = _reason(done.stderr + done.stdout) or f"status {done.returncode}"
            raise SandboxError(f"formatting the storage of node {node_id} failed: {reason}")

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(format_node, unformatted))


def _dirs(layout: Layout, state: SandboxState, node_id: int) -> tuple[Path, ...]:
    if node_id == CONTROLLER_NODE_ID:
        return (layout.metadata_dir(node_id),)
    return (layout.metadata_dir(node_id), *layout.log_dirs(node_id, state.spec.log_dirs))


def _reason(output: str) -> str:
    """The line of a Java tool's output that says what is wrong, without the stack trace."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("\t")]
    blamed = [line for line in lines if "Exception" in line]
    return (blamed or lines or [""])[-1].strip()


def node_ids(spec: SandboxSpec) -> tuple[int, ...]:
    controller = (CONTROLLER_NODE_ID,) if spec.dedicated_controller else ()
    return (*controller, *spec.broker_ids)

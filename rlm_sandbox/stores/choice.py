"""The store of a sandbox by the kind that its options name."""

from rlm_sandbox.spec import Layout
from rlm_sandbox.state import SandboxState
from rlm_sandbox.stores.contract import SandboxStore
from rlm_sandbox.stores.hdfs import HdfsStore
from rlm_sandbox.stores.local import LocalStore
from rlm_sandbox.stores.s3 import S3Store


def sandbox_store(layout: Layout, state: SandboxState) -> SandboxStore:
    """The store as its layout and its ports say; nothing is started or looked up."""
    if state.spec.store == "s3":
        return S3Store(layout=layout, ports=state.store_ports)
    if state.spec.store == "hdfs":
        return HdfsStore(layout=layout, ports=state.store_ports)
    return LocalStore(layout=layout)

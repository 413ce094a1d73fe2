"""Every kind of store as a subject of the conformance kit: called directly, through gRPC in this
process, through a plugin process of its own, by bytes and by files.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import yaml
from hdfs_native import Client, WriteOptions

from kip405.segments import Layout
from rsm_plugins.conformance.command import lacking
from rsm_plugins.conformance.subject import MANY_OBJECTS, PART_BYTES, StoreFaults, Subject, Wire
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.process.config import settings_of
from rsm_plugins.process.plugin import running_server
from rsm_plugins.s3.rights import PolicyScope, StoreRole, policy
from rsm_plugins.store_kinds import BLOCK_SIZE_SETTING, OpenStore, store_kind
from rsm_plugins.threads import FileThreads
from rsm_plugins.v1.identity_pb2_grpc import IdentityStub
from rsm_plugins.v1.storage_pb2_grpc import StorageStub
from tests.rsm_plugins.harness import PREFIX, DirectoryFaults, new_uuid
from tests.store_servers import SERVICE, S3Server
from tests.store_servers_hdfs import HdfsServer

ROOT = Path(__file__).parents[2]
DEADLINES = Deadlines(call_ms=120_000, copy_ms=120_000)
FEW = 120
DIRECT, BYTES, FILES, PROCESS = "direct", "bytes", "files", "process"
MODES = (DIRECT, BYTES, FILES, PROCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRig:
    """A store to be opened in any mode. `rows` are the YAML rows of its kind; `faults` None where
    it cannot be changed behind the manager's back.
    """

    kind: str
    rows: Mapping[str, object]
    faults: StoreFaults | None
    secrets: tuple[str, ...] = ()
    many: int = MANY_OBJECTS
    layout: Layout = Layout.KAFKA
    server: S3Server | None = None

    @property
    def hands(self) -> StoreFaults:
        """`faults` of a store that has them."""
        assert self.faults is not None
        return self.faults

    def in_pinterests_form(self) -> "StoreRig":
        """The same with keys of Pinterest's form below the store's prefix, and segments in that
        layout.
        """
        rows = {
            "rsm.config.pinterest.cluster": "kafkaCluster1",
            "rsm.config.pinterest.prefix": f"{PREFIX}/custom-prefix",
            "rsm.config.pinterest.entropy.bits": 5,
        }
        if self.server is not None:
            bucket = str(self.rows["rsm.config.s3.bucket.name"])
            self.server.enable_versioning(bucket)
            scope = PolicyScope(bucket=bucket, prefix=PREFIX, versions=True)
            self.server.put_policy(bucket, policy(StoreRole.SERVICE, scope, SERVICE))
        faults = self.faults
        if self.kind == "local":
            faults = ViewFaults(Path(str(self.rows["rsm.config.root"])))
        return replace(self, rows={**self.rows, **rows}, faults=faults, layout=Layout.PINTEREST)

    def content(self, **others: object) -> dict[str, object]:
        """A plugin's whole YAML content, on a free loopback port."""
        return {"listen": "127.0.0.1:0", "plugin": self.kind, **self.rows, **others}


def local_rig(folder: Path) -> StoreRig:
    root = folder / "store"
    root.mkdir()
    rows = {
        "rsm.config.root": str(root),
        "rsm.config.prefix": PREFIX,
        BLOCK_SIZE_SETTING.key: PART_BYTES,
    }
    return StoreRig(kind="local", rows=rows, faults=DirectoryFaults(root))


def s3_rig(server: S3Server) -> StoreRig:
    """A bucket of its own, by an account that has the least rights in it; logs over 5 MiB go up in
    parts.
    """
    bucket = server.bucket()
    scope = PolicyScope(bucket=bucket, prefix=PREFIX)
    server.put_policy(bucket, policy(StoreRole.SERVICE, scope, SERVICE))
    service = server.as_account(SERVICE)
    rows = {
        **service.settings(bucket),
        "rsm.config.prefix": PREFIX,
        "rsm.config.s3.multipart.upload.part.size": PART_BYTES,
        BLOCK_SIZE_SETTING.key: PART_BYTES,
    }
    return StoreRig(
        kind="s3",
        rows=rows,
        faults=BucketFaults(server.folder / "buckets" / bucket),
        secrets=(service.secret_key,),
        server=server,
    )


def hdfs_rig(server: HdfsServer) -> StoreRig:
    """A root folder of its own."""
    root = f"/kit-{new_uuid()}"
    rows = {
        "rsm.config.hdfs.url": server.url,
        "rsm.config.hdfs.hdfs-site.path": str(server.config / "hdfs-site.xml"),
        "rsm.config.root": root,
        "rsm.config.prefix": PREFIX,
        BLOCK_SIZE_SETTING.key: PART_BYTES,
    }
    faults = HdfsFaults(Client(server.url), root)
    return StoreRig(kind="hdfs", rows=rows, faults=faults, many=FEW)


class ViewFaults(DirectoryFaults):
    """StoreFaults of a directory where a log has a further name in Pinterest's form: what is lost
    is lost under both, and what is beside the further name goes too.
    """

    def remove(self, name: str) -> None:
        lost = self.path_of(name)
        for view in self.path_of("").rglob("*.log"):
            if view.samefile(lost):
                for beside in (*view.parent.glob(f"{view.stem}.*"), view.parent / "offset.wm"):
                    beside.unlink(missing_ok=True)
        super().remove(name)


class HdfsFaults:
    """StoreFaults of a folder in HDFS, through a client of its own."""

    def __init__(self, client: Client, root: str) -> None:
        self._client = client
        self._root = root
        self._base = f"{root}/{PREFIX}"
        client.mkdirs(root)

    def move_away(self) -> None:
        self._client.rename(self._root, f"{self._root}.away")

    def bring_back(self) -> None:
        self._client.rename(f"{self._root}.away", self._root)

    def remove(self, name: str) -> None:
        assert self._client.delete(f"{self._base}/{name}")

    def truncate(self, name: str, size_bytes: int) -> None:
        path = f"{self._base}/{name}"
        with self._client.read(path) as reader:
            head = reader.read(size_bytes)
        with self._client.create(path, WriteOptions(overwrite=True)) as writer:
            writer.write(head)

    def names(self) -> list[str]:
        """Every file, temporary ones too. Listed again where a folder goes away meanwhile."""
        for _ in range(9):
            with suppress(FileNotFoundError):
                return self._listed()
        return self._listed()

    def _listed(self) -> list[str]:
        found = self._client.list_status(self._root, recursive=True)
        paths = (one.path for one in found if not one.isdir)
        return sorted(path.removeprefix(f"{self._base}/") for path in paths)


class BucketFaults(DirectoryFaults):
    """StoreFaults of a bucket that versitygw keeps as a directory; unfinished uploads count."""

    def __init__(self, bucket: Path) -> None:
        super().__init__(bucket)
        self._objects = bucket / PREFIX
        self._uploads = bucket / ".sgwtmp" / "multipart"

    def flip(self, name: str, position: int) -> None:
        """Another bit in a stored object, as a rotten disk has it."""
        with (self._objects / name).open("r+b") as file:
            file.seek(position)
            byte = file.read(1)[0] ^ 1
            file.seek(position)
            file.write(bytes([byte]))

    def names(self) -> list[str]:
        """Objects below the prefix, and a line for each upload that was begun."""
        uploads = self._uploads.glob("*/*")
        return sorted([*super().names(), *(f"upload {path.name}" for path in uploads)])


@asynccontextmanager
async def opened(rig: StoreRig, mode: str, folder: Path) -> AsyncIterator[Subject]:
    """A subject over the store; everything that was opened for it is closed afterwards."""
    sources = folder / "sources"
    sources.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        if mode == DIRECT:
            threads = FileThreads()
            stack.callback(threads.close)
            store = await open_store(rig, threads)
            stack.push_async_callback(store.manager.close)
            yield _subject(rig, store, sources)
            return
        if mode == PROCESS:
            address = await stack.enter_async_context(served(rig, folder))
        else:
            server = running_server(settings_of(rig.content()))
            address = str((await stack.enter_async_context(server))[0])
        yield await dialled(rig, address, sources, stack, share=mode == FILES)


async def open_store(rig: StoreRig, threads: FileThreads) -> OpenStore:
    return await store_kind(rig.kind).open(settings_of(rig.content()).store, threads)


def _subject(rig: StoreRig, store: OpenStore, sources: Path) -> Subject:
    return Subject(
        manager=store.manager,
        folder=sources,
        new_uuid=new_uuid,
        cluster_id="test-cluster",
        faults=rig.faults,
        sweep=store.sweep,
        many=rig.many,
        part_bytes=PART_BYTES,
        secrets=rig.secrets,
        layout=rig.layout,
    )


async def dialled(
    rig: StoreRig, address: str, sources: Path, stack: AsyncExitStack, *, share: bool
) -> Subject:
    """A subject over the plugin at an address; closed with the stack."""
    client = GrpcRemoteStorageManager.connect(
        address, principal="test", deadlines=DEADLINES, share=share
    )
    stack.push_async_callback(client.close)
    channel = await stack.enter_async_context(
        grpc.aio.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),))
    )
    info = await client.get_info()
    return Subject(
        manager=client,
        folder=sources,
        new_uuid=new_uuid,
        cluster_id="test-cluster",
        faults=rig.faults,
        wire=Wire(identity=IdentityStub(channel), storage=StorageStub(channel), principal="test"),
        lacking=lacking(info.capabilities),
        many=min(rig.many, FEW),
        part_bytes=PART_BYTES,
        secrets=rig.secrets,
        layout=rig.layout,
    )


@asynccontextmanager
async def served(rig: StoreRig, folder: Path, **others: object) -> AsyncIterator[str]:
    """Address of a real `rsm-plugin serve` process; ended by SIGTERM."""
    with start_plugin(rig, folder, **others) as process:
        try:
            yield address_of(process, folder)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def start_plugin(rig: StoreRig, folder: Path, **others: object) -> "subprocess.Popen[str]":
    """The process; it writes its log to `plugin.log` in the folder."""
    config = folder / "plugin.yaml"
    config.write_text(yaml.safe_dump(rig.content(**others)), encoding="utf-8")
    config.chmod(0o600)
    with (folder / "plugin.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rsm_plugins.process.main", "serve", "--config", str(config)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )


def address_of(process: "subprocess.Popen[str]", folder: Path) -> str:
    """Where the process says it listens."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line.endswith("|grpc"), (folder / "plugin.log").read_text()
    return line.split("|")[3]

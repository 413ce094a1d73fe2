"""HDFS as a kind of store: its settings, and how it is opened.

Kerberos: principal, keytab and cache go to the client library, which logs in through the machine's
libgssapi; its handshake, SASL protection and encryption towards DataNodes are the library's. The
tests show that the settings reach the library, not a login: there is no KDC in the tests. According
to its source, the library logs in again for every connection, so that a ticket need not outlive the
process.
"""

from collections.abc import Mapping
from typing import Any

from rsm_plugins.hdfs.manager import HdfsRemoteStorageManager
from rsm_plugins.hdfs.settings import SETTINGS, settings_of
from rsm_plugins.store_kinds import OpenStore, StoreKind
from rsm_plugins.threads import FileThreads


async def open_hdfs(settings: Mapping[str, Any], threads: FileThreads) -> OpenStore:
    """The store below `rsm.config.root`, whose NameNode may be away; Invalid where the settings
    name no file system.
    """
    store = HdfsRemoteStorageManager(settings_of(settings), threads=threads)
    return OpenStore(manager=store, uri=store.uri, sweep=store.sweep)


KIND = StoreKind(name="hdfs", settings=SETTINGS, open=open_hdfs)

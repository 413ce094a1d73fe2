"""Principals that a secured sandbox does not have by itself, and the rights that they are given."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kip405.acls import Acl
from rlm.clock import new_uuid
from rlm_sandbox.files import write_atomically
from rlm_sandbox.security.acls import Grant, create_acls, knows_acls
from rlm_sandbox.security.certificates import Authority, write_issued
from rlm_sandbox.security.cluster_security import ClusterSecurity
from tests.scenarios.cluster import Cluster

_DAY = timedelta(days=1)
_ITERATIONS = 4096


def with_principal(cluster: Cluster, security: ClusterSecurity, name: str) -> ClusterSecurity:
    """The security of a sandbox with one principal more, known by its certificate in mtls, else by
    its password. Its files are beside those of the others.
    """
    files, password = security.files, new_uuid().raw.hex()
    if security.kind == "mtls":
        now = datetime.now(UTC)
        issued = Authority.load(files).issue(name, begin=now - _DAY, end=now + _DAY)
        write_issued(issued, files.certificate(name), files.key(name))
        write_atomically(files.keystore(name), issued.key + issued.certificate, private=True)
    else:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        wanted = UserScramCredentialUpsertion(name, info, password.encode())
        cluster.admin.alter_user_scram_credentials([wanted])[name].result(120)
    write_atomically(files.password(name), password, private=True)
    passwords = {**security.secrets.passwords, name: password}
    return replace(security, secrets=replace(security.secrets, passwords=passwords))


def grant(cluster: Cluster, security: ClusterSecurity, acls: Iterable[Acl]) -> None:
    """Returns when the first broker knows the ACLs, and the principals that were made before."""
    grants = tuple(
        Grant(acl.principal, acl.resource_type, acl.resource_name, acl.operation) for acl in acls
    )
    port = cluster.sandbox.state.ports[1].direct
    create_acls(port, security.admin, grants)
    cluster.wait_for(lambda: knows_acls(port, security.admin, grants), "the ACLs")

"""Grafana's dashboards of `rlm serve`: a table of panels, and the JSON that Grafana reads.

Each query leaves labels that its legend names. Metrics of partitions are queried by topic, so that
the panels hold where metrics.per.partition shows no partitions; the dashboard of a partition needs
them.
"""

import json
from dataclasses import dataclass, field
from typing import Any

_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`queries`: in PromQL, with the legend of each. `unit` as Grafana names it."""

    title: str
    unit: str
    queries: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """`variables`: names of the labels that a user chooses, with the metric that has them."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: dict[str, str] = field(default_factory=dict)


_OVERVIEW = Dashboard(
    name="overview",
    title="kafka-rlm: overview",
    panels=(
        Panel(
            title="Alarms",
            unit="none",
            queries={'sum by (kind) (rlm_problems{severity="alarm"}) > 0': "{{kind}}"},
        ),
        Panel(
            title="Not remote yet",
            unit="bytes",
            queries={"sum(rlm_remote_copy_lag_bytes)": "closed segments"},
        ),
        Panel(
            title="Oldest that is not remote, by topic",
            unit="s",
            queries={"topk(10, max by (topic) (rlm_remote_copy_lag_seconds))": "{{topic}}"},
        ),
        Panel(
            title="Time until a broker deletes what is not remote",
            unit="s",
            queries={"min by (topic) (rlm_partition_loss_seconds)": "{{topic}}"},
        ),
        Panel(
            title="Time until log directories are full",
            unit="s",
            queries={
                "min by (instance, log_dir) (rlm_log_dir_full_seconds)": "{{instance}} {{log_dir}}"
            },
        ),
        Panel(
            title="Free space of log directories",
            unit="percentunit",
            queries={
                "min by (instance, log_dir) (rlm_log_dir_free_bytes / rlm_log_dir_size_bytes)": (
                    "{{instance}} {{log_dir}}"
                )
            },
        ),
        Panel(
            title="Longest time without a good run",
            unit="s",
            queries={"max by (task) (rlm_task_good_run_age_seconds)": "{{task}}"},
        ),
        Panel(
            title="Copies",
            unit="Bps",
            queries={
                "sum(rate(rlm_remote_copy_bytes_total[5m]))": "copied",
                "sum(rlm_copy_limit_bytes_per_second)": "limit",
            },
        ),
        Panel(
            title="Remote bytes given to readers",
            unit="Bps",
            queries={
                'sum by (way) (rate(rlm_read_given_bytes_total{tier="remote"}[5m]))': "{{way}}"
            },
        ),
        Panel(
            title="Age of heartbeats",
            unit="s",
            queries={"min by (node) (rlm_heartbeat_age_seconds)": "node {{node}}"},
        ),
        Panel(
            title="Ledger and settings: not read yet",
            unit="none",
            queries={
                "max by (instance, topic) (rlm_metadata_unread_records)": "{{instance}} {{topic}}"
            },
        ),
        Panel(
            title="Event loop: late by",
            unit="s",
            queries={"max by (instance) (rlm_event_loop_lag_seconds)": "{{instance}}"},
        ),
        Panel(
            title="Kafka clients",
            unit="none",
            queries={
                "sum by (instance) (rlm_proxy_connections_opened_total) - "
                "sum by (instance) (rlm_proxy_connections_closed_total)": "{{instance}}"
            },
        ),
        Panel(
            title="Clocks ahead of the brokers",
            unit="s",
            queries={"max by (node) (rlm_clock_skew_seconds)": "node {{node}}"},
        ),
        Panel(
            title="Certificates: time left",
            unit="s",
            queries={
                "min by (instance, path) (rlm_certificate_left_seconds)": "{{instance}} {{path}}"
            },
        ),
    ),
)

_TOPIC = Dashboard(
    name="topic",
    title="kafka-rlm: topic",
    variables={"topic": "rlm_remote_log_size_bytes"},
    panels=(
        Panel(
            title="Remote",
            unit="bytes",
            queries={'sum(rlm_remote_log_size_bytes{topic="$topic"})': "finished segments"},
        ),
        Panel(
            title="Not remote yet",
            unit="bytes",
            queries={'sum(rlm_remote_copy_lag_bytes{topic="$topic"})': "closed segments"},
        ),
        Panel(
            title="Waiting to be copied",
            unit="s",
            queries={
                'max(rlm_remote_copy_lag_seconds{topic="$topic"})': "age of the oldest",
                'max(rlm_remote_copy_behind_seconds{topic="$topic"})': "since the last copy",
                'max(rlm_last_stable_offset_pinned_seconds{topic="$topic"})': "for a transaction",
            },
        ),
        Panel(
            title="Time since the last good run",
            unit="s",
            queries={'max by (task) (rlm_task_good_run_age_seconds{topic="$topic"})': "{{task}}"},
        ),
        Panel(
            title="Copied and deleted",
            unit="Bps",
            queries={
                'sum(rate(rlm_remote_copy_bytes_total{topic="$topic"}[5m]))': "copied",
                'sum(rate(rlm_remote_delete_bytes_total{topic="$topic"}[5m]))': "deleted",
            },
        ),
        Panel(
            title="Failed attempts",
            unit="none",
            queries={
                'sum(increase(rlm_remote_copy_errors_total{topic="$topic"}[15m]))': "copies",
                'sum(increase(rlm_remote_delete_errors_total{topic="$topic"}[15m]))': "deletions",
            },
        ),
        Panel(
            title="Lost, and what an operator must decide",
            unit="none",
            queries={
                'sum(rlm_partition_lost_offsets{topic="$topic"})': "lost offsets",
                'sum(rlm_partition_frozen{topic="$topic"})': "frozen partitions",
                'sum(rlm_partition_alarms{topic="$topic"})': "alarms",
            },
        ),
        Panel(
            title="Segments in the ledger",
            unit="none",
            queries={
                'sum(rlm_remote_log_metadata_count{topic="$topic"})': "all",
                'sum(rlm_remote_delete_lag_segments{topic="$topic"})': "being deleted",
            },
        ),
        Panel(
            title="Time until a broker deletes what is not remote",
            unit="s",
            queries={'min(rlm_partition_loss_seconds{topic="$topic"})': "first loss"},
        ),
    ),
)

_ONE = '{topic="$topic",partition="$partition"}'
_PARTITION = Dashboard(
    name="partition",
    title="kafka-rlm: partition (needs metrics of partitions)",
    variables={"topic": "rlm_remote_next_offset", "partition": "rlm_remote_next_offset"},
    panels=(
        Panel(
            title="Offsets",
            unit="none",
            queries={
                f"max(rlm_remote_log_start_offset{_ONE})": "remote log start",
                f"max(rlm_local_log_start_offset{_ONE})": "local log start",
                f"max(rlm_remote_next_offset{_ONE})": "end of the remote data",
            },
        ),
        Panel(
            title="Not remote yet",
            unit="bytes",
            queries={f"max(rlm_remote_copy_lag_bytes{_ONE})": "closed segments"},
        ),
        Panel(
            title="Closed segments that are not remote",
            unit="none",
            queries={f"max(rlm_remote_copy_lag_segments{_ONE})": "segments"},
        ),
        Panel(
            title="Waiting to be copied",
            unit="s",
            queries={
                f"max(rlm_remote_copy_lag_seconds{_ONE})": "age of the oldest",
                f"max(rlm_remote_copy_behind_seconds{_ONE})": "since the last copy",
                f"max(rlm_last_stable_offset_pinned_seconds{_ONE})": "for a transaction",
            },
        ),
        Panel(
            title="Remote",
            unit="bytes",
            queries={f"max(rlm_remote_log_size_bytes{_ONE})": "finished segments"},
        ),
        Panel(
            title="Holes, freeze and alarms",
            unit="none",
            queries={
                f"max(rlm_partition_holes{_ONE})": "holes",
                f"max(rlm_partition_frozen{_ONE})": "frozen",
                f"max(rlm_partition_alarms{_ONE})": "alarms",
            },
        ),
    ),
)

_STORE = Dashboard(
    name="store",
    title="kafka-rlm: store",
    variables={"store": "rlm_store_available"},
    panels=(
        Panel(
            title="Answers",
            unit="none",
            queries={'min by (instance) (rlm_store_available{store="$store"})': "{{instance}}"},
        ),
        Panel(
            title="Bytes",
            unit="bytes",
            queries={'max(rlm_store_size_bytes{store="$store"})': "finished segments"},
        ),
        Panel(
            title="Segments",
            unit="none",
            queries={'max(rlm_store_segments{store="$store"})': "finished segments"},
        ),
        Panel(
            title="Findings about its set-up",
            unit="none",
            queries={'max(rlm_store_alarms{store="$store"})': "alarms"},
        ),
        Panel(
            title="Restarts of its plugin",
            unit="none",
            queries={
                "sum by (instance) "
                '(increase(rlm_plugin_restarts_total{store="$store"}[15m]))': "{{instance}}"
            },
        ),
        Panel(
            title="Requests of reads, all stores",
            unit="reqps",
            queries={"sum by (kind) (rate(rlm_read_store_requests_total[5m]))": "{{kind}}"},
        ),
        Panel(
            title="Bytes that reads asked for, all stores",
            unit="Bps",
            queries={"sum(rate(rlm_read_store_bytes_total[5m]))": "requested"},
        ),
        Panel(
            title="Where chunks were found, all stores",
            unit="cps",
            queries={"sum by (found) (rate(rlm_read_chunks_total[5m]))": "{{found}}"},
        ),
        Panel(
            title="Reads: 99th percentile of waits",
            unit="s",
            queries={
                "histogram_quantile(0.99, sum by (le, outcome) "
                "(rate(rlm_remote_fetch_wait_seconds_bucket[5m])))": "{{outcome}}"
            },
        ),
    ),
)

DASHBOARDS = (_OVERVIEW, _TOPIC, _PARTITION, _STORE)


def generate(name: str) -> str:
    """The JSON of the dashboard of that name."""
    (found,) = (one for one in DASHBOARDS if one.name == name)
    return json.dumps(_content(found), indent=2) + "\n"


def _content(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"rlm-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["kafka-rlm"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_SOURCE_VARIABLE, *_variables(dashboard)]},
        "panels": [_panel(number, one) for number, one in enumerate(dashboard.panels)],
    }


_SOURCE_VARIABLE = {
    "name": "source",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
}


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    """The values of each depend on what is chosen of those before it."""
    found, chosen = [], ""
    for name, metric in dashboard.variables.items():
        found.append(
            {
                "name": name,
                "type": "query",
                "datasource": _SOURCE,
                "query": f"label_values({metric}{chosen}, {name})",
                "refresh": 2,
                "sort": 3,
            }
        )
        chosen = f'{{{name}="${name}"}}'
    return found


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(panel.queries.items())
        ],
    }

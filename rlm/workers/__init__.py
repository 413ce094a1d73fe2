"""Proxy workers: processes that serve Kafka clients, apart from the core process of their service.

    supervisor -- starts and restarts --> core process (ledger, settings, tasks, plugins, API)
                                              ^  unix socket: calls, views, counts
                                          worker processes (rlm.proxy, one listening socket)

A worker passes bytes before the core is there, and when it is gone (H24). What it needs of the
remote tier it asks the core for, through the Protocols in rlm/remote_log/tier.py.
"""

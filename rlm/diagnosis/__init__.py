"""`rlm doctor`: what of brokers, disks, stores, settings and this machine endangers data.

Sources are asked once (`sources.py`), with the rights that a service has and no others; what they
answer is a value (`observed.py`). Checks are pure functions of these values, and `table.py` lists
them. A check reuses the rule by which services decide, where there is one.
"""

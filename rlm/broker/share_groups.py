class BrokerShareGroups:
    def __init__(self, direct, *, clock, client_id): pass
    async def start_offset(self, topic, partition): return None
    async def close(self): pass

"""What all clients of brokers share: how their connections are secured, and aiokafka's connections.

The service's wire layer, aiokafka's clients in ledger and settings, and the connector's consumer
take one object, `ChannelSecurity`, made of one value, `KafkaSecurity`. This package must not know
what is asked over a connection.
"""

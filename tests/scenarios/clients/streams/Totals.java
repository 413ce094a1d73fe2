import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams application that groups all records of a topic by the last character of their
 * keys, and prints `{"group": "records:sum of the CRC-32 of keys and values"}` once it has as many as it
 * was given. It has a repartition topic and a changelog.
 */
public final class Totals {
    private static final String STORE = "totals";

    public static void main(String[] args) throws Exception {
        JsonNode spec =
            new ObjectMapper().readTree(new BufferedReader(new InputStreamReader(System.in)).readLine());
        Properties properties = Reader.properties(spec, false);
        properties.remove("group.id");
        properties.remove("enable.auto.commit");
        properties.remove("auto.commit.interval.ms");
        properties.put("application.id", spec.get("group").asText());
        properties.put("commit.interval.ms", "500");
        properties.put("state.dir", Files.createTempDirectory("totals").toString());
        try (KafkaStreams streams = new KafkaStreams(topology(spec.get("topic").asText()).build(), properties)) {
            streams.start();
            System.out.println(new ObjectMapper().writeValueAsString(result(streams, spec.get("count").asLong())));
            System.out.flush();
        }
    }

    private static StreamsBuilder topology(String topic) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .map((key, value) -> KeyValue.pair(group(key), checksum(key, value)))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .aggregate(
                () -> "0:0",
                (group, checksum, before) -> added(before, checksum),
                Materialized.<String, String>as(Stores.inMemoryKeyValueStore(STORE))
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
        return builder;
    }

    private static String group(byte[] key) {
        return new String(key, key.length - 1, 1, StandardCharsets.UTF_8);
    }

    private static long checksum(byte[] key, byte[] value) {
        CRC32 found = new CRC32();
        found.update(key);
        found.update(value);
        return found.getValue();
    }

    private static String added(String before, long checksum) {
        String[] parts = before.split(":");
        return (Long.parseLong(parts[0]) + 1) + ":" + (Long.parseLong(parts[1]) + checksum);
    }

    private static Map<String, String> result(KafkaStreams streams, long count) throws InterruptedException {
        while (true) {
            Thread.sleep(50);
            if (streams.state() == KafkaStreams.State.ERROR) {
                throw new IllegalStateException("the application has failed");
            }
            Map<String, String> found = new TreeMap<>();
            long records = 0;
            try {
                ReadOnlyKeyValueStore<String, String> store = streams.store(
                    StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
                try (KeyValueIterator<String, String> all = store.all()) {
                    while (all.hasNext()) {
                        KeyValue<String, String> one = all.next();
                        found.put(one.key, one.value);
                        records += Long.parseLong(one.value.split(":")[0]);
                    }
                }
            } catch (InvalidStateStoreException notYet) {
                continue;
            }
            if (records >= count) {
                return found;
            }
        }
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic with Kafka's own consumer and prints each record as a line of JSON. What it is given
 * and what it prints is that of reader.py beside this folder.
 */
public final class Reader {
    private static final long EARLIEST = -2;
    private static final long IDLE_NS = 60_000_000_000L;

    public static void main(String[] args) throws Exception {
        JsonNode spec =
            new ObjectMapper().readTree(new BufferedReader(new InputStreamReader(System.in)).readLine());
        JsonNode starts = spec.get("starts");
        boolean isAssigned = starts != null && !starts.isNull();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties(spec, isAssigned), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            String topic = spec.get("topic").asText();
            if (isAssigned) {
                assign(consumer, topic, starts);
            } else {
                consumer.subscribe(List.of(topic));
            }
            read(consumer, isAssigned ? spec.get("count").asLong() : Long.MAX_VALUE);
        }
    }

    private static void assign(KafkaConsumer<byte[], byte[]> consumer, String topic, JsonNode starts) {
        List<TopicPartition> partitions = new ArrayList<>();
        starts.fieldNames().forEachRemaining(name -> partitions.add(new TopicPartition(topic, Integer.parseInt(name))));
        consumer.assign(partitions);
        for (TopicPartition partition : partitions) {
            long at = starts.get(Integer.toString(partition.partition())).asLong();
            if (at == EARLIEST) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, at);
            }
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, long count) {
        long left = count;
        long since = System.nanoTime();
        while (left > 0) {
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(500))) {
                if (left-- > 0) {
                    print(one.partition(), one.offset(), one.timestamp(), one.key(), one.value());
                }
                since = System.nanoTime();
            }
            System.out.flush();
            if (System.nanoTime() - since > IDLE_NS) {
                throw new IllegalStateException("nothing came for a long time");
            }
        }
    }

    static Properties properties(JsonNode spec, boolean isAssigned) {
        Properties found = new Properties();
        found.put("bootstrap.servers", spec.get("bootstrap").asText());
        found.put("max.partition.fetch.bytes", "65536");
        found.put("max.poll.records", "100");
        found.put("auto.offset.reset", isAssigned ? "none" : "earliest");
        found.put("enable.auto.commit", isAssigned ? "false" : "true");
        found.put("auto.commit.interval.ms", "500");
        if (!isAssigned) {
            found.put("group.id", spec.get("group").asText());
            if (spec.get("protocol").asText().equals("consumer")) {
                found.put("group.protocol", "consumer");
            }
        }
        JsonNode security = spec.get("security");
        found.put("security.protocol", security.get("protocol").asText());
        if (security.hasNonNull("mechanism")) {
            found.put("sasl.mechanism", security.get("mechanism").asText());
            found.put("sasl.jaas.config",
                "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                    + security.get("username").asText() + "\" password=\""
                    + security.get("password").asText() + "\";");
        }
        if (security.hasNonNull("ca")) {
            found.put("ssl.truststore.type", "PEM");
            found.put("ssl.truststore.location", security.get("ca").asText());
        }
        return found;
    }

    static void print(int partition, long offset, long timestamp, byte[] key, byte[] value) {
        System.out.println("[" + partition + "," + offset + "," + timestamp + "," + text(key) + "," + text(value) + "]");
    }

    private static String text(byte[] data) {
        return data == null ? "null" : "\"" + Base64.getEncoder().encodeToString(data) + "\"";
    }
}

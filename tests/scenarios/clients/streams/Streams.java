import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** A Kafka Streams application that prints each record of a topic, as Reader does. */
public final class Streams {
    public static void main(String[] args) throws Exception {
        JsonNode spec =
            new ObjectMapper().readTree(new BufferedReader(new InputStreamReader(System.in)).readLine());
        Properties properties = Reader.properties(spec, false);
        properties.remove("group.id");
        properties.remove("enable.auto.commit");
        properties.remove("auto.commit.interval.ms");
        properties.put("application.id", spec.get("group").asText());
        properties.put("commit.interval.ms", "500");
        properties.put("state.dir", Files.createTempDirectory("streams").toString());
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(spec.get("topic").asText(), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .process(Printing::new);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.start();
            Thread.currentThread().join();
        }
    }

    private static final class Printing extends ContextualProcessor<byte[], byte[], Void, Void> {
        @Override
        public void process(Record<byte[], byte[]> one) {
            RecordMetadata at = context().recordMetadata().orElseThrow();
            Reader.print(at.partition(), at.offset(), one.timestamp(), one.key(), one.value());
            System.out.flush();
        }
    }
}

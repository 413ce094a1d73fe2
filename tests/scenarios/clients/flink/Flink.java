import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.CRC32;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * A Flink job in a cluster within this process: groups all records of a topic, from the earliest to
 * the end that it has at the start, as Totals of Kafka Streams does, and prints the same.
 */
public final class Flink {
    public static void main(String[] args) throws Exception {
        String spec = new BufferedReader(new InputStreamReader(System.in)).readLine();
        KafkaSource<Tuple3<String, Long, Long>> source = KafkaSource.<Tuple3<String, Long, Long>>builder()
            .setBootstrapServers(value(spec, "bootstrap"))
            .setTopics(value(spec, "topic"))
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setDeserializer(new Grouping())
            .build();
        StreamExecutionEnvironment here = StreamExecutionEnvironment.createLocalEnvironment(2);
        here.setRuntimeMode(RuntimeExecutionMode.BATCH);
        Map<String, String> found = new TreeMap<>();
        try (CloseableIterator<Tuple3<String, Long, Long>> rows = here
                .fromSource(source, WatermarkStrategy.noWatermarks(), "history")
                .keyBy(row -> row.f0)
                .reduce((one, other) -> Tuple3.of(one.f0, one.f1 + other.f1, one.f2 + other.f2))
                .executeAndCollect()) {
            rows.forEachRemaining(row -> found.put(row.f0, row.f1 + ":" + row.f2));
        }
        StringBuilder text = new StringBuilder("{");
        found.forEach((group, total) -> text.append(text.length() > 1 ? ", " : "")
            .append('"').append(group).append("\": \"").append(total).append('"'));
        System.out.println(text.append("}"));
    }

    private static String value(String spec, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"([^\"]*)\"").matcher(spec);
        if (!found.find()) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return found.group(1);
    }

    private static final class Grouping implements KafkaRecordDeserializationSchema<Tuple3<String, Long, Long>> {
        private static final long serialVersionUID = 1;

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> one, Collector<Tuple3<String, Long, Long>> out) {
            byte[] key = one.key();
            CRC32 checksum = new CRC32();
            checksum.update(key);
            checksum.update(one.value());
            String group = new String(key, key.length - 1, 1, StandardCharsets.UTF_8);
            out.collect(Tuple3.of(group, 1L, checksum.getValue()));
        }

        @Override
        public TypeInformation<Tuple3<String, Long, Long>> getProducedType() {
            return Types.TUPLE(Types.STRING, Types.LONG, Types.LONG);
        }
    }
}

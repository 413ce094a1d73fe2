package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.collection.Iterator;

/** Kafka's properties as Spark's source puts them together; without authentication. */
public class KafkaConfigUpdater {
    private final Map<String, Object> properties = new HashMap<>();

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
        for (Iterator<scala.Tuple2<String, Object>> rows = given.iterator(); rows.hasNext(); ) {
            scala.Tuple2<String, Object> row = rows.next();
            properties.put(row._1(), row._2());
        }
    }

    public KafkaConfigUpdater set(String key, Object value) {
        properties.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        properties.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> cluster) {
        return this;
    }

    public Map<String, Object> build() {
        return properties;
    }
}

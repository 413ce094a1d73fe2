package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/** Delegation tokens: none. */
public final class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    public Option<Object> findMatchingTokenClusterConfig(SparkConf conf, String bootstrap) {
        return Option.empty();
    }

    public boolean needTokenUpdate(Map<String, Object> parameters, Option<?> cluster) {
        return false;
    }
}

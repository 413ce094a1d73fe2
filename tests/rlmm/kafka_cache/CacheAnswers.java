package org.apache.kafka.server.log.remote.metadata.storage;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/**
 * Reads commands, one a line: "new", "start NUMBER START END EPOCH:OFFSET,...", "state NUMBER ID",
 * "ask EPOCHS OFFSETS". To "ask" it answers a line for each epoch: the highest offset, the numbers
 * of the listed segments, and the number of the segment of each offset; "-" is none.
 */
public final class CacheAnswers {
    private static final TopicIdPartition PARTITION =
        new TopicIdPartition(new Uuid(1, 2), new TopicPartition("orders", 0));

    private final Map<Integer, RemoteLogSegmentId> ids = new HashMap<>();
    private RemoteLogMetadataCache cache = new RemoteLogMetadataCache();

    private CacheAnswers() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        CacheAnswers answers = new CacheAnswers();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.take(line.split(" "), out);
        }
        out.flush();
    }

    private void take(String[] words, PrintStream out) throws Exception {
        switch (words[0]) {
            case "new" -> cache = new RemoteLogMetadataCache();
            case "start" -> start(words);
            case "state" -> cache.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
                id(words[1]), 0, Optional.empty(),
                RemoteLogSegmentState.forId(Byte.parseByte(words[2])), 1));
            case "ask" -> {
                for (int epoch = 0; epoch < Integer.parseInt(words[1]); epoch++) {
                    out.println(answer(epoch, Integer.parseInt(words[2])));
                }
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void start(String[] words) {
        TreeMap<Integer, Long> epochs = new TreeMap<>();
        for (String entry : words[4].split(",")) {
            String[] parts = entry.split(":");
            epochs.put(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
        }
        cache.addCopyInProgressSegment(new RemoteLogSegmentMetadata(
            id(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]), 0, 1, 0, 1, epochs));
    }

    private String answer(int epoch, int offsets) throws Exception {
        List<String> listed = new ArrayList<>();
        Iterator<RemoteLogSegmentMetadata> found = cache.listRemoteLogSegments(epoch);
        while (found.hasNext()) {
            listed.add(number(found.next()));
        }
        List<String> held = new ArrayList<>();
        for (int offset = 0; offset < offsets; offset++) {
            held.add(cache.remoteLogSegmentMetadata(epoch, offset).map(this::number).orElse("-"));
        }
        String highest = cache.highestOffsetForEpoch(epoch).map(String::valueOf).orElse("-");
        return highest + " " + (listed.isEmpty() ? "-" : String.join(",", listed)) + " "
            + String.join(",", held);
    }

    private RemoteLogSegmentId id(String number) {
        return ids.computeIfAbsent(Integer.valueOf(number),
            one -> new RemoteLogSegmentId(PARTITION, new Uuid(0, one + 1L)));
    }

    private String number(RemoteLogSegmentMetadata found) {
        return String.valueOf(found.remoteLogSegmentId().id().getLeastSignificantBits() - 1);
    }
}

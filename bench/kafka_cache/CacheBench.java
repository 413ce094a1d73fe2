package org.apache.kafka.server.log.remote.metadata.storage;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/** Replays a file of records as RemotePartitionMetadataStore does, then looks segments up. */
public final class CacheBench {
    private static final int KEY_BYTES = 36;
    private static final int LEADER_EPOCH = 3;

    private CacheBench() {
    }

    public static void main(String[] arguments) throws Exception {
        int lookups = Integer.parseInt(arguments[1]);
        long offsets = Long.parseLong(arguments[2]);
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long emptyBytes = usedBytes();
        Map<TopicIdPartition, RemoteLogMetadataCache> caches = new HashMap<>();
        long began = threads.getCurrentThreadCpuTime();
        long records = replay(Path.of(arguments[0]), caches);
        double replayS = (threads.getCurrentThreadCpuTime() - began) / 1e9;
        long heapBytes = usedBytes() - emptyBytes;
        List<RemoteLogMetadataCache> all = new ArrayList<>(caches.values());
        Random draw = new Random(12);
        double[] tookUs = new double[lookups];
        for (int at = 0; at < lookups; at++) {
            RemoteLogMetadataCache cache = all.get(draw.nextInt(all.size()));
            long offset = (long) (draw.nextDouble() * offsets);
            long from = System.nanoTime();
            if (cache.remoteLogSegmentMetadata(LEADER_EPOCH, offset).isEmpty()) {
                throw new IllegalStateException("no segment holds offset " + offset);
            }
            tookUs[at] = (System.nanoTime() - from) / 1e3;
        }
        Arrays.sort(tookUs);
        System.out.printf(
            "{\"records\": %d, \"partitions\": %d, \"replay_cpu_s\": %.2f, \"heap_bytes\": %d,"
                + " \"lookup_us\": {\"p50\": %.2f, \"p99\": %.2f}}%n",
            records, caches.size(), replayS, heapBytes, tookUs[lookups / 2],
            tookUs[(int) (lookups * 0.99)]);
    }

    private static long replay(Path path, Map<TopicIdPartition, RemoteLogMetadataCache> caches)
            throws Exception {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        long records = 0;
        try (InputStream file = Files.newInputStream(path);
             DataInputStream in = new DataInputStream(new BufferedInputStream(file, 1 << 20))) {
            for (byte[] value = next(in); value != null; value = next(in)) {
                take((RemoteLogSegmentMetadata) serde.deserialize(value), caches);
                records++;
            }
        }
        return records;
    }

    private static void take(RemoteLogSegmentMetadata found,
                             Map<TopicIdPartition, RemoteLogMetadataCache> caches) throws Exception {
        TopicIdPartition partition = found.remoteLogSegmentId().topicIdPartition();
        RemoteLogMetadataCache cache =
            caches.computeIfAbsent(partition, one -> new RemoteLogMetadataCache());
        if (found.state() == RemoteLogSegmentState.COPY_SEGMENT_STARTED) {
            cache.addCopyInProgressSegment(found);
            return;
        }
        cache.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
            found.remoteLogSegmentId(), found.eventTimestampMs(), found.customMetadata(),
            found.state(), found.brokerId()));
    }

    private static byte[] next(DataInputStream in) throws IOException {
        try {
            in.readByte();
        } catch (EOFException end) {
            return null;
        }
        in.readFully(new byte[KEY_BYTES]);
        byte[] value = new byte[in.readInt()];
        in.readFully(value);
        return value;
    }

    private static long usedBytes() throws InterruptedException {
        for (int round = 0; round < 3; round++) {
            System.gc();
            Thread.sleep(200);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}

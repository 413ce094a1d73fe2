import java.io.ByteArrayInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.offload.jcloud.DataBlockHeader;
import org.apache.bookkeeper.mledger.offload.jcloud.OffloadIndexBlock;
import org.apache.bookkeeper.mledger.offload.jcloud.OffloadIndexBlockBuilder;
import org.apache.bookkeeper.mledger.offload.jcloud.OffloadIndexEntry;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreBackedReadHandleImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.DataBlockHeaderImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.DataBlockUtils;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.DataBlockUtils.VersionCheck;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.OffsetsCache;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.domain.Blob;
import org.jclouds.blobstore.domain.MutableBlobMetadata;
import org.jclouds.blobstore.options.GetOptions;
import org.jclouds.io.Payload;

/**
 * Opens an index object and its data object with Pulsar's own classes, and prints what they say as
 * JSON. Arguments: index file, data file, and ranges of entry ids, FIRST-LAST, to read.
 */
public final class OpenBlocks {
    private static final int READ_BUFFER_BYTES = 100;
    private static final int LIMIT_S = 60;

    private final Path index;
    private final Path data;
    private final AtomicInteger requests = new AtomicInteger();

    private OpenBlocks(Path index, Path data) {
        this.index = index;
        this.data = data;
    }

    public static void main(String[] arguments) throws Exception {
        OpenBlocks files = new OpenBlocks(Path.of(arguments[0]), Path.of(arguments[1]));
        String[] ranges = Arrays.copyOfRange(arguments, 2, arguments.length);
        System.out.println("{" + files.opened(ranges) + "," + files.read(ranges)
            + ",\"as_broker\":\"" + files.openedAsBroker() + "\"}");
        System.exit(0);
    }

    private String opened(String[] ranges) throws Exception {
        try (InputStream in = new FileInputStream(index.toFile())) {
            OffloadIndexBlock block = (OffloadIndexBlock) OffloadIndexBlockBuilder.create().fromStream(in);
            LedgerMetadata ledger = block.getLedgerMetadata();
            StringJoiner entries = new StringJoiner(",", "[", "]");
            StringJoiner headers = new StringJoiner(",", "[", "]");
            for (String range : ranges) {
                OffloadIndexEntry entry = block.getIndexEntryForEntry(first(range));
                entries.add(row(first(range), entry.getEntryId(), entry.getPartId(),
                    entry.getOffset(), entry.getDataOffset()));
                headers.add(header(entry.getOffset()));
            }
            return "\"blocks\":" + block.getEntryCount()
                + ",\"data_length\":" + block.getDataObjectLength()
                + ",\"header_length\":" + block.getDataBlockHeaderLength()
                + ",\"ledger\":" + row(ledger.getEnsembleSize(), ledger.getWriteQuorumSize(),
                    ledger.getLength(), ledger.getLastEntryId())
                + ",\"state\":\"" + ledger.getState() + "\""
                + ",\"entries\":" + entries + ",\"headers\":" + headers;
        }
    }

    private String header(long position) throws Exception {
        try (InputStream in = new FileInputStream(data.toFile())) {
            in.skipNBytes(position);
            DataBlockHeader header = DataBlockHeaderImpl.fromStream(in);
            return row(header.getHeaderLength(), header.getBlockLength(), header.getFirstEntryId());
        }
    }

    private String read(String[] ranges) throws Exception {
        ScheduledExecutorService executor = Executors.newSingleThreadScheduledExecutor();
        ReadHandle handle = handle(executor, (key, blob) -> { });
        StringJoiner found = new StringJoiner(",", "[", "]");
        for (String range : ranges) {
            found.add("\"" + found(handle, range) + "\"");
        }
        return "\"last\":" + handle.getLastAddConfirmed() + ",\"length\":" + handle.getLength()
            + ",\"closed\":" + handle.isClosed() + ",\"read\":" + found
            + ",\"requests\":" + requests;
    }

    /** What Pulsar's broker says, which wants a version in the user metadata of its objects. */
    private String openedAsBroker() throws Exception {
        try {
            handle(Executors.newSingleThreadScheduledExecutor(), DataBlockUtils.VERSION_CHECK);
            return "opened";
        } catch (IOException error) {
            return error.getMessage();
        }
    }

    private ReadHandle handle(ScheduledExecutorService executor, VersionCheck check)
            throws Exception {
        return BlobStoreBackedReadHandleImpl.open(executor, store(), "bucket", "data", "index",
            check, 7, READ_BUFFER_BYTES, proxy(LedgerOffloaderStats.class, (name, given) -> null),
            "tenant/ns/persistent/topic", new OffsetsCache());
    }

    /** The bytes of the entries in hexadecimal, or the class of the error. */
    private static String found(ReadHandle handle, String range) throws Exception {
        long last = Long.parseLong(range.substring(range.indexOf('-') + 1));
        try (LedgerEntries entries =
                handle.readAsync(first(range), last).get(LIMIT_S, TimeUnit.SECONDS)) {
            StringBuilder text = new StringBuilder();
            entries.forEach(one -> text.append(HexFormat.of().formatHex(one.getEntryBytes())));
            return text.toString();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    /** A store of two objects, which counts requests for ranges. */
    private BlobStore store() {
        return proxy(BlobStore.class, (name, arguments) -> {
            if (!name.equals("getBlob")) {
                return null;
            }
            byte[] content = Files.readAllBytes(arguments[1].equals("index") ? index : data);
            if (arguments.length == 3) {
                requests.incrementAndGet();
                String[] ends = ((GetOptions) arguments[2]).getRanges().get(0).split("-");
                content = Arrays.copyOfRange(content, Integer.parseInt(ends[0]),
                    Math.min(content.length, Integer.parseInt(ends[1]) + 1));
            }
            return blob(content);
        });
    }

    private static Blob blob(byte[] content) {
        Payload payload = proxy(Payload.class, (name, arguments) ->
            name.equals("openStream") ? new ByteArrayInputStream(content) : null);
        MutableBlobMetadata metadata = proxy(MutableBlobMetadata.class, (name, arguments) ->
            name.equals("getUserMetadata") ? Map.of("rlm-format-version", "1") : null);
        return proxy(Blob.class, (name, arguments) -> switch (name) {
            case "getPayload" -> payload;
            case "getMetadata" -> metadata;
            default -> null;
        });
    }

    private interface Answer {
        Object to(String method, Object[] arguments) throws Exception;
    }

    private static <T> T proxy(Class<T> type, Answer answer) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
            (self, method, arguments) -> answer.to(method.getName(), arguments)));
    }

    private static long first(String range) {
        return Long.parseLong(range.substring(0, range.indexOf('-')));
    }

    private static String row(long... numbers) {
        return Arrays.toString(numbers);
    }
}

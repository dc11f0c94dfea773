package squall.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.utils.TypeConversions;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs SQL over auction events that were read before, as Flink's own rows, so that neither a parser
 * nor a conversion is measured.
 *
 * <p>Arguments: the file of events (fields of a line by tabs: kind, time, and the event's), and a
 * file of statements that define views, one a line. Then each line of the input is a request of
 * three fields by tabs: how many of the events, the path of a file for the answers or "-", and a
 * query. The answer is a line: nanoseconds of CPU of this process and of the clock from the first
 * event to the end of the job; or "error" and why.
 */
public final class Auctions {
    private static final OperatingSystemMXBean PROCESS =
            ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    private static final RowType ROW =
            (RowType)
                    DataTypes.ROW(
                                    DataTypes.FIELD("kind", DataTypes.INT()),
                                    DataTypes.FIELD("moment", DataTypes.TIMESTAMP(3)),
                                    DataTypes.FIELD("p", fields("id", "name$", "email$", "card$",
                                            "city$", "state$", "at_ms", "extra$")),
                                    DataTypes.FIELD("a", fields("id", "item$", "description$",
                                            "initial_bid", "reserve", "at_ms", "expires", "seller",
                                            "category", "extra$")),
                                    DataTypes.FIELD("b", fields("auction", "bidder", "price",
                                            "channel$", "url$", "at_ms", "extra$")))
                            .getLogicalType();

    private static RowData[] events;
    private static volatile long firstCpu;
    private static volatile long firstClock;

    private Auctions() {}

    public static void main(String[] arguments) throws Exception {
        events = read(Path.of(arguments[0]));
        List<String> views = Files.readAllLines(Path.of(arguments[1]));
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] request = line.split("\t", 3);
            String answer;
            try {
                answer = run(Integer.parseInt(request[0]), request[1], request[2], views);
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                answer = "error " + String.valueOf(cause).replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private static String run(int count, String answers, String query, List<String> views)
            throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("parallelism.default", "1");
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(1, configuration);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        DataGeneratorSource<RowData> source =
                new DataGeneratorSource<>(new Events(), count, InternalTypeInfo.of(ROW));
        DataStream<RowData> stream =
                environment.fromSource(source, WatermarkStrategy.noWatermarks(), "events");
        Schema schema =
                Schema.newBuilder()
                        .column("kind", DataTypes.INT())
                        .column("moment", DataTypes.TIMESTAMP(3))
                        .column("p", row("p"))
                        .column("a", row("a"))
                        .column("b", row("b"))
                        .watermark("moment", "moment - INTERVAL '0.001' SECOND")
                        .build();
        tables.createTemporaryView("events", stream, schema);
        for (String view : views) {
            tables.executeSql(view);
        }
        Table found = tables.sqlQuery(query);
        if (answers.equals("-")) {
            found.executeInsert(TableDescriptor.forConnector("blackhole").build()).await();
        } else {
            write(found, Path.of(answers));
        }
        return (PROCESS.getProcessCpuTime() - firstCpu) + " " + (System.nanoTime() - firstClock);
    }

    private static void write(Table found, Path path) throws Exception {
        try (CloseableIterator<Row> rows = found.execute().collect();
                PrintWriter file = new PrintWriter(Files.newBufferedWriter(path))) {
            while (rows.hasNext()) {
                Row row = rows.next();
                StringBuilder text = new StringBuilder(row.getKind().shortString());
                for (int at = 0; at < row.getArity(); at++) {
                    text.append('\t').append(row.getField(at));
                }
                file.println(text);
            }
        }
    }

    /** A row of numbers, and of texts where the name ends in a dollar. */
    private static DataType fields(String... names) {
        List<DataTypes.Field> found = new ArrayList<>();
        for (String name : names) {
            found.add(
                    name.endsWith("$")
                            ? DataTypes.FIELD(
                                    name.substring(0, name.length() - 1), DataTypes.STRING())
                            : DataTypes.FIELD(name, DataTypes.BIGINT()));
        }
        return DataTypes.ROW(found);
    }

    private static DataType row(String name) {
        return TypeConversions.fromLogicalToDataType(
                        ROW.getTypeAt(ROW.getFieldIndex(name)))
                .bridgedTo(RowData.class);
    }

    private static RowData[] read(Path path) throws IOException {
        List<RowData> found = new ArrayList<>();
        try (BufferedReader lines = Files.newBufferedReader(path)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] fields = line.split("\t", -1);
                int kind = Integer.parseInt(fields[0]);
                RowType type = (RowType) ROW.getTypeAt(2 + kind);
                GenericRowData own = new GenericRowData(type.getFieldCount());
                for (int at = 0; at < type.getFieldCount(); at++) {
                    String text = fields[2 + at];
                    boolean number =
                            type.getTypeAt(at).getTypeRoot()
                                    == LogicalTypeRoot.BIGINT;
                    own.setField(at, number ? Long.valueOf(text) : StringData.fromString(text));
                }
                GenericRowData event = new GenericRowData(5);
                event.setField(0, kind);
                event.setField(1, TimestampData.fromEpochMillis(Long.parseLong(fields[1])));
                event.setField(2 + kind, own);
                found.add(event);
            }
        }
        return found.toArray(new RowData[0]);
    }

    /** The events that were read, from the first on. */
    public static final class Events implements GeneratorFunction<Long, RowData> {
        private static final long serialVersionUID = 1;

        @Override
        public RowData map(Long at) {
            if (at == 0) {
                firstCpu = PROCESS.getProcessCpuTime();
                firstClock = System.nanoTime();
            }
            return events[at.intValue()];
        }
    }
}

package squall.bench;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.storm.Config;
import org.apache.storm.Constants;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.KillOptions;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.NimbusClient;
import org.apache.storm.utils.Utils;

/**
 * Word count, acked: the same lines again and again, until FOLDER/stop exists at the end of a pass.
 *
 * <p>WordCount NAME LINES_FILE FOLDER WORKERS PENDING TUNED submits it, WordCount NAME kills it.
 *
 * <p>Every spout writes FOLDER/lines-TASK ("sent acked failed passes stopped"), every counter
 * FOLDER/count-TASK ("word count" a line), a few times a second.
 */
public final class WordCount {
  private WordCount() {}

  static void write(String folder, String name, String text) {
    try {
      Path fresh = new File(folder, "." + name).toPath();
      Files.write(fresh, text.getBytes(StandardCharsets.UTF_8));
      Files.move(fresh, new File(folder, name).toPath(), StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  public static final class Lines extends BaseRichSpout {
    private static final long WRITE_NANOS = 200_000_000L;
    private final String file;
    private final String folder;
    private SpoutOutputCollector collector;
    private String[] lines;
    private String name;
    private int at;
    private long sent;
    private long acked;
    private long failed;
    private long passes;
    private boolean stopped;
    private long writeAt;

    public Lines(String file, String folder) {
      this.file = file;
      this.folder = folder;
    }

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector out) {
      collector = out;
      name = "lines-" + context.getThisTaskId();
      try {
        List<String> all = Files.readAllLines(new File(file).toPath(), StandardCharsets.UTF_8);
        lines = all.toArray(new String[0]);
      } catch (IOException e) {
        throw new IllegalStateException(e);
      }
    }

    @Override
    public void nextTuple() {
      if (stopped || (sent & 1023) == 0) {
        long now = System.nanoTime();
        if (now - writeAt > WRITE_NANOS) {
          writeAt = now;
          int over = stopped ? 1 : 0;
          write(folder, name, sent + " " + acked + " " + failed + " " + passes + " " + over);
        }
      }
      if (stopped) {
        return;
      }
      sent++;
      collector.emit(new Values(lines[at]), sent);
      if (++at == lines.length) {
        at = 0;
        passes++;
        stopped = new File(folder, "stop").exists();
      }
    }

    @Override
    public void ack(Object id) {
      acked++;
    }

    @Override
    public void fail(Object id) {
      failed++;
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("line"));
    }
  }

  public static final class Split extends BaseRichBolt {
    private OutputCollector collector;

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector out) {
      collector = out;
    }

    @Override
    public void execute(Tuple tuple) {
      for (String word : tuple.getString(0).split(" ")) {
        collector.emit(tuple, new Values(word));
      }
      collector.ack(tuple);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("word"));
    }
  }

  public static final class Count extends BaseRichBolt {
    private final String folder;
    private OutputCollector collector;
    private String name;
    private HashMap<String, Long> counts;

    public Count(String folder) {
      this.folder = folder;
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector out) {
      collector = out;
      name = "count-" + context.getThisTaskId();
      counts = new HashMap<>();
    }

    @Override
    public void execute(Tuple tuple) {
      if (tuple.getSourceStreamId().equals(Constants.SYSTEM_TICK_STREAM_ID)) {
        // Only at the end is it read; until then it would be CPU that is not word count.
        if (new File(folder, "stop").exists()) {
          StringBuilder text = new StringBuilder();
          counts.forEach((word, n) -> text.append(word).append(' ').append(n).append('\n'));
          write(folder, name, text.toString());
        }
      } else {
        counts.merge(tuple.getString(0), 1L, Long::sum);
      }
      collector.ack(tuple);
    }

    @Override
    public Map<String, Object> getComponentConfiguration() {
      return Map.of(Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, 1);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {}
  }

  static void kill(String name) throws Exception {
    KillOptions options = new KillOptions();
    options.set_wait_secs(0);
    Map<String, Object> conf = Utils.readStormConfig();
    NimbusClient.Builder.withConf(conf).build().getClient().killTopologyWithOpts(name, options);
    // The client's threads would keep the process alive.
    System.exit(0);
  }

  public static void main(String[] args) throws Exception {
    if (args.length == 1) {
      kill(args[0]);
    }
    int workers = Integer.parseInt(args[3]);
    TopologyBuilder builder = new TopologyBuilder();
    builder.setSpout("lines", new Lines(args[1], args[2]), workers);
    builder.setBolt("split", new Split(), workers).shuffleGrouping("lines");
    builder.setBolt("count", new Count(args[2]), workers).fieldsGrouping("split", new Fields("word"));
    Config conf = new Config();
    conf.setNumWorkers(workers);
    conf.setNumAckers(workers);
    conf.setMaxSpoutPending(Integer.parseInt(args[4]));
    conf.setMessageTimeoutSecs(120);
    if (Boolean.parseBoolean(args[5])) {
      // Batches of 1 are the default, and the best there is for acked tuples.
      conf.put(Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING, true);
    }
    StormSubmitter.submitTopology(args[0], conf, builder.createTopology());
  }
}
